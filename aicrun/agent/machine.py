"""Plain readings of this host: processors, memory, volumes, account, C library. It must not judge them."""

import os
import pwd
from typing import Dict, Iterable, Optional, Tuple

from aicrun.agent.home import mounted
from aicrun.wire.facts import Disk

MIB = 1024 * 1024
# Where programs of the system lie.
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Where a system that has no /usr/bin of its own keeps its programs (NixOS).
OTHER_SYSTEM_PATH = ("/run/current-system/sw/bin",)


def program(name: str, folders: Iterable[str]) -> str:
    """The first of `folders` that has a program of that name, as a path; "" for none. Relative folders do not count.

    What `shutil.which` would find, without loading it.
    """
    for folder in folders:
        place = os.path.join(folder, name)
        if os.path.isabs(folder) and os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return ""


def cpus() -> int:
    """The processors this account may use: affinity, and a container's quota rounded up."""
    count = len(os.sched_getaffinity(0))
    quota = _first_words("/sys/fs/cgroup/cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        count = min(count, max(1, -(-int(quota[0]) // int(quota[1]))))
    return count


def cpus_free(count: int) -> Optional[float]:
    """`count` minus the load of the last minute, never below zero; None where the load cannot be read."""
    try:
        return round(max(0.0, count - os.getloadavg()[0]), 2)
    except OSError:
        return None


def memory() -> Tuple[int, Optional[int]]:
    """(total, available) MiB, a container's limit counted; total 0 where it cannot be read."""
    found: Dict[str, int] = {}
    try:
        with open("/proc/meminfo", encoding="utf-8") as stream:
            for line in stream:
                name, _, rest = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(rest.split()[0]) // 1024
    except (OSError, ValueError):
        return 0, None
    total, free = found.get("MemTotal", 0), found.get("MemAvailable")
    limit, used = _first_words("/sys/fs/cgroup/memory.max"), _first_words("/sys/fs/cgroup/memory.current")
    if limit and limit[0].isdigit() and used and used[0].isdigit():
        most = int(limit[0]) // MIB
        total = min(total, most)
        free = None if free is None else max(0, min(free, most - int(used[0]) // MIB))
    return total, free


def disk(path: str, home_folder: str) -> Optional[Disk]:
    """The volume that holds `path` (may begin with `~`) or its nearest existing parent; None when it cannot be read."""
    place = home_folder + path[1:] if path == "~" or path.startswith("~/") else path
    if not os.path.isabs(place):
        return None
    is_filled = _holds_something(place)
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place.rstrip("/"))
    try:
        state, entry = os.statvfs(place), os.stat(place)
    except OSError:
        return None
    kind, source = mounted(place)
    owner, owner_home = _other_owner(entry.st_uid)
    return Disk(
        path=path,
        free_bytes=state.f_bavail * state.f_frsize,
        total_bytes=state.f_blocks * state.f_frsize,
        free_inodes=state.f_favail,
        filesystem=kind,
        writable=os.access(place, os.W_OK),
        filled=is_filled,
        total_inodes=state.f_files,
        volume=volume(entry.st_dev, kind, source),
        owner=owner,
        owner_home=owner_home,
        place=place,
    )


def volume(device: int, kind: str, source: str) -> str:
    """What is equal for all folders that share their free space.

    A subvolume of btrfs and a data set of ZFS have a device number of their own and no room of their own.
    """
    if kind == "btrfs" and source:
        return source
    if kind == "zfs" and source:
        return "zfs:" + source.split("/")[0]
    return "%x" % device


def _other_owner(uid: int) -> Tuple[str, str]:
    """(account, home) of who owns a folder, where we are root and it is not; nobody else can act for another."""
    if os.geteuid() != 0 or uid == 0:
        return "", ""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return str(uid), ""
    return entry.pw_name, entry.pw_dir


def _holds_something(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def account(home_variable: str) -> Tuple[str, str, str]:
    """(name, home folder, shell) of this account; HOME wins where it names a folder."""
    try:
        entry = pwd.getpwuid(os.geteuid())
        name, home, shell = entry.pw_name, entry.pw_dir, entry.pw_shell
    except KeyError:
        name, home, shell = str(os.geteuid()), "/", "/bin/sh"
    return name, home_variable if os.path.isabs(home_variable) and os.path.isdir(home_variable) else home, shell


def account_of(uid: int) -> str:
    """The name of an account, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def libc() -> str:
    """`glibc 2.36`, or `musl` where the C library is not GNU's."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "musl"
    except (ValueError, OSError):
        return "musl"


def in_container() -> bool:
    """True when this looks like a container: its files say so, or PID 1 says what made it."""
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return True
    try:
        with open("/proc/1/environ", "rb") as stream:
            return any(entry.startswith(b"container=") for entry in stream.read(65536).split(b"\0"))
    except OSError:
        return os.path.exists("/run/systemd/container")


def _first_words(path: str) -> Tuple[str, ...]:
    try:
        with open(path, encoding="utf-8") as stream:
            return tuple(stream.readline().split())
    except (OSError, ValueError):
        return ()
