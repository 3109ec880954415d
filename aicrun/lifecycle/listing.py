"""Which files of a folder are the code of a run: what git knows and does not ignore, less what nobody wants over there.

It only lists; `snapshot.py` reads. Without git every file counts, and without a repository `.gitignore` files still do.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator

from aicrun.errors import UsageError, Way
from aicrun.lifecycle.transfer import PART
from aicrun.spec.model import SourceSpec

CACHES = frozenset(
    (
        *(".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
        *(".ipynb_checkpoints", ".tox", ".nox", ".cache", "node_modules"),
    )
)
_GIT_TIMEOUT_S = 60


def files_of(source: SourceSpec, aside: Iterable[str] = ()) -> tuple[str, ...]:
    """Sorted paths below `source.path`, relative, with `/`; `aside` are absolute files and folders left out.

    Raises `UsageError` when the folder is missing or git cannot read its own repository (then guessing would send
    ignored files, data and secrets among them).
    """
    root = source.path
    if not os.path.isdir(root):
        raise UsageError(
            "AIC-E651", f"source.path {root} is not a folder", ways=(Way("see the field", "aicrun explain source"),)
        )
    real = os.path.realpath(root)
    left_out = tuple(
        name for path in aside for name in (os.path.relpath(path, root), os.path.relpath(os.path.realpath(path), real))
    )
    kept = (path for path in _listed(root) if not _is_below(path, left_out))
    return tuple(sorted(path for path in _without_caches(root, kept) if is_wanted(path, source)))


def _listed(root: str) -> Iterable[str]:
    if _inside_repository(root):
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if isinstance(listed, str):
            # git's own protection against running what somebody else's repository configures; a person may lift it.
            theirs = re.search(r"dubious ownership in repository at '(.+)'", listed)
            trust = f"git config --global --add safe.directory {shlex.quote(theirs[1])}" if theirs else ""
            ways = (Way("it belongs to another account; if you trust it", trust),) if theirs else ()
            raise UsageError(
                "AIC-E652", f"git cannot list the files of {root}", facts=(("git says", listed),), ways=ways
            )
        return _with_nested(root, listed) if listed is not None else _walked(root)
    with tempfile.TemporaryDirectory(prefix="aicrun-") as folder:
        bare = os.path.join(folder, "empty.git")
        made = _git(root, "init", "-q", "--bare", bare)
        if not isinstance(made, tuple):
            return _walked(root)
        listed = _git(
            root,
            "--git-dir",
            bare,
            "--work-tree",
            root,
            "ls-files",
            "-z",
            "--others",
            "--exclude-per-directory=.gitignore",
        )
        return _with_nested(root, listed) if isinstance(listed, tuple) else _walked(root)


def _inside_repository(root: str) -> bool:
    here = os.path.realpath(root)
    while True:
        if os.path.exists(os.path.join(here, ".git")):
            return True
        above = os.path.dirname(here)
        if above == here:
            return False
        here = above


def git_words(root: str, *args: str) -> str:
    """The one line that `git ARGS` prints in `root`, empty when it cannot say."""
    said = _git(root, *args)
    return said[0].strip() if isinstance(said, tuple) and said else ""


def _git(root: str, *args: str) -> tuple[str, ...] | str | None:
    """The NUL-parted answer, git's complaint as text, or None where there is no git."""
    said = git_says(root, *args)
    return tuple(os.fsdecode(part) for part in said.split(b"\0") if part) if isinstance(said, bytes) else said


def git_says(root: str, *args: str) -> bytes | str | None:
    """What `git ARGS` prints in `root`; its complaint as text, or None where there is no git."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.update(GIT_OPTIONAL_LOCKS="0", LC_ALL="C")
    try:
        done = subprocess.run(
            ("git", "-C", root, *args),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        return f"no answer within {_GIT_TIMEOUT_S}s"
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[0] if lines else f"exit code {done.returncode}"
    return done.stdout


def _with_nested(root: str, listed: Iterable[str]) -> Iterator[str]:
    # A submodule or a repository inside is one entry for git: its own files are asked for there.
    for path in dict.fromkeys(listed):
        full = os.path.join(root, path)
        if os.path.isdir(full) and not os.path.islink(full):
            if os.path.exists(os.path.join(full, ".git")):
                for inner in _listed(full):
                    yield path.rstrip("/") + "/" + inner
        else:
            yield path


def _walked(root: str) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        below = os.path.relpath(folder, root)
        # A link to a folder is an entry of its own, never a way in.
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        names[:] = [name for name in names if name not in CACHES and name not in links]
        for name in files + links:
            yield name if below == "." else below + "/" + name


def _without_caches(root: str, paths: Iterable[str]) -> Iterator[str]:
    wanted: dict[str, bool] = {"": True}

    def is_code(folder: str) -> bool:
        if folder not in wanted:
            above, _, name = folder.rpartition("/")
            is_cache = name in CACHES or name.endswith(PART) or os.path.exists(os.path.join(root, folder, "pyvenv.cfg"))
            wanted[folder] = is_code(above) and not is_cache
        return wanted[folder]

    for path in paths:
        folder, _, name = path.rpartition("/")
        if name not in CACHES and not name.endswith((".pyc", ".pyo", PART)) and is_code(folder):
            yield path


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def is_wanted(path: str, source: SourceSpec) -> bool:
    """Whether `include` and `exclude` of the source let the path in."""
    wanted = not source.include or any(matches(path, pattern) for pattern in source.include)
    return wanted and not any(matches(path, pattern) for pattern in source.exclude)


def matches(path: str, pattern: str) -> bool:
    """Whether a gitignore-style `pattern` means `path` or a folder above it.

    A pattern with a `/` inside is anchored at the top; without one it means any name on the way. `**` crosses folders.
    """
    bare = pattern.strip("/")
    parts = path.split("/")
    if "/" not in bare and not pattern.startswith("/"):
        names = parts[:-1] if pattern.endswith("/") else parts
        return any(fnmatch.fnmatchcase(name, bare) for name in names)
    wanted = bare.split("/")
    deepest = len(parts) - 1 if pattern.endswith("/") else len(parts)
    return any(_parts_match(parts[:depth], wanted) for depth in range(1, deepest + 1))


def _parts_match(parts: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_parts_match(parts[skip:], wanted[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _parts_match(parts[1:], wanted[1:])
