"""Machines with a real systemd as their init: one Debian tree, an overlay for each machine, a network of two ends.

Root of this machine is needed. Logins are real ones over ssh, so that sessions, user managers and logouts are too. The
tree is made once and kept outside the checkout, named for what is in it. It must not know what aicrun does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support import until

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd", "openssh-server"),
    *("python3", "procps"),
)
# Debian 12 has systemd 252; `AICRUN_TEST_RELEASE=trixie` tries 257.
RELEASE = os.environ.get("AICRUN_TEST_RELEASE", "bookworm")
# Done once inside the tree: an account, no waiting for a network, a short wait of logind after the last logout.
RECIPE = """
useradd --create-home --shell /bin/bash alice
systemctl enable ssh
systemctl mask systemd-networkd systemd-resolved systemd-timesyncd console-getty.service getty.target
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
mkdir -p /etc/systemd/logind.conf.d
printf '[Login]\\nUserStopDelaySec=1\\n' > /etc/systemd/logind.conf.d/tests.conf
: > /etc/machine-id
: > /etc/fstab
"""
TOOLS = ("mmdebstrap", "systemd-nspawn", "ssh", "ssh-keygen", "ip")
CACHE = Path("/var/tmp/aicrun-tests")
ASKED_FOR_A_REBOOT = 133


def lacking() -> str:
    """Why such machines cannot be had here, "" when they can."""
    if os.geteuid() != 0:
        return "machines with a systemd of their own need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        wanted = "mmdebstrap systemd-container openssh-client openssh-server iproute2"
        return f"{', '.join(missing)} missing: apt-get install -y --no-install-recommends {wanted}"
    return "" if _groups() is not None else "no cgroup v2 tree is mounted here"


def tree() -> Path:
    """The Debian tree that all machines share, made when it is not there yet (half a minute)."""
    text = "\n".join((RELEASE, *PACKAGES, RECIPE))
    place = CACHE / f"systemd-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not place.exists():
        CACHE.mkdir(mode=0o755, exist_ok=True)
        growing = place.with_name(f"{place.name}.{os.getpid()}")
        growing.mkdir()
        kinds = ("--quiet", "--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}")
        _run("mmdebstrap", *kinds, RELEASE, str(growing / "root"))
        _run("chroot", str(growing / "root"), "sh", "-ec", RECIPE)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(growing / "id"))
        for home in ("root", "home/alice"):
            keys = growing / "root" / home / ".ssh"
            keys.mkdir(mode=0o700, exist_ok=True)
            shutil.copy(growing / "id.pub", keys / "authorized_keys")
        _run("chroot", str(growing / "root"), "chown", "-R", "alice:", "/home/alice")
        growing.rename(place)
    return place


class Machine:
    """One machine. `root` is its file system, to be laid out before `power`."""

    def __init__(self, folder: Path) -> None:
        number = next(one for one in range(1, 250) if not Path(f"/sys/class/net/acsd{one}").exists())
        self.name = f"acsd{os.getpid()}x{number}"
        self.address = f"10.78.{number}.2"
        self.root = folder / "root"
        self._folder = folder
        self._link = f"acsd{number}"
        self._process: subprocess.Popen[bytes] | None = None
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True)
        self._key = folder / "id"
        shutil.copy(tree() / "id", self._key)
        layers = f"lowerdir={tree() / 'root'},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        _run("mount", "-t", "overlay", "-o", layers, self.name, str(self.root))
        (self.root / "etc/hostname").write_text("box\n")
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "addr", "add", f"10.78.{number}.1/30", "dev", self._link)
        _run("ip", "link", "set", self._link, "up")
        for words in (("addr", "add", f"{self.address}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _run("ip", "-n", self.name, *words)
        _run("ip", "-n", self.name, "link", "set", "lo", "up")

    def power(self) -> None:
        """Switch it on and wait until it takes logins; a reboot from inside is waited for by `back`."""
        group = _own_groups(self.name)[0] / "sup"
        group.mkdir(parents=True, exist_ok=True)
        # In a group of its own: two machines would share the one that nspawn makes, and the plug hangs on it.
        loop = (
            f'echo $$ > {group}/cgroup.procs; while :; do systemd-nspawn --quiet --boot --directory="$1" '
            f'--machine="$2" --network-namespace-path=/run/netns/"$2" --register=no --keep-unit --console=pipe '
            f"|| [ $? = {ASKED_FOR_A_REBOOT} ] || exit; done"
        )
        with (self._folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                ("sh", "-c", loop, "sh", str(self.root), self.name),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        self.back()

    def back(self, but: str = "") -> str:
        """Wait until logins work, on another boot than `but`; which boot it is."""

        def boot() -> str:
            done = self.run("root", "stat -c %i /proc/self/ns/pid; systemctl is-system-running --wait")
            words = done.stdout.split()
            return words[0] if len(words) == 2 and words[0] != but else ""

        return str(until(boot, 60, 0.1))

    def reboot(self) -> None:
        """Shut down and start again, as a person would ask for it."""
        before = self.back()
        self.run("root", "systemctl reboot")
        self.back(but=before)

    def pull_the_plug(self) -> None:
        """Everything dies at once."""
        for group in _own_groups(self.name):
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
        if self._process is not None:
            self._process.wait(30)
            self._process = None

    def run(self, account: str, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """A command in a login of its own, to its end."""
        argv = self.ssh(account, command)
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    def ssh(self, account: str, command: str) -> tuple[str, ...]:
        """The words that log in and run `command`."""
        plain = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        options = [word for option in (*plain, "ConnectTimeout=5") for word in ("-o", option)]
        return ("ssh", "-F", "none", "-i", str(self._key), *options, f"{account}@{self.address}", command)

    def remove(self) -> None:
        """Switch it off and leave nothing of it here."""
        self.pull_the_plug()
        for group in _own_groups(self.name):
            until(lambda group=group: _emptied(group), 20, 0.1)
        for words in (("umount", str(self.root)), ("ip", "netns", "del", self.name)):
            _run(*words, check=False)
        _run("ip", "link", "del", self._link, check=False)


def _groups() -> Path | None:
    with open("/proc/mounts") as stream:
        return next((Path(row.split()[1]) for row in stream if row.split()[2] == "cgroup2"), None)


def _own_groups(name: str) -> list[Path]:
    """Where a machine's groups are: in the tree of version 2, and in systemd's own of version 1 where that is."""
    first = _groups()
    assert first is not None
    return [first / name, Path("/sys/fs/cgroup/systemd") / name]


def _emptied(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not group.exists()


def _run(*argv: str, check: bool = True) -> None:
    done: Sequence[str] | subprocess.CompletedProcess[str]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"{argv}: {done.stderr or done.stdout}"
