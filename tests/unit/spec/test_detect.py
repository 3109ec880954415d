"""`init`: what it sees in a folder, and that what it writes is always valid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicrun.spec.detect import FolderFacts, draft_run_yaml, look_at
from aicrun.spec.load import load_run_text

TRAIN = "import argparse\nimport torch\nparser.add_argument('--output_dir')\nif __name__ == '__main__':\n    main()\n"
PLAIN = "import argparse\nif __name__ == '__main__':\n    pass\n"


def folder(tmp_path: Path, files: dict[str, str], name: str = "sft") -> Path:
    top = tmp_path / name
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)
    top.mkdir(exist_ok=True)
    return top


def drafted(top: Path) -> str:
    """The draft for the folder, loaded as a person's next command would; no remark is made on it."""
    text = draft_run_yaml(look_at(str(top)))
    loaded = load_run_text(text.encode(), "run.yaml", str(top))
    assert loaded.warnings == ()
    return text


def test_the_screen(tmp_path: Path) -> None:
    top = folder(tmp_path, {"train/sft.py": TRAIN.replace("--output_dir", "--out"), "requirements.txt": "torch\n"})
    (top / ".git").mkdir()
    assert (
        drafted(top)
        == """\
version: 1
name: sft-run

machine:
  gpu: 20GiB            # free memory the run needs; aicrun finds the card

source:
  path: .               # what git knows below this folder

setup:
  requirements: requirements.txt

command: python train/sft.py --out "$AICRUN_CHECKPOINT_DIR"

# checkpoints:          # uploads as the run's own last step, and verifies it
#   upload: {to: s3://bucket/prefix/}
# limits: {max_duration: 12h}  # asked to end after it; without it, never
# secrets: [HF_TOKEN]   # names only; values come from your environment
# resume: {from: latest}  # the command finds its start in $AICRUN_RESUME_FROM
#
# every field: aicrun explain run
"""
    )


def test_every_wish_that_is_offered_is_supported(tmp_path: Path) -> None:
    text = drafted(folder(tmp_path, {"train.py": TRAIN}))
    wishes = [line[2:] for line in text.splitlines() if line.startswith("# ") and "every field" not in line]
    taken = "\n".join(line for line in text.splitlines() if not line.startswith("#")) + "\n" + "\n".join(wishes)
    assert "checkpoints:" in taken
    load_run_text(taken.encode(), "run.yaml", str(tmp_path))


def test_the_flag_of_the_script_is_used(tmp_path: Path) -> None:
    assert 'python3 train.py --output_dir "$AICRUN_CHECKPOINT_DIR"' in drafted(folder(tmp_path, {"train.py": TRAIN}))


def test_no_card_without_a_sign_of_one(tmp_path: Path) -> None:
    text = drafted(folder(tmp_path, {"train.py": PLAIN, "requirements.txt": "numpy\nscikit-learn\ntorchlike\n"}))
    assert "gpu:" not in text


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": "torch>=2\n"},
        {"requirements.txt": "numpy\n  transformers[torch]==4\n"},
        {"pyproject.toml": '[project]\ndependencies = ["numpy", "torch>=2"]\n'},
        {"pyproject.toml": '[project]\ndependencies = [\n  "peft",\n]\n'},
        {"train.py": TRAIN},
    ],
)
def test_a_sign_of_a_card(tmp_path: Path, files: dict[str, str]) -> None:
    assert look_at(str(folder(tmp_path, files))).wants_card


def test_the_script_named_for_training_goes_first(tmp_path: Path) -> None:
    files = {
        "app.py": PLAIN,
        "tools/export.py": PLAIN,
        "main.py": PLAIN,
        "venv/train.py": TRAIN,
        "tests/train.py": TRAIN,
    }
    for script in ("main.py", "src/train_lora.py", "src/finetune.py", "deep/train.py"):
        files[script] = PLAIN
        assert look_at(str(folder(tmp_path, files, script[:5]))).script == script


def test_an_empty_folder(tmp_path: Path) -> None:
    text = draft_run_yaml(look_at(str(folder(tmp_path, {}, "x"))))
    spec = load_run_text(text.encode(), "run.yaml", str(tmp_path)).specs[0]
    assert (spec.name, spec.source) == ("x-run", None)
    # Applied as it is, it fails and says why: nothing was trained.
    done = subprocess.run(["bash", "-c", spec.command[0]], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "run.yaml" in done.stderr


@pytest.mark.parametrize(
    ("source", "command", "more"),
    [
        ("import torch\n", "python3 train.py\n", "#   path: out "),
        ("import torch, os\nos.environ['AICRUN_CHECKPOINT_DIR']\n", "python3 train.py\n", ""),
        (
            "import torch\nTrainingArguments(output_dir='runs/out', x=1)\n",
            "python3 train.py\n",
            "checkpoints:\n  path: runs/out ",
        ),
        ("import torch\noutput_dir = '/data/out'\n", "python3 train.py\n", "#   path: out "),
        ("import torch\nsave_dir = '../out'\n", "python3 train.py\n", "#   path: out "),
        (
            "import torch\nHfArgumentParser((ModelArguments, TrainingArguments))\n",
            'python3 train.py --output_dir "$AICRUN_CHECKPOINT_DIR"\n',
            "",
        ),
        ("import torch\np.add_argument('--save-dir')\n", 'python3 train.py --save-dir "$AICRUN_CHECKPOINT_DIR"\n', ""),
    ],
)
def test_only_what_the_script_itself_shows_is_written(tmp_path: Path, source: str, command: str, more: str) -> None:
    top = folder(tmp_path, {"train.py": source})
    text = draft_run_yaml(look_at(str(top)))
    assert f"command: {command}" in text
    assert more in text and ("path: out" in text or "out" in more) == bool(more)
    warned = {one.code for one in load_run_text(text.encode(), "run.yaml", str(top)).warnings}
    assert warned == ({"AIC-W209"} if more.startswith("#") else set())


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
def test_an_environment_that_lies_there_is_the_run_s(tmp_path: Path, name: str) -> None:
    top = folder(tmp_path, {"train.py": PLAIN, f"{name}/pyvenv.cfg": ""}, "a b")
    assert "\nsetup:" not in draft_run_yaml(look_at(str(top)))
    (top / name / "bin").mkdir()
    (top / name / "bin/python").symlink_to(sys.executable)
    text = drafted(top)
    spec = load_run_text(text.encode(), "run.yaml", str(top)).specs[0]
    assert spec.setup is not None and spec.setup.venv == str(top / name)
    assert spec.command == ("python train.py",)
    (top / "requirements.txt").write_text("numpy\n")
    assert "requirements: requirements.txt" in drafted(top)


def test_files_that_cannot_be_read_count_as_empty(tmp_path: Path) -> None:
    top = folder(tmp_path, {"a.py": "\n" * 300_000})
    (top / "train.py").symlink_to(top / "nowhere.py")
    (top / "requirements.txt").mkdir()
    (top / "b.py").write_bytes(b"\xff\xfe if __name__")
    facts = look_at(str(top))
    assert (facts.requirements, facts.wants_card) == ("", False)


def test_pyproject_and_lock_are_seen(tmp_path: Path) -> None:
    facts = look_at(str(folder(tmp_path, {"pyproject.toml": "", "uv.lock": "", "train.py": PLAIN})))
    assert (facts.has_pyproject, facts.has_lock) == (True, True)
    drafted(tmp_path / "sft")


NAMES = st.text(min_size=1, max_size=80).filter(lambda name: "/" not in name and "\0" not in name)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(NAMES, st.from_regex(r"[\w. -]{1,40}\.py", fullmatch=True), st.booleans(), st.booleans())
def test_whatever_the_names_are_the_draft_is_valid(name: str, script: str, card: bool, requirements: bool) -> None:
    from aicrun.spec.detect import run_name  # the one part of look_at that names go through

    facts = FolderFacts(
        "/x", run_name(script, f"/x/{name}"), script, "", "requirements.txt" if requirements else "", wants_card=card
    )
    spec = load_run_text(draft_run_yaml(facts).encode(), "run.yaml", "").specs[0]
    assert script in spec.command[0]


def test_a_project_with_a_lock_is_installed_as_one(tmp_path: Path) -> None:
    files = {"pyproject.toml": '[project]\nname = "sft"\n', "uv.lock": "version = 1\n", "train.py": TRAIN}
    text = drafted(folder(tmp_path, {**files, "requirements.txt": "torch\n"}))
    assert "setup:\n  project: true" in text
    assert "command: python train.py" in text
    bare = drafted(folder(tmp_path, {"pyproject.toml": "", "train.py": PLAIN}, "bare"))
    assert "uv lock" in bare


def test_a_program_that_knows_the_folder_by_itself_is_not_warned_of(tmp_path: Path) -> None:
    files = {"src/pkg/train.py": "import os\nos.environ['AICRUN_CHECKPOINT_DIR']\n", "src/other.py": "", "t.sh": "x"}
    top = folder(tmp_path, files)
    lead = "version: 1\nname: sft-run\nmachine: {gpu: 20GiB}\n"
    for command, warned in (
        ("python pkg/train.py", False),
        ("torchrun --standalone -m pkg.train", False),
        ("python other.py", True),
        ("python gone.py", True),
        ("python src/pkg/train.py", True),
    ):
        text = f"{lead}source: {{path: src}}\ncommand: {command}\n"
        codes = [one.code for one in load_run_text(text.encode(), "run.yaml", str(top)).warnings]
        assert codes == (["AIC-W209"] if warned else []), command
