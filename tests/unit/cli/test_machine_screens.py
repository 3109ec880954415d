"""The table of machines, held by golden files; `AICRUN_FREEZE=1` writes them anew for a reviewer to read."""

from __future__ import annotations

from unit.cli.test_screens import held

from aicrun.cli.screen import Screen
from aicrun.cli.views.tables import machines_lines
from aicrun.plan.model import Fleet, MachineView
from aicrun.spec.model import LocalReach, Machine, Reached, SshReach
from aicrun.wire.codec import replace
from aicrun.wire.facts import BootIdentity, Card, CardProcess, Cards, Disk, Drain, Holder, HostReading, Survival


def reading() -> HostReading:
    cards = (
        Card(0, "GPU-0", "NVIDIA RTX A6000", vram_total_mib=49140, vram_free_mib=9216, utilization_percent=99,
             temperature_c=78, holder=Holder("whisper-ft", "alice", "51c0" * 4, 93600.0)),
        Card(1, "GPU-1", "NVIDIA RTX A6000", vram_total_mib=49140, vram_free_mib=48740, utilization_percent=0,
             temperature_c=33, processes_listed=True),
        Card(2, "GPU-2", "NVIDIA GeForce RTX 4090", vram_total_mib=24564, vram_free_mib=15770, utilization_percent=40,
             processes_listed=True, processes=(CardProcess(8121, "compute", 7065, "bo", "python"),)),
        Card(3, "GPU-3", "GB10"),
    )  # fmt: skip
    return HostReading(
        hostname="lab", host_id="1" * 32, boot=BootIdentity("b", "p", 1), account="ana", uid=1000, home="/home/ana",
        shell="/bin/bash", system="Linux", architecture="x86_64", libc="glibc 2.39", python="3.12.4", agent_digest="d",
        cpus=64, memory_mib=257024, cards=Cards("devices", driver="570.124.06", cards=cards), state_root="/s",
        jobs_root="/s", survival=Survival("A", ""), disks=(Disk("/data", 1539316278886, 2 * 10**12, 10**6),),
    )  # fmt: skip


def test_machines_and_their_cards() -> None:
    bare = replace(reading(), cards=Cards("none", "no_driver", "no NVIDIA driver is loaded"), hostname="desk")
    fleet = Fleet(
        (
            MachineView(Machine("lab", LocalReach()), "answered", reading()),
            MachineView(Machine("desk", LocalReach()), "answered", bare),
            MachineView(
                Machine("home", SshReach("home")), "unsupported", why="home is reached by ssh, not supported yet"
            ),
            MachineView(Machine("attic", SshReach("attic"), down=True), "down", why="down: true in machines.yaml"),
        )
    )
    held("machines", machines_lines(Screen(), fleet, 0.62))


def test_one_machine_closely_with_the_way_there() -> None:
    key = "ED25519 SHA256:8Yw0mJr1nq7yQxq9bQ0V2c5s7yJt3mC0e0l4ZkS1x2A"
    led = Reached("ana", "203.0.113.7", 2222, "OpenSSH", "proxycommand is set", (key,))
    home = MachineView(Machine("home", SshReach("home")), "answered", reading(), reached=led)
    other = MachineView(
        Machine("home", SshReach("home")),
        "silent",
        why="refused",
        reached=Reached("ana", "203.0.113.7", 2222, "fabric"),
    )
    shown = machines_lines(Screen(), Fleet((home,), inventory_digest="4be1c07a" * 8), 0.62, closely=True)
    held("machines_check", [*shown, *machines_lines(Screen(), Fleet((other,)), 0.62, closely=True)])


def test_a_drained_machine_has_no_free_card() -> None:
    told = replace(reading(), drain=Drain("root", True, 7300.0, "new power supply"))
    fleet = Fleet((MachineView(Machine("lab", LocalReach()), "answered", told),))
    held("machines_drained", machines_lines(Screen(), fleet, 0.62))
