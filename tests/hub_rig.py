"""What stands in for the hub: as much of its web interface as its real tool speaks to when it uploads, and a tool.

Written after the documentation and the tool (huggingface_hub 2.4.0); nothing here was tried against the service.
`close` ends the server. It must not be reached from outside.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# As long as a secret must be.
TOKEN = "hf_token_of_a_test"
READ_ONLY = "hf_reads_only_1"
REPOSITORY = "me/model"
PAGE = 3
# Larger ones lie beside the repository, by their SHA-256.
SMALL_BYTES = 1000

# The part of the tool that uploads, for where the real one is not at hand: every file inside one commit.
TOOL = """\
#!PYTHON
import base64, json, os, sys, urllib.error, urllib.request
words = sys.argv[1:]
assert words.pop(0) == "upload", words
options = {}
while "--private" in words:
    words.remove("--private")
while any(word.startswith("--") for word in words):
    at = next(n for n, word in enumerate(words) if word.startswith("--"))
    name = words.pop(at)
    options[name] = words.pop(at)
repository, here, there = words
files = {there: here}
if os.path.isdir(here):
    top = "" if there == "." else there + "/"
    walked = [os.path.join(above, name) for above, _, names in os.walk(here) for name in names]
    files = {top + os.path.relpath(path, here): path for path in walked}
lines = [{"key": "header", "value": {"summary": options["--commit-message"]}}]
for name, path in files.items():
    content = base64.b64encode(open(path, "rb").read()).decode()
    lines.append({"key": "file", "value": {"path": name, "encoding": "base64", "content": content}})
kind, revision = options.get("--repo-type", "model") + "s", options.get("--revision", "main")
address = "%s/api/%s/%s/commit/%s" % (os.environ["HF_ENDPOINT"], kind, repository, revision)
body = "".join(json.dumps(line) + chr(10) for line in lines).encode()
request = urllib.request.Request(address, body, {"Authorization": "Bearer " + os.environ.get("HF_TOKEN", "")})
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError as error:
    sys.exit("Error: %d Client Error: %s for url: %s" % (error.code, error.reason, address))
"""


def hf() -> Path | None:
    """The real tool, where `AICRUN_TEST_HF` or the PATH names one."""
    found = os.environ.get("AICRUN_TEST_HF", "") or shutil.which("hf")
    return Path(found) if found else None


class Hub:
    """A server with one repository; `files` is what lies in it by path, `asked` what was asked for."""

    def __init__(self, kind: str = "models", revision: str = "main") -> None:
        self.files: dict[str, bytes] = {".gitattributes": b"*.bin filter=lfs\n"}
        self.top, self.revision = f"/api/{kind}/{REPOSITORY}", revision
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.commits: list[str] = []
        # By path: what is stored instead of what was sent.
        self.spoiled: dict[str, bytes] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nothing."""

            def do_GET(self) -> None:
                hub.answer(self, b"")

            def do_POST(self) -> None:
                hub.answer(self, self.body())

            def do_PUT(self) -> None:
                hub.answer(self, self.body())

            def body(self) -> bytes:
                if self.headers.get("Transfer-Encoding", "") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = b""
                while size := int(self.rfile.readline(), 16):
                    parts += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return parts

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._address = f"{self.endpoint}/{'' if kind == 'models' else kind + '/'}{REPOSITORY}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: Any, body: bytes) -> None:
        """One request."""
        parts = urlsplit(handler.path)
        path = unquote(parts.path)
        self.asked.append(f"{handler.command} {path}")
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, READ_ONLY) and "/lfs/" not in path:
            return self._say(handler, 401, {"error": "Invalid credentials in Authorization header"})
        if token == READ_ONLY and handler.command == "POST":
            return self._say(handler, 403, {"error": "Forbidden"})
        if path.startswith("/lfs/"):
            self.large[path.rpartition("/")[2]] = body
            return self._say(handler, 200, {})
        if path == "/api/repos/create":
            return self._say(handler, 409, {"error": "You already created this model repo", "url": self._address})
        if path.endswith("/info/lfs/objects/batch"):
            return self._say(handler, 200, {"transfer": "basic", "objects": self._wanted(json.loads(body))})
        if not path.startswith(self.top):
            return self._say(handler, 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        return self._repository(handler, path[len(self.top) :], parts.query, body)

    def _repository(self, handler: Any, path: str, query: str, body: bytes) -> None:
        verb, _, rest = path.strip("/").partition("/")
        if verb in ("tree", "preupload", "commit", "revision") and not re.match(f"{self.revision}(/|$)", rest):
            return self._say(handler, 404, {"error": "no revision"}, {"X-Error-Code": "RevisionNotFound"})
        if verb == "tree":
            return self._tree(handler, rest[len(self.revision) :].strip("/"), query)
        if verb == "preupload":
            files = json.loads(body)["files"]
            modes = [
                {"path": one["path"], "uploadMode": "lfs" if one["size"] > SMALL_BYTES else "regular"} for one in files
            ]
            return self._say(handler, 200, {"files": [{**one, "shouldIgnore": False} for one in modes]})
        if verb == "commit":
            self._commit([json.loads(line) for line in body.splitlines()])
            told = {"commitUrl": f"{self._address}/commit/c0ffee", "commitOid": "c0ffee", "success": True}
            return self._say(handler, 200, {**told, "hookOutput": "", "pullRequestUrl": None})
        return self._say(handler, 200, {"id": REPOSITORY, "sha": "c0ffee", "private": True, "tags": []})

    def _tree(self, handler: Any, below: str, query: str) -> None:
        above = below + "/" if below else ""
        names = sorted(name for name in self.files if name.startswith(above))
        if below and not names:
            return self._say(handler, 404, {"error": "no entry"}, {"X-Error-Code": "EntryNotFound"})
        start = int((re.search(r"cursor=(\d+)", query) or ["", "0"])[1])
        rows = [_row(name, self.files[name]) for name in names[start : start + PAGE]]
        rows += [{"type": "directory", "oid": "d", "size": 0, "path": above + "folder"}]
        more: dict[str, str] = {}
        if start + PAGE < len(names):
            address = f"{self.endpoint}{handler.path.partition('?')[0]}?recursive=true&cursor={start + PAGE}"
            more["Link"] = f'<{address}>; rel="next"'
        return self._say(handler, 200, rows, more)

    def _wanted(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        for one in batch["objects"]:
            href = {"upload": {"href": f"{self.endpoint}/lfs/{one['oid']}", "header": {}}}
            # What arrived whole before is not sent again.
            is_there = len(self.large.get(one["oid"], b"")) == one["size"]
            found.append({**one} if is_there else {**one, "actions": href})
        return found

    def _commit(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.commits.append(value["summary"])
            elif line["key"] == "deletedFile":
                del self.files[value["path"]]
            else:
                is_large = line["key"] == "lfsFile"
                sent = self.large[value["oid"]] if is_large else base64.b64decode(value["content"])
                self.files[value["path"]] = self.spoiled.get(value["path"], sent)

    def _say(self, handler: Any, code: int, told: Any, more: dict[str, str] | None = None) -> None:
        raw = json.dumps(told).encode()
        handler.send_response(code)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(raw)),
            **(more or {}),
        }.items():
            handler.send_header(name, value)
        if code >= 400:
            handler.send_header("X-Error-Message", told["error"])
        handler.end_headers()
        handler.wfile.write(raw)


def _row(name: str, raw: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
    row = {"type": "file", "oid": blob, "size": len(raw), "path": name}
    large = {"oid": hashlib.sha256(raw).hexdigest(), "size": len(raw), "pointerSize": 130}
    return {**row, "lfs": large} if len(raw) > SMALL_BYTES else row
