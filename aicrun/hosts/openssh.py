"""The system's OpenSSH as a carrier: one child per channel, over one shared connection to a machine.

It obeys everything that a user's configuration can say, but never asks a question, never accepts a key, and forwards
nothing. A ControlPath of the user's own is used as it is; else the connection is shared below a private folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from aicrun.errors import AicrunError, HostUnreachable
from aicrun.hosts import ssh_faults, ssh_folders
from aicrun.hosts.bootstrap import ARGV
from aicrun.hosts.known_hosts import SSH_PORT, keys_for, text_of
from aicrun.hosts.piped import PipedChannel
from aicrun.hosts.remote_call import command_of
from aicrun.hosts.ssh_attended import attended
from aicrun.hosts.ssh_ciphers import quick_ciphers
from aicrun.hosts.ssh_keys import mute_agent, trouble_of
from aicrun.hosts.ssh_route import PLAIN_SESSION, Route, configuration
from aicrun.spec.model import Reached

CONNECT_TIMEOUT_S = 10
KEEPALIVE_S = 15
EXIT_WAIT_S = 2.0
# Ended by `close`; of a command that was killed it stays that long, and goes.
IDLE_S = 30

# First in our own configuration, so that it counts for the machine and for every hop on the way; the user's follows.
_STRICT = """\
BatchMode yes
StrictHostKeyChecking yes
ClearAllForwardings yes
ForwardAgent no
ForwardX11 no
PermitLocalCommand no
RemoteCommand none
LogLevel ERROR
"""
# What a hop's failure looks like from behind it.
_TOLD_BY_NOBODY = (ssh_faults.JUMP, ssh_faults.DROPPED, ssh_faults.ENDED)
_SYSTEM = "/etc/ssh/ssh_config"


class Explain(Protocol):
    """Tells from an exit code, stderr and what came in place of an answer why a channel ended; None: no fault."""

    def __call__(self, code: int, said: str, seen: bytes | None = None) -> AicrunError | None:
        """The error, or None."""
        ...


class OpenSshChannel(PipedChannel):
    """A program on the machine, with its pipes; the child is an `ssh`."""

    def __init__(self, argv: tuple[str, ...], explain: Explain) -> None:
        super().__init__(argv, _environment())
        self._explain = explain

    def fault(self, seen: bytes | None = None) -> AicrunError | None:
        """Why this channel ended, when that is known; waits a moment for ssh to say it."""
        try:
            code = self._process.wait(EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            return None
        return self._explain(code, self.stderr_text(), seen)

    def _leave(self) -> None:
        """The program is left alone; our end of it goes, for nobody would read it any more."""
        self._process.terminate()


def _environment() -> dict[str, str]:
    # In the words that are understood, and without a way to ask a person anything.
    return {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


class OpenSshTransport:
    """A machine behind the system's ssh."""

    def __init__(self, name: str, route: Route) -> None:
        self.name = name
        self.carrier = f"{route.address} by OpenSSH" + (f" ({route.why})" if route.why else "")
        self._place = ssh_faults.Place(name, route)
        self._folder: ssh_folders.Folder | None = None
        # At the latest when this process ends, whoever forgot to close.
        self._ended: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def reached(self, sure: bool = False) -> Reached:
        """Where it leads, with the keys that were accepted for it: ssh tells which it was only to who asks aloud."""
        route = self._place.route
        shown = _key_in(self._asked_aloud()[1]) if sure else ""
        names = (route.known_as, SSH_PORT) if route.known_as else (route.host, route.port)
        accepted = () if shown else keys_for(map(text_of, route.known_hosts), *names)
        return route.reached((shown,) if shown else tuple(dict.fromkeys(key.shown for key in accepted)))

    def open(self, argv: tuple[str, ...]) -> OpenSshChannel:
        """Start `argv` there with pipes; what keeps it from starting is told by the channel's `fault`."""
        try:
            return OpenSshChannel(self._argv(argv), self._call_explained if argv == ARGV else self._explained)
        except OSError as error:
            raise HostUnreachable("AIC-E511", f"ssh cannot be started on this machine: {error}") from error

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        env = _environment()
        try:
            done = subprocess.run(
                self._argv(argv), input=stdin, capture_output=True, env=env, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise HostUnreachable("AIC-E591", f"{self.name} gave no answer within {timeout_s:.0f}s") from error
        except OSError as error:
            raise HostUnreachable("AIC-E511", f"ssh cannot be started on this machine: {error}") from error
        fault = self._explained(done.returncode, done.stderr.decode("utf-8", "replace"))
        if fault is not None:
            raise fault
        return done.returncode, done.stdout, done.stderr

    def bulk(self) -> OpenSshTransport:
        """The same way."""
        return self

    def attended(self, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:
        """The system's ssh with a terminal."""
        return attended(self._place.route.target, argv, ports)

    def close(self) -> None:
        """End the shared connection and remove its folder; programs over there are not touched."""
        with self._lock:
            self._folder = None
            self._ended()

    def _call_explained(self, code: int, said: str, seen: bytes | None = None) -> AicrunError | None:
        found = self._explained(code, said, seen) or ssh_faults.of_agent_call(self._place, code, said, seen)
        if found is not None and found.code == ssh_faults.LOGIN_SHELL and ssh_faults.is_windows(self._asked_aloud()[1]):
            return ssh_faults.windows(self._place)
        return found

    def _explained(self, code: int, said: str, seen: bytes | None = None) -> AicrunError | None:
        fault = ssh_faults.of_openssh(self._place, code, said)
        if fault is None:
            return None
        aloud = ""
        is_behind = bool(self._place.route.jumps) and fault.code in _TOLD_BY_NOBODY
        # Without its less important words, which a banner would stand among, ssh does not say every reason.
        is_unsaid = seen is not None and fault.code == ssh_faults.ENDED
        # Who did not answer in time would not answer now.
        is_hidden = fault.code == ssh_faults.JUMP and "timed out" not in said
        if is_behind or is_unsaid or is_hidden or fault.code == ssh_faults.UNKNOWN_KEY:
            again, aloud = self._asked_aloud()
            fault = ssh_faults.of_openssh(self._place, again, ssh_faults.without_chatter(aloud)) or fault
        if fault.code == ssh_faults.UNKNOWN_KEY:
            return ssh_faults.unknown_key(self._place, _key_in(aloud), said)
        if fault.code == ssh_faults.AUTH:
            trouble = trouble_of(self._place.route)
            return ssh_faults.plain(self._place, ssh_faults.KEY_FILE, trouble) if trouble else fault
        return fault

    def _asked_aloud(self) -> tuple[int, str]:
        """(exit code, what a talkative ssh says on the way there): the keys that are shown, and the words of a hop.

        A connection that is shared hides what its hops say (ControlPersist in sshconnect.c), and one that a hop shares
        what that one says of the machine.
        """
        options = ("-v", "-T", "-o", "ControlPath=none", "-o", "ControlPersist=no")
        alone = replace(self._place.route, has_control_path=True)
        folder = None
        try:
            folder = ssh_folders.made(lambda path: _configuration(alone, path))
            argv = ("ssh", *_from(folder.path), *options, *self._place.route.target.arguments, "exit")
            said = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=_environment(),
                timeout=CONNECT_TIMEOUT_S * 2,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0, ""
        finally:
            if folder is not None:
                folder.remove()
        return said.returncode, said.stderr.decode("utf-8", "replace")

    def _argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return ("ssh", *_from(self._made()), "-T", *self._place.route.target.arguments, command_of(argv))

    def _made(self) -> str:
        """The private folder with our configuration and, unless the user shares connections already, our socket."""
        with self._lock:
            if self._folder is None:
                route = self._place.route
                self._folder = ssh_folders.made(lambda path: _configuration(route, path))
                if route.has_control_path and not _has_room_for_socket(self._folder.path, route):
                    route = replace(route, has_control_path=False)
                    self._folder.rewrite(_configuration(route, self._folder.path))
                self._ended = weakref.finalize(self, _end, self._folder, route)
            return self._folder.path


def _end(folder: ssh_folders.Folder, route: Route) -> None:
    if not route.has_control_path and os.getpid() == folder.maker:
        ask = ("ssh", *_from(folder.path), "-O", "exit", *route.target.arguments)
        # A master that does not answer goes by itself after `IDLE_S`; the folder goes now.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    folder.remove()


def _has_room_for_socket(folder: str, route: Route) -> bool:
    """False when the user's own ControlPath is too long for a socket, or its folder is not there."""
    ask = ("ssh", *_from(folder), "-O", "check", *route.target.arguments)
    try:
        done = subprocess.run(
            ask, stdin=subprocess.DEVNULL, capture_output=True, env=_environment(), timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    said = done.stderr.decode("utf-8", "replace")
    missing = re.search(r"Control socket connect\((.+)\): No such file or directory", said)
    return "too long" not in said and (missing is None or os.path.isdir(os.path.dirname(missing[1])))


def _key_in(aloud: str) -> str:
    # With hops each shows one; the last is the one that was refused.
    shown = re.findall(r"Server host (?:key|certificate): (\S+) (SHA256:[^\s,]+)", aloud)
    if not shown:
        return ""
    kind = shown[-1][0].removeprefix("ssh-").upper().replace("-CERT-V01@OPENSSH.COM", " certificate")
    return f"{kind} {shown[-1][1]}"


def _from(folder: str) -> tuple[str, ...]:
    return ("-F", os.path.join(folder, ssh_folders.CONFIG))


def _configuration(route: Route, folder: str) -> str:
    lines = [_STRICT.rstrip(), *(f"{key} {PLAIN_SESSION[key]}" for key in route.session)]
    if not route.connect_timeout_s:
        lines.append(f"ConnectTimeout {CONNECT_TIMEOUT_S}")
    if not route.keepalive_s:
        lines += [f"ServerAliveInterval {KEEPALIVE_S}", "ServerAliveCountMax 3"]
    if not route.has_own_agent and mute_agent():
        lines.append("IdentityAgent none")
    if not route.has_control_path:
        lines += ["ControlMaster auto", f"ControlPath {folder}/%C", f"ControlPersist {IDLE_S}"]
    other = configuration()
    lines += [f'Include "{other[1]}"'] if other else ["Include ~/.ssh/config", f"Include {_SYSTEM}"]
    # Last, so that whatever is written anywhere else goes before: only the order of OpenSSH's own list changes.
    quick = quick_ciphers()
    lines += ["Host *", f"  Ciphers {','.join(quick)}"] if quick else []
    return "\n".join(lines) + "\n"
