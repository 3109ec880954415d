"""Tiny packages that need no internet: wheels made by hand, an index that serves them, a lock that names them, uv."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from aicrun.hosts.uv import fetch_uv

# A project whose build needs nothing that would have to be fetched.
PYPROJECT = """\
[project]
name = "demo"
version = "0.1"
requires-python = ">=3.8"
dependencies = ["tiny"]

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """\
import os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "demo-0.1-py3-none-any.whl", "demo-0.1.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.write("demo.py")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: demo\\nVersion: 0.1\\nRequires-Dist: tiny\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "demo.py,,\\n")
    return name

def build_editable(folder, config_settings=None, metadata_directory=None):
    raise SystemExit("an editable install was asked for")
"""
# Instead of a status: nothing is answered.
RESET = -1


def kept_folder() -> Path:
    """Where tests keep what is dear to make, between sessions."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aicrun-tests"


def pinned_uv() -> Path:
    """The pinned uv of this platform, fetched once and kept between sessions."""
    kept = kept_folder()
    words = {"system": "Linux", "machine": os.uname().machine, "libc": "glibc"}
    return Path(fetch_uv(str(kept), env=os.environ, **words))


def wheel(folder: Path, name: str = "tiny", version: str = "1.0", about: str = "") -> Path:
    """A wheel of one module `name` with `WORD`, in `folder`, which is made; `about` are more lines of its metadata."""
    folder.mkdir(exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        # With a time of its own each wheel would have another hash.
        texts = {
            f"{name}.py": "WORD = 'here'\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{about}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        for place, text in texts.items():
            made.writestr(zipfile.ZipInfo(place), text)
    return path


def lock(made: Path, address: str, root: str = 'editable = "."', more: str = "") -> str:
    """The text of a uv.lock of project `demo` that needs the wheel `made`, which is had at `address`."""
    name, version = made.name.split("-")[:2]
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    return f"""\
version = 1
revision = 3
requires-python = ">=3.8"

[[package]]
name = "demo"
version = "0.1"
source = {{ {root} }}
dependencies = [
    {{ name = "{name}" }},
]

[package.metadata]
requires-dist = [{{ name = "{name}" }}]

[[package]]
name = "{name}"
version = "{version}"
source = {{ registry = "{address}" }}
wheels = [
    {{ url = "{address}/{name}/{made.name}", hash = "sha256:{digest}" }},
]
{more}"""


class Index:
    """A package index of this machine for the wheels of a folder; `close` ends it.

    `cut_bytes`: each wheel breaks off after that many bytes; `login`: what a client must say (`Basic …`). A wheel
    is sent only while `sends` is set, as it is at first. `wheel_status`, `page_status`: what each gets instead (404,
    500, or `RESET`: the connection is reset).
    """

    def __init__(self, folder: Path, cut_bytes: int | None = None, login: str = "") -> None:
        self.folder = folder
        self.cut_bytes = cut_bytes
        self.login = login
        self.asked: list[str] = []
        self.wheel_status = self.page_status = 0
        self.sends = threading.Event()
        self.sends.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def do_HEAD(self) -> None:
                index.answer(self)

            def log_message(self, *_args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/simple"

    def close(self) -> None:
        """Answer nobody any more."""
        self.sends.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One page or one wheel."""
        self.asked.append(request.path)
        place = self.folder / request.path.rpartition("/")[2]
        status = self.wheel_status if place.suffix == ".whl" else self.page_status
        if status == RESET:
            # Closed with something left to say: the client is told so by a reset.
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.close_connection = True
            request.connection.close()
        elif status:
            self._send(request, status, b"")
        elif self.login and request.headers.get("Authorization") != self.login:
            self._send(request, 401, b"")
        elif place.is_file():
            self.sends.wait()
            self._send(request, 200, place.read_bytes(), self.cut_bytes)
        else:
            name = request.path.rstrip("/").rpartition("/")[2]
            found = sorted(self.folder.glob(f"{name}-*.whl"))
            page = "".join(f'<a href="{path.name}">{path.name}</a>' for path in found)
            self._send(request, 200 if found else 404, f"<html><body>{page}</body></html>".encode())

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: bytes, cut_bytes: int | None = None) -> None:
        request.send_response(status)
        if status == 401:
            request.send_header("WWW-Authenticate", 'Basic realm="here"')
        request.send_header("Content-Type", "text/html" if body.startswith(b"<html") else "application/octet-stream")
        request.send_header("Content-Length", str(len(body)))
        # Without it uv reads a wheel in parts, to look at its names first.
        request.send_header("Accept-Ranges", "none")
        request.end_headers()
        if request.command == "HEAD":
            return
        # Whoever asked may have been ended meanwhile.
        with contextlib.suppress(ConnectionError):
            request.wfile.write(body if cut_bytes is None else body[:cut_bytes])
        if cut_bytes is not None:
            request.close_connection = True
