"""Ciphers for many bytes: another order of OpenSSH's own list, and only where the processor is made for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aicrun.hosts.ssh_ciphers import QUICK, has_aes, quick_ciphers, quick_first
from aicrun.hosts.ssh_route import usual


@pytest.mark.parametrize(
    ("words", "has"),
    [
        ("flags\t\t: fpu aes avx\n", True),
        ("Features\t: fp aes sha2\n", True),
        ("flags\t: fpu vaes\n", False),
        ("", False),
    ],
)
def test_instructions_for_aes_are_read_from_the_kernels_list(tmp_path: Path, words: str, has: bool) -> None:
    (tmp_path / "cpuinfo").write_text("model name : x aes\n" + words)
    assert has_aes(str(tmp_path / "cpuinfo")) is has
    assert not has_aes(str(tmp_path / "nothing"))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_no_cipher_is_added_and_none_dropped() -> None:
    found = quick_ciphers()
    assert not found or (set(found) == set(usual("ciphers")) and found[0] == QUICK[0])


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_a_carrier_with_ciphers_of_its_own_keeps_them_all_in_their_order() -> None:
    own = ["aes128-ctr", "aes256-cbc", QUICK[1], "one-of-its-own", QUICK[0]]
    found = quick_first(own)
    assert sorted(found) == sorted(own)
    assert [name for name in found if name not in QUICK] == ["aes128-ctr", "aes256-cbc", "one-of-its-own"]
    assert found[:2] == (list(QUICK) if quick_ciphers() else own[:2])
