"""`inspect` as YAML that our own loader reads, with what happened and when, and nothing that is not so."""

from __future__ import annotations

import pytest
from job_reports import KEPT, failed, on_lab, stopped, succeeded

from aicrun.cli.screen import Screen, plain
from aicrun.cli.views.checkpoints import checkpoint_lines
from aicrun.cli.views.endings import ending_lines
from aicrun.cli.views.inspect_yaml import inspect_lines
from aicrun.lifecycle.ending import Ending
from aicrun.lifecycle.find import Found
from aicrun.spec.source import read
from aicrun.wire.checkpoint import Checkpoint, Checkpointed
from aicrun.wire.codec import replace
from aicrun.wire.seen import Event
from aicrun.wire.upload import Early

AT = 1_772_614_272.0
EVENTS = (
    Event("reserved", AT - 20, 11300.0, "ana@laptop"),
    Event("step_started", AT, 11280.0, detail="command"),
    Event("stalled", AT + 60, 11220.0, detail="no output for 32m\x1b[31m: {a}"),
)


def loaded(found: Found, env: dict[str, str] | None = None) -> dict[str, object]:
    """What our own loader reads, which refuses a key that stands twice."""
    text = "\n".join(plain(line) for line in inspect_lines(found, env))
    reading = read(text.encode(), "inspect.yaml")
    assert [one.message for one in reading.findings] == [], text
    import yaml

    return yaml.safe_load(text)  # type: ignore[no-any-return]


def test_a_secret_is_named_once_and_its_value_is_not_shown() -> None:
    secrets = ["MY_TOKEN", {"HOOK": {"for": "command"}}, {"INDEX": {"for": "setup"}}]
    found = on_lab(execution={"secrets": secrets, "env": {"LR": "1"}})
    env = {"MY_TOKEN": "***", "HOOK": "***", "LR": "1", "on": "x", "BASH_FUNC_a%%": "{ :; }"}
    told = loaded(found, env)["env"]
    hidden = "(set, not shown)"
    assert told == {"LR": "1", "on": "x", "BASH_FUNC_a%%": "{ :; }", "MY_TOKEN": hidden, "HOOK": hidden}


def test_the_history_and_the_times_are_readable() -> None:
    told = loaded(on_lab(events=EVENTS))
    assert str(told["job"]["started_at"]) == "2026-03-04 08:51:12+00:00"  # type: ignore[index]
    assert "ended_at" not in told["job"]  # type: ignore[operator]
    history = told["history"]
    assert [one["event"] for one in history] == ["reserved", "step_started", "stalled"]  # type: ignore[attr-defined]
    assert history[0]["by"] == "ana@laptop" and "{a}" in history[2]["detail"]  # type: ignore[index]
    over = failed(events=(*EVENTS, Event("ended", AT + 90, 60.0)))
    assert str(loaded(over)["job"]["ended_at"]) == "2026-03-04 08:52:42+00:00"  # type: ignore[index]


def test_a_long_history_is_the_newest_and_says_where_all_of_it_is() -> None:
    many = tuple(Event("retry", AT + n, 5.0, detail=str(n)) for n in range(60))
    shown = [plain(line) for line in inspect_lines(on_lab(events=many))]
    assert [line for line in shown if line.startswith("history:")] == [
        "history:                          # 20 older: aicrun inspect sft-run --json"
    ]
    assert len(loaded(on_lab(events=many))["history"]) == 40  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [-1.0, 0.0, 1e15, float("inf"), float("nan")])
def test_a_clock_that_is_no_clock_breaks_nothing(at: float) -> None:
    told = loaded(on_lab(events=(Event("step_started", at, 1.0, detail="command"), Event("new one: {", at, 1.0))))
    assert "started_at" not in told["job"]  # type: ignore[operator]
    assert told["history"] == [{"event": "step_started", "detail": "command"}, {"event": "new one: {"}]


def test_measured_figures_are_numbers() -> None:
    told = loaded(succeeded())["measured"]
    assert all(isinstance(value, (int, float)) for value in told.values() if not isinstance(value, str))  # type: ignore[attr-defined]
    assert isinstance(told["vram_peak_mib"], int)  # type: ignore[index]


def test_only_a_start_that_would_resume_is_told_to() -> None:
    kept = replace(KEPT, start="checkpoint-9000")
    over = Found("lab", replace(succeeded().report, checkpoints=kept))
    assert "next_start" not in loaded(over)["checkpoints"]  # type: ignore[operator]
    assert loaded(failed(checkpoints=kept))["checkpoints"]["next_start"] == "checkpoint-9000"  # type: ignore[index]
    for complete, said in (("yes", True), ("settled", True), ("writing", False), ("no", False)):
        row = Checkpoint("1", "checkpoint-9000", 1 << 30, complete=complete)
        shown = checkpoint_lines(Screen(), on_lab(checkpoints=kept), Checkpointed(kept.path, (row,)))
        assert any("The next start resumes from checkpoint-9000." in line for line in shown) is said


def test_what_was_uploaded_while_it_ran_is_told_when_the_run_was_stopped() -> None:
    early = Early(2, "checkpoint-8000", 300.0)
    found = Found("lab", replace(stopped().report, early=early))
    assert loaded(found)["upload"]["state"] == "not made"  # type: ignore[index]
    assert loaded(on_lab(early=early))["upload"]["state"] == "waits"  # type: ignore[index]
    rows = [plain(line) for line in ending_lines(Screen(), Ending(found))]
    assert "uploaded 2 checkpoints while it ran, verified, the newest of them checkpoint-8000" in " ".join(
        " ".join(rows).split()
    )
