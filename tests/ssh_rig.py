"""A real sshd on loopback for tests, and a client configuration that knows it. Needs root for other accounts only.

Everything lies in one folder: host keys, a user's key, known_hosts, `ssh_config`. `close` ends the daemon and what it
started. It must not touch the configuration of whoever runs the tests.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from support import until

SSHD = shutil.which("sshd") or next((path for path in ("/usr/sbin/sshd", "/sbin/sshd") if os.path.exists(path)), "")
USER = pwd.getpwuid(os.getuid()).pw_name


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def key(path: Path, phrase: str = "") -> Path:
    """A new ed25519 key at `path`."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", str(path)], check=True)
    return path


class Sshd:
    """One daemon with a host key of its own; `env` is set for every session."""

    def __init__(self, folder: Path, *, options: str = "", env: dict[str, str] | None = None, user: str = USER) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.folder, self.user = folder, user
        self.port = free_port()
        self.host_key = key(folder / "host_key")
        self.user_key = key(folder / "id")
        self.authorized = folder / "authorized_keys"
        shutil.copy(folder / "id.pub", self.authorized)
        self.authorized.chmod(0o644)
        values = " ".join(f'{name}="{value}"' for name, value in (env or {}).items())
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized}",
            f"PidFile {folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "MaxStartups 100:30:200",
            "Subsystem sftp internal-sftp",
            options,
            f"SetEnv {values}" if values else "",
        ]
        self.config = folder / "sshd_config"
        self.config.write_text("\n".join(lines) + "\n")
        self.process: subprocess.Popen[bytes] | None = None
        self.plainly = [SSHD, "-D", "-e", "-f", str(self.config)]
        self._argv = self.plainly

    def start(self, argv: list[str] | None = None) -> Sshd:
        """Begin to listen; `argv` starts it another way than by itself, from now on."""
        if os.getuid() == 0:
            # Where the package's daemon parts its privileges; it is not made before a system's own sshd ran.
            Path("/run/sshd").mkdir(exist_ok=True)
        self._argv = argv or self._argv
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stderr=log)
        until(self._listens)
        return self

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        """End the daemon and every session of it."""
        if self.process is None:
            return
        for pid in below(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.kill()
        self.process.wait()
        self.process = None

    def known(self, name: str = "127.0.0.1") -> str:
        """The line of known_hosts for this daemon."""
        kind, body = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"[{name}]:{self.port} {kind} {body}\n"

    def entry(self, alias: str, extra: str = "") -> str:
        """The entry of this daemon in an ssh_config, as a user would write it."""
        return (
            f"Host {alias}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {self.user}\n"
            f"  IdentityFile {self.user_key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder}/known_hosts\n"
            + "".join(f"  {line}\n" for line in extra.splitlines())
        )

    def write_client(self, alias: str = "box", extra: str = "", known: bool = True) -> Path:
        """An ssh_config with this daemon as `alias`; its known_hosts has the host key when `known`."""
        (self.folder / "known_hosts").write_text(self.known() if known else "")
        path = self.folder / "ssh_config"
        path.write_text(self.entry(alias, extra))
        return path


def below(root: int) -> list[int]:
    """Every process that descends from `root`, children after their own children."""
    found = []
    # It may end at any moment.
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{root}/task/{root}/children").read_text().split():
            found += [*below(int(word)), int(word)]
    return found
