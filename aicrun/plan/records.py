"""What a record of a run says, in the words of a plan: where, since when, how far, what is kept.

It must not decide: `reconcile.py` does. All text of hosts is made harmless here.
"""

from __future__ import annotations

import re

from aicrun.plan import words
from aicrun.plan.known import Found
from aicrun.plan.model import CardOn
from aicrun.plan.nearest import places_name
from aicrun.wire.jobs import JobReport, JobRequest
from aicrun.wire.status import Status, status_of

_OF = re.compile(r"(\d{1,12})/(\d{1,12})\Z")


def where(found: Found) -> str:
    """`lab[1]`, or the machine's name when the job holds no card."""
    return places_name(cards_of(found)) or found.view.machine.name


def where_and_model(found: Found) -> str:
    """`lab[1], RTX A6000`."""
    models = list(dict.fromkeys(card.model for card in cards_of(found)))
    return ", ".join((where(found), *models))


def status_words(found: Found) -> str:
    """`in progress (training)`, `failed(oom_kill)`, `succeeded`."""
    standing = found.standing
    detail = standing.phase or standing.reason
    if standing.status is Status.IN_PROGRESS or standing.status is Status.STOP_IN_PROGRESS:
        return f"{standing.status.value} ({detail})" if detail else standing.status.value
    return f"{standing.status.value}({detail})" if detail else standing.status.value


def since(found: Found) -> float:
    """Seconds that a living job has been in what it does, or since it ended."""
    job = found.job
    if found.standing.status.terminal:
        return ended_age_s(job)
    running = [step.age_s for step in job.steps if step.state == "running" and step.age_s is not None]
    return running[-1] if running else job.age_s


def ended_age_s(job: JobReport) -> float:
    """Seconds since the job ended; since it was made where nobody recorded its end."""
    return job.ended_age_s if job.ended_age_s is not None else job.age_s


def ended_words(job: JobReport) -> str:
    """`succeeded 2d ago`, for a job that has ended."""
    return f"{status_of(job).status.value} {words.ago(ended_age_s(job))}"


def attempt_words(job: JobReport) -> str:
    """`attempt 2 of 4`, or `attempt 1` where no other may follow."""
    most = job.attempts_most
    return f"attempt {job.attempt} of {most}" if most > 1 and most >= job.attempt else f"attempt {job.attempt}"


def progress(job: JobReport) -> str:
    """`step 4,120 of 9,000, 46%`; empty when the log told no step."""
    done, total = _step(job)
    if total:
        percent = min(round(done * 100 / total), 99 if done < total else 100)
        return f"step {words.count(done)} of {words.count(total)}, {percent}%"
    told = job.progress.get("step", "")
    return f"step {words.name(told)}" if told else ""


def to_go(found: Found) -> str:
    """`about 3h 40m to go`, from the pace so far; empty when there is none to tell."""
    done, total = _step(found.job)
    if not done or done >= total or found.standing.status is not Status.IN_PROGRESS:
        return ""
    return f"about {words.duration(since(found) * (total - done) / done)} to go"


def checkpoint(job: JobReport) -> str:
    """`checkpoint-4000, 9m old`; empty when there is none."""
    kept = job.checkpoints
    if kept is None or not kept.newest:
        return ""
    age = f", {words.duration(kept.newest_age_s)} old" if kept.newest_age_s is not None else ""
    return words.name(kept.newest) + age


def kept(found: Found) -> str:
    """What stays of a job that is given up: checkpoint, its size and place, and the log."""
    job, parts = found.job, []
    if job.checkpoints is not None and job.checkpoints.newest:
        verified = job.upload is not None and job.upload.verified
        size = words.size(job.checkpoints.newest_bytes)
        told = "uploaded" if verified else "not uploaded"
        parts.append(f"{words.name(job.checkpoints.newest)}, {size} on {found.view.machine.name}, {told}")
    log = sum(step.log_bytes for step in job.steps)
    parts.append(f"log, {words.size(log)}" if log else "its log")
    return "; ".join(parts)


def is_same_folder(found: Found, made: JobRequest) -> bool:
    """Whether the job that is `made` looks for checkpoints where the run has left its own."""
    kept = found.job.checkpoints
    return kept is None or not kept.path or kept.path == made.checkpoints


def resumes_from(found: Found, made: JobRequest) -> tuple[str, ...]:
    """What a start that goes on with the run begins from, and why not from a newer checkpoint, a line each."""
    kept = found.job.checkpoints
    if kept is None or not may_resume(found):
        nothing = kept is None or not kept.newest
        told = "it has no checkpoint yet" if nothing else "no checkpoint of it is whole: from nothing"
    elif not is_same_folder(found, made):
        return ("from nothing, in another checkpoint folder", f"its checkpoints lie in {words.harmless(kept.path)}")
    elif kept.unreadable:
        told = f"its checkpoints cannot be read now: {words.harmless(kept.unreadable)}"
    elif _is_other_rule(found, made):
        return ("resumes by another rule than before, from what passes it",)
    elif kept.start:
        told = f"resumes from {words.name(kept.start)}"
    else:
        # It was started without a rule, by which its machine would have looked.
        told = "resumes from its newest checkpoint that is whole"
    skipped = kept.skipped if kept is not None else ""
    return (told, *([words.harmless(skipped)] if skipped else []))


def _is_other_rule(found: Found, made: JobRequest) -> bool:
    """Whether the job's machine has looked by another rule than that of the job that is `made`."""
    before, now = found.job.execution.get("resume"), made.execution.get("resume")
    keys = ("from", "complete_when")
    if not isinstance(before, dict) or not isinstance(now, dict):
        return False
    return any(before.get(key) != now.get(key) for key in keys)


def may_resume(found: Found) -> bool:
    """Whether there is, or may be, a checkpoint that the run would go on from."""
    kept = found.job.checkpoints
    if kept is None:
        return False
    return bool(kept.start or kept.unreadable or (kept.count and "resume" not in found.job.execution))


def lost(found: Found, resumes: bool) -> str:
    """What a stop throws away, always said."""
    job = found.job
    training = [step for step in job.steps if step.step == "command" and step.age_s is not None]
    if not training or training[0].age_s is None or found.standing.phase == "uploading":
        return "nothing"
    kept = job.checkpoints
    if resumes and kept is not None and kept.start and kept.start_age_s is not None:
        return f"{words.duration(kept.start_age_s)} of training since {words.name(kept.start)}"
    return f"{words.duration(training[0].age_s)} of training"


def cause(found: Found) -> str:
    """Why it ended as it did, with the code or signal that was recorded; empty when nothing is known."""
    standing, parts = found.standing, []
    if standing.step:
        parts.append(f"in step {standing.step}")
    if standing.signal is not None:
        parts.append(f"signal {standing.signal}")
    elif standing.code is not None and standing.reason != "upload_failed":
        parts.append(f"exit code {standing.code}")
    if standing.why:
        parts.append(words.cut(words.harmless(standing.why), 120))
    return ", ".join(parts)


def running_rows(found: Found) -> tuple[tuple[str, str], ...]:
    """The rows that tell of a living job: where and since when, how far, its newest checkpoint."""
    told = f"{where_and_model(found)}, {status_words(found)}, {words.duration(since(found))}"
    rows = [("running", told)]
    step, newest = progress(found.job), checkpoint(found.job)
    rows += [("", step)] if step else []
    rows += [("", f"newest checkpoint: {newest}")] if newest else []
    return tuple(rows)


def cards_of(found: Found) -> tuple[CardOn, ...]:
    """The cards that the job was given, as candidates, in index order of the machine."""
    reading = found.view.reading
    known = reading.cards.cards if reading is not None else ()
    name = found.view.machine.name
    return tuple(
        CardOn(name, card.index, card.uuid, words.card_model(card.model))
        for card in known
        if card.uuid in found.job.cards
    )


def _step(job: JobReport) -> tuple[int, int]:
    found = _OF.match(job.progress.get("step", ""))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
