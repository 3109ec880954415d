"""Which files of a checkpoint folder are uploaded: those of the run itself, and of no checkpoint that is half written.

It must not change anything there; why something is left out is told with its name.
"""

import os
import time
from typing import Callable, Dict, Iterator, List, NamedTuple

from aicrun.agent import checkpoint_files, checkpoint_folder, resuming
from aicrun.agent.home import Home
from aicrun.agent.outputs import Output, Outputs, outputs, printable
from aicrun.agent.targets import CannotUpload
from aicrun.wire import checkpoint as wire
from aicrun.wire import lean
from aicrun.wire.jobs import JobRequest

OLDER = "it was there before the run began"
MIXED = "it holds files from before the run began"


class Rule(NamedTuple):
    """`began`: when the run began, by this host's clock, 0 in a folder that no other run uses.

    `complete_when`: a file that the spec says each numbered checkpoint ends with, empty for none.
    """

    began: float = 0.0
    complete_when: str = ""


EVERYTHING = Rule()


def chosen(folder: str, rule: Rule) -> Outputs:
    """What to upload of `folder`, now that nobody of the run writes there; raises `OSError` as `outputs` does."""
    found = outputs(folder)
    top = os.path.realpath(folder)
    told = _checkpoints(top, rule)
    kept: List[Output] = []
    left: Dict[str, str] = {}
    for output in found.files:
        # By where its bytes lie: a link to a checkpoint is as good as that.
        place, is_below, _ = os.path.relpath(output.source, top).partition("/")
        # Beside each other at the top lie files of any age: each is judged by its own.
        at_top = "" if is_below else told.get(wire.TOP, "")
        why = told[place] if place in told else at_top or _older(output.source, rule.began)
        if why:
            left.setdefault(place, why)
        else:
            kept.append(output)
    lines = tuple("%s: %s" % (printable(place), why) for place, why in sorted(left.items()))
    out = {printable(place) for place, why in told.items() if why}
    missing = tuple(line for line in found.missing if line.partition("/")[0] not in out)
    return lean.replace(found, files=tuple(kept), skipped=found.skipped + lines, missing=missing)


def rule_of(home: Home, request: JobRequest) -> Rule:
    """The rule of a job."""
    began = resuming.began_at(home, (request.run, request.run_id), request.checkpoints)
    return Rule(began, request.resume.complete_when if request.resume is not None else "")


def lasts_s(rule: Rule, now: float) -> float:
    """How old what the run made can be at most at `now`."""
    return now - rule.began if rule.began else float("inf")


def whole(folder: str, rule: Rule, is_over: bool = True) -> Iterator[checkpoint_folder.Seen]:
    """The run's own checkpoints that are whole, newest first; `is_over`: nobody writes there any more."""
    now = time.time()
    for seen in checkpoint_folder.each(folder, checkpoint_folder.Moment(now, is_over)):
        if not why_not(seen, rule, lasts_s(rule, now)) and seen.told.complete != wire.WRITING:
            yield seen


def of_unit(found: Outputs, name: str) -> Outputs:
    """Those files of `found` that the checkpoint `name` is made of, with what is missing of it."""
    is_in = _within(name)
    files = tuple(output for output in found.files if is_in(output.path))
    return lean.replace(found, files=files, skipped=(), missing=tuple(line for line in found.missing if is_in(line)))


def _within(name: str) -> Callable[[str], bool]:
    """Whether a path, or a line that begins with one, is of the checkpoint of that name."""
    if name == wire.TOP:
        return lambda path: os.sep not in path.partition(": ")[0]
    plain = printable(name)
    return lambda path: path == name or path.startswith((name + "/", plain + "/", plain + ": "))


def check_any(folder: str, found: Outputs) -> None:
    """Raise `CannotUpload` when there is nothing to upload."""
    if found.files:
        return
    if not found.skipped:
        raise CannotUpload("nothing to upload: the checkpoint folder %s is empty" % folder)
    words = (folder, found.skipped[0])
    raise CannotUpload("nothing to upload: no file in %s is of a whole checkpoint of this run; %s" % words)


def _checkpoints(top: str, rule: Rule) -> Dict[str, str]:
    """Each checkpoint's entry in the folder, and why it is left out; empty for one that is not."""
    now = time.time()
    moment = checkpoint_folder.Moment(now, is_over=True)
    found = {}
    for seen in checkpoint_folder.each(top, moment):
        entry = wire.TOP if seen.told.name == wire.TOP else os.path.basename(seen.path)
        found[entry] = why_not(seen, rule, lasts_s(rule, now))
    return found


def not_own(seen: checkpoint_folder.Seen, most_s: float) -> str:
    """Why a checkpoint is none of a run that lasts for `most_s` by now; empty when it is."""
    if seen.told.age_s > most_s:
        return OLDER
    return MIXED if seen.oldest_age_s > most_s and seen.told.name != wire.TOP else ""


def why_not(seen: checkpoint_folder.Seen, rule: Rule, most_s: float) -> str:
    """Why a checkpoint is left out of the upload of a run that lasts for `most_s` by now; empty when it is not."""
    older = not_own(seen, most_s)
    if older:
        return older
    if seen.told.complete == wire.NO:
        return "it is not whole: %s" % seen.told.why
    is_numbered = checkpoint_files.step_of(os.path.basename(seen.path)) is not None and os.path.isdir(seen.path)
    if rule.complete_when and is_numbered and not os.path.exists(os.path.join(seen.path, rule.complete_when)):
        return "it is not whole: %s is missing" % rule.complete_when
    return ""


def _older(source: str, began: float) -> str:
    try:
        return OLDER if os.stat(source).st_mtime < began else ""
    except OSError:
        # It went away meanwhile: whoever sends it says so.
        return ""
