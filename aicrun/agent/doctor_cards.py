"""What `doctor` says about cards: as this login sees them, as a run would see them, and those that are kept.

It must not decide what a run gets; the plan does that from the same readings.
"""

import os
from typing import Dict, List, Tuple

from aicrun.agent import launch_trial, smi
from aicrun.agent.cards import cards
from aicrun.agent.finding import BAD, NOTE, OK, UNKNOWN, counted, row
from aicrun.agent.home import Home
from aicrun.agent.launch_trial import Trial
from aicrun.wire.facts import Cards

LIBRARY_PATH = "LD_LIBRARY_PATH"
WAYS = {
    "A": "in a unit of the system",
    "B": "in a unit of your user manager",
    "C": "in a session of its own",
    "D": "in a session of its own",
}

Row = Dict[str, str]


def card_rows(home: Home, keep: Tuple[str, ...]) -> List[Row]:
    """Rows `driver`, `launcher`, and where there is something to say `library` and `kept`."""
    seen = cards(os.environ)
    return [driver(seen), *_launcher(home, seen), *_library(seen), *kept(seen, keep)]


def driver(found: Cards) -> Row:
    """The driver and its cards as this login sees them."""
    if found.state == "none":
        return row(NOTE, "driver", "no card: %s" % found.detail, "lspci | grep -i nvidia")
    if found.state == "unknown":
        way = "reboot this machine" if found.reason == "driver_mismatch" else "nvidia-smi"
        return row(BAD, "driver", found.detail or found.reason, way)
    text = "%s, %s" % (found.driver, counted(len(found.cards), "card"))
    sick = [str(card.index) for card in found.cards if card.state != "ok"]
    if sick:
        return row(BAD, "driver", text + "; card %s cannot be used" % ", ".join(sick), "reboot this machine")
    if not all(card.processes_listed for card in found.cards):
        return row(NOTE, "driver", text + "; which processes are there nobody can say here", "nvidia-smi")
    if found.source == smi.SOURCE:
        return row(NOTE, "driver", "%s, told by nvidia-smi; %s" % (text, found.detail), "nvidia-smi")
    return row(OK, "driver", text + ", processes can be listed")


def _launcher(home: Home, login: Cards) -> List[Row]:
    try:
        return [launcher(launch_trial.tried(home), login)]
    except OSError as error:
        return [row(BAD, "launcher", "no run can be started: %s" % error.strerror, "df -h -i %s" % home.jobs_root)]


def launcher(trial: Trial, login: Cards) -> Row:
    """What a run's own launcher sees, beside what `login` saw."""
    way = WAYS.get(trial.way.mode, trial.way.mode)
    refused = "; a unit was refused: %s" % trial.wrong if trial.wrong and trial.seen is not None else ""
    look = "journalctl -n 20" if trial.way.mode in ("A", "B") else "nvidia-smi"
    if trial.seen is None:
        return row(UNKNOWN, "launcher", "a run starts %s, and there nothing answered: %s" % (way, trial.wrong), look)
    here, there = _named(login), _named(trial.seen)
    if here == there:
        what = "the same %s" % counted(len(there), "card") if there else "no card either"
        text = "a run starts %s and sees %s" % (way, what)
        return row(NOTE, "launcher", text + refused, look) if refused else row(OK, "launcher", text)
    sees = counted(len(there), "card") if trial.seen.state == "devices" else trial.seen.detail or trial.seen.reason
    mine = counted(len(here), "card") if login.state == "devices" else login.detail or login.reason
    return row(
        BAD, "launcher", "a run starts %s and sees: %s; this login sees: %s%s" % (way, sees, mine, refused), look
    )


def _named(found: Cards) -> Tuple[str, ...]:
    return tuple(sorted(card.uuid or str(card.index) for card in found.cards))


def _library(login: Cards) -> List[Row]:
    """A row where only the login's search path finds the driver's library, which no command of a run gets."""
    path = os.environ.get(LIBRARY_PATH, "")
    if not path or login.state != "devices":
        return []
    bare = cards({name: value for name, value in os.environ.items() if name != LIBRARY_PATH})
    if bare.state == "devices":
        return []
    text = "the driver's library is found by this login's %s alone, which a run's command does not get" % LIBRARY_PATH
    return [row(NOTE, "library", text, "in machines.yaml: env: {%s: %s}" % (LIBRARY_PATH, path))]


def kept(seen: Cards, keep: Tuple[str, ...]) -> List[Row]:
    """A row on the cards of `keep` (numbers and UUIDs), none without any; unknown cards are told by `driver`."""
    if not keep or seen.state != "devices":
        return []
    wanted = {item.lower() for item in keep}
    found = [card for card in seen.cards if card.uuid.lower() in wanted or str(card.index) in wanted]
    told = ", ".join("[%d] %s %s" % (card.index, _model(card.model), card.uuid) for card in found)
    there = {card.uuid.lower() for card in found} | {str(card.index) for card in found}
    lost = [item for item in keep if item.lower() not in there]
    if lost:
        text = "%s is not in this machine any more%s" % (" and ".join(lost), "; kept: " + told if told else "")
        return [row(NOTE, "kept", text, "nvidia-smi -L")]
    return [row(OK, "kept", told)]


def _model(name: str) -> str:
    for vendor in ("NVIDIA ", "GeForce "):
        name = name[len(vendor) :] if name.startswith(vendor) else name
    return name
