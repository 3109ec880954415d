"""A connection to an agent that is chatty, broken, silent or gone: always a clear error, never a wait without end."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from support import until

from aicrun.errors import AgentBroken, HostRefused, HostUnreachable
from aicrun.hosts.agent_link import AgentLink
from aicrun.hosts.bundle import build
from aicrun.hosts.local import LocalTransport
from aicrun.hosts.piped import PipedChannel
from aicrun.wire.calls import IDLE_S, RENEW_S

# Reads as an agent does; `say` writes a reply behind the marker. What follows is the behaviour under test.
PRELUDE = """
import json, sys, time
source, out = sys.stdin.buffer, sys.stdout.buffer
source.readline()
source.read(int(source.readline()))
def ask():
    sizes = [int(size) for size in source.readline().split()]
    body = json.loads(source.read(sizes[0])); source.read(sizes[1])
    return body
def say(body, payload=b""):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    out.write(marker + b" %d %d\\n" % (len(raw), len(payload)) + raw + payload); out.flush()
hello = ask()
marker = hello["marker"].encode()
greet = {"answer": {"protocol": 1, "digest": hello["digest"]}}
"""


class Program:
    """A transport whose every program is one of a test's own."""

    name = "lab"
    carrier = "a test"

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.opened = 0

    def open(self, argv: tuple[str, ...]) -> PipedChannel:
        self.opened += 1
        return PipedChannel((sys.executable, "-I", "-S", "-c", PRELUDE + self.behaviour), dict(os.environ))

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        raise AssertionError("a link opens a channel")

    def close(self) -> None:
        return


def link(behaviour: str) -> tuple[AgentLink, Program]:
    program = Program(behaviour)
    return AgentLink(program, build()), program


def test_a_banner_without_end_of_line_and_chatter_that_looks_like_json_are_skipped() -> None:
    noise = (
        r'out.write(b"Welcome\n{\"answer\": {}}\n\x1b[31mbye"); say(greet); ask(); say({"answer": {"a": 1}}, b"raw")'
    )
    reached, _ = link(noise)
    assert reached.call("jobs", {}) == ({"a": 1}, b"raw")
    reached.close()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ('{"neither": 1}', "neither answer nor no"),
        ('b"{torn"', "cannot be understood: not JSON"),
        ('b"[]"', "a reply is an object"),
        ('{"refused": {"token": "internal", "message": "KeyError in look"}}', "failed: KeyError in look"),
        ('{"refused": {"token": "odd", "message": "x"}}', "failed: x"),
        ('{"refused": 5}', "refused without a reason"),
    ],
)
def test_nonsense_is_a_fault_of_ours(reply: str, words: str) -> None:
    reached, _ = link(f"say(greet); ask(); say({reply}); ask()")
    with pytest.raises(AgentBroken, match=words) as caught:
        reached.call("jobs", {})
    assert caught.value.exit == 1
    reached.close()


def test_a_no_has_its_token_and_code_and_leaves_the_connection_open() -> None:
    no = '{"refused": {"token": "too_many_jobs", "message": "32 jobs", "facts": {"limit": "32"}}}'
    reached, program = link(f'say(greet); ask(); say({no}); ask(); say({{"answer": 7}})')
    with pytest.raises(HostRefused) as caught:
        reached.call("reserve", {})
    assert (caught.value.token, caught.value.code, caught.value.facts) == (
        "too_many_jobs",
        "AIC-E603",
        (("limit", "32"),),
    )
    assert reached.call("jobs", {})[0] == 7
    assert program.opened == 1
    reached.close()


def test_an_end_in_the_middle_is_told_with_the_last_words_and_the_next_call_connects_again() -> None:
    reached, program = link('say(greet); ask(); sys.stderr.write("Killed by fate\\n"); sys.exit(1)')
    for opened in (1, 2):
        with pytest.raises(HostUnreachable) as caught:
            reached.call("jobs", {})
        assert caught.value.code == "AIC-E511"
        assert caught.value.facts == (("it said", "Killed by fate"),)
        assert program.opened == opened
    reached.close()


def test_half_a_reply_is_no_reply() -> None:
    reached, _ = link('say(greet); ask(); out.write(marker + b" 100 0\\n{"); out.flush(); sys.exit(0)')
    with pytest.raises(HostUnreachable):
        reached.call("jobs", {})
    reached.close()


def test_silence_ends_at_the_deadline() -> None:
    reached, _ = link("say(greet); ask(); time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(HostUnreachable, match="no answer within 0s") as caught:
        reached.call("jobs", {}, deadline_s=0.3)
    assert caught.value.code == "AIC-E591"
    assert time.monotonic() - began < 10
    reached.close()


def test_closing_cuts_a_call_that_still_waits() -> None:
    reached, _ = link("say(greet); ask(); time.sleep(60)")
    errors: list[BaseException] = []

    def call() -> None:
        try:
            reached.call("jobs", {})
        except HostUnreachable as error:
            errors.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    until(lambda: reached._channel is not None)
    began = time.monotonic()
    reached.close()
    waiting.join()
    assert time.monotonic() - began < 10
    assert len(errors) == 1


def test_another_agent_under_our_name_is_not_believed() -> None:
    reached, _ = link('say({"answer": {"protocol": 1, "digest": "0" * 64}})')
    with pytest.raises(AgentBroken, match="not the one that was sent"):
        reached.call("jobs", {})
    reached.close()


@pytest.mark.parametrize(
    ("first", "code", "words"),
    [
        ('"word": "too_old", "version": "3.6.15", "python": "/usr/bin/python3"', "AIC-E510", "is 3.6.15"),
        ('"word": "not_linux", "system": "darwin"', "AIC-E514", "runs darwin"),
        ('"word": "no_room", "detail": "/home: Read-only file system"', "AIC-E513", "Read-only file system"),
    ],
)
def test_why_there_is_no_agent_is_said(first: str, code: str, words: str) -> None:
    reached, _ = link(f'say({{"bootstrap": {{{first}}}}})')
    with pytest.raises(HostUnreachable, match=words) as caught:
        reached.call("jobs", {})
    assert caught.value.code == code
    reached.close()


def test_many_puts_are_sent_ahead_and_the_first_refusal_is_told_at_the_end(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    behaviour = f"""
say(greet)
for number in range(200):
    ask()
    say({{"answer": {{}}}} if number % 50 else {{"refused": {{"token": "invalid_request", "message": str(number)}}}})
open({str(seen)!r}, "w").write("all")
"""
    reached, _ = link(behaviour)
    with pytest.raises(HostRefused, match="lab: 0"):
        reached.call_each("store_put", (({}, b"x" * 5000) for _ in range(200)))
    reached.close()
    assert seen.read_text() == "all"


def test_what_changes_nothing_is_asked_with_the_first_words_and_nothing_else_is() -> None:
    along = 'first = ask(); say(greet); say({"answer": first["call"]}); ask()'
    reached, program = link(along)
    assert reached.call("jobs", {})[0] == "jobs"
    reached.close()
    alone = """
import os
os.set_blocking(0, False)
time.sleep(0.3)
early = bool(source.peek(1))
os.set_blocking(0, True)
say(greet); call = ask()["call"]; say({"answer": [call, early]}); ask()
"""
    reached, program = link(alone)
    assert reached.call("reserve", {})[0] == ["reserve", False]
    reached.close()
    assert program.opened == 1


def test_a_question_that_met_no_agent_is_asked_again_with_the_archive(tmp_path: Path) -> None:
    opened = []

    class Counting(LocalTransport):
        def open(self, argv: tuple[str, ...]) -> PipedChannel:
            opened.append(argv)
            return super().open(argv)

    reached = AgentLink(Counting("here", {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}), build())
    for _ in range(2):
        answer, _ = reached.call("look", {"run": "a-run"})
        assert answer == {"reports": [], "unreadable": []}
    assert len(opened) == 2
    reached.close()


def test_after_a_long_silence_the_next_call_has_a_new_connection() -> None:
    program = Program('say(greet)\nwhile True:\n    asked = ask()\n    say({"answer": asked["call"]})')
    reached = AgentLink(program, build(), renew_s=3600.0)
    for _ in range(3):
        assert reached.call("reserve", {})[0] == "reserve"
    assert program.opened == 1
    reached.close()
    reached = AgentLink(program, build(), renew_s=1.0)
    assert reached.call("reserve", {})[0] == "reserve"
    silent_since = time.monotonic()
    until(lambda: time.monotonic() > silent_since + 1.5)
    assert reached.call("reserve", {})[0] == "reserve"
    assert program.opened == 3
    reached.close()


def test_a_client_renews_long_before_an_agent_goes() -> None:
    assert RENEW_S * 2 < IDLE_S
