"""What a person should know about this host before runs depend on it: one finding a line. It changes nothing."""

import os
import shutil
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from aicrun.agent import (
    bodies,
    built,
    doctor_cards,
    drains,
    hooks,
    lock_folder,
    machine,
    notes,
    prospect,
    suspends,
    units,
)
from aicrun.agent.digest import agent_digest, bundle_root
from aicrun.agent.finding import BAD, NOTE, OK, UNKNOWN, counted, row
from aicrun.agent.home import Home, file_system, is_network
from aicrun.agent.machine import SYSTEM_PATH
from aicrun.agent.pythons import pythons
from aicrun.agent.refused import Refused
from aicrun.agent.survey import envs_folder
from aicrun.wire.facts import Disk

GIB = 1024**3
MIB = 1024**2
SHARED = "/dev/shm"  # noqa: S108  where the C library keeps what processes share
SHARED_LEAST_BYTES = 512 * MIB
# Of each destination that a run can upload to, one is enough.
UPLOAD_TOOLS = ("rsync", "rclone", "aws", "hf")
WORKSPACES = "~/aic-jobs"
SHARE_LOCKS = "docker run -v /run/lock:/run/lock ..."
ROOM_GIB = 5
INODES_LEAST = 1000

Row = Dict[str, str]


def doctor(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `doctor`: rows of `word` (`ok`, `note`, `bad`, `?`), `topic`, `text`, `help`.

    `data` is the data volume; `keep` are the cards that the inventory keeps, as numbers and UUIDs.
    """
    del payload
    data, keep = str(body.get("data") or ""), bodies.texts(body, "keep")
    home_folder = machine.account(os.environ.get("HOME", ""))[1]
    rows = [_python(home), _uv(home, home_folder), *doctor_cards.card_rows(home, keep)]
    rows += [_lock(), *_drain(), _survival(), _linger()]
    rows += [
        _volume("home", "~", home_folder),
        _volume("workspace", WORKSPACES, home_folder),
        _state(home, home_folder),
        _volume("envs", envs_folder(data, home_folder), home_folder),
    ]
    if data:
        rows.append(_volume("data", data, home_folder))
    rows += [_shared_memory(), _suspend(), _upload_tools(home_folder), _notes(home)]
    return {"findings": rows, "at": time.time()}, b""


def _python(home: Home) -> Row:
    others = [python.version for python in pythons(home, os.environ)[1:]]
    text = "%d.%d.%d, %s" % (sys.version_info[:3] + (sys.executable,))
    text += ", agent %s unpacked" % agent_digest(bundle_root())[:8]
    return row(OK, "python3", text + ("; also " + ", ".join(others) if others else ""))


def _lock() -> Row:
    """Which folder excludes whom: two accounts that see another device or inode here do not exclude each other."""
    try:
        path = os.path.join(lock_folder.choose(lock_folder.here()), lock_folder.VERSION)
        if not os.path.isdir(path):
            return row(OK, "lock", "%s, made by the first run with a card" % path)
        with lock_folder.opened(lock_folder.here()) as folder:
            text = "%s (device %d, inode %d)" % (folder.path, folder.device, folder.inode)
            scope = folder.scope
    except Refused as error:
        return row(BAD, "lock", error.message, "ls -ld /run/lock /run/lock/aicrun /var/tmp")
    if scope != "machine":
        return row(NOTE, "lock", text + "; cards are exclusive within this container only", SHARE_LOCKS)
    return row(OK, "lock", text + ", flock works, for the whole machine")


def _drain() -> List[Row]:
    """One row while no new run starts here, none else."""
    mark = drains.now()
    if mark is None:
        return []
    why = ": " + mark.why if mark.why else ""
    return [row(NOTE, "drain", "by %s%s; no new run starts here" % (mark.account, why), "aicrun machines drain --off")]


def _survival() -> Row:
    found = prospect.outlook(os.environ)
    text = "a run " + found.promise
    if found.warning:
        text += "; " + found.warning
    if found.mode == "C" and found.why:
        text += " (%s)" % found.why
    if found.outlives_logout == "yes" and not found.warning:
        return row(OK, "survival", text, found.better)
    word = BAD if found.outlives_logout == "no" else NOTE
    return row(word, "survival", text, found.better or "loginctl session-status")


def _state(home: Home, home_folder: str) -> Row:
    kind = file_system(home.root) or "unknown file system"
    if is_network(home.root):
        text = "%s on %s; job folders are at %s" % (home.root, kind, home.jobs_root)
        return row(NOTE, "state", text, "df -h %s" % home.root)
    found = machine.disk(home.jobs_root, home_folder)
    if found is not None and not found.writable:
        return row(BAD, "state", "%s cannot be written: no run can start or be stopped" % home.root, "df -h -i ~")
    room = _room(found) if found else "its free space cannot be read"
    return row(_word(found), "state", "local disk %s, %s" % (kind, room), _way(found, home.root))


def _volume(topic: str, path: str, home_folder: str) -> Row:
    found = machine.disk(path, home_folder)
    if found is None:
        return row(UNKNOWN, topic, "%s cannot be read" % path, "ls -ld %s" % path)
    if not found.writable:
        return row(BAD, topic, "%s cannot be written by this account" % path, "ls -ld %s" % path)
    if _is_noexec(path, home_folder):
        text = "%s forbids programs (noexec): no environment can work there" % path
        return row(BAD, topic, text, "findmnt -T %s" % path)
    return row(_word(found), topic, "%s, %s" % (path, _room(found)), _way(found, path))


def _is_noexec(path: str, home_folder: str) -> bool:
    place = home_folder + path[1:] if path.startswith("~") else path
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    return bool(os.statvfs(place).f_flag & os.ST_NOEXEC)


def _uv(home: Home, home_folder: str) -> Row:
    found = built.find_uv(home, home_folder)
    return row(OK, "uv", found or "none here; a client sends its own when a run needs it")


def _shared_memory() -> Row:
    """Where workers that share memory (PyTorch's DataLoader) would meet their end: containers give 64 MiB."""
    found = machine.disk(SHARED, "/")
    if found is None or not os.path.isdir(SHARED):
        text = "%s is not there: workers that share memory may fail" % SHARED
        return row(NOTE, "shm", text, "sudo mount -t tmpfs tmpfs %s" % SHARED)
    text = "%s, %s" % (SHARED, _room(found))
    if not found.writable:
        return row(BAD, "shm", "%s cannot be written by this account" % SHARED, "ls -ld %s" % SHARED)
    if found.free_bytes >= SHARED_LEAST_BYTES:
        return row(OK, "shm", text)
    way = "docker run --shm-size=8g ..." if machine.in_container() else "sudo mount -o remount,size=50%% %s" % SHARED
    return row(NOTE, "shm", text + ": workers that share memory may fail", way)


def _linger() -> Row:
    """Whether the account's own manager stays without a login; what that means for a run is said by `survival`."""
    if not units.here():
        return row(OK, "linger", "no systemd runs here, so no logout of systemd's ends a run")
    account = machine.account("")[0]
    if hooks.number("UID", os.geteuid()) == 0:
        return row(OK, "linger", "not needed: runs of root are units of the system")
    lingers = units.lingers(account)
    if lingers is None:
        return row(UNKNOWN, "linger", "whether %s lingers cannot be read" % account, "loginctl show-user %s" % account)
    if not lingers:
        text = "off for %s; the first run that starts asks for it" % account
        return row(NOTE, "linger", text, "loginctl enable-linger %s" % account)
    return row(OK, "linger", "on for %s: its user manager stays when its last session ends" % account)


def _suspend() -> Row:
    """Whether this machine goes to sleep by itself: a run sleeps with it."""
    if not units.here():
        return row(OK, "suspend", "no systemd runs here that would put it to sleep")
    asleep, awake = suspends.sleeps()
    if asleep:
        way = "sudo systemctl mask sleep.target suspend.target"
        return row(NOTE, "suspend", asleep + ": runs sleep meanwhile", way)
    return row(OK, "suspend", awake or "logind does not put it to sleep by itself")


def _upload_tools(home_folder: str) -> Row:
    places = [os.path.join(home_folder, ".local/bin"), *SYSTEM_PATH]
    found = [tool for tool in UPLOAD_TOOLS if shutil.which(tool, path=os.pathsep.join(places))]
    lacking = [tool for tool in UPLOAD_TOOLS if tool not in found]
    if not found:
        text = "none of %s: a run here can only upload to a folder of this machine" % ", ".join(UPLOAD_TOOLS)
        return row(NOTE, "tools", text, "sudo apt-get install rclone rsync")
    return row(OK, "tools", ", ".join(found) + ("; without " + ", ".join(lacking) if lacking else ""))


def _notes(home: Home) -> Row:
    found = notes.head(home)
    people, ours = counted(found.people_lines, "line"), counted(found.blocks, "block")
    return row(OK, "notes", "%s by people, %s by aicrun" % (people, ours))


def _room(found: Disk) -> str:
    """Free bytes and free inodes; a file system that counts none has no number to tell."""
    free = found.free_bytes
    size = "%d GiB" % (free // GIB) if free >= 10 * GIB else "%.1f GiB" % (free / GIB)
    return "%s free%s" % (size, ", {:,} inodes".format(found.free_inodes) if found.total_inodes else "")


def _word(found: Optional[Disk]) -> str:
    if found is None:
        return UNKNOWN
    few = bool(found.total_inodes) and found.free_inodes <= INODES_LEAST
    return OK if found.free_bytes >= ROOM_GIB * GIB and not few else NOTE


def _way(found: Optional[Disk], path: str) -> str:
    return "" if _word(found) == OK else "df -h %s; df -i %s" % (path, path)
