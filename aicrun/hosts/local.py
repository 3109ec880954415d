"""The client's own machine as a host: programs on pipes, in a session of their own, on the system's Python.

It must not hand the agent this process's credentials: only what a login would give travels.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.piped import PipedChannel

OLDEST = (3, 8)
USUAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")

_CARRIED = re.compile(
    r"(HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|PATH|TMPDIR|LD_LIBRARY_PATH|XDG_.*|PIP_.*|UV_.*|AICRUN_.*"
    r"|.*_(CERT|CA)_?(FILE|DIR|BUNDLE)|.*_CAINFO|NODE_EXTRA_CA_CERTS|(https?|ftp|all|no)_proxy)\Z",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY(_|\Z)", re.IGNORECASE)


class LocalTransport:
    """Runs programs of this machine; `python3` means a real interpreter of at least 3.8, never one of a venv."""

    carrier = ""

    def __init__(self, name: str, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._env = carried(os.environ if env is None else env)

    def reached(self, sure: bool = False) -> None:
        """None: there is no way to it."""

    def open(self, argv: tuple[str, ...]) -> PipedChannel:
        """Start `argv` with pipes; raises `HostUnreachable` when it cannot be started."""
        program = self._resolved(argv)
        try:
            return PipedChannel(program, self._env, "/")
        except OSError as error:
            raise HostUnreachable("AIC-E510", f"{program[0]} cannot be started on this machine: {error}") from error

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run `argv` to its end: (exit code, stdout, stderr); raises `HostUnreachable` after `timeout_s`."""
        program = self._resolved(argv)
        try:
            done = subprocess.run(
                program, input=stdin, capture_output=True, env=dict(self._env), cwd="/", timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise HostUnreachable("AIC-E591", f"{program[0]} gave no answer within {timeout_s:.0f}s") from error
        except OSError as error:
            raise HostUnreachable("AIC-E510", f"{program[0]} cannot be started on this machine: {error}") from error
        return done.returncode, done.stdout, done.stderr

    def bulk(self) -> LocalTransport:
        """Pipes are quick enough."""
        return self

    def attended(self, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:  # noqa: ARG002
        """The program itself; its ports are this machine's already."""
        return argv

    def close(self) -> None:
        """Nothing is shared between channels here."""
        return

    def _resolved(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return (system_python(self._env.get("PATH", "")), *argv[1:]) if argv[0] == "python3" else argv


def carried(env: Mapping[str, str]) -> dict[str, str]:
    """What of `env` a login of this account would have too; nothing that is named like a credential."""
    return {key: value for key, value in env.items() if _CARRIED.match(key) and not _CREDENTIAL.search(key)}


@cache
def system_python(path: str) -> str:
    """The first real interpreter of 3.8 or newer named python3 on `path` or where systems keep it, resolved.

    Passed over are shims (scripts) and virtual environments, which go away. With none it is the interpreter that
    this process's environment was made from; raises `HostUnreachable` when even that is in an environment.
    """
    for place in _candidates(path):
        if _is_real(place) and _version(place) >= OLDEST:
            return str(place)
    under = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    if _is_real(under):
        return str(under)
    help_ = Way("install one", "apt install python3")
    raise HostUnreachable(
        "AIC-E510", "this machine has no python3 of 3.8 or newer outside an environment", ways=(help_,)
    )


def _candidates(path: str) -> Iterator[Path]:
    seen = set()
    for folder in (*path.split(os.pathsep), *USUAL_PATH):
        place = Path(folder, "python3")
        if folder and folder not in seen and os.access(place, os.X_OK):
            seen.add(folder)
            # A venv's interpreter is a link to a real one: judge it by where it stands, not by where it leads.
            if not (place.parent.parent / "pyvenv.cfg").exists():
                yield place.resolve()


def _is_real(place: Path) -> bool:
    try:
        with place.open("rb") as stream:
            is_script = stream.read(2) == b"#!"
    except OSError:
        return False
    return not is_script and not (place.parent.parent / "pyvenv.cfg").exists()


def _version(place: Path) -> tuple[int, ...]:
    named = re.fullmatch(r"python3\.(\d+)", place.name)
    if named:
        return 3, int(named[1])
    ask = (str(place), "-I", "-S", "-c", "import sys;print(*sys.version_info[:2])")
    try:
        said = subprocess.run(ask, capture_output=True, timeout=10, check=False).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    return tuple(int(part) for part in said) if len(said) == 2 else (0,)
