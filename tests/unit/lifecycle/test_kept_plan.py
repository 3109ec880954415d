"""Where a plan is written: over an older plan, never over anything else, whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from aicrun.errors import UsageError
from aicrun.lifecycle.saved import write
from aicrun.plan.saved import KIND

TEXT = json.dumps({"kind": KIND, "new": True})


@pytest.mark.parametrize("before", [None, "", json.dumps({"kind": KIND})], ids=["nothing", "empty", "older plan"])
def test_a_plan_is_written_and_nothing_beside_it(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "plan.json"
    if before is not None:
        path.write_text(before)
    write(TEXT, str(path))
    assert path.read_text() == TEXT
    assert os.listdir(tmp_path) == ["plan.json"]


@pytest.mark.parametrize("before", ["version: 1\nname: a-run\n", "[1]", '{"kind": "list"}', "\x00"])
def test_what_is_no_plan_is_never_overwritten(tmp_path: Path, before: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(before)
    with pytest.raises(UsageError) as caught:
        write(TEXT, str(path))
    assert caught.value.code == "AIC-E013"
    assert path.read_text() == before


def test_a_link_keeps_pointing_at_what_it_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("plan.json")
    write(TEXT, str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plan.json").read_text() == TEXT


def test_a_folder_that_is_missing_or_a_folder_itself_is_said_with_a_code(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "plan.json", tmp_path):
        with pytest.raises(UsageError) as caught:
            write(TEXT, str(path))
        assert caught.value.code == "AIC-E017"
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device needs root")
def test_a_device_stays_one_and_its_no_is_said_with_a_code(tmp_path: Path) -> None:
    full = tmp_path / "full"
    os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    with pytest.raises(UsageError) as caught:
        write(TEXT, str(full))
    assert caught.value.code == "AIC-E017"
    assert stat.S_ISCHR(full.stat().st_mode)
