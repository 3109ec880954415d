"""What the doctor of a host finds: each finding that is no `ok` has a way out, and a run's launcher is really tried."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fake_nvml.driver import FakeDriver, can_be_built
from fake_systemd import Host

from aicrun.agent import doctor_cards, suspends
from aicrun.agent.launch_trial import Trial
from aicrun.wire.facts import Card, Cards, Survival

needs_cards = pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    shutil.copy(pynvml.__file__, made.rig.agent / "pynvml.py")
    made.rig.env["AICRUN_TEST_LOCKS"] = str(tmp_path / "locks")
    yield made
    made.close()


def rows(host: Host, **body: Any) -> dict[str, dict[str, str]]:
    found = host.rig.call("doctor", **body)["findings"]
    assert all(row["help"] or row["word"] == "ok" for row in found), found
    assert all(row["text"] for row in found)
    return {row["topic"]: row for row in found}


def test_every_topic_has_its_row(host: Host) -> None:
    told = rows(host)
    assert set(told) >= {
        *("python3", "uv", "driver", "launcher", "lock", "survival", "linger", "home", "workspace"),
        *("state", "envs", "shm", "suspend", "tools", "notes"),
    }
    assert not list(host.rig.root.glob("trial-*"))


@needs_cards
def test_a_run_that_gets_a_unit_is_asked_in_one(host: Host) -> None:
    host.rig.env |= FakeDriver(host.rig.home.parent / "driver").env
    told = rows(host)
    assert told["driver"]["word"] in ("ok", "note")
    assert told["launcher"] == {
        "word": "ok",
        "topic": "launcher",
        "text": "a run starts in a unit of the system and sees the same 2 cards",
        "help": "",
    }
    asked = next(line for line in host.calls.read_text().splitlines() if line.startswith("systemd-run"))
    assert "--property=KillMode=process" in asked.split()
    assert told["library"]["word"] == "note"


@needs_cards
def test_cards_that_only_the_login_sees_are_bad_news(host: Host) -> None:
    """The driver is taken away from whatever systemd starts, as a unit's own limits may do."""
    driver = FakeDriver(host.rig.home.parent / "driver")
    host.rig.env |= driver.env
    hidden = f'mv {driver.folder}/nvml.state {driver.folder}/hidden; while [ "$1" != -- ]; do shift; done; shift; "$@"'
    host.tool("systemd-run", f"({hidden}) </dev/null >/dev/null 2>&1")
    host.rig.env["AICRUN_TEST_TOOL_S"] = "20"
    told = rows(host)["launcher"]
    assert (told["word"], told["help"]) == ("bad", "journalctl -n 20")
    assert told["text"].endswith("this login sees: 2 cards")


def test_a_unit_that_is_refused_is_told_with_what_comes_instead(host: Host) -> None:
    host.tool("systemd-run", "echo 'Access denied' >&2; exit 1")
    told = rows(host)["launcher"]
    text = "a run starts in a session of its own and sees no card either; a unit was refused: Access denied"
    assert (told["word"], told["text"]) == ("note", text)


def test_kept_cards_are_found_by_number_and_by_uuid_or_told_to_be_gone() -> None:
    seen = Cards("devices", cards=(Card(0, "GPU-aa", "NVIDIA GeForce RTX 3090"), Card(1, "GPU-bb", "NVIDIA RTX A6000")))
    assert doctor_cards.kept(seen, ()) == []
    assert doctor_cards.kept(seen, ("0", "gpu-BB"))[0]["text"] == "[0] RTX 3090 GPU-aa, [1] RTX A6000 GPU-bb"
    (gone,) = doctor_cards.kept(seen, ("7", "GPU-cc", "1"))
    assert (gone["word"], gone["text"]) == (
        "note",
        "7 and GPU-cc is not in this machine any more; kept: [1] RTX A6000 GPU-bb",
    )
    assert doctor_cards.kept(dataclasses.replace(seen, state="unknown"), ("7",)) == []


def test_a_launcher_that_does_not_answer_is_unknown_not_bad() -> None:
    told = doctor_cards.launcher(Trial(Survival("B", ""), None, "nothing answered within 25 s"), Cards("none"))
    assert (told["word"], told["help"]) == ("?", "journalctl -n 20")


@pytest.mark.parametrize(
    ("files", "asleep"),
    [
        ({}, ""),
        ({"etc/systemd/logind.conf": "[Login]\n#IdleAction=suspend\n"}, ""),
        ({"etc/systemd/logind.conf": "[Login]\nIdleAction=suspend\n"}, "logind does suspend when nobody types here"),
        ({"usr/lib/systemd/logind.conf.d/9.conf": "IdleAction = hibernate\n"}, "logind does hibernate when nobody"),
        (
            {
                "usr/lib/systemd/logind.conf.d/10-a.conf": "IdleAction=suspend\n",
                "etc/systemd/logind.conf.d/20-b.conf": "IdleAction=ignore\n",
            },
            "",
        ),
        ({"proc/acpi/button/lid/LID0/state": "state: open\n"}, "closing its lid does suspend"),
        (
            {
                "proc/acpi/button/lid/LID0/state": "state: open\n",
                "etc/systemd/logind.conf": "HandleLidSwitch=ignore\n",
            },
            "",
        ),
    ],
)
def test_what_puts_a_host_to_sleep(tmp_path: Path, files: dict[str, str], asleep: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found, _ = suspends.sleeps(str(tmp_path))
    assert found.startswith(asleep)
    assert bool(found) is bool(asleep)
    (tmp_path / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
    (tmp_path / "etc/systemd/system/suspend.target").symlink_to("/dev/null")
    assert suspends.sleeps(str(tmp_path)) == ("", "suspend.target is masked")
