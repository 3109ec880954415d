"""What the survey shall look at on a machine for the runs of one call. It must not ask anything itself."""

from __future__ import annotations

from collections.abc import Sequence

from aicrun.plan.placeholders import fill, names_in
from aicrun.plan.places import as_asked, asked_values, checkpoints_in_the_workspace, usual_volumes, volumes
from aicrun.spec.model import Machine, RunSpec

# A host looks at a hundred folders in one question; those of single runs must not crowd out the volumes.
OWN_MOST = 20


def paths_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """Folders whose volumes matter to `specs` on `machine`, each once, sorted; they may begin with `~`.

    A path that names `machine.data` is left out where the machine has none: the plan rejects it there.
    """
    values = asked_values(machine)
    found = {machine.data} if machine.data else set()
    found |= set(usual_volumes(machine)) if specs else set()
    folders = [(spec.name, written) for spec in specs for written in volumes(spec)]
    folders += [(spec.name, checkpoints_in_the_workspace(spec)) for spec in specs[:OWN_MOST]]
    for name, written in folders:
        needs_data = "machine.data" in names_in(written) and not machine.data
        filled = fill(written, {**values, "run.name": name}).partition("${")[0]
        if filled and not needs_data:
            found.add(filled)
    return tuple(sorted(found))


def interpreters_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[tuple[str, str], ...]:
    """The interpreter of each environment of the machine that `specs` use as it is, as `Question.programs` has it."""
    venvs = (as_asked(spec.setup.venv, spec, machine) for spec in specs if spec.setup is not None and spec.setup.venv)
    return tuple(dict.fromkeys((f"{venv}/bin/python", "") for venv in venvs if venv))


def wheels_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """The folders of wheels that `specs` install from on `machine`, each once."""
    found = (as_asked(spec.setup.wheels, spec, machine) for spec in specs if spec.setup is not None)
    return tuple(dict.fromkeys(path for path in found if path))
