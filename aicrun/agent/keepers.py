"""Starts the keeper of a job in the best way this host has: a unit of systemd, else a session of its own.

It must not decide whether the job starts. Two keepers never come of one start: what a unit needs to become a keeper
lies in one file, the order, which either the unit takes or this process takes back, by one `rename` or `unlink`.
"""

import json
import os
import sys
import time
from typing import Dict, List, Mapping, Optional, Tuple

from aicrun.agent import hooks, launch, survival, units
from aicrun.agent.kept import Launch
from aicrun.agent.process import boot_identity, start_ticks
from aicrun.agent.programs import boot_argv
from aicrun.agent.records import Unreadable, read_json, read_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.codec import WireError, from_json, to_json
from aicrun.wire.facts import Survival
from aicrun.wire.launched import Launched

READY_S = 25.0
# From systemd's word that a unit runs until its program takes the order; later it finds none and leaves.
TAKEN_S = 10
_TICK_S = 0.005
# A keeper is ready within a tenth of a second, mostly: so long it is looked for often, so that nobody waits for a tick.
_SOON_S = 0.2
_SOON_TICK_S = 0.001
_TOLD = "AICRUN_LAUNCH"


class _NoUnit(Exception):
    """No keeper lives in a unit, and none will."""


def start(role: str, job_dir: str, grace_s: int) -> Launch:
    """Start the keeper `role` and wait until it holds the job; raises `Refused` (start_failed) when it left instead.

    Raises `OSError` when no process can be had.
    """
    tools = units.Tools(os.environ)
    facts = units.probe(tools)
    if facts.systemd and facts.uid != 0 and facts.linger is False and not survival.suspect(facts.version):
        facts = units.with_linger(tools, facts)
    chosen = survival.choose(facts)
    if chosen.mode in ("A", "B"):
        try:
            return _in_unit(tools, _Start(role, job_dir, grace_s, chosen))
        except _NoUnit as error:
            facts = lean.replace(facts, failed=((chosen.mode, str(error)),))
            chosen = survival.choose(facts)
    if chosen.mode == "C":
        chosen = survival.choose(units.with_rules(tools, facts))
    token = os.urandom(8).hex()
    pid = launch.detach(role, job_dir, {_TOLD: _words(token, _launched(chosen))})
    hooks.reached("reserve.launched")
    return _ready(job_dir, pid, token)


def try_out(role: str, folder: str) -> Tuple[Survival, str]:
    """Start `boot.py ROLE FOLDER` the way a keeper would be now: (that way, what a better one failed of, else "").

    Nobody is asked to linger for it, and it is not waited for. Raises `OSError` when no process can be had.
    """
    tools = units.Tools(os.environ)
    facts = units.probe(tools)
    chosen, wrong = survival.choose(facts), ""
    if chosen.mode in ("A", "B"):
        unit = units.unit_name(role, folder, os.urandom(8).hex())
        _write_order(folder, {"role": role, "env": launch.own_environment(os.environ)})
        wrong = units.run(tools, chosen.mode, unit, boot_argv("unit", folder), 0)
        if not wrong or not _removed(os.path.join(folder, names.ORDER)):
            return chosen, ""
        facts = lean.replace(facts, failed=((chosen.mode, wrong),))
        chosen = survival.choose(facts)
    if chosen.mode == "C":
        chosen = survival.choose(units.with_rules(tools, facts))
    launch.detach(role, folder)
    return chosen, wrong


def unit_words(kept: Optional[Launch]) -> str:
    """What systemd still says of the unit that this keeper had, for an end that nobody recorded; "" for nothing."""
    if kept is None or kept.launched is None or not kept.launched.unit or kept.boot != boot_identity():
        return ""
    return units.result(kept.launched.mode, kept.launched.unit, units.Tools(os.environ))


def forget_unit(job_dir: str) -> None:
    """Let systemd forget the unit of a job that is swept; it remembers only those that failed."""
    kept = _launch(job_dir)
    if kept is not None and kept.launched is not None and kept.launched.unit and kept.boot == boot_identity():
        units.forget_failed(kept.launched.mode, kept.launched.unit, units.Tools(os.environ))


def take_order(job_dir: str) -> int:
    """The program of a unit: become the keeper that the order describes; without an order there is nothing to do."""
    taken = os.path.join(job_dir, "%s.%d" % (names.ORDER, os.getpid()))
    try:
        os.rename(os.path.join(job_dir, names.ORDER), taken)
        hooks.reached("unit.taken")
        order = read_json(taken)
        role, env = str(order["role"]), {str(name): str(value) for name, value in order["env"].items()}
    except FileNotFoundError:
        return 0
    except (OSError, Unreadable, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    launch.become(boot_argv(role, job_dir), env, job_dir)
    return 1


def told(env: Mapping[str, str]) -> Tuple[str, Optional[Launched]]:
    """(token, how it was started) of the keeper whose environment this is; ("", None) for one that nobody told."""
    try:
        words = json.loads(env.get(_TOLD, ""))
        return str(words["token"]), from_json(Launched, words["launched"])
    except (ValueError, KeyError, TypeError, WireError):
        return "", None


def drop_order(job_dir: str) -> None:
    """Remove the order that this keeper was made from: it holds the environment of a login."""
    _removed(os.path.join(job_dir, "%s.%d" % (names.ORDER, os.getpid())))


@lean.dataclass(frozen=True)
class _Start:
    role: str
    job_dir: str
    grace_s: int
    chosen: Survival


def _in_unit(tools: units.Tools, wanted: _Start) -> Launch:
    """The keeper in a unit of its own; raises `_NoUnit` when there is none and will be none, `Refused` as `start`."""
    token = os.urandom(8).hex()
    unit = units.unit_name(wanted.role, wanted.job_dir, token)
    launched = lean.replace(_launched(wanted.chosen), unit=unit)
    env = dict(launch.own_environment(os.environ), **{_TOLD: _words(token, launched)})
    _write_order(wanted.job_dir, {"role": wanted.role, "env": env})
    argv = boot_argv("unit", wanted.job_dir)
    wrong = units.run(tools, wanted.chosen.mode, unit, argv, wanted.grace_s)
    hooks.reached("reserve.launched")
    try:
        return _from_unit(wanted.job_dir, token, wrong)
    except _NoUnit as error:
        raise _NoUnit(units.not_executed(wanted.chosen.mode, unit, argv[0], tools) or str(error)) from error
    finally:
        for path in _orders(wanted.job_dir):
            _removed(path)


def _from_unit(job_dir: str, token: str, wrong: str) -> Launch:
    """Wait for the keeper of a unit that was asked for; `wrong` is what its tool said against it."""
    order = os.path.join(job_dir, names.ORDER)
    taken_s = hooks.number("TAKEN_S", TAKEN_S)
    deadline = time.monotonic() + (0.0 if wrong else taken_s)
    while os.path.exists(order):
        # A tool that failed or hung may have reached systemd all the same: what is taken back here nobody takes later.
        if time.monotonic() >= deadline and _removed(order):
            raise _NoUnit(wrong or "its unit did not come to run within %d s" % taken_s)
        time.sleep(_TICK_S)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        # The order's new name holds the pid: looked for before the record that replaces it.
        pids = [int(path.rpartition(".")[2]) for path in _orders(job_dir)]
        record = _launch(job_dir)
        if record is not None and record.token == token:
            return record
        if not any(start_ticks(pid) is not None for pid in pids):
            break
        time.sleep(_TICK_S)
    else:
        raise _not_ready(job_dir)
    record = _launch(job_dir)
    if record is not None and record.token == token:
        return record
    if os.path.exists(os.path.join(job_dir, names.REFUSED)):
        raise _not_ready(job_dir)
    raise _NoUnit(launch.keeper_words(job_dir) or "its keeper ended before it was ready")


def _ready(job_dir: str, pid: int, token: str) -> Launch:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        lives = start_ticks(pid) is not None
        record = _launch(job_dir)
        if record is not None and record.token == token:
            return record
        if not lives:
            break
        time.sleep(_SOON_TICK_S if deadline - time.monotonic() > READY_S - _SOON_S else _TICK_S)
    raise _not_ready(job_dir)


def _not_ready(job_dir: str) -> Refused:
    said = launch.keeper_words(job_dir)
    message = "the job's keeper did not start%s" % (": " + said if said else " within %d s" % READY_S)
    facts = {"python": sys.executable, "file": os.path.join(job_dir, names.KEEPER_ERR)}
    return Refused("start_failed", message, facts)


def _launch(job_dir: str) -> Optional[Launch]:
    try:
        return read_record(os.path.join(job_dir, names.LAUNCH), Launch)
    except Unreadable:
        return None


def _launched(chosen: Survival) -> Launched:
    return Launched(chosen.mode, chosen.promise, chosen.outlives_logout, chosen.why, chosen.warning)


def _words(token: str, launched: Launched) -> str:
    return json.dumps({"token": token, "launched": to_json(launched)})


def _write_order(job_dir: str, order: Dict[str, object]) -> None:
    """Whole at once for who takes it; private, for it holds the environment of a login. Raises `OSError`."""
    path = os.path.join(job_dir, names.ORDER)
    temporary = path + ".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "w", encoding="ascii") as stream:
        json.dump(order, stream)
    os.rename(temporary, path)


def _orders(job_dir: str) -> List[str]:
    """The orders of this job that were taken, by their paths."""
    begin = names.ORDER + "."
    found = [name for name in os.listdir(job_dir) if name.startswith(begin) and name[len(begin) :].isdigit()]
    return [os.path.join(job_dir, name) for name in found]


def _removed(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
