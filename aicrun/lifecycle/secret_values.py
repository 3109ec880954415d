"""The values of a run's secrets, fetched on this client when a start or an upload needs them, and kept nowhere.

No value may come into a message, an argument or a file: it leaves this process on the standard input of the agent.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aicrun.errors import UsageError, Way
from aicrun.plan.secret_sources import SecretSource
from aicrun.wire import secrets

# A password store may ask its owner for a passphrase first.
_COMMAND_S = 120


@dataclass
class SecretValues:
    """Where values are fetched from: the caller's environment, and commands, each of which is run once at most."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    _printed: dict[str, str] = field(default_factory=dict, repr=False)

    def unset(self, sources: Iterable[SecretSource]) -> tuple[str, ...]:
        """The names that the environment should have and has not, or has empty, in their order."""
        return tuple(one.name for one in sources if one.is_from_environment and not self.environment.get(one.name))

    def check(self, run: str, sources: Iterable[SecretSource]) -> None:
        """Raises `UsageError` for what the environment has not (AIC-E022), or has and cannot be hidden (AIC-E026)."""
        sources = tuple(sources)
        unset = self.unset(sources)
        if unset:
            names = ", ".join(unset)
            message = f"{run} needs {names}, which {'is' if len(unset) == 1 else 'are'} not set in your environment"
            ways = (Way("set it, unseen and in no history", f"read -rs {unset[0]} && export {unset[0]}"),)
            raise UsageError("AIC-E022", message, ways=ways)
        for one in sources:
            if one.is_from_environment:
                _check(run, one, self.environment[one.name], f"read -rs {one.name} && export {one.name}")

    def given(self, run: str, sources: tuple[SecretSource, ...]) -> dict[str, Any]:
        """What goes to the machine: {NAME: {value | file, for}}. Raises as `check` does; AIC-E023 for a command."""
        self.check(run, sources)
        return {one.name: dict(self._one(run, one), **({"for": one.step} if one.step else {})) for one in sources}

    def _one(self, run: str, one: SecretSource) -> dict[str, Any]:
        if one.file:
            return {"file": one.file}
        if not one.command:
            return {"value": self.environment[one.name]}
        if one.command not in self._printed:
            value = _printed_by(run, one)
            _check(run, one, value, one.command)
            self._printed[one.command] = value
        return {"value": self._printed[one.command]}


def _check(run: str, one: SecretSource, value: str, again: str) -> None:
    """Raises `UsageError` (AIC-E026) for a value that no machine would take; `again` is the command that gives one."""
    fault = secrets.fault(value)
    if fault:
        message = f"{run}: the secret {one.name} {fault}; nothing was started"
        raise UsageError("AIC-E026", message, ways=(Way("give it another value", again),))


def _printed_by(run: str, one: SecretSource) -> str:
    """What the command prints, without the line end behind it. It may ask its owner something on the terminal."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", one.command], stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False, text=True
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(run, one, f"did not end within {_COMMAND_S} s") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _failed(run, one, "cannot be run, or prints no text") from error
    if done.returncode:
        raise _failed(run, one, f"ended with code {done.returncode}; nothing was started")
    value = done.stdout.rstrip("\r\n")
    if not value:
        raise _failed(run, one, "printed nothing; nothing was started")
    return value


def _failed(run: str, one: SecretSource, what: str) -> UsageError:
    message = f"{run}: the command for the secret {one.name} {what}"
    return UsageError("AIC-E023", message, facts=(("command", one.command),), ways=(Way("try it", one.command),))
