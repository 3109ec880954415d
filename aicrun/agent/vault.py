"""The secret values of one job: taken from the call that starts it, kept 0600 in its folder while a keeper needs them.

No value may come into a record that outlives the keeper, a message, an argument or a log.
"""

import errno
import os
import stat
from typing import Any, Dict, Tuple

from aicrun.agent.home import listed
from aicrun.agent.records import read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names, secrets
from aicrun.wire.jobs import SCHEMA, STEPS
from aicrun.wire.patterns import pattern

SECRETS_MOST = 64
HIDDEN = "***"
_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")


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
    """The secrets of a call: {NAME: value}, {NAME: {value, for}} or {NAME: {file, for}}, a file of this host that holds
    the value. Raises `Refused`, which names no value.

    secret_refused: a value that cannot be read, hidden or handed over; invalid_request: anything else.
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


def _secret(name: str, given: Any) -> Secret:
    if not _NAME.match(name):
        raise Refused("invalid_request", "secrets: a name has letters, digits and _ alone", {"field": "secrets"})
    wanted = given if isinstance(given, dict) else {"value": given}
    value, step = wanted.get("value"), wanted.get("for") or ""
    if isinstance(wanted.get("file"), str):
        value = _in_file(name, wanted["file"])
    if not isinstance(value, str) or not isinstance(step, str) or step not in ("", *STEPS):
        raise Refused("invalid_request", "secrets.%s: a text, or value and for" % name, {"field": "secrets"})
    why = secrets.fault(value)
    if why:
        raise Refused("secret_refused", "the secret %s %s" % (name, why), {"secret": name})
    return Secret(name, value, step)


def _in_file(name: str, path: str) -> str:
    """What a file of the account holds, without the line end behind it."""
    place = os.path.expanduser(path)
    try:
        # Without waiting: a pipe in the place of a file must not hold up a start.
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            return stream.read(secrets.MOST_BYTES + 2).decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no UTF-8 text"
        message = "the secret %s cannot be read from %s: %s" % (name, place, why)
        raise Refused("secret_refused", message, {"secret": name, "file": place}) from error
