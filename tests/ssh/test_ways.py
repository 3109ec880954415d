"""What a user's configuration and account may look like: shells, start files, jumps, certificates, shared sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh.conftest import FABRIC, over
from ssh_rig import Sshd, key
from support import end_processes_with, until

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.backend import Question
from aicrun.hosts.carriers import SshTransport
from aicrun.hosts.ssh_route import Target
from aicrun.hosts.transport import Transport

SHELLS = ("bash", "dash", "zsh", "fish", "tcsh")
START_FILES = {
    "bash": ".bashrc",
    "dash": ".profile",
    "zsh": ".zshenv",
    "fish": ".config/fish/config.fish",
    "tcsh": ".tcshrc",
}
NOISE = 'echo "welcome {}"\necho "AICRUN 12 34"\necho trouble >&2\nsleep 0.2\n'
HOSTILE = ("a b", "$HOME", "*", "'", '"', "!", "`id`", "", "zeile\nzwei", "é", "\\", "#", "~")


def survey(transport: Transport) -> str:
    """The host name that the agent tells."""
    backend = AgentBackend(transport)
    try:
        return backend.survey(Question(cards=False)).hostname
    finally:
        backend.close()


@pytest.fixture(params=SHELLS)
def account(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, Path]]:
    """(user, shell, home) of a real account with that login shell, removed afterwards."""
    shell = shutil.which(request.param)
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("accounts can only be made by root")
    if shell is None:
        pytest.skip(f"no {request.param} on this machine: apt-get install {request.param}")
    user = f"aicrun-{request.param}"
    subprocess.run(["userdel", "-rf", user], capture_output=True, check=False)
    subprocess.run(["useradd", "-m", "-s", shell, user], check=True)
    # A locked password locks sshd's door too, without PAM.
    subprocess.run(["usermod", "-p", "*", user], check=True)
    yield user, request.param, Path("/home", user)
    end_processes_with(f"HOME=/home/{user}\0")
    subprocess.run(["userdel", "-rf", user], capture_output=True, check=True)


def test_every_login_shell_with_a_noisy_start_file(
    account: tuple[str, str, Path], carrier: str, daemon: Sshd, short: Path
) -> None:
    user, shell, home = account
    noisy = home / START_FILES[shell]
    noisy.parent.mkdir(parents=True, exist_ok=True)
    noisy.write_text(NOISE)
    subprocess.run(["chown", "-R", user, str(home)], check=True)
    # The client is root; sshd reads the file of keys as the account.
    plain = Sshd(short / "plain", user=user)
    (daemon.folder / "ssh_config").write_text(plain.entry("box"))
    (plain.folder / "known_hosts").write_text(plain.known())
    plain.start()
    try:
        transport = over(carrier)
        assert survey(transport) == os.uname().nodename
        code, out, _ = transport.run(("/usr/bin/printf", "%s|", *HOSTILE), b"", 30)
        assert (code, out.decode().endswith("".join(f"{item}|" for item in HOSTILE))) == (0, True)
        transport.close()
    finally:
        plain.close()


def test_two_jumps(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    hops = [Sshd(tmp_path / name).start() for name in ("one", "two")]
    known = "".join(item.known() for item in (*hops, daemon))
    for item in (*hops, daemon):
        (item.folder / "known_hosts").write_text(known)
    text = daemon.entry("box", "ProxyJump one,two") + hops[0].entry("one") + hops[1].entry("two")
    (daemon.folder / "ssh_config").write_text(text)
    try:
        assert survey(over(carrier)) == os.uname().nodename
    finally:
        for item in hops:
            item.close()


def test_a_jump_whose_key_is_not_known_is_named(daemon: Sshd, carrier: str, tmp_path: Path) -> None:
    hop = Sshd(tmp_path / "one").start()
    (hop.folder / "known_hosts").write_text("")
    (daemon.folder / "ssh_config").write_text(daemon.entry("box", "ProxyJump one") + hop.entry("one"))
    backend = AgentBackend(over(carrier))
    try:
        with pytest.raises(Exception, match="host key of") as caught:
            backend.notes()
    finally:
        backend.close()
        hop.close()
    assert getattr(caught.value, "code", "") == "AIC-E501"


def test_a_certificate_instead_of_a_listed_key(daemon: Sshd, tmp_path: Path) -> None:
    """The account trusts an authority, and the host key is signed by one: that only OpenSSH can check."""
    authority = key(tmp_path / "ca")
    for path, flags in ((daemon.user_key, ["-n", daemon.user]), (daemon.host_key, ["-h", "-n", "127.0.0.1"])):
        signed = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *flags, f"{path}.pub"]
        subprocess.run(signed, check=True, capture_output=True)
    body = Path(f"{authority}.pub").read_text()
    trusting = Sshd(tmp_path / "trusting", options=f"TrustedUserCAKeys {authority}.pub", env={"HOME": str(tmp_path)})
    shutil.copy(f"{daemon.host_key}", trusting.host_key)
    shutil.copy(f"{daemon.host_key}-cert.pub", f"{trusting.host_key}-cert.pub")
    trusting.config.write_text(trusting.config.read_text() + f"HostCertificate {trusting.host_key}-cert.pub\n")
    trusting.authorized.write_text("")
    (daemon.folder / "known_hosts").write_text(f"@cert-authority [127.0.0.1]:{trusting.port} {body}")
    entry = daemon.entry("box").replace(f"Port {daemon.port}", f"Port {trusting.port}")
    (daemon.folder / "ssh_config").write_text(entry)
    trusting.start()
    try:
        transport = SshTransport("box", Target("box"))
        assert "by OpenSSH" in transport.carrier
        assert "@cert-authority" in transport.carrier
        assert survey(transport) == os.uname().nodename
    finally:
        trusting.close()
        end_processes_with(f"HOME={tmp_path}\0")


def test_a_connection_that_a_person_opened_is_used(daemon: Sshd, short: Path) -> None:
    """As with a second factor: no key would be accepted now, and the master that stands carries the call."""
    config = daemon.folder / "ssh_config"
    config.write_text(daemon.entry("box", f"ControlPath {short}/c-%C"))
    master = subprocess.Popen(["ssh", "-F", str(config), "-M", "-N", "box"], stdin=subprocess.DEVNULL)
    try:
        check = ["ssh", "-F", str(config), "-O", "check", "box"]
        until(lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0)
        daemon.authorized.write_text("")
        transport = SshTransport("box", Target("box"))
        assert "controlpath is set" in transport.carrier
        assert survey(transport) == os.uname().nodename
    finally:
        master.terminate()
        master.wait()


def test_hashed_known_hosts(daemon: Sshd, carrier: str) -> None:
    path = daemon.folder / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert "127.0.0.1" not in path.read_text()
    assert survey(over(carrier)) == os.uname().nodename


def test_many_calls_take_one_connection(daemon: Sshd, carrier: str) -> None:
    """A conversation, a log that is followed and a command share what was connected first."""
    backend = AgentBackend(transport := over(carrier))
    backend.notes()
    backend.survey(Question(cards=False))
    transport.run(("/bin/true",), b"", 10)
    accepted = (daemon.folder / "sshd.log").read_text().count("Accepted publickey")
    backend.close()
    assert accepted == 1


def test_forwarding_and_remote_commands_of_the_configuration_are_left_out(daemon: Sshd, carrier: str) -> None:
    extra = "RemoteCommand tmux\nLocalForward 1 127.0.0.1:1\nForwardAgent yes\nPermitLocalCommand yes\nLocalCommand no"
    (daemon.folder / "ssh_config").write_text(daemon.entry("box", extra))
    if carrier == FABRIC:
        assert "by OpenSSH" in SshTransport("box", Target("box")).carrier
        return
    code, out, _ = over(carrier).run(("/usr/bin/env",), b"", 30)
    assert (code, b"SSH_AUTH_SOCK" in out) == (0, False)
