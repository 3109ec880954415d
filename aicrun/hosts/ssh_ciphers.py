"""The order of ciphers for many bytes: those first that this processor has instructions for. It adds and drops none."""

from __future__ import annotations

import functools
import platform

from aicrun.hosts.ssh_route import usual

# Two thirds of the processor's time of OpenSSH's first choice, where AES is an instruction (`benchmarks/reach.py`).
QUICK = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_CPUS = "/proc/cpuinfo"


@functools.cache
def quick_ciphers() -> tuple[str, ...]:
    """OpenSSH's own list in another order; empty where its own order is as good or better."""
    known = usual("ciphers")
    quick = tuple(name for name in QUICK if name in known)
    return (*quick, *(name for name in known if name not in quick)) if quick and has_aes(_CPUS) else ()


def has_aes(cpus: str) -> bool:
    """Whether this machine's processor has instructions for AES, by the kernel's list at `cpus`; False when unknown."""
    if platform.system() == "Darwin":
        return True
    try:
        with open(cpus, encoding="utf-8", errors="replace") as stream:
            return any("aes" in line.split() for line in stream if line.startswith(("flags", "Features")))
    except OSError:
        return False
