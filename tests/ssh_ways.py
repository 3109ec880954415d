"""Every way to a machine that is promised, as a host to be reached by it: carrier, account, interpreter, hops, trust.

`CHOSEN` goes through whole suites in every run; the others go one whole run through the commands, and the whole suites
too with `AICRUN_WAYS=all`. What this machine cannot lay out is skipped visibly. No product code may import it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from ssh_rig import SSHD, USER, Sshd, key
from support import P38, end_processes_with, until

from aicrun.hosts.openssh import OpenSshTransport
from aicrun.hosts.ssh import FabricTransport
from aicrun.hosts.ssh_route import ask, target_of
from aicrun.hosts.transport import Transport

FABRIC, OPENSSH = "fabric", "openssh"
LISTED, CERTIFICATE, SOCKET = "listed key", "certificate", "shared socket"


@dataclass(frozen=True)
class Way:
    """One way; as root unless `is_user`, on the host's own python3 unless `is_old_python` (3.8, and no other)."""

    name: str
    carrier: str
    is_user: bool = False
    is_old_python: bool = False
    hops: tuple[str, ...] = ()
    trust: str = LISTED

    def transport(self, alias: str) -> Transport:
        """The transport to `alias` over this way's carrier and no other."""
        route = ask(target_of(alias))
        if self.carrier == OPENSSH:
            return OpenSshTransport(alias, route)
        return FabricTransport(alias, route, tuple(ask(jump) for jump in route.jumps))


_BOTH = [
    Way(f"{carrier}{name}", carrier, is_user, is_old_python, hops)
    for carrier in (FABRIC, OPENSSH)
    for name, is_user, is_old_python, hops in (
        ("", False, False, ()),
        ("-user", True, False, ()),
        ("-3.8", False, True, ()),
        ("-user-3.8", True, True, ()),
        ("-jumps", False, False, ("one", "two")),
        ("-user-jumps", True, False, ("one", "two")),
    )
]
# What only OpenSSH understands.
_ALONE = [
    Way(f"openssh-{name}{'-user' if is_user else ''}", OPENSSH, is_user, trust=trust)
    for name, trust in (("certificate", CERTIFICATE), ("socket", SOCKET))
    for is_user in (False, True)
]
WAYS = {way.name: way for way in (*_BOTH, *_ALONE)}
ALL = bool(os.environ.get("AICRUN_WAYS"))
CHOSEN = tuple(WAYS) if ALL else (FABRIC, OPENSSH)
# With the contract suite as a user on 3.8 over fabric they hold each promise over each carrier that can keep it.
OTHERS = ("openssh-user-3.8", "fabric-user-jumps", "openssh-jumps", "openssh-certificate", "openssh-socket-user")


@dataclass
class Host:
    """A machine `box` that a client configuration knows; `home` is that of the account there."""

    way: Way
    home: Path
    daemon: Sshd
    config: Path

    def give(self, *paths: Path) -> None:
        """Make them the account's own."""
        for path in paths:
            shutil.chown(path, self.daemon.user)


@cache
def throw_away() -> str:
    """An ordinary account of this machine with a home of its own, for as long as this process lives."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("accounts can only be made by root")
    user = f"aicrun-{secrets.token_hex(4)}"
    # A locked password would lock sshd's door too, without PAM. Another program may be changing the accounts.
    words = ["useradd", "-m", "-s", shutil.which("bash") or "/bin/sh", "-p", "*", user]
    until(lambda: subprocess.run(words, capture_output=True, check=False).returncode in (0, 9), 60, 0.2)
    atexit.register(subprocess.run, ["userdel", "-rf", user], capture_output=True, check=False)
    return user


@contextmanager
def open_folder() -> Iterator[Path]:
    """One that other accounts may enter, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="aicrun-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def laid(way: Way, through: Callable[[int], int] | None = None) -> Iterator[Host]:
    """The host, listening; `through` gives the port to be asked instead of the daemon's own."""
    if not SSHD:
        pytest.skip("no sshd on this machine: apt-get install openssh-server")
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder())
        home = _home(way, folder)
        env = {"PATH": "/usr/bin:/bin", **({} if way.is_user else {"HOME": str(home)})}
        daemon = Sshd(
            folder / "sshd",
            options=f"TrustedUserCAKeys {folder}/ca.pub" if way.trust == CERTIFICATE else "",
            env=env,
            user=throw_away() if way.is_user else USER,
        )
        host = Host(way, home, daemon, daemon.folder / "ssh_config")
        daemon.start(_without_other_pythons(daemon, folder) if way.is_old_python else None)
        stack.callback(daemon.close)
        stack.callback(end_processes_with, f"HOME={home}\0")
        _write_client(host, through(daemon.port) if through else daemon.port, stack)
        if way.trust == SOCKET:
            stack.enter_context(_opened_by_hand(host))
        yield host


def _home(way: Way, folder: Path) -> Path:
    if not way.is_user:
        (folder / "home").mkdir(mode=0o700)
        return folder / "home"
    return emptied_home()


def emptied_home() -> Path:
    """The home of the account that is thrown away, without what tests before left in it."""
    home = Path("/home", throw_away())
    for left in home.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    home.chmod(0o700)
    return home


def _write_client(host: Host, port: int, stack: ExitStack) -> None:
    daemon, way = host.daemon, host.way
    hops = [Sshd(daemon.folder / name).start() for name in way.hops]
    known = "".join(item.known() for item in (daemon, *hops)) + daemon.known().replace(f":{daemon.port}", f":{port}")
    extra = []
    if hops:
        extra.append(f"ProxyJump {','.join(way.hops)}")
    if way.trust == CERTIFICATE:
        known = _signed(daemon, port)
    elif way.trust == SOCKET:
        extra.append(f"ControlPath {daemon.folder.parent}/c-%C")
    elif way.carrier == OPENSSH:
        # Anything that only OpenSSH understands makes it the carrier.
        extra.append(f"HostKeyAlias [127.0.0.1]:{daemon.port}")
    entry = daemon.entry("box", "\n".join(extra)).replace(f"Port {daemon.port}", f"Port {port}")
    host.config.write_text(entry + "".join(item.entry(name) for item, name in zip(hops, way.hops, strict=True)))
    for item in (daemon, *hops):
        stack.callback(item.close)
        (item.folder / "known_hosts").write_text(known)


def _signed(daemon: Sshd, port: int) -> str:
    """The account trusts an authority and no key; the host key is signed by it too. The line of known_hosts."""
    authority = key(daemon.folder.parent / "ca")
    for path, flags in ((daemon.user_key, ["-n", daemon.user]), (daemon.host_key, ["-h", "-n", "127.0.0.1"])):
        words = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", *flags, f"{path}.pub"]
        subprocess.run(words, check=True, capture_output=True)
    daemon.config.write_text(daemon.config.read_text() + f"HostCertificate {daemon.host_key}-cert.pub\n")
    daemon.authorized.write_text("")
    daemon.close()
    daemon.start()
    return f"@cert-authority [127.0.0.1]:{port} {Path(f'{authority}.pub').read_text()}"


@contextmanager
def _opened_by_hand(host: Host) -> Iterator[None]:
    """The connection that a person keeps open, as with a second factor."""
    ssh = ["ssh", "-F", str(host.config)]
    master = subprocess.Popen([*ssh, "-M", "-N", "box"], stdin=subprocess.DEVNULL)
    try:
        until(lambda: subprocess.run([*ssh, "-O", "check", "box"], capture_output=True, check=False).returncode == 0)
        yield
    finally:
        master.terminate()
        master.wait()


def read_only(daemon: Sshd, home: Path) -> list[str]:
    """How to start it where the home can be read and not be written, not by root either."""
    mounts = f"mount --bind {home} {home} && mount -o remount,bind,ro {home}"
    return _seeing(daemon, mounts)


def _seeing(daemon: Sshd, mounts: str) -> list[str]:
    """How to start it in a view of the disk of its own, after the shell words `mounts`; skips where that cannot be."""
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here: a root of this machine's own is needed")
    return ["unshare", "-m", "sh", "-c", f"{mounts} && exec {SSHD} -D -e -f {daemon.config}"]


def _without_other_pythons(daemon: Sshd, folder: Path) -> list[str]:
    """How to start it where 3.8 is the only python3 of the system."""
    if P38 is None:
        pytest.skip("no Python 3.8 on this machine")
    upper, real = folder / "upper", P38.resolve()
    kept, installed = upper / "python", real.parent.parent
    upper.mkdir()
    hide = " && ".join(
        (
            f"mount -t tmpfs none {upper}",
            f"mkdir {upper}/u {upper}/w {kept}",
            # It finds its library by the path that it was built for, below a home that others may not enter.
            f"mount --bind {installed} {kept}",
            f"mount -t tmpfs -o mode=755 none {Path.home()}",
            f"mkdir -p {installed}",
            f"mount --bind {kept} {installed}",
            f"mount -t overlay none -o lowerdir=/usr/bin,upperdir={upper}/u,workdir={upper}/w /usr/bin",
            "rm -f /usr/bin/python3 /usr/bin/python3.*",
            f"ln -s {real} /usr/bin/python3",
        )
    )
    return _seeing(daemon, hide)
