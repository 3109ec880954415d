"""Marks that stop new runs on this machine: root's for every account, any other account's for its own runs alone.

So nobody can shut the machine for others but root, and nobody but its maker (or root) can take a mark away. The words
inside are for people; a file without words counts too. It must not start, stop, grant or free anything.
"""

import contextlib
import json
import os
import stat
import time
from typing import Any, Dict, List, Optional

from aicrun.agent import tickets
from aicrun.agent.card_users import account
from aicrun.agent.lock_folder import LockFolder, unusable
from aicrun.agent.refused import Refused
from aicrun.wire.codec import dump
from aicrun.wire.facts import Drain

ROOT = 0
SCHEMA = 1
TEXT_MOST = 200
_CAP_BYTES = 4096


def refusal(mark: Drain, more: str) -> Refused:
    """The no to whatever would start here while `mark` stands."""
    facts = {"account": mark.account, "age_s": "%.0f" % mark.age_s, "why": mark.why}
    told = "this machine is drained by %s%s; %s" % (mark.account, ": " + mark.why if mark.why else "", more)
    return Refused("drained", told, {name: value for name, value in facts.items() if value})


def put(folder: LockFolder, why: str, by: str) -> None:
    """Make this account's mark, or replace its words; raises `Refused` (no_lock)."""
    temporary = ".w-%s" % os.urandom(8).hex()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(temporary, flags, 0o600, dir_fd=folder.handle)
        try:
            os.fchmod(handle, 0o644)
            os.write(handle, dump({"schema": SCHEMA, "why": why, "by": by}))
        finally:
            os.close(handle)
        try:
            # Never opened for making: what a stranger has put there under our name goes, or refuses us.
            os.rename(temporary, _name(os.geteuid()), src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
        except OSError:
            os.unlink(temporary, dir_fd=folder.handle)
            raise
    except OSError as error:
        raise unusable(folder.path, error.strerror or str(error)) from error


def lift(folder: LockFolder) -> None:
    """Take this account's mark away; none is fine. Raises `Refused` (no_lock)."""
    try:
        os.unlink(_name(os.geteuid()), dir_fd=folder.handle)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(folder.path, error.strerror or str(error)) from error


def seen(folder: LockFolder) -> Optional[Drain]:
    """The mark that counts for this account: root's first, then its own; a stranger's file counts for nothing."""
    for uid in dict.fromkeys((ROOT, os.geteuid())):
        try:
            state = os.stat(_name(uid), dir_fd=folder.handle, follow_symlinks=False)
        except OSError:
            continue
        if state.st_uid == uid:
            said = _words(folder, uid) if stat.S_ISREG(state.st_mode) else {}
            age_s = round(max(0.0, time.time() - state.st_mtime), 1)
            return Drain(account(uid), uid == ROOT, age_s, said.get("why", ""), said.get("by", ""))
    return None


def _name(uid: int) -> str:
    return tickets.DRAIN % uid


def _words(folder: LockFolder, uid: int) -> Dict[str, str]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    read: List[Any] = []
    with contextlib.suppress(OSError, ValueError, RecursionError):
        handle = os.open(_name(uid), flags, dir_fd=folder.handle)
        try:
            read.append(json.loads(os.read(handle, _CAP_BYTES).decode("utf-8")))
        finally:
            os.close(handle)
    said = read[0] if read and isinstance(read[0], dict) else {}
    return {name: said[name][:TEXT_MOST] for name in ("why", "by") if isinstance(said.get(name), str)}
