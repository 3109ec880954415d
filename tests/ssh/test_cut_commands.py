"""Other commands than apply, whose connection fails in the middle: told as it is, and the next one tells the truth.

`AICRUN_POINTS=all` tries every place over both carriers; every run tries one, drawn with `AICRUN_POINTS_SEED`.
"""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from ssh.trap import ANSWER, CUT, DROP, REQUEST, Snare
from ssh.trapped import BESIDE, BOUND_S, Trapped, cmdline, said
from support import processes_with, until

POINTS = os.environ.get("AICRUN_POINTS", "1")
SEED = os.environ.get("AICRUN_POINTS_SEED", "4")
PIECES = 12 * 1024 * 1024

# Each command with what it asks the agent for.
PLACES = {
    "push": ("file_begin", "file_write", "file_finish"),
    "pull": ("file_list", "file_read", "file_hash"),
    "stop": ("job", "stop", "wait"),
    "upload": ("job", "upload", "wait"),
    "exec": ("exec", "exec_more"),
    "machines": ("survey",),
    "list": ("jobs",),
}


def _drawn() -> list[tuple[str, Snare]]:
    every = [
        (command, Snare(place, side, fault))
        for command, places in PLACES.items()
        for place in places
        for side in (REQUEST, ANSWER)
        for fault in (CUT, DROP)
    ]
    return every if POINTS == "all" else random.Random(SEED).sample(every, int(POINTS))


def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def a_transfer_is_whole_or_not_there(trapped: Trapped, command: str, snare: Snare) -> None:
    name = f"{command}-{snare}"
    here, there = trapped.project.folder / name, trapped.home / name
    source, target = (here, there) if command == "push" else (there, here)
    source.write_bytes(os.urandom(PIECES))
    words = ("push", str(here), f"box:{there}") if command == "push" else ("pull", f"box:{there}", str(here))
    first = trapped.failing(snare, *words)
    assert first.returncode in (0, 6), said(first)
    if first.returncode:
        # The screen is narrow: a long command is broken between its words.
        assert " ".join(("aicrun", *words)) in " ".join(first.stderr.split()), said(first)
    if first.returncode == 0 or target.exists():
        assert content(target) == content(source), said(first)
    again = trapped.project.run(*words, timeout_s=BOUND_S)
    assert again.returncode == 0, said(first) + said(again)
    assert content(target) == content(source)
    assert not [path for path in (*here.parent.iterdir(), *there.parent.iterdir()) if "part" in path.name]


def a_stop_is_told_as_far_as_it_is_known(trapped: Trapped, command: str, snare: Snare) -> None:
    run = f"{command}-{snare}"
    going(trapped, run)
    first = trapped.failing(snare, "stop", run, "--yes")
    assert first.returncode in (0, 6, 11, 12), said(first)
    again = trapped.project.run("stop", run, "--yes", timeout_s=BOUND_S)
    assert again.returncode == 0, said(first) + said(again)
    assert trapped.running() == {"bystander": trapped.starts("bystander")}


def an_upload_is_asked_for_once_and_found_again(trapped: Trapped, command: str, snare: Snare) -> None:
    run = f"{command}-{snare}"
    # A file where the folder shall be: the first upload fails, and there is something to do again.
    target = trapped.home / f"to-{run}"
    target.touch()
    more = f"checkpoints: {{upload: {{to: 'file:~/{target.name}/', probe: false}}}}\n"
    trapped.write(run, command="sh -c 'echo kept > $AICRUN_CHECKPOINT_DIR/model'", more=more)
    done = trapped.project.run("apply", "run.yaml", "--follow", "--yes", timeout_s=BOUND_S)
    assert done.returncode == 10, said(done)
    target.unlink()
    first = trapped.failing(snare, "upload", run)
    assert first.returncode in (0, 6, 12), said(first)
    again = trapped.project.run("upload", run, timeout_s=BOUND_S)
    # The screen is narrow: the end of a long line is not on it.
    assert again.returncode == 0, said(first) + said(again)
    assert [path.read_text() for path in target.rglob("model")] == ["kept\n"], said(first) + said(again)


def a_short_command_ends_with_its_connection_or_is_told(trapped: Trapped, command: str, snare: Snare) -> None:
    mark = trapped.home / f"{command}-{snare}"
    first = trapped.failing(snare, "exec", "box", "--", f"echo once >> {mark}; sleep 3; echo done")
    assert first.returncode in (0, 255), said(first)
    assert (first.returncode == 0) == ("done" in first.stdout), said(first)
    if first.returncode:
        assert "not known" in first.stderr, said(first)
    assert not mark.exists() or mark.read_text() == "once\n"
    until(lambda: not [pid for pid in processes_with(f"HOME={trapped.home}\0") if "sleep 3" in cmdline(pid)], 60)
    assert trapped.project.run("exec", "box", "--", "echo there", timeout_s=BOUND_S).stdout == "there\n"


def a_look_that_is_cut_is_repeated_once_and_then_blames_the_machine_alone(
    trapped: Trapped, command: str, snare: Snare
) -> None:
    words = ("machines", "check", "box") if command == "machines" else ("list",)
    first = trapped.failing(snare, *words)
    assert first.returncode == 0, said(first)
    lasting = trapped.failing(replace(snare, lasting=True), *words)
    assert lasting.returncode == 6, said(lasting)
    assert "aicrun doctor box" in lasting.stdout + lasting.stderr, said(lasting)
    again = trapped.project.run(*words, timeout_s=BOUND_S)
    assert again.returncode == 0, said(again)
    assert trapped.running() == {"bystander": trapped.starts("bystander")}


def going(trapped: Trapped, run: str) -> None:
    """Start a run that lives until it is ended."""
    trapped.inventory(BESIDE)
    trapped.write(run)
    done = trapped.project.run("apply", "run.yaml", "--yes", timeout_s=BOUND_S)
    assert done.returncode == 0, said(done)
    until(lambda: trapped.starts(run), 60)


HOLDS = {
    "push": a_transfer_is_whole_or_not_there,
    "pull": a_transfer_is_whole_or_not_there,
    "stop": a_stop_is_told_as_far_as_it_is_known,
    "upload": an_upload_is_asked_for_once_and_found_again,
    "exec": a_short_command_ends_with_its_connection_or_is_told,
    "machines": a_look_that_is_cut_is_repeated_once_and_then_blames_the_machine_alone,
    "list": a_look_that_is_cut_is_repeated_once_and_then_blames_the_machine_alone,
}


@pytest.mark.parametrize(("command", "snare"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in _drawn()])
def test_a_command_that_is_cut_anywhere(trapped: Trapped, command: str, snare: Snare) -> None:
    HOLDS[command](trapped, command, snare)
