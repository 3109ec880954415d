"""The inputs of a run that lie on the machine: what the survey asks for them, and where the job finds each.

It must not judge them (`admit.py` does) nor look at a disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aicrun.plan import words
from aicrun.plan.placeholders import names_in
from aicrun.plan.places import absolute, as_asked
from aicrun.spec.model import Machine, RunSpec
from aicrun.wire import names

# The one that programs of our ancestor look for by a name of its own.
CHECKPOINT = "checkpoint"


def variable(name: str) -> str:
    """The variable that holds an input's path."""
    return f"AICRUN_INPUT_{name.upper()}"


def inputs_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """Paths of `specs` on `machine`, each once, sorted; they may begin with `~`."""
    return tuple(sorted({path for spec in specs for path in _asked(spec, machine).values()}))


def inputs_at(spec: RunSpec, machine: Machine, home: str) -> dict[str, str]:
    """Each input's absolute path on the machine; one that names the data folder is left out where there is none."""
    return {name: absolute(path, home) for name, path in _asked(spec, machine).items()}


def _asked(spec: RunSpec, machine: Machine) -> dict[str, str]:
    found = {name: as_asked(path, spec, machine) for name, path in spec.inputs.items()}
    return {name: path for name, path in found.items() if path and not names_in(path)}


def input_variables(found: Mapping[str, str]) -> dict[str, str]:
    """The job's variables for its inputs."""
    env = {variable(name): path for name, path in found.items()}
    checkpoint = next((path for name, path in found.items() if name.lower() == CHECKPOINT), "")
    return {**env, names.INPUT_CHECKPOINT: checkpoint} if checkpoint else env


def input_words(found: Mapping[str, str]) -> str:
    """The inputs as a plan's row."""
    return ", ".join(f"{name} from {words.harmless(path)}" for name, path in found.items())
