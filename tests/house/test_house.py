"""The house stands: every rule holds for every file of the repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import arrows, rules
from house.rules import Fault
from house.sources import House, read_house
from support import REPOSITORY

ALL = (*arrows.RULES, *rules.RULES)


@pytest.fixture(scope="module")
def house() -> House:
    return read_house(REPOSITORY)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.__name__)
def test_the_rule_holds(rule: Callable[[House], Iterator[Fault]], house: House) -> None:
    faults = sorted(map(str, rule(house)))
    assert not faults, f"{rule.__doc__}\n" + "\n".join(faults)


def _interpreter(version: str) -> Path:
    found = next(iter((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python{version}")), None)
    if found is None:
        pytest.skip(f"no Python {version} here (pyenv's folder is looked at); the parser's own check has run")
    return found


def _modules(house: House, *prefixes: str) -> list[str]:
    return [source.module for source in house.of(*prefixes) if not source.path.endswith("__main__.py")]


def test_what_is_shipped_imports_on_a_real_python_3_8(house: House) -> None:
    names = [name for name in _modules(house, "aicrun/agent/", "aicrun/wire/") if not name.endswith(".boot")]
    program = f"import sys, importlib; sys.path.insert(0, {str(REPOSITORY)!r})\n"
    program += f"for name in {names!r}: importlib.import_module(name)"
    ran = subprocess.run([_interpreter("3.8"), "-I", "-S", "-B", "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_first_file_of_all_compiles_on_a_real_python_3_6() -> None:
    boot = REPOSITORY / "aicrun/agent/boot.py"
    program = "import sys; compile(open(sys.argv[1], encoding='utf-8').read(), sys.argv[1], 'exec')"
    ran = subprocess.run([_interpreter("3.6"), "-I", "-B", "-c", program, boot], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_nothing_that_git_keeps_is_a_link() -> None:
    """A link leads where only its maker has something; a folder of one machine came into the tree that way once."""
    told = subprocess.run(["git", "ls-files", "-s"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("this is no clone: git does not know what it keeps")
    kept = [line.split(maxsplit=3) for line in told.stdout.splitlines()]
    assert len(kept) > 100
    assert [name for mode, _, _, name in kept if mode == "120000"] == []
