"""A repository of another account: git refuses to read it, and the refusal names the command that trusts it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aicrun.errors import UsageError
from aicrun.lifecycle.listing import files_of
from aicrun.spec.model import SourceSpec

NOBODY = 65534


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another account")
def test_the_way_to_trust_a_repository_of_somebody_else_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.delenv("SUDO_UID", raising=False)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, NOBODY, NOBODY)
    with pytest.raises(UsageError) as refused:
        files_of(SourceSpec(str(tmp_path)))
    assert refused.value.code == "AIC-E652"
    assert [way.command for way in refused.value.ways] == [f"git config --global --add safe.directory {tmp_path}"]
