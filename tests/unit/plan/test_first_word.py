"""The first word of a command: which it is, what is asked of a machine, and when a plan warns of it."""

from __future__ import annotations

from typing import Any

import pytest
from unit.plan.worlds import answered, fleet, machine, spec, wish

from aicrun.plan.decide import plan
from aicrun.plan.first_word import first_word, programs_to_ask
from aicrun.plan.model import Options
from aicrun.spec.model import Machine, RunSpec, SetupSpec
from aicrun.wire.facts import Program, Python


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("python train.py --lr 1e-4", "python"),
        ("  uv run train.py", "uv"),
        ("conda activate x && python train.py", "conda"),
        ("nvidia-smi; python train.py", "nvidia-smi"),
        ("train|tee log", "train"),
        ("LR=1e-4 SEED=3 torchrun --standalone train.py", "torchrun"),
        ("PATH=/opt/bin:$PATH torchrun", ""),
        ("A=$(date) torchrun", ""),
        ("python \\\n  train.py", "python"),
        ("# what it does\n\naccelerate launch x.py", "accelerate"),
        ("python train.py\npython eval.py", "python"),
        ("/opt/venv/bin/python train.py", "/opt/venv/bin/python"),
        ("~/venv/bin/python train.py", "~/venv/bin/python"),
        ("./train.sh", ""),
        ("bin/train", ""),
        ("source .venv/bin/activate; python x.py", ""),
        ("cd train && python x.py", ""),
        ("set -e\npython x.py", ""),
        ("if test -f x; then python x.py; fi", ""),
        ("train () { python x.py; }; train", ""),
        ("train() { python x.py; }; train", ""),
        ('"$PYTHON" train.py', ""),
        ("$PYTHON train.py", ""),
        ("(python train.py)", ""),
        ("{ python train.py; }", ""),
        ("[ -f x ] && python train.py", ""),
        ("${run.id}/python", ""),
        ("", ""),
    ],
)
def test_the_first_word_of_a_text(text: str, word: str) -> None:
    assert first_word((text,), is_argv=False) == word


def test_the_first_word_of_a_list_is_its_first() -> None:
    assert first_word(("python", "-m", "x"), is_argv=True) == "python"
    assert first_word(("cd", "x"), is_argv=True) == "cd"
    assert first_word(("bin/train",), is_argv=True) == ""


def test_what_is_asked_of_a_machine() -> None:
    specs = (
        spec("a", command=("python x.py",)),
        spec("b", command=("python y.py",)),
        spec("c", command=("${machine.data}/venv/bin/python x.py",)),
        spec("d", command=("python x.py",), env={"PATH": "${machine.data}/bin:/usr/bin"}),
        spec("e", command=("cd x; python y.py",)),
        spec("f", command=("accelerate",), setup=SetupSpec(run=("make tools",))),
    )
    assert programs_to_ask(specs, machine("lab")) == (
        ("python", ""),
        ("/data/venv/bin/python", ""),
        ("python", "/data/bin:/usr/bin"),
    )
    assert programs_to_ask(specs[:1], machine("lab", env={"PATH": "/opt/${x}"})) == (("python", "/opt/${x}"),)


ABSENT = Program("accelerate", "", "", "/home/ana/.local/bin:/usr/bin")


def warned(wanted: RunSpec, entry: Machine | None = None, **reading: Any) -> tuple[str, ...]:
    reading = {"programs": (ABSENT,), **reading}
    return (
        plan((wish(wanted),), fleet(answered("lab", (), entry or machine("lab"), **reading)), Options())
        .runs[0]
        .warnings
    )


def test_a_word_that_is_no_program_there_is_a_warning_with_the_path_and_the_ways_out() -> None:
    where = "lab: accelerate is not on the PATH that the job will have there: /home/ana/.local/bin, /usr/bin"
    ways = "write its full path, name its folder under path: of lab in machines.yaml, or have setup: bring it"
    assert warned(spec(command=("accelerate launch x.py",))) == (f"{where}; {ways}",)
    assert warned(spec(command=("accelerate", "launch"), is_argv=True)) == (f"{where}; {ways}",)


def test_nothing_is_said_of_what_is_there_or_was_not_asked() -> None:
    found = Program("accelerate", "", "/usr/bin/accelerate", "/usr/bin")
    assert warned(spec(command=("accelerate launch x.py",)), programs=(found,)) == ()
    assert warned(spec(command=("accelerate launch x.py",)), programs=()) == ()
    assert warned(spec(command=("cd x; accelerate launch x.py",))) == ()
    # Looked for on the usual PATH, while this job has one of its own.
    assert warned(spec(command=("accelerate launch x.py",), env={"PATH": "/opt/bin"})) == ()


def test_a_path_of_the_jobs_own_is_the_one_that_counts() -> None:
    answer = Program("accelerate", "/opt/bin:$PATH", "", "/opt/bin:$PATH")
    found = warned(spec(command=("accelerate x",), env={"PATH": "/opt/bin:$PATH"}), programs=(answer,))
    assert "job will have there: /opt/bin, $PATH;" in found[0]
    entry = machine("lab", env={"PATH": "/opt/bin:$PATH"})
    assert warned(spec(command=("accelerate x",)), entry, programs=(answer,)) == found


def test_a_full_path_that_is_no_program_there() -> None:
    answer = Program("/opt/venv/bin/python", "", "", "/usr/bin")
    assert warned(spec(command=("/opt/venv/bin/python x.py",)), programs=(answer,)) == (
        "lab: /opt/venv/bin/python is no program there that this account may execute",
    )


def test_an_environment_that_is_still_to_be_built_may_bring_it_and_a_built_one_is_looked_into() -> None:
    setup = SetupSpec(packages=("accelerate",))
    wanted = spec(command=("accelerate launch x.py",), setup=setup)
    pythons = (Python("/usr/bin/python3", "3.12.4"),)
    assert warned(wanted, pythons=pythons) == ()
    made = plan((wish(wanted),), fleet(answered("lab", pythons=pythons)), Options()).runs[0].draft
    assert made is not None and made.setup.key
    key = made.setup.key
    assert len(warned(wanted, pythons=pythons, envs_ready=(key,))) == 1
    having = Program("accelerate", "", "", "/usr/bin", (key,))
    assert warned(wanted, pythons=pythons, envs_ready=(key,), programs=(having,)) == ()
    assert warned(spec(command=("accelerate x",), setup=SetupSpec(run=("make tools",)))) == ()
