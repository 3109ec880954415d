"""Reads the fields of a call's body; what is missing or of the wrong kind is a refusal that names the field."""

from typing import Any, Dict, Optional, Tuple

from aicrun.agent.refused import Refused
from aicrun.wire import names


def text(body: Dict[str, Any], name: str, default: Optional[str] = None) -> str:
    """The text in `name`; without a default it must be there. Raises `Refused` (invalid_request)."""
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Refused("invalid_request", "%s: text is expected" % name, {"field": name})
    return value


def by(body: Dict[str, Any]) -> str:
    """Who asks, for the audit trail: at most 200 characters, "" when it was not said. Raises `Refused`."""
    return text(body, "by", "")[:200]


def number(body: Dict[str, Any], name: str, default: int, most: int) -> int:
    """The whole number in `name`, from 0 to `most`; what is over is cut to `most`. Raises `Refused`."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused("invalid_request", "%s: a whole number from 0 on is expected" % name, {"field": name})
    return min(value, most)


def seconds(body: Dict[str, Any], name: str, default: float, most: float) -> float:
    """The seconds in `name`, from 0 to `most`. Raises `Refused`."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise Refused("invalid_request", "%s: seconds are expected" % name, {"field": name})
    return min(float(value), most)


def texts(body: Dict[str, Any], name: str) -> Tuple[str, ...]:
    """The list of texts in `name`, empty when it is not there. Raises `Refused`."""
    value = body.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Refused("invalid_request", "%s: a list of texts is expected" % name, {"field": name})
    return tuple(value)


def job_id(body: Dict[str, Any]) -> str:
    """The job id of the call. Raises `Refused` when it is not 16 hex digits."""
    value = text(body, "job_id")
    if not names.HEX16.match(value):
        raise Refused("invalid_request", "job_id: 16 hex digits are expected", {"field": "job_id"})
    return value


def run_name(body: Dict[str, Any]) -> str:
    """The run name of the call. Raises `Refused` when it is no legal name (it becomes a folder's name)."""
    value = text(body, "run")
    if not names.RUN_NAME.match(value):
        raise Refused("invalid_request", "run: this is no run name", {"field": "run"})
    return value
