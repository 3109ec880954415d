"""An apply whose connection fails at any place, in any way: one job or none, told as it is, and found by the next.

`AICRUN_POINTS=all` tries every place with every fault over both carriers (most of an hour); every run tries a few,
drawn with `AICRUN_POINTS_SEED`.
"""

from __future__ import annotations

import os
import random
import re

import pytest
from ssh.relay import CONNECT, HANDSHAKE
from ssh.trap import ANSWER, CUT, DELAY, DROP, LATE, REQUEST, STALL, Snare
from ssh.trapped import ALONE, BESIDE, BOUND_S, Trapped, said
from support import until

POINTS = os.environ.get("AICRUN_POINTS", "2")
SEED = os.environ.get("AICRUN_POINTS_SEED", "28")

# Every place of an apply, in the order in which it comes to them: what a start asks with a machine beside it, and
# what only an inventory of one machine (`alone`), a replacement and a follower come to.
EARLY = (CONNECT, HANDSHAKE)
STARTING = ("bootstrap", "push", "survey", "store_missing", "store_put", "reserve", "look", "confirm", "job", "wait")
REPLACING = ("stop", "touch")
FOLLOWING = ("log",)
# What an apply may end with: done; a machine is silent; no plan without it; not known what became of the start.
HONEST = (0, 5, 6, 8, 12)
NOTHING_SENT = re.compile(r"nothing was (started|sent)|Nothing has been (started|changed)")


def _cases() -> list[tuple[str, Snare]]:
    found = [("start", Snare(place, REQUEST, fault)) for place in EARLY for fault in (CUT, DROP, STALL)]
    for kind, places in (("start", STARTING), ("alone", ("reserve",)), ("replace", REPLACING), ("follow", FOLLOWING)):
        for place in places:
            sides = [(REQUEST, CUT), (ANSWER, CUT), (REQUEST, DROP), (ANSWER, DROP), (REQUEST, LATE)]
            sides += [(REQUEST, STALL), (ANSWER, STALL), (ANSWER, DELAY)]
            found += [(kind, Snare(place, side, fault)) for side, fault in sides]
    found += [("start", Snare("close", REQUEST, fault)) for fault in (CUT, DROP, STALL)]
    for place, side in (("reserve", REQUEST), ("reserve", ANSWER), ("confirm", ANSWER), ("wait", ANSWER)):
        found += [("start", Snare(place, side, fault, lasting=True)) for fault in (CUT, DROP)]
    return found


def _drawn() -> list[tuple[str, Snare]]:
    if POINTS == "all":
        return _cases()
    # Those that wait out the patience of a start, or a late request, take too long for every run.
    quick = [case for case in _cases() if not case[1].lasting and case[1].fault != LATE]
    starts = [case for case in quick if case[0] in ("start", "alone")]
    chance = random.Random(SEED)
    return [*chance.sample(starts, int(POINTS) - 1), chance.choice([case for case in quick if case not in starts])]


def starts_one_job_or_none(trapped: Trapped, kind: str, snare: Snare) -> None:
    run = f"{kind}-{snare}"
    trapped.inventory(ALONE if kind == "alone" else BESIDE)
    trapped.write(run)
    if snare.place in ("bootstrap", "push"):
        trapped.forget_agent()
    first = trapped.failing(snare, "apply", "run.yaml", "--yes")
    assert first.returncode in HONEST, said(first)
    started = trapped.starts(run)
    if NOTHING_SENT.search(first.stdout + first.stderr) or first.returncode in (5, 8):
        assert not started, said(first)
    if "AIC-E592" in first.stderr:
        # Once it was sent nobody may say that it runs, nor that it does not.
        assert "whether it started is not known" in " ".join(first.stderr.split()), said(first)
        assert "the run goes on there" not in first.stderr, said(first)
    again = trapped.project.run("apply", "run.yaml", "--yes", timeout_s=BOUND_S)
    assert (again.returncode, "in progress on box" in again.stdout) == (0, True), said(first) + said(again)
    until(lambda: trapped.starts(run), 60)
    assert len(trapped.starts(run)) == 1, said(first) + said(again)
    assert trapped.starts(run)[: len(started)] == started
    assert trapped.running() == {run: trapped.starts(run), "bystander": trapped.starts("bystander")}
    trapped.end(trapped.starts(run))


def ends_the_old_job_and_starts_one(trapped: Trapped, kind: str, snare: Snare) -> None:
    run = f"{kind}-{snare}"
    trapped.write(run)
    done = trapped.project.run("apply", "run.yaml", "--yes", timeout_s=BOUND_S)
    assert done.returncode == 0, said(done)
    until(lambda: trapped.starts(run), 60)
    trapped.write(run, more="env: {ROUND: '2'}\n")
    first = trapped.failing(snare, "apply", "run.yaml", "--replace", "--yes")
    assert first.returncode in HONEST, said(first)
    again = trapped.project.run("apply", "run.yaml", "--replace", "--again", "--yes", timeout_s=BOUND_S)
    assert again.returncode == 0, said(first) + said(again)
    until(lambda: len(trapped.starts(run)) > 1, 60)
    assert len(trapped.starts(run)) == 2, said(first) + said(again)
    assert trapped.running() == {run: trapped.starts(run)[1:], "bystander": trapped.starts("bystander")}
    trapped.end(trapped.starts(run))


def tells_the_log_whole_and_once(trapped: Trapped, kind: str, snare: Snare) -> None:
    run = f"{kind}-{snare}"
    talks = "for i in $(seq 30); do echo line $i; sleep 0.1; done; echo kept > $AICRUN_CHECKPOINT_DIR/model"
    trapped.write(run, command=f"sh -c '{talks}'")
    first = trapped.failing(snare, "apply", "run.yaml", "--follow", "--yes")
    assert first.returncode == 0, said(first)
    lines = [int(line.split()[-1]) for line in first.stderr.splitlines() if "line " in line]
    assert lines == list(range(1, 31)), said(first)


HOLDS = {
    "start": starts_one_job_or_none,
    "alone": starts_one_job_or_none,
    "replace": ends_the_old_job_and_starts_one,
    "follow": tells_the_log_whole_and_once,
}


@pytest.mark.parametrize(("kind", "snare"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in _drawn()])
def test_an_apply_that_fails_anywhere(trapped: Trapped, kind: str, snare: Snare) -> None:
    HOLDS[kind](trapped, kind, snare)
