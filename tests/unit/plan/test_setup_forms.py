"""Each form of `setup` from the text of a spec to the request: its key, what a machine is asked, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from job_reports import report
from packages import PYPROJECT
from unit.plan.worlds import answered, fleet, machine, spec, wish

from aicrun.lifecycle.wanted import for_its_python
from aicrun.plan.ask import interpreters_to_ask, wheels_to_ask
from aicrun.plan.decide import plan
from aicrun.plan.environment import why_built
from aicrun.plan.locks import is_lock, local_sources, outside, packages, requires_python, unlike_wheels
from aicrun.plan.model import Options, RunPlan, Wanted
from aicrun.plan.saved import moved
from aicrun.spec.load import load_run_text
from aicrun.spec.model import RunSpec, SetupSpec
from aicrun.wire.facts import Program, Python, WheelFolder
from aicrun.wire.jobs import JobReport, Setup, Source

LOCK = """\
version = 1
revision = 3
requires-python = ">=3.11, <3.14"

[[package]]
name = "demo"
version = "0.1"
source = { editable = "." }
dependencies = [
    { name = "torch" },
]

[[package]]
name = "torch"
version = "2.8.0"
source = { registry = "https://pypi.org/simple" }
wheels = [
    { url = "https://files.org/torch-2.8.0-py3-none-any.whl", hash = "sha256:00" },
]
"""
MORE = '\n[[package]]\nname = "{}"\nversion = "1"\nsource = {{ {} }}\n'
PYTHONS = (Python("/usr/bin/python3", "3.9.2"), Python("/usr/bin/python3.12", "3.12.4"))


def loaded(setup: str) -> RunSpec:
    text = "version: 1\nname: digits\ncommand: python x.py\nsource: {path: .}\n"
    return load_run_text(f"{text}setup: {setup}\n".encode(), "run.yaml", "").specs[0]


def wanted(setup: str, lock: str = LOCK, tree: str = "a") -> Wanted:
    files = {"uv.lock": lock, "pyproject.toml": PYPROJECT}
    one = for_its_python(loaded(setup), files)
    return Wanted(one, source=Source(tree * 64, 1, 1), files=files)


def planned(one: Wanted, **reading: Any) -> RunPlan:
    return plan((one,), fleet(answered("lab", **{"pythons": PYTHONS, **reading})), Options()).runs[0]


def made(one: Wanted, **reading: Any) -> Setup:
    item = planned(one, **reading)
    assert item.draft is not None, item.headline
    return item.draft.setup


def refusal(one: Wanted) -> tuple[str, int, str]:
    item = planned(one)
    assert item.refusal is not None
    return item.refusal.code, item.refusal.exit, item.headline


def test_a_lock_goes_along_as_two_texts_and_chooses_its_python() -> None:
    setup = made(wanted("{lock: uv.lock}"))
    assert (setup.lock, setup.pyproject, setup.project) == (LOCK, PYPROJECT, False)
    assert (setup.requirements_name, setup.torch_backend) == ("uv.lock", "none")
    assert setup.python == "/usr/bin/python3.12"
    assert made(wanted('{lock: uv.lock, python: "3.9"}')).python == "/usr/bin/python3"


def test_a_project_is_taken_from_the_tree() -> None:
    setup = made(wanted("{project: true}"))
    assert (setup.lock, setup.pyproject, setup.project, setup.requirements_name) == ("", "", True, "uv.lock")


def test_each_form_has_a_key_over_what_it_reads() -> None:
    other = LOCK.replace("2.8.0", "2.9.0")
    keys = [
        made(wanted("{lock: uv.lock}")).key,
        made(wanted("{lock: uv.lock}", other)).key,
        made(wanted("{project: true}")).key,
        made(wanted("{project: true}", tree="b")).key,
        made(wanted("{packages: [x]}")).key,
        made(wanted("{packages: [x], index: https://x.org/simple}")).key,
        made(wanted("{packages: [x], index: [https://x.org/simple, https://y.org/simple]}")).key,
        made(wanted("{packages: [x], wheels: /w}"), wheels=(WheelFolder("/w", "l1", 1),)).key,
        made(wanted("{packages: [x], wheels: /w}"), wheels=(WheelFolder("/w", "l2", 1),)).key,
    ]
    assert len(set(keys)) == len(keys)
    assert made(wanted("{lock: uv.lock}", tree="b")).key == keys[0]
    assert made(wanted("{lock: uv.lock}"), pythons=(Python("/opt/python3.12", "3.12.4"),)).key != keys[0]


def test_ones_own_index_and_a_folder_of_wheels_say_which_torch_there_is() -> None:
    card = "machine: {gpu: 20GiB}\n"
    text = "version: 1\nname: digits\ncommand: python x.py --out $AICRUN_CHECKPOINT_DIR\nsetup: "
    backends = [
        load_run_text(f"{text}{setup}\n{card}".encode(), "run.yaml", "").specs[0].setup
        for setup in (
            "{packages: [torch]}",
            "{packages: [torch], index: https://x.org/simple}",
            "{packages: [torch], index: https://x.org/simple, torch_backend: cu128}",
            "{packages: [torch], wheels: /w}",
        )
    ]
    assert [one.torch_backend for one in backends if one] == ["auto", "none", "cu128", "none"]


def test_an_environment_of_the_machine_is_asked_for_by_its_python_and_has_no_key() -> None:
    one = wanted('{venv: "${machine.data}/venvs/${run.name}"}')
    assert interpreters_to_ask((one.spec,), machine("lab")) == (("/data/venvs/digits/bin/python", ""),)
    assert interpreters_to_ask((one.spec,), machine("lab", data="")) == ()
    there = Program("/data/venvs/digits/bin/python", "", "/data/venvs/digits/bin/python")
    assert made(one, programs=(there,)) == Setup(path="/data/venvs/digits", timeout_s=1800)
    # Not asked, as with a reading of before: the setup looks itself.
    assert made(one).path == "/data/venvs/digits"
    gone = planned(one, programs=(Program("/data/venvs/digits/bin/python"),))
    assert [(reason.token, reason.lasting) for reason in gone.verdicts[0].rejections] == [("venv", True)]
    assert made(wanted("{venv: ~/venv}")).path == "/home/ana/venv"


def test_a_first_word_is_looked_for_in_the_environment_that_is_used() -> None:
    one = wish(spec(command=("accelerate launch",), setup=SetupSpec(venv="/v")))
    absent = Program("accelerate", "", "", "/usr/bin")
    in_venv = Program("/v/bin/accelerate", "", "/v/bin/accelerate")
    assert planned(one, programs=(absent, in_venv)).warnings == ()
    (told,) = planned(one, programs=(absent, Program("/v/bin/accelerate"))).warnings
    assert "accelerate is not on the PATH" in told


def test_a_folder_of_wheels_is_asked_for_and_must_hold_some() -> None:
    one = wanted("{packages: [x], wheels: ~/wheels/}")
    assert wheels_to_ask((one.spec,), machine("lab")) == ("~/wheels",)
    assert made(one, wheels=(WheelFolder("~/wheels", "l", 2),)).wheels == "/home/ana/wheels"
    for found in (WheelFolder("~/wheels"), WheelFolder("~/wheels", "empty", 0)):
        item = planned(one, wheels=(found,))
        assert [(reason.token, reason.lasting) for reason in item.verdicts[0].rejections] == [("wheels", True)]


def test_a_saved_plan_is_stale_when_its_wheels_changed() -> None:
    one = wanted("{packages: [x], wheels: /w}")

    def seen(listing: str) -> Any:
        return fleet(answered("lab", pythons=PYTHONS, wheels=(WheelFolder("/w", listing, 1),)))

    kept = plan((one,), seen("aaaa"), Options())
    assert moved(kept, seen("aaaa"), (one,)) == ()
    assert [found.what for found in moved(kept, seen("bbbb"), (one,))] == ["wheels in /w of lab"]


@pytest.mark.parametrize("form", ["lock: uv.lock", "project: true"])
def test_a_lock_that_is_missing_or_none_is_refused(form: str) -> None:
    one = wanted(f"{{{form}}}")
    code, exit_, told = refusal(wish(one.spec, source=one.source, files={"pyproject.toml": PYPROJECT}))
    assert (code, exit_) == ("AIC-E684", 4)
    assert "uv.lock, which is not in the source" in told
    assert refusal(wanted(f"{{{form}}}", "torch==2.8\n"))[0] == "AIC-E683"


def test_packages_of_ones_disk_need_the_project_and_lie_below_it() -> None:
    member = LOCK + MORE.format("near", 'editable = "lib/near"')
    code, _, told = refusal(wanted("{lock: uv.lock}", member))
    assert (code, "near (lib/near)" in told) == ("AIC-E683", True)
    assert made(wanted("{project: true}", member)).project
    far = LOCK + MORE.format("far", 'directory = "../far"')
    code, _, told = refusal(wanted("{project: true}", far))
    assert (code, "outside the source: far (../far)" in told) == ("AIC-E683", True)
    git = LOCK + MORE.format("tool", 'git = "https://x.org/tool?rev=1"')
    assert made(wanted("{lock: uv.lock}", git)).lock == git
    code, _, told = refusal(wanted("{lock: uv.lock, wheels: /w}", git))
    assert (code, "setup.wheels cannot hold" in told) == ("AIC-E683", True)


def test_what_is_read_out_of_a_lock() -> None:
    assert is_lock(LOCK) and not is_lock('[[package]]\nname = "poetry"\n')
    assert (packages(LOCK), requires_python(LOCK)) == (1, ">=3.11, <3.14")
    assert requires_python(LOCK.replace(">=3.11, <3.14", ">=3.11|<3.8")) == ""
    kinds = ('virtual = "."', 'path = "a.whl"', 'registry = "../wheels"', 'url = "https://x.org/a.whl"')
    for kind, local, out, unlike in zip(kinds, (0, 1, 1, 0), (0, 0, 1, 0), (0, 1, 1, 1), strict=True):
        text = LOCK + MORE.format("p", kind)
        assert (len(local_sources(text)), len(outside(text)), len(unlike_wheels(text))) == (local, out, unlike), kind


def test_a_step_says_what_is_installed_and_where_it_comes_from() -> None:
    def step(setup: str) -> str:
        return dict(planned(wanted(setup), wheels=(WheelFolder("/w", "l", 1),)).in_order)["setup"]

    assert step("{lock: uv.lock}") == "build: python 3.12, uv.lock (1 package)"
    assert step("{project: true, wheels: /w}") == (
        "build: python 3.12, uv.lock (1 package), the project itself, from /w only"
    )
    two = "[corp=https://x.org/simple, https://pypi.org/simple]"
    assert step(f"{{packages: [a, b], index: {two}}}") == (
        "build: python 3.9, 2 packages, from https://x.org/simple or https://pypi.org/simple"
    )
    assert step("{venv: /v, run: [make]}") == "use /v as it is, then 1 command"


def test_why_an_environment_is_built_is_what_changed_since_the_runs_last_job_there() -> None:
    first = made(wanted("{lock: uv.lock}"))

    def why(setup: str, *jobs: JobReport, lock: str = LOCK, **reading: Any) -> str:
        one = wanted(setup, lock)
        seen = answered("lab", pythons=PYTHONS, jobs=jobs, **reading).reading
        assert seen is not None
        return why_built(one, made(one, **reading), seen)

    def job(reads: Any, age_s: float = 60.0, run: str = "digits") -> JobReport:
        return report(run=run, age_s=age_s, facts={"setup": {"env": "/envs/x", "reads": reads}})

    last = job(dict(first.reads))
    assert why("{lock: uv.lock}", last, lock=LOCK.replace("2.8.0", "2.9.0")) == "changed: uv.lock"
    assert why("{packages: [a]}", last) == (
        "changed: setup.packages, python, setup.lock, pyproject.toml and setup.project"
    )
    assert why("{lock: uv.lock, wheels: /w}", last, wheels=(WheelFolder("/w", "l", 1),)) == (
        "changed: the folder of wheels"
    )
    assert why("{lock: uv.lock}", last) == "the last one is gone"
    # The newest counts; one that was never set up, one of another run and what is no list of reads do not.
    assert why("{lock: uv.lock}", job({"lock": "x"}, 90), last) == "the last one is gone"
    odd = (report(run="digits", facts={}), report(run="digits", facts={"setup": "x"}), job("x"), job({}, run="other"))
    assert why("{lock: uv.lock}", *odd) == ""
