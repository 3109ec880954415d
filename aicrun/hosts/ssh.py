"""fabric as a carrier: one connection per machine, raw channels on it. The only door to fabric and paramiko.

Keys are checked against the known_hosts files that the configuration names and never accepted; nothing is asked.
`fabric.Connection.run`, `get` and `put` are not used: they choke on long streams (see `benchmarks/`). What fabric
cannot do here, authenticating with a hardware key say, is left to OpenSSH by the caller (`CannotCarry`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import threading
import time
from functools import cache, partial
from typing import IO, Any

import fabric
import paramiko

from aicrun.errors import AicrunError, HostUnreachable
from aicrun.hosts import ssh_faults
from aicrun.hosts.alarm import after
from aicrun.hosts.known_hosts import KnownKey, keys_for, text_of
from aicrun.hosts.piped import STDERR_CAP_BYTES
from aicrun.hosts.pulse import Pulse, heard_of
from aicrun.hosts.raw_streams import Input, Output, write_all
from aicrun.hosts.remote_call import command_of
from aicrun.hosts.ssh_attended import attended
from aicrun.hosts.ssh_ciphers import KINDS, known_first, quick_first
from aicrun.hosts.ssh_keys import mute_agent
from aicrun.hosts.ssh_route import Route
from aicrun.spec.model import Reached

CONNECT_TIMEOUT_S = 10
KEEPALIVE_S = 15
DEAD_AFTER_MS = 60_000
BUFFER_BYTES = 256 * 1024
DRAIN_S = 1.0
BUSY_S = 0.2

# What it meets is told as an error of ours; unasked it would print tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class CannotCarry(Exception):
    """fabric cannot reach this machine, and OpenSSH may: nothing was started there."""


class _KeyRefused(Exception):
    """The machine shows a key that was not accepted for it; `known`: the accepted one of that type, may be empty."""

    def __init__(self, offered: str, known: str) -> None:
        super().__init__(offered)
        self.offered, self.known = offered, known

    def told(self, place: ssh_faults.Place) -> HostUnreachable:
        """The error for whoever asked."""
        if self.known:
            return ssh_faults.changed_key(place, self.offered, self.known)
        return ssh_faults.unknown_key(place, self.offered)


class _Accepted(paramiko.MissingHostKeyPolicy):
    """Takes the keys that a person accepted, each of several, and no other.

    paramiko's own check stumbles over lines it cannot read, knows no patterns, and takes one key of a type for all.
    """

    def __init__(self, keys: tuple[KnownKey, ...]) -> None:
        self._keys = keys

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        """Return for an accepted key; raises `_KeyRefused` for any other."""
        offered = KnownKey(key.get_name(), key.asbytes())
        if offered not in self._keys:
            raise _KeyRefused(offered.shown, next((one.shown for one in self._keys if one.kind == offered.kind), ""))


class FabricChannel:
    """A program on the machine, with its pipes."""

    def __init__(self, channel: paramiko.Channel, transport: FabricTransport) -> None:
        self._channel = channel
        self._transport = transport
        self._said = b""
        channel.settimeout(DRAIN_S)
        self._input = Input(channel.send, channel.shutdown_write, (paramiko.SSHException,))
        self.stdin: IO[bytes] = io.BufferedWriter(self._input, BUFFER_BYTES)
        self.stdout: IO[bytes] = io.BufferedReader(Output(self.received), BUFFER_BYTES)

    def received(self, most: int) -> bytes:
        """Bytes of stdout, none at its end; stderr is taken out of the way meanwhile."""
        while True:
            self._take_stderr()
            try:
                return self._channel.recv(most)
            except TimeoutError:
                continue

    def _take_stderr(self) -> None:
        while self._channel.recv_stderr_ready():
            part = self._channel.recv_stderr(BUFFER_BYTES)
            self._said += part[: max(0, STDERR_CAP_BYTES - len(self._said))]

    def stderr_text(self) -> str:
        """What the program wrote on stderr so far, at most 4 KiB."""
        self._take_stderr()
        return self._said.decode("utf-8", "replace")

    def fault(self, seen: bytes | None = None) -> AicrunError | None:
        """Why this channel ended, when that is known."""
        self._channel.status_event.wait(DRAIN_S)
        return self._transport.explained(self._channel.exit_status, self.stderr_text(), seen)

    def abort(self) -> None:
        """Cut the channel at once: a read that is going on sees the end."""
        self._channel.close()

    def close(self, timeout_s: float = 5.0) -> int | None:
        """Close both pipes; the program's exit code, or None when it did not end in time (it is left alone)."""
        self._input.is_left = True
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        has_ended = self._channel.status_event.wait(timeout_s)
        code = self._channel.exit_status if has_ended else -1
        self._channel.close()
        self.stdout.close()
        return code if code >= 0 else None


class FabricTransport:
    """A machine behind fabric; connects at the first channel."""

    def __init__(self, name: str, route: Route, jumps: tuple[Route, ...] = ()) -> None:
        self.name = name
        self.carrier = f"{route.address} by fabric" + (f" ({route.why})" if route.why else "")
        self._place = ssh_faults.Place(name, route)
        self._jumps = jumps
        self._lock = threading.Lock()
        self._connection: fabric.Connection | None = None
        self._pulse: Pulse | None = None
        # Closed while the connection was being made: whoever makes it closes it.
        self._is_left = False

    def reached(self, sure: bool = False) -> Reached:  # noqa: ARG002
        """Where it leads, with the key that the machine showed, once it is connected."""
        connection, shown = self._connection, ""
        if connection is not None and connection.transport is not None:
            # One that has ended meanwhile knows it no more.
            with contextlib.suppress(paramiko.SSHException):
                key = connection.transport.get_remote_server_key()
                shown = KnownKey(key.get_name(), key.asbytes()).shown
        return self._place.route.reached((shown,) if shown else ())

    def open(self, argv: tuple[str, ...]) -> FabricChannel:
        """Start `argv` there with pipes; raises `HostUnreachable`, or `CannotCarry`."""
        try:
            channel = self._connected().open_session(timeout=CONNECT_TIMEOUT_S)
            channel.exec_command(command_of(argv))
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise ssh_faults.plain(self._place, ssh_faults.ENDED, self._silence() or str(error)) from error
        return FabricChannel(channel, self)

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        channel = self.open(argv)
        late = after(timeout_s, channel.abort)
        try:
            threading.Thread(target=write_all, args=(channel.stdin, stdin), daemon=True).start()
            out = channel.stdout.read()
            said, code = channel.stderr_text(), channel.close(timeout_s)
        finally:
            late.cancel()
        if code is None:
            raise HostUnreachable("AIC-E591", f"{self.name} gave no answer within {timeout_s:.0f}s")
        return code, out, said.encode()

    def bulk(self) -> FabricTransport:
        """The same way."""
        return self

    def attended(self, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:
        """The system's ssh with a terminal."""
        return attended(self._place.route.target, argv, ports)

    def close(self) -> None:
        """End the connection; programs over there are not touched. One that is just being made is not waited for."""
        if not self._lock.acquire(timeout=BUSY_S):
            self._is_left = True
            return
        try:
            connection, self._connection = self._connection, None
            if self._pulse is not None:
                self._pulse.stop()
        finally:
            self._lock.release()
        _end(connection)

    def explained(self, code: int, said: str, seen: bytes | None = None) -> AicrunError | None:
        """What an exit code of the call itself means, or why the connection is gone; None for a program's own end."""
        connection = self._connection
        if code < 0 and (connection is None or not connection.is_connected):
            return ssh_faults.plain(self._place, ssh_faults.ENDED, self._silence())
        found = ssh_faults.of_agent_call(self._place, code, said, seen)
        if found is not None and found.code == ssh_faults.LOGIN_SHELL and connection is not None:
            return ssh_faults.windows(self._place) if ssh_faults.is_windows(_version_of(connection)) else found
        return found

    def _connected(self) -> paramiko.Transport:
        with self._lock:
            if self._connection is None or not self._connection.is_connected:
                self._is_left = False
                connection = self._opened()
                if self._is_left:
                    _end(connection)
                    raise ssh_faults.plain(self._place, ssh_faults.ENDED, "nobody waits for it any more")
                self._connection = connection
                self._pulse = self._watched(self._connection.transport)
            found: paramiko.Transport = self._connection.transport
            return found

    def _watched(self, transport: paramiko.Transport) -> Pulse:
        def ask() -> None:
            transport.global_request("keepalive@openssh.com", wait=True)

        return Pulse(ask, transport, self._place.route.keepalive_s or KEEPALIVE_S, self._place.route.keepalive_most)

    def _silence(self) -> str:
        return self._pulse.said if self._pulse is not None else ""

    def _opened(self) -> fabric.Connection:
        gateway = None
        for jump in self._jumps:
            gateway = _connection(jump, gateway)
            try:
                gateway.open()
            except CannotCarry:
                raise
            except _KeyRefused as refused:
                raise refused.told(self._of(jump)) from refused
            except Exception as error:
                raise ssh_faults.plain(self._place, ssh_faults.JUMP, f"{jump.address}: {error}") from error
        connection = _connection(self._place.route, gateway)
        began_s = time.monotonic()
        try:
            connection.open()
        except (paramiko.SSHException, OSError, EOFError, ValueError, _KeyRefused) as error:
            raise self._refused(error, time.monotonic() - began_s) from error
        return connection

    def _of(self, jump: Route) -> ssh_faults.Place:
        return ssh_faults.Place(jump.target.host, jump)

    def _refused(self, error: Exception, took_s: float) -> Exception:
        place = self._place
        if isinstance(error, _KeyRefused):
            return error.told(place)
        if isinstance(error, socket.gaierror):
            return ssh_faults.plain(place, ssh_faults.NO_NAME, error.strerror or "")
        if isinstance(error, UnicodeEncodeError) or "'idna' codec" in str(error):
            # Python puts every name into the form of the name service; this one has none.
            return ssh_faults.plain(place, ssh_faults.NO_NAME, "no name service can have it")
        kind = _kind_of(error)
        if took_s >= CONNECT_TIMEOUT_S and _is_mute(error):
            kind = ssh_faults.TIMEOUT
        return ssh_faults.plain(place, kind, _words(error)) if kind else CannotCarry(_words(error))


def _end(connection: fabric.Connection | None) -> None:
    """Close it and the hops that it goes over."""
    while connection is not None:
        connection.close()
        connection = connection.gateway if isinstance(connection.gateway, fabric.Connection) else None


def _is_mute(error: Exception) -> bool:
    # Both after no banner came, whichever of paramiko's threads notices first.
    return "protocol banner" in str(error) or "No existing session" in str(error)


def _words(error: Exception) -> str:
    return str(error).removeprefix("[Errno None] ")


def _kind_of(error: Exception) -> str:
    text = str(error)
    if isinstance(error, paramiko.AuthenticationException):
        # OpenSSH may have more to offer (hardware keys, an agent that asks): it has the last word.
        return ""
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        causes = tuple(error.errors.values())
        return (
            ssh_faults.REFUSED if any(isinstance(one, ConnectionRefusedError) for one in causes) else ssh_faults.TIMEOUT
        )
    if isinstance(error, ConnectionRefusedError):
        return ssh_faults.REFUSED
    if isinstance(error, TimeoutError):
        return ssh_faults.TIMEOUT
    if "protocol banner" in text or isinstance(error, (ConnectionResetError, EOFError)):
        return ssh_faults.DROPPED
    if isinstance(error, OSError):
        return ssh_faults.TIMEOUT
    return ""


def _version_of(connection: fabric.Connection) -> str:
    return str(getattr(connection.transport, "remote_version", ""))


class _Connection(fabric.Connection):  # type: ignore[misc]  # it has no types
    """One whose attributes are its own: else each is looked for in a long list, and some end up in what all share."""

    __setattr__ = object.__setattr__


@cache
def _configured() -> fabric.Config:
    """What all connections share; nothing changes it, and it reads no file: what is configured comes as a `Route`."""
    return fabric.Config(overrides={"load_ssh_configs": False}, lazy=True)


def _connection(route: Route, gateway: fabric.Connection | None) -> fabric.Connection:
    keys = keys_for(map(text_of, route.known_hosts), route.host, route.port)
    connection = _Connection(
        route.host,
        user=route.user or None,
        port=route.port,
        config=_configured(),
        gateway=gateway,
        forward_agent=False,
        connect_timeout=route.connect_timeout_s or CONNECT_TIMEOUT_S,
        connect_kwargs=_credentials(route, frozenset(key.kind for key in keys)),
    )
    # fabric's own policy would accept any key; without a list of its own it asks this one about every key.
    connection.client.set_missing_host_key_policy(_Accepted(keys))
    return connection


def _credentials(route: Route, kinds: frozenset[str]) -> dict[str, Any]:
    paths = [os.path.expanduser(path) for path in route.identities]
    found: dict[str, Any] = {
        "key_filename": [path for path in paths if os.path.isfile(path) and not path.endswith("_sk")],
        "allow_agent": not route.identities_only and not mute_agent(),
        "look_for_keys": False,
        "transport_factory": partial(_quick, kinds, any(key == "ciphers" for key, _ in route.algorithms)),
        "banner_timeout": CONNECT_TIMEOUT_S,
        "auth_timeout": CONNECT_TIMEOUT_S * 3,
        # Of the channel from a hop to what is behind it; paramiko's own is an hour.
        "channel_timeout": CONNECT_TIMEOUT_S,
    }
    disabled = _disabled(route)
    if disabled:
        found["disabled_algorithms"] = disabled
    return found


def _disabled(route: Route) -> dict[str, list[str]]:
    """What paramiko knows and the configuration does not allow."""
    found = {}
    for key, allowed in route.algorithms:
        kind = KINDS[key]
        known = tuple(getattr(paramiko.Transport, f"_preferred_{kind}", ()))
        rest = [name for name in known if name not in allowed]
        if known and len(rest) == len(known):
            raise CannotCarry(f"it knows none of the {key} that are configured")
        found[kind] = rest
    return found


def _quick(kinds: frozenset[str], has_own_ciphers: bool, sock: Any, **options: Any) -> paramiko.Transport:
    """A transport that sends small writes at once: the kernel would hold them back 40 ms else (`benchmarks/`).

    Asked for first: a key of the `kinds` that are known of the machine, and ciphers that cost half as much time.
    """
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
    transport = paramiko.Transport(heard_of(sock), **options)
    offered = transport.get_security_options()
    offered.key_types = known_first(offered.key_types, kinds)
    offered.ciphers = offered.ciphers if has_own_ciphers else quick_first(offered.ciphers)
    return transport
