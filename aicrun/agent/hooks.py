"""Named places where a fault test may stop or kill this process. It must do nothing in an agent that was shipped.

Honoured only when a file `test-hooks` lies beside the `boot.py` of this agent, which no bundle contains.
`AICRUN_TEST_HOOK` holds `place:action` pairs parted by commas; actions are `kill` and `pause` (SIGSTOP).
"""

import os
from typing import Dict

VARIABLE = "AICRUN_TEST_HOOK"
_TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENABLED = os.path.exists(os.path.join(_TOP, "test-hooks"))


def _wanted() -> Dict[str, str]:
    if not ENABLED:
        return {}
    return dict(pair.rsplit(":", 1) for pair in os.environ.get(VARIABLE, "").split(",") if ":" in pair)


_ACTIONS = _wanted()


def reached(place: str) -> None:
    """Say that `place` has been come to."""
    action = _ACTIONS.get(place)
    if action is None:
        return
    # Imported here: nowhere but in a test.
    import signal

    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)


def number(name: str, default: int) -> int:
    """A size that a test makes smaller, from the variable `AICRUN_TEST_<name>`; `default` in a shipped agent."""
    return int(os.environ.get("AICRUN_TEST_" + name, default)) if ENABLED else default


def text(name: str, default: str) -> str:
    """A path or word that a test replaces, from the variable `AICRUN_TEST_<name>`; `default` in a shipped agent."""
    return os.environ.get("AICRUN_TEST_" + name, default) if ENABLED else default
