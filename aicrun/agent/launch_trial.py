"""Asks the driver the way a run's keeper would: in the same kind of unit or session, with the same environment.

What a login sees says little about what a unit sees: another environment, other limits, other devices. It starts one
process that ends by itself, keeps nothing, and must not change how this host starts things.
"""

import os
import shutil
import tempfile
import time
from typing import Optional

from aicrun.agent import keepers, launch
from aicrun.agent.cards import cards
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, read_json, write_record
from aicrun.wire import lean
from aicrun.wire.codec import WireError, from_json, to_json
from aicrun.wire.facts import Cards, Survival

ROLE = "trial"
WAIT_S = 25.0
_SEEN = "cards.json"
_TICK_S = 0.02


@lean.dataclass(frozen=True)
class Trial:
    """How a run would be started here now, and the cards it would see; `seen` None: no answer, `wrong` tells why."""

    way: Survival
    seen: Optional[Cards]
    wrong: str = ""


def main(folder: str) -> int:
    """What the started process does: look, write what it saw into `folder`, end."""
    seen = cards(os.environ)
    try:
        write_record(os.path.join(folder, _SEEN), to_json(seen))
    except OSError:
        # Whoever asked has gone, and its folder with it.
        return 1
    return 0


def tried(home: Home) -> Trial:
    """Start such a process and hear what it saw, at most `WAIT_S`; raises `OSError` when no folder can be made."""
    folder = tempfile.mkdtemp(prefix=ROLE + "-", dir=home.jobs_root)
    try:
        way, wrong = keepers.try_out(ROLE, folder)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            seen = _seen(folder)
            if seen is not None:
                return Trial(way, seen, wrong)
            time.sleep(_TICK_S)
        said = launch.keeper_words(folder)
        return Trial(way, None, said or wrong or "nothing answered within %d s" % WAIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _seen(folder: str) -> Optional[Cards]:
    try:
        found = read_json(os.path.join(folder, _SEEN))
        return None if found is None else from_json(Cards, found)
    except (Unreadable, WireError):
        return None
