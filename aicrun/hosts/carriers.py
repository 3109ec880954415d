"""A machine behind ssh, whichever carrier takes it: fabric where it can obey the configuration, else OpenSSH.

The choice is made at the first channel. When fabric then cannot do it (a hardware key, an algorithm it lacks), OpenSSH
takes over for good, and its refusal is the one that counts. A call is never sent over both.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.openssh import OpenSshTransport
from aicrun.hosts.ssh_attended import attended
from aicrun.hosts.ssh_route import FABRIC, OPENSSH, Route, Target, ask
from aicrun.hosts.transport import Channel
from aicrun.spec.model import Reached

if TYPE_CHECKING:
    from aicrun.hosts.ssh import FabricTransport

T = TypeVar("T")

# How long whoever closes waits for one that is being made.
BUSY_S = 0.2


class SshTransport:
    """One machine behind ssh."""

    def __init__(self, name: str, target: Target) -> None:
        self.name = name
        self._target = target
        self._lock = threading.Lock()
        self._carrier: FabricTransport | OpenSshTransport | None = None
        self._bulk: OpenSshTransport | None = None

    @property
    def carrier(self) -> str:
        """Who carries, and to where; why it is OpenSSH, where it is."""
        return self._chosen().carrier

    def reached(self, sure: bool = False) -> Reached:
        """Where it leads, who carries, and the host key; raises `HostUnreachable` for a configuration that is broken.

        `sure` may cost a connection.
        """
        return self._chosen().reached(sure)

    def open(self, argv: tuple[str, ...]) -> Channel:
        """Start `argv` there with pipes; raises `HostUnreachable`."""
        return self._carried(lambda carrier: carrier.open(argv))

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        return self._carried(lambda carrier: carrier.run(argv, stdin, timeout_s))

    def bulk(self) -> OpenSshTransport | SshTransport:
        """OpenSSH where there is one: it moves several times as many bytes as fabric (see `benchmarks/`)."""
        if isinstance(self._chosen(), OpenSshTransport) or shutil.which("ssh") is None:
            return self
        with self._lock:
            if self._bulk is None:
                self._bulk = OpenSshTransport(self.name, replace(ask(self._target), carrier=OPENSSH))
            return self._bulk

    def attended(self, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:
        """The system's ssh with a terminal: a person sits there, so it may ask; it accepts no key by itself."""
        return attended(self._target, argv, ports)

    def close(self) -> None:
        """End the connection; programs over there are not touched. One that is just being made is not waited for."""
        is_mine = self._lock.acquire(timeout=BUSY_S)
        try:
            for carrier in (self._carrier, self._bulk):
                if carrier is not None:
                    carrier.close()
        finally:
            if is_mine:
                self._lock.release()

    def _carried(self, deed: Callable[[FabricTransport | OpenSshTransport], T]) -> T:
        carrier = self._chosen()
        if isinstance(carrier, OpenSshTransport):
            return deed(carrier)
        from aicrun.hosts.ssh import CannotCarry

        try:
            return deed(carrier)
        except CannotCarry as error:
            why = f"fabric could not: {error}"
        with self._lock:
            carrier.close()
            self._carrier = OpenSshTransport(self.name, replace(ask(self._target), carrier=OPENSSH, why=why))
            return deed(self._carrier)

    def _chosen(self) -> FabricTransport | OpenSshTransport:
        with self._lock:
            if self._carrier is None:
                self._carrier = _choose(self.name, ask(self._target))
            return self._carrier


def _circle(route: Route) -> tuple[Target, ...]:
    """The hops that lead back to one of them, in order; empty when there are none.

    ssh follows the first hop's own ProxyJump, a process for each, and would never stop.
    """
    seen = [route.target]
    while route.jumps:
        first = route.jumps[0]
        if first in seen:
            return (*seen, first)
        seen.append(first)
        route = ask(first)
    return ()


def _choose(name: str, route: Route) -> FabricTransport | OpenSshTransport:
    circle = [target.host for target in _circle(route)]
    if circle:
        ways = (Way("see where one of them leads", f"ssh -G {shlex.quote(circle[-1])}"),)
        facts = (("hops", " over ".join(circle)),)
        raise HostUnreachable("AIC-E509", f"the jump hosts of {name} go round in a circle", facts=facts, ways=ways)
    jumps = tuple(ask(jump) for jump in route.jumps)
    for jump in jumps:
        if jump.carrier != FABRIC or jump.jumps:
            why = jump.why or "it has a jump of its own"
            return OpenSshTransport(
                name, replace(route, carrier=OPENSSH, why=route.why or f"{jump.target.host}: {why}")
            )
    if route.carrier != FABRIC:
        return OpenSshTransport(name, route)
    # Imported here: fabric costs a sixth of a second, which a command without ssh machines must not pay.
    from aicrun.hosts.ssh import FabricTransport

    return FabricTransport(name, route, jumps)
