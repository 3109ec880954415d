"""Each way in which a machine cannot be reached has its code and its next step, over both carriers."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ssh.conftest import over
from ssh.relay import Relay
from ssh_rig import SSHD, Sshd, key
from ssh_ways import OPENSSH
from support import end_processes_with

from aicrun.errors import AicrunError
from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.carriers import SshTransport
from aicrun.hosts.ssh_route import Target
from aicrun.hosts.transport import Transport


def fault(transport: Transport) -> AicrunError:
    """What a first call ends with."""
    backend = AgentBackend(transport)
    try:
        with pytest.raises(AicrunError) as caught:
            backend.notes()
    finally:
        backend.close()
    return caught.value


def words(error: AicrunError) -> str:
    """Everything that it says, on one line."""
    facts = " ".join(f"{label} {text}" for label, text in error.facts)
    ways = " ".join(f"{way.what} {way.command}" for way in error.ways)
    return f"{error.message} | {facts} | {ways}"


def config_of(daemon: Sshd) -> Path:
    return daemon.folder / "ssh_config"


def test_an_unknown_host_key_is_refused_with_its_fingerprint(daemon: Sshd, carrier: str) -> None:
    daemon.write_client(known=False)
    error = fault(over(carrier))
    shown = subprocess.run(
        ["ssh-keygen", "-lf", f"{daemon.host_key}.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert error.code == "AIC-E501"
    assert f"ED25519 {shown}" in words(error)
    assert "ssh box exit" in words(error)
    assert (daemon.folder / "known_hosts").read_text() == ""


def test_a_changed_host_key_is_refused(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    other = Sshd(tmp_path / "other")
    body = (other.folder / "host_key.pub").read_text().split()[1]
    (daemon.folder / "known_hosts").write_text(f"[127.0.0.1]:{daemon.port} ssh-ed25519 {body}\n")
    error = fault(over(carrier))
    assert error.code == "AIC-E502"
    assert "ssh-keygen -R" in words(error)
    assert "SHA256:" in words(error)


def test_a_name_that_nobody_knows(daemon: Sshd, carrier: str) -> None:
    config_of(daemon).write_text("Host box\n  HostName no-such-host.invalid\n")
    error = fault(over(carrier))
    assert error.code == "AIC-E503"
    assert "no-such-host.invalid" in error.message


def test_a_port_where_nothing_listens(daemon: Sshd, carrier: str) -> None:
    daemon.close()
    error = fault(over(carrier))
    assert error.code == "AIC-E504"
    assert str(daemon.port) in error.message


def test_a_machine_that_swallows_packets(daemon: Sshd, carrier: str) -> None:
    """A listener whose queue is full drops what comes: a connection is never made."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        config_of(daemon).write_text(f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  ConnectTimeout 1\n")
        error = fault(over(carrier))
    assert error.code == "AIC-E505"
    assert "aicrun machines down box" in words(error)


def test_a_key_that_is_not_accepted(daemon: Sshd) -> None:
    """Fabric leaves the last word to OpenSSH, which tells what it offered."""
    daemon.authorized.write_text("")
    error = fault(SshTransport("box", Target("box")))
    assert error.code == "AIC-E506"
    assert "publickey" in words(error)


def test_a_key_with_a_passphrase_and_no_agent(daemon: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    daemon.user_key.unlink()
    Path(f"{daemon.user_key}.pub").unlink()
    key(daemon.user_key, "a phrase")
    shutil.copy(f"{daemon.user_key}.pub", daemon.authorized)
    error = fault(SshTransport("box", Target("box")))
    assert (error.code, "passphrase" in words(error)) == ("AIC-E507", True)
    assert "ssh-add" in words(error)


def test_a_key_file_that_is_missing(daemon: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    daemon.user_key.unlink()
    error = fault(SshTransport("box", Target("box")))
    assert (error.code, str(daemon.user_key) in words(error)) == ("AIC-E507", True)


def test_a_jump_host_that_does_not_answer(daemon: Sshd, carrier: str) -> None:
    port = closed_port()
    text = daemon.entry("box", "ProxyJump hop") + f"Host hop\n  HostName 127.0.0.1\n  Port {port}\n"
    config_of(daemon).write_text(text)
    error = fault(over(carrier))
    assert error.code == "AIC-E508"
    assert "ssh hop exit" in words(error)


def test_a_machine_that_refuses_behind_a_jump_host_that_is_there(daemon: Sshd, carrier: str) -> None:
    port = closed_port()
    refusing = daemon.entry("box", "ProxyJump hop").replace(f"Port {daemon.port}", f"Port {port}")
    config_of(daemon).write_text(refusing + daemon.entry("hop"))
    error = fault(whole(carrier))
    assert (error.code, f"box refuses connections on port {port}" in words(error)) == ("AIC-E504", True), words(error)
    assert "over hop" in words(error)

    unknown = daemon.entry("box", "ProxyJump hop").replace("HostName 127.0.0.1", "HostName no-such-name.invalid")
    config_of(daemon).write_text(unknown + daemon.entry("hop"))
    error = fault(whole(carrier))
    assert error.code == "AIC-E503", words(error)


def test_the_second_of_two_jump_hosts_that_refuses_is_not_the_machine(daemon: Sshd, carrier: str) -> None:
    second = daemon.entry("second").replace(f"Port {daemon.port}", f"Port {closed_port()}")
    config_of(daemon).write_text(daemon.entry("box", "ProxyJump hop,second") + daemon.entry("hop") + second)
    error = fault(whole(carrier))
    assert error.code == "AIC-E508", words(error)


def whole(carrier: str) -> Transport:
    """Fabric hands over what it is not told (why a hop could not connect), so that OpenSSH tells it."""
    return over(carrier) if carrier == OPENSSH else SshTransport("box", Target("box"))


def closed_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_listener_that_drops_before_the_banner(daemon: Sshd, carrier: str) -> None:
    """As a busy sshd does: tried again, then named; and a machine that comes through after two drops is reached."""
    drops = Relay(daemon.port, left=100)
    config_of(daemon).write_text(daemon.entry("box").replace(f"Port {daemon.port}", f"Port {drops.port}"))
    with (daemon.folder / "known_hosts").open("a") as known:
        known.write(daemon.known().replace(f":{daemon.port}", f":{drops.port}"))
    try:
        error = fault(over(carrier))
        assert error.code == "AIC-E520"
        assert drops.dropped >= 5
        drops.left = 2
        backend = AgentBackend(over(carrier))
        assert isinstance(backend.notes(), str)
        backend.close()
    finally:
        drops.close()


@pytest.mark.parametrize(
    ("start_file", "code"),
    [
        ("exec dash", "AIC-E516"),
        ("exit 3", "AIC-E516"),
    ],
)
def test_a_start_file_that_gets_in_the_way(daemon: Sshd, carrier: str, start_file: str, code: str) -> None:
    """Bash reads this one when sshd starts it; a replaced shell ends at once instead of running our bytes."""
    (daemon.folder.parent / "home/.bashrc").write_text(start_file + "\n")
    error = fault(over(carrier))
    assert error.code == code


@contextmanager
def another_python(daemon: Sshd, folder: Path, then: str) -> Iterator[Path]:
    """`box` without any python3 in its own view of the disk, but what the shell words `then` put there; its home."""
    hidden = Sshd(folder / "hidden", env={"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"})
    upper = folder / "upper"
    upper.mkdir()
    hide = (
        f"mount -t tmpfs none {upper} && mkdir {upper}/u {upper}/w && "
        f"mount -t overlay none -o lowerdir=/usr/bin,upperdir={upper}/u,workdir={upper}/w /usr/bin && "
        f"cd /usr/bin && mkdir {upper}/kept && mv $(readlink -f python3) {upper}/kept/python && "
        f"rm -f python3 python3.* && {then}"
    )
    if subprocess.run(["unshare", "-m", "sh", "-c", hide], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here: a root of this machine's own is needed")
    config_of(daemon).write_text(hidden.entry("box"))
    (hidden.folder / "known_hosts").write_text(hidden.known())
    hidden.start(["unshare", "-m", "sh", "-c", f"{hide} && exec {SSHD} -D -e -f {hidden.config}"])
    try:
        yield folder / "home"
    finally:
        hidden.close()


def test_no_python_there(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    with another_python(daemon, tmp_path, "true"):
        error = fault(over(carrier))
    assert (error.code, error.message) == ("AIC-E510", "box has no python3")


def older(folder: Path, version: str) -> Path:
    """A program that is that python3: the real one where it is at hand, else one that answers as it would."""
    real = next((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python{version}"), None)
    answers = f"import sys; sys.version_info = (3, {version[-1]}, 9); exec(sys.argv[1])"
    call = f'{real} "$@"' if real else f'{folder}/upper/kept/python -I -S -c "{answers}" "$4"'
    found = folder / "old"
    found.write_text(f"#!/bin/sh\nexec {call}\n")
    found.chmod(0o755)
    return found


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_a_python_that_is_too_old(daemon: Sshd, carrier: str, tmp_path: Path, version: str) -> None:
    with another_python(daemon, tmp_path, f"cp {older(tmp_path, version)} python3") as home:
        error = fault(over(carrier))
    assert (error.code, f"is {version}." in error.message) == ("AIC-E510", True), words(error)
    assert "3.8 or newer" in words(error)
    assert list(home.iterdir()) == []


def test_a_newer_python_behind_one_that_is_too_old_is_found(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    newer = f"mount -t tmpfs none /usr/local/bin && ln -s {tmp_path}/upper/kept/python /usr/local/bin/python3"
    with another_python(daemon, tmp_path, f"cp {older(tmp_path, '3.7')} python3 && {newer}"):
        backend = AgentBackend(over(carrier))
        assert isinstance(backend.notes(), str)
        backend.close()


def test_a_home_that_cannot_be_written(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    blocked = Sshd(tmp_path / "blocked", env={"HOME": "/proc/1/nowhere", "PATH": "/usr/bin:/bin"}).start()
    config_of(daemon).write_text(blocked.entry("box"))
    (blocked.folder / "known_hosts").write_text(blocked.known())
    try:
        error = fault(over(carrier))
    finally:
        blocked.close()
    assert error.code == "AIC-E513"
    assert "/proc/1/nowhere" in words(error)


def test_a_connection_that_is_lost_in_the_middle(daemon: Sshd, carrier: str) -> None:
    backend = AgentBackend(over(carrier))
    assert isinstance(backend.notes(), str)
    daemon.close()
    with pytest.raises(AicrunError) as caught:
        backend.notes()
    assert caught.value.code == "AIC-E511"
    backend.close()
    end_processes_with(f"HOME={daemon.folder.parent / 'home'}\0")
