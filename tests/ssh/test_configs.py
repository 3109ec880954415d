"""Odd things that a user's ssh configuration says: obeyed, or refused in words; no hang, no traceback, no question."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh.conftest import FABRIC, OPENSSH, over
from ssh.test_faults import config_of, fault, words
from ssh.test_ways import survey
from ssh_rig import Sshd, key

from aicrun.hosts import ssh_keys, ssh_route
from aicrun.hosts.carriers import SshTransport
from aicrun.hosts.openssh import OpenSshTransport
from aicrun.hosts.ssh_names import aliases
from aicrun.hosts.ssh_route import Target, ask, target_of
from aicrun.hosts.transport import Transport

HERE = os.uname().nodename
# A program that joins its pipes and a socket, as nc does where there is one.
JOIN = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    for data in iter(lambda: os.read(0, 65536), b""):
        there.sendall(data)
threading.Thread(target=send, daemon=True).start()
for data in iter(lambda: there.recv(65536), b""):
    os.write(1, data)
"""


def chosen() -> SshTransport:
    """The machine `box`, by the carrier that its configuration gets."""
    return SshTransport("box", Target("box"))


def set_entry(daemon: Sshd, extra: str) -> None:
    config_of(daemon).write_text(daemon.entry("box", extra))


ODD = (
    ("RequestTTY force\nLogLevel QUIET\nSendEnv FOO BAR*\nEscapeChar none\nStdinNull yes\nSessionType none", FABRIC),
    ("KexAlgorithms curve25519-sha256\nForkAfterAuthentication yes", FABRIC),
    ("RekeyLimit 1K", OPENSSH),
    ("LogLevel DEBUG3\nRequestTTY force\nStdinNull yes\nForkAfterAuthentication yes\nIdentityAgent none", OPENSSH),
    ("SessionType subsystem\nAddressFamily inet\nBindAddress 127.0.0.1\nLogLevel QUIET", OPENSSH),
    ("RemoteCommand tmux\nForwardAgent yes\nTunnel yes\nDynamicForward 1080", OPENSSH),
)


def test_what_is_odd_for_a_program_on_pipes_is_obeyed_or_passed_over(daemon: Sshd) -> None:
    for extra, by in ODD:
        set_entry(daemon, extra)
        transport = chosen()
        assert f"by {'OpenSSH' if by == OPENSSH else 'fabric'}" in transport.carrier, extra
        assert survey(transport) == HERE, extra


def test_ports_that_it_forwards_may_be_taken(daemon: Sshd, carrier: str) -> None:
    """By another ssh of the same person, say; and nothing is run on this machine for a connection."""
    touched = daemon.folder / "touched"
    taken = f"LocalForward {daemon.port} 127.0.0.1:1\nDynamicForward {daemon.port}\nRemoteForward {daemon.port} [::1]:1"
    set_entry(daemon, f"{taken}\nExitOnForwardFailure yes\nPermitLocalCommand yes\nLocalCommand touch {touched}")
    if carrier == FABRIC:
        attended = chosen().attended(("true",), ())
        done = subprocess.run(attended, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
    else:
        assert survey(over(carrier)) == HERE
    assert not touched.exists()


def test_include_match_and_wildcards_as_ssh_reads_them(daemon: Sshd) -> None:
    parts = daemon.folder / "parts"
    parts.mkdir()
    entry = daemon.entry("box")
    (parts / "10-user.conf").write_text("Match host b*x exec true\n" + _lines(entry, "User"))
    (parts / "20-keys.conf").write_text("Host *\n" + _lines(entry, "IdentityFile", "IdentitiesOnly"))
    (parts / "30-rest.conf").write_text("Host box !other\n" + _lines(entry, "HostName", "Port", "UserKnownHostsFile"))
    config_of(daemon).write_text(f'Include "{parts}/*.conf" {daemon.folder}/none*\n')
    assert aliases() == ("box",)
    assert survey(chosen()) == HERE


def _lines(entry: str, *keys: str) -> str:
    return "".join(f"{line}\n" for line in entry.splitlines() if line.split()[0] in keys)


def test_a_match_that_never_ends_is_told(daemon: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Match exec` runs a program of the user's, before anything is known of the machine."""
    monkeypatch.setattr(ssh_route, "ASK_DEADLINE_S", 1.0)
    config_of(daemon).write_text('Match exec "sleep 60"\n  User x\n' + daemon.entry("box"))
    error = fault(chosen())
    assert (error.code, "no answer within" in words(error)) == ("AIC-E509", True)


def test_what_ssh_cannot_read_is_told_with_its_line(daemon: Sshd) -> None:
    set_entry(daemon, "Ciphers nonsense")
    error = fault(chosen())
    assert (error.code, "line 8" in words(error), "ssh -G box" in words(error)) == ("AIC-E509", True, True)


def test_a_proxy_command_carries_and_its_last_words_are_shown(daemon: Sshd) -> None:
    (daemon.folder / "join.py").write_text(JOIN)
    set_entry(daemon, f"ProxyCommand {sys.executable} {daemon.folder}/join.py %h %p")
    transport = chosen()
    assert "proxycommand is set" in transport.carrier
    assert survey(transport) == HERE
    for command, reason in (("no-such-program %h %p", "not found"), ("false", "")):
        set_entry(daemon, f"ProxyCommand {command}")
        error = fault(chosen())
        assert (error.code, reason in words(error)) == ("AIC-E508", True), words(error)
        assert "ProxyCommand" in error.message
        assert all(way.command for way in error.ways)


def test_a_control_path_that_cannot_be_a_socket_is_gone_without(daemon: Sshd) -> None:
    for path in ("/tmp/" + "x" * 120 + "/%C", "/no/such/folder/%C"):
        set_entry(daemon, f"ControlMaster auto\nControlPersist 5\nControlPath {path}")
        assert survey(chosen()) == HERE


def test_long_names_deep_homes_and_other_letters_are_no_trouble(
    daemon: Sshd, carrier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the socket of a shared connection whatever the names are."""
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(deep))
    for alias in ("a" * 90, "büro"):
        config_of(daemon).write_text(daemon.entry(alias))
        assert survey(over(carrier, alias)) == HERE


def test_a_name_that_no_name_service_can_have_is_not_known(daemon: Sshd, carrier: str) -> None:
    for alias in ("büro2", "a" * 300, "a/b"):
        assert fault(over(carrier, alias)).code == "AIC-E503"


def test_what_stands_in_known_hosts_is_read_as_ssh_reads_it(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    """Lines that nobody can read, an older key beside the new one, patterns, no port, a path with a space."""
    kind, body = daemon.known().split()[1:]
    old = (key(tmp_path / "old").with_suffix(".pub")).read_text().split()[1]
    known = daemon.folder / "known_hosts"
    odd = b"\xfc\xff\0 ssh-rsa AAAA\nother ssh-rsa AAAA!\nother ssh-foo AAAA\nshort\n"
    known.write_bytes(odd + f"[127.0.0.1]:{daemon.port} {kind} {old}\n{daemon.known()}".encode())
    assert survey(over(carrier)) == HERE
    for name in (f"[127.*]:{daemon.port}", "127.0.0.1"):
        known.write_text(f"{name} {kind} {body}\n")
        assert survey(over(carrier)) == HERE
    spaced = daemon.folder / "a folder"
    spaced.mkdir()
    (spaced / "known").write_text(daemon.known())
    config_of(daemon).write_text(daemon.entry("box").replace(str(known), f'"{spaced}/known"'))
    assert survey(chosen() if carrier == FABRIC else over(carrier)) == HERE


def test_a_configuration_that_keeps_no_key_is_told_how_to_keep_one(daemon: Sshd, carrier: str) -> None:
    config_of(daemon).write_text(daemon.entry("box").replace(f"{daemon.folder}/known_hosts", "/dev/null"))
    error = fault(over(carrier))
    assert (error.code, "UserKnownHostsFile ~/.ssh/known_hosts" in words(error)) == ("AIC-E501", True)


def test_key_files_that_are_none_are_passed_over(daemon: Sshd) -> None:
    for number, data in enumerate((b"\xff\xfe\0", b"", b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n")):
        path = daemon.folder / f"odd-{number}"
        path.write_bytes(data)
        path.chmod(0o600)
        good = f"  IdentityFile {daemon.user_key}\n"
        config_of(daemon).write_text(daemon.entry("box").replace(good, f"  IdentityFile {path}\n{good}"))
        assert survey(chosen()) == HERE
    config_of(daemon).write_text(daemon.entry("box").replace(str(daemon.user_key), str(daemon.folder / "odd-0")))
    assert fault(chosen()).code == "AIC-E506"


def test_an_agent_that_never_answers_keeps_nobody(
    daemon: Sshd, carrier: str, monkeypatch: pytest.MonkeyPatch, short: Path
) -> None:
    monkeypatch.setattr(ssh_keys, "AGENT_ANSWERS_S", 0.3)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(short / "agent"))
        agent.listen(9)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(short / "agent"))
        config_of(daemon).write_text(daemon.entry("box").replace("  IdentitiesOnly yes\n", ""))
        assert survey(over(carrier)) == HERE
        daemon.user_key.unlink()
        other = key(daemon.folder / "other")
        text = daemon.entry("box").replace("  IdentitiesOnly yes\n", "")
        config_of(daemon).write_text(text.replace(str(daemon.user_key), str(other)))
        error = fault(chosen())
        assert (error.code, f"{short}/agent gives no answer" in words(error)) == ("AIC-E507", True), words(error)


def test_a_banner_is_no_word_of_ssh(daemon: Sshd, carrier: str) -> None:
    """What a site says to everybody is not taken for why a connection ended."""
    daemon.close()
    banner = daemon.folder / "banner"
    banner.write_text("Permission denied to strangers. Connection refused. Host key verification failed.\n")
    daemon.config.write_text(f"{daemon.config.read_text()}Banner {banner}\n")
    daemon.start()
    start_file = daemon.folder.parent / "home/.bashrc"
    start_file.write_text("kill -9 $PPID\n")
    error = fault(over(carrier))
    assert (error.code, "strangers" in words(error)) == ("AIC-E511", False), words(error)
    start_file.unlink()
    assert survey(over(carrier)) == HERE


@pytest.fixture
def literal(daemon: Sshd) -> Iterator[str]:
    """The target of a daemon on IPv6's loopback, of which the configuration knows the key and nothing else."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this machine")
    daemon.close()
    daemon.config.write_text(daemon.config.read_text().replace("ListenAddress", "ListenAddress ::1\nListenAddress", 1))
    entry = daemon.entry("::1")
    config_of(daemon).write_text("Host ::1\n" + _lines(entry, "IdentityFile", "IdentitiesOnly", "UserKnownHostsFile"))
    (daemon.folder / "known_hosts").write_text(daemon.known("::1") + daemon.known())
    daemon.start()
    yield f"{daemon.user}@[::1]:{daemon.port}"


def test_an_ipv6_literal_with_a_port_and_a_user(daemon: Sshd, carrier: str, literal: str) -> None:
    def transport() -> Transport:
        target = target_of(literal)
        return SshTransport("box", target) if carrier == FABRIC else OpenSshTransport("box", ask(target))

    assert f"{literal} by" in transport().carrier
    assert survey(transport()) == HERE
    (daemon.folder / "known_hosts").write_text("")
    error = fault(transport())
    assert (error.code, f"ssh -p {daemon.port} {daemon.user}@::1 exit" in words(error)) == ("AIC-E501", True)


def test_a_jump_by_an_ipv6_literal(daemon: Sshd, carrier: str, literal: str) -> None:
    entry = config_of(daemon).read_text()
    config_of(daemon).write_text(daemon.entry("box", f"ProxyJump {literal}") + entry)
    assert survey(over(carrier)) == HERE
    config_of(daemon).write_text(daemon.entry("box", f"ProxyJump {daemon.user}@[::1]:1") + entry)
    error = fault(over(carrier))
    assert (error.code, f"ssh -p 1 {daemon.user}@::1 exit" in words(error)) == ("AIC-E508", True), words(error)


@pytest.mark.parametrize("listens", ["nothing is said", "another protocol"])
def test_a_port_where_no_sshd_answers(daemon: Sshd, listens: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = daemon.entry("box", "ConnectTimeout 2").replace(f"Port {daemon.port}", f"Port {port}")
        config_of(daemon).write_text(text)
        if listens == "another protocol":
            threading.Thread(target=_greets, args=(other,), daemon=True).start()
        error = fault(chosen())
    assert error.code == ("AIC-E505" if listens == "nothing is said" else "AIC-E520"), words(error)


def _greets(listener: socket.socket) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        with near:
            near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("methods", ["publickey,password", "password"])
def test_a_login_that_wants_something_typed_says_so_at_once(daemon: Sshd, methods: str) -> None:
    """A password alone, or a second factor behind the key."""
    daemon.close()
    text = daemon.config.read_text().replace("PasswordAuthentication no", "PasswordAuthentication yes")
    daemon.config.write_text(f"{text}AuthenticationMethods {methods}\n")
    daemon.start()
    error = fault(chosen())
    assert (error.code, error.message) == ("AIC-E506", "box needs an interactive login")
    assert "ssh -M -f -N box" in words(error)
    assert "ControlPath" in words(error)


def test_lists_of_algorithms_without_a_common_entry_are_told(daemon: Sshd) -> None:
    set_entry(daemon, "HostKeyAlgorithms ssh-rsa")
    error = fault(chosen())
    assert (error.code, "ssh-ed25519" in words(error)) == ("AIC-E521", True), words(error)


def test_hops_that_lead_back_are_told_and_none_is_started(daemon: Sshd) -> None:
    """A process for each, without an end, is what ssh itself would start."""
    for text in (
        "Host *\n  ProxyJump hop\n" + daemon.entry("box") + daemon.entry("hop"),
        daemon.entry("box", "ProxyJump hop")
        + daemon.entry("hop", "ProxyJump far")
        + daemon.entry("far", "ProxyJump box"),
    ):
        config_of(daemon).write_text(text)
        error = fault(chosen())
        assert (error.code, "in a circle" in error.message, "hop" in words(error)) == ("AIC-E509", True, True)
    config_of(daemon).write_text("Host * !hop\n  ProxyJump hop\n" + daemon.entry("box") + daemon.entry("hop"))
    assert survey(chosen()) == HERE


def test_what_no_machine_can_be_called_is_not_offered(daemon: Sshd) -> None:
    text = 'Host "my box" büro # a comment\nHost="quoted"\nhost lab *.lan !x\nMatch host y\n#Host gone\n'
    config_of(daemon).write_text(text)
    assert aliases() == ("büro", "quoted", "lab")
