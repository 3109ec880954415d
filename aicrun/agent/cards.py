"""The NVIDIA cards of this host, asked in a process of their own, since a sick driver may hang or crash who asks.

Three answers that are never mixed up: the devices, none (with the reason), or unknown. No number is ever made up: what
cannot be read is absent and named.
"""

import _thread
import importlib
import json
import os
import sys
import time
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from aicrun.agent import apart, card_users, later, smi
from aicrun.wire.codec import WireError, dump, from_json, replace
from aicrun.wire.facts import Card, Cards

if TYPE_CHECKING:
    import signal
    import subprocess
else:
    signal, subprocess = later.module("signal"), later.module("subprocess")

# A loaded machine may take seconds for its first answer; past this a driver counts as hanging.
DEADLINE_S = 15.0
MIB = 1024 * 1024
# Where nobody can list the processes of a card its utilization is all there is to go by, and one look may fall between
# two of a program's steps: so many looks, in this time, for all such cards together. Others cost one look and no wait.
LOOKS = 5
LOOKS_WITHIN_S = 0.2
MODULE = "an NVIDIA module with its card built in; nothing here tells that card's memory"
NVIDIA_PCI = "0x10de"
_PCI = "/sys/bus/pci/devices"

_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from aicrun.agent import cards; cards.child(int(sys.argv[2]))"
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def cards(env: Mapping[str, str], deadline_s: float = DEADLINE_S, looks: int = 1) -> Cards:
    """The cards as the driver tells them within `deadline_s` to who has `env`; `looks` as in `asked`. Never raises."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        asking = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD, root, str(looks)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own, so that a tool that it asks and that hangs goes with it.
            start_new_session=True,
        )
    except OSError as error:
        return Cards("unknown", "probe_failed", str(error))
    try:
        said, complained = asking.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        _abandon(asking)
        return _late(deadline_s)
    return _understood(said, asking.returncode, complained)


def here(deadline_s: float = DEADLINE_S, looks: int = 1) -> Cards:
    """The same with the environment of this process, in a third of the time where it has one thread."""
    if not apart.can_fork():
        return cards(os.environ, deadline_s, looks)
    try:
        # Loaded here: a fork that loads it copies what it touches of this process. The driver is met by the fork alone.
        _pynvml()
    except Exception:  # noqa: BLE001  whatever it is, the fork meets it too, and tells it
        pass
    try:
        told = apart.ask(lambda: dump(asked(looks)), deadline_s)
    except OSError as error:
        return Cards("unknown", "probe_failed", str(error))
    return _late(deadline_s) if told.code is None else _understood(told.said, told.code, told.said)


def _late(deadline_s: float) -> Cards:
    return Cards("unknown", "timeout", "the driver gave no answer within %.0f s" % deadline_s)


def _understood(said: bytes, code: int, complained: bytes) -> Cards:
    try:
        return from_json(Cards, json.loads(said.decode("utf-8")))
    except (ValueError, WireError):
        last = complained.decode("utf-8", "replace").strip().splitlines()[-1:]
        return Cards("unknown", "probe_failed", "; ".join(["the probe ended with %d" % code] + last))


def child(looks: int) -> None:
    """What the asking process does: ask, write one JSON document, end."""
    sys.stdout.buffer.write(dump(asked(looks)))
    sys.stdout.flush()


def _abandon(asking: "subprocess.Popen[bytes]") -> None:
    # A process that hangs in the driver may not die: it is not waited for longer than this.
    try:
        os.killpg(asking.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        asking.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        for stream in (asking.stdout, asking.stderr):
            if stream is not None:
                stream.close()


def asked(looks: int = 1) -> Cards:
    """The cards, asked in this very process: only for one that may hang or crash without harm.

    Of a card whose processes cannot be listed the utilization is the highest of `looks`, within `LOOKS_WITHIN_S`.
    Where NVML gives no clean answer and `nvidia-smi` is there, that is asked.
    """
    found = _by_nvml(looks)
    tool = "" if found.state == "devices" or found.reason == "no_device" else smi.find(os.environ)
    return smi.instead(found, tool) if tool else found


def _by_nvml(looks: int) -> Cards:
    try:
        pynvml = _pynvml()
    except ImportError:
        return _without_pynvml()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _no_nvml(pynvml, error)
    try:
        driver, cuda = _driver(pynvml)
        count = pynvml.nvmlDeviceGetCount()
        if not count:
            return Cards("none", "no_device", "the driver lists no card", driver, cuda)
        found = _looked_again(pynvml, tuple(_card(pynvml, index) for index in range(count)), looks)
    except pynvml.NVMLError as error:
        return _no_nvml(pynvml, error)
    return Cards("devices", driver=driver, cuda=cuda, cards=found, source="nvml")


def _pynvml() -> Any:
    """The package, in half of its time: behind names of which it uses one function stands the other half."""
    # First, so that nobody else meets what stands in.
    importlib.import_module("ctypes")
    standing = [name for name in _STAND_INS if name not in sys.modules]
    for name in standing:
        sys.modules[name] = _StandIn(name)
    try:
        # Imported here: the one door of a package that only hosts with our bundle have.
        import pynvml
    finally:
        for name in standing:
            del sys.modules[name]
    return pynvml


class _StandIn(types.ModuleType):
    """What `_STAND_INS` has of a module of the standard library; all else is the module's own, loaded for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__.update(_STAND_INS[name])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def _find_library(name: str) -> Any:
    # It is never called where the driver's library lies where it should.
    return importlib.import_module("ctypes.util").find_library(name)


def _capwords(text: str, parting: Optional[str] = None) -> str:
    return (parting or " ").join(word.capitalize() for word in text.split(parting))


# What the package uses of modules that cost more than that: a thread's lock, a name in capitals, and a search that it
# never makes.
_STAND_INS: Dict[str, Dict[str, Any]] = {
    "ctypes.util": {"find_library": _find_library},
    "string": {"capwords": _capwords},
    "threading": {"Lock": _thread.allocate_lock},
}


def _no_nvml(pynvml: Any, error: Any) -> Cards:
    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        if os.path.exists("/proc/driver/nvidia/version"):
            return Cards("unknown", "library_missing", "the kernel has the driver, but libnvidia-ml.so.1 is not found")
        if is_module():
            return Cards("unknown", "unmeasured", MODULE)
        return Cards("none", "no_driver", _pci_words() or "no NVIDIA driver and no NVIDIA card")
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        words = _pci_words()
        return Cards("unknown" if words else "none", "driver_not_loaded", words or "the driver's kernel part is absent")
    if error.value == getattr(pynvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18):
        detail = "driver and its library differ in version: updated, and not rebooted since"
        return Cards("unknown", "driver_mismatch", detail)
    token = _token(pynvml, error)
    if token in ("no_permission", "lost"):
        return Cards("unknown", {"lost": "card_lost"}.get(token, token), str(error))
    return Cards("unknown", "nvml_error", str(error))


def _without_pynvml() -> Cards:
    if os.path.exists("/proc/driver/nvidia/version") or _pci_words():
        return Cards("unknown", "no_pynvml", "the agent came without pynvml, so the cards cannot be asked")
    if is_module():
        return Cards("unknown", "unmeasured", MODULE)
    return Cards("none", "no_driver", "no NVIDIA driver and no NVIDIA card")


def is_module(tree: str = "/proc/device-tree/compatible") -> bool:
    """Whether this host is an embedded module (Jetson), whose card is no PCI device and may have no NVML."""
    try:
        with open(tree, "rb") as stream:
            return b"nvidia,tegra" in stream.read(4096)
    except OSError:
        return False


def _pci_words() -> str:
    try:
        found = os.listdir(_PCI)
    except OSError:
        return ""
    for name in found:
        folder = os.path.join(_PCI, name)
        try:
            with open(os.path.join(folder, "vendor"), encoding="ascii") as stream:
                vendor = stream.read().strip()
            with open(os.path.join(folder, "class"), encoding="ascii") as stream:
                # Class 03 is a display controller, 3D controllers included.
                if vendor == NVIDIA_PCI and stream.read().startswith("0x03"):
                    return "an NVIDIA card is there (%s), but no driver is loaded" % name
        except OSError:
            continue
    return ""


def _driver(pynvml: Any) -> Tuple[str, str]:
    driver, cuda = "", ""
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        number = pynvml.nvmlSystemGetCudaDriverVersion()
        cuda = "%d.%d" % (number // 1000, number % 1000 // 10)
    except pynvml.NVMLError:
        # Old drivers do not tell; a demand for a version then finds it absent.
        pass
    return driver, cuda


class _Questions:
    """Asks one thing after another of one card; what cannot be had is noted under its field's name."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.unreadable: Dict[str, str] = {}

    def ask(self, field: str, question: Callable[[], Any], otherwise: Any = None) -> Any:
        try:
            return question()
        except self.pynvml.NVMLError as error:
            self.unreadable[field] = _token(self.pynvml, error)
        except (ValueError, UnicodeDecodeError):
            self.unreadable[field] = "garbled"
        return otherwise


def _card(pynvml: Any, index: int) -> Card:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return _lost(pynvml, index, error)
    questions = _Questions(pynvml)
    ask = questions.ask
    memory = _memory(questions, handle)
    capability = ask("compute_capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    processes = _processes(questions, handle)
    listed = processes is not None and card_users.can_be_known()
    power = ask("power_w", lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    mode = ask("compute_mode", lambda: pynvml.nvmlDeviceGetComputeMode(handle))
    found = Card(
        index=index,
        uuid=ask("uuid", lambda: _text(pynvml.nvmlDeviceGetUUID(handle)), ""),
        model=ask("model", lambda: _text(pynvml.nvmlDeviceGetName(handle)), ""),
        vram_total_mib=memory.get("total"),
        vram_free_mib=memory.get("free"),
        vram_used_mib=memory.get("used"),
        vram_reserved_mib=memory.get("reserved"),
        utilization_percent=ask("utilization_percent", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        compute_capability="%d.%d" % tuple(capability) if capability else "",
        compute_mode="unknown" if mode is None else _COMPUTE_MODES.get(mode, "unknown"),
        pci_bus_id=ask("pci_bus_id", lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId), ""),
        mig=_mig(pynvml, handle),
        display=bool(ask("display", lambda: pynvml.nvmlDeviceGetDisplayActive(handle), 0)),
        temperature_c=ask("temperature_c", lambda: pynvml.nvmlDeviceGetTemperature(handle, 0)),
        power_w=None if power is None else power // 1000,
        processes_listed=listed,
        processes=tuple(processes or ()),
        unreadable=questions.unreadable,
    )
    lost = [field for field, why in questions.unreadable.items() if why == "lost"]
    return replace(found, state="lost") if lost else found


def _looked_again(pynvml: Any, found: Tuple[Card, ...], looks: int) -> Tuple[Card, ...]:
    seen = {card.index: [card.utilization_percent] for card in found if card.utilization_percent is not None}
    doubtful = [card.index for card in found if card.index in seen and not card.processes_listed]
    for _ in range(looks - 1 if doubtful else 0):
        time.sleep(LOOKS_WITHIN_S / (LOOKS - 1))
        for index in doubtful:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                seen[index].append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            except pynvml.NVMLError:
                # The first look stands; one that fails adds nothing to it.
                continue
    return tuple(_with_looks(card, seen.get(card.index, [])) for card in found)


def _with_looks(card: Card, seen: List[int]) -> Card:
    return replace(card, utilization_percent=max(seen), utilization_looks=len(seen)) if seen else card


def _lost(pynvml: Any, index: int, error: Any) -> Card:
    why = _token(pynvml, error)
    return Card(index, "", "", state="lost" if why == "lost" else "error", unreadable={"handle": why})


def _memory(questions: _Questions, handle: Any) -> Dict[str, int]:
    pynvml = questions.pynvml
    version = getattr(pynvml, "nvmlMemory_v2", None)
    if version is not None:
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=version)
            # Version 2 tells the driver's reserve apart; version 1 counts it as used.
            return {name: getattr(info, name) // MIB for name in ("total", "free", "used", "reserved")}
        except pynvml.NVMLError:
            # An older driver: ask the old way.
            pass
    info = questions.ask("vram_free_mib", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    if info is None:
        questions.unreadable["vram_total_mib"] = questions.unreadable["vram_free_mib"]
        return {}
    return {name: getattr(info, name) // MIB for name in ("total", "free", "used")}


def _mig(pynvml: Any, handle: Any) -> str:
    try:
        return "on" if pynvml.nvmlDeviceGetMigMode(handle)[0] else "off"
    except pynvml.NVMLError as error:
        return "unsupported" if _token(pynvml, error) == "not_supported" else "unknown"


def _processes(questions: _Questions, handle: Any) -> Optional[List[Any]]:
    pynvml = questions.pynvml
    compute = questions.ask("processes", lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if compute is None:
        return None
    graphics = questions.ask("graphics", lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle), [])
    known = {process.pid for process in compute}
    rows = [(process, "compute") for process in compute]
    rows += [(process, "graphics") for process in graphics if process.pid not in known]
    found = []
    for process, kind in rows:
        used = process.usedGpuMemory
        found.append(card_users.user_of(process.pid, kind, None if used is None else used // MIB))
    return found


def _token(pynvml: Any, error: Any) -> str:
    names = {
        "NVML_ERROR_NOT_SUPPORTED": "not_supported",
        "NVML_ERROR_FUNCTION_NOT_FOUND": "not_supported",
        "NVML_ERROR_NO_PERMISSION": "no_permission",
        "NVML_ERROR_GPU_IS_LOST": "lost",
        "NVML_ERROR_TIMEOUT": "timeout",
    }
    for name, token in names.items():
        if getattr(error, "value", None) == getattr(pynvml, name, object()):
            return token
    return "error"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
