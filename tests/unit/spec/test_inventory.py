"""machines.yaml: which one is used, and what it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.spec.documents import MACHINES

from aicrun.errors import UsageError
from aicrun.spec.diagnostics import DocumentInvalid
from aicrun.spec.inventory import meaning
from aicrun.spec.load import find_inventory, load_inventory, load_inventory_text, local_inventory
from aicrun.spec.model import LocalReach, SlurmReach, SshReach


def test_what_a_file_becomes() -> None:
    inventory, warnings = load_inventory_text(MACHINES.encode(), "machines.yaml")
    assert warnings == ()
    # Frozen: two people compare what they planned on, perhaps with two versions of this program.
    assert inventory.digest == "8a39abda4ff6544659eba11e196a89da32b852347a1af9650df8e630c262b3c6"
    box, here, cluster = inventory.machines
    assert (box.reach, box.data, box.keep_free, box.env, box.path) == (
        SshReach("gpu-box"),
        "/data",
        (0,),
        {"A": "1"},
        ("/opt/bin",),
    )
    assert (here.reach, here.max_jobs, here.down, here.sleeps) == (LocalReach(), 4, False, True)
    assert [machine.shared_memory for machine in inventory.machines] == [False, True, False]
    assert cluster.reach == SlurmReach(SshReach("login"), "gpu")
    assert [machine.line for machine in inventory.machines] == [3, 4, 5]


@pytest.mark.parametrize(
    ("was", "becomes", "is_same"),
    [
        ("version: 1\n", "# by Ana\nversion: 1\n", True),
        ("machines:\n", "machines:\n\n", True),
        ("name: gpu-box", 'name: "gpu-box"', True),
        ("data: /data", "data: /data, max_jobs: 32", True),
        ("data: /data", "data: /data2", False),
        ("data: /data", "data: /data, down: true", False),
        ("ssh: gpu-box", "ssh: ana@gpu-box", False),
    ],
)
def test_the_hash_is_over_what_the_file_says_and_not_over_its_text(was: str, becomes: str, is_same: bool) -> None:
    first = load_inventory_text(MACHINES.encode(), "machines.yaml")[0].digest
    assert was in MACHINES
    second = load_inventory_text(MACHINES.replace(was, becomes).encode(), "elsewhere.yaml")[0].digest
    assert (first == second) is is_same


def test_the_order_of_machines_is_a_part_of_the_hash() -> None:
    machines = load_inventory_text(MACHINES.encode(), "machines.yaml")[0].machines
    assert meaning(machines) != meaning(tuple(reversed(machines)))


def test_kept_cards_are_named_by_number_or_uuid() -> None:
    text = b"version: 1\nmachines: [{name: box, ssh: box, keep_free: [1, GPU-8f6b-1c]}]\n"
    assert load_inventory_text(text, "machines.yaml")[0].machines[0].keep_free == (1, "GPU-8f6b-1c")
    for wrong in (b"[nought]", b"[GPU-]", b"[-1]", b"[true]", b"[MIG-1]"):
        with pytest.raises(DocumentInvalid):
            load_inventory_text(text.replace(b"[1, GPU-8f6b-1c]", wrong), "machines.yaml")


def test_slurm_on_the_login_machine_itself() -> None:
    text = b"version: 1\nmachines: [{name: cluster, slurm: {local: true}}]\n"
    assert load_inventory_text(text, "machines.yaml")[0].machines[0].reach == SlurmReach(LocalReach())


def test_without_a_file_there_is_this_machine() -> None:
    inventory = local_inventory()
    assert [(machine.name, machine.reach) for machine in inventory.machines] == [("here", LocalReach())]
    assert (inventory.file, inventory.digest) == ("", "")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """repo/.git, repo/deep/spec, config, and one machines.yaml in each place that a test removes from."""
    for name in ("repo/.git", "repo/deep/spec", "config"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("repo/deep/spec", "repo", "config", "."):
        (tmp_path / name / "machines.yaml").write_text(MACHINES)
    return tmp_path


def test_the_order_of_places(folders: Path) -> None:
    spec, config = str(folders / "repo/deep/spec"), str(folders / "config")
    env = {"AICRUN_MACHINES": "/from/env.yaml"}
    assert find_inventory("given.yaml", env, spec, config) == "given.yaml"
    assert find_inventory("", env, spec, config) == "/from/env.yaml"
    for place in ("repo/deep/spec", "repo", "config"):
        expected = folders / place / "machines.yaml"
        assert find_inventory("", {}, spec, config) == str(expected)
        expected.unlink()
    # The one above the repository is somebody else's.
    assert find_inventory("", {}, spec, config) == ""


def test_outside_a_repository_only_the_folder_itself_is_looked_at(folders: Path) -> None:
    (folders / "repo/.git").rmdir()
    (folders / "repo/deep/spec/machines.yaml").unlink()
    assert find_inventory("", {}, str(folders / "repo/deep/spec"), "") == ""


def test_a_missing_file_is_a_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_inventory(str(tmp_path / "none.yaml"))
    assert caught.value.code == "AIC-E180"
