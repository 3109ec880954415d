"""Screens that people read, held by golden files; `AICRUN_FREEZE=1` writes them anew for a reviewer to read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from job_reports import (
    SETUP,
    ended,
    failed,
    lost,
    on_lab,
    pausing,
    report,
    stopped,
    stopped_in_the_pause,
    succeeded,
    upload_failed,
)

from aicrun.cli.screen import Screen, plain
from aicrun.cli.views.endings import ending_lines, going_lines, left_lines, ways_after
from aicrun.cli.views.hosts import doctor_lines, drain_lines, gc_lines, notes_lines
from aicrun.cli.views.inspect_yaml import inspect_lines
from aicrun.cli.views.keeping import sweep_lines
from aicrun.cli.views.steps import step_line
from aicrun.cli.views.tables import list_lines
from aicrun.cli.views.trouble import lines as error_lines
from aicrun.errors import HostRefused, Way
from aicrun.hosts.backend import Drained
from aicrun.lifecycle.ending import Ending
from aicrun.lifecycle.find import Found, Listing
from aicrun.plan.words import cells, harmless
from aicrun.spec.model import Reached
from aicrun.wire.checkpoint import Checkpoint, Checkpointed
from aicrun.wire.codec import replace
from aicrun.wire.facts import Drain
from aicrun.wire.launched import Launched
from aicrun.wire.seen import Event, InLine

GOLDEN = Path(__file__).resolve().parents[2] / "golden/screens"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.6",
    "\x1b[31mError in sys.excepthook:\x1b[0m",
)


def held(name: str, shown: Iterable[str], width: int = 80) -> None:
    """The lines are those of the golden file, none wider than the screen."""
    lines = [plain(line) for line in shown]
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("AICRUN_FREEZE"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "\n".join(lines) + "\n" == path.read_text(encoding="utf-8")
    assert [line for line in lines if cells(line) > width and " /" not in line] == []


@pytest.mark.parametrize(
    ("name", "found", "evidence"),
    [
        ("end_succeeded", succeeded(), ()),
        ("end_failed", failed(), OOM),
        ("end_upload_failed", upload_failed(), ("No space left on device",)),
        ("end_unknown", lost(), ("step 4120/9000 loss=1.2041",)),
        ("end_stopped", stopped(), ("step 812/4000",)),
        ("end_stopped_in_the_pause", stopped_in_the_pause(), ("no route to the data",)),
        ("end_rejected", failed(decision="no", phase="never_started", decision_reason="expired", steps=()), ()),
        ("end_stop_failed", failed(leftover_pids=(4711, 4712)), ()),
    ],
)
def test_the_end_of_a_run(name: str, found: Found, evidence: tuple[str, ...]) -> None:
    step = found.standing.step or "command"
    screen = Screen(err_terminal=True)
    held(name, ending_lines(screen, Ending(found, step, evidence)))


@pytest.mark.parametrize("found", [succeeded(), failed(), lost(), stopped(), upload_failed()])
def test_the_very_last_line_says_where_the_checkpoint_lies_its_size_and_what_fetches_it(found: Found) -> None:
    last = ending_lines(Screen(), Ending(found))[-1]
    assert last.startswith("checkpoint-9000, 16.1 GiB, on lab ")
    assert last.endswith((" only: aicrun fetch sft-run", " and uploaded: aicrun fetch sft-run"))


def test_the_last_line_names_the_checkpoint_that_a_fetch_would_bring() -> None:
    """Which is not the newest where that is half; what nothing fetches is pulled as it is."""
    kept = replace(report().checkpoints, newest="checkpoint-9500")
    half, whole = Checkpoint("1", "checkpoint-9500", complete="no"), Checkpoint("2", "checkpoint-9000", 1 << 30)

    def last(*rows: Checkpoint) -> str:
        ending = Ending(failed(checkpoints=kept), saved=Checkpointed(kept.path, rows))
        return ending_lines(Screen(), ending)[-1]

    older = "checkpoint-9000, 1.0 GiB, on lab only (checkpoint-9500 is not whole): aicrun fetch sft-run"
    assert last(half, whole) == older
    assert last(half, replace(whole, uploaded_age_s=5.0)) == older.replace("only", "and uploaded")
    assert last(half) == f"checkpoint-9500, 16.1 GiB, on lab, not whole: aicrun pull lab:{kept.path}/checkpoint-9500 ."
    assert last(replace(whole, name=".")) == "the top folder, 1.0 GiB, on lab only: aicrun fetch sft-run"


def test_a_run_without_a_checkpoint_says_so_in_its_last_line() -> None:
    kept = replace(report().checkpoints, newest="")
    last = ending_lines(Screen(), Ending(failed(checkpoints=kept)))[-3:]
    folder = "/home/ana/aic-jobs/sft-run/checkpoints/3f9a1c0e77b2d416"
    assert last == ["No checkpoint was written below", f"  {folder}; for other files:", "  aicrun pull lab:PATH"]


def test_a_started_run_goes_on_without_this_terminal() -> None:
    held("apply_started", going_lines(on_lab()))


def test_a_run_in_line_says_what_it_waits_for() -> None:
    line = InLine(("GPU-1",), 1, holder_run="dpo-2", holder_account="ana")
    first = Found("gpu-box", report(phase="waiting", steps=(), line=line, card_indexes=(1,)))
    held("apply_enqueued", going_lines(first))
    third = Found("gpu-box", report(phase="waiting", steps=(), line=replace(line, position=3), card_indexes=(0, 1)))
    assert (
        plain(going_lines(third)[0]) == "sft-run is enqueued on gpu-box[0-1]. It is 3rd in line and starts by itself."
    )


def test_a_run_that_pauses_before_its_next_attempt_says_when_it_goes_on() -> None:
    again = on_lab(attempt=2, attempts_most=4)
    table = list_lines(Screen(), Listing((pausing(), again), 0, ()), everything=False)
    inspected = inspect_lines(pausing())[:12]
    held("pausing", [*going_lines(pausing()), "", *table, "", *inspected])


def test_a_lost_run_whose_rule_has_an_attempt_left_goes_on_by_a_plain_apply() -> None:
    def ways(**changes: object) -> list[str]:
        return [way.command for way in ways_after(Found("lab", replace(lost().report, **changes)))]

    rule = {"retry": {"max": "1", "when": ["reboot"]}}
    assert ways(supervision=rule, attempts_most=2) == ["aicrun logs sft-run --tail 200", "aicrun apply run.yaml"]
    assert ways(supervision={"retry": {"max": "1"}}, attempts_most=2)[-1] == "aicrun apply run.yaml"
    for other in (
        {"supervision": rule, "attempts_most": 2, "attempt": 2},
        {"supervision": {"retry": {"max": "1", "when": ["unknown"]}}, "attempts_most": 2},
        {"supervision": {}, "attempts_most": 2},
    ):
        assert "aicrun apply run.yaml --again" in ways(**other)


def test_a_run_that_ends_with_the_login_does_not_say_that_it_goes_on() -> None:
    warning = "your logout ends the run: KillUserProcesses=yes in its logind.conf"
    promise = "goes on until your login here ends, and no longer"
    kept = Launched("C", promise, "no", "lingering is off for ana: Access denied", warning)
    held("apply_ends_with_login", going_lines(on_lab(launched=kept)))
    shown = [plain(line) for line in inspect_lines(on_lab(launched=kept))]
    assert [line for line in shown if line.startswith("survival: ")] == [
        f'survival: {{mode: "C", promise: "{promise}", why_no_better: "{kept.why}", warning: "{warning}"}}'
    ]
    unknown = on_lab(launched=replace(kept, outlives_logout="unknown"))
    assert plain(going_lines(unknown)[0]).endswith("It may end with your login there.")
    lasting = on_lab(launched=Launched("A", "goes on", "yes", unit="aicrun-1.service"))
    assert plain(going_lines(lasting)[0]).endswith("It goes on when this terminal closes.")


def test_ctrl_c_says_how_to_come_back_and_how_to_stop() -> None:
    held("interrupted", left_lines(on_lab()))


def test_steps_of_an_apply() -> None:
    shown = [
        step_line("push", "43 files, 1.2 MiB to lab", 0.8),
        step_line("start", "lab, job 7c1e09d2a4b86f13", 0.12),
        step_line("building", "env 8d0c41f7 reused", 6.2),
        step_line("started", "the command, on lab", None),
        step_line("upload", "14 files, 16.1 GiB to s3://bucket, verified", 252),
        step_line("building", "a line of the host's own setup log that is far too long to fit in here " * 2, 64),
    ]
    held("steps", shown)


@pytest.mark.parametrize("changes", [{}, {"attempt": 2}, {"stalled_s": 1925.0, "stall_limit_s": 1800}])
def test_a_run_without_its_keeper_is_told_in_the_list_whatever_else_there_is_to_tell(changes: dict[str, Any]) -> None:
    rows = list_lines(
        Screen(), Listing((on_lab(supervised=False, **changes), on_lab(**changes)), 0, ()), everything=False
    )
    assert [plain(row).endswith("keeper gone") for row in rows[1:3]] == [True, False]


def listing() -> Listing:
    line = InLine(("GPU-1",), 1)
    in_line = report(run="eval-7b", phase="waiting", steps=(), progress={}, age_s=1200.0, card_indexes=(1,), line=line)
    ran = [
        on_lab(),
        Found("home", report(run="rm-base", phase="setup", steps=(), progress={}, age_s=64.0)),
        Found("gpu-box", in_line),
        succeeded(),
        replace_run(failed(), "lora-x"),
        replace_run(lost(), "ppo-a"),
        replace_run(stopped(), "a-very-long-name-of-a-run-that-goes-on-and-on"),
    ]
    return Listing(tuple(ran), 23, (("attic", "attic gave no answer within 30s"),))


def replace_run(found: Found, name: str) -> Found:
    return Found(found.machine, replace(found.report, run=name))


def test_a_silent_run_says_for_how_long_and_goes_on() -> None:
    silent = on_lab(stalled_s=1925.0, stall_limit_s=1800)
    table = list_lines(Screen(), Listing((silent, on_lab()), 0, ()), everything=False)
    held("stalled", [*table, "", *inspect_lines(silent)])


def test_a_worker_killed_for_memory_is_a_hint_beside_the_code() -> None:
    bad = failed(steps=(SETUP, ended("command", 2460.0, 1, oom_suspected=True)))
    shown = ending_lines(Screen(), Ending(bad, "command", ("worker 3 died",)))
    held("end_failed_hint", [*shown, "", *inspect_lines(bad)])


def test_the_list_of_runs() -> None:
    held("list", list_lines(Screen(), listing(), everything=False))


def test_inspect_shows_what_a_running_command_takes_and_how_old_that_is() -> None:
    peaks = {"vram_peak_mib": 18330, "memory_peak_mib": 9000, "energy_wh": 812.4, "samples": 700}
    sample = {"age_s": 9.2, "t_s": 11280.0, "vram_mib": 17900, "memory_mib": 9000, "utilization_percent": 94.0,
              "power_w": 285, "temperature_c": 71, "output_free_bytes": 440234147840, "peaks": peaks}  # fmt: skip
    wanted = (
        'now: {vram: "17.5 GiB, peak 17.9 GiB", util: "94%", memory: "8.8 GiB", power: "285 W", temperature: "71 C", '
    )
    wanted += 'energy: "812 Wh", output_free: "410.0 GiB"}  # sampled 9s ago'
    assert [line for line in inspect_lines(on_lab(sample=sample)) if line.startswith("now:")] == [wanted]
    for absent in ({}, {"age_s": 3.0, "vram_mib": None, "power_w": float("nan"), "memory_mib": True, "peaks": [1]}):
        assert not [line for line in inspect_lines(on_lab(sample=absent)) if line.startswith("now:")]


def test_what_went_wrong_on_the_card_is_a_warning_in_inspect_and_at_the_end() -> None:
    events = (
        Event("card_taken", 0.0, 300.0, detail="GPU-1"),
        Event("pin_violated", 0.0, 280.0, detail="pid 4711\x1b[31m"),
        Event("card_unused", 0.0, 20.0),
    )
    strays = "a process of it computes on a card that the run does not hold (pid 4711)"
    unused = "nothing of it was on its card: it may compute on the processor"
    shown = inspect_lines(on_lab(events=events))
    at = shown.index("warnings:")
    assert shown[at + 1 : at + 3] == [f'  - "{strays}"', f'  - "{unused}"']
    ended = [plain(line) for line in ending_lines(Screen(), Ending(failed(events=events)))]
    flat = " ".join(" ".join(ended).split())
    assert f"warning {strays}" in flat and f"warning {unused}" in flat
    assert "warnings:" not in inspect_lines(on_lab(events=events[:1]))


def old(days: float, run: str = "sft-run", **more: object) -> Found:
    return replace_run(failed(ended_age_s=days * 86400, **more), run)


def test_logs_that_go_soon_are_told_in_time() -> None:
    jobs = (old(6.5), old(5.1, "eval"), old(4.9, "young"), old(8, "late"), old(6, "one"), old(6, "two"), old(6, "x3"))
    held("list_logs_go", list_lines(Screen(), Listing(jobs, 0, ()), everything=False)[len(jobs) + 1 :])
    gone = (old(6.5, swept=True), old(6.5, steps=()), on_lab())
    assert sweep_lines(gone) == []
    assert [found.logs_go_in_s for found in gone] == [None, None, None]
    ended = ending_lines(Screen(), Ending(old(6.5)))
    assert plain(ended[-2]) == "  aicrun logs 7c1e09d2 --offset 0 > sft-run.log"
    assert ended[-1].startswith("checkpoint-9000")
    told = [line for line in inspect_lines(old(6.5)) if "logs_kept_for" in line]
    assert told == ["  logs_kept_for: 12h              # copy them: aicrun logs 7c1e09d2 --offset 0 > sft-run.log"]
    assert "  logs_kept_for: 2d 2h" in inspect_lines(old(4.9))


def test_a_forgotten_job_is_told_as_such() -> None:
    forgotten = Found("lab", replace(lost().report, forgotten=True))
    assert "unknown" in plain(list_lines(Screen(), Listing((forgotten,), 0, ()), everything=False)[1])
    assert plain(list_lines(Screen(), Listing((forgotten,), 0, ()), everything=False)[1]).endswith("forgotten")


def test_an_empty_list_says_what_to_type() -> None:
    held("list_empty", list_lines(Screen(), Listing((), 0, ()), everything=False))


def test_inspect_is_yaml_with_every_host_text_quoted() -> None:
    import yaml

    led = Reached("ana", "203.0.113.7", 2222, "OpenSSH", "proxycommand is set", ("ED25519 SHA256:8Yw0mJr1nq7",))
    shown = inspect_lines(on_lab(progress={"step": "4120/9000", "note": "a: {b}\n- c # d"}), {"LR": "1e-4"}, led)
    held("inspect", shown)
    read = yaml.safe_load("\n".join(plain(line) for line in shown))
    assert read["status"] == "in progress"
    assert read["progress"]["note"] == "a: {b}\n- c # d"
    assert read["env"]["HF_TOKEN"] == "(set, not shown)"
    assert read["reached"] == {"address": led.address, "by": "OpenSSH", "host_keys": list(led.host_keys)}


def test_doctor() -> None:
    findings = (
        {"word": "ok", "topic": "python3", "text": "3.10.12, agent 5c1f02ab unpacked", "help": ""},
        {
            "word": "note",
            "topic": "linger",
            "text": "off: runs end with the last session",
            "help": "loginctl enable-linger ana",
        },
        {"word": "bad", "topic": "state", "text": "disk full\n\x1b[31m0 bytes free\x1b[0m", "help": "aicrun gc lab"},
        {"word": "?", "topic": "index", "text": "package index: no answer within 3s", "help": ""},
    )
    held("doctor", doctor_lines(Screen(), "lab", findings))


def test_notes_stand_behind_a_bar_without_control_characters() -> None:
    text = "Corpus is on /data/corpus (read only).\n\x1b]0;owned\x07Card 0 is alice's on weekdays.\n\n"
    text += "<!-- aicrun job 19ab77c05d3e2f80 -->\naicrun: run sft-old\n<!-- end of aicrun job 19ab77c05d3e2f80 -->\n"
    held("notes", notes_lines(Screen(), "lab", text))


def test_a_machine_that_is_drained_and_starts_runs_again() -> None:
    own = Drain("ana", False, 0.2, "new power supply, back on Monday\x1b[31m", "ana@laptop")
    shown = drain_lines(Screen(), "gpu-box", Drained(own, 2, 1))
    shown += ["", *drain_lines(Screen(), "gpu-box", Drained(Drain("root", True, 7300.0), 1, 0))]
    shown += ["", *drain_lines(Screen(), "gpu-box", Drained(None, 2, 1)), *drain_lines(Screen(), "lab", Drained(None))]
    held("drain", shown)


def test_a_run_that_waits_for_a_drain_says_so() -> None:
    why = "this machine is drained by root: new power supply"
    line = InLine(("GPU-1",), 1, why, reason="drained")
    found = Found("gpu-box", report(phase="waiting", steps=(), line=line, card_indexes=(1,)))
    held("apply_drained", going_lines(found))
    assert "drained, 1st" in plain(list_lines(Screen(), Listing((found,), 0, ()), everything=False)[1])


def test_gc_before_and_after() -> None:
    named = {"run": "sft-run", "job_id": "7c1e09d2a4b86f13", "ended_age_s": 8 * 86400.0}
    rows = ({"what": "job", "path": "/s/jobs/1", "bytes": 217088, "why": "ended; its record stays", **named},)
    held(
        "gc",
        [
            *gc_lines(Screen(), "lab", rows, True),
            *gc_lines(Screen(), "lab", rows, False),
            *gc_lines(Screen(), "lab", (), False),
        ],
    )


def test_a_refusal_of_a_host() -> None:
    error = HostRefused(
        "AIC-E601",
        "gpu_busy: lab[1] is held, and queue.wait is 0",
        token="gpu_busy",
        facts=(("holder", "run whisper-xl of alice, since 12m"), ("card", "lab[1], RTX A6000, 7.7 of 48.0 GiB free")),
        ways=(
            Way("wait in line instead", "aicrun apply run.yaml --set queue.wait=24h"),
            Way("see who holds what", "aicrun machines"),
        ),
    )
    held("error_refused", error_lines(error))


def test_the_ascii_fallback_moves_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(ascii=True).out(["… sft-run: wait", "± command", "│ text … cut"])
    assert capsys.readouterr().out == ". sft-run: wait\n/ command\n| text .. cut\n"


def test_colours_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ending_lines(Screen(), Ending(failed()))
    Screen(out_colour=True).out(shown)
    coloured = capsys.readouterr().out
    Screen(out_colour=False).out(shown)
    assert "\x1b[31mfailed(exit_code)\x1b[0m" in coloured
    bare = capsys.readouterr().out
    assert "\x1b" not in bare
    assert "failed(exit_code)" in bare


def test_inspect_names_each_card_by_its_number_and_model() -> None:
    given = {"cards": ("GPU-6f1c", "GPU-77aa"), "card_indexes": (1, 3)}
    told = [
        f'  - {{machine: lab, index: {index}, uuid: "{uuid}"}}' for index, uuid in ((1, "GPU-6f1c"), (3, "GPU-77aa"))
    ]
    assert _below("card:", inspect_lines(on_lab(**given)), 2) == told
    measured = on_lab(**given, sample={"peaks": {"card_model": "NVIDIA RTX A6000"}})
    named = '  - {machine: lab, index: 1, model: "RTX A6000", uuid: "GPU-6f1c"}'
    assert _below("card:", inspect_lines(measured), 1) == [named]
    # A job of an older client has no numbers; one without cards has no line.
    assert _below("card:", inspect_lines(on_lab(cards=("GPU-6f1c",))), 1) == ['  - {machine: lab, uuid: "GPU-6f1c"}']
    assert "card:" not in inspect_lines(on_lab())


def _below(key: str, shown: list[str], count: int) -> list[str]:
    return shown[shown.index(key) + 1 :][:count]


def test_inspect_escapes_what_a_terminal_must_not_see_and_drops_nothing() -> None:
    values = {"NL": "a\nb", "ESC": "\x1b[2Jx", "BIDI": "a\u202eb", "BYTE": "caf\udce9", "PLAIN": "ünï 日本 {x}"}
    shown = "\n".join(inspect_lines(on_lab(), values))
    bare = plain(shown).replace("\n", "")
    assert harmless(bare) == bare
    for name, value in values.items():
        line = next(line for line in shown.splitlines() if line.startswith(f"  {name}: "))
        assert json.loads(line.partition(": ")[2]) == value
    assert '"ünï 日本 {x}"' in shown
