"""Every example is a run that people copy: it loads without a word, and plans to what its comments say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import REPOSITORY, Person

from aicrun.spec.load import load_run

SPECS = sorted((REPOSITORY / "specs").glob("*/run.yaml"))


def _name(path: Path) -> str:
    return path.parent.name


def test_there_are_examples() -> None:
    assert {_name(path) for path in SPECS} >= {"digits", "minimal", "sft-lora"}


@pytest.mark.parametrize("path", SPECS, ids=_name)
def test_an_example_has_no_fault_and_no_lint(path: Path) -> None:
    loaded = load_run(str(path), strict=True)
    assert loaded.specs
    assert loaded.warnings == ()


def test_digits_uploads_by_file_and_writes_where_it_is_told() -> None:
    (spec,) = load_run(str(REPOSITORY / "specs/digits/run.yaml")).specs
    assert spec.machine.gpu is None
    assert spec.checkpoints.upload is not None
    assert (spec.checkpoints.upload.scheme, spec.checkpoints.upload.required) == ("file", True)
    assert "$AICRUN_CHECKPOINT_DIR" in spec.command[0]
    assert [value.name for value in spec.progress] == ["step", "loss"]


def test_sft_lora_keeps_the_characters_of_its_environment() -> None:
    (spec,) = load_run(str(REPOSITORY / "specs/sft-lora/run.yaml")).specs
    assert spec.env["TOKENIZERS_PARALLELISM"] == "false"
    assert {"HF_HOME", "TORCH_HOME"} <= set(spec.env)
    assert spec.machine.gpu is not None
    assert spec.machine.gpu.vram_mib == 20 * 1024


def test_where_there_is_no_card_the_plan_of_sft_lora_says_so_and_why(person: Person) -> None:
    ran = person.run("plan", str(REPOSITORY / "specs/sft-lora/run.yaml"), "--json")
    document = json.loads(ran.stdout)
    (run,) = document["runs"]
    if run["verdicts"] and any(verdict["verdict"] == "fits" for verdict in run["verdicts"]):
        pytest.skip("this machine has a card that fits")
    assert ran.returncode == 5
    assert run["sign"] == "x"
    shown = person.run("plan", str(REPOSITORY / "specs/sft-lora/run.yaml"))
    assert shown.returncode == 5
    assert "no NVIDIA" in shown.stdout
