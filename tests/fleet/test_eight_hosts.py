"""Eight hosts as one place to run: what the plan says of each, and what happens when links and power go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml.driver import can_be_built
from hosts_rig import FleetHost, Net, possible
from integration.project import Project
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE

pytestmark = pytest.mark.skipif(bool(possible()) or not can_be_built(), reason=possible() or "no C compiler")

HEAD = "driver 570.124.06\ncuda 12080\n"


def cards(*models: tuple[str, int], more: str = "") -> str:
    """The state of a driver with these cards (model, GiB)."""
    rows = []
    for index, (model, gib) in enumerate(models):
        uuid = f"GPU-{model.replace(' ', '-').lower()}-{index}-{abs(hash(more)) % 1000}"
        rows.append(
            f"card {uuid} NVIDIA {model}\n  total {gib * 1024}\n  reserved 300\n  bus 00000000:{index + 1:02x}:00.0\n"
        )
    return HEAD + "".join(rows) + more


class Eight:
    """A person and eight hosts."""

    def __init__(self, folder: Path) -> None:
        self.net = Net(folder / "net")
        kinds = {
            "a6000": cards(("RTX A6000", 48)),
            "small": cards(("RTX 2080 Ti", 11)),
            "busy": cards(("RTX A5000", 24), more="  holder 1 compute 20000\n"),
            "lost": cards(
                ("RTX 3090", 24), more="answer nvmlDeviceGetMemoryInfo 15\nanswer nvmlDeviceGetMemoryInfo_v2 15\n"
            ),
            "bare": "",
            "kept": cards(("RTX 4090", 24)),
            "best": cards(("RTX 3090", 24)),
            "away": cards(("H100", 80)),
        }
        for name, state in kinds.items():
            self.net.add(name, state)
        config = self.net.start()
        client = folder / "client"
        client.mkdir(mode=0o700)
        self.project = Project(Person(client))
        self.project.person.env[VARIABLE] = str(config)
        keep = {"kept": ", keep_free: [0]", "away": ", sleeps: true"}
        rows = [f"  - {{name: {name}, ssh: {name}{keep.get(name, '')}}}\n" for name in kinds]
        (self.project.folder / "machines.yaml").write_text("version: 1\nmachines:\n" + "".join(rows))

    def host(self, name: str) -> FleetHost:
        return self.net.hosts[name]

    def write(self, seconds: float = 0, name: str = "sft") -> None:
        self.project.write(f"python3 work.py {seconds}", name, "machine: {gpu: {vram: 16GiB}}\n")

    def starts(self) -> dict[str, int]:
        return {name: len(host.starts()) for name, host in self.net.hosts.items() if host.starts()}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eight]:
    fleet = Eight(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.net.close()


def test_each_card_of_the_fleet_gets_its_verdict_and_the_best_fit_the_run(eight: Eight) -> None:
    eight.host("away").off()
    eight.write()
    planned = eight.project.run("plan", "-v")
    shown = " ".join(planned.stdout.split())
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "start on best[0], RTX 3090" in shown
    for words in (
        "asks 16.8 GiB",
        "no NVIDIA driver",
        "kept_by_owner",
        "no answer: away",
        "lost: the machine needs a look",
        "19.5 GiB",
    ):
        assert words in shown, shown
    applied = eight.project.run("apply", "--yes", "--follow")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "step 2/2 loss=0.4" in applied.stderr
    assert eight.starts() == {"best": 1}
    again = eight.project.run("apply", "--yes")
    assert (again.returncode, eight.starts()) == (0, {"best": 1}), again.stdout


def test_a_cable_that_is_pulled_hides_a_run_and_harms_it_not(eight: Eight) -> None:
    eight.write(600, "long")
    assert eight.project.run("apply", "--yes").returncode == 0
    host = eight.host(eight.project.job("long")["machine"])
    before = len(host.starts())
    host.cut()
    listed = eight.project.run("list")
    assert f"{host.name} does not answer: its runs are not shown" in listed.stdout
    refused = eight.project.run("apply", "--yes")
    assert (refused.returncode, f"{host.name} does not answer and may hold a copy" in refused.stdout) == (6, True)
    host.join()
    until(lambda: eight.project.run("apply", "--yes").returncode == 0)
    assert len(host.starts()) == before
    stopped = eight.project.run("stop", "long", "--yes")
    assert (stopped.returncode, "stopped" in stopped.stdout) == (0, True), stopped.stdout + stopped.stderr


def test_after_a_power_cut_the_end_is_unknown_and_nothing_starts_by_itself(eight: Eight) -> None:
    eight.write(600, "night")
    assert eight.project.run("apply", "--yes").returncode == 0
    host = eight.host(eight.project.job("night")["machine"])
    before = len(host.starts())
    host.off()
    host.start()
    told = eight.project.job("night")
    assert (told["status"], told["reason"]) == ("unknown", "reboot")
    refused = eight.project.run("apply", "--yes")
    assert (refused.returncode, len(host.starts())) == (8, before), refused.stdout
    assert eight.project.run("wait", "night").returncode == 12
    again = eight.project.run("apply", "--yes", "--again")
    assert again.returncode == 0, again.stdout + again.stderr
    assert sum(eight.starts().values()) and eight.project.run("stop", "night", "--yes").returncode == 0
