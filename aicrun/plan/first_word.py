"""The first word of a command on its machine: whether it is a program, which Python it is, what the survey asks for it.

It must not refuse: between the plan and the start a person may put it there. Where an environment or a command of the
setup may bring it, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aicrun.plan import words
from aicrun.plan.draft import Site
from aicrun.plan.inputs import own_path
from aicrun.plan.placeholders import fill
from aicrun.plan.places import as_asked, asked_values
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire.facts import Program
from aicrun.wire.jobs import JobRequest

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=[\w@%+:,./-]*\s+")
# A plain word with nothing behind it that would make it something else, the name of a function say.
_WORD = re.compile(r"([\w.+~/-]+)(?=\s*[;&|<>]|\s+[^(\s]|\s*\Z)")
# An interpreter that the PATH decides on.
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
# What a shell brings itself, and its own words.
_OF_THE_SHELL = """
. : alias bg break builtin bye case cd command continue coproc declare dirs do done echo elif else enable esac eval
exec exit export false fc fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd
printf pushd pwd read readarray readonly return select set shift shopt source suspend test then time times trap true
type typeset ulimit umask unalias unset until wait while
"""


def programs_to_ask(specs: Iterable[RunSpec], machine: Machine) -> tuple[tuple[str, str], ...]:
    """(first word, PATH that the job sets itself, else empty) of each command that a plan will judge, each once."""
    values = asked_values(machine)
    found: dict[tuple[str, str], None] = {}
    for spec in specs:
        filled = {**values, "run.name": spec.name}
        word = first_word(tuple(fill(part, filled) for part in spec.command), spec.is_argv)
        path = own_path(spec, machine)
        if word and not _may_be_brought(spec):
            found[word, path] = None
            found.update({(place, ""): None for place in _in_venv(word, spec, machine)})
    return tuple(found)


def first_word_warnings(spec: RunSpec, site: Site, made: JobRequest) -> tuple[str, ...]:
    """One when the word is known to be no program there; none where that is not known."""
    word = first_word(made.command, spec.is_argv)
    known = {(one.word, one.path): one for one in site.reading.programs}
    answer = known.get((word, made.env.get("PATH", "")))
    if not word or answer is None or _may_be_brought(spec) or _is_there(answer, made, site.reading.envs_ready):
        return ()
    in_venv = [known.get((place, "")) for place in _in_venv(word, spec, site.machine)]
    if any(found is None or found.place for found in in_venv):
        return ()
    shown = words.harmless(word)
    if "/" in word:
        return (f"{site.machine.name}: {shown} is no program there that this account may execute",)
    folders = ", ".join(words.harmless(folder) for folder in answer.searched.split(":"))
    listed = f"name its folder under path: of {site.machine.name} in machines.yaml"
    way = f"write its full path, {listed}, or have setup: bring it"
    return (f"{site.machine.name}: {shown} is not on the PATH that the job will have there: {folders}; {way}",)


def interpreter_rows(spec: RunSpec, site: Site, made: JobRequest) -> tuple[tuple[str, str], ...]:
    """Which Python runs where the spec leaves that to the machine; none where it names one, or has a setup."""
    word = first_word(made.command, spec.is_argv)
    if spec.setup is not None or not _PYTHON.fullmatch(word):
        return ()
    path = made.env.get("PATH", "")
    answer = next((one for one in site.reading.programs if (one.word, one.path) == (word, path)), None)
    if answer is None or not answer.place:
        return ()
    version = next((f" {one.version}" for one in site.reading.pythons if one.path == answer.place), "")
    return (("python", f"{words.harmless(answer.place + version)}, the machine's own, for there is no setup"),)


def first_word(command: tuple[str, ...], is_argv: bool) -> str:
    """The program that a command begins with; empty where only a shell could tell, or the path is of its own tree."""
    if is_argv:
        word = command[0] if command else ""
    else:
        text = "\n".join(command).replace("\\\n", " ")
        lines = (line.strip() for line in text.split("\n"))
        line = next((line for line in lines if line and not line.startswith("#")), "")
        word = _of_line(line)
    is_relative = "/" in word and not word.startswith(("/", "~/"))
    return "" if is_relative or "${" in word else word


def _of_line(line: str) -> str:
    while (assigned := _ASSIGNMENT.match(line)) is not None:
        if assigned.group(1) == "PATH":
            return ""
        line = line[assigned.end() :]
    found = _WORD.match(line)
    if found is None or found.group(1) in _OF_THE_SHELL.split() or found.group(1).startswith("-"):
        return ""
    return found.group(1)


def _in_venv(word: str, spec: RunSpec, machine: Machine) -> tuple[str, ...]:
    """Where a word would be in the environment of the machine that the run uses as it is; none without one."""
    venv = as_asked(spec.setup.venv, spec, machine) if spec.setup is not None else ""
    return (f"{venv}/bin/{word}",) if venv and "/" not in word else ()


def _may_be_brought(spec: RunSpec) -> bool:
    return spec.setup is not None and bool(spec.setup.run)


def _is_there(answer: Program, made: JobRequest, ready: Iterable[str]) -> bool:
    """True also where it cannot be known: in an environment that is still to be built."""
    key = made.setup.key
    return bool(answer.place) or (bool(key) and (key not in ready or key in answer.envs))
