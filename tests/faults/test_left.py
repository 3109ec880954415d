"""A client that went without a word: its agent goes after a silence, and a call that runs is no silence."""

from __future__ import annotations

import time
from typing import Any

from agent_rig import Link, Rig
from support import until


def test_an_agent_that_hears_nothing_for_long_goes(rig: Rig) -> None:
    with rig.link(AICRUN_TEST_IDLE_S="2") as link:
        assert link.call("jobs")[0]["omitted"] == 0
        # Both pipes stay open: nothing but the silence tells that nobody is there.
        assert link.process.wait(60) == 0


def test_half_a_request_and_then_nothing_is_a_client_that_left(rig: Rig) -> None:
    with rig.link(AICRUN_TEST_IDLE_S="2") as link:
        assert link.process.stdin
        link.process.stdin.write(b"100 0\n{")
        link.process.stdin.flush()
        assert link.process.wait(60) == 0


def test_a_call_that_runs_for_longer_is_no_silence(rig: Rig) -> None:
    job = rig.start("quiet-run", "sleep 600")
    until(lambda: rig.standing(job).status.value == "in progress", 60)
    with rig.link(AICRUN_TEST_IDLE_S="2") as link:
        for call, words in (
            ("wait", {"known": "in progress", "timeout_s": 4.0}),
            ("log", {"offset": 0, "wait_s": 4.0}),
        ):
            assert lasted(link, call, job_id=job, **words) > 3
        assert link.process.poll() is None
        assert link.call("jobs")[0]["omitted"] == 0
    rig.call("stop", job_id=job, by="ana@laptop", grace_s=0)


def lasted(link: Link, call: str, **words: Any) -> float:
    """How many seconds the call took."""
    began = time.monotonic()
    link.call(call, **words)
    return time.monotonic() - began
