"""The cards as `nvidia-smi` tells them, for a host where NVML cannot be loaded or started by us, and its tool can.

What it prints is read by pure functions; a value that it does not give is absent and named, never 0. It must not be
asked outside of a process that may hang: it speaks to the same driver.
"""

import os
import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from aicrun.agent import card_users, later
from aicrun.wire import lean
from aicrun.wire.codec import replace
from aicrun.wire.facts import Card, Cards
from aicrun.wire.patterns import pattern

if TYPE_CHECKING:
    import shutil
    import subprocess
else:
    shutil, subprocess = later.module("shutil"), later.module("subprocess")

SOURCE = "nvidia-smi"
# The first question may wake cards that sleep, seconds each.
FIRST_S = 10.0
NEXT_S = 4.0
# Where images and systems put it when PATH, as a bare login has it, does not lead there.
PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/nvidia/bin")
NEEDED = ("index", "uuid", "name")
# Field of its own -> field of a card. An older tool that lacks one is asked again without it.
FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "pci.bus_id": "pci_bus_id",
    "memory.total": "vram_total_mib",
    "memory.free": "vram_free_mib",
    "memory.used": "vram_used_mib",
    "memory.reserved": "vram_reserved_mib",
    "utilization.gpu": "utilization_percent",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "compute_cap": "compute_capability",
    "compute_mode": "compute_mode",
    "mig.mode.current": "mig",
    "display_active": "display",
    "driver_version": "driver",
    # Last, for it is the only one that may hold a comma of its own.
    "name": "model",
}
APPS = "gpu_uuid,pid,used_memory"
_MODES = {"default": "default", "exclusive_thread": "exclusive_thread", "prohibited": "prohibited"}
_UNKNOWN_FIELD = pattern(r'Field "([a-z_.]+)" is not a valid field to query')
_CUDA = pattern(r"^CUDA Version\s*:\s*(\d+\.\d+)", re.MULTILINE)
# What it says when it cannot answer -> (state, reason).
_FAILURES = (
    ("No devices were found", "none", "no_device"),
    ("version mismatch", "unknown", "driver_mismatch"),
    ("couldn't communicate with the NVIDIA driver", "unknown", "driver_not_loaded"),
    ("Driver Not Loaded", "unknown", "driver_not_loaded"),
    ("couldn't find libnvidia-ml", "unknown", "library_missing"),
    ("Insufficient Permissions", "unknown", "no_permission"),
    ("access blocked", "unknown", "no_permission"),
    ("GPU is lost", "unknown", "card_lost"),
    ("Unable to determine the device handle", "unknown", "card_lost"),
)


@lean.dataclass(frozen=True)
class Said:
    """What one call printed; `code` None when it gave no answer in time."""

    code: Optional[int]
    out: str = ""
    err: str = ""


def find(env: Mapping[str, str]) -> str:
    """The absolute path of the tool, "" where there is none."""
    path = os.pathsep.join([env.get("PATH", ""), *PLACES])
    return shutil.which("nvidia-smi", path=path) or ""


def asked(tool: str) -> Cards:
    """The cards as `tool` tells them; `unknown` with its words when it cannot. May take `FIRST_S` and more."""
    said, fields = _asked_for_cards(tool)
    found = read_cards(said, fields)
    if found.state != "devices":
        return found
    apps = _run(tool, ["--query-compute-apps=" + APPS, "--format=csv,noheader,nounits"], NEXT_S)
    head = _run(tool, ["-q", "-d", "COMPUTE"], NEXT_S)
    version = _CUDA.search(head.out)
    rows = read_processes(apps)
    listed = rows is not None and card_users.can_be_known()
    named = {uuid: [card_users.user_of(*row) for row in of_card] for uuid, of_card in (rows or {}).items()}
    cards = tuple(
        replace(card, processes_listed=listed, processes=tuple(named.get(card.uuid, ()))) for card in found.cards
    )
    return replace(found, cards=cards, cuda=version.group(1) if version else "")


def instead(failed: Cards, tool: str) -> Cards:
    """What `tool` tells where NVML gave `failed`: its cards, or whichever of the two says better what is wrong."""
    told = asked(tool)
    if told.state == "devices":
        why = "NVML could not be asked: %s" % (failed.detail or failed.reason)
        return replace(told, detail="; ".join(part for part in (why, told.detail) if part))
    vague = failed.state == "unknown" and failed.reason in ("no_pynvml", "library_missing", "nvml_error")
    return told if vague and told.reason not in ("probe_failed", "nvml_error") else failed


def read_cards(said: Said, fields: Tuple[str, ...]) -> Cards:
    """The answer to a question for `fields`, one line a card; pure."""
    if said.code is None:
        return Cards("unknown", "timeout", "nvidia-smi gave no answer within %.0f s" % FIRST_S, source=SOURCE)
    lines = [[part.strip() for part in line.split(",", len(fields) - 1)] for line in said.out.splitlines()]
    rows = [parts for parts in lines if len(parts) > 1 and parts[0].isdigit()]
    told = [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]
    complaint = _complaint(said)
    if not told or len(told) != len(rows) or (said.code != 0 and not complaint):
        return _failed(said, complaint)
    try:
        cards = tuple(_card(row) for row in told)
    except ValueError:
        return Cards("unknown", "probe_failed", "nvidia-smi said what cannot be read: %s" % _first(said), source=SOURCE)
    # A card that it cannot reach is missing among the others; its complaint is kept.
    return Cards("devices", detail=complaint, driver=_text(told[0], "driver_version"), cards=cards, source=SOURCE)


def read_processes(said: Said) -> Optional[Dict[str, List[Tuple[int, str, Optional[int]]]]]:
    """Card to (pid, `compute`, MiB) of each process on it; None when they could not be listed. Pure."""
    if said.code != 0:
        return None
    found: Dict[str, List[Tuple[int, str, Optional[int]]]] = {}
    for line in said.out.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[1].isdigit():
            used = int(parts[2]) if parts[2].isdigit() else None
            found.setdefault(parts[0], []).append((int(parts[1]), "compute", used))
        elif line.strip():
            # A table that is not understood is not an empty one.
            return None
    return found


def _asked_for_cards(tool: str) -> Tuple[Said, Tuple[str, ...]]:
    fields = tuple(FIELDS)
    while True:
        said = _run(tool, ["--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"], FIRST_S)
        unknown = _UNKNOWN_FIELD.search(said.out + said.err)
        if unknown is None or unknown.group(1) not in fields or unknown.group(1) in NEEDED:
            return said, fields
        fields = tuple(field for field in fields if field != unknown.group(1))


def _run(tool: str, arguments: List[str], within_s: float) -> Said:
    try:
        done = subprocess.run(
            [tool, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Said(None)
    except OSError as error:
        return Said(127, err=error.strerror or "it cannot be run")
    return Said(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def _card(row: Dict[str, str]) -> Card:
    """One card; what its row does not give is absent and named. Raises `ValueError` without an index."""
    unreadable = {FIELDS[field]: why for field, text in row.items() for why in (_why(text),) if why}
    values: Dict[str, Any] = {}
    for field in ("memory.total", "memory.free", "memory.used", "memory.reserved", "utilization.gpu"):
        values[FIELDS[field]] = _number(row, field)
    for field in ("temperature.gpu", "power.draw"):
        values[FIELDS[field]] = _number(row, field)
    mig = {"enabled": "on", "disabled": "off"}.get(_text(row, "mig.mode.current").lower())
    unsupported = unreadable.get("mig", "") == "not_supported"
    if unsupported:
        # A card without MIG is no card about which something could not be read.
        del unreadable["mig"]
    mode = _text(row, "compute_mode").lower()
    found = Card(
        index=int(row["index"]),
        uuid=_text(row, "uuid"),
        model=_text(row, "name"),
        pci_bus_id=_text(row, "pci.bus_id"),
        compute_capability=_text(row, "compute_cap"),
        compute_mode=mode if mode in (*_MODES, "exclusive_process") else "unknown",
        mig=mig or ("unsupported" if unsupported else "unknown"),
        display=_text(row, "display_active").lower() == "enabled",
        unreadable=unreadable,
        utilization_looks=0 if values["utilization_percent"] is None else 1,
        **values,
    )
    return replace(found, state="lost") if "lost" in unreadable.values() else found


def _number(row: Dict[str, str], field: str) -> Optional[int]:
    try:
        return int(float(row.get(field, "")))
    except (ValueError, OverflowError):
        return None


def _text(row: Dict[str, str], field: str) -> str:
    text = row.get(field, "")
    return "" if _why(text) else text


def _why(text: str) -> str:
    """Why a value is none; "" for a value."""
    bare = text.strip("[]").strip().lower()
    if bare in ("n/a", "not supported"):
        return "not_supported"
    if bare == "insufficient permissions":
        return "no_permission"
    if bare == "gpu is lost":
        return "lost"
    return "error" if text.startswith("[") or bare in ("unknown error", "err!", "") else ""


def _complaint(said: Said) -> str:
    """The first line that is no row and tells of a fault."""
    lines = (said.out + "\n" + said.err).splitlines()
    known = [words for words, _, _ in _FAILURES]
    return next((line.strip() for line in lines if any(words in line for words in known)), "")


def _failed(said: Said, complaint: str) -> Cards:
    for words, state, reason in _FAILURES:
        if words in complaint:
            return Cards(state, reason, complaint[:300], source=SOURCE)
    detail = "nvidia-smi ended with %s: %s" % (said.code, _first(said) or "it said nothing")
    return Cards("unknown", "nvml_error" if "NVML" in said.out else "probe_failed", detail, source=SOURCE)


def _first(said: Said) -> str:
    return next((line.strip()[:200] for line in (said.out + "\n" + said.err).splitlines() if line.strip()), "")
