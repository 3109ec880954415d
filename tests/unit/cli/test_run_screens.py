"""The table of runs on narrow and wide screens, and what a run is called in a command to type next."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from job_reports import failed, lost, on_lab, stopped, succeeded
from unit.cli.test_screens import held, listing

from aicrun.cli.screen import Screen, plain
from aicrun.cli.views.checkpoints import checkpoint_lines
from aicrun.cli.views.endings import ending_lines, going_lines, left_lines
from aicrun.cli.views.inspect_yaml import inspect_lines
from aicrun.cli.views.tables import list_lines
from aicrun.lifecycle.ending import Ending
from aicrun.lifecycle.find import Found, Listing
from aicrun.plan.words import cells
from aicrun.wire.checkpoint import Checkpoint, Checkpointed
from aicrun.wire.codec import replace
from aicrun.wire.upload import UploadResult


def test_a_wide_list_tells_the_id_to_type_and_the_last_figures() -> None:
    jobs = (
        on_lab(
            progress={"step": "4120/9000", "loss": "1.2041"},
            sample={"age_s": 3.0, "peaks": {"vram_peak_mib": 18022}},
            supervision={"labels": {"team": "nlp", "try": "2"}},
        ),
        *listing().jobs[1:],
    )
    shown = list_lines(Screen(width=120), with_fields(listing(), jobs=jobs), everything=False)
    held("list_120", shown, 120)


@pytest.mark.parametrize("width", [40, 50, 66, 79])
def test_a_narrow_list_goes_on_below_itself_and_drops_nothing(width: int) -> None:
    silent = (("attic", "ssh: connect to host attic.lan.example.org port 22: Connection refused by the other side"),)
    shown = [plain(line) for line in list_lines(Screen(width=width), with_fields(listing(), silent=silent), False)]
    assert [line for line in shown if cells(line) > width and "aicrun" not in line] == []
    for head in ("run", "status", "card", "progress", "for", "detail"):
        assert any(head in line.split() for line in shown)
    whole = " ".join(" ".join(shown).split())
    assert "4,120/9,000" in whole and "exit_code 1" in whole and "refused by the other side" in whole


def test_no_run_of_a_status_is_not_no_run_at_all() -> None:
    asked = ("in progress", "stop failed")
    assert list_lines(Screen(), Listing((), 0, ()), False, asked) == [
        "No run is in progress or stop failed. See all: aicrun list"
    ]
    more = plain(list_lines(Screen(), Listing((on_lab(),), 9, ()), False, asked)[-1])
    assert more.endswith("more: aicrun list --all --status 'in progress' --status 'stop failed'")


@pytest.mark.parametrize("found", [succeeded(), failed(), lost(), stopped()])
def test_a_run_that_was_named_by_its_id_keeps_that_name_in_every_command(found: Found) -> None:
    """The name alone may mean a newer job."""
    called = with_fields(found, key="3f9a")
    seen = Checkpointed("/c", (Checkpoint("1", "checkpoint-9000", 1 << 30, complete="yes"),))
    shown = [
        *ending_lines(Screen(), Ending(called, saved=seen)),
        *checkpoint_lines(Screen(), called, seen),
        *inspect_lines(called),
        *inspect_lines(with_fields(on_lab(), key="3f9a")),
        *going_lines(with_fields(on_lab(), key="3f9a")),
        *left_lines(called),
    ]
    commands = [line for line in map(plain, shown) if "aicrun " in line]
    assert len(commands) >= 6
    assert [line for line in commands if "sft-run" in line.split("aicrun ", 1)[1]] == []


def test_no_line_of_an_ending_but_the_last_is_wider_than_the_screen() -> None:
    """A command and a path stay whole, so that they can be taken from the screen."""
    far = "s3://bucket/of/a/team/sft-run/3f9a1c0e77b2d416/checkpoint-9000/"
    skipped = (f"{far}a.bin is of an earlier run that lay in the folder", "b")
    done = UploadResult(far, True, 14, 1 << 34, skipped=skipped)
    why = "its keeper was gone and nobody recorded its end, and then its deadline came while nobody looked at it"
    unseen = Found("lab", replace(lost().report, lost_detail=why))
    for found in (Found("lab", replace(succeeded().report, upload=done)), failed(upload=done), unseen):
        shown = [plain(line) for line in ending_lines(Screen(), Ending(found))]
        assert [line for line in shown[:-1] if cells(line) > 80] == []
        assert shown[-1].endswith("aicrun fetch sft-run")
        told = " ".join(" ".join(shown).split())
        assert found is unseen or f"uploaded {far}, 14 files, verified left out {far}a.bin is of" in told
        assert found is not unseen or why in told
