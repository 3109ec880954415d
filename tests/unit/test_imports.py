"""What the quick commands import: start-up stays short because nothing heavy is loaded before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from frozen import frozen
from support import REPOSITORY, Person

# Prints the modules that a command had imported when it ended, behind its own output.
PROGRAM = """
import atexit, json, sys
before = set(sys.modules)
atexit.register(lambda: sys.stderr.write("\\n" + json.dumps(sorted(set(sys.modules) - before))))
sys.argv = ["aicrun", *sys.argv[1:]]
from aicrun.__main__ import main
main()
"""

# None of the quick commands asks a machine, so none may load what asks.
HEAVY = ("fabric", "paramiko", "invoke", "pynvml", "sqlite3", "asyncio", "ssl", "multiprocessing", "aicrun.hosts")

COMMANDS = {
    "--version": ("--version",),
    "--help": ("--help",),
    "validate": ("validate", str(REPOSITORY / "specs/digits/run.yaml")),
}
ALSO_NOT = {
    "--version": ("rich", "yaml", "jsonschema", "aicrun.spec", "aicrun.plan", "aicrun.lifecycle"),
    "--help": ("rich", "yaml", "jsonschema", "aicrun.spec", "aicrun.plan", "aicrun.lifecycle"),
    "validate": ("rich", "jsonschema"),
}


def _imported(person: Person, *arguments: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=dict(person.env, PYTHONPATH=str(REPOSITORY)),
        cwd=person.home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stderr.splitlines()[-1]))


def _below(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    return sorted(name for name in modules if any(name == one or name.startswith(one + ".") for one in packages))


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_loaded(command: str, person: Person) -> None:
    assert not _below(_imported(person, *COMMANDS[command]), HEAVY + ALSO_NOT[command])


def test_the_modules_each_quick_command_imports(person: Person) -> None:
    """Ours by name, others by package; a new one is a choice that the reviewer sees."""
    listed = {}
    for command, arguments in COMMANDS.items():
        modules = _imported(person, *arguments)
        ours = sorted(name for name in modules if name.split(".")[0] == "aicrun")
        packages = {name.split(".")[0] for name in modules} - {"aicrun"} - sys.stdlib_module_names
        theirs = sorted(name for name in packages if not name.startswith(("_", "cython_runtime", "sitecustomize")))
        listed[command] = {"ours": ours, "theirs": theirs}
    frozen("imports", listed)


def test_the_package_itself_imports_nothing() -> None:
    text = Path(REPOSITORY / "aicrun/__init__.py").read_text("utf-8")
    assert "import " not in text.split('"""')[2]
