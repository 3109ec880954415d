"""Starts a process of ours that outlives this connection: own session, nobody's child, no descriptor of ours.

It must not decide whether to start it. Keepers that may get a unit of systemd are started by `keepers.py`.
"""

import errno
import os
import signal
from typing import Dict, Mapping, Optional, Tuple

from aicrun.agent import cgroups, children, handles
from aicrun.agent.family import KEEPER_MARK, keeper_of
from aicrun.agent.kept import Launch
from aicrun.agent.process import boot_identity, send_signal
from aicrun.agent.programs import boot_argv
from aicrun.agent.records import Unreadable, read_record
from aicrun.wire import names

_ERR_CAP_BYTES = 64 * 1024


def detach(role: str, job_dir: str, more: Optional[Mapping[str, str]] = None) -> int:
    """Start `boot.py ROLE JOBDIR` detached and return its pid at once; raises `OSError` when no process can be had.

    `more` are variables that it finds in its environment.
    """
    argv = boot_argv(role, job_dir)
    env = dict(own_environment(os.environ), **(more or {}))
    told, tell = os.pipe()
    between = os.fork()
    if not between:
        try:
            os.setsid()
            pid = os.fork()
            if not pid:
                become(argv, env, job_dir)
            os.write(tell, b"%d" % pid)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        os.waitpid(between, 0)
    except ChildProcessError:
        # Whoever started us ignores SIGCHLD: the kernel has reaped the go-between already.
        pass
    with open(told, "rb") as stream:
        said = stream.read(32)
    if not said:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return int(said)


def own_environment(login: Mapping[str, str]) -> Dict[str, str]:
    """The environment of a keeper: the login's, without what an outer run left in it, and with the keeper's mark."""
    kept = "AICRUN_TEST_"
    env = {name: value for name, value in login.items() if not name.startswith("AICRUN_") or name.startswith(kept)}
    name, _, value = KEEPER_MARK.partition("=")
    env[name] = value
    return env


def become(argv: Tuple[str, ...], env: Dict[str, str], job_dir: str) -> None:
    """Turn this process into `argv`: no descriptor of ours, errors into the job's folder; it never returns."""
    try:
        # Started from inside a run, it must not be ended with that run.
        cgroups.leave()
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        path = os.path.join(job_dir, names.KEEPER_ERR)
        if os.path.exists(path) and os.path.getsize(path) > _ERR_CAP_BYTES:
            os.truncate(path, 0)
        errors = os.open(path, flags, 0o600)
        for target, source in ((0, null), (1, null), (2, errors)):
            os.dup2(source, target)
        handles.close_all_but(())
        children.default_signals()
        os.execve(argv[0], list(argv), env)  # noqa: S606  no shell is the point
    except OSError as error:
        os.write(2, ("cannot run %s: %s\n" % (argv[0], error.strerror)).encode())
    finally:
        os._exit(1)


def keeper_words(job_dir: str) -> str:
    """The last line that a keeper wrote on its error stream, at most 500 characters, "" for none."""
    try:
        with open(os.path.join(job_dir, names.KEEPER_ERR), "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 4096))
            lines = stream.read(4096).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:500] if lines else ""


def poke(job_dir: str) -> bool:
    """Wake the job's keeper so that it looks at its files at once; False when there is none.

    A keeper looks by itself every second: a poke that fails costs that time, nothing else.
    """
    if not handles.keeper_lives(job_dir):
        # Only where its folder was taken away can it live without its lock being seen here.
        strayed = None if os.path.lexists(os.path.join(job_dir, names.KEEPER_LOCK)) else keeper_of(job_dir)
        return strayed is not None and send_signal(strayed.pid, strayed.ticks, signal.SIGUSR1)
    try:
        launch = read_record(os.path.join(job_dir, names.LAUNCH), Launch)
        if launch is not None and launch.boot == boot_identity():
            send_signal(launch.pid, launch.ticks, signal.SIGUSR1)
    except (Unreadable, OSError):
        pass
    return True
