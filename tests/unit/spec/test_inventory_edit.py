"""A person's machines.yaml is changed in one place, and every other byte of it stays."""

from __future__ import annotations

import pytest

from aicrun.errors import UsageError
from aicrun.spec.inventory import load_inventory_text
from aicrun.spec.inventory_edit import with_down, with_machine, without

TEXT = """\
# ours
version: 1
machines:
  - name: lab            # by the window
    ssh: ana@lab
    labels:
      site: home         # not the office

  # the old one
  - {name: attic, ssh: attic}

  - name: box
    ssh: box
    env:
      A: b
# the end
"""


def names(text: str) -> list[str]:
    """The machines, each with a mark when it is down, as the loader reads them."""
    inventory, _ = load_inventory_text(text.encode(), "machines.yaml")
    return [machine.name + ("!" if machine.down else "") for machine in inventory.machines]


def removed_and_added(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize("name", ["lab", "attic", "box"])
def test_down_and_up_again_change_one_line_and_nothing_else(name: str) -> None:
    down = with_down(TEXT, "m", name, True)
    assert names(down) == [one + ("!" if one == name else "") for one in ("lab", "attic", "box")]
    gone, came = removed_and_added(TEXT, down)
    assert (len(gone), len(came)) == ((1, 1) if name == "attic" else (0, 1))
    up = with_down(down, "m", name, False)
    assert names(up) == ["lab", "attic", "box"]
    assert up == TEXT or name == "attic"
    assert with_down(down, "m", name, True) == down
    assert with_down(TEXT, "m", name, False) == TEXT


@pytest.mark.parametrize(("name", "lines"), [("lab", 4), ("attic", 1), ("box", 4)])
def test_a_machine_is_taken_out_whole(name: str, lines: int) -> None:
    left = without(TEXT, "m", name)
    assert names(left) == [one for one in ("lab", "attic", "box") if one != name]
    gone, came = removed_and_added(TEXT, left)
    assert (len(gone), came) == (lines, [])
    assert ("# ours" in left, "# the end" in left, "# the old one" in left) == (True, True, True)


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("# the end\n", ""), TEXT.rstrip().removesuffix("\n# the end")])
def test_a_machine_is_added_behind_the_last(text: str) -> None:
    more = with_machine(text, "m", {"name": "new", "ssh": "ana@new:2222", "data": "/data"})
    assert names(more) == ["lab", "attic", "box", "new"]
    gone, came = removed_and_added(text, more)
    assert (gone, came) == ([], ["  - name: new", "    ssh: ana@new:2222", "    data: /data"])


def test_the_first_machine_makes_the_file() -> None:
    text = with_machine("", "m", {"name": "lab", "ssh": "lab"})
    assert text == "version: 1\nmachines:\n  - name: lab\n    ssh: lab\n"
    assert names(text) == ["lab"]
    assert names(with_machine(text, "m", {"name": "box", "local": "true"})) == ["lab", "box"]


def test_dashes_at_the_margin() -> None:
    text = "version: 1\nmachines:\n- name: a\n  ssh: a\n- name: b\n  ssh: b\n"
    assert names(with_machine(text, "m", {"name": "c", "ssh": "c"})) == ["a", "b", "c"]
    assert without(text, "m", "a") == "version: 1\nmachines:\n- name: b\n  ssh: b\n"
    assert without(text, "m", "b") == "version: 1\nmachines:\n- name: a\n  ssh: a\n"


def test_what_cannot_be_kept_is_refused() -> None:
    flow = "version: 1\nmachines: [{name: a, ssh: a}, {name: b, ssh: b}]\n"
    assert names(with_down(flow, "m", "a", True)) == ["a!", "b"]
    for change in (lambda: with_machine(flow, "m", {"name": "c"}), lambda: without(flow, "m", "a")):
        with pytest.raises(UsageError, match="cannot be changed by a command"):
            change()
    with pytest.raises(UsageError, match="no machine is named zoo"):
        with_down(TEXT, "m", "zoo", True)
    with pytest.raises(UsageError, match="the only machine"):
        without("version: 1\nmachines:\n  - name: a\n    ssh: a\n", "m", "a")
