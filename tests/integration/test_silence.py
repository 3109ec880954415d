"""A run that shows no sign of life is told in the list, in inspect and to whoever follows; nothing happens to it."""

from __future__ import annotations

from threading import Thread

from integration.project import Project
from support import until


def test_a_silent_run_is_told_everywhere_and_goes_on(project: Project) -> None:
    project.write("python3 work.py 900", more="limits: {stall: 30m}\n")
    assert project.apply().returncode == 0
    project.running()
    assert project.job()["job"].get("stalled_s") is None
    # The limit is changed in place.
    project.write("python3 work.py 900", more="limits: {stall: 2s}\n")
    changed = project.apply()
    assert (changed.returncode, "~ quick" in changed.stdout + changed.stderr) == (0, True)
    until(lambda: project.job()["job"].get("stalled_s"))
    assert "no output" in project.run("list").stdout
    inspected = project.run("inspect", "quick").stdout
    assert "status: in progress" in inspected
    assert "(limits.stall 2s)" in inspected
    follower = project.popen("logs", "-f", "quick")
    said: list[str] = []
    assert follower.stderr
    reader = Thread(target=lambda: said.extend(iter(follower.stderr.readline, "")))  # type: ignore[union-attr]
    reader.start()
    until(lambda: [line for line in said if "no output for" in line], at_most_s=40)
    assert project.job()["status"] == "in progress"
    assert project.run("stop", "quick", "--yes").returncode == 0
    assert project.run("wait", "quick").returncode == 11
    follower.wait(30)
    reader.join()
    assert follower.stdout
    follower.stdout.close()
    follower.stderr.close()
    assert len([line for line in said if "no output for" in line]) == 1
