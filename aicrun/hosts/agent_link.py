"""One connection to an agent: opened at first use, one call at a time, given up at the first fault.

It must not know what a call means. After a fault the next call opens a new connection; no call is ever sent twice.
"""

from __future__ import annotations

import math
import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aicrun.errors import AgentBroken, AicrunError, HostRefused, HostUnreachable, Way
from aicrun.hosts.alarm import after
from aicrun.hosts.bootstrap import ARGV, opening
from aicrun.hosts.bundle import Bundle
from aicrun.hosts.ssh_faults import DROPPED, first_lines
from aicrun.hosts.transport import Channel, Transport
from aicrun.wire.calls import (
    PROTOCOL_FIRST,
    PROTOCOL_LAST,
    RENEW_S,
    ConnectionEnded,
    NoMarker,
    read_reply,
    write_request,
)
from aicrun.wire.codec import WireError

DEADLINE_S = 60.0
# Nobody waits longer for a call to notice that its channel was cut.
CUT_S = 0.5
# Requests on their way before the first reply is read; small, so that neither pipe can fill while both sides write.
WINDOW = 32
# sshd's MaxStartups drops at random while many connections are being made; they come through a moment later.
DROP_PAUSES_S = (0.2, 0.5, 1.0, 2.0)

# What changes nothing over there is asked together with the first words, a round trip earlier; whoever answers them
# without being the agent that is meant does no harm with it.
_HARMLESS = frozenset(("survey", "look", "jobs", "job", "environment", "wait", "log", "notes", "checkpoints"))
Asked = tuple[str, dict[str, Any], bytes]

_STATE = "state_unusable"
_CODES = {
    "gpu_busy": "AIC-E601",
    "too_many_jobs": "AIC-E603",
    "busy": "AIC-E604",
    "not_found": "AIC-E605",
    "not_finished": "AIC-E606",
    "nothing_to_upload": "AIC-E607",
    "newer_record": "AIC-E608",
    "store_incomplete": "AIC-E609",
    _STATE: "AIC-E610",
    "no_lock": "AIC-E611",
    "start_failed": "AIC-E612",
    "invalid_request": "AIC-E613",
    "protocol_mismatch": "AIC-E614",
    "secret_refused": "AIC-E616",
    "disk_full": "AIC-E617",
    "drained": "AIC-E615",
    "exists": "AIC-E640",
    "not_a_file": "AIC-E641",
    "too_large": "AIC-E642",
    "unreadable": "AIC-E643",
    "unwritable": "AIC-E644",
    "transfer_failed": "AIC-E645",
}


class AgentLink:
    """A connection to the agent of one machine, safe to use from several threads."""

    def __init__(self, transport: Transport, bundle: Bundle, renew_s: float = RENEW_S) -> None:
        """After `renew_s` without a call the next one opens a new connection: the agent may be about to go."""
        self._transport = transport
        self._bundle = bundle
        self._renew_s = renew_s
        self._spoke_at = 0.0
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._marker = ""
        # Whether the agent has spoken on this channel.
        self._is_heard = False
        # Whether nobody waits any more for what is going on here.
        self._is_left = False
        self.machine = transport.name

    def open(self) -> None:
        """Make the connection, unless there is one; raises as `call` does, and nothing was asked then."""
        with self._lock:
            if self._standing() is None:
                self._opened()

    def call(
        self, name: str, body: dict[str, Any], payload: bytes = b"", deadline_s: float = DEADLINE_S
    ) -> tuple[Any, bytes]:
        """One call's answer and payload; raises `HostRefused`, `HostUnreachable` or `AgentBroken`."""
        with self._lock:
            is_asked = name in _HARMLESS and self._standing() is None
            if is_asked:
                self._opened((name, body, payload))
            with self._speaking(deadline_s) as (channel, _):
                if not is_asked:
                    write_request(channel.stdin, name, body, payload)
                reply, answer_payload = read_reply(channel.stdout, self._marker)
        return self._unwrapped(reply), answer_payload

    def call_each(
        self, name: str, requests: Iterable[tuple[dict[str, Any], bytes]], deadline_s: float = DEADLINE_S
    ) -> None:
        """Several calls whose answers nobody reads, up to `WINDOW` sent ahead; raises the first refusal, at the end.

        `deadline_s` is for each answer.
        """
        replies: list[dict[str, Any]] = []
        with self._lock, self._speaking(deadline_s) as (channel, watch):
            waiting = 0
            for body, payload in requests:
                write_request(channel.stdin, name, body, payload)
                waiting += 1
                if waiting == WINDOW:
                    replies.append(read_reply(channel.stdout, self._marker)[0])
                    waiting -= 1
                watch.restart()
            for _ in range(waiting):
                replies.append(read_reply(channel.stdout, self._marker)[0])
                watch.restart()
        for reply in replies:
            self._unwrapped(reply)

    def call_ahead(
        self, name: str, requests: Iterable[tuple[dict[str, Any], bytes]], ahead: int, deadline_s: float = DEADLINE_S
    ) -> Iterator[bytes]:
        """The payloads of several calls, as `answers_ahead` gives them."""
        return (payload for _, payload in self.answers_ahead(name, requests, ahead, deadline_s))

    def answers_ahead(
        self,
        name: str,
        requests: Iterable[tuple[dict[str, Any], bytes]],
        ahead: int,
        deadline_s: float = DEADLINE_S,
        is_told: bool = False,
    ) -> Iterator[tuple[Any, bytes]]:
        """Several calls' answers in their order, `ahead` of them asked for beforehand; raises at a refusal.

        Its answers must fit into what the connection holds, or both sides wait for each other: small requests for
        large answers, or the other way round. `deadline_s` is for each answer. `is_told`: an empty one comes before
        them, once all that is asked for beforehand is on its way.
        """
        waiting = 0
        with self._lock, self._speaking(deadline_s) as (channel, watch):
            for body, payload in requests:
                write_request(channel.stdin, name, body, payload)
                waiting += 1
                if is_told and waiting == ahead:
                    watch.hold()
                    yield {}, b""
                    watch.restart()
                    is_told = False
                if waiting > ahead:
                    yield self._next(channel, watch)
                    watch.restart()
                    waiting -= 1
            for _ in range(waiting):
                yield self._next(channel, watch)
                watch.restart()

    def _next(self, channel: Channel, watch: Watch) -> tuple[Any, bytes]:
        reply, payload = read_reply(channel.stdout, self._marker)
        # How long the caller takes with it is not the machine's fault.
        watch.hold()
        return self._unwrapped(reply), payload

    def close(self) -> None:
        """End the connection; the agent sees the end of its input and goes. A call that still waits is cut off.

        One that is just being made, or does not notice in `CUT_S` that it was cut, is left to end by its own deadlines.
        """
        self._is_left = True
        if not self._lock.acquire(timeout=0.2):
            channel = self._channel
            if channel is not None:
                channel.abort()
            if channel is None or not self._lock.acquire(timeout=CUT_S):
                return
        try:
            self._drop(timeout_s=5.0)
            self._is_left = False
        finally:
            self._lock.release()

    @contextmanager
    def _speaking(self, deadline_s: float) -> Iterator[tuple[Channel, Watch]]:
        channel = self._standing() or self._opened()
        watch = Watch(channel, deadline_s)
        try:
            yield channel, watch
        except (ConnectionEnded, OSError, ValueError) as error:
            raise self._broken(channel, watch, error) from error
        except BaseException:
            # Between a request and its reply nothing else can be said on this channel any more.
            self._drop(timeout_s=0.0)
            raise
        finally:
            watch.cancel()
            self._spoke_at = _now()

    def _standing(self) -> Channel | None:
        """The connection, unless there is none or it was silent for so long that its agent may be about to go."""
        if self._channel is not None and _now() > self._spoke_at + self._renew_s:
            self._drop(timeout_s=1.0)
        return self._channel

    def _opened(self, question: Asked | None = None) -> Channel:
        """A new connection; a `question` is sent along, and its answer is the next one to be read."""
        for pause_s in (*DROP_PAUSES_S, 0.0):
            try:
                return self._opened_once(question)
            except HostUnreachable as error:
                # A busy sshd drops some of many connections before it says a word: nothing was asked yet.
                if error.code != DROPPED or not pause_s or self._is_left:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311  not for secrets
        raise AssertionError("the last round returns or raises")

    def _opened_once(self, question: Asked | None) -> Channel:
        for with_archive in (False, True):
            channel = self._transport.open(ARGV)
            self._channel, self._marker, self._is_heard = channel, secrets.token_hex(16), False
            self._spoke_at = _now()
            with self._speaking(DEADLINE_S):
                self._greet(channel, question, with_archive=with_archive)
                reply, _ = read_reply(channel.stdout, self._marker)
                self._is_heard = True
                first = reply.get("bootstrap")
                if first is None:
                    self._check(self._unwrapped(reply))
                    return channel
                if with_archive or first.get("word") != "need":
                    raise self._no_agent(first)
            self._drop(timeout_s=5.0)
        raise AssertionError("the second round answers or raises")

    def _greet(self, channel: Channel, question: Asked | None, *, with_archive: bool) -> None:
        hello = {"marker": self._marker, "protocol": [PROTOCOL_FIRST, PROTOCOL_LAST], "digest": self._bundle.digest}
        try:
            channel.stdin.write(opening(self._bundle, self._marker, with_archive=with_archive))
            write_request(channel.stdin, "hello", hello)
            if question is not None:
                write_request(channel.stdin, *question)
        except BrokenPipeError:
            # It may have said why it left before it read everything.
            return

    def _unwrapped(self, reply: dict[str, Any]) -> Any:
        refused = reply.get("refused")
        if refused is None:
            if "answer" not in reply:
                raise AgentBroken("AIC-E512", f"the agent of {self.machine} sent a reply that is neither answer nor no")
            return reply["answer"]
        if not isinstance(refused, dict):
            raise AgentBroken("AIC-E512", f"the agent of {self.machine} refused without a reason")
        token, message = str(refused.get("token")), str(refused.get("message"))
        facts = tuple((str(key)[:9], str(value)) for key, value in dict(refused.get("facts") or {}).items())
        if token not in _CODES:
            raise AgentBroken("AIC-E512", f"the agent of {self.machine} failed: {message}", facts=facts)
        ways = self._ways(token)
        raise HostRefused(_CODES[token], f"{self.machine}: {message}", token=token, facts=facts, ways=ways)

    def _ways(self, token: str) -> tuple[Way, ...]:
        if token == "disk_full":
            gone = Way("what can go of ours", f"aicrun gc {self.machine} --dry-run")
            return (gone, Way("then look again", "aicrun plan run.yaml"))
        return (Way("see what is wrong there", f"aicrun doctor {self.machine}"),) if token == _STATE else ()

    def _check(self, hello: Any) -> None:
        if not isinstance(hello, dict) or hello.get("digest") != self._bundle.digest:
            folder = f"aicrun/*/agents/{self._bundle.digest}"
            ways = (Way(f"remove the agent's folder on {self.machine}", f"rm -r ~/.local/state/{folder}"),)
            raise AgentBroken("AIC-E512", f"the agent on {self.machine} is not the one that was sent there", ways=ways)
        if not PROTOCOL_FIRST <= int(hello.get("protocol", 0)) <= PROTOCOL_LAST:
            raise AgentBroken("AIC-E512", f"the agent on {self.machine} speaks another protocol than it was asked for")

    def _no_agent(self, first: dict[str, Any]) -> AicrunError:
        word, python = first.get("word"), str(first.get("python"))
        if word == "too_old":
            message = f"the python3 of {self.machine} is {first.get('version')}; the agent needs 3.8 or newer"
            beside = Way(f"on {self.machine}, one in ~/.local/bin is found too", "uv python install --default 3.12")
            return HostUnreachable("AIC-E510", message, facts=(("python3", python),), ways=(beside,))
        if word == "not_linux":
            return HostUnreachable("AIC-E514", f"{self.machine} runs {first.get('system')}; runs need Linux")
        message = f"the agent cannot be put on {self.machine}: {first.get('detail') or word}"
        ways = (
            Way(f"on {self.machine}, look at that folder and its disk", "ls -ld ~/.local/state/aicrun; df -h -i ~"),
        )
        return HostUnreachable("AIC-E513", message, ways=ways)

    def _broken(self, channel: Channel, watch: Watch, error: Exception) -> AicrunError:
        said = channel.stderr_text().strip()
        seen = getattr(error, "seen", b"")
        fault = None if watch.passed else channel.fault(None if self._is_heard else seen)
        self._drop(timeout_s=0.5)
        if fault is not None:
            return fault
        lines: tuple[str, ...] = (said.splitlines()[-1][:300],) if said else ()
        if isinstance(error, NoMarker):
            lines = first_lines(error.seen.decode("utf-8", "replace"))
        facts = tuple(("it said", line) for line in lines)
        if watch.passed:
            return HostUnreachable(
                "AIC-E591", f"{self.machine} gave no answer within {watch.deadline_s:.0f}s", facts=facts
            )
        if isinstance(error, WireError):
            return AgentBroken("AIC-E512", f"the agent of {self.machine} cannot be understood: {error}", facts=facts)
        return HostUnreachable("AIC-E511", f"the connection to the agent of {self.machine} ended", facts=facts)

    def _drop(self, timeout_s: float) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            if not timeout_s:
                channel.abort()
            channel.close(timeout_s or 1.0)


def _now() -> float:
    # The time that a laptop slept counts: over there it went by too.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Watch:
    """Ends a channel when nothing came for `deadline_s`, so that no read waits for ever."""

    def __init__(self, channel: Channel, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.passed = False
        self._channel = channel
        self._heard_at = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = False
        self._alarm = after(deadline_s, self._look)

    def restart(self) -> None:
        """Begin to count anew."""
        self._heard_at = time.monotonic()

    def hold(self) -> None:
        """Do not count until `restart`."""
        self._heard_at = math.inf

    def cancel(self) -> None:
        """Count no more: once this returned the channel is not touched, though a look was going on."""
        with self._lock:
            self._is_over = True
            self._alarm.cancel()

    def _look(self) -> None:
        with self._lock:
            left = min(self._heard_at + self.deadline_s - time.monotonic(), self.deadline_s)
            if self._is_over:
                return
            if left > 0:
                self._alarm = after(left, self._look)
            else:
                self.passed = True
                self._channel.abort()
