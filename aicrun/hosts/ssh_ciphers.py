"""In which order algorithms are asked for: what is quick here, what is known of a machine. It adds and drops none."""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence, Set

from aicrun.hosts.ssh_route import usual

# Two thirds of the processor's time of OpenSSH's first choice, where AES is an instruction (`benchmarks/reach.py`).
QUICK = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_CPUS = "/proc/cpuinfo"
# OpenSSH's name of a list of algorithms, and paramiko's.
KINDS = {
    "ciphers": "ciphers",
    "macs": "macs",
    "kexalgorithms": "kex",
    "hostkeyalgorithms": "keys",
    "pubkeyacceptedalgorithms": "pubkeys",
}
# Ways to sign with a key of another name.
_KIND_OF_KEY = {"rsa-sha2-512": "ssh-rsa", "rsa-sha2-256": "ssh-rsa"}


@functools.cache
def quick_ciphers() -> tuple[str, ...]:
    """OpenSSH's own list in another order; empty where its own order is as good or better."""
    known = usual("ciphers")
    quick = tuple(name for name in QUICK if name in known)
    return (*quick, *(name for name in known if name not in quick)) if quick and has_aes(_CPUS) else ()


def quick_first(names: Sequence[str]) -> list[str]:
    """The same ciphers, those first that are quick here; the others stay in their order."""
    quick = [name for name in quick_ciphers() if name in QUICK]
    return sorted(names, key=lambda name: quick.index(name) if name in quick else len(quick))


def known_first(types: Sequence[str], kinds: Set[str]) -> list[str]:
    """The same types of keys, those first that sign with a key of `kinds`."""
    return sorted(types, key=lambda kind: _KIND_OF_KEY.get(kind, kind) not in kinds)


def has_aes(cpus: str) -> bool:
    """Whether this machine's processor has instructions for AES, by the kernel's list at `cpus`; False when unknown."""
    if platform.system() == "Darwin":
        return True
    try:
        with open(cpus, encoding="utf-8", errors="replace") as stream:
            return any("aes" in line.split() for line in stream if line.startswith(("flags", "Features")))
    except OSError:
        return False
