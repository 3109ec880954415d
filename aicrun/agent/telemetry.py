"""Samples of a running command, by a process of their own: memory of the tree, its cards, room for its output.

It runs as `boot.py sampler JOBDIR`, may hang in a sick driver or be killed, and touches nothing of the job: a run goes
on without it, only its peaks stay unmeasured. It ends by itself when the command has ended or its keeper is gone.
"""

import json
import os
import time
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

from aicrun.agent import cards, handles, hooks, launch, outlook, process
from aicrun.agent.family import KEEPER_MARK
from aicrun.agent.history import note
from aicrun.agent.home import Home, listed, open_home
from aicrun.agent.kept import Launch
from aicrun.agent.records import Unreadable, read_json, read_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.codec import dump
from aicrun.wire.facts import Card
from aicrun.wire.jobs import SCHEMA, JobRequest

# Early samples tell short runs; later ones cost about a thousandth of a core on a host of hundreds of processes.
FIRST_S = (0.1, 1.0, 2.0, 5.0, 10.0)
EVERY_S = 15.0
# So long a command runs before its sampler is started: its own start is spared that of another process.
AFTER_S = 0.2
LOOK_S = 1.0
# A command that has put nothing on its cards for so long may have fallen back to the processor without a word.
UNUSED_S = 300
CAP_BYTES = 1024 * 1024
MIB = 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@lean.dataclass(frozen=True)
class Measured:
    """One sample and what is wrong with the cards: `strays` are pids on cards that the job does not hold.

    `is_on_cards` None: nobody can tell. `model` is of its first card.
    """

    sample: Dict[str, Any]
    strays: Tuple[int, ...] = ()
    model: str = ""
    is_on_cards: Optional[bool] = None


class Warnings:
    """What is told once in a job's history, and changes nothing about the run."""

    def __init__(self, job_dir: str) -> None:
        self._job_dir = job_dir
        self._told: List[str] = []
        self._was_on_cards = False

    def look(self, found: Measured) -> None:
        """Tell what this sample shows for the first time."""
        self._was_on_cards = self._was_on_cards or found.is_on_cards is not False
        if found.strays:
            self._tell("pin_violated", "pid %s" % ", ".join(str(pid) for pid in found.strays[:8]))
        if not self._was_on_cards and found.sample["t_s"] >= hooks.number("UNUSED_S", UNUSED_S):
            self._tell("card_unused", "no process of it was seen on its cards in %.0f s" % found.sample["t_s"])

    def _tell(self, event: str, detail: str) -> None:
        if event not in self._told:
            self._told.append(event)
            note(self._job_dir, event, detail=detail)


class Peaks:
    """What a series of samples comes to: peaks and means, kept as it grows, so that no file is read again."""

    def __init__(self) -> None:
        self.count = 0
        self.highest: Dict[str, float] = {}
        self.lowest: Dict[str, float] = {}
        self.energy_wh = 0.0
        self._sums: Dict[str, Tuple[float, int]] = {}
        self._last_s: Optional[float] = None

    def add(self, sample: Dict[str, Any]) -> None:
        """Take in one sample, later than all before it."""
        self.count += 1
        for key in ("memory_mib", "vram_mib", "temperature_c"):
            self._raise(key, sample.get(key))
        for key in ("utilization_percent", "power_w"):
            self._mean(key, sample.get(key))
        free = sample.get("output_free_bytes")
        if free is not None:
            self.lowest["output_free_bytes"] = min(free, self.lowest.get("output_free_bytes", free))
        power = sample.get("power_w")
        if power is not None and self._last_s is not None:
            self.energy_wh += power * (sample["t_s"] - self._last_s) / 3600.0
        self._last_s = sample["t_s"]

    def facts(self) -> Dict[str, Any]:
        """The keys that `facts.json` takes; what was never measured is absent."""
        found: Dict[str, Any] = {"samples": self.count}
        for key, name in (("memory_mib", "memory_peak_mib"), ("vram_mib", "vram_peak_mib")):
            if key in self.highest:
                found[name] = int(self.highest[key])
        if "temperature_c" in self.highest:
            found["temperature_peak_c"] = int(self.highest["temperature_c"])
        for key, (total, count) in self._sums.items():
            found[key.replace("_percent", "_mean_percent").replace("_w", "_mean_w")] = round(total / count, 1)
        if "power_w" in self._sums:
            found["energy_wh"] = round(self.energy_wh, 2)
        if "output_free_bytes" in self.lowest:
            found["output_free_least_bytes"] = int(self.lowest["output_free_bytes"])
        return found

    def _raise(self, key: str, value: Optional[float]) -> None:
        if value is not None:
            self.highest[key] = max(value, self.highest.get(key, value))

    def _mean(self, key: str, value: Optional[float]) -> None:
        if value is not None:
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + value, count + 1)


class Series:
    """The samples as lines of a file that never exceeds its cap: grown full, every second line goes."""

    def __init__(self, path: str, cap_bytes: int = CAP_BYTES) -> None:
        self._path = path
        self._cap_bytes = cap_bytes
        self._size = 0

    def add(self, sample: Dict[str, Any]) -> None:
        """Append one sample; raises `OSError`."""
        line = dump(sample) + b"\n"
        if self._size + len(line) > self._cap_bytes:
            self._thin()
        with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab") as stream:
            stream.write(line)
            self._size = stream.tell()

    def _thin(self) -> None:
        with open(self._path, "rb") as stream:
            kept = stream.read().splitlines(True)[::2]
        replace_file(self._path, b"".join(kept))


def replace_file(path: str, raw: bytes) -> None:
    """Write aside and rename, without a wait for the disk: it is measured again soon."""
    temporary = path + ".new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as stream:
        stream.write(raw)
    os.rename(temporary, path)


def main(job_dir: str) -> int:
    """Sample the newest command of the job until it ends; always 0, for nobody waits for it."""
    try:
        home = open_home(os.environ)
        request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
        kept = read_record(os.path.join(job_dir, names.LAUNCH), Launch)
        if request is not None and kept is not None:
            _sample(home, request, kept)
    except (OSError, Unreadable, Refused):
        # Nothing measured is nothing lost; the disk that refuses is told by the steps themselves.
        pass
    return 0


def set_aside(job_dir: str, attempt: int) -> None:
    """Put the samples of an attempt that has ended into its folder: those of the next begin anew."""
    for name in (names.TELEMETRY, names.TELEMETRY_PEAKS):
        try:
            os.rename(os.path.join(job_dir, name), os.path.join(job_dir, names.ATTEMPTS, str(attempt), name))
        except OSError:
            # There are none before the first attempt, and none of a run that ended at once.
            continue


class Start:
    """Starts the sampler of a job beside its keeper, once its command has run for `AFTER_S`; most faults come sooner.

    It measures the command of the newest attempt, which has its folder by then.
    """

    def __init__(self, job_dir: str, beside: Callable[[], float]) -> None:
        """`beside` is what else is to be looked at, and says after how many seconds it wants to be asked again."""
        self._job_dir = job_dir
        self._beside = beside
        self._due_at: Optional[float] = time.monotonic() + AFTER_S

    def look(self) -> float:
        """Start it when it is time to; in how many seconds to ask again. One that cannot be had is gone without."""
        again_s = self._beside()
        if self._due_at is None:
            return again_s
        left_s = self._due_at - time.monotonic()
        if left_s > 0:
            return min(left_s, again_s)
        self._due_at = None
        try:
            launch.detach("sampler", self._job_dir)
        except OSError:
            pass
        return again_s


def facts_of(job_dir: str) -> Dict[str, Any]:
    """What was measured of the job's newest command, for `facts.json`; empty when nothing was."""
    try:
        found = read_json(os.path.join(job_dir, names.TELEMETRY_PEAKS))
    except Unreadable:
        return {}
    return {key: value for key, value in found.items() if key not in outlook.ASIDE} if isinstance(found, dict) else {}


def _sample(home: Home, request: JobRequest, kept: Launch) -> None:
    job_dir = home.job_dir(request.job_id)
    series, peaks = Series(os.path.join(job_dir, names.TELEMETRY)), Peaks()
    began, due, warnings = time.monotonic(), list(FIRST_S), Warnings(job_dir)
    attempt = _newest(job_dir)
    while _goes_on(home, request.job_id, attempt):
        passed = time.monotonic() - began
        if passed < due[0]:
            time.sleep(min(LOOK_S, due[0] - passed))
            continue
        due = due[1:] or [passed + hooks.number("SAMPLE_S", int(EVERY_S))]
        # The pump and this very process stand below the keeper too, and are none of the job's.
        tree = process.descendants(kept.pid, lambda pid: process.carries(pid, KEEPER_MARK))
        found = measured(request, frozenset(tree), passed)
        series.add(found.sample)
        peaks.add(found.sample)
        model = {"card_model": found.model} if found.model else {}
        summary = dict(peaks.facts(), schema=SCHEMA, last=found.sample, **model)
        replace_file(os.path.join(job_dir, names.TELEMETRY_PEAKS), json.dumps(summary).encode("ascii"))
        warnings.look(found)


def _newest(job_dir: str) -> int:
    return max((int(name) for name in listed(os.path.join(job_dir, names.ATTEMPTS)) if name.isdigit()), default=1)


def _goes_on(home: Home, job_id: str, attempt: int) -> bool:
    ended = os.path.exists(os.path.join(home.step_dir(job_id, attempt, "command"), names.STEP_EXIT))
    return not ended and handles.keeper_lives(home.job_dir(job_id))


def measured(request: JobRequest, tree: FrozenSet[int], passed_s: float) -> Measured:
    """What the processes `tree` of the job take, `passed_s` after its sampler began."""
    sample: Dict[str, Any] = {"t_s": round(passed_s, 1), "memory_mib": sum(_resident_bytes(pid) for pid in tree) // MIB}
    free = _free_bytes(request.checkpoints or request.workspace)
    if free is not None:
        sample["output_free_bytes"] = free
    if not request.cards:
        return Measured(sample)
    told = cards.asked()
    mine = [card for card in told.cards if card.uuid in request.cards]
    sample.update(_of_cards(mine, tree))
    on = {
        card.uuid: [one.pid for one in card.processes if one.kind == "compute" and one.pid in tree]
        for card in told.cards
        if card.processes_listed
    }
    strays = tuple(pid for uuid, pids in on.items() if uuid not in request.cards for pid in pids)
    known = bool(mine) and all(card.uuid in on for card in mine)
    is_on_cards = any(on[card.uuid] for card in mine) if known else None
    return Measured(sample, strays, mine[0].model if mine else "", is_on_cards)


def _of_cards(mine: List[Card], tree: FrozenSet[int]) -> Dict[str, Any]:
    """The fullest card's memory, for that is what must fit; of the rest the mean, the hottest, and the sum of power."""
    found: Dict[str, Any] = {}
    used = [memory for card in mine for memory in (_used_mib(card, tree),) if memory is not None]
    busy = [card.utilization_percent for card in mine if card.utilization_percent is not None]
    warm = [card.temperature_c for card in mine if card.temperature_c is not None]
    power = [card.power_w for card in mine if card.power_w is not None]
    if used:
        found["vram_mib"] = max(used)
    if busy:
        found["utilization_percent"] = round(sum(busy) / len(busy), 1)
    if warm:
        found["temperature_c"] = max(warm)
    if power:
        found["power_w"] = sum(power)
    return found


def _used_mib(card: Card, tree: FrozenSet[int]) -> Optional[int]:
    """What the job's own processes hold on the card, where they are listed with numbers; else all that is used."""
    own = [one.vram_mib for one in card.processes if one.pid in tree]
    if card.processes_listed and own and None not in own:
        return sum(amount for amount in own if amount is not None)
    return card.vram_used_mib


def _resident_bytes(pid: int) -> int:
    try:
        with open("/proc/%d/statm" % pid, "rb") as stream:
            return int(stream.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _free_bytes(path: str) -> Optional[int]:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize
