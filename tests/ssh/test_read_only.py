"""A machine whose home takes nothing: what is there is told, what would change it is refused, nothing is half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.project import Project
from ssh_ways import ALL, FABRIC, WAYS, Host, laid, read_only
from support import Person, until

from aicrun.hosts.ssh_route import VARIABLE

USED = tuple(WAYS) if ALL else ("openssh-user",)
NEVER_USED = tuple(WAYS) if ALL else (FABRIC,)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    client = tmp_path / "client"
    client.mkdir(mode=0o700)
    found = Project(Person(client))
    (found.folder / "machines.yaml").write_text("version: 1\nmachines:\n  - {name: box, ssh: box}\n")
    return found


@pytest.fixture
def host(request: pytest.FixtureRequest, project: Project) -> Iterator[Host]:
    with laid(WAYS[request.param]) as found:
        project.person.env[VARIABLE] = str(found.config)
        yield found


def restarted(host: Host, *, writable: bool) -> None:
    """As after a fault of the disk, which Linux answers by mounting it read-only; and after its repair."""
    host.daemon.close()
    host.daemon.start(host.daemon.plainly if writable else read_only(host.daemon, host.home))


def content(home: Path) -> dict[str, bytes]:
    """Records, notes and what lies in the home itself; what runs goes on writing elsewhere."""
    places = (*home.glob(".local/state/aicrun/*/runs/**/*"), *home.glob(".local/state/aicrun/*/*"), *home.iterdir())
    return {str(path): path.read_bytes() for path in places if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("host", NEVER_USED, indirect=True)
def test_a_home_that_never_took_anything(project: Project, host: Host) -> None:
    project.write()
    restarted(host, writable=False)
    for words, said in (
        (("list",), "Read-only file system"),
        (("apply", "--yes"), "Read-only"),
        (("logs", "quick"), "AIC-E593"),
        (("exec", "box", "--", "true"), "AIC-E513"),
        (("push", "work.py", "box:~/"), "AIC-E513"),
        (("doctor", "box"), "df -h -i ~"),
    ):
        done = project.run(*words)
        told = done.stdout + done.stderr
        # The codes of `exec` are the command's own; 255 is ours.
        code = 255 if words[0] == "exec" else 6
        assert (done.returncode, said in told, "Traceback" in told) == (code, True, False), told
    assert list(host.home.rglob("*.aicrun*")) == [] == list(host.home.glob(".local"))


@pytest.mark.parametrize("host", USED, indirect=True)
def test_a_home_that_went_read_only_below_a_run(project: Project, host: Host) -> None:
    project.write(command="python3 work.py 900")
    applied = project.run("apply", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    until(lambda: (host.home / "starts").exists(), 60)
    before = content(host.home)
    restarted(host, writable=False)

    for words, said in (
        (("list",), "in progress"),
        (("logs", "quick"), "step 1/2"),
        (("inspect", "quick"), "status: in progress"),
        (("machines",), "1 machine"),
        (("notes", "box"), ""),
        (("apply", "--yes"), "= quick"),
        (("exec", "box", "--", "echo here"), "here"),
        (("pull", "box:~/starts", "starts"), "1 file"),
    ):
        done = project.run(*words)
        assert (done.returncode, said in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr
    following = project.popen("logs", "-f", "quick", "--offset", "0")
    assert following.stdout is not None
    assert "step 1/2" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=60)
    doctor = project.run("doctor", "box")
    assert (doctor.returncode, "cannot be written" in doctor.stdout) == (14, True), doctor.stdout

    for words, code, said in (
        (("stop", "quick", "--yes"), 7, "AIC-E610"),
        (("notes", "box", "--add", "x"), 7, "AIC-E610"),
        (("push", "work.py", "box:~/"), 14, "AIC-E644"),
    ):
        done = project.run(*words)
        assert (done.returncode, said in done.stderr) == (code, True), done.stdout + done.stderr
        # Where in our own code it was noticed is nothing that a person can act on.
        assert "place" not in done.stderr
    project.write(name="second")
    rejected = project.run("apply", "--yes")
    assert (rejected.returncode, "cannot be written" in rejected.stdout) == (5, True), rejected.stdout
    assert content(host.home) == before

    restarted(host, writable=True)
    assert "in progress" in project.run("list").stdout
    assert project.run("stop", "quick", "--yes", "--grace", "0s").returncode == 0
    assert project.run("wait", "quick").returncode == 11
    assert len((host.home / "starts").read_text().split()) == 1
