"""Which keys known_hosts accepts for a machine: as ssh-keygen finds them, whatever else stands in the file."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from aicrun.hosts.known_hosts import KnownKey, keys_for, text_of


def blob(name: str) -> str:
    """The base64 text of a key; which one is told by its bytes."""
    return base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + name.encode().ljust(32, b".")).decode()


def line(patterns: str, name: str) -> str:
    return f"{patterns} ssh-ed25519 {blob(name)} a comment\n"


FILE = (
    "# ours\n\n"
    + line("lab,10.0.0.7", "lab")
    + line("*.lan,!closed.lan", "any")
    + line("[lab]:2222", "other port")
    + line("BIG", "big")
    + line("node?,[node?]:22??", "nodes")
    + line("lab", "lab again")
    + line("::1", "six")
)


def names(*hosts: str, port: int = 22) -> list[tuple[str, ...]]:
    return [tuple(key.blob[19:].decode().rstrip(".") for key in keys_for((FILE,), host, port)) for host in hosts]


def test_names_patterns_and_ports() -> None:
    assert names("lab", "10.0.0.7", "::1", "zoo") == [("lab", "lab again"), ("lab",), ("six",), ()]
    assert names("a.lan", "closed.lan", "a.lan.org", "node7", "node77") == [("any",), (), (), ("nodes",), ()]
    assert names("LAB", "big") == [("lab", "lab again"), ("big",)]
    assert names("lab", "node1", port=2222) == [("other port",), ("nodes",)]
    # Without one for the port the host's own counts, as for ssh.
    assert names("lab", "zoo", port=2223) == [("lab", "lab again"), ()]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")
def test_ssh_keygen_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    for hashed in (False, True):
        path.write_text(
            FILE.replace("any", "any") if not hashed else line("lab,10.0.0.7", "lab") + line("[lab]:2", "p")
        )
        if hashed:
            subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
            assert "lab" not in path.read_text().replace(blob("lab"), "")
        for host in ("lab", "10.0.0.7", "a.lan", "closed.lan", "node7", "zoo", "[lab]:2222", "[lab]:2"):
            found = subprocess.run(
                ["ssh-keygen", "-F", host, "-f", str(path)], capture_output=True, text=True, check=False
            )
            theirs = [text.split()[2] for text in found.stdout.splitlines() if not text.startswith("#")]
            bare, _, port = host.strip("[").partition("]:")
            ours = keys_for((path.read_text(),), bare, int(port or 22))
            # It does not look for the host alone where nothing is known of the port.
            assert [base64.b64encode(key.blob).decode() for key in ours] == theirs or not theirs, host


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    odd = (
        b"\0\0\n\xff\xfe\nshort\nlab ssh-rsa AAAA!\nlab ssh-rsa\n|1|AA|!! ssh-rsa AAAA\n@revoked lab ssh-ed25519 AAAA\n"
    )
    path.write_bytes(odd + b"x" * 100_000 + b"\n" + line("lab", "lab").encode())
    assert [key.kind for key in keys_for((text_of(str(path)),), "lab", 22)] == ["ssh-ed25519"]
    assert text_of(str(tmp_path / "none")) == ""


def test_a_fingerprint_is_the_one_of_ssh_keygen(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen on this machine")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "k")], check=True)
    kind, body = (tmp_path / "k.pub").read_text().split()[:2]
    shown = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "k.pub")], capture_output=True, text=True, check=True)
    assert KnownKey(kind, base64.b64decode(body)).shown == f"ECDSA-SHA2-NISTP256 {shown.stdout.split()[1]}"
