"""The processes of one job, and their end. It must never touch a process that is not the job's.

While the keeper lives it is the parent of every orphan of the job, so descent is complete; the job's id in a
process's environment is a second finder, for what was started through a daemon. With the keeper gone the recorded
main process, its session and that mark are what is left. Every signal goes through `process.send_signal`.
"""

import os
import signal
import time
from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from aicrun.agent import cgroups, children
from aicrun.agent.process import Proc, alive, below, boot_identity, carries, look, send_signal, table
from aicrun.wire import lean, names
from aicrun.wire.facts import BootIdentity
from aicrun.wire.jobs import StepStart

KEEPER_MARK = "AICRUN_KEEPER=1"
KEEPER_ROLES = ("keeper", "again")
CHASE_S = 0.1
NEWEST = 32


@lean.dataclass(frozen=True)
class Family:
    """Whose processes are meant: all below `parent` but `spared`, all that carry the job's mark, all in its `group`.

    `group` is the folder of a control group, empty for none.
    """

    job_id: str
    parent: int
    spared: FrozenSet[int] = frozenset()
    group: str = ""

    def members(self) -> List[Proc]:
        """The living members, by pid."""
        processes = table()
        found = _descent([self.parent], processes)
        found |= _marked(self.job_id, processes) | _grouped(self.group, processes)
        return _listed(found, processes, self.spared | {self.parent, os.getpid()})


@lean.dataclass(frozen=True)
class Orphans:
    """The same for a job whose keeper is gone, from what was recorded of its steps."""

    job_id: str
    starts: Tuple[StepStart, ...]

    def members(self) -> List[Proc]:
        """The living members, by pid; none on another boot than the recorded one."""
        processes = table()
        # Without any start record, its folder is gone: what carries the mark now was started on this boot.
        found: Set[int] = set()
        if not self.starts or self._same_boot():
            # Once more among the newest: what lives for a moment only was not there or is gone by now.
            processes.update((proc.pid, proc) for proc in _newest_marked(self.job_id))
            found = _marked(self.job_id, processes)
        for start in self.starts:
            if not main_lives(start):
                continue
            found.add(start.pid)
            # A session's number cannot belong to a stranger while its leader, known by its ticks, lives.
            found |= {proc.pid for proc in processes.values() if proc.session == start.session}
        for group in self.groups():
            found |= _grouped(group, processes)
        found |= _descent(found, processes)
        return _listed(found, processes, frozenset((os.getpid(),)))

    def groups(self) -> Tuple[str, ...]:
        """The control groups that its steps were put in and that are still there, as recorded on this boot."""
        found: List[str] = []
        for start in self.starts:
            if on_this_boot(start):
                found += cgroups.recorded(cgroups.name(self.job_id, start.attempt), start.cgroup)
        return tuple(found)

    def near(self) -> "Near":
        """Where those who come and go are found."""
        return Near(self.groups(), job_id=self.job_id)

    def _same_boot(self) -> bool:
        return any(on_this_boot(start) for start in self.starts)


def main_lives(start: StepStart) -> bool:
    """True when the recorded main process of a step still lives, by identity."""
    return alive(start.pid, start.ticks, _boot(start))


def on_this_boot(start: StepStart) -> bool:
    """True when the step was started on the boot that runs now."""
    return _boot(start) == boot_identity()


def keeper_of(job_dir: str) -> Optional[Proc]:
    """The keeper of a job whose folder is not where it was, so that its lock there tells nothing; None without one.

    By its command line and by the lock that it holds open: a pump has the one and not the other.
    """
    for proc in table().values():
        try:
            with open("/proc/%d/cmdline" % proc.pid, "rb") as stream:
                words = os.fsdecode(stream.read(1 << 16)).split("\0")[:-1]
        except OSError:
            continue
        if len(words) > 2 and words[-2] in KEEPER_ROLES and words[-1] == job_dir and _has_open(proc, names.KEEPER_LOCK):
            return proc
    return None


def _has_open(proc: Proc, name: str) -> bool:
    """True when the process has a file of this name open, moved or removed though it may be."""
    folder = "/proc/%d/fd" % proc.pid
    try:
        handles = os.listdir(folder)
    except OSError:
        return False
    for handle in handles:
        try:
            path = os.readlink(os.path.join(folder, handle))
        except OSError:
            # Closed while we look: it says nothing of the others.
            continue
        if os.path.basename(path).partition(" ")[0] == name:
            return True
    return False


def any_marked(job_id: str) -> bool:
    """True when some living process was started with this job's id in its environment."""
    return bool(_marked(job_id, table()))


def signal_group(leader: int, ticks: int, number: int) -> bool:
    """Signal the process group that `leader` leads: True when a living leader was there to receive it.

    The leader is our own unreaped child or known by its ticks, so its number cannot be a stranger's.
    """
    proc = look(leader)
    if proc is None or proc.ticks != ticks or not proc.lives:
        return False
    try:
        os.killpg(leader, number)
        os.killpg(leader, signal.SIGCONT)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Some member changed its account; the leader itself is signalled on its own.
        return send_signal(leader, ticks, number)
    return True


def signal_all(members: Iterable[Proc], number: int) -> int:
    """Signal each member by identity; how many were there to receive it."""
    hit = 0
    for member in members:
        try:
            hit += send_signal(member.pid, member.ticks, number)
            if number != signal.SIGKILL:
                send_signal(member.pid, member.ticks, signal.SIGCONT)
        except PermissionError:
            # It runs as somebody else now: it stays a member, and is told as left over.
            continue
    return hit


@lean.dataclass(frozen=True)
class Near:
    """Where members of a job can be found without reading the whole process table: it is read too slowly for some.

    Among our own children but the `spared` (orphans that we adopted), in control `groups`, and among the newest
    processes of the host those that carry the mark of `job_id` (empty: not looked for).
    """

    groups: Tuple[str, ...] = ()
    spared: FrozenSet[int] = frozenset()
    job_id: str = ""

    def members(self) -> List[Proc]:
        """Those that are there at this moment."""
        found = [proc for proc in _own_children() if proc.pid not in self.spared]
        for group in self.groups:
            found += [proc for proc in map(look, cgroups.pids(group)) if proc is not None and _is_in(proc.pid, group)]
        found += _newest_marked(self.job_id) if self.job_id else []
        return [proc for proc in found if proc.lives and not carries(proc.pid, KEEPER_MARK)]

    def nobody(self) -> bool:
        """True when three looks find nobody; where processes come and go, one slow look may miss them all."""
        return not any(self.members() for _ in range(3))


def kill_all(members: Iterable[Proc], near: Near) -> int:
    """SIGKILL to each member, then to whoever these have just forked; how many members were there to receive it.

    Control groups are killed at once where the kernel can and nobody else is in them. Takes `CHASE_S` at most.
    """
    listed, at_once = list(members), False
    for group in near.groups:
        if not any(carries(pid, KEEPER_MARK) for pid in cgroups.pids(group)):
            at_once = cgroups.kill(group) or at_once
    hit = signal_all(listed, signal.SIGKILL)
    until, empty = time.monotonic() + (0.0 if at_once else CHASE_S), 0
    while empty < 3 and time.monotonic() < until:
        found = near.members()
        empty = 0 if found else empty + 1
        signal_all(found, signal.SIGKILL)
    return len(listed) if at_once else hit


def keepers_below() -> FrozenSet[int]:
    """Children of this process that keep another job: a run was started inside of the run, and lives on."""
    return frozenset(pid for pid in children.pids() if carries(pid, KEEPER_MARK))


def _newest_marked(job_id: str) -> List[Proc]:
    """Numbers are given out upwards and then from below again; the kernel tells the last one that it gave."""
    try:
        with open("/proc/loadavg", encoding="ascii") as stream:
            last = int(stream.read().split()[4])
    except (OSError, ValueError, IndexError):
        return []
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    newest = sorted(pids, key=lambda pid: (pid > last, -pid))[:NEWEST]
    mark = "%s=%s" % (names.JOB_ID, job_id)
    return [proc for proc in map(look, newest) if proc is not None and carries(proc.pid, mark)]


def _own_children() -> List[Proc]:
    """Children of this process; of its orphans those that it adopted. None where the kernel does not list them."""
    return [proc for proc in map(look, sorted(children.pids())) if proc is not None]


def _is_in(pid: int, group: str) -> bool:
    """Asked after the ticks were read: a number that a stranger got since has other ticks, or another group."""
    try:
        with open("/proc/%d/cgroup" % pid, encoding="utf-8", errors="surrogateescape") as stream:
            return any(os.path.basename(group) in line.strip().split("/") for line in stream)
    except OSError:
        return False


def _grouped(group: str, processes: Dict[int, Proc]) -> Set[int]:
    """The processes in a control group; who was born since the table was read is added to it.

    The table is older than the list: a number that changed its owner in between has other ticks, and is never hit.
    """
    found = set()
    for pid in cgroups.pids(group):
        proc = processes.get(pid) or look(pid)
        if proc is not None and proc.lives:
            found.add(pid)
            processes[pid] = proc
    apart = {pid for pid in found if carries(pid, KEEPER_MARK)}
    return found - apart - below(apart, processes)


def _marked(job_id: str, processes: Dict[int, Proc]) -> Set[int]:
    mark = "%s=%s" % (names.JOB_ID, job_id)
    marked = {pid for pid in processes if carries(pid, mark)}
    return marked | _descent(marked, processes)


def _descent(roots: Iterable[int], processes: Dict[int, Proc]) -> Set[int]:
    # A run that was started from inside a run is nobody's child: its keeper and all below it are left out.
    return below(roots, processes, lambda pid: carries(pid, KEEPER_MARK))


def _listed(pids: Iterable[int], processes: Dict[int, Proc], spared: FrozenSet[int]) -> List[Proc]:
    return [processes[pid] for pid in sorted(pids) if pid in processes and pid not in spared]


def _boot(start: StepStart) -> BootIdentity:
    return BootIdentity(start.boot_id, start.pid_namespace, start.init_ticks)
