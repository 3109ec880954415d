"""What the quick commands import: start-up stays short because nothing heavy is loaded before it is needed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from frozen import frozen
from support import REPOSITORY, Person

from aicrun.hosts.bundle import build
from aicrun.wire.calls import write_request

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


# An agent is a process of its own for each command of a client: what it loads is time and processor of each.
AGENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import boot
boot.main(["serve"])
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
"""
DEAR = (
    "dataclasses",
    "inspect",
    "glob",
    "signal",
    "subprocess",
    "threading",
    "string",
    "ctypes.util",
    "mmap",
    "resource",
)
OF_STARTS = (
    "aicrun.agent.keeper",
    "aicrun.agent.keepers",
    "aicrun.agent.launch",
    "aicrun.agent.pump",
    "aicrun.agent.build",
)
OF_JOBS = ("aicrun.agent.jobs", "aicrun.agent.facts", "aicrun.agent.environment", "aicrun.wire.status")


def _loaded_by_agent(folder: Path, home: Path, **question: object) -> set[str]:
    asked = io.BytesIO()
    write_request(asked, "hello", {"marker": "a" * 32, "protocol": [1, 1], "digest": ""})
    if question:
        write_request(asked, "survey", {"question": question})
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", AGENT, str(folder)],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        input=asked.getvalue(),
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert b'"refused"' not in ran.stdout
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_an_agent_loads_what_the_question_needs(tmp_path: Path) -> None:
    for path, content in build().files:
        place = tmp_path / "agent" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    folder = tmp_path / "agent"
    # The first one sweeps, and asks each Python for its version, once for all.
    _loaded_by_agent(folder, tmp_path, runs=[], cards=True)
    assert not _below(_loaded_by_agent(folder, tmp_path), (*DEAR, *OF_STARTS, *OF_JOBS, "aicrun.wire.jobs", "ctypes"))
    assert not _below(_loaded_by_agent(folder, tmp_path, runs=[], cards=True), (*DEAR, *OF_STARTS, *OF_JOBS))
    assert _below(_loaded_by_agent(folder, tmp_path, runs=["sft-run"], cards=True), OF_JOBS)
