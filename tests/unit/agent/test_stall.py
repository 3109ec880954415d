"""For how long a command has been silent: the newest of its log's files, its checkpoints, and its own start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aicrun.agent.stall import silent_s
from aicrun.wire import names
from aicrun.wire.status import silence_words

NOW = 1_000_000.0


def aged(path: Path, age_s: float) -> None:
    os.utime(path, (NOW - age_s, NOW - age_s))


@pytest.mark.parametrize("name", [names.LOG, names.LOG_TAIL, names.LOG_STATE])
def test_whatever_file_of_the_log_grew_last_counts(tmp_path: Path, name: str) -> None:
    for age_s, one in ((500, names.LOG), (500, names.LOG_TAIL), (500, names.LOG_STATE), (40, name)):
        (tmp_path / one).touch()
        aged(tmp_path / one, age_s)
    assert silent_s(str(tmp_path), "", NOW - 900, NOW) == 40


def test_no_more_than_since_its_start(tmp_path: Path) -> None:
    assert silent_s(str(tmp_path), "", NOW - 900, NOW) == 900
    (tmp_path / names.LOG).touch()
    aged(tmp_path / names.LOG, 5000)
    assert silent_s(str(tmp_path), str(tmp_path / "none"), NOW - 900, NOW) == 900


def test_a_clock_that_was_set_back_is_no_silence(tmp_path: Path) -> None:
    (tmp_path / names.LOG).touch()
    aged(tmp_path / names.LOG, -3600)
    assert silent_s(str(tmp_path), "", NOW + 3000, NOW) == 0


def test_a_clock_that_was_set_ahead_is_no_silence_either(tmp_path: Path) -> None:
    """It runs for 900 s by a clock that nobody sets, and the log grew 40 s ago."""
    (tmp_path / names.LOG).touch()
    aged(tmp_path / names.LOG, 86_440)
    assert silent_s(str(tmp_path), "", NOW - 87_300, NOW, ran_s=900) == 40
    aged(tmp_path / names.LOG, 40)
    assert silent_s(str(tmp_path), "", NOW - 87_300, NOW, ran_s=900) == 0
    assert silent_s(str(tmp_path), "", NOW - 900, NOW, ran_s=900) == 40


def test_a_checkpoint_deep_below_and_one_with_an_old_time_of_its_own_count(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    deep = kept / "step-1" / "weights"
    deep.parent.mkdir(parents=True)
    deep.touch()
    aged(deep, 30)
    for folder in (deep.parent, kept):
        aged(folder, 700)
    assert silent_s(str(tmp_path / "step"), str(kept), NOW - 900, NOW) == 30
    aged(deep, 800)
    aged(kept, 20)
    assert silent_s(str(tmp_path / "step"), str(kept), NOW - 900, NOW) == 20


@pytest.mark.parametrize(
    ("silent", "limit", "words"),
    [
        (1920, 1800, "no output for 32m (limits.stall 30m)"),
        (119.9, 90, "no output for 119s (limits.stall 90s)"),
        (11280, 7200, "no output for 3h 08m (limits.stall 2h)"),
        (60, None, "no output for 60s"),
    ],
)
def test_silence_in_words(silent: float, limit: int | None, words: str) -> None:
    assert silence_words(silent, limit) == words
