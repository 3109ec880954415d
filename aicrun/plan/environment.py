"""The environment a run is set up in: which interpreter, what its build reads, its key and its final folder.

It must not build anything: the host does, and finds a complete environment by the same key.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from aicrun.plan import words
from aicrun.plan.locks import LOCK, PYPROJECT
from aicrun.plan.model import Wanted
from aicrun.plan.placeholders import fill
from aicrun.plan.places import absolute, as_asked, environments, machine_values
from aicrun.plan.versions import admits
from aicrun.spec.model import Machine, RunSpec, SetupSpec
from aicrun.wire.facts import HostReading, Python
from aicrun.wire.hashes import env_key, sha256
from aicrun.wire.jobs import Setup

# Oldest interpreter that an environment is built from when the spec asks for none in particular.
PYTHON_LEAST = ">=3.8"
# Lines of a requirements file that reach into the source tree, so that its contents belong to the key.
_LOCAL = re.compile(
    r"^\s*(?:-e\b|--editable\b|-r\b|--requirement\b|-c\b|--constraint\b|\.{1,2}(?:/|\[|\s|$)|\S+/|.*@\s*file:)"
)
# What a build reads, as people call it.
_NAMES = {
    "requirements": "setup.requirements",
    "packages": "setup.packages",
    "lock": "setup.lock",
    "pyproject": "pyproject.toml",
    "project": "setup.project",
    "source_tree": "the source",
    "python": "python",
    "python_path": "python",
    "driver": "the driver",
    "torch_backend": "setup.torch_backend",
    "index": "setup.index",
    "wheels": "the folder of wheels",
    "uv": "uv's variables in env",
    "architecture": "the machine",
    "libc": "the machine's C library",
}
_ADDRESS = re.compile(r"^\s*[a-z+]+://")


def has_environment(setup: SetupSpec) -> bool:
    """Whether an environment of ours is built; extra commands alone need none."""
    return bool(setup.python or setup.packages or setup.requirements or setup.lock or setup.project)


def chosen_python(setup: SetupSpec, reading: HostReading) -> Python | None:
    """The first interpreter of the host that the range admits; None when there is none."""
    wanted = setup.python or PYTHON_LEAST
    return next((python for python in reading.pythons if admits(wanted, python.version)), None)


def reaches_into_tree(requirements: str) -> bool:
    """Whether a requirements text installs or includes files of the source tree."""
    return any(_LOCAL.match(line) and not _ADDRESS.match(line) for line in requirements.splitlines())


def files_read(setup: SetupSpec | None) -> tuple[str, ...]:
    """The files of this client that the plan of such a setup reads, relative to the source or the spec's folder."""
    if setup is None:
        return ()
    found = [setup.requirements] if setup.requirements else []
    if setup.lock:
        found += [setup.lock, posixpath.join(posixpath.dirname(setup.lock), PYPROJECT)]
    return (*found, PYPROJECT, LOCK) if setup.project else tuple(found)


def setup_on(wanted: Wanted, machine: Machine, reading: HostReading) -> Setup:
    """The setup step of the run on this machine; its `key` is empty when no environment of ours is built.

    The caller has made sure that an interpreter is there (`admit.CHECKS`) and that the files of `files_read` are.
    """
    setup = wanted.spec.setup
    if setup is None:
        return Setup()
    if setup.venv:
        venv = absolute(filled_here(setup.venv, wanted.spec, machine, reading), reading.home)
        return Setup(path=venv, run=setup.run, timeout_s=setup.timeout_s)
    python = chosen_python(setup, reading) if has_environment(setup) else None
    if python is None:
        return Setup(run=setup.run, timeout_s=setup.timeout_s)
    requirements = wanted.files.get(setup.requirements, "") if setup.requirements else ""
    lock, pyproject = _locked(setup, wanted)
    wheels = absolute(filled_here(setup.wheels, wanted.spec, machine, reading), reading.home) if setup.wheels else ""
    reads = _reads(wanted, python, reading, requirements)
    reads.update(_more_reads(wanted, machine, reading))
    key = env_key(reads)
    return Setup(
        key=key,
        path=posixpath.join(environments(machine, reading.home), key),
        python=python.path,
        python_version=python.version,
        packages=setup.packages,
        requirements=requirements,
        requirements_name=setup.requirements or setup.lock or (LOCK if setup.project else ""),
        torch_backend=setup.torch_backend,
        run=setup.run,
        timeout_s=setup.timeout_s,
        reads=reads,
        # Those of a project lie in the job's tree already.
        lock="" if setup.project else lock,
        pyproject="" if setup.project else pyproject,
        project=setup.project,
        index=setup.index,
        wheels=wheels,
    )


def why_built(wanted: Wanted, made: Setup, reading: HostReading) -> str:
    """Why the environment of the run's last job on this machine does not serve; empty where there was none.

    What that one was made of is the host's word: it is compared, and nothing of it is shown.
    """
    told = [
        (job.age_s, job.facts["setup"].get("reads"))
        for job in reading.jobs
        if job.run == wanted.spec.name and isinstance(job.facts.get("setup"), dict)
    ]
    last = next((reads for _, reads in sorted(told, key=lambda one: one[0]) if isinstance(reads, dict)), None)
    if last is None:
        return ""
    changed = dict.fromkeys(_NAMES.get(key, key) for key in made.reads if made.reads[key] != last.get(key))
    changed.update(dict.fromkeys(_NAMES[key] for key in last if key in _NAMES and key not in made.reads))
    file = words.harmless(made.requirements_name)
    named = [file if file and one in (_NAMES["requirements"], _NAMES["lock"]) else one for one in changed]
    return f"changed: {words.joined(tuple(named))}" if named else "the last one is gone"


def filled_here(written: str, spec: RunSpec, machine: Machine, reading: HostReading) -> str:
    """A path of the setup with this machine's values in it."""
    return fill(written, {**machine_values(machine, reading.home), "run.name": spec.name})


def lock_of(wanted: Wanted) -> str:
    """The text of the lock that the run installs from; empty when it has none."""
    setup = wanted.spec.setup
    return _locked(setup, wanted)[0] if setup is not None else ""


def _locked(setup: SetupSpec, wanted: Wanted) -> tuple[str, str]:
    """The texts of the lock and of the project file beside it."""
    names = files_read(setup)[-2:] if setup.lock or setup.project else ()
    texts = {posixpath.basename(name) == PYPROJECT: wanted.files.get(name, "") for name in names}
    return texts.get(False, ""), texts.get(True, "")


def _reads(wanted: Wanted, python: Python, reading: HostReading, requirements: str) -> dict[str, Any]:
    """What the build reads of every form; a key never changes while these do not."""
    setup = wanted.spec.setup or SetupSpec()
    reads: dict[str, Any] = {
        "architecture": reading.architecture,
        "libc": reading.libc,
        "packages": list(setup.packages),
        "python": python.version,
        "python_path": python.path,
        "requirements": sha256(requirements.encode("utf-8")) if requirements else "",
        "torch_backend": setup.torch_backend,
    }
    if setup.torch_backend == "auto":
        reads["driver"] = reading.cards.driver
    if wanted.source is not None and (setup.project or reaches_into_tree(requirements)):
        reads["source_tree"] = wanted.source.tree
    return reads


def _more_reads(wanted: Wanted, machine: Machine, reading: HostReading) -> dict[str, Any]:
    """What only some forms read; absent elsewhere, so that the keys of other environments stay."""
    spec, setup = wanted.spec, wanted.spec.setup or SetupSpec()
    lock, pyproject = _locked(setup, wanted)
    reads: dict[str, Any] = {"lock": sha256(lock.encode("utf-8"))} if lock else {}
    if lock:
        reads.update(pyproject=sha256(pyproject.encode("utf-8")), project=setup.project)
        # Groups and extras of a project are chosen by variables of uv.
        chosen = {key: value for key, value in {**machine.env, **spec.env}.items() if key.startswith("UV_")}
        reads.update({"uv": chosen} if chosen else {})
    if setup.index:
        reads["index"] = list(setup.index)
    if setup.wheels:
        asked = as_asked(setup.wheels, spec, machine)
        listing = next((one.listing for one in reading.wheels if one.path == asked), "")
        reads["wheels"] = [asked, listing]
    return reads
