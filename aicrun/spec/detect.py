"""What `aicrun init` sees in a folder, and the first run.yaml it writes of it.

It reads names and small files of one folder; it runs nothing, follows no network and asks nothing. What it writes uses
only fields that this version supports, and is valid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from aicrun.spec.unsupported import meanwhile, upload_example
from aicrun.spec.values import as_yaml

_MOST_READ_BYTES = 256 * 1024
_MOST_SCRIPTS = 500
_REQUIREMENTS = ("requirements.txt", "requirements-train.txt")
_SKIPPED = frozenset(("node_modules", "venv", "env", "build", "dist", "site-packages", "__pycache__", "tests", "test"))
# Names of training scripts as people give them, the surest first.
_NAMES = ("train", "sft", "finetune", "fine_tune", "pretrain", "trainer", "run_train", "main", "run")
_CARD_PACKAGES = re.compile(
    r"(?:^|[\[,])[ \t]*[\"']?(?:torch|torchvision|pytorch-lightning|lightning|transformers|trl|peft|"
    r"accelerate|deepspeed|vllm|bitsandbytes|flash-attn|unsloth|diffusers|jax\[cuda[^\]]*\]|tensorflow(?:\[and-cuda\])?|cupy[\w-]*)"
    r"(?![\w-])",
    re.IGNORECASE | re.MULTILINE,
)
_CARD_IMPORTS = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:torch|transformers|trl|peft|lightning|deepspeed|jax)\b", re.MULTILINE
)
_MAIN = re.compile(r"^if\s+__name__\s*==\s*[\"']__main__[\"']", re.MULTILINE)
_ARGUMENTS = re.compile(r"\b(?:argparse|click|typer|fire|tyro|HfArgumentParser|simple_parsing)\b")
# Its flags are fields of a class of the library.
_PARSED_CLASS = re.compile(
    r"\b(?:HfArgumentParser|TrlParser)\b(?s:.*)\b\w*(?:TrainingArguments|SFTConfig|DPOConfig|GRPOConfig)\b"
)
_READS_FOLDER = re.compile(r"AICRUN_CHECKPOINT_DIR")
# A folder below the script's own that the script names itself.
_SAVES = re.compile(
    r"\b(?:output_dir|out_dir|save_dir|checkpoint_dir|ckpt_dir|checkpoints_dir)\s*=\s*[rf]?[\"'](\w[\w.-]*(?:/[\w.-]+)*)/?[\"']"
)
_VENVS = (".venv", "venv", "env")
_OUTPUT = re.compile(r"[\"'](--(?:out(?:put)?(?:[-_]dir)?|save[-_]dir|checkpoint[-_]dir|ckpt[-_]dir))[\"']")


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder as `init` sees it. Paths are relative with `/`; an empty text means that there is none.

    `script` is the likely training script, `output_flag` its flag for the place of checkpoints, `saves_in` the folder
    that it names itself; `reads_folder` is True where it reads $AICRUN_CHECKPOINT_DIR. `venv` is the name of an
    environment that lies there. `wants_card` is True when its packages or imports are those of training on cards.
    """

    folder: str
    name: str
    script: str = ""
    output_flag: str = ""
    requirements: str = ""
    has_pyproject: bool = False
    has_lock: bool = False
    in_git: bool = False
    wants_card: bool = False
    saves_in: str = ""
    reads_folder: bool = False
    venv: str = ""

    @property
    def has_environment(self) -> bool:
        """Whether anything says what is to be installed; without it the command has what the machine has."""
        return bool(self.requirements or self.venv or (self.has_pyproject and self.has_lock))


def look_at(folder: str) -> FolderFacts:
    """What `folder` holds. Raises `OSError` when it cannot be listed; files that cannot be read count as empty."""
    top = os.path.abspath(folder)
    names = os.listdir(top)
    scripts = sorted(_scripts(top), key=lambda found: found[0])
    script, source = min(scripts, key=_rank, default=("", ""))
    requirements = next((name for name in _REQUIREMENTS if os.path.isfile(os.path.join(top, name))), "")
    packages = _read(os.path.join(top, requirements)) if requirements else ""
    pyproject = _read(os.path.join(top, "pyproject.toml"))
    saves = _SAVES.search(source)
    return FolderFacts(
        folder=top,
        name=run_name(script, top),
        script=script,
        output_flag=_output_flag(source),
        requirements=requirements,
        has_pyproject="pyproject.toml" in names,
        has_lock="uv.lock" in names,
        in_git=_in_git(top),
        wants_card=bool(_CARD_PACKAGES.search(packages + "\n" + pyproject) or _CARD_IMPORTS.search(source)),
        saves_in=saves[1] if saves else "",
        reads_folder=bool(_READS_FOLDER.search(source)),
        venv=next((name for name in _VENVS if _is_venv(os.path.join(top, name))), ""),
    )


def _output_flag(source: str) -> str:
    """The flag that the script's own text shows to take the folder of checkpoints; a guessed one would be refused."""
    flag = _OUTPUT.search(source)
    return flag[1] if flag else "--output_dir" if _PARSED_CLASS.search(source) else ""


def _is_venv(folder: str) -> bool:
    there = os.path.isfile(os.path.join(folder, "pyvenv.cfg"))
    return there and os.access(os.path.join(folder, "bin", "python"), os.X_OK)


def draft_run_yaml(facts: FolderFacts) -> str:
    """The text of a first run.yaml: valid, with what was found as real lines and wishes as comments."""
    parts = [f"version: 1\nname: {facts.name}"]
    if facts.wants_card:
        parts.append("machine:\n  gpu: 20GiB            # free memory the run needs; aicrun finds the card")
    is_project = facts.has_pyproject and facts.has_lock
    if facts.script or facts.requirements or is_project:
        words = "what git knows below this folder" if facts.in_git else "all files below this folder"
        parts.append(f"source:\n  path: .               # {words}")
    if is_project:
        parts.append("setup:\n  project: true         # what uv.lock names, and the project itself")
    elif facts.requirements:
        parts.append(f"setup:\n  requirements: {facts.requirements}")
    elif facts.venv:
        place = as_yaml(os.path.join(facts.folder, facts.venv))
        parts.append(f"setup:\n  venv: {place}  # used as it is; requirements: or packages: builds one anywhere")
    elif facts.has_pyproject:
        parts.append("# setup:\n#   project: true       # once there is a uv.lock: uv lock")
    elif facts.script:
        told = "# setup:                # without it: the machine's own python3, with what it has"
        parts.append(f"{told}\n#   packages: [torch]   # or requirements: FILE, or venv: FOLDER")
    parts.append(f"command: {_command(facts)}")
    if _names_its_folder(facts):
        told = f"the folder that {facts.script} names"
        parts.append(
            f"checkpoints:\n  path: {as_yaml(facts.saves_in)}  # {told}\n  # upload: {{to: {upload_example()}}}"
        )
    parts.append("\n".join(_wishes(facts)))
    return "\n\n".join(parts) + "\n"


def _command(facts: FolderFacts) -> str:
    if not facts.script:
        # It fails: a run that did nothing has not succeeded.
        return 'echo "write the command that trains into run.yaml" >&2; exit 1'
    script = facts.script if re.fullmatch(r"[\w./-]+", facts.script) else "'" + facts.script + "'"
    interpreter = "python" if facts.has_environment else "python3"
    flag = f' {facts.output_flag} "$AICRUN_CHECKPOINT_DIR"' if facts.output_flag else ""
    return f"{interpreter} {script}{flag}"


def _names_its_folder(facts: FolderFacts) -> bool:
    return bool(facts.saves_in) and not facts.output_flag and not facts.reads_folder


def _wishes(facts: FolderFacts) -> Iterator[str]:
    if not _names_its_folder(facts):
        yield "# checkpoints:          # uploads as the run's own last step, and verifies it"
        if facts.script and not facts.output_flag and not facts.reads_folder:
            yield "#   path: out           # where the script saves; or let it read $AICRUN_CHECKPOINT_DIR"
        yield f"#   upload: {{to: {upload_example()}}}"
    yield "# limits: {max_duration: 12h}  # asked to end after it; without it, never"
    if not meanwhile("secrets"):
        yield "# secrets: [HF_TOKEN]   # names only; values come from your environment"
    if not meanwhile("resume"):
        yield "# resume: {from: latest}  # the command finds its start in $AICRUN_RESUME_FROM"
    yield "#"
    yield "# every field: aicrun explain run"


def _scripts(top: str) -> Iterator[tuple[str, str]]:
    """(relative path, source) of Python files with a main part, at most two folders deep."""
    seen = 0
    for folder, folders, files in os.walk(top):
        depth = os.path.relpath(folder, top).count(os.sep) + (folder != top)
        folders[:] = (
            sorted(one for one in folders if one not in _SKIPPED and not one.startswith(".")) if depth < 2 else []
        )
        for name in sorted(files):
            if not name.endswith(".py") or not re.fullmatch(r"[\w. -]+", name):
                continue
            seen += 1
            if seen > _MOST_SCRIPTS:
                return
            path = os.path.relpath(os.path.join(folder, name), top).replace(os.sep, "/")
            source = _read(os.path.join(folder, name))
            if _MAIN.search(source) or _stem(path) in _NAMES[:6]:
                yield path, source


def _rank(found: tuple[str, str]) -> tuple[int, int, int, str]:
    """Named for training first, then those that take arguments, then those near the top."""
    path, source = found
    stem = _stem(path)
    by_name = next((at for at, name in enumerate(_NAMES) if stem == name), len(_NAMES))
    if by_name == len(_NAMES) and "train" in stem:
        by_name -= 3
    return by_name, 0 if _ARGUMENTS.search(source) else 1, path.count("/"), path


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".py").lower()


def run_name(script: str, top: str) -> str:
    """A valid name for a run: of the folder `top`, or of the script where that says more."""
    stem = _stem(script)
    chosen = f"{stem}-run" if stem and stem not in ("main", "run", "train", "trainer") else os.path.basename(top)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", chosen).strip("-_")[:63].strip("-_")
    return name if len(name) >= 3 else f"{name or 'my'}-run"


def _in_git(folder: str) -> bool:
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
    return True


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
