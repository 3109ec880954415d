"""Folders of a machine that a run uses: data, cache, workspace, checkpoints, and the placeholders that name them.

It must not look at any disk: it only joins text. Paths that begin with `~` are made absolute by the reading's home.
"""

from __future__ import annotations

import posixpath

from aicrun.plan.placeholders import fill, names_in
from aicrun.spec.model import Machine, RunSpec

WORKSPACES = "~/aic-jobs"
# Folders that every job has, wherever the spec or the machine says that they lie.
CACHES = ("HF_HOME", "TORCH_HOME")
# Further ones that programs of a job fill, where they are set.
MORE_CACHES = ("UV_CACHE_DIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def absolute(path: str, home: str) -> str:
    """`path` without `~` and without `..`; a relative one is below `home`; the empty one stays empty."""
    if not path:
        return ""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return posixpath.normpath(posixpath.join(home, path))


def data(machine: Machine, home: str) -> str:
    """The machine's data folder, empty when its owner named none."""
    return absolute(machine.data, home)


def cache(machine: Machine, home: str) -> str:
    """Where caches lie: below the data folder, else the account's own cache."""
    below = data(machine, home)
    return posixpath.join(below, "cache") if below else absolute("~/.cache", home)


def environments(machine: Machine, home: str) -> str:
    """The folder that holds the built environments, each in a folder named by its key."""
    return posixpath.join(data(machine, home) or absolute("~/.local/share", home), "aicrun/envs")


def inputs(machine: Machine, home: str) -> str:
    """The folder that holds the inputs that were brought to the machine, each in a folder named by its key."""
    return posixpath.join(data(machine, home) or absolute("~/.local/share", home), "aicrun/inputs")


def machine_values(machine: Machine, home: str) -> dict[str, str]:
    """Values of the `machine.…` placeholders; `machine.data` is absent when the inventory names none."""
    values = {"machine.name": machine.name, "machine.cache": cache(machine, home)}
    if machine.data:
        values["machine.data"] = data(machine, home)
    return values


def asked_values(machine: Machine) -> dict[str, str]:
    """As `machine_values`, as far as they are known before the machine has said where its account's home is."""
    cache_folder = f"{machine.data}/cache" if machine.data else "~/.cache"
    return {"machine.name": machine.name, "machine.data": machine.data, "machine.cache": cache_folder}


def as_asked(written: str, spec: RunSpec, machine: Machine) -> str:
    """A path of the setup as the survey asks for it, `~` left to the machine; empty where it needs a data folder."""
    if "machine.data" in names_in(written) and not machine.data:
        return ""
    return fill(written, {**asked_values(machine), "run.name": spec.name}).rstrip("/")


def workspace(spec: RunSpec, machine: Machine, home: str) -> str:
    """The absolute workspace of the run on this machine (an unknown placeholder stays in it)."""
    written = spec.workspace or posixpath.join(WORKSPACES, spec.name)
    return absolute(fill(written, {**machine_values(machine, home), "run.name": spec.name}), home)


def workspace_volume(spec: RunSpec) -> str:
    """The folder whose volume the workspace will lie on; one for all runs that take the default."""
    return spec.workspace or WORKSPACES


def volumes(spec: RunSpec) -> tuple[str, ...]:
    """Every folder as written whose volume matters: workspace, disk demand, checkpoints, file target, own caches."""
    found = [workspace_volume(spec)]
    if spec.machine.disk is not None:
        found.append(spec.machine.disk.path)
    if spec.checkpoints.path.startswith(("/", "~", "${")):
        found.append(spec.checkpoints.path)
    upload = spec.checkpoints.upload
    if upload is not None and upload.scheme == "file":
        found.append(upload.to.partition(":")[2])
    caches = (spec.env.get(name, "") for name in (*CACHES, *MORE_CACHES))
    found += [written for written in caches if written.startswith(("/", "${machine.data}", "${machine.cache}"))]
    return tuple(dict.fromkeys(found))


def usual_volumes(machine: Machine) -> tuple[str, ...]:
    """Where what every job has lies unless its spec says otherwise, as the survey asks for it: caches, environments."""
    own = [machine.env[name] for name in (*CACHES, *MORE_CACHES) if machine.env.get(name, "").startswith("/")]
    share = machine.data or "~/.local/share"
    return (f"{share}/aicrun", machine.data or "~/.cache", *own)


def checkpoints_in_the_workspace(spec: RunSpec) -> str:
    """The checkpoint folder, as written, of a run that works in the user's own folder; empty for all others."""
    written = spec.checkpoints.path
    if spec.source is not None or not written or "${" in written or written.startswith(("/", "~")):
        return ""
    return posixpath.join(spec.workspace or posixpath.join(WORKSPACES, spec.name), written)


def volume_here(written: str, spec: RunSpec, machine: Machine, home: str) -> str:
    """A folder of `volumes` as it is called on this machine; empty when a placeholder has no value there."""
    filled = fill(written, {**machine_values(machine, home), "run.name": spec.name})
    if "machine.data" in names_in(filled):
        return ""
    # What is named by the run id is not known yet, and lies on the volume of the folder above it.
    return absolute(filled.partition("${")[0] or "/", home)
