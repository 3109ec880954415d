"""Whether an attempt that ended is followed by another, and after which pause: one pure function of values.

It must not read, wait or write anything. An ending has exactly one cause, the one that its status tells; what is no
ending of the command by itself (a stop, a setup that failed, a program that could not be started) is never tried again.
"""

import signal
from typing import Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.jobs import Retry, StepExit
from aicrun.wire.status import reason_of


@lean.dataclass(frozen=True)
class Again:
    """Another attempt, because the last one ended by `cause` (`exit:75`, `signal:KILL`), `pause_s` seconds later."""

    cause: str
    pause_s: float


def again(rule: Retry, exits: Tuple[StepExit, ...], attempt: int) -> Optional[Again]:
    """What follows attempt number `attempt` (from 1), whose steps ended as `exits`: None when nothing does."""
    cause = cause_of(exits)
    if not cause or attempt > rule.most or not is_named(cause, rule.when):
        return None
    return Again(cause, pause_s(rule, attempt))


def cause_of(exits: Tuple[StepExit, ...]) -> str:
    """How the command ended, in the words of `Retry.when`, exact; "" for an end that is never tried again."""
    if not exits or exits[-1].step != "command" or any(end.stop_sent for end in exits):
        return ""
    end = exits[-1]
    if end.spawn_error or (end.code == 0 and not end.timed_out) or (end.code is None and end.signal is None):
        return ""
    reason = reason_of("command", end)
    if reason == "exit_code":
        return "exit:%d" % (end.code or 0)
    return "signal:%s" % _signal_name(end.signal or 0) if reason == "signal" else reason


def is_named(cause: str, when: Tuple[str, ...]) -> bool:
    """True when `when` holds the cause itself or the kind of it (`exit`, `signal`)."""
    return cause in when or cause.partition(":")[0] in when


def pause_s(rule: Retry, attempt: int) -> float:
    """Seconds between attempt `attempt` and the next: doubled each time, within the rule's bounds."""
    # Far beyond any bound: 2.0 ** 1000 would still be a number, its product is none.
    doubled = rule.backoff_s * 2.0 ** min(attempt - 1, 40)
    return float(min(doubled, max(rule.backoff_s, rule.backoff_most_s)))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name[len("SIG") :]
    except ValueError:
        return str(number)
