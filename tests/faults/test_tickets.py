"""Tickets between processes of two real accounts: what counts, what is hostile, what is cleaned; frozen formats."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounts import NOBODY, Child, child, told
from frozen import frozen

from aicrun.agent import drain_marks, leases, line, lock_folder, tickets
from aicrun.agent.lock_folder import LockFolder, Places, open_folder
from aicrun.agent.refused import Refused
from aicrun.agent.tickets import Words

CARD = "GPU-aaaa"


@pytest.fixture
def places() -> Iterator[Places]:
    folder = Path(tempfile.mkdtemp(prefix="aicrun-test-"))
    folder.chmod(0o1777)
    yield Places(system=str(folder), lasting=str(folder))
    shutil.rmtree(folder)


@pytest.fixture
def folder(places: Places) -> Iterator[LockFolder]:
    with lock_folder.opened(places) as found:
        yield found


def words(number: int, says: str = line.WAITING, **more: Any) -> Words:
    return Words(**{"job_id": f"{number:016x}", "run": "gpt2", "says": says, "cards": (CARD,), "pid": 7, **more})


def stands(places: Places, number: int, says: str = line.WAITING, uid: int = 0) -> Child:
    """A process with a ticket, which says its file's name."""

    def deed() -> str:
        return tickets.take(open_folder(places), words(number, says)).name

    return child(deed, uid)


def test_a_ticket_is_seen_alike_by_all_accounts_and_is_its_owner_s_by_the_kernel_s_word(places: Places) -> None:
    holder = stands(places, 1, line.HOLDS, NOBODY)
    waiter = stands(places, 2)
    for uid in (0, NOBODY):
        seen = told(lambda: [[t.uid, t.live, t.says, t.job_id] for t in tickets.read(open_folder(places))], uid)
        assert seen == [[NOBODY, True, "holds", f"{1:016x}"], [0, True, "waiting", f"{2:016x}"]]
    waiter.kill()
    holder.kill()


def test_a_killed_waiter_is_dead_at_once_and_its_account_alone_cleans_it(places: Places, folder: LockFolder) -> None:
    dead = stands(places, 1, uid=NOBODY)
    mine = tickets.take(folder, words(2))
    assert line.may_try(tickets.read(folder), mine.seen).position == 2
    dead.kill()
    assert line.may_try(tickets.read(folder), mine.seen).may_try
    assert tickets.still(folder, tickets.read(folder)[0]) is None
    assert tickets.clean(folder) == 0
    assert (Path(folder.path) / dead.said).exists()
    assert told(lambda: tickets.clean(open_folder(places)), NOBODY) == 1
    assert not (Path(folder.path) / dead.said).exists()
    mine.end()
    assert [name for name in os.listdir(folder.path) if name.startswith("t-") and "words" not in name] == []


def test_words_are_replaced_whole_and_end_with_the_ticket(folder: LockFolder) -> None:
    mine = tickets.take(folder, words(1))
    mine.say(line.HOLDS)
    assert line.holder_of(tickets.read(folder), CARD) == mine.seen
    mine.end()
    assert tickets.read(folder) == ()
    assert os.listdir(folder.path) == []


def test_a_ticket_lives_as_long_as_the_command_that_inherited_it(places: Places, folder: LockFolder) -> None:
    def with_heir() -> int:
        held = tickets.take(open_folder(places), words(1, line.HOLDS))
        os.set_inheritable(held.handle, True)
        return subprocess.Popen(["sleep", "100"], close_fds=False, stdout=subprocess.DEVNULL).pid

    keeper = child(with_heir)
    keeper.kill()
    assert line.holder_of(tickets.read(folder), CARD) is not None
    os.kill(keeper.said, 9)


HOSTILE = [
    b"",
    b"{",
    b"[1]",
    b'{"says": 7, "cards": "GPU-aaaa"}',
    b'{"says": "holds", "cards": [1, null, {}]}',
    b"\xff\xfe",
    b"[" * 5000,
    b'{"says": "holds", "cards": ["' + b"x" * 9000 + b'"]}',
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_words_hold_nothing_and_break_nothing(folder: LockFolder, raw: bytes) -> None:
    mine = tickets.take(folder, words(1))
    Path(folder.path, mine.name + ".words").write_bytes(raw)
    (seen,) = tickets.read(folder)
    assert line.holder_of([seen], CARD) is None
    assert seen.live
    mine.end()


def test_hostile_names_are_cut_out(folder: LockFolder) -> None:
    mine = tickets.take(folder, words(1, run="x\x1b[31m\n", pid=-5, priority=True))
    (seen,) = tickets.read(folder)
    assert (seen.run, seen.pid, seen.priority) == ("", 0, 0)
    mine.end()


def test_words_of_another_account_count_for_nothing(places: Places, folder: LockFolder) -> None:
    mine = tickets.take(folder, words(1))
    path = Path(folder.path, mine.name + ".words")
    path.unlink()
    path.write_bytes(b'{"says": "holds", "cards": ["GPU-aaaa"]}')
    os.chown(path, NOBODY, NOBODY)
    assert tickets.read(folder)[0].says == ""
    mine.end()


def test_nobody_else_can_take_a_ticket_s_files_away(places: Places, folder: LockFolder) -> None:
    mine = tickets.take(folder, words(1))
    for name in (mine.name, mine.name + ".words"):
        assert told(lambda name=name: os.unlink(f"{folder.path}/{name}"), NOBODY).startswith("PermissionError")
    mine.end()


def test_counts_are_of_one_account_and_come_from_locks(
    folder: LockFolder, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "ACTIVE_MOST", 2)
    monkeypatch.setattr(tickets, "WAITING_MOST", 3)
    held = [tickets.take(folder, words(number, line.HOLDS)) for number in (1, 2)]
    with pytest.raises(Refused, match="2 jobs of this account hold cards"):
        tickets.take(folder, words(3))
    assert told(lambda: bool(tickets.take(open_folder(places), words(3))), NOBODY) is True
    held.pop().end()
    held += [tickets.take(folder, words(number)) for number in (4, 5, 6)]
    assert tickets.counts(tickets.read(folder), 0) == (1, 3)
    # One that pauses before its next attempt holds nothing either.
    held[1].say(line.PAUSES)
    assert tickets.counts(tickets.read(folder), 0) == (1, 3)
    with pytest.raises(Refused, match="3 jobs of this account wait"):
        tickets.take(folder, words(7))
    for one in held:
        one.end()


def drained(places: Places, uid: int) -> Any:
    def deed() -> Any:
        mark = drain_marks.seen(open_folder(places))
        return None if mark is None else [mark.account, mark.everybody, mark.why, mark.by]

    return told(deed, uid)


def test_a_drain_is_the_account_s_own_and_root_s_is_everybody_s(places: Places, folder: LockFolder) -> None:
    told(lambda: drain_marks.put(open_folder(places), "quiet night", "bo@laptop"), NOBODY)
    assert (drained(places, 0), drained(places, NOBODY)) == (None, ["nobody", False, "quiet night", "bo@laptop"])
    drain_marks.put(folder, "new power supply", "ana@desk")
    assert drained(places, NOBODY) == ["root", True, "new power supply", "ana@desk"]
    drain_marks.lift(folder)
    drain_marks.lift(folder)
    assert drained(places, NOBODY) == ["nobody", False, "quiet night", "bo@laptop"]
    told(lambda: drain_marks.lift(open_folder(places)), NOBODY)
    assert (drained(places, 0), drained(places, NOBODY)) == (None, None)


def test_nobody_can_drain_in_root_s_name_or_keep_root_from_draining(places: Places, folder: LockFolder) -> None:
    told(lambda: Path(folder.path, "drain-0").touch(), NOBODY)
    assert (drained(places, 0), drained(places, NOBODY)) == (None, None)
    drain_marks.put(folder, "", "")
    assert drained(places, NOBODY) == ["root", True, "", ""]

    def lifted() -> str:
        try:
            os.unlink(Path(folder.path, "drain-0"))
        except OSError as error:
            return type(error).__name__
        return "gone"

    assert told(lifted, NOBODY) == "PermissionError"
    Path(folder.path, f"drain-{NOBODY}").touch()
    assert "cannot be used for locks" in told(lambda: refused(places), NOBODY)
    assert [name for name in os.listdir(folder.path) if name.startswith(".")] == []


def refused(places: Places) -> str:
    try:
        drain_marks.put(open_folder(places), "", "")
    except Refused as error:
        return error.message
    return ""


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"[" * 3000, b'{"why": 7}', b"\xff", b'{"why": "' + b"x" * 9000])
def test_a_mark_counts_whatever_its_words_are(places: Places, folder: LockFolder, raw: bytes) -> None:
    Path(folder.path, "drain-0").write_bytes(raw)
    assert drained(places, 0) == ["root", True, "", ""]


def test_a_ticket_is_never_seen_without_its_lock_or_words(places: Places, folder: LockFolder) -> None:
    """Tickets come and go while others read: one that has its name is live until its owner leaves."""
    pid = os.fork()
    if not pid:
        try:
            for number in range(400):
                tickets.take(folder, words(number, line.HOLDS)).end()
        finally:
            os._exit(0)
    looks = 0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        for one in tickets.read(folder):
            assert one.says in (line.HOLDS, ""), one
        looks += 1
    assert looks > 5
    assert tickets.read(folder) == ()


def test_what_two_versions_must_agree_on_is_frozen(folder: LockFolder) -> None:
    """Folder, lock and ticket names, and the keys and words of a ticket: two accounts may run two versions of us."""
    told_words = words(1, line.HOLDS, priority=3)
    mine = tickets.take(folder, told_words)
    raw = json.loads(Path(folder.path, mine.name + ".words").read_bytes())
    places = Places()
    mine.end()
    value = {
        "folders": [f"{places.system}/{places.name}/v1", f"{places.lasting}/{places.lasting_name}/v1"],
        "folder_mode": oct(lock_folder.SHARED_MODE),
        "lock": leases.NAME % CARD,
        "lock_mode": oct(leases.LOCK_MODE),
        "ticket": tickets.NAME % (12345678901234567, told_words.job_id),
        "words": tickets.NAME % (12345678901234567, told_words.job_id) + tickets.WORDS_SUFFIX,
        "drain": tickets.DRAIN % 1000,
        "says": [line.WAITING, line.HOLDS, line.PAUSES],
        "words_of_a_ticket": {**raw, "since_s": 0.0},
    }
    frozen("locks_v1", value)
