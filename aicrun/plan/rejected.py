"""The plan of a run that no place takes: what to say first, and what would fit.

It must not judge anew: every number comes from the verdicts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from aicrun.plan import words
from aicrun.plan.commands import of_run, typed
from aicrun.plan.known import NOT_ASKED, Known
from aicrun.plan.model import CardOn, Fleet, Refusal, RunPlan, Verdict, Wanted, Way
from aicrun.plan.nearest import WAITABLE, largest_room, miss
from aicrun.plan.needed_room import there, volumes_needed
from aicrun.plan.refusals import NOTHING_FITS
from aicrun.plan.steps import asks, measured
from aicrun.plan.versions import parse
from aicrun.spec.model import CardDemand
from aicrun.wire.tools import FETCHERS

_TOOL_LACKS = frozenset(("no_fetcher", "no_carrier"))
# The field that asks for what a machine has not got.
_FIELDS = {
    "cpus": "machine.cpus",
    "memory": "machine.memory",
    "memory_free": "machine.memory",
    "disk": "machine.disk",
    "inodes": "machine.disk",
    "label": "machine.labels",
    "python": "setup.python",
    "venv": "setup.venv",
    "wheels": "setup.wheels",
    "input_missing": "inputs",
    "no_fetcher": "inputs",
    "no_carrier": "checkpoints.upload",
    "not_writable": "workspace",
    "no_git": "source.git",
    "source_unreachable": "source.git",
    "too_many_jobs": "machines.max_jobs",
}


def rejected(wanted: Wanted, blank: RunPlan, verdicts: tuple[Verdict, ...], known: Known) -> RunPlan:
    """`blank` filled in as a rejection with every reason; exit code 5."""
    spec, fleet = wanted.spec, known.fleet
    unknown = _named_nowhere(wanted, fleet)
    told = f"rejected, no machine is named {words.joined(unknown, 'or')}" if unknown else ""
    told = told or _headline(wanted, verdicts, fleet)
    rows = [("asks" if not place else "", line) for place, line in enumerate(asks(spec, _data(fleet)))]
    kept = _kept_elsewhere(verdicts)
    rows += [("resumes", f"from a checkpoint on {kept}; another machine would begin from nothing")] if kept else []
    rows += [("set", f"{override} by --set, not in {spec.file or 'run.yaml'}") for override in spec.overrides]
    if unknown:
        rows.append(("known", words.some([view.machine.name for view in fleet.machines], 8)))
    history = measured(wanted, known)
    ways = tuple(_of_names(wanted, unknown, fleet) if unknown else _ways(wanted, verdicts, known))
    refusal = Refusal(NOTHING_FITS, 5, told, tuple(rows), ways)
    return replace(
        blank,
        headline=told,
        verdicts=verdicts,
        rows=tuple(rows),
        nearest=miss(verdicts),
        after=(("measured", history),) if history else (),
        refusal=refusal,
        ways=ways,
    )


def would_fit_gib(verdicts: tuple[Verdict, ...], demand: CardDemand) -> int:
    """The most whole GiB that could be asked of the largest card that only its size speaks against; 0: none."""
    share = demand.headroom_mib / demand.vram_mib if demand.vram_mib else 0.0
    best = 0
    for verdict in verdicts:
        lasting = {reason.token for reason in verdict.rejections if reason.lasting}
        if lasting != {"vram_size"} or verdict.room_mib is None or verdict.need_mib is None:
            continue
        display = verdict.need_mib - demand.vram_mib - demand.headroom_mib
        best = max(best, int((verdict.room_mib - display) / (1 + share) // 1024))
    return best


def _named_nowhere(wanted: Wanted, fleet: Fleet) -> tuple[str, ...]:
    """The names that the spec asks for, when the inventory has none of them."""
    there = {view.machine.name for view in fleet.machines}
    names = wanted.spec.machine.names
    return () if any(name in there for name in names) else tuple(words.name(name) for name in names)


def _of_names(wanted: Wanted, unknown: tuple[str, ...], fleet: Fleet) -> Iterator[Way]:
    """The nearest name, put in the place of the one that was typed, and the list."""
    import difflib  # Only for a mistake: it costs more than the plan.

    spec, names = wanted.spec, [view.machine.name for view in fleet.machines]
    near = next((found for name in unknown for found in difflib.get_close_matches(name, names, 1)), "")
    if near:
        bare = replace(spec, overrides=tuple(item for item in spec.overrides if not item.startswith("machine.name=")))
        yield Way(f"did you mean {near}?", typed("plan", bare, "--set", f"machine.name={near}"))
    yield Way("what there is", "aicrun machines")


def _data(fleet: Fleet) -> str:
    """The data folder as it is called where the run could have gone; in general words where names differ."""
    names = {view.machine.data for view in fleet.machines if view.reading is not None}
    return names.pop() if len(names) == 1 and "" not in names else "the data volume"


def _headline(wanted: Wanted, verdicts: tuple[Verdict, ...], fleet: Fleet) -> str:
    asked = len([view for view in fleet.machines if view.state not in NOT_ASKED])
    of = words.counted(asked, "machine")
    if wanted.spec.machine.gpu is None:
        now = " now" if any(not item.lasting for item in verdicts) else ""
        if asked == 1:
            name = next(view.machine.name for view in fleet.machines if view.state not in NOT_ASKED)
            return f"rejected{now}, {name} cannot take it"
        return f"rejected{now}, none of {of} can take it"
    cards = [item for item in verdicts if isinstance(item.candidate, CardOn)]
    later = [item for item in cards if item.rejections and not item.lasting]
    if later:
        return f"rejected now, {words.counted(len(later), 'card')} would fit when free"
    if any(item.unknown for item in verdicts):
        return f"rejected, no card of {of} is known to fit it"
    if not cards:
        names = [view.machine.name for view in fleet.machines if view.state not in NOT_ASKED]
        return f"rejected, {names[0]} has no card" if len(names) == 1 else f"rejected, none of {of} has a card"
    return f"rejected, no card of {of} can ever fit it"


def _ways(wanted: Wanted, verdicts: tuple[Verdict, ...], known: Known) -> Iterator[Way]:
    spec, demand = wanted.spec, wanted.spec.machine.gpu
    drained = next((item for item in verdicts if {reason.token for reason in item.rejections} == {"drained"}), None)
    if drained is not None:
        yield Way("lift its drain", f"aicrun machines drain {drained.candidate.machine} --off")
    yield from _of_room(wanted, verdicts, known)
    yield from _of_lacking(wanted, verdicts)
    if _kept_elsewhere(verdicts):
        yield Way("from nothing, elsewhere", typed("apply", spec, "--fresh"))
    if demand is None:
        yield Way("what it asks", f"aicrun explain {_field(verdicts)}")
        yield Way("what there is", "aicrun machines")
        return
    if any(_frees_itself(item) for item in verdicts):
        yield Way("wait in line", typed("plan", spec, "--set", "queue.wait=24h"))
    bare = replace(spec, overrides=tuple(item for item in spec.overrides if not item.startswith("machine.gpu=")))
    small = demand.count == 1 and all(item.lasting for item in verdicts if item.rejections)
    most = would_fit_gib(verdicts, demand) if small else 0
    if most >= 1:
        yield Way("what would fit", typed("plan", bare, "--set", f"machine.gpu={most}GiB"))
    half = -(-(demand.vram_mib + demand.headroom_mib) // 2 // 1024)
    if demand.count == 1 and most >= half and _has_pair(verdicts):
        yield Way("on two cards", typed("plan", bare, "--set", f"machine.gpu=2 x {half}GiB"))
    if not any(isinstance(item.candidate, CardOn) for item in verdicts):
        yield Way("what there is", "aicrun machines")
    yield Way("what each asks", "aicrun explain machine.gpu")


def _kept_elsewhere(verdicts: tuple[Verdict, ...]) -> str:
    """The machine of the run's checkpoint, where nothing but that keeps the run off another one; empty else."""
    alone = (item.rejections[0] for item in verdicts if _tokens(item) == {"checkpoint_elsewhere"})
    return next((reason.asked for reason in alone), "")


def _of_room(wanted: Wanted, verdicts: tuple[Verdict, ...], known: Known) -> Iterator[Way]:
    """What takes the room of the first machine that only lacks room; what is ours there is looked at first."""
    names = [item.candidate.machine for item in verdicts if item.rejections and _tokens(item) <= {"disk", "inodes"}]
    if not names:
        return
    view, reading = known.answered(names[0])
    full = next(one for one in volumes_needed(wanted, view.machine, reading) if one.rejections)
    if any(room.path == reading.jobs_root for room in full.rooms):
        yield Way("what can go of ours", f"{of_run('gc', names[0])} --dry-run")
    flag = "--inodes" if full.rejections[0].token != "disk" else "-h"
    # A folder that is still to be made holds nothing: what fills its volume lies in one above.
    place = shlex.quote(there(reading, full.folders[0]))
    yield Way("what lies there", f"aicrun exec {names[0]} -- du -xd1 {flag} {place}")


def _of_lacking(wanted: Wanted, verdicts: tuple[Verdict, ...]) -> Iterator[Way]:
    """How the first machine that lacks a tool gets it, and the newest Python that there is."""
    reasons = [(item.candidate.machine, reason) for item in verdicts for reason in item.rejections]
    tool = next(((name, one.asked) for name, one in reasons if one.token in _TOOL_LACKS), None)
    if tool is not None and tool[1] in FETCHERS:
        yield Way(f"on {tool[0]}", FETCHERS[tool[1]].get)
    there = [one.offered for _, one in reasons if one.token == "python"]
    newest = max((parse(text) for offered in there for text in re.split(r", | and ", offered)), default=())
    if newest:
        spec = wanted.spec
        kept = tuple(item for item in spec.overrides if not item.startswith("setup.python="))
        version = ".".join(str(number) for number in newest[:2])
        command = typed("plan", replace(spec, overrides=kept), "--set", f"setup.python={version}")
        yield Way("with a Python that is there", command)


def _field(verdicts: tuple[Verdict, ...]) -> str:
    """The field of the spec that speaks against the nearest machine."""
    nearest = min((item for item in verdicts if item.rejections), key=lambda item: len(item.rejections), default=None)
    tokens = [reason.token for reason in nearest.rejections] if nearest is not None else []
    return next((_FIELDS[token] for token in tokens if token in _FIELDS), "machine")


def _tokens(verdict: Verdict) -> set[str]:
    return {reason.token for reason in verdict.rejections}


def _frees_itself(verdict: Verdict) -> bool:
    tokens = _tokens(verdict)
    return bool(tokens) and not verdict.lasting and tokens <= WAITABLE


def _has_pair(verdicts: tuple[Verdict, ...]) -> bool:
    """Whether a machine has two cards of one model among the largest."""
    cards = [item.candidate for item in largest_room(verdicts) if isinstance(item.candidate, CardOn)]
    kinds = [(card.machine, card.model) for card in cards]
    return any(kinds.count(kind) > 1 for kind in kinds)
