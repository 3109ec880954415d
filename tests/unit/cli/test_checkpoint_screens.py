"""The table of checkpoints, held by golden files; `AICRUN_FREEZE=1` writes them anew for a reviewer to read."""

from __future__ import annotations

from typing import Any

import pytest
from job_reports import on_lab, succeeded
from unit.cli.test_screens import held

from aicrun.cli.screen import Screen, plain
from aicrun.cli.views.checkpoints import checkpoint_lines
from aicrun.cli.views.inspect_yaml import inspect_lines
from aicrun.wire.checkpoint import Checkpoint, Checkpointed
from aicrun.wire.codec import replace
from aicrun.wire.status import status_of
from aicrun.wire.upload import Early, Upload

PATH = "/home/ana/aic-jobs/sft-run/checkpoints/51c0aa17be02d9f3"
GIB = 1 << 30
BYTES = int(16.1 * GIB)
HF: dict[str, Any] = {"model": "llama", "bytes": BYTES, "files": 14, "inference_ready": True}


def test_what_a_trainer_saved() -> None:
    model = {"model": "meta-llama/Llama-3.2-8B", "version": "4.46.1", "bytes": int(16.1 * GIB), "files": 14}
    rows = (
        Checkpoint("a", "checkpoint-4000", age_s=20, complete="writing", step=4000, bytes=3 * GIB, files=2),
        Checkpoint("b", "checkpoint-3500", age_s=540, complete="no", why="trainer_state.json is missing", **model),
        Checkpoint("c", "checkpoint-3000", age_s=3300, complete="yes", step=3000, train_loss=0.31234567,
                   eval_loss=0.4012, inference_ready=True, **model),
        Checkpoint("d", "checkpoint-2500", age_s=4680, complete="yes", step=2500, train_loss=1.0, eval_loss=0.4312,
                   inference_ready=True, uploaded_age_s=3240, **model),
    )  # fmt: skip
    held("checkpoints", checkpoint_lines(Screen(), succeeded(), Checkpointed(PATH, rows, 3, 212 * GIB)))


ON_LAB = (
    Checkpoint("0a1b2c3d", "checkpoint-4000", age_s=540, complete="yes", step=4000, train_loss=0.3, **HF),
    Checkpoint("1a1b2c3d", "checkpoint-3500", age_s=1920, complete="yes", step=3500, train_loss=0.31, **HF),
    Checkpoint("2a1b2c3d", "checkpoint-3000", age_s=3300, complete="yes", step=3000, uploaded_age_s=1860, **HF),
)
PRUNED = Checkpoint(
    "3a1b2c3d", "checkpoint-2500", BYTES, 14, 4680, "yes", step=2500, uploaded_age_s=3240, on_host="pruned"
)
TO = "s3://bucket/sft-run/3f9a1c0e77b2d416/"


def uploaded(width: int) -> list[str]:
    seen = Checkpointed(PATH, ON_LAB, 0, 212 * GIB, (PRUNED,), TO, 3)
    return checkpoint_lines(Screen(width=width), succeeded(), seen)


def test_what_was_uploaded_and_pruned() -> None:
    held("checkpoints_uploaded", uploaded(80))


def test_a_wide_terminal_has_all_that_is_known() -> None:
    shown = uploaded(120)
    assert max(map(len, shown)) <= 120
    heads = "checkpoint id step loss size files age complete on lab uploaded inference model"
    assert shown[0].split() == heads.split()
    assert uploaded(200)[4].endswith(f"{TO}checkpoint-2500")


def test_single_files_of_one_who_writes_no_state() -> None:
    rows = (
        Checkpoint("a", "best\x1b[31m.pt", age_s=20, complete="settled", bytes=1024, files=1),
        Checkpoint("b", "a-very-long-name-" * 8 + ".pt", age_s=20, complete="yes", bytes=1024, files=1),
    )
    held("checkpoints_files", checkpoint_lines(Screen(), succeeded(), Checkpointed(PATH, rows, 0, GIB)))


def test_nothing_was_saved() -> None:
    found = succeeded()
    shown = [
        *checkpoint_lines(Screen(), found, Checkpointed(PATH)),
        *checkpoint_lines(Screen(), found, Checkpointed("")),
    ]
    held("checkpoints_none", shown)


@pytest.mark.parametrize(
    ("free", "told"),
    [(BYTES - 1, "room for no more of 16.1 GiB"), (BYTES * 2 - 1, "room for one more of"), (BYTES * 2, "")],
)
def test_a_disk_that_has_no_room_for_the_next_ones_is_told_while_it_runs(free: int, told: str) -> None:
    seen = Checkpointed(PATH, ON_LAB, 0, free)
    running = "\n".join(checkpoint_lines(Screen(), on_lab(), seen))
    assert (told in running) if told else "There is room" not in running, running
    assert "There is room" not in "\n".join(checkpoint_lines(Screen(), succeeded(), seen))


def test_inspect_tells_what_was_uploaded_while_it_runs_and_what_is_in_the_way() -> None:
    early = Early(3, "checkpoint-3000", 1860.0, 1, "aws: connection\x1b[31m refused", 300.0, 120.0)
    to = Upload("s3://bucket/x/", "s3", "s3://bucket/x/", "exact", "each")
    shown = [plain(line) for line in inspect_lines(on_lab(early=early, upload_request=to))]
    at = shown.index('uploaded: {checkpoints: 3, newest: "checkpoint-3000", verified: "31m ago", pruned: 1}')
    assert shown[at + 1] == 'uploads_fail: "aws: connection\\u001b[31m refused"  # tried again in 2m'
    quiet = on_lab(early=replace(early, trouble="", pruned=0), upload_request=to)
    assert not [line for line in inspect_lines(quiet) if "uploads_fail" in line or "pruned" in line]
    standing = status_of(on_lab(early=early).report)
    assert standing.why == "uploads fail since 5m: aws: connection\x1b[31m refused; tried again in 2m"
