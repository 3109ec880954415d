"""Each form of `setup` and each way in which an index fails it: the end, what it says to do, the next that is right.

Nothing half-built is ever used: after each fault the same environment is built whole, and is there for the next.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import packages
import pytest
from agent_rig import Rig
from setup_rig import FORMS, Site
from ssh_rig import free_port

from aicrun.wire.status import status_of


@dataclass(frozen=True)
class Fault:
    """What the index does with a wheel, what is said then of packages by name, and of a lock."""

    how: str
    words: str
    of_lock: str = ""

    def make(self, index: packages.Index) -> None:
        """Let the index do so."""
        index.cut_bytes = 200 if self.how == "cut" else None
        index.wheel_status = {"404": 404, "500": 500, "reset": packages.RESET}.get(self.how, 0)


FAULTS = (
    Fault("cut", "an index broke off half-way, and nothing of it is kept"),
    Fault("reset", "an index broke off half-way"),
    Fault("404", "the index names a file that it has not got", "make it anew (uv lock)"),
    Fault("500", "a fault of its own (500 Internal Server Error)"),
)


@pytest.fixture
def index(site: Site) -> Iterator[packages.Index]:
    found = packages.Index(site.wheels)
    yield found
    found.close()


@pytest.mark.parametrize("form", FORMS)
def test_an_index_that_fails_half_way_is_told_as_what_it_did_and_the_next_build_is_whole(
    site: Site, index: packages.Index, form: str
) -> None:
    fields = site.form(form, index.address)
    for fault in FAULTS:
        fault.make(index)
        last = site.fails(**fields)
        is_locked = form in ("lock", "project")
        assert (fault.of_lock if is_locked and fault.of_lock else fault.words) in last, fault.how
    gone = site.fails(**site.form(form, f"http://127.0.0.1:{free_port()}/simple"))
    assert "this host does not reach the index" in gone
    assert "a folder of wheels on it in setup.wheels" in gone
    Fault("", "").make(index)
    assert "removing a half-built environment" in site.succeeds(**fields)
    asked = len(index.asked)
    Fault("500", "").make(index)
    assert "is ready" in site.succeeds(**fields)
    assert len(index.asked) == asked


def test_an_index_whose_pages_fail_and_one_that_has_no_such_package(site: Site, index: packages.Index) -> None:
    fields = site.form("requirements", index.address)
    for status, words in ((503, "a fault of its own (503 Service Unavailable)"), (403, "wants a login")):
        index.page_status = status
        assert words in site.fails(**fields)
    index.page_status = 0
    missing = {**fields, "requirements": "tiny\nno-such-of-ours\n"}
    assert "no index that was asked has a package of this name" in site.fails(**missing)
    newer = packages.wheel(site.wheels, "newer", about="Requires-Python: >=3.99\n")
    assert "name those that it admits in setup.python" in site.fails(**{**fields, "requirements": "newer\n"}), newer
    site.succeeds(**fields)


def test_an_index_that_says_nothing_is_not_waited_for_for_ever(site: Site, index: packages.Index) -> None:
    fields = site.form("lock", index.address)
    index.sends.clear()
    last = site.fails(**fields, patience_s=1)
    assert "the index gives no answer in time" in last
    assert "a folder of wheels on it in setup.wheels" in last
    job = site.start(**fields, timeout_s=1)
    assert status_of(site.ended(job)).reason == "setup_failed"
    assert "setup.timeout passed (1 s) while installing what uv.lock names" in site.said(job).splitlines()[-1]
    index.sends.set()
    site.succeeds(**fields)


class Offline(Rig):
    """A host without any network but its own loopback."""

    def serving(self, env: dict[str, str]) -> list[str]:
        return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *super().serving(env)]


def test_a_host_without_a_network_says_what_to_do_and_builds_from_a_folder(tmp_path: Path) -> None:
    probe = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no network of its own can be made here: root and iproute2 are needed")
    rig = Offline(tmp_path)
    try:
        site = Site(rig)
        # As pypi.org itself: a name that nobody tells here.
        for form in ("requirements", "lock"):
            last = site.fails(**site.form(form, "https://index.example.org/simple"))
            assert "this host does not reach the index" in last
            assert "a folder of wheels on it in setup.wheels" in last
        site.succeeds(packages=(), requirements="tiny\n", requirements_name="requirements.txt")
    finally:
        rig.close()
