"""Every diagnostic as people see it: a file with faults (or none), and the exact text, line for line.

To add a case, write the .yaml, run once with AICRUN_WRITE_GOLDEN=1, and read the .txt before it is committed. Comments
`# set: a.b=c` and `# strict` on the first lines of a run stand for the arguments of the command line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from aicrun.codes import CODES
from aicrun.spec import render
from aicrun.spec.diagnostics import DocumentInvalid
from aicrun.spec.load import load_inventory_text, load_run_text

CASES = Path(__file__).resolve().parents[2] / "cases" / "diagnostics"
FILES = sorted(CASES.rglob("*.yaml"))


def shown(file: Path) -> str:
    """What a person sees of the case: its diagnostics and the last line; for a valid run what reaches the job too."""
    raw = file.read_bytes()
    try:
        if file.parent.name == "machines":
            inventory, warnings = load_inventory_text(raw, "machines.yaml")
            return render.text(warnings) + "".join(f"{machine}\n" for machine in inventory.machines)
        head = [line[2:] for line in raw.decode("utf-8", "replace").splitlines() if line.startswith("# ")]
        overrides = tuple(line.removeprefix("set: ") for line in head if line.startswith("set: "))
        loaded = load_run_text(raw, "run.yaml", "", overrides=overrides, strict="strict" in head)
    except DocumentInvalid as invalid:
        name = "machines.yaml" if file.parent.name == "machines" else "run.yaml"
        return f"{render.text(invalid.diagnostics)}\n{render.summary(name, invalid.diagnostics)}\n"
    spec = loaded.specs[0]
    reaches = json.dumps(
        {"name": spec.name, "env": dict(spec.env), "command": spec.command, "gpu": str(spec.machine.gpu)}
    )
    return f"{render.text(loaded.warnings)}valid: {reaches}\n"


@pytest.mark.parametrize("libyaml", [True, False], ids=["libyaml", "python"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_case_is_shown_exactly_so(file: Path, libyaml: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", libyaml and yaml.__with_libyaml__)
    golden = file.with_suffix(".txt")
    text = shown(file)
    if os.environ.get("AICRUN_WRITE_GOLDEN") and libyaml:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_code_of_files_and_lints_has_a_case() -> None:
    told = "".join(file.read_text(encoding="utf-8") for file in CASES.rglob("*.txt"))
    # Those that are no diagnostics of a document's text: files that are missing or cannot be opened, and explain.
    elsewhere = {"AIC-E160", "AIC-E180", "AIC-E181", "AIC-E182"}
    wanted = {number for number in CODES if number.startswith(("AIC-E1", "AIC-W2"))} - elsewhere
    assert {number for number in wanted if number not in told} == set()


def test_every_code_that_is_told_is_registered() -> None:
    for file in FILES:
        for row in _diagnostics(file):
            assert row["code"] in CODES


def test_the_data_form_has_the_same_facts_as_the_text() -> None:
    for row in _diagnostics(CASES / "run" / "e102-twice.yaml"):
        assert row["span"] == {"file": "run.yaml", "line": 7, "column": 3, "length": 3}
        assert [excerpt["line"] for excerpt in row["excerpts"]] == [4, 7]
        assert json.loads(json.dumps(row)) == json.loads(json.dumps(row))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_lines_of_excerpts_are_no_longer_than_the_screen(file: Path) -> None:
    for line in shown(file).splitlines():
        if line[:1] == " " and " | " in line[:8]:
            assert len(line) <= 80


def test_the_ascii_form_has_only_ascii_and_its_carets_stay_below_the_words() -> None:
    raw = (CASES / "run" / "e140-shapes.yaml").read_bytes()
    with pytest.raises(DocumentInvalid) as caught:
        load_run_text(raw, "run.yaml", "")
    text = render.text(caught.value.diagnostics, ascii=True)
    assert text.isascii()
    assert "hf_.. (37 characters, not shown)" in text


def _diagnostics(file: Path) -> list[dict[str, Any]]:
    try:
        loaded = load_run_text(file.read_bytes(), "run.yaml", "")
    except DocumentInvalid as invalid:
        return render.document(invalid.diagnostics)
    return render.document(loaded.warnings)
