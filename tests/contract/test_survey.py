"""What a survey answers, on every implementation and interpreter that is listed."""

from __future__ import annotations

import os

from contract.conftest import Account

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Question
from aicrun.hosts.bundle import build


def test_a_survey_tells_the_host(backend: AgentBackend, account: Account) -> None:
    found = backend.survey(Question(runs=("sft-run",), paths=("~/a/b", "/"), data=str(account.home)))
    assert found.hostname == os.uname().nodename
    assert found.agent_digest == build().digest
    assert found.home == str(account.home)
    # Where its records lie is looked at too, whatever a client asks for.
    assert [(disk.path, disk.filled) for disk in found.disks] == [
        ("~/a/b", False),
        ("/", True),
        (found.state_root, True),
    ]
    # What is not there was read at the nearest folder above it.
    assert [disk.place for disk in found.disks] == [str(account.home), "/", found.state_root]
    home, state = os.stat(account.home), os.statvfs(account.home)
    assert (found.disks[0].volume, found.disks[0].total_inodes) == (f"{home.st_dev:x}", state.f_files)
    assert found.disks[0].volume == found.disks[2].volume
    assert found.pythons[0].version == found.python
    assert found.state_root.startswith(str(account.home / ".local/state/aicrun"))
    assert (found.jobs, found.measured, found.envs_ready, found.active_jobs) == ((), (), (), 0)
    assert found.cards.state in ("none", "unknown", "devices")
    assert backend.survey(Question(cards=False)).cards.reason == "not_asked"


def test_a_survey_answers_for_the_first_words_of_commands(backend: AgentBackend) -> None:
    asked = Question(
        cards=False, path=("/nowhere",), programs=(("sh", ""), ("no-such-program", ""), ("sh", "/nowhere"))
    )
    shell, none, elsewhere = backend.survey(asked).programs
    assert (shell.place[-3:], none.place, elsewhere.place) == ("/sh", "", "")
    assert (none.searched.split(":")[0], elsewhere.searched) == ("/nowhere", "/nowhere")
