"""Control groups: where this process stands, and a group of its own for each step's tree. It must never be needed.

Without a group of its own everything works by walking the process table. A group is ours when its name says so
(`aicrun-<job id>-<attempt>`); no other group is ever changed, but for one: where the keeper is alone in its group, as
in a delegated unit, it steps aside into `aicrun-sup`, for a group with controllers may hold no processes.
"""

import os
import signal
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from aicrun.agent import hooks
from aicrun.wire import lean
from aicrun.wire.patterns import pattern

SUPERVISORS = "aicrun-sup"
_OURS = pattern(r"aicrun-[0-9a-f]{16}-[0-9]+\Z")
_ESCAPED = pattern(r"\\([0-7]{3})")
# A job may make groups below its own; so many are looked into.
_FOLDERS_MOST = 1000
_REMOVE_S = 0.5


@lean.dataclass(frozen=True)
class Place:
    """The folders of this process's groups: `tree` lists and kills, `memory` counts; empty where there is none."""

    tree: str = ""
    memory: str = ""


@lean.dataclass(frozen=True)
class Group:
    """A step's own group: `tree` and `memory` are folders that may be one; empty where none could be made.

    `own_memory`: nobody else is counted in `memory`. `why` is one line where something could not be had.
    """

    tree: str = ""
    memory: str = ""
    own_memory: bool = False
    why: str = ""


def place(cgroup: str, mountinfo: str) -> Place:
    """Where a process stands, from the texts of its `/proc/<pid>/cgroup` and `mountinfo`; pure.

    Version 2 lists and kills wherever it is mounted, also beside version 1 (hybrid); the memory controller is in
    exactly one of the two.
    """
    unified, memory = "", ""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            unified = _folder(path, mountinfo, "cgroup2", "")
        elif "memory" in controllers.split(","):
            memory = _folder(path, mountinfo, "cgroup", "memory")
    return Place(unified or memory, memory or unified)


def _folder(path: str, mountinfo: str, kind: str, controller: str) -> str:
    """The folder in which a group shows here, empty when no mount shows it."""
    if ".." in path.split("/"):
        # It lies outside of what this container's view begins with.
        return ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, told = left.split(), right.split()
        if len(fields) < 5 or len(told) < 3 or told[0] != kind:
            continue
        if controller and controller not in told[2].split(","):
            continue
        root, point = (_ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), one) for one in fields[3:5])
        top = root.rstrip("/")
        if path == root or path.startswith(top + "/"):
            return (point.rstrip("/") + path[len(top) :]).rstrip("/") or "/"
    return ""


def here(proc: str = "/proc/self") -> Place:
    """Where this process stands; nowhere when that cannot be read. A test takes all versions away but one, or all."""
    lines = _text(os.path.join(proc, "cgroup")).splitlines()
    version = hooks.number("CGROUPS", 0)
    if version:
        lines = [line for line in lines if line.startswith("0::") == (version == 2)] if version > 0 else []
    return place("\n".join(lines), _text(os.path.join(proc, "mountinfo")))


def name(job_id: str, attempt: int) -> str:
    """What the group of an attempt is called."""
    return "aicrun-%s-%d" % (job_id, attempt)


def make(called: str, where: Place) -> Group:
    """Groups below `where` for one step's tree; what cannot be made is left out and told in `why`."""
    base = _base(where.tree)
    if not base:
        return Group(why="no control groups are mounted here")
    tree, why = _made(base, called)
    if where.memory != where.tree:
        own, why_not = _made(_base(where.memory), called)
        why = why or why_not
    else:
        own = tree if tree and (kills(tree) is not None or _count_here(base, tree)) else ""
    return Group(tree, own or _counting_above(_base(where.memory)), bool(own), why)


def _base(folder: str) -> str:
    """The folder below which we make groups: that of the process, or the one that it stepped aside from."""
    parts = folder.split("/")
    ours = next((at for at, part in enumerate(parts) if part == SUPERVISORS or _OURS.match(part)), len(parts))
    return "/".join(parts[:ours]) or folder[:1]


def _made(base: str, called: str) -> Tuple[str, str]:
    """(the folder, "") or ("", why not); one that is there already is of an earlier step of the same attempt."""
    folder = os.path.join(base, called)
    # Where groups of version 1 are not hierarchical, what is put below is free of the limit above it.
    if _text(os.path.join(base, "memory.use_hierarchy")).strip() == "0":
        return "", "memory groups are not hierarchical in %s" % base
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        pass
    except OSError as error:
        return "", "no group %s: %s" % (folder, error.strerror)
    return folder, ""


def _count_here(base: str, tree: str) -> bool:
    """Let the groups below `base` count their memory; only where this process is alone in it, else False."""
    if "memory" not in _text(os.path.join(base, "cgroup.controllers")).split():
        return False
    if _numbers(os.path.join(base, "cgroup.procs")) != [os.getpid()]:
        return False
    aside, _ = _made(base, SUPERVISORS)
    if not aside or not _wrote(os.path.join(aside, "cgroup.procs"), str(os.getpid())):
        return False
    if _wrote(os.path.join(base, "cgroup.subtree_control"), "+memory") and kills(tree) is not None:
        return True
    _wrote(os.path.join(base, "cgroup.procs"), str(os.getpid()))
    remove(aside)
    return False


def _counting_above(folder: str) -> str:
    """The nearest group that counts what was killed for memory: others are counted in it too."""
    while len(folder) > 1:
        if kills(folder) is not None:
            return folder
        folder = os.path.dirname(folder)
    return ""


def enter(group: Group, pid: int) -> Group:
    """Move the process `pid` into the group; what it could not enter is removed and gone from the answer."""
    for folder in dict.fromkeys((group.tree, group.memory if group.own_memory else "")):
        if folder and not _wrote(os.path.join(folder, "cgroup.procs"), str(pid)):
            discard(group)
            return Group(why="its process could not be moved into %s" % folder)
    return group


def knock() -> None:
    """Ask for the group that this process is in, which changes nothing; it may wait for some hundredths of a second."""
    tree = here().tree
    if tree:
        _wrote(os.path.join(tree, "cgroup.procs"), "0")


def discard(group: Group) -> None:
    """Remove the group's own folders, where nothing lives in them."""
    for folder in dict.fromkeys((group.tree, group.memory)):
        if _OURS.match(os.path.basename(folder)):
            remove(folder)


def recorded(called: str, *folders: str) -> Tuple[str, ...]:
    """Those of the recorded `folders` that are there and carry the name `called`: no other one is ours."""
    return tuple(one for one in folders if os.path.basename(one) == called and os.path.isdir(one))


def kills(folder: str) -> Optional[int]:
    """How many processes of a group were killed for memory; None where the kernel does not count it."""
    counted: Dict[str, int] = {}
    # Version 2 counts what lies below too, version 1 the group alone.
    for file in ("memory.events", "memory.oom_control"):
        for line in _text(os.path.join(folder, file)).splitlines() if folder else ():
            key, _, number = line.partition(" ")
            if key in ("oom_kill", "oom_group_kill") and number.strip().isdigit():
                counted[key] = int(number)
    return max(counted.values()) if counted else None


def killed_for_memory(group: Group, before: Optional[int]) -> bool:
    """True when the kernel has killed a process of the group for memory since it had counted `before`."""
    now = kills(group.memory)
    return now is not None and before is not None and now > before


class Verdict(NamedTuple):
    """What a rise of the counter says of a process that ended: it was killed, or some process was.

    `shared`: perhaps one that is not of the run.
    """

    killed: bool = False
    suspected: bool = False
    shared: bool = False


def verdict(group: Group, before: Optional[int], code: Optional[int], number: Optional[int], ours: bool) -> Verdict:
    """Whether a process that ended with `code` or signal `number` died for memory; `ours`: we had sent it KILL.

    Only the run's own counter proves it. In a group that others are in too it is a suspicion, whoever died.
    """
    if not killed_for_memory(group, before) or code == 0:
        return Verdict()
    if group.own_memory and number == signal.SIGKILL and not ours:
        return Verdict(killed=True)
    return Verdict(suspected=True, shared=not group.own_memory)


def pids(folder: str) -> List[int]:
    """The processes in a group and below it; none when there is no such group."""
    if not folder or populated(folder) is False:
        return []
    return sorted({pid for at in _below(folder) for pid in _numbers(os.path.join(at, "cgroup.procs"))})


def populated(folder: str) -> Optional[bool]:
    """The kernel's word on whether anything lives in a group or below it; None where it has none (version 1)."""
    for line in _text(os.path.join(folder, "cgroup.events")).splitlines():
        if line.startswith("populated "):
            return line.split()[1] != "0"
    return None


def kill(folder: str) -> bool:
    """SIGKILL to all in a group at once, also to what is being forked; False where the kernel cannot (before 5.14)."""
    return bool(folder) and _wrote(os.path.join(folder, "cgroup.kill"), "1")


def remove(folder: str) -> bool:
    """Remove a group and those below it, if nothing lives in them; True when it is gone."""
    until = time.monotonic() + _REMOVE_S
    while True:
        for at in reversed(_below(folder)):
            try:
                os.rmdir(at)
            except OSError:
                continue
        if not os.path.isdir(folder):
            return True
        # What has just died may still be counted for a moment.
        if pids(folder) or time.monotonic() > until:
            return False
        time.sleep(0.01)


def leave() -> None:
    """Step out of the group of a job that this process was started in: it is no part of that job's tree."""
    at = here()
    for folder in dict.fromkeys((at.tree, at.memory)):
        if not any(_OURS.match(part) for part in folder.split("/")):
            continue
        base = _base(folder)
        for target in (base, os.path.join(base, SUPERVISORS)):
            if _wrote(os.path.join(target, "cgroup.procs"), str(os.getpid())):
                break


def _below(folder: str) -> List[str]:
    found = [folder]
    for at in found:
        try:
            with os.scandir(at) as listing:
                found += [entry.path for entry in listing if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        if len(found) > _FOLDERS_MOST:
            break
    return found


def _numbers(path: str) -> List[int]:
    return [int(word) for word in _text(path).split() if word.isdigit()]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except (OSError, ValueError):
        return ""


def _wrote(path: str, text: str) -> bool:
    """True when the kernel took it; the file is never made."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(handle, text.encode("ascii"))
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
