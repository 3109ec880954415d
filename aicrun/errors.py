"""The root of every error aicrun raises on purpose, and the exit codes of the command line.

It must not know any other room. A new kind of error gets its exit code here and its number in `codes.py`.

    AicrunError                 exit   raised when
    ├── UsageError                3    a command line asks for something that does not exist
    ├── SpecInvalid               4    a spec or an inventory has faults (carries all of them)
    ├── NothingFits               5    no card of any machine fits
    ├── HostUnreachable           6    a machine does not answer, or may hold the run and is silent
    ├── HostRefused               7    the host's agent says no (`gpu_busy`, `too_many_jobs`, …)
    ├── PlanRefused               8    the plan refuses: `--replace`, `--again` … is needed
    ├── PlanStale                 9    a saved plan no longer describes the world
    ├── TransferFailed           14    upload, fetch, push, pull, doctor or gc could not do it
    └── AgentBroken               1    the agent answered nonsense: a fault of ours
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command; the table of design section 5, frozen by `tests/golden/exit_codes.json`."""

    DONE = 0
    OURS = 1
    CHANGES_PENDING = 2
    USAGE = 3
    INVALID = 4
    NOTHING_FITS = 5
    UNREACHABLE = 6
    HOST_REFUSED = 7
    PLAN_REFUSED = 8
    PLAN_STALE = 9
    RUN_FAILED = 10
    RUN_STOPPED = 11
    OUTCOME_UNKNOWN = 12
    WAIT_PASSED = 13
    TRANSFER_FAILED = 14
    INTERRUPTED = 130
    TERMINATED = 143


# Several runs in one call: the first of these that occurs is the exit code of the whole call.
PRECEDENCE = tuple(Exit(code) for code in (1, 3, 4, 12, 10, 11, 14, 7, 6, 8, 9, 5, 13, 2, 0))


def worst(codes: list[Exit]) -> Exit:
    """The one exit code of a call that ended in `codes` (any order, may be empty: then `DONE`)."""
    return next((code for code in PRECEDENCE if code in codes), Exit.DONE)


@dataclass(frozen=True)
class Way:
    """One way out of a trouble: what it does, in a few words, and the command to type (may be empty)."""

    what: str
    command: str = ""


class AicrunError(Exception):
    """What happened, to which thing, and the ways out; `code` is an `AIC-E…` number of `codes.py`."""

    exit = Exit.OURS

    def __init__(
        self,
        code: str,
        message: str,
        *,
        facts: tuple[tuple[str, str], ...] = (),
        ways: tuple[Way, ...] = (),
    ) -> None:
        """`facts` are (label of at most 9 characters, text) rows shown below the message."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts
        self.ways = ways


class UsageError(AicrunError):
    """The command line names something that does not exist, or contradicts itself."""

    exit = Exit.USAGE


class SpecInvalid(AicrunError):
    """A spec or inventory has faults; subclassed in `spec.diagnostics` by the class that carries them."""

    exit = Exit.INVALID


class NothingFits(AicrunError):
    """No candidate of any machine fits the run."""

    exit = Exit.NOTHING_FITS


class HostUnreachable(AicrunError):
    """A machine gave no answer; says nothing about the runs on it."""

    exit = Exit.UNREACHABLE


class HostRefused(AicrunError):
    """The host's agent refused; `token` is the wire's refusal token."""

    exit = Exit.HOST_REFUSED

    def __init__(
        self,
        code: str,
        message: str,
        *,
        token: str,
        facts: tuple[tuple[str, str], ...] = (),
        ways: tuple[Way, ...] = (),
    ) -> None:
        super().__init__(code, message, facts=facts, ways=ways)
        self.token = token


class PlanRefused(AicrunError):
    """The plan refuses until a person says which way to go."""

    exit = Exit.PLAN_REFUSED


class PlanStale(AicrunError):
    """A saved plan, and the fact that moved since it was made."""

    exit = Exit.PLAN_STALE


class TransferFailed(AicrunError):
    """An upload, a fetch, a push, a pull or a clean-up could not be done."""

    exit = Exit.TRANSFER_FAILED


class AgentBroken(AicrunError):
    """The agent's answer cannot be read: a fault of ours, never of the user."""

    exit = Exit.OURS
