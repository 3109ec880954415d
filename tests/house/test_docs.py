"""The docs say what is there: links lead somewhere, tables and screens are those of the program, every key is told."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import click
import pytest
from house.blueprint import ARROWS
from support import REPOSITORY

from aicrun.cli.main import COMMANDS, cli
from aicrun.spec.unsupported import NOT_YET, RESERVED
from aicrun.wire.checkpoint import Checkpoint, Checkpointed
from aicrun.wire.names import ATTEMPT, CHECKPOINT_DIR, GPU_UUID, GPU_UUIDS, JOB_ID, PORT, RESUME_FROM, VARIABLES
from aicrun.wire.status import Status

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "benchmarks").glob("*.md")]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _read(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def _anchors(text: str) -> set[str]:
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in _anchors(target.read_text("utf-8")), f"{page.name} links to {link}"


def test_the_table_of_arrows_is_the_one_that_is_held() -> None:
    told: dict[str, set[str]] = {}
    for left, right in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|$", _read("docs/architecture.md"), re.MULTILINE):
        for room in re.findall(r"`([\w.]+)`", left):
            told[room] = set(re.findall(r"`([\w.]+)`", right))
    for room, allowed in ARROWS.items():
        if room not in ("version", "errors"):
            assert told[room] == {name.removeprefix("aicrun.") for name in allowed}, room


def test_every_key_of_a_run_is_in_the_guide_and_so_is_what_is_not_built() -> None:
    guide = _read("docs/run-yaml.md")
    unbuilt = guide[guide.index("## In the grammar, not built yet") : guide.index("## How it is read")]
    for key in json.loads(_read("schemas/run.schema.json"))["properties"]:
        assert re.search(rf"\b{key}\b", guide), f"{key} is not in docs/run-yaml.md"
    for path in (*(row[0] for row in NOT_YET), *((word,) for word in RESERVED)):
        assert f"`{'.'.join(map(str, path))}`" in unbuilt, f"docs/run-yaml.md does not say that {path} is not built"


def test_exit_codes_are_told_as_they_are() -> None:
    frozen = json.loads(_read("tests/golden/exit_codes.json"))["codes"]
    told = {int(code) for code in re.findall(r"\| (\d+) \| [^|]+(?=\|)", _read("docs/promises.md"))}
    assert told == set(frozen.values()) - {143}


def _fenced(page: str, mark: str) -> str:
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```", _read(page), re.DOTALL)
    assert found, f"{page} has no block marked {mark}"
    return found[1]


def test_the_screens_in_the_readme_are_those_of_the_program() -> None:
    """Whole lines in their order, from the first on; `…` alone on a line stands for what is left out."""
    names = re.findall(r"<!-- golden: (\S+) -->", _read("README.md"))
    assert len(names) == 2
    for name in names:
        rest = _read(f"tests/golden/screens/{name}").splitlines()
        for line in _fenced("README.md", f"golden: {name}").splitlines():
            if line.strip() != "…" and not line.startswith("$ "):
                assert line in rest, f"not in {name} (or not in this order): {line!r}"
                rest = rest[rest.index(line) + 1 :]


def test_the_spec_in_the_readme_is_a_part_of_the_one_that_is_run() -> None:
    rest = _read("specs/digits/run.yaml").splitlines()
    for line in _fenced("README.md", "part of specs/digits/run.yaml").splitlines():
        assert line in rest, f"not in specs/digits/run.yaml (or not in this order): {line!r}"
        rest = rest[rest.index(line) + 1 :] if line else rest


def test_the_readme_is_one_screen() -> None:
    text = _read("README.md")
    assert len(text.splitlines()) <= 110
    assert max(map(len, text.splitlines())) <= 120


def test_targets_that_the_docs_name_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^(\w+):", _read("Makefile"), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"`?make (\w+)`?(?= {2,}|`)", page.read_text("utf-8")):
            assert target in targets, f"{page.name} names make {target}"


def test_scripts_are_runnable_and_parse() -> None:
    for script in ("tests/run", ".ci/run"):
        path = REPOSITORY / script
        assert path.stat().st_mode & 0o111, f"{script} is not executable"
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = _read("LICENSE")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in _read("pyproject.toml")


def test_no_file_names_a_machine_that_it_was_written_on() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    places = re.compile(r"/(?:work|root)/\w|\.library\b")
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if path.is_file() and name != "tests/house/test_docs.py":
            found = places.search(path.read_bytes().decode("utf-8", "replace"))
            assert not found, f"{name} names {found[0]!r}"


def _typed(command: click.Command, words: str) -> list[tuple[str, set[str]]]:
    """(words, long options of its own) of a command and those below it."""
    own = {name for one in command.params if isinstance(one, click.Option) for name in one.opts if name[:2] == "--"}
    below = command.commands if isinstance(command, click.Group) else {}
    return [(words, own)] + [row for name, one in below.items() for row in _typed(one, f"{words} {name}")]


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    page = _read("docs/commands.md")
    context = click.Context(cli)
    for command in COMMANDS:
        found = cli.get_command(context, command)
        assert found is not None
        for words, options in _typed(found, command):
            assert re.search(rf"`{words}[ `]", page), f"docs/commands.md has no {words}"
            for option in options:
                assert re.search(rf"`{option}[ `]|, `{option}`", page), f"docs/commands.md has no {option} of {words}"


def test_every_key_of_a_machine_and_every_variable_is_told() -> None:
    guide = _read("docs/run-yaml.md") + _read("docs/hosts.md")
    keys = json.loads(_read("schemas/machines.schema.json"))["properties"]["machines"]["items"]
    for key in _properties(keys):
        assert re.search(rf"\b{key}\b", guide), f"{key} of machines.yaml is told nowhere"
    for name in (*VARIABLES.values(), JOB_ID, CHECKPOINT_DIR, RESUME_FROM, ATTEMPT, PORT, GPU_UUID, GPU_UUIDS):
        assert f"`{name}`" in guide, f"{name} is told nowhere"
    page = _read("docs/commands.md")
    for name in ("AICRUN_MACHINES", "AICRUN_SSH_CONFIG", "AICRUN_ASCII", "NO_COLOR", "COLUMNS"):
        assert f"`{name}`" in page, name


def _properties(schema: object) -> set[str]:
    if isinstance(schema, list):
        return {key for one in schema for key in _properties(one)}
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", {}))


def test_every_document_and_field_of_a_job_is_on_the_page_of_json() -> None:
    page = _read("docs/json.md")
    shapes = json.loads(_read("tests/golden/envelopes.json"))
    for field in shapes["wait"]:
        assert field == "passed" or f"`{field}`" in page, f"docs/json.md does not tell {field} of a job"
    for field in shapes["error"]:
        assert re.search(rf"\b{field}\b", page), field
    for status in Status:
        assert f"`{status.value}`" in page
    for kind in (Checkpoint, Checkpointed):
        for name in kind.__annotations__:
            assert f"`{name}`" in page, f"docs/json.md does not tell {name} of a checkpoint"
    sources = "".join(path.read_text("utf-8") for path in (REPOSITORY / "aicrun/cli").rglob("*.py"))
    for kind in set(re.findall(r'document\("([a-z]+_[a-z]+)"', sources)):
        assert f"`{kind}`" in page, f"docs/json.md does not tell the kind {kind}"
