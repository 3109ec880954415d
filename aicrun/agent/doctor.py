"""What a person should know about this host before runs depend on it: one finding a line. It changes nothing."""

import glob
import os
import shutil
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import build, card_hold, cards, drains, keepers, lock_folder, machine, notes, smi
from aicrun.agent.environment import SYSTEM_PATH
from aicrun.agent.home import Home, file_system, is_network
from aicrun.agent.pythons import pythons
from aicrun.agent.refused import Refused
from aicrun.agent.survey import envs_folder
from aicrun.wire.facts import Cards, Disk

GIB = 1024**3
MIB = 1024**2
SHARED = "/dev/shm"  # noqa: S108  where the C library keeps what processes share
SHARED_LEAST_BYTES = 512 * MIB
UPLOAD_TOOLS = ("rsync", "rclone", "aws", "hf")
ROOM_GIB = 5
INODES_LEAST = 1000


def doctor(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `doctor`: rows of `word` (`ok`, `note`, `bad`, `?`), `topic`, `text`, `help`; `data` is the data volume."""
    del payload
    data = str(body.get("data") or "")
    home_folder = machine.account(os.environ.get("HOME", ""))[1]
    rows = [_python(home), _driver(cards.cards(os.environ))]
    rows += [
        _lock(),
        *_drain(),
        _survival(),
        _state(home, home_folder),
        _volume("envs", envs_folder(data, home_folder), home_folder),
    ]
    if data:
        rows.append(_volume("data", data, home_folder))
    rows += [*_shared_memory(), *_suspend(), _uv(home, home_folder), _upload_tools(home_folder), _notes(home)]
    return {"findings": rows, "at": time.time()}, b""


def _row(word: str, topic: str, text: str, way: str = "") -> Dict[str, str]:
    return {"word": word, "topic": topic, "text": text, "help": way}


def _python(home: Home) -> Dict[str, str]:
    others = [python.version for python in pythons(home, os.environ)[1:]]
    text = "%d.%d.%d, %s" % (sys.version_info[:3] + (sys.executable,))
    return _row("ok", "python3", text + ("; also " + ", ".join(others) if others else ""))


def _driver(found: Cards) -> Dict[str, str]:
    if found.state == "none":
        return _row("note", "driver", "no card: %s" % found.detail)
    if found.state == "unknown":
        way = "reboot this machine" if found.reason == "driver_mismatch" else "nvidia-smi"
        return _row("bad", "driver", found.detail or found.reason, way)
    text = "%s, %d card%s" % (found.driver, len(found.cards), "" if len(found.cards) == 1 else "s")
    sick = [str(card.index) for card in found.cards if card.state != "ok"]
    if sick:
        return _row("bad", "driver", text + "; card %s cannot be used" % ", ".join(sick), "reboot this machine")
    if not all(card.processes_listed for card in found.cards):
        return _row("note", "driver", text + "; nobody can say which processes are on them here")
    if found.source == smi.SOURCE:
        return _row("note", "driver", "%s, told by nvidia-smi; %s" % (text, found.detail), "nvidia-smi")
    return _row("ok", "driver", text + ", processes can be listed")


def _lock() -> Dict[str, str]:
    """Which folder excludes whom: two accounts that see another device or inode here do not exclude each other."""
    try:
        path = os.path.join(lock_folder.choose(card_hold.places()), lock_folder.VERSION)
        if not os.path.isdir(path):
            return _row("ok", "lock", "%s, made by the first run with a card" % path)
        with lock_folder.opened(card_hold.places()) as folder:
            text = "%s (device %d, inode %d)" % (folder.path, folder.device, folder.inode)
            scope = folder.scope
    except Refused as error:
        return _row("bad", "lock", error.message)
    if scope != "machine":
        return _row("note", "lock", text + "; cards are exclusive within this container only")
    return _row("ok", "lock", text + ", for the whole machine")


def _drain() -> List[Dict[str, str]]:
    """One row while no new run starts here, none else."""
    mark = drains.now()
    if mark is None:
        return []
    why = ": " + mark.why if mark.why else ""
    return [
        _row("note", "drain", "by %s%s; no new run starts here" % (mark.account, why), "aicrun machines drain --off")
    ]


def _survival() -> Dict[str, str]:
    found = keepers.outlook(os.environ)
    text = "a run " + found.promise
    if found.warning:
        text += "; " + found.warning
    if found.mode == "C" and found.why:
        text += " (%s)" % found.why
    word = "ok" if found.outlives_logout == "yes" and not found.warning else "note"
    return _row("bad" if found.outlives_logout == "no" else word, "survival", text, found.better)


def _state(home: Home, home_folder: str) -> Dict[str, str]:
    kind = file_system(home.root) or "unknown file system"
    if is_network(home.root):
        text = "%s on %s; job folders are at %s" % (home.root, kind, home.jobs_root)
        return _row("note", "state", text)
    found = machine.disk(home.jobs_root, home_folder)
    room = _room(found) if found else "its free space cannot be read"
    return _row(_word(found), "state", "local disk %s, %s" % (kind, room), _way(found, home.root))


def _volume(topic: str, path: str, home_folder: str) -> Dict[str, str]:
    found = machine.disk(path, home_folder)
    if found is None:
        return _row("?", topic, "%s cannot be read" % path)
    if not found.writable:
        return _row("bad", topic, "%s cannot be written by this account" % path, "ls -ld %s" % path)
    return _row(_word(found), topic, "%s, %s" % (path, _room(found)), _way(found, path))


def _uv(home: Home, home_folder: str) -> Dict[str, str]:
    found = build.find_uv(home, home_folder)
    return _row("ok", "uv", found) if found else _row("note", "uv", "none; a client sends its own when a run needs it")


def _shared_memory() -> List[Dict[str, str]]:
    """A row where workers that share memory (PyTorch's DataLoader) would meet their end: containers give 64 MiB."""
    found = machine.disk(SHARED, "/")
    if found is None:
        return [_row("note", "shm", "%s cannot be read: workers that share memory may fail" % SHARED)]
    if found.free_bytes >= SHARED_LEAST_BYTES:
        return []
    text = "%s has %d MiB free: workers that share memory may fail" % (SHARED, found.free_bytes // MIB)
    return [_row("note", "shm", text, "df -h %s" % SHARED)]


def _suspend() -> List[Dict[str, str]]:
    """A row where logind puts this machine to sleep when nobody types: a run sleeps with it."""
    action = ""
    for path in ("/etc/systemd/logind.conf", *sorted(glob.glob("/etc/systemd/logind.conf.d/*.conf"))):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                found = [line.partition("=")[2].strip() for line in stream if line.strip().startswith("IdleAction=")]
        except OSError:
            continue
        action = found[-1] if found else action
    if action not in ("suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate"):
        return []
    text = "logind does %s when nobody types here: runs sleep meanwhile" % action
    return [_row("note", "suspend", text, "sudo systemctl mask sleep.target suspend.target")]


def _upload_tools(home_folder: str) -> Dict[str, str]:
    places = [os.path.join(home_folder, ".local/bin"), *SYSTEM_PATH]
    found = [tool for tool in UPLOAD_TOOLS if shutil.which(tool, path=os.pathsep.join(places))]
    lacking = [tool for tool in UPLOAD_TOOLS if tool not in found]
    text = ", ".join(found) or "none"
    return _row("ok", "tools", text + ("; without " + ", ".join(lacking) if lacking else ""))


def _notes(home: Home) -> Dict[str, str]:
    found = notes.head(home)
    people, ours = _counted(found.people_lines, "line"), _counted(found.blocks, "block")
    return _row("ok", "notes", "%s by people, %s by aicrun" % (people, ours))


def _room(found: Disk) -> str:
    few = ", %d inodes" % found.free_inodes if found.free_inodes <= INODES_LEAST else ""
    return "%d GiB%s free" % (found.free_bytes // GIB, few)


def _word(found: Optional[Disk]) -> str:
    if found is None:
        return "?"
    return "ok" if found.free_bytes >= ROOM_GIB * GIB and found.free_inodes > INODES_LEAST else "note"


def _way(found: Optional[Disk], path: str) -> str:
    return "" if _word(found) == "ok" else "df -h -i %s" % path


def _counted(number: int, noun: str) -> str:
    return "%d %s" % (number, noun if number == 1 else noun + "s")
