"""What uv is asked for each form of `setup`.

Only `build.py` calls it. It writes the files that uv reads into a private folder, and must not run anything.
"""

import os
from typing import Dict, Iterator, List, Tuple

from aicrun.wire import lean
from aicrun.wire.jobs import Setup

# What names another source of packages than the spec did.
_SOURCES = (
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_TORCH_BACKEND",
)


@lean.dataclass(frozen=True)
class Install:
    """One call of uv: `words` for the log, `doing` for a failure, `folder` to stand in (empty: one without project)."""

    words: str
    doing: str
    argv: Tuple[str, ...]
    folder: str = ""


def environment_of(setup: Setup, env: Dict[str, str]) -> Dict[str, str]:
    """What uv finds in its environment: the environment it fills, and no other source of packages than the spec's."""
    found = dict(env, UV_PROJECT_ENVIRONMENT=setup.path)
    if setup.index or setup.wheels:
        found = {name: value for name, value in found.items() if name not in _SOURCES}
    return found


def installs(setup: Setup, uv: str, scratch: str, tree: str) -> Iterator[Install]:
    """The calls of uv that fill the environment, in order; each may rely on those before it."""
    if setup.lock or setup.project:
        yield from _locked(setup, uv, scratch, tree)
        return
    wanted = list(setup.packages)
    if setup.requirements:
        wanted += ["--requirement", _write(scratch, "requirements.txt", setup.requirements)]
    if wanted:
        backend = ["--torch-backend", setup.torch_backend] if setup.torch_backend not in ("", "none") else []
        what = setup.requirements_name or "packages"
        argv = _pip(setup, uv) + backend + _from(setup) + wanted
        yield Install("installing %s" % what, "installing the packages", tuple(argv))


def _locked(setup: Setup, uv: str, scratch: str, tree: str) -> Iterator[Install]:
    project = tree
    if not setup.project:
        project = os.path.join(scratch, "lock")
        os.makedirs(project, mode=0o700, exist_ok=True)
        _write(project, "pyproject.toml", setup.pyproject)
        _write(project, "uv.lock", setup.lock)
    name = setup.requirements_name
    if setup.wheels:
        yield from _locked_wheels(setup, uv, scratch, project)
        return
    argv = [uv, "sync", "--frozen", "--no-editable", "--python", _python(setup)] + _from(setup)
    if not setup.project:
        argv += ["--no-install-project", "--no-install-workspace", "--no-install-local"]
    yield Install("installing %s" % name, "installing what %s names" % name, tuple(argv), project)


def _locked_wheels(setup: Setup, uv: str, scratch: str, project: str) -> Iterator[Install]:
    """A lock names the address of each wheel, on which `uv sync` insists: its versions and hashes go to the folder."""
    name = setup.requirements_name
    pinned = os.path.join(scratch, "locked.txt")
    export = [uv, "export", "--quiet", "--frozen", "--offline", "--no-header", "--no-emit-project", "--no-emit-local"]
    export += ["--python", _python(setup), "--output-file", pinned]
    yield Install("reading %s" % name, "reading %s" % name, tuple(export), project)
    argv = _pip(setup, uv) + _from(setup) + ["--no-deps", "--requirement", pinned]
    yield Install("installing %s from %s" % (name, setup.wheels), "installing what %s names" % name, tuple(argv))
    if setup.project and not _is_virtual(project):
        argv = _pip(setup, uv) + _from(setup) + ["--no-deps", project]
        yield Install("installing the project", "installing the project", tuple(argv))


def _is_virtual(project: str) -> bool:
    """Whether the project is none to install, only a list of packages."""
    with open(os.path.join(project, "uv.lock"), encoding="utf-8", errors="replace") as stream:
        return any(line.strip() == 'source = { virtual = "." }' for line in stream)


def _pip(setup: Setup, uv: str) -> List[str]:
    return [uv, "pip", "install", "--python", _python(setup)]


def _python(setup: Setup) -> str:
    return os.path.join(setup.path, "bin", "python")


def _from(setup: Setup) -> List[str]:
    """Where packages come from; of several indexes the last is the one that stands for pypi.org."""
    if setup.wheels:
        return ["--no-index", "--offline", "--find-links", setup.wheels]
    found = []
    for place in setup.index[:-1]:
        found += ["--index", place]
    return found + (["--default-index", setup.index[-1]] if setup.index else [])


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
    ) as out:
        out.write(text)
    return path
