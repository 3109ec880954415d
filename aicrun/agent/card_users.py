"""Who is on a card: the process behind a pid that the driver told. It must not signal anybody or judge.

The driver tells pids of the host. In a container they are other processes or nobody, and then nobody can say who is on
a card, which is not the same as nobody.
"""

import os
import pwd
from typing import Optional

from aicrun.wire import names
from aicrun.wire.facts import CardProcess

# The first pid namespace has this fixed inode: PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h.
_FIRST_NAMESPACE = "pid:[4026531836]"
_NAME_CAP = 64


def can_be_known() -> bool:
    """True when the driver's pids are this process's pids: no container, no WSL."""
    try:
        with open("/proc/version", encoding="utf-8", errors="replace") as stream:
            if "microsoft" in stream.read().lower():
                return False
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def user_of(pid: int, kind: str, vram_mib: Optional[int]) -> CardProcess:
    """The process as far as this account may see it; a pid that does not exist keeps its row."""
    folder = "/proc/%d" % pid
    user = name = job_id = ""
    try:
        uid = os.stat(folder).st_uid
        user = account(uid)
        with open(folder + "/comm", encoding="utf-8", errors="replace") as stream:
            name = stream.read(_NAME_CAP).strip()
    except OSError:
        pass
    try:
        with open(folder + "/environ", "rb") as environ:
            job_id = _job_id(environ.read(1 << 20))
    except OSError:
        # Another account's process: its job, if any, is not ours to know.
        pass
    return CardProcess(pid, kind, vram_mib, user, name, job_id)


def account(uid: int) -> str:
    """The name of an account, its number when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _job_id(raw: bytes) -> str:
    wanted = names.JOB_ID.encode("ascii") + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(wanted):
            value = entry[len(wanted) :].decode("ascii", "replace")
            return value if names.HEX16.match(value) else ""
    return ""
