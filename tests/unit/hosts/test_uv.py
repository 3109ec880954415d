"""uv from an index of our own over http: both forms of a page, pinned bytes only, no credential in a message."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import REPOSITORY

from aicrun.errors import TransferFailed
from aicrun.hosts import uv
from aicrun.wire.tools import UV, UV_VERSION, uv_platform

NAME = f"uv-{UV_VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
BINARY = b"#!/bin/sh\necho uv of a test\n"
HERE = {"system": "Linux", "machine": "x86_64", "libc": "glibc 2.36"}


def wheel() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"uv-{UV_VERSION}.data/scripts/uv"), BINARY)
    return raw.getvalue()


class Index:
    """A package index with one project; `pages` by path, `seen` are (path, Authorization) in order."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.seen.append((self.path, self.headers.get("Authorization", "")))
                kind, body = index.pages.get(self.path, ("", b""))
                self.send_response(200 if kind else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    def html(self, link: str) -> None:
        body = "<!DOCTYPE html><a href='/old.whl'>uv-0.1.whl</a><br/>\n"
        body += f"<a data-requires-python='&gt;=3.8'\n  href=\"{link}\">{NAME}</a>"
        self.pages["/simple/uv/"] = ("text/html", body.encode())

    def json(self, link: str) -> None:
        files = [{"filename": "uv-0.1.whl", "url": "/old"}, {"filename": NAME, "url": link}]
        self.pages["/simple/uv/"] = ("application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def index() -> Iterator[Index]:
    running = Index()
    running.pages[f"/files/{NAME}"] = ("application/octet-stream", wheel())
    yield running
    running.close()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of the test's own wheel in place of uv's."""
    key = uv_platform(**HERE)
    hashes = (UV[key][0], hashlib.sha256(wheel()).hexdigest(), hashlib.sha256(BINARY).hexdigest())
    monkeypatch.setitem(UV, key, hashes)


def fetch(into: Path, url: str, **env: str) -> str:
    return uv.fetch_uv(str(into), env={"PIP_INDEX_URL": url, "no_proxy": "*"} | env, **HERE)


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize("link", [f"../../files/{NAME}#sha256=0", f"/files/{NAME}"])
@pytest.mark.parametrize("form", ["html", "json"])
def test_either_form_of_page_gives_the_binary(index: Index, tmp_path: Path, form: str, link: str) -> None:
    getattr(index, form)(link)
    path = Path(fetch(tmp_path, index.url + "/"))
    assert path.read_bytes() == BINARY
    assert path.stat().st_mode & 0o777 == 0o755
    assert subprocess.run([path], capture_output=True, check=True).stdout == b"uv of a test\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("pinned")
def test_what_was_fetched_is_not_asked_for_again_unless_it_is_damaged(index: Index, tmp_path: Path) -> None:
    index.html(f"/files/{NAME}")
    path = Path(fetch(tmp_path, index.url))
    asked = len(index.seen)
    fetch(tmp_path, index.url)
    assert len(index.seen) == asked
    path.write_bytes(b"damaged")
    fetch(tmp_path, index.url)
    assert path.read_bytes() == BINARY


def test_other_bytes_than_the_published_ones_are_never_kept(index: Index, tmp_path: Path) -> None:
    index.html(f"/files/{NAME}")
    with pytest.raises(TransferFailed, match="other bytes"):
        fetch(tmp_path, index.url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("pinned")
def test_a_login_in_the_address_is_sent_and_never_shown(index: Index, tmp_path: Path) -> None:
    index.html(f"/files/{NAME}")
    url = index.url.replace("//", "//ana:s%40cret@")
    fetch(tmp_path, url)
    assert index.seen[0][1] == "Basic " + base64.b64encode(b"ana:s@cret").decode()
    index.pages.clear()
    with pytest.raises(TransferFailed) as caught:
        fetch(tmp_path / "other", url)
    assert "cret" not in str(caught.value)


@pytest.mark.usefixtures("pinned")
def test_the_other_index_variable_counts_too(index: Index, tmp_path: Path) -> None:
    index.json(f"/files/{NAME}")
    env = {"UV_DEFAULT_INDEX": index.url, "no_proxy": "*"}
    assert Path(uv.fetch_uv(str(tmp_path), env=env, **HERE)).exists()
    assert uv.index_url({}) == "https://pypi.org/simple"


@pytest.mark.usefixtures("pinned")
def test_a_proxy_is_used_unless_the_host_is_named_for_no_proxy(index: Index, tmp_path: Path) -> None:
    index.html(f"http://files.example/files/{NAME}")
    proxy = index.url.removesuffix("/simple")
    index.pages["http://index.example/simple/uv/"] = index.pages["/simple/uv/"]
    index.pages[f"http://files.example/files/{NAME}"] = index.pages[f"/files/{NAME}"]
    fetch(tmp_path, "http://index.example/simple", http_proxy=proxy, no_proxy="other.example")
    assert index.seen[0][0] == "http://index.example/simple/uv/"


@pytest.mark.parametrize(
    ("host", "rules", "passes"),
    [("a.lan", "lan", True), ("a.lan", ".lan", True), ("xlan", "lan", False), ("a", "", False), ("a", "b, *", True)],
)
def test_no_proxy_rules(host: str, rules: str, passes: bool) -> None:
    assert uv.passes_by(host, rules) is passes


@pytest.mark.parametrize(
    ("env", "words"), [({}, "does not list"), ({"PIP_INDEX_URL": "http://127.0.0.1:9/x"}, "cannot be fetched")]
)
def test_an_index_without_uv_or_without_an_answer_is_said(
    index: Index, tmp_path: Path, env: dict[str, str], words: str
) -> None:
    index.pages["/simple/uv/"] = ("text/html", b"<a href='x'>uv-0.1.whl</a>")
    with pytest.raises(TransferFailed, match=words) as caught:
        fetch(tmp_path, index.url, **env)
    assert caught.value.code == "AIC-E515"


def test_a_platform_without_a_pinned_wheel_is_said_before_any_request(tmp_path: Path) -> None:
    with pytest.raises(TransferFailed, match="no pinned uv for Linux on riscv64"):
        uv.fetch_uv(str(tmp_path), system="Linux", machine="riscv64", libc="glibc", env={})


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("Linux", "amd64", "glibc 2.36"), ("linux", "x86_64", "glibc")),
        (("Linux", "arm64", "musl"), ("linux", "aarch64", "musl")),
        (("Darwin", "arm64", ""), ("darwin", "arm64", "")),
    ],
)
def test_words_of_uname_name_a_platform(words: tuple[str, str, str], key: tuple[str, str, str]) -> None:
    assert uv_platform(*words) == key
    assert key in UV


def test_it_needs_nothing_but_the_standard_library() -> None:
    program = "import aicrun.hosts.uv, sys; sys.exit(any('site-packages' in (getattr(m, '__file__', '') or '') "
    program += "for m in sys.modules.values()))"
    argv = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]; {program}"]
    assert subprocess.run(argv, check=False).returncode == 0
