"""The secret values of one job: taken from the call that starts it, kept 0600 in its folder while a keeper needs them.

No value may come into a record that outlives the keeper, a message, an argument or a log.
"""

import os
import re
from typing import Any, Dict, Tuple

from aicrun.agent.home import Home, listed
from aicrun.agent.records import read_record, write_record
from aicrun.agent.redact import LEAST_CHARACTERS
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.jobs import SCHEMA, STEPS

# A variable of an environment may have 128 KiB with its name; the largest tokens in use, keys and accounts, have 4.
MOST_BYTES = 32 * 1024
SECRETS_MOST = 64
HIDDEN = "***"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@lean.dataclass(frozen=True)
class Secret:
    """One value under the name of its variable; `step` is the only one that sees it, "" for every step."""

    name: str
    value: str = lean.field(repr=False)
    step: str = ""


@lean.dataclass(frozen=True)
class Secrets:
    """All secrets of a job, as its folder keeps them."""

    secrets: Tuple[Secret, ...] = ()
    schema: int = SCHEMA

    def values(self) -> Tuple[str, ...]:
        """Every value, whichever step sees it: what no log may hold."""
        return tuple(one.value for one in self.secrets)

    def variables(self, step: str) -> Dict[str, str]:
        """What a step finds in its environment."""
        return {one.name: one.value for one in self.secrets if one.step in ("", step)}


def taken(body: Dict[str, Any]) -> Secrets:
    """The secrets of a call: {NAME: value} or {NAME: {value, for}}. Raises `Refused`, which names no value.

    secret_refused: a value that cannot be hidden or handed over; invalid_request: anything else.
    """
    given = body.get("secrets") or {}
    if not isinstance(given, dict) or len(given) > SECRETS_MOST:
        message = "secrets: an object of at most %d names is expected" % SECRETS_MOST
        raise Refused("invalid_request", message, {"field": "secrets"})
    return Secrets(tuple(_secret(name, given[name]) for name in sorted(given)))


def put(job_dir: str, secrets: Secrets) -> None:
    """Keep the secrets in the job's folder, replacing what was kept; nothing is written for none. Raises `OSError`."""
    if secrets.secrets:
        write_record(os.path.join(job_dir, names.SECRETS), secrets)


def read(job_dir: str) -> Secrets:
    """What is kept for the job, empty when nothing is; raises `Unreadable`."""
    return read_record(os.path.join(job_dir, names.SECRETS), Secrets) or Secrets()


def remove(job_dir: str) -> None:
    """Let go of the values, also of what a write that was cut short has left."""
    for name in listed(job_dir):
        if name == names.SECRETS or name.startswith(names.SECRETS + "."):
            try:
                os.unlink(os.path.join(job_dir, name))
            except OSError:
                # Whoever removes them as well was first, or the next look does it.
                continue


def remove_unneeded(home: Home) -> None:
    """Remove the values of every job that has no keeper: nobody will ask for them any more."""
    # Imported here: a setup reads values and asks for nobody's keeper.
    from aicrun.agent import launch

    for job_id in listed(home.jobs()):
        job_dir = os.path.join(home.jobs(), job_id)
        if not any(name.startswith(names.SECRETS) for name in listed(job_dir)):
            continue
        # Under the lock no job is just being made, or its keeper just being started.
        with home.host_lock():
            if not launch.keeper_lives(job_dir):
                remove(job_dir)


def _secret(name: str, given: Any) -> Secret:
    if not _NAME.match(name):
        raise Refused("invalid_request", "secrets: a name has letters, digits and _ alone", {"field": "secrets"})
    wanted = given if isinstance(given, dict) else {"value": given}
    value, step = wanted.get("value"), wanted.get("for") or ""
    if not isinstance(value, str) or not isinstance(step, str) or step not in ("", *STEPS):
        raise Refused("invalid_request", "secrets.%s: a text, or value and for" % name, {"field": "secrets"})
    why = _fault(value)
    if why:
        raise Refused("secret_refused", "the secret %s %s" % (name, why), {"secret": name})
    return Secret(name, value, step)


def _fault(value: str) -> str:
    if len(value) < LEAST_CHARACTERS:
        return "has fewer than %d characters: so short a value cannot be hidden in a log" % LEAST_CHARACTERS
    if "\0" in value:
        return "holds a NUL character: no variable can"
    try:
        size = len(os.fsencode(value))
    except UnicodeEncodeError:
        return "holds a character that no variable can"
    return "has more than %d bytes" % MOST_BYTES if size > MOST_BYTES else ""
