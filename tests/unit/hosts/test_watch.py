"""The watch over one call: it ends a channel that is silent, and never one whose call is over."""

from __future__ import annotations

import os

import pytest

from aicrun.hosts.agent_link import Watch
from aicrun.hosts.piped import PipedChannel


def _silent() -> PipedChannel:
    return PipedChannel(("sleep", "600"), os.environ)


def test_a_silent_channel_is_ended() -> None:
    channel = _silent()
    watch = Watch(channel, 0.05)
    assert channel.stdout.read(1) == b""
    assert watch.passed
    watch.cancel()
    channel.close()


@pytest.mark.parametrize("heard_ago_s", [0.0, 1000.0])
def test_a_look_that_was_going_on_when_the_call_ended_does_nothing_any_more(heard_ago_s: float) -> None:
    channel = _silent()
    try:
        watch = Watch(channel, 600.0)
        watch.cancel()
        watch._heard_at -= heard_ago_s
        watch._look()
        assert not watch.passed
        assert channel._process.poll() is None
    finally:
        channel.abort()
        channel.close()
