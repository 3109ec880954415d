"""Names that a host or a target tells stay below the folder that they are joined to."""

from __future__ import annotations

import os

import pytest

from aicrun.errors import TransferFailed
from aicrun.hosts.backend import Backend, RemoteFiles
from aicrun.lifecycle.transfer import bring, is_below

HOSTILE = ("/etc/passwd", "../up", "a/../../up", "a//b", "./a", "a/.", "a/", "a\0b", "\ud800")


@pytest.mark.parametrize("name", ["", *HOSTILE])
def test_what_leads_elsewhere_is_no_name(name: str) -> None:
    assert not is_below(name)


@pytest.mark.parametrize("name", ["a", "a/b", "..a", "-rf", "a b\n", os.fsdecode(b"caf\xe9"), "$(x)"])
def test_what_is_odd_is_one(name: str) -> None:
    assert is_below(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_host_that_tells_one_is_not_asked_for_a_byte(name: str, tmp_path: os.PathLike[str]) -> None:
    told = RemoteFiles("/there", True, (("fine", 1, 0o600), (name, 1, 0o600)), ())
    with pytest.raises(TransferFailed, match="leads out of the folder"):
        bring(object.__new__(Backend), told, os.path.join(tmp_path, "here"), False, lambda _: None)
    assert os.listdir(tmp_path) == []
