"""What the driver says of cards whose locks are held: who is on them, and what the job must find in its environment.

A lock that is free is not yet a free card. It must not take, keep or free anything.
"""

import json
import os
from typing import Dict, List, Mapping, Optional, Tuple

from aicrun.agent import cards, process
from aicrun.wire import lean, names
from aicrun.wire.facts import Card, CardProcess, Cards
from aicrun.wire.jobs import CardNeed, JobRequest

# What the driver told of the held cards when they were taken; only the preflight finds it in its environment.
SEEN = "AICRUN_PREFLIGHT"


@lean.dataclass(frozen=True)
class Seen:
    """What the driver told of the held cards: their models in the order in which the run finds them, and versions."""

    models: Tuple[str, ...] = ()
    driver: str = ""
    cuda: str = ""

    def variable(self) -> Dict[str, str]:
        """As the preflight finds it."""
        return {SEEN: json.dumps({"models": list(self.models), "driver": self.driver, "cuda": self.cuda})}


@lean.dataclass(frozen=True)
class Found:
    """`why` is empty when the cards are free for the job; `facts` are the parts of why by name.

    `env` names the cards to the job; empty when they could not be told. `unverified` says why nobody could look who is
    on them: then only our own locks speak for them. `seen` is for the preflight.
    """

    why: str = ""
    facts: Dict[str, str] = lean.field(default_factory=dict)
    env: Dict[str, str] = lean.field(default_factory=dict)
    unverified: str = ""
    seen: Seen = Seen()


def check(uuids: Tuple[str, ...], request: JobRequest, login: Mapping[str, str]) -> Found:
    """Ask the driver about the cards `uuids`, held by this process for `request`; never raises, may take seconds."""
    left = _left_behind(uuids, request.job_id)
    if left:
        pids = ", ".join(str(pid) for pid in left[:8])
        told = {"reason": "leftover", "pids": pids}
        return Found("its last job is over, but of its processes these live: pid %s" % pids, told)
    told_cards = cards.cards(login, looks=cards.LOOKS)
    by_uuid = {card.uuid: card for card in told_cards.cards}
    for uuid in uuids:
        card = by_uuid.get(uuid)
        if card is None:
            why = told_cards.detail or told_cards.reason or "the driver does not list it"
            return Found("card %s cannot be seen: %s" % (uuid, why), {"reason": "card_missing", "card": uuid})
        if card.state != "ok":
            return Found("card %d is %s" % (card.index, card.state), {"reason": card.state, "card": uuid})
        busy = _taken(card, request) or _too_full(card, request.card_need)
        if busy is not None:
            return busy
    blind = [str(by_uuid[uuid].index) for uuid in uuids if not by_uuid[uuid].processes_listed]
    unverified = "nobody can list the processes on card %s here" % ", ".join(blind) if blind else ""
    env = environment(uuids, told_cards)
    models = tuple(by_uuid[uuid].model for uuid in env[names.GPU_UUIDS].split(","))
    return Found(env=env, unverified=unverified, seen=Seen(models, told_cards.driver, told_cards.cuda))


def environment(uuids: Tuple[str, ...], told: Cards) -> Dict[str, str]:
    """The variables by which a program finds exactly these cards, as device 0 and up.

    By place in PCI order, for some libraries take no UUID; by UUID only where a card's place cannot be told.
    """
    order = [card.uuid for card in sorted(told.cards, key=lambda card: _bus(card.pci_bus_id))]
    places = sorted(uuids, key=order.index)
    sure = all(card.pci_bus_id for card in told.cards)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(order.index(uuid)) if sure else uuid for uuid in places),
        names.GPU_UUID: places[0],
        names.GPU_UUIDS: ",".join(places),
        names.VARIABLES["gpu.count"]: str(len(uuids)),
    }


def drained(uuids: Tuple[str, ...], login: Mapping[str, str]) -> bool:
    """True when the driver lists nobody of ours on the cards any more, or is not permitted to tell who is on them.

    False while it does not answer: under load it may be late, and a card is not empty for that.
    """
    told = cards.cards(login)
    if not {card.uuid for card in told.cards}.issuperset(uuids):
        return False
    mine = [card for card in told.cards if card.uuid in uuids and card.processes_listed]
    return not any(one.kind == "compute" and _is_ours(one) for card in mine for one in card.processes)


def _taken(card: Card, request: JobRequest) -> Optional[Found]:
    """Somebody else is on the card, or it is busy where nobody can say with whom."""
    need, used = request.card_need, card.utilization_percent
    if not card.processes_listed:
        if used is None or used <= need.busy_most_percent:
            return None
        told = {"card": card.uuid, "reason": "utilization"}
        return Found("card %d is %d%% busy, and nobody can list its processes" % (card.index, used), told)
    for one in card.processes:
        if one.kind != "compute" or one.job_id == request.job_id:
            continue
        amount = "%d MiB" % one.vram_mib if one.vram_mib is not None else "memory unknown"
        who = "pid %d of %s, %s" % (one.pid, one.user or "an unknown account", amount)
        facts = {"card": card.uuid, "pid": str(one.pid), "user": one.user, "vram": amount}
        if _is_ours(one):
            return Found("card %d still has its last job on it: %s" % (card.index, who), dict(facts, reason="leftover"))
        if not need.foreign_allowed:
            return Found("card %d is used by a process that stands in no line: %s" % (card.index, who), facts)
    return None


def _too_full(card: Card, need: CardNeed) -> Optional[Found]:
    """Less is free than was asked for: also a desktop, or a program of before, may have taken it since the plan."""
    free = card.vram_free_mib
    if free is None or free >= need.vram_mib:
        return None
    told = {"card": card.uuid, "reason": "vram_free", "free_mib": str(free), "asked_mib": str(need.vram_mib)}
    return Found("card %d has %d MiB free, %d are asked" % (card.index, free, need.vram_mib), told)


def _is_ours(one: CardProcess) -> bool:
    return bool(one.job_id) or not os.path.exists("/proc/%d" % one.pid)


def _left_behind(uuids: Tuple[str, ...], job_id: str) -> List[int]:
    """Processes of another job on one of the cards, also those that closed every descriptor; as far as we may see."""
    found = []
    for pid in process.table():
        variables = _variables(pid)
        theirs = variables.get(names.GPU_UUIDS, "").split(",")
        if variables.get(names.JOB_ID, job_id) != job_id and not set(theirs).isdisjoint(uuids):
            found.append(pid)
    return sorted(found)


def _variables(pid: int) -> Dict[str, str]:
    wanted = (names.JOB_ID, names.GPU_UUIDS)
    try:
        with open("/proc/%d/environ" % pid, "rb") as stream:
            entries = stream.read(1 << 20).split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name in wanted}


def _bus(bus: str) -> Tuple[int, ...]:
    """A bus id as numbers: its parts are hexadecimal, and some drivers write the domain longer than others."""
    try:
        return tuple(int(part, 16) for part in bus.replace(".", ":").split(":"))
    except ValueError:
        return (1 << 62,)
