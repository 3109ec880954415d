"""What a plan is made of: candidates, verdicts, rejections, run plans. Plain frozen data; nothing is decided here."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aicrun.spec.model import Machine, Reached, RunSpec
from aicrun.wire.facts import HostReading
from aicrun.wire.jobs import JobReport, JobRequest, Source


class Sign(enum.Enum):
    """The closed set of actions, each with the sign that people read."""

    START = "+"
    WAIT = "…"
    KEEP = "="
    MOVE = ">"
    CHANGE = "~"
    REPLACE = "±"
    UPLOAD = "^"
    REFUSE = "x"


@dataclass(frozen=True, slots=True)
class CardOn:
    """One card of one machine."""

    machine: str
    index: int
    uuid: str
    model: str


@dataclass(frozen=True, slots=True)
class KindOn:
    """A kind of card of a cluster that does not name cards."""

    machine: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class HostOn:
    """A machine itself, for runs that ask no card."""

    machine: str


Candidate = CardOn | KindOn | HostOn


@dataclass(frozen=True, slots=True)
class Rejection:
    """One reason: a stable token, what was asked, what is offered, and whether it can ever change.

    `lasting` True: can never fit here. False: taken at the moment. `words` is the reason as people read it.
    """

    token: str
    asked: str
    offered: str
    lasting: bool
    words: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Exactly one for each candidate: it fits (no rejections, not unknown), is rejected, or cannot be judged.

    `spare_mib` is the free VRAM left over after demand and headroom (absent for hosts). `remarks` are facts worth
    a word (`display, so last`). Free and total MiB stand where they are known; `need_mib` is what is asked of this
    card, `room_mib` what would be free if nobody were on it.
    """

    candidate: Candidate
    rejections: tuple[Rejection, ...] = ()
    unknown: str = ""
    spare_mib: int | None = None
    free_mib: int | None = None
    total_mib: int | None = None
    need_mib: int | None = None
    room_mib: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """True when nothing speaks against it."""
        return not self.rejections and not self.unknown

    @property
    def lasting(self) -> bool:
        """True when at least one reason can never change."""
        return any(reason.lasting for reason in self.rejections)


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine as the survey saw it.

    `state` is `answered`, `silent`, `down`, `excepted`, `unsupported`, `remembered` or `twin`: an earlier one again.
    `reading` is there when it answered, and in an offline plan when it was `remembered`; `why` tells what happened
    otherwise, in words. `seen` is how one that does not answer looked `seen_age_s` ago, by this client's ledger.
    `reached` is where an ssh entry led, when it was tried. `refuses`: it was reached, and what must be there cannot be.
    """

    machine: Machine
    state: str
    reading: HostReading | None = None
    why: str = ""
    seen: HostReading | None = None
    seen_age_s: float | None = None
    reached: Reached | None = None
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines as observed at one moment, in inventory order; `offline`: as last seen, nobody was asked."""

    machines: tuple[MachineView, ...]
    inventory_file: str = ""
    inventory_digest: str = ""
    account: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """What the person said on the command line, beyond the spec.

    `files` are as typed, `choice` the `--only` and `--skip` with their runs: for the commands to type next.
    """

    again: bool = False
    fresh: bool = False
    replace: bool = False
    forget: bool = False
    use_kept: bool = False
    files: tuple[str, ...] = ()
    choice: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run that is wished for: its spec, its source as snapshotted, and the files the plan must read.

    `source` is absent when the spec has none. `files` maps a spec-relative path (requirements) to its text.
    `largest` are (path, bytes) of the largest source files, largest first. `known_on` are machines that the ledger
    names for this run: silent, they may hold it although the selector does not admit them. `unset` are the secrets
    whose value this client has not. `sent` are the inputs of this client, by name, as they are now. `pointers` and
    `submodules` are what git knows of the source and this client has not.
    """

    spec: RunSpec
    source: Source | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    largest: tuple[tuple[str, int], ...] = ()
    known_on: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    sent: Mapping[str, Source] = field(default_factory=dict)
    pointers: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs between the spec and the job on the host; absent sides are None.

    `kind` is `execution` (needs a new start), `supervision` (changes in place) or `later` (acts from the next start).
    `files` are those of a source that differ, as `~ sft.py`, with `+` and `-` for new and gone; none when not known.
    """

    path: str
    kind: str
    old: Any
    new: Any
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """A way out: what it does and the command to type."""

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the plan refuses: an `AIC-E6…` code, the exit code, a clause for the headline, facts and ways out."""

    code: str
    exit: int
    words: str
    facts: tuple[tuple[str, str], ...] = ()
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What will happen to one run, and why.

    `headline` is the first line without its sign (`start on lab[1], RTX A6000`). `rows` are (label, text) lines that
    stand before the table of cards, `after` those behind it, `terms` those after the steps; an empty label continues
    the row above. `in_order` are (step, words) in the order they will happen.
    `draft` is the complete job but for `job_id`, `run_id` (when `run_id` is empty), `rank` and `client`, which
    `lifecycle.start` fills in; it may hold the placeholder `${run.id}`. `named` are the ended job ids this plan read.
    `job` is the record that counts and `job_machine` where it lies; `machine` is where the run will be. `largest` are
    (path, bytes) of the largest files that are sent.
    """

    sign: Sign
    run: str
    headline: str
    spec: RunSpec
    digest: str
    chosen: tuple[Candidate, ...] = ()
    machine: str = ""
    verdicts: tuple[Verdict, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    nearest: str = ""
    in_order: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    changes: tuple[FieldChange, ...] = ()
    job: JobReport | None = None
    job_machine: str = ""
    refusal: Refusal | None = None
    ways: tuple[Way, ...] = ()
    draft: JobRequest | None = None
    run_id: str = ""
    from_nothing: bool = True
    named: tuple[str, ...] = ()
    apply_refusal: Refusal | None = None
    warnings: tuple[str, ...] = ()
    largest: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """One fact a saved plan depends on: `what` in words (`driver of lab`), and its value as text."""

    what: str
    value: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All runs of one call, in the order given, the fleet they were placed on, and the facts they depend on."""

    runs: tuple[RunPlan, ...]
    fleet: Fleet
    bounds: tuple[Bound, ...] = ()
    options: Options = field(default_factory=Options)
