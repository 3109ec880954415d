"""Builds an environment at its final path, once for each key, however many jobs want it at once.

Only `envs.py` calls it, inside a setup step. It must not touch a working tree: an environment never points into one.
"""

import os
import sys
import time
from typing import IO, TYPE_CHECKING, Callable, Dict, Optional, Sequence, Tuple

from aicrun.agent import built, hooks, later, turns
from aicrun.wire.codec import dump
from aicrun.wire.jobs import SCHEMA, Setup

if TYPE_CHECKING:
    import hashlib
    import shutil
    import signal
    import subprocess
    import threading
else:
    hashlib, shutil, subprocess = later.module("hashlib"), later.module("shutil"), later.module("subprocess")
    signal, threading = later.module("signal"), later.module("threading")

# How much of what a program said last is looked at, and how long its end is waited for when it is gone.
LAST_BYTES = 16384
LISTEN_S = 5.0

# Where Debian, Fedora, SUSE and Alpine keep the authorities this host trusts.
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class SetupFailed(Exception):
    """Why the setup step fails, in a sentence; `token` is one of `wire.status.SETUP_CODES`, or empty."""

    token = ""


class DiskFull(SetupFailed):
    """There was no room, no inode or no quota left."""

    token = "disk_full"


class Workshop:
    """Where and until when the programs of one setup step run; they print to the step's log, which is our stdout.

    `held` are locks that the programs inherit, so that a lock lives as long as whoever still writes below it. `limit`
    is the field of the spec that the time is from. `running` is the group of a tool that runs now, else 0.
    """

    def __init__(self, env: Dict[str, str], timeout_s: float, limit: str = "setup.timeout") -> None:
        self.env = env
        self.limit = limit
        self.timeout_s = timeout_s
        self.ends = time.monotonic() + timeout_s
        self.held: Tuple[int, ...] = ()
        self.running = 0

    def say(self, text: str) -> None:
        """One line for whoever reads the step's log, in order with what the programs print."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def left_s(self, doing: str) -> float:
        """Seconds left; raises `SetupFailed`, naming what was being done, when there are none."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise SetupFailed("%s passed (%d s) while %s" % (self.limit, self.timeout_s, doing))
        return left

    def run(
        self,
        argv: Sequence[str],
        cwd: str,
        doing: str,
        env: Optional[Dict[str, str]] = None,
        way_out: Optional[Callable[[str], str]] = None,
    ) -> None:
        """Run `argv` to its end; raises `SetupFailed` for any end but exit code 0. On timeout its group is ended.

        `way_out` makes of the last words of a program that failed what a person may do; it stands behind the cause.
        """
        left = self.left_s(doing)
        try:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=env or self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if way_out else None,
                stderr=subprocess.STDOUT if way_out else None,
                pass_fds=self.held,
                preexec_fn=os.setpgrp,
            )
        except OSError as error:
            raise SetupFailed("%s: %s cannot be started: %s" % (doing, argv[0], error.strerror)) from error
        said = Listener(child.stdout)
        try:
            code = child.wait(left)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self.left_s(doing)
            raise
        ended = "ended by signal %d" % -code if code < 0 else "exit code %d" % code
        last = said.last_words()
        if code != 0:
            told = "%s: %s; what it said stands above" % (doing, ended)
            raise _failure(told, way_out(last), last) if way_out else SetupFailed(told)


def _failure(told: str, help_: str, last: str) -> SetupFailed:
    # Imported here: a setup fails seldom.
    from aicrun.agent import install_faults

    return (DiskFull if install_faults.is_full(last) else SetupFailed)(told + (help_ and "; " + help_))


class Listener:
    """Passes on what a program prints and keeps its last words; without a stream there are none."""

    def __init__(self, stream: Optional[IO[bytes]]) -> None:
        self._stream = stream
        self._last = b""
        self._thread = threading.Thread(target=self._listen, daemon=True) if stream else None
        if self._thread:
            self._thread.start()

    def last_words(self) -> str:
        """The end of what was said, once the program is gone; one that stays behind in its place is not waited for."""
        if self._thread:
            self._thread.join(LISTEN_S)
            if self._stream and not self._thread.is_alive():
                self._stream.close()
        return self._last.decode("utf-8", "replace")

    def _listen(self) -> None:
        handle = self._stream.fileno() if self._stream else -1
        while True:
            said = os.read(handle, 65536)
            if not said:
                return
            self._last = (self._last + said)[-LAST_BYTES:]
            try:
                while said:
                    said = said[os.write(1, said) :]
            except OSError:
                # Nobody listens to us any more, so nobody shall wait for the program to be heard.
                os.close(handle)
                return


def ensure(setup: Setup, uv: str, shop: Workshop, scratch: str, tree: str) -> bool:
    """Make sure the environment of `setup` stands; True when it was built now. Raises `SetupFailed`.

    `scratch` is a private folder for the files that uv reads; `tree` is the job's, where the project of it lies.
    """
    if built.is_complete(setup.path, setup.key):
        return False
    _refuse_local(setup)
    if not os.path.exists(setup.python):
        raise SetupFailed("the plan's interpreter %s is not on this host any more; plan again" % setup.python)
    folder = os.path.dirname(setup.path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle = _lock(os.path.join(folder, ".%s.lock" % setup.key), shop)
    try:
        if built.is_complete(setup.path, setup.key):
            shop.say("the other job has built it")
            return False
        if not uv:
            raise SetupFailed("there is no uv on this host, and none was sent; apply again, or install uv here")
        _discard_half_built(setup, shop)
        shop.held = (handle,)
        _build(setup, uv, shop, (scratch, tree))
    except DiskFull:
        # What of it lies there takes the room that is wanted.
        shutil.rmtree(setup.path, ignore_errors=True)
        raise
    finally:
        shop.held = ()
        os.close(handle)
    return True


def _build(setup: Setup, uv: str, shop: Workshop, folders: Tuple[str, str]) -> None:
    # Imported here: most jobs have their environment already, or need none.
    from aicrun.agent import install_faults, installs

    def way_out(said: str) -> str:
        return install_faults.way_out(setup, said)

    folder = os.path.dirname(setup.path)
    env = dict(shop.env, UV_PYTHON_DOWNLOADS="never", UV_NO_PROGRESS="1")
    env.pop("VIRTUAL_ENV", None)
    if any(os.path.exists(path) for path in CA_BUNDLES):
        # uv brings authorities of its own; an index behind a company's answers only to those of the host.
        env.setdefault("UV_SYSTEM_CERTS", "1")
    env = installs.environment_of(setup, env)
    shop.say("making the environment %s with python %s" % (setup.path, setup.python_version))
    # From a folder without a project, so that uv reads no pyproject.toml of anybody's tree.
    venv = (uv, "venv", "--quiet", "--no-project", "--python", setup.python, setup.path)
    shop.run(venv, folder, "making the environment", env, way_out)
    hooks.reached("setup.made")
    for install in installs.installs(setup, uv, *folders):
        shop.say(install.words)
        shop.run(install.argv, install.folder or folder, install.doing, env, way_out)
        hooks.reached("setup.installed")
    _mark(setup)
    hooks.reached("setup.marked")


def _mark(setup: Setup) -> None:
    raw = dump({"schema": SCHEMA, "key": setup.key, "python": setup.python_version, "reads": setup.reads})
    temporary = os.path.join(setup.path, built.MARK + ".new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(temporary, os.path.join(setup.path, built.MARK))


def _discard_half_built(setup: Setup, shop: Workshop) -> None:
    if not os.path.lexists(setup.path):
        return
    ours = os.path.basename(setup.path) == setup.key and os.path.dirname(setup.path).endswith("/aicrun/envs")
    if not ours or os.path.islink(setup.path):
        raise SetupFailed("%s is in the way, and is not ours to remove" % setup.path)
    shop.say("removing a half-built environment")
    shutil.rmtree(setup.path)


def _lock(path: str, shop: Workshop) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def waits(is_first: bool) -> None:
        if is_first:
            shop.say("another job is building the same environment: waiting for it")
        shop.left_s("waiting for another job that builds the environment")

    try:
        turns.take(handle, waits)
    except OSError as error:
        os.close(handle)
        raise SetupFailed("%s cannot be locked: %s" % (path, error.strerror)) from error
    except SetupFailed:
        os.close(handle)
        raise
    return handle


def _refuse_local(setup: Setup) -> None:
    # Imported here: most jobs have their environment already, or need none.
    from aicrun.agent import requirements

    for number, line, why in requirements.refused_lines(setup.requirements):
        raise SetupFailed("%s:%d: %s: %s" % (setup.requirements_name or "requirements", number, line, why))
    for package in setup.packages:
        why = requirements.refused(package)
        if why:
            raise SetupFailed("setup.packages: %s: %s" % (package, why))
