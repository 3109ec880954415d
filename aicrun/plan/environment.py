"""The environment a run is set up in: which interpreter, what its build reads, its key and its final folder.

It must not build anything: the host does, and finds a complete environment by the same key.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from aicrun.plan.places import environments
from aicrun.plan.versions import admits
from aicrun.spec.model import Machine, RunSpec, SetupSpec
from aicrun.wire.facts import HostReading, Python
from aicrun.wire.hashes import env_key, sha256
from aicrun.wire.jobs import Setup, Source

# Oldest interpreter that an environment is built from when the spec asks for none in particular.
PYTHON_LEAST = ">=3.8"
# Lines of a requirements file that reach into the source tree, so that its contents belong to the key.
_LOCAL = re.compile(
    r"^\s*(?:-e\b|--editable\b|-r\b|--requirement\b|-c\b|--constraint\b|\.{1,2}(?:/|\[|\s|$)|\S+/|.*@\s*file:)"
)
_ADDRESS = re.compile(r"^\s*[a-z+]+://")


def has_environment(setup: SetupSpec) -> bool:
    """Whether an environment of ours is built; extra commands alone need none."""
    return bool(setup.python or setup.packages or setup.requirements)


def chosen_python(setup: SetupSpec, reading: HostReading) -> Python | None:
    """The first interpreter of the host that the range admits; None when there is none."""
    wanted = setup.python or PYTHON_LEAST
    return next((python for python in reading.pythons if admits(wanted, python.version)), None)


def reaches_into_tree(requirements: str) -> bool:
    """Whether a requirements text installs or includes files of the source tree."""
    return any(_LOCAL.match(line) and not _ADDRESS.match(line) for line in requirements.splitlines())


def setup_on(spec: RunSpec, machine: Machine, reading: HostReading, source: Source | None, requirements: str) -> Setup:
    """The setup step of the run on this machine; its `key` is empty when no environment of ours is built.

    The caller has made sure that an interpreter is there (`admit.CHECKS`) and that `requirements` is the file's text.
    """
    setup = spec.setup
    if setup is None:
        return Setup()
    python = chosen_python(setup, reading) if has_environment(setup) else None
    if python is None:
        return Setup(run=setup.run, timeout_s=setup.timeout_s)
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
    if source is not None and reaches_into_tree(requirements):
        reads["source_tree"] = source.tree
    key = env_key(reads)
    return Setup(
        key=key,
        path=posixpath.join(environments(machine, reading.home), key),
        python=python.path,
        python_version=python.version,
        packages=setup.packages,
        requirements=requirements,
        requirements_name=setup.requirements,
        torch_backend=setup.torch_backend,
        run=setup.run,
        timeout_s=setup.timeout_s,
        reads=reads,
    )
