"""Which carrier a configuration gets, and what a target of machines.yaml is taken for."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from aicrun.hosts import ssh_route
from aicrun.hosts.ssh_route import FABRIC, OPENSSH, Target, parsed, route_of, target_of, with_markers

# As `ssh -G` says it; only what the cases need.
PLAIN = """
user ana
hostname nobody
port 22
controlmaster false
gssapiauthentication no
ciphers chacha20-poly1305@openssh.com,aes128-ctr
identityfile ~/.ssh/id_rsa
identityfile ~/.ssh/id_ed25519
userknownhostsfile /home/ana/.ssh/known_hosts /home/ana/.ssh/known_hosts2
hashknownhosts no
serveraliveinterval 0
proxyusefdpass no
pubkeyauthentication true
"""
# What the packages of the distributions ship in /etc/ssh, as OpenSSH reads it.
DEBIAN = "Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n  GSSAPIAuthentication yes\n"
FEDORA = (
    "Match final all\n  GSSAPIAuthentication yes\n"
    "  Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,aes128-gcm@openssh.com,aes128-ctr\n"
    "  MACs hmac-sha2-256-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-128-etm@openssh.com,hmac-sha2-256\n"
    "  KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384\n"
    "  HostKeyAlgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256,rsa-sha2-512\n"
    "  PubkeyAcceptedAlgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256,rsa-sha2-512\n"
    "  CASignatureAlgorithms ecdsa-sha2-nistp256,ssh-ed25519,rsa-sha2-256\n"
    "  ForwardX11Trusted yes\n  SendEnv LANG LC_CTYPE\n  SendEnv XMODIFIERS\n"
)


def said(text: str, ticket: bool = False) -> tuple[str, str]:
    """(carrier, why) when the configuration adds `text` to what it says of nobody."""
    plain = parsed(PLAIN)
    route = route_of(Target("lab"), {**plain, **parsed(text)}, plain, ticket)
    return route.carrier, route.why


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("lab", Target("lab")),
        ("ana@lab", Target("lab", "ana")),
        ("ana@lab:2222", Target("lab", "ana", 2222)),
        ("lab:2222", Target("lab", "", 2222)),
        ("ssh://ana@lab:2222/", Target("lab", "ana", 2222)),
        ("::1", Target("::1")),
        ("fe80::1%eth0", Target("fe80::1%eth0")),
        ("ana@fe80::1%eth0", Target("fe80::1%eth0", "ana")),
        ("[::1]:2222", Target("::1", "", 2222)),
        ("ana@[2001:db8::7]", Target("2001:db8::7", "ana")),
        ("a@b@lab", Target("lab", "a@b")),
    ],
)
def test_a_target_is_taken_apart(text: str, target: Target) -> None:
    assert target_of(text) == target
    assert all(not part.startswith("-") or part in ("-p", "-l", "--") for part in target.arguments)


@pytest.mark.parametrize(
    "text", ["", "ana@", "[::1", "[::1]x", "lab:0", "lab:70000", "lab:ssh", "-oProxyCommand=x", "-l@lab"]
)
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no host|bracket|port"):
        target_of(text)


@pytest.mark.parametrize(
    "text", ["my box", "box\n", "ana\t@lab", "lab;id", "$HOME", "`id`", "a|b@lab", "lab\x1b[1m", "l'b", "a,b"]
)
def test_what_ssh_takes_in_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which ssh takes in no name"):
        target_of(text)


def test_the_command_to_type_is_one_that_can_be_typed() -> None:
    assert Target("lab", "ana", 2222).by_hand == "ssh -p 2222 ana@lab"
    assert Target("lab", "LAB\\ana").by_hand == "ssh 'LAB\\ana@lab'"


@pytest.mark.parametrize(
    ("text", "carrier", "why"),
    [
        ("", FABRIC, ""),
        ("hashknownhosts yes\nsendenv LANG\nsendenv LC_*", FABRIC, ""),
        ("user bob\nhostname 10.0.0.7\nport 2222\nidentityfile /k\nidentitiesonly yes", FABRIC, ""),
        ("proxyjump hop,ana@hop2:2200", FABRIC, ""),
        ("proxycommand nc %h %p", OPENSSH, "proxycommand is set"),
        ("certificatefile /k-cert.pub", OPENSSH, "certificatefile is set"),
        ("controlpath /run/c-%C", OPENSSH, "controlpath is set"),
        ("hostkeyalias lab", OPENSSH, "hostkeyalias is set"),
        ("knownhostscommand /bin/k", OPENSSH, "knownhostscommand is set"),
        ("identityagent /run/agent", OPENSSH, "identityagent is set"),
        ("identityagent none", OPENSSH, "identityagent is set"),
        ("bindaddress 10.0.0.1", OPENSSH, "bindaddress is set"),
        ("proxycommand false", OPENSSH, "proxycommand is set"),
        ("pubkeyauthentication no", OPENSSH, "pubkeyauthentication is set"),
        ("proxycommand none\ncontrolpath none\ncertificatefile none", FABRIC, ""),
        ("stdinnull yes\nforkafterauthentication yes\nsessiontype none\nrequesttty force", FABRIC, ""),
        ("somethingnew yes", OPENSSH, "somethingnew is set"),
        ("proxyjump [::1", OPENSSH, "ProxyJump: [::1 has a bracket that does not close before the port"),
    ],
)
def test_the_carrier_and_why(text: str, carrier: str, why: str) -> None:
    assert said(text) == (carrier, why)


def test_a_ticket_makes_gssapi_count() -> None:
    assert said("gssapiauthentication yes") == (FABRIC, "")
    assert said("gssapiauthentication yes", ticket=True) == (OPENSSH, "gssapiauthentication is set")


def test_what_the_route_keeps() -> None:
    plain = parsed(PLAIN)
    text = "user bob\nhostname 10.0.0.7\nport 2222\nciphers aes128-ctr\nproxyjump hop,ana@hop2:2200\nconnecttimeout 5"
    route = route_of(Target("lab"), {**plain, **parsed(text)}, plain, False)
    assert route.address == "bob@10.0.0.7:2222"
    assert route.jumps == (Target("hop"), Target("hop2", "ana", 2200))
    assert route.algorithms == (("ciphers", ("aes128-ctr",)),)
    assert (route.connect_timeout_s, route.keepalive_s, route.has_own_identities) == (5, 0, False)
    assert route.known_hosts == ("/home/ana/.ssh/known_hosts", "/home/ana/.ssh/known_hosts2")


def test_known_hosts_with_authorities_are_left_to_openssh() -> None:
    plain = parsed(PLAIN)
    route = route_of(Target("lab"), plain, plain, False)
    assert with_markers(route, lambda path: "lab ssh-ed25519 AAAA\n").carrier == FABRIC
    marked = with_markers(route, lambda path: "# ours\n@cert-authority *.lan ssh-ed25519 AAAA\n")
    assert (marked.carrier, "@cert-authority" in marked.why) == (OPENSSH, True)


@pytest.mark.parametrize("stock", [DEBIAN, FEDORA], ids=["debian and ubuntu", "fedora"])
def test_what_distributions_ship_is_carried_by_fabric(stock: str, tmp_path: Path) -> None:
    """Read by the system's own ssh, as on a user's machine."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh on this machine: apt-get install openssh-client")

    def told(path: str) -> dict[str, tuple[str, ...]]:
        argv = ["ssh", "-G", "-F", path, "lab"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        return dict(parsed(done.stdout))

    config = tmp_path / "config"
    config.write_text(stock)
    route = route_of(Target("lab"), told(str(config)), told("none"), False)
    assert (route.carrier, route.why) == (FABRIC, "")


def test_what_nobody_configures_is_asked_for_once_by_many_machines_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, asked = tmp_path / "ssh", tmp_path / "asked"
    # One line a call, written in one piece.
    program.write_text(f'#!/bin/sh\necho "$*" >> {asked}\nprintf "user ana\\nport 22\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ssh_route._plain_once.cache_clear()
    try:
        asking = [threading.Thread(target=ssh_route.ask, args=(Target(f"m{number}"),)) for number in range(24)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    finally:
        ssh_route._plain_once.cache_clear()
    lines = asked.read_text().splitlines()
    assert sum(line.startswith("-G -F none") for line in lines) == 1
    assert len(lines) == 25
