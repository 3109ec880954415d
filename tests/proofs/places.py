"""The machines of the proofs: one that trains, one that keeps, and S3 servers, all on one bridge, over real ssh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import s3_rig
from hosts_rig import Net
from integration.project import Project
from proofs import stores
from s3_rig import KEY, S3, SECRET
from ssh_rig import below
from support import Person

from aicrun.hosts.ssh_route import VARIABLE

PROGRAM = Path(__file__).parent / "programs/trainer.py"
# The /sys of a host in a network namespace is a new one.
COUNTS_MEMORY = """
mountpoint -q /sys/fs/cgroup/memory && exit
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/memory
mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory
"""
SECRETS = "secrets: [{AWS_ACCESS_KEY_ID: {for: upload}}, {AWS_SECRET_ACCESS_KEY: {for: upload}}]\n"


class Hosts:
    """A person, the machine `box` that trains, the machine `shelf` that keeps, and the servers that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.net = Net(folder / "net")
        self.box, self.shelf = self.net.add("box"), self.net.add("shelf")
        self.folder, self.servers = folder, {}
        client = folder / "client"
        client.mkdir(mode=0o700)
        self.project = Project(Person(client))
        self.project.person.env[VARIABLE] = str(self.net.start())
        self.project.person.env.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        (self.project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
        shutil.copy(PROGRAM, self.project.folder / "trainer.py")
        s3_rig.give(self.box.home, s3_rig.rclone(), s3_rig.aws())
        self._trust()

    def _trust(self) -> None:
        """The account of `box` knows `shelf`, as one does who uploads there by hand."""
        config = self.box.folder / "ssh_config"
        config.write_text(self.shelf.entry())
        (self.shelf.home / "kept").mkdir()
        # ssh reads the configuration of the account's entry in passwd, whatever HOME says.
        wrapper = self.box.home / ".local/bin/ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        wrapper.chmod(0o755)

    def counts_memory(self) -> bool:
        """Whether `box` has groups that count memory, from now on."""
        pid = below(self.box.pid)[0]
        argv = ["nsenter", "-t", str(pid), "-m", "sh", "-e", "-c", COUNTS_MEMORY]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def server(self, kind: str) -> Any:
        """The S3 server of that kind, started when it is first asked for."""
        if kind not in self.servers:
            top, address = self.folder / kind, f"{self.net.prefix}.1"
            top.mkdir()
            self.servers[kind] = S3(top, address) if kind == "rclone" else stores.Weed(top, address)
        return self.servers[kind]

    def close(self) -> None:
        for server in self.servers.values():
            server.close()
        self.net.close()
