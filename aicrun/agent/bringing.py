"""Brings what a job reads to this host, each input once, however many jobs want it at once.

Only `envs.py` calls it, inside a setup step. What is half brought has another name than what is whole. What is here is
read by all jobs of the account, so that its files are made read-only, and nothing of it is ever removed.
"""

import errno
import os
import stat
import time
from typing import TYPE_CHECKING, Any, Dict, Tuple

from aicrun.agent import brought, hooks, install_faults, later, turns
from aicrun.agent.build import DiskFull, SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom
from aicrun.agent.finding import counted
from aicrun.agent.home import Home
from aicrun.agent.tree import filling
from aicrun.wire.codec import dump
from aicrun.wire.jobs import SCHEMA, Fetch, JobRequest

if TYPE_CHECKING:
    import ctypes
    import shutil
else:
    ctypes, shutil = later.module("ctypes"), later.module("shutil")


def bring_all(home: Home, request: JobRequest, env: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """Bring every input of the job, what a client sent first; what is known of each, by name. Raises `SetupFailed`."""
    found = {}
    # The store keeps what was sent for a while only, and a fetch may take hours.
    for fetch in sorted(request.fetches, key=lambda one: one.scheme != brought.LOCAL):
        shop = Workshop(env, fetch.timeout_s, "inputs.%s.timeout" % fetch.input)
        try:
            is_new = _bring(home, fetch, shop)
        except OSError as error:
            if error.errno in install_faults.NO_ROOM:
                raise full(fetch, error.strerror or "") from error
            message = "input %s: %s: %s" % (fetch.input, error.filename or fetch.folder, error.strerror)
            raise SetupFailed(message) from error
        mark = brought.known(fetch.folder, fetch.key)
        found[fetch.input] = dict({key: mark[key] for key in mark if key not in ("schema", "key")}, new=is_new)
    return found


def full(fetch: Fetch, why: str) -> DiskFull:
    """The error for an input that has no room; `why` in the words of whoever noticed."""
    place = os.path.dirname(fetch.folder)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    volume = os.statvfs(place)
    free = counted(volume.f_bavail * volume.f_frsize, "byte")
    told = "input %s does not fit into %s: %s; %s and %s are free there"
    return DiskFull(told % (fetch.input, place, why, free, counted(volume.f_favail, "inode")))


def check_owner(fetch: Fetch, path: str) -> None:
    """Raises `SetupFailed` unless `path` is a folder of this account: in another's anybody could put what is read."""
    state = os.lstat(path)
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        told = "input %s: %s is no folder of this account: name another data: for it in machines.yaml"
        raise SetupFailed(told % (fetch.input, path))


def _bring(home: Home, fetch: Fetch, shop: Workshop) -> bool:
    """True when it was brought now."""
    top = os.path.dirname(fetch.folder)
    os.makedirs(top, mode=0o700, exist_ok=True)
    # Where a person has put it is theirs to say, by a link too.
    check_owner(fetch, os.path.realpath(top))
    if brought.is_ready(fetch):
        shop.say("input %s is here: %s" % (fetch.input, fetch.folder))
        return False
    growing = brought.growing(fetch, home.host_id)
    handle = _lock(os.path.join(top, ".%s.lock" % fetch.key), fetch, shop)
    try:
        if brought.is_ready(fetch):
            shop.say("the other job has brought input %s" % fetch.input)
            return False
        if os.path.lexists(fetch.folder):
            told = "input %s: %s is in the way, and is not whole: remove it with rm -r, and apply again"
            raise SetupFailed(told % (fetch.input, fetch.folder))
        if os.path.lexists(growing):
            check_owner(fetch, growing)
        shop.held = (handle,)
        return _brought_now(home, fetch, growing, shop)
    finally:
        shop.held = ()
        os.close(handle)


def _brought_now(home: Home, fetch: Fetch, growing: str, shop: Workshop) -> bool:
    """False when another host, whose locks this one does not see, was first."""
    began = time.monotonic()
    mark: Dict[str, Any] = {"schema": SCHEMA, "key": fetch.key, "from": fetch.address, "scheme": fetch.scheme}
    try:
        mark.update(
            _laid_out(home, fetch, growing) if fetch.scheme == brought.LOCAL else _fetched(fetch, growing, shop)
        )
        hooks.reached("input.brought")
        files, size = _made_read_only(growing)
        mark.update(files=files, bytes=size, at=time.time(), took_s=round(time.monotonic() - began, 3))
        is_new = _finish(fetch, growing, mark)
    except (OSError, NoRoom) as error:
        if isinstance(error, OSError) and error.errno not in install_faults.NO_ROOM:
            raise
        told = full(fetch, error.strerror or "" if isinstance(error, OSError) else str(error))
        # What of it lies there takes the room that is wanted.
        shutil.rmtree(growing, ignore_errors=True)
        raise told from error
    if is_new:
        shop.say("input %s is brought: %s" % (fetch.input, fetch.folder))
    else:
        shop.say("another host has brought input %s meanwhile: %s" % (fetch.input, fetch.folder))
    return is_new


def _laid_out(home: Home, fetch: Fetch, growing: str) -> Dict[str, Any]:
    fill = filling(home, fetch.tree, "input %s's" % fetch.input)
    # The store has it all: what a killed job left is no gain.
    shutil.rmtree(growing, ignore_errors=True)
    os.mkdir(growing, 0o700)
    fill(growing)
    return {"tree": fetch.tree}


def _fetched(fetch: Fetch, growing: str, shop: Workshop) -> Dict[str, Any]:
    # Imported here: what a client sends needs none of it.
    from aicrun.agent import fetching

    if os.path.isdir(growing):
        shop.say("input %s: going on with what an earlier job has fetched" % fetch.input)
    os.makedirs(growing, mode=0o700, exist_ok=True)
    found = fetching.fetch(fetch, growing, shop)
    for name in os.listdir(growing):
        if name != fetch.name:
            path = os.path.join(growing, name)
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    return found


def _finish(fetch: Fetch, growing: str, mark: Dict[str, Any]) -> bool:
    """Make it the input, which is there at once and whole; False when it is there already, from another host."""
    place = os.path.join(growing, brought.MARK)
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as stream:
        stream.write(dump(mark))
    _sync(growing)
    hooks.reached("input.marked")
    try:
        os.rename(growing, fetch.folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not brought.is_ready(fetch):
            raise
        shutil.rmtree(growing, ignore_errors=True)
        return False
    _sync(os.path.dirname(fetch.folder))
    return True


def _made_read_only(growing: str) -> Tuple[int, int]:
    """(files, bytes) below the folder; what is shared between runs is not written by any of them."""
    files = size = 0
    for above, _, names in os.walk(growing):
        for path in (os.path.join(above, name) for name in names):
            files += 1
            if os.path.islink(path):
                size += os.stat(path).st_size if os.path.exists(path) else 0
                continue
            state = os.stat(path)
            size += state.st_size
            os.chmod(path, state.st_mode & 0o555)
    return files, size


def _sync(folder: str) -> None:
    """Everything that was written on this volume is on its disk, so that a mark never outlives what it speaks of."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    except AttributeError:
        os.sync()
    finally:
        os.close(handle)


def _lock(path: str, fetch: Fetch, shop: Workshop) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def waits(is_first: bool) -> None:
        if is_first:
            shop.say("another job is bringing input %s: waiting for it" % fetch.input)
        shop.left_s("waiting for another job that brings input %s" % fetch.input)

    try:
        turns.take(handle, waits)
    except BaseException:
        os.close(handle)
        raise
    return handle
