"""Further attempts of a run, as a person sees them: in the plan, in the pause, in the log, and after a reboot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from integration.project import Project
from support import REPOSITORY, until

from aicrun.wire import names

AGAIN = '\'echo "this is $AICRUN_ATTEMPT"; [ "$AICRUN_ATTEMPT" -ge %d ] || exit 75\''
NOTHING = "checkpoints: {path: out}\n"


def _folder(project: Project, kind: str, job_id: str) -> Path:
    state = project.person.home / ".local/state/aicrun"
    return next(state.glob(f"*/{kind}/{job_id}" if kind == names.JOBS else f"*/{kind}/*/{job_id}"))


def _pausing(project: Project) -> Any:
    return until(lambda: (job := project.job()) and job["job"].get("next_attempt") and job)


def test_a_run_is_tried_again_and_every_screen_says_so(project: Project) -> None:
    project.write(AGAIN % 3, more=NOTHING + "retry: {max: 3, when: ['exit:75'], backoff: 2s}\n")
    planned = project.run("plan", "run.yaml")
    assert "  retry     3 times, on exit:75; 2s between" in planned.stdout, planned.stdout + planned.stderr
    done = project.apply("--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if "this is" in line] == [f"│ this is {n}" for n in (1, 2, 3)]
    assert "  retry     attempt 2 of 4, on here" in done.stderr
    assert "quick succeeded on here in" in done.stdout
    assert ", exit code 0, attempt 3 of 4" in done.stdout
    assert project.run("logs", "quick").stdout == "this is 3\n"
    assert project.run("logs", "quick", "--attempt", "1").stdout == "this is 1\n"
    assert project.json("logs", "quick", "--attempt", "2")["attempt"] == 2
    refused = project.run("logs", "quick", "--attempt", "4")
    assert refused.returncode == 3
    assert "quick is at attempt 3: there is no attempt 4 yet" in refused.stderr
    assert "attempt: 3" in project.run("inspect", "quick").stdout


FOLLOW = """
from aicrun import api
from aicrun.lifecycle.events import LogBytes
with api.open_session("") as (session, _):
    found = api.find(session, "quick")
    told = lambda what: print(what.data.decode(), end="") if isinstance(what, LogBytes) else None
    print(api.follow(session, found, told, {offset}).standing.status.value)
"""


def test_who_follows_late_is_told_every_attempt_from_the_first(project: Project) -> None:
    project.write(AGAIN % 3, more=NOTHING + "retry: {max: 3, when: ['exit:75'], backoff: 1s}\n")
    assert project.apply().returncode == 0
    assert project.run("wait", "quick").returncode == 0
    env = dict(project.person.env, PYTHONPATH=str(REPOSITORY))
    for offset, told in ((0, "this is 1\nthis is 2\nthis is 3\n"), (None, "this is 3\n")):
        code = FOLLOW.format(offset=offset)
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project.folder, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == told + "succeeded\n", done.stderr


def test_in_the_pause_it_is_enqueued_and_a_changed_rule_ends_it_sooner(project: Project) -> None:
    project.write(AGAIN % 2, more=NOTHING + "retry: {max: 1, when: ['exit:75'], backoff: 1h}\n")
    assert project.apply().returncode == 0
    job = _pausing(project)
    assert job["status"] == "enqueued"
    assert job["why"].startswith("attempt 2 of 2 in ")
    listed = project.run("list").stdout
    assert "enqueued" in listed
    assert "attempt 2/2 in " in listed
    kept = project.apply()
    assert kept.returncode == 0
    assert kept.stdout.startswith("= quick: keep, enqueued on here with this spec")
    assert "attempt 2 of 2 in " in kept.stdout
    follower = project.popen("logs", "-f", "quick")
    project.write(AGAIN % 2, more=NOTHING + "retry: {max: 1, when: ['exit:75'], backoff: 1s}\n")
    changed = project.apply()
    assert changed.stdout.startswith("~ quick: change in place"), changed.stdout
    assert "retry.backoff" in changed.stdout
    waited = project.run("wait", "quick")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    out, err = follower.communicate(timeout=30)
    assert out == "this is 1\nthis is 2\n"
    assert "attempt 2 of 2, on here" in err


def test_a_stop_in_the_pause_is_told_with_the_exit_of_the_attempt(project: Project) -> None:
    project.write(AGAIN % 9, more=NOTHING + "retry: {max: 1, backoff: 1h}\n")
    assert project.apply().returncode == 0
    _pausing(project)
    assert project.run("stop", "quick", "--yes").returncode == 0
    waited = project.run("wait", "quick")
    assert waited.returncode == 11, waited.stdout
    assert ", exit code 75, attempt 1 of 2" in waited.stdout
    assert "  retry     attempt 2 of 2 was not made (it was stopped), after exit code 75" in waited.stdout
    again = project.apply()
    assert again.returncode == 8


def test_after_a_reboot_the_next_apply_makes_the_next_attempt_until_all_are_used(project: Project) -> None:
    command = "'echo \"this is $AICRUN_ATTEMPT\"; exec sleep 600'"
    project.write(command, more=NOTHING + "retry: {max: 1, when: [reboot]}\n")
    assert project.apply().returncode == 0
    first = until(lambda: (job := project.job()) and job["status"] == "in progress" and job)
    reboot(project, first["job_id"])
    lost = project.run("wait", "quick")
    assert lost.returncode == 12, lost.stdout
    started = project.apply()
    assert started.returncode == 0, started.stdout + started.stderr
    assert started.stdout.startswith("+ quick: start on here")
    assert "  retry     attempt 2 of 2, after unknown(reboot)" in started.stdout
    second = until(lambda: (job := project.job()) and job["status"] == "in progress" and job)
    assert second["job_id"] != first["job_id"]
    assert until(lambda: project.run("logs", "quick").stdout) == "this is 2\n"
    reboot(project, second["job_id"])
    refused = project.apply()
    assert refused.returncode == 8, refused.stdout
    assert refused.stdout.startswith("x quick: refused")
    # A person decides: that counts from the first attempt.
    assert project.apply("--again").returncode == 0
    assert until(lambda: project.run("logs", "quick").stdout) == "this is 1\n"


def test_an_attempt_that_was_due_when_the_machine_rebooted_is_made_by_the_next_apply(project: Project) -> None:
    project.write(AGAIN % 2, more=NOTHING + "retry: {max: 1, when: ['exit:75', reboot], backoff: 1h}\n")
    assert project.apply().returncode == 0
    reboot(project, _pausing(project)["job_id"])
    failed = project.run("wait", "quick")
    assert failed.returncode == 10, failed.stdout
    told = " ".join(failed.stdout.split())
    assert "attempt 2 of 2 was not made (the machine was restarted), after exit code 75" in told
    assert "make the next attempt  aicrun apply" in failed.stdout
    started = project.apply("--follow")
    assert started.returncode == 0, started.stdout + started.stderr
    assert "  retry     attempt 2 of 2, after failed(exit_code)" in started.stdout
    assert "│ this is 2" in started.stderr


def reboot(project: Project, job_id: str) -> None:
    """As it looks after one: nothing of the job lives, and its keeper was launched on another boot."""
    path = _folder(project, names.JOBS, job_id) / names.LAUNCH
    launch = json.loads(path.read_text())
    os.kill(launch["pid"], signal.SIGKILL)
    project.kill("sleep", "600")
    launch["boot"]["boot_id"] = "the one before"
    path.write_text(json.dumps(launch))
    # Whoever looked between the kill and the write has seen a lost keeper, not a reboot.
    end = _folder(project, names.RUNS, job_id) / names.END
    end.unlink(missing_ok=True)
