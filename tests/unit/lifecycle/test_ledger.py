"""The ledger is a cache: it remembers, is private, and its loss or damage stops nobody."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import REPOSITORY

from aicrun.lifecycle.ledger import Ledger


def test_it_remembers_where_a_run_was_asked_for_newest_first(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "state/ledger.db"))
    ledger.note("a" * 16, "sft-run", "lab", "started")
    ledger.note("b" * 16, "sft-run", "home", "reserving")
    ledger.note("c" * 16, "other", "attic", "started")
    assert [start.job_id for start in ledger.starts("sft-run")] == ["b" * 16, "a" * 16]
    assert ledger.machines_of("sft-run") == ("home", "lab")


def test_what_was_withdrawn_or_deleted_names_no_machine_any_more(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger.db"))
    ledger.note("a" * 16, "sft-run", "lab", "reserving")
    ledger.note("a" * 16, "sft-run", "lab", "withdrawn")
    ledger.note("b" * 16, "sft-run", "home", "started")
    ledger.drop("b" * 16)
    assert ledger.machines_of("sft-run") == ()


def test_it_is_readable_by_nobody_else(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "state/ledger.db"))
    ledger.note("a" * 16, "sft-run", "lab", "started")
    assert stat.S_IMODE(os.stat(ledger.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "state").st_mode) == 0o700


def test_folders_that_it_makes_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Ledger(str(tmp_path / ".local/state/aicrun/ledger.db")).note("a" * 16, "sft-run", "lab", "started")
    finally:
        os.umask(before)
    for folder in (".local", ".local/state", ".local/state/aicrun"):
        assert stat.S_IMODE(os.stat(tmp_path / folder).st_mode) == 0o700


def test_a_damaged_ledger_is_begun_anew_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is no database, and long enough to be read as one\n" * 40)
    ledger = Ledger(str(path))
    assert ledger.machines_of("sft-run") == ()
    assert "begun anew" in ledger.remark
    ledger.note("a" * 16, "sft-run", "lab", "started")
    assert Ledger(str(path)).machines_of("sft-run") == ("lab",)


@pytest.mark.parametrize("trouble", ["newer", "folder", "link", "no_folder"])
def test_a_ledger_that_cannot_be_used_is_gone_without_and_left_as_it_is(tmp_path: Path, trouble: str) -> None:
    path = tmp_path / "state/ledger.db"
    if trouble == "no_folder":
        (tmp_path / "state").write_text("a file in its place")
    else:
        path.parent.mkdir()
    if trouble == "newer":
        base = sqlite3.connect(path)
        base.execute("PRAGMA user_version = 99")
        base.close()
    elif trouble == "folder":
        path.mkdir()
    elif trouble == "link":
        path.symlink_to(tmp_path / "elsewhere")
    ledger = Ledger(str(path))
    ledger.note("a" * 16, "sft-run", "lab", "started")
    assert ledger.machines_of("sft-run") == ()
    assert "no answer depends on it" in ledger.remark
    assert not (tmp_path / "elsewhere").exists()
    assert not list(tmp_path.rglob("*.damaged"))


def test_a_ledger_without_its_table_is_no_fault(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger.db"))
    base = sqlite3.connect(ledger.path)
    base.execute("PRAGMA user_version = 1")
    base.close()
    assert ledger.machines_of("sft-run") == ()
    assert ledger.remark


def test_it_knows_whether_the_client_that_wrote_a_row_still_lives(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    note = f"Ledger({str(path)!r}).note('d' * 16, 'sft-run', 'lab', 'reserving')"
    code = f"from aicrun.lifecycle.ledger import Ledger; {note}"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
    ledger = Ledger(str(path))
    ledger.note("e" * 16, "sft-run", "lab", "reserving")
    lives = {start.job_id[0]: start.client_lives for start in ledger.starts("sft-run")}
    assert lives == {"d": False, "e": True}


def test_a_ledger_that_somebody_holds_makes_no_command_slow_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first = Ledger(str(path))
    first.note("a" * 16, "sft-run", "lab", "started")
    first.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    ledger = Ledger(str(path))
    began = time.monotonic()
    ledger.note("b" * 16, "sft-run", "lab", "reserving")
    ledger.note("b" * 16, "sft-run", "lab", "started")
    assert ledger.starts("sft-run") == ()
    assert time.monotonic() - began < 0.9
    assert "busy: another process has held it" in ledger.remark
    holder.rollback()
    holder.close()
    ledger.close()
    after = Ledger(str(path))
    assert [one.job_id for one in after.starts("sft-run")] == ["a" * 16]
    after.close()


def test_it_remembers_how_a_machine_looked_last_and_forgets_another_way_to_reach_it(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger.db"))
    ledger.remember({("lab", "ssh lab"): "{1}", ("attic", "ssh attic"): "{2}"})
    ledger.remember({("lab", "ssh lab"): "{3}"})
    seen = ledger.remembered()
    assert {key: text for key, (text, _) in seen.items()} == {("lab", "ssh lab"): "{3}", ("attic", "ssh attic"): "{2}"}
    assert all(0 <= age_s < 60 for _, age_s in seen.values())


def test_a_ledger_that_was_made_before_it_remembered_machines_is_used_on(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    Ledger(path).note("a" * 16, "sft-run", "lab", "started")
    with sqlite3.connect(path) as base:
        base.execute("DROP TABLE seen")
    ledger = Ledger(path)
    assert ledger.remembered() == {}
    assert (ledger.machines_of("sft-run"), ledger.remark) == (("lab",), "")


def test_what_was_fetched_is_known_as_long_as_it_is_that_folder(tmp_path: Path) -> None:
    ledger, here = Ledger(str(tmp_path / "ledger.db")), tmp_path / "checkpoint-4"
    ledger.note_fetched(str(here))
    assert ledger.fetched() == (), "nothing came to lie there"
    here.mkdir()
    for _ in range(2):
        ledger.note_fetched(str(here))
        assert Ledger(ledger.path).fetched() == (str(here),)
    here.rename(tmp_path / "moved")
    here.mkdir()
    assert ledger.fetched() == (), "a folder of somebody's own that has its name"
