"""The screens of a plan, held by golden files; `AICRUN_FREEZE=1` writes them anew for a reviewer to read."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from support import REPOSITORY
from unit.plan.worlds import (
    ATTIC,
    GIB,
    HOUR,
    MEASURED,
    NOTES,
    REQUIREMENTS,
    SOURCE,
    answered,
    card,
    checkpoint,
    demand,
    fleet,
    gpu_box,
    gpu_spec,
    held,
    home,
    job,
    lab,
    machine,
    reading,
    sft_run,
    sft_wish,
    silent,
    spec,
    stranger,
    wish,
)

from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.decide import plan
from aicrun.plan.environment import setup_on
from aicrun.plan.model import Fleet, MachineView, Options, Plan, Wanted
from aicrun.plan.words import cells
from aicrun.spec.model import CheckpointSpec, Reached, Selector, SetupSpec, UploadSpec
from aicrun.wire.facts import Drain, Notes, Survival
from aicrun.wire.jobs import JobReport, Source, StepReport

SCREENS = REPOSITORY / "tests/golden/screens"


def golden(name: str, made: Plan, **looks: Any) -> str:
    """Compare one screen with its file; the text, for further looks at it."""
    text = plan_screen(made, **{"width": 80, "verbose": False, "ascii": False, **looks}).plain
    path = SCREENS / f"plan_{name}.txt"
    if os.environ.get("AICRUN_FREEZE") == "1":
        path.write_text(text, "utf-8")
    assert path.exists(), f"{path.name} is missing: write it with AICRUN_FREEZE=1 and read it"
    assert text == path.read_text("utf-8")
    return text


def _ready() -> MachineView:
    """Lab with the run's environment built, as an earlier run left it."""
    bare = lab()
    assert bare.reading is not None
    key = setup_on(sft_wish(), bare.machine, bare.reading).key
    facts = {**MEASURED, "env_key": key, "torch": "2.8.0+cu128", "age_s": 4 * 86400.0}
    return lab(envs_ready=(key,), measured=(facts,))


def _fleet(*others: MachineView) -> Fleet:
    return fleet(gpu_box(measured=(MEASURED,)), *others, ATTIC)


def _common() -> Plan:
    return plan((sft_wish(),), _fleet(_ready(), home()), Options())


def test_1_1_a_plan_that_fits() -> None:
    golden("1_1_fits", _common())


def test_1_1_at_120_columns() -> None:
    golden("1_1_fits_120", _common(), width=120)


def test_1_1_every_card_in_its_own_row() -> None:
    made = _common()
    key = "ED25519 SHA256:8Yw0mJr1nq7yQxq9bQ0V2c5s7yJt3mC0e0l4ZkS1x2A"
    led = {
        "gpu-box": Reached("ana", "gpu-box", 22, "fabric", host_keys=(key,)),
        "lab": Reached("ana", "192.168.1.40", 22, "OpenSSH", "ProxyJump in use", (key, key.replace("ED25519", "RSA"))),
        "home": Reached("ana", "203.0.113.7", 2222, "fabric"),
    }
    views = tuple(replace(view, reached=led.get(view.machine.name)) for view in made.fleet.machines)
    golden("1_1_fits_verbose", replace(made, fleet=replace(made.fleet, machines=views)), verbose=True)


def test_1_1_in_ascii() -> None:
    text = golden("1_1_fits_ascii", _common(), ascii=True)
    assert text.isascii()


def test_1_2_one_card_one_machine() -> None:
    one = replace(gpu_spec(20), setup=SetupSpec(requirements="requirements.txt", torch_backend="cu128"))
    here = answered("here", (card(0, "NVIDIA GeForce RTX 4090", 24, 23.3),), machine("here", data=""))
    wanted = wish(one, files={"requirements.txt": "torch\n" * 41})
    golden("1_2_one_machine", plan((wanted,), fleet(here, file=""), Options()))


def test_1_3_eighty_cards_eleven_machines() -> None:
    text = golden("1_3_eighty_cards", plan((wish(gpu_spec(20, driver=None)),), _eighty(), Options()))
    table = text.split("\n\n")[2]
    assert len(table.splitlines()) <= 18


def test_1_3_at_120_columns() -> None:
    golden("1_3_eighty_cards_120", plan((wish(gpu_spec(20)),), _eighty(), Options()), width=120)


def _eighty() -> Fleet:
    def box(name: str, *cards: Any) -> MachineView:
        return answered(name, tuple(replace(one, index=place, uuid=f"GPU-{place}") for place, one in enumerate(cards)))

    def many(count: int, model: str, total: float, free: float, **more: Any) -> list[Any]:
        return [card(0, model, total, free, **more) for _ in range(count)]

    alice = [card(0, "RTX A6000", 48, 9.0, holder=held(f"asr-{n}", "alice", HOUR * n)) for n in (1, 2)]
    crowd = [card(0, "A100", 80, 3.1, holder=held(f"r{n}", ("alice", "bo", "cy")[n % 3], HOUR)) for n in range(8)]
    bo = {"processes": (stranger(8121, "python", "bo", 17.0),)}
    return fleet(
        gpu_box(),
        box("lab", *alice),
        home(),
        box("rack-a", *crowd),
        box("rack-c", *many(4, "RTX A6000", 48, 30.2, **bo), *many(4, "RTX A6000", 48, 47.6)),
        box("rack-d", *many(4, "RTX A6000", 48, 47.6), *many(4, "A40", 45, 44.4, mig="on")),
        box("rack-e", *many(8, "RTX 2080 Ti", 11, 10.8)),
        box("rack-f", *many(8, "RTX 2080 Ti", 11, 10.8)),
        box("rack-g", *many(8, "Tesla T4", 15, 14.6)),
        box("rack-h", *many(7, "Tesla T4", 15, 14.6)),
        box("rack-i", *many(19, "RTX 2080 Ti", 11, 10.8)),
        answered("spark", (replace(card(0, "GB10", 1, 1), vram_total_mib=None, vram_free_mib=None),)),
        ATTIC,
    )


def test_1_4_several_runs() -> None:
    runs = tuple(wish(gpu_spec(20, f"sweep-{n}")) for n in range(4))
    done = wish(gpu_spec(20, "sweep-done"))
    bad = wish(gpu_spec(20, "sweep-bad"))
    view = _fleet(lab(jobs=(job(done, "succeeded"), job(bad, "oom"))), home())
    golden("1_4_several", plan((*runs, done, bad), view, Options()))


def _taken() -> Fleet:
    dpo = job(wish(spec("dpo-2")), progress={"step": "6100/9000"}, job_id="d" * 16)
    box = gpu_box(measured=(MEASURED,), jobs=(dpo,))
    stranger_on = (stranger(8121, "python", "bo", 6.9),)
    return fleet(box, lab(7.7, held("whisper-xl", "alice", 720.0)), home(15.4, processes=stranger_on), ATTIC)


def test_2_a_plan_that_waits() -> None:
    golden("2_waits", plan((sft_wish(),), _taken(), Options()))


def test_2_a_plan_that_waits_for_a_drained_machine() -> None:
    mark = Drain("root", True, 2 * HOUR, "new power supply, back on Monday", "ana@desk")
    view = fleet(lab(drain=mark), home(15.4, processes=(stranger(8121, "python", "bo", 6.9),)))
    asked = sft_run(machine=Selector(names=("lab",), gpu=demand(20)))
    golden("2_drained", plan((Wanted(asked, SOURCE, {"requirements.txt": REQUIREMENTS}),), view, Options()))


def test_cpu_on_a_drained_machine() -> None:
    here = answered("here", (), machine("here", data=""), drain=Drain("ana", False, 0.5 * HOUR))
    golden("cpu_drained", plan((_cpu(),), fleet(here, file=""), Options()))


def test_a_plan_warns_where_the_logout_ends_the_run() -> None:
    survival = Survival(
        "C",
        "goes on until your login here ends, and no longer",
        "no",
        "lingering is off for ana; a start asks for it",
        "your logout ends the run: KillUserProcesses=yes in its logind.conf",
        "loginctl enable-linger ana",
    )
    text = golden("warned", plan((sft_wish(),), _fleet(lab(survival=survival)), Options()))
    assert "warning: lab: your logout ends the run" in text


def test_2_rejected_now_without_a_line() -> None:
    golden("2_rejected_now", plan((sft_wish(queue_wait_s=0),), _taken(), Options()))


def test_3_rejected_everywhere() -> None:
    wanted = sft_wish(machine=Selector(gpu=demand(60)), overrides=("machine.gpu=60GiB",))
    golden("3_rejected", plan((wanted,), _fleet(lab(), home()), Options()))


def test_3_no_card_at_all() -> None:
    here = answered("here", (), machine("here", data=""))
    golden("3_no_card", plan((wish(gpu_spec(20)),), fleet(here, file=""), Options()))


def _running(**more: Any) -> tuple[JobReport, Wanted]:
    """The job of 4.1 and the edited wish."""
    old = sft_wish()
    assert old.source is not None
    steps = (StepReport("command", "running", 48211, 3 * HOUR + 480, log_bytes=2_516_582),)
    facts: dict[str, Any] = {
        "steps": steps,
        "cards": (_uuid(1),),
        "progress": {"step": "4120/9000"},
        "checkpoints": checkpoint(),
        **more,
    }
    record = job(old, **facts)
    cfg2 = old.spec.command[0].replace("cfg.yaml", "cfg2.yaml")
    execution = {**old.spec.execution, "command": cfg2, "env": {"LR": "3e-4"}}
    supervision = {
        **old.spec.supervision,
        "limits": {**old.spec.supervision["limits"], "max_duration": "18h"},
        "notify": {"when": ["failed", "succeeded"]},
    }
    new = sft_wish(command=(cfg2,), env={"LR": "3e-4"}, execution=execution, supervision=supervision)
    return record, replace(new, source=Source("cc" * 32, 44, 1_258_291, "9f2c1ab0ffee", "main", ("a", "b", "c")))


def _uuid(index: int) -> str:
    held_by = lab().reading
    assert held_by is not None
    return held_by.cards.cards[index].uuid


def test_4_1_refused_with_the_difference() -> None:
    record, new = _running()
    golden("4_1_refused", plan((new,), _fleet(lab(20.0, jobs=(record,)), home()), Options()))


def test_4_1_the_whole_difference() -> None:
    record, new = _running()
    golden("4_1_refused_verbose", plan((new,), _fleet(lab(20.0, jobs=(record,)), home()), Options()), verbose=True)


def test_4_2_with_replace() -> None:
    record, new = _running()
    mine = held("sft-run", "ana", 3 * HOUR, yours=True, job_id=record.job_id)
    view = _fleet(lab(20.0, mine, jobs=(record,)), home())
    golden("4_2_replace", plan((new,), view, Options(replace=True)))


def test_4_2_with_replace_and_no_resume() -> None:
    old = wish(spec("digits", execution={"command": "python train.py"}))
    record = job(old)
    new = wish(spec("digits", execution={"command": "python other.py"}, command=("python other.py",)))
    golden("4_2_replace_cpu", plan((new,), fleet(answered("here", jobs=(record,)), file=""), Options(replace=True)))


def test_4_3_only_fields_that_change_in_place() -> None:
    record, new = _running()
    same = sft_wish(supervision=new.spec.supervision)
    golden("4_3_change", plan((same,), _fleet(lab(20.0, jobs=(record,)), home()), Options()), closing=False)


def test_5_nothing_to_do_while_it_runs() -> None:
    record, _ = _running()
    golden("5_keep_running", plan((sft_wish(),), _fleet(lab(20.0, jobs=(record,)), home()), Options()))


def test_5_nothing_to_do_after_success() -> None:
    old = sft_wish()
    record = job(old, "succeeded", ended_age_s=2 * 86400.0)
    new = replace(old, source=Source("cc" * 32, 43, 1_258_291, "0a1b2c3d4e", "main"))
    golden("5_keep_source", plan((new,), _fleet(lab(jobs=(record,)), home()), Options()))


def test_7_a_silent_machine_may_hold_it() -> None:
    view = fleet(gpu_box(), lab(), silent("home", "no answer within 5s on 203.0.113.7 port 22 (connect timed out)"))
    golden("7_silent", plan((sft_wish(),), view, Options()))


def _cpu() -> Wanted:
    selector = Selector(cpus=8, memory_mib=16 * GIB)
    upload = UploadSpec("file:~/kept/", "file", "copy")
    setup = SetupSpec(packages=("scikit-learn",), run=("make data",))
    one = spec("digits", machine=selector, setup=setup, checkpoints=CheckpointSpec("out", upload))
    return Wanted(one, SOURCE)


def test_cpu_one_machine() -> None:
    measured = {"run": "digits", "wall_s": 42.0, "age_s": 3 * 86400.0}
    here = answered("here", (), machine("here", data=""), measured=(measured,))
    golden("cpu_fits", plan((_cpu(),), fleet(here, file=""), Options()))


def test_cpu_several_machines() -> None:
    view = fleet(
        lab(),
        answered("attic", cpus=4, memory_mib=8 * GIB, memory_free_mib=7 * GIB),
        answered("den", cpus_free=3.5, active_jobs=32),
        answered("desk", cpus_free=12.0),
    )
    golden("cpu_several", plan((_cpu(),), view, Options()))


def test_cpu_rejected() -> None:
    here = answered("here", (), machine("here", data=""), cpus=4)
    golden("cpu_rejected", plan((_cpu(),), fleet(here, file=""), Options()))


@pytest.mark.parametrize("state", ["failed", "oom", "unknown", "stopped", "stop failed", "newer", "upload failed"])
def test_records_that_refuse_or_upload(state: str) -> None:
    wanted = _cpu()
    view = fleet(answered("here", (), machine("here", data=""), jobs=(job(wanted, state, attempt=2),)), file="")
    golden(f"record_{state.replace(' ', '_')}", plan((wanted,), view, Options()))


def test_missing_data_names_the_line_to_add() -> None:
    one = wish(spec("digits", command=("python t.py ${machine.data}/x",)))
    bare = replace(machine("lab", data=""), line=7)
    golden("no_data", plan((one,), fleet(MachineView(bare, "answered", reading("lab"))), Options()))


# What holds for every screen.


def _all_plans() -> list[Plan]:
    record, new = _running()
    return [
        _common(),
        plan((sft_wish(),), _taken(), Options()),
        plan((wish(gpu_spec(20)),), _eighty(), Options()),
        plan((new,), _fleet(lab(20.0, jobs=(record,)), home()), Options()),
        plan((_cpu(),), fleet(lab(), answered("desk")), Options()),
    ]


@pytest.mark.parametrize("width", [72, 80, 100, 120, 160])
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, verbose: bool, ascii_only: bool) -> None:
    for made in _all_plans():
        text = plan_screen(made, width=width, verbose=verbose, ascii=ascii_only).plain
        commands = [item.command for run in made.runs for item in run.ways]
        for line in text.splitlines():
            # A command to type is never broken.
            assert cells(line) <= width or any(line.endswith(command) for command in commands), line
            assert line == line.rstrip()
        assert "\n\n\n" not in text
        assert text.isascii() or not ascii_only


def test_text_of_hosts_cannot_move_the_cursor_or_pose_as_ours() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07red\x1b[31m\u202egnp\r\n+ sft-run: start"
    here = answered(
        "here",
        (card(0, f"RTX\x1b[31m 4090{evil}", 24, holder=held(evil, f"bo\x9b1m{evil}", 5.0)), card(1, "RTX 4090", 24)),
        notes=Notes(evil, 1, 0, 2),
    )
    made = plan((wish(gpu_spec(20)),), fleet(here), Options())
    text = plan_screen(made, width=80, verbose=True, ascii=False).plain
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    assert "\u202e" not in text and "\x9b" not in text
    assert all(line.startswith("  │ ") for line in text.splitlines() if "owned" in line or line.endswith(": start"))


def test_colour_says_nothing_that_the_words_do_not() -> None:
    text = plan_screen(_common(), width=80, verbose=False, ascii=False)
    styles = {str(span.style) for span in text.spans if span.style}
    assert styles <= {"green", "yellow", "red", "bold", "dim"}
    chosen = text.plain.index("+ lab[1]")
    assert any(str(span.style) == "green" and span.start <= chosen < span.end for span in text.spans)


def test_notes_are_shown_from_the_chosen_machine_only() -> None:
    text = plan_screen(_common(), width=80, verbose=True, ascii=False).plain
    assert NOTES.text.splitlines()[2] in text
    assert "notes of lab" in text and "notes of gpu-box" not in text


def test_machines_that_were_not_asked_for_one_reason_stand_together() -> None:
    cellar = MachineView(machine("cellar", down=True), "down", why="down: true in machines.yaml")
    out = MachineView(machine("out"), "excepted", why="by --except")
    shown = plan_screen(
        plan((wish(gpu_spec(20)),), fleet(lab(), cellar, out, ATTIC), Options()), width=80, verbose=False, ascii=False
    ).plain
    told = " ".join(shown.split())
    assert "not asked: cellar and attic (down: true in machines.yaml), out (left out by --except)" in told
