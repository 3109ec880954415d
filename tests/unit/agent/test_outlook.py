"""What is seen of a run from outside: best effort, bounded, never an error."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import outlook
from aicrun.agent.log_files import Caps, LogWriter


def progress(folder: Path, text: bytes, patterns: dict[str, Any]) -> dict[str, str]:
    LogWriter(str(folder), Caps()).write(text, 0, 0)
    return outlook.progress(patterns, str(folder))


def test_the_newest_match_counts_also_behind_carriage_returns(tmp_path: Path) -> None:
    bar = b"".join(b"\r %3d%%| step %d/900 loss=%.2f" % (n / 9, n, 3 - n / 400) for n in range(900))
    patterns = {"step": {"pattern": r"step (\d+)/(\d+)"}, "loss": {"pattern": r"loss=([0-9.]+)", "goal": "min"}}
    assert progress(tmp_path, bar, patterns) == {"step": "899/900", "loss": "0.75"}


@pytest.mark.parametrize(
    ("log", "pattern", "value"),
    [
        (b"{'loss': 0.5, 'epoch': 1.0}\n", r"'loss': ([0-9.]+)", "0.5"),
        (b"iter 10: loss nan, time 3ms\n", r"loss (\S+),", "nan"),
        (b"loss=1e400 \xff\xfe caf\xc3\xa9\n", r"loss=(\S+)", "1e400"),
        (b"epoch 3\n", r"epoch \d+", "epoch 3"),
    ],
)
def test_forms_met_in_the_wild(tmp_path: Path, log: bytes, pattern: str, value: str) -> None:
    assert progress(tmp_path, log, {"x": {"pattern": pattern}}) == {"x": value}


# Logs as tools write them, and the pattern a person would give for each.
BARS = {
    "transformers, a dict a line": (
        (
            b"{'loss': 0.693, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5}\n"
            b"{'loss': 0.412, 'grad_norm': 0.9, 'learning_rate': 4e-05, 'epoch': 1.0}\n"
        ),
        r"'loss': ([0-9.]+).*'epoch': ([0-9.]+)",
        "0.412/1.0",
    ),
    "lightning, a bar": (
        (
            b"\rEpoch 3:  50%|#####     | 10/20 [00:01<00:01,  9.90it/s, v_num=0, train_loss=0.301]"
            b"\rEpoch 3:  55%|#####5    | 11/20 [00:01<00:00,  9.91it/s, v_num=0, train_loss=0.299]"
        ),
        r"Epoch \d+:.*?(\d+)/(\d+) \[",
        "11/20",
    ),
    "keras, on a terminal": (
        b"Epoch 1/2\n\x1b[1m  1/375\x1b[0m \x1b[37m-----\x1b[0m loss: 2.4"
        + b"\x08" * 60
        + b"\r\x1b[1m375/375\x1b[0m loss: 0.3\n",
        r"(\d+)/(\d+)\x1b\[0m",
        "375/375",
    ),
    "keras, into a pipe": (b"Epoch 2/2\n375/375 - 1s - 3ms/step - loss: 0.1\n", r"^(\d+)/(\d+) - ", "375/375"),
    "nanoGPT": (b"iter 90: loss 2.1, time 31ms\niter 100: loss 2.0, time 31ms, mfu 3%\n", r"^iter (\d+):", "100"),
    "step x of y": (b"step 7 of 90\nstep 8 of 90\nstep 9 o", r"step (\d+) of (\d+)", "8/90"),
    "two bars at once": (
        b"\router:  1/10\n\rinner: 99/100\x1b[A\router:  2/10\n\rinner:  1/100\x1b[A",
        r"outer: +(\d+)/(\d+)",
        "2/10",
    ),
    "a format nobody foresaw": (b"...o..O....o......\n", r"step (\d+)", None),
}


@pytest.mark.parametrize("kind", BARS)
def test_the_logs_of_known_tools(tmp_path: Path, kind: str) -> None:
    log, pattern, value = BARS[kind]
    assert progress(tmp_path, log, {"step": {"pattern": pattern}}) == ({} if value is None else {"step": value})


@pytest.mark.parametrize("pattern", ["(", "nothing here", "", 3, None, {"no": "pattern"}])
def test_what_cannot_be_matched_is_not_shown(tmp_path: Path, pattern: Any) -> None:
    found = progress(tmp_path, b"step 1\n", {"x": {"pattern": pattern}, "y": {"pattern": "step (1)"}})
    found.pop("x", None)
    assert found == {"y": "1"}


def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path: Path) -> None:
    began = time.monotonic()
    assert progress(tmp_path, b"a" * 40 + b"!", {"x": {"pattern": r"(a+)+$"}}) == {}
    assert time.monotonic() - began < 2


def test_checkpoints_are_counted_and_the_newest_is_named(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        (folder / "model").write_bytes(b"x" * 100 * number)
        os.utime(folder / "model", (1000 * number, 1000 * number))
        os.utime(folder, (1000 * number, 1000 * number))
    # Made last, as trainers do; neither is a checkpoint, and their own sizes say nothing.
    (tmp_path / "latest").symlink_to("checkpoint-2")
    os.mkfifo(tmp_path / "pipe")
    found = outlook.checkpoints(str(tmp_path), 2500.0)
    assert found is not None
    assert (found.newest, found.newest_age_s, found.newest_bytes, found.count) == ("checkpoint-2", 500.0, 200, 2)
    assert found.bytes < 1000
    missing = outlook.checkpoints(str(tmp_path / "none"), 1.0)
    assert missing is not None
    assert missing.count == 0
    assert outlook.checkpoints("", 1.0) is None
