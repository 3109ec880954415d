"""What happened, as data, for views: apply and follow report through a `Tell`. It must not print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepBegan:
    """A step of an apply is going on: `step` is one word (`push`, `start`, `building`), `words` what it does now."""

    run: str
    step: str
    words: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step of an apply ended after `took_s`."""

    run: str
    step: str
    words: str
    took_s: float


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Bytes of a job's log, text of the host, in order; `step` is the job's step."""

    run: str
    step: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence for people on stderr (`lab does not answer for 20s; the run goes on there`)."""

    run: str
    words: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a question to many machines stands: how many were asked, how many cannot answer, and who is missing yet."""

    asked: int
    failed: int
    missing: tuple[str, ...]


Happening = StepBegan | StepDone | LogBytes | Remark
Tell = Callable[[Happening], None]

# Events of a job's history that a person should know of, in words; their detail is text of the host.
WARNINGS = {
    "pin_violated": "a process of it computes on a card that the run does not hold",
    "card_unused": "nothing of it was on its card: it may compute on the processor",
    "card_unverified": "nobody could look who else is on its card",
    "leftovers_killed": "it left processes behind, which were ended",
    "notes_failed": "what was learned could not be written to the machine's notes",
}
