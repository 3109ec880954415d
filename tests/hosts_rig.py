"""Several hosts on this machine: each a network, mount, name and process namespace with its own sshd and driver.

A host has its own home, /run, /var/tmp, machine-id and boot id; it shares programs and accounts with the machine. Links
can be cut, mute or lossy, and hosts switched off, as by a pulled cable or plug. Needs root; all lies in one folder and
ends with `close`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path

from fake_nvml.driver import FakeDriver
from ssh_rig import SSHD, key
from support import until

# What the first process of a host does before it becomes sshd; its arguments are folder and host name.
_BOOT = """
set -e
hostname "$2"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 1777 /run/lock; mkdir /run/sshd
mount --bind "$1/var-tmp" /var/tmp
mount --bind "$1/machine-id" /etc/machine-id
cat /proc/sys/kernel/random/uuid >"$1/boot-id"
mount --bind "$1/boot-id" /proc/sys/kernel/random/boot_id
ip link set lo up
exec "$3" -D -e -f "$1/sshd_config"
"""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _tc(*words: str) -> None:
    subprocess.run(["tc", *words], check=True, capture_output=True)


def _losing(percent: int) -> str:
    """A filter for packets, in the words of tc: a random number decides between passing (0) and dropping (2)."""
    load_random, jump_if_greater, ret = 0x20, 0x25, 0x06
    limit = (1 << 32) * percent // 100
    return f"4,{load_random} 0 0 {0xFFFFF038},{jump_if_greater} 0 1 {limit},{ret} 0 0 0,{ret} 0 0 2"


@cache
def can_lose() -> bool:
    """Whether this kernel drops packets by chance where it is told to (netem is in few, this filter in most)."""
    name = f"aic{secrets.token_hex(3)}"
    _ip("link", "add", name, "type", "bridge")
    try:
        _tc("qdisc", "add", "dev", name, "clsact")
        _tc("filter", "add", "dev", name, "egress", "bpf", "bytecode", _losing(20), "da")
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        _ip("link", "del", name)
    return True


@cache
def possible() -> str:
    """Empty when hosts can be made here, else why not."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("ip", "unshare") if shutil.which(name) is None] + ([] if SSHD else ["sshd"])
    if missing:
        return f"{', '.join(missing)} not installed"
    if not Path("/etc/machine-id").exists():
        return "no /etc/machine-id to put another over"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


class FleetHost:
    """One host, reached as `name` at an address of its own; `driver` is absent on one without a card."""

    def __init__(self, net: Net, number: int, name: str, cards: str = "", options: str = "") -> None:
        self.net, self.name, self.address = net, name, f"{net.prefix}.{number + 10}"
        self.folder = net.folder / name
        self.home = self.folder / "home"
        self.home.mkdir(parents=True, mode=0o700)
        (self.folder / "var-tmp").mkdir(mode=0o1777)
        (self.folder / "var-tmp").chmod(0o1777)
        (self.folder / "machine-id").write_text(secrets.token_hex(16) + "\n")
        (self.folder / "boot-id").touch()
        self.driver = FakeDriver(self.folder / "driver", cards) if cards else None
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", **(self.driver.env if self.driver else {})}
        values = " ".join(f'{word}="{value}"' for word, value in env.items())
        lines = (
            "UsePAM no",
            "PasswordAuthentication no",
            "StrictModes no",
            "PidFile none",
            "Subsystem sftp internal-sftp",
        )
        paths = (
            f"HostKey {key(self.folder / 'host_key')}",
            f"AuthorizedKeysFile {net.user_key}.pub",
            f"SetEnv {values}",
        )
        (self.folder / "sshd_config").write_text("\n".join((*lines, *paths, options)) + "\n")
        self._space, self._link = f"{net.name}n{number}", f"{net.name}v{number}"
        self._process: subprocess.Popen[bytes] | None = None
        _ip("netns", "add", self._space)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("link", "set", self._link, "master", net.name, "up")
        _ip("-n", self._space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self._space, "link", "set", "eth0", "up")

    def start(self) -> FleetHost:
        """Switch it on; it answers when this returns."""
        _ip("link", "set", self._link, "up")
        spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = [*spaces, "--propagation", "private", "bash", "-c", _BOOT, "boot", str(self.folder), self.name, SSHD]
        with (self.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self._space, *inside], stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        until(lambda: b"Server listening" in (self.folder / "console").read_bytes().split(b"\0")[-1])
        return self

    def cut(self) -> None:
        """Pull its cable: both directions are silent, nothing on it ends."""
        _ip("link", "set", self._link, "down")

    def mute(self) -> None:
        """What is said to it still arrives; nothing that it says does."""
        _ip("-n", self._space, "route", "replace", "blackhole", f"{self.net.prefix}.1/32")

    def lossy(self, percent: int) -> None:
        """Lose so many of a hundred packets, by chance, in each direction; only where `can_lose`."""
        _tc("qdisc", "replace", "dev", self._link, "clsact")
        for way in ("ingress", "egress"):
            _tc("filter", "add", "dev", self._link, way, "bpf", "bytecode", _losing(percent), "da")

    def join(self) -> None:
        """The link is whole again, whatever was done to it."""
        _ip("link", "set", self._link, "up")
        subprocess.run(
            ["ip", "-n", self._space, "route", "del", "blackhole", f"{self.net.prefix}.1/32"],
            check=False,
            capture_output=True,
        )
        subprocess.run(["tc", "qdisc", "del", "dev", self._link, "clsact"], check=False, capture_output=True)

    def off(self, silent: bool = True) -> None:
        """Every process of it is gone; `silent` as without power, else its address refuses connections."""
        if silent:
            self.cut()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
        with (self.folder / "console").open("ab") as console:
            console.write(b"\0")

    @property
    def pid(self) -> int:
        """The process of this machine from which all of the host descends."""
        assert self._process is not None
        return self._process.pid

    def starts(self) -> list[str]:
        """The job ids of every command that was ever started here."""
        path = self.home / "starts"
        return path.read_text().split() if path.exists() else []

    def entry(self) -> str:
        """Its entry in a user's ssh_config."""
        return (
            f"Host {self.name}\n  HostName {self.address}\n  User root\n  IdentityFile {self.net.user_key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.net.folder}/known_hosts\n  ConnectTimeout 5\n"
        )

    def close(self) -> None:
        self.off()
        _ip("netns", "del", self._space)


class Net:
    """A bridge with hosts on it; nothing on it is routed further."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = f"aic{secrets.token_hex(3)}"
        self.prefix = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        self.user_key = key(folder / "id")
        self.hosts: dict[str, FleetHost] = {}
        _ip("link", "add", self.name, "type", "bridge")
        _ip("addr", "add", f"{self.prefix}.1/24", "dev", self.name)
        _ip("link", "set", self.name, "up")

    def add(self, name: str, cards: str = "", options: str = "") -> FleetHost:
        """A host that is switched off still."""
        self.hosts[name] = FleetHost(self, len(self.hosts), name, cards, options)
        return self.hosts[name]

    def start(self) -> Path:
        """Switch all on; the ssh_config that knows them."""
        for host in self.hosts.values():
            host.start()
        keys = [(host, (host.folder / "host_key.pub").read_text().split()[:2]) for host in self.hosts.values()]
        known = "".join(f"{host.address} {' '.join(words)}\n" for host, words in keys)
        (self.folder / "known_hosts").write_text(known)
        path = self.folder / "ssh_config"
        path.write_text("\n".join(host.entry() for host in self.hosts.values()))
        return path

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        _ip("link", "del", self.name)
