"""What uv is asked for each form of `setup`, and what a person is told to do by what it said last."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicrun.agent.install_faults import way_out
from aicrun.agent.installs import environment_of, installs
from aicrun.wire.jobs import Setup

ENV = "/data/aicrun/envs/k"


def asked(tmp_path: Path, setup: Setup) -> list[str]:
    """Each call of uv as one line, the private folder called `scratch`."""
    found = installs(setup, "uv", str(tmp_path), "/tree")
    return [" ".join(one.argv).replace(str(tmp_path), "scratch") for one in found]


def test_where_packages_come_from(tmp_path: Path) -> None:
    begin = f"uv pip install --python {ENV}/bin/python"
    for fields, words in (
        ({}, "x"),
        ({"torch_backend": "cu128"}, "--torch-backend cu128 x"),
        ({"index": ("https://a",)}, "--default-index https://a x"),
        (
            {"index": ("n=https://a", "https://b", "https://c")},
            "--index n=https://a --index https://b --default-index https://c x",
        ),
        ({"wheels": "/w"}, "--no-index --offline --find-links /w x"),
    ):
        assert asked(tmp_path, Setup(path=ENV, packages=("x",), **fields)) == [f"{begin} {words}"]
    assert asked(tmp_path, Setup(path=ENV)) == []


def test_a_lock_is_synced_from_a_folder_of_its_own_and_a_project_from_the_tree(tmp_path: Path) -> None:
    sync = f"uv sync --frozen --no-editable --python {ENV}/bin/python"
    locked = Setup(path=ENV, lock="L", pyproject="P", requirements_name="uv.lock")
    only = "--no-install-project --no-install-workspace --no-install-local"
    assert asked(tmp_path, locked) == [f"{sync} {only}"]
    assert [one.folder for one in installs(locked, "uv", str(tmp_path), "/tree")] == [f"{tmp_path}/lock"]
    assert sorted(path.name for path in (tmp_path / "lock").iterdir()) == ["pyproject.toml", "uv.lock"]
    project = Setup(path=ENV, project=True)
    assert asked(tmp_path, project) == [sync]
    assert [one.folder for one in installs(project, "uv", str(tmp_path), "/tree")] == ["/tree"]


@pytest.mark.parametrize(("root", "calls"), [("editable", 3), ("virtual", 2)])
def test_a_project_that_is_only_a_list_is_not_installed_from_wheels(tmp_path: Path, root: str, calls: int) -> None:
    (tmp_path / "uv.lock").write_text(f'[[package]]\nname = "demo"\nsource = {{ {root} = "." }}\n')
    found = list(installs(Setup(path=ENV, project=True, wheels="/w"), "uv", str(tmp_path), str(tmp_path)))
    assert len(found) == calls


def test_nothing_of_the_login_adds_another_source() -> None:
    login = {"UV_DEFAULT_INDEX": "https://x", "UV_FIND_LINKS": "/y", "UV_INDEX_CORP_PASSWORD": "p", "A": "1"}
    kept = {"UV_PROJECT_ENVIRONMENT": ENV, "UV_INDEX_CORP_PASSWORD": "p", "A": "1"}
    assert environment_of(Setup(path=ENV, index=("corp=https://z",)), login) == kept
    assert environment_of(Setup(path=ENV, wheels="/w"), login) == kept
    assert environment_of(Setup(path=ENV), login) == {**login, "UV_PROJECT_ENVIRONMENT": ENV}


@pytest.mark.parametrize(
    ("said", "help_"),
    [
        ("cause: dns error", "does not reach the index"),
        ("cause: tcp connect error: Connection refused (os error 111)", "does not reach the index"),
        ("Network connectivity is disabled, but", "does not reach the index"),
        ("could not be queried (401 Unauthorized)", "wants a login"),
        ("Failed to extract archive: request or response body error", "broke off half-way"),
        ("failed to copy file: No space left on device (os error 28)", "the disk is full: free some room below /data"),
        ("cause: error sending request\n  cause: operation timed out", "gives no answer in time"),
        ("cause: Connection reset by peer (os error 104)", "broke off half-way"),
        ("HTTP status server error (500 Internal Server Error)", "a fault of its own (500 Internal Server Error)"),
        ("HTTP status client error (429 Too Many Requests) for url", "a fault of its own (429 Too Many Requests)"),
        ("HTTP status client error (404 Not Found) for url (http://x/a.whl)", "a file that it has not got"),
        ("error sending request\n  cause: invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE in env"),
        ("Because newer==1.0 requires Python >=3.13 and only newer==1.0 is available", "setup.python"),
        ("abi==1.0 has no wheels with a matching Python ABI tag (e.g., `cp311`)", "setup.python"),
        ("Because no-such was not found in the package registry", "look at its spelling"),
        ("write to file `/c/.tmp/a.bin`: No space left on device (os error 28)", "the disk is full at /c/.tmp: "),
        ('No space left on device (os error 28) at path "/c/wheels/.tmpM"', "the disk is full at /c/wheels: "),
        (f"copy file from /c/x to {ENV}/lib/.tmp1: Disk quota exceeded", "free some room below /data/aicrun/envs,"),
        ("No solution found: torch==9 is available nowhere", ""),
    ],
)
def test_the_way_out_follows_from_what_uv_said_last(said: str, help_: str) -> None:
    found = way_out(Setup(path=ENV), said)
    assert help_ in found if help_ else not found
    assert "make it anew (uv lock)" in way_out(Setup(path=ENV, lock="L"), "HTTP status client error (404 Not Found)")
