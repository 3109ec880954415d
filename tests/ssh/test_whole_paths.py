"""One run from its start to its checkpoint, command by command, over each way that no whole suite is run over."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.project import Project
from ssh_ways import ALL, OTHERS, SOCKET, WAYS, laid
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE


@pytest.mark.parametrize("name", tuple(WAYS) if ALL else OTHERS)
def test_a_run_from_its_start_to_its_checkpoint(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    project = Project(Person(client))
    (project.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    (project.folder / "save.py").write_text(
        'import os, sys\nopen(os.path.join(os.environ["AICRUN_CHECKPOINT_DIR"], "model.bin"), "w").write("weights")\n'
        'print("python", sys.version_info[:2], flush=True)\n'
    )
    project.write(command="python3 save.py && python3 work.py 900")
    with laid(way) as host:
        project.person.env[VARIABLE] = str(host.config)
        if way.trust == SOCKET:
            # From now on no key is accepted: only the connection that stands can carry anything.
            host.daemon.authorized.write_text("")

        applied = project.run("apply", "--yes")
        assert applied.returncode == 0, applied.stdout + applied.stderr
        until(lambda: (host.home / "starts").exists(), 60)
        assert "in progress" in project.run("list").stdout
        said = project.run("logs", "quick").stdout
        assert "step 1/2" in said
        assert ("python (3, 8)" in said) == way.is_old_python, said
        assert project.run("apply", "--yes").returncode == 0
        assert project.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
        assert project.run("wait", "quick").returncode == 11
        sent = project.run("upload", "quick")
        assert sent.returncode == 0, sent.stdout + sent.stderr
        kept = until(lambda: next((host.home / "kept").glob("*/model.bin"), None), 60)
        pulled = project.run("pull", f"box:{kept}", "back.bin")
        assert pulled.returncode == 0, pulled.stdout + pulled.stderr
        assert (project.folder / "back.bin").read_text() == "weights"
        assert len((host.home / "starts").read_text().split()) == 1
        assert {path.owner() for path in (host.home / "starts", kept)} == {host.daemon.user}
