"""A target `hf:[datasets/]user/repo[/path][@revision]`: the hub's tool sends, its web interface tells what is there.

A repository is never made here: the tool would make one that everybody sees. What this asks follows the hub's
documentation and its tool; it was tried against a stand-in, never against the service.
"""

import json
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed
from aicrun.agent.targets import CannotUpload
from aicrun.agent.transfer_tools import Remote
from aicrun.wire.jobs import Upload

_ENDPOINT = "https://huggingface.co"
_ANSWER_S = 60.0
_KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
_ADDRESS = re.compile(
    r"hf:(?:(models|datasets|spaces)/)?(\w[\w.-]*/\w[\w.-]*)(?:/([^@\s]*))?(?:@([\w./-]+))?\Z", re.ASCII
)
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_REASON_CHARACTERS = 200


class Place(NamedTuple):
    """A folder of a repository: `kind` as addresses have it (`models` …), `below` empty for the top."""

    kind: str
    repository: str
    below: str
    revision: str


def place(address: str) -> Place:
    """What `hf:…` names; raises `CannotUpload` for what is no such address."""
    found = _ADDRESS.match(address)
    if found is None:
        raise CannotUpload("%s is no address of the form hf:user/repo/path@revision" % address)
    kind, repository, below, revision = found.groups()
    return Place(kind or "models", repository, (below or "").strip("/"), revision or "main")


def absent(upload: Upload) -> str:
    """What to do where the repository is not there, or hidden."""
    there = place(upload.destination)
    kind = "" if there.kind == "models" else " --type %s" % _KINDS[there.kind]
    words = (there.repository, there.revision, there.repository, kind)
    return "there is no %s with a branch %s, or the token may not see it: hf repos create %s%s --private" % words


class Hub:
    """A target `hf:…` with the tool of the hub at `path`; `env` is where it finds its token."""

    compares, any_name, makes = False, False, True
    proof = "by their hashes"

    def __init__(self, upload: Upload, path: str, env: Mapping[str, str]) -> None:
        self._path = path
        self._there = place(upload.destination)
        self._endpoint = env.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
        self._token = _token(env)
        self._opener = _opener(self._endpoint, env)
        self.env = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_COLOR": "1"}

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All files below the path, or the one of that name, each with the hash of its contents."""
        above = self._there.below + "/" if self._there.below else ""
        found: Dict[str, Remote] = {}
        address: Optional[str] = self._api("tree", self._there.below) + "?recursive=true"
        while address:
            shop.left_s("asking what lies at the upload target")
            rows, link = self._asked(address)
            for row in rows if isinstance(rows, list) else ():
                one = _remote(row, above)
                if one is not None and name in ("", one.path):
                    found[one.path] = one
            address = link
        return found

    def sending(self, folder: str) -> List[str]:
        """`upload` of a folder, which sends anew only what is not there, and follows links."""
        return self._uploading(folder, self._there.below or ".")

    def putting(self, path: str, name: str) -> List[str]:
        """`upload` of one file."""
        return self._uploading(path, self._named(name))

    def remove(self, name: str, shop: Workshop, doing: str) -> None:
        """A commit that removes the one file."""
        shop.left_s(doing)
        lines = (
            {"key": "header", "value": {"summary": "aicrun: %s" % doing, "description": ""}},
            {"key": "deletedFile", "value": {"path": self._named(name)}},
        )
        body = "".join(json.dumps(line) + "\n" for line in lines).encode("ascii")
        self._asked(self._api("commit", ""), body)

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Never: it tells no MD5."""
        del name, shop
        return False

    def alike(self, folder: str, shop: Workshop) -> FrozenSet[str]:
        """None: the listing tells it."""
        del folder, shop
        return frozenset()

    def _uploading(self, path: str, named: str) -> List[str]:
        there = self._there
        kind = ["--repo-type", _KINDS[there.kind]] if there.kind != "models" else []
        revision = ["--revision", there.revision] if there.revision != "main" else []
        # It would make a repository that went away meanwhile: then at least one that nobody else sees.
        more = [*kind, *revision, "--private", "--commit-message", "aicrun: checkpoints"]
        return [self._path, "upload", there.repository, path, named, *more]

    def _named(self, name: str) -> str:
        return self._there.below + "/" + name if self._there.below else name

    def _api(self, verb: str, below: str) -> str:
        there = self._there
        parts = (self._endpoint, there.kind, there.repository, verb, urllib.parse.quote(there.revision, safe=""))
        return "%s/api/%s/%s/%s/%s" % parts + ("/" + urllib.parse.quote(below) if below else "")

    def _asked(self, address: str, body: Optional[bytes] = None) -> Tuple[Any, Optional[str]]:
        """(the answer's JSON, the address of its next page); a path that is not there has no rows."""
        headers = {"User-Agent": "aicrun", "Accept": "application/json"}
        headers.update({"Authorization": "Bearer " + self._token} if self._token else {})
        headers.update({"Content-Type": "application/x-ndjson"} if body is not None else {})
        request = urllib.request.Request(address, data=body, headers=headers)  # noqa: S310  the person's own endpoint
        try:
            with self._opener.open(request, timeout=_ANSWER_S) as answer:
                following = _NEXT.search(answer.headers.get("Link", ""))
                link = urllib.parse.urljoin(address, following.group(1)) if following else None
                if link is not None and _origin(link) != _origin(self._endpoint):
                    raise ToolFailed("the hub's next page lies elsewhere: %s" % _origin(link))
                return json.loads(answer.read().decode("utf-8") or "[]"), link
        except urllib.error.HTTPError as error:
            error.close()
            if error.headers.get("X-Error-Code", "") == "EntryNotFound" and body is None:
                return [], None
            raise _refused(error) from error
        except (OSError, ValueError) as error:
            raise ToolFailed("the hub does not answer: %s" % error, str(error), passing=True) from error


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows to the same server only: the token goes nowhere else."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if _origin(newurl) != _origin(req.full_url):
            raise ToolFailed("the hub sends to another server: %s" % _origin(newurl))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(endpoint: str, env: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """As the tool itself would go: by the proxies and certificates of the environment."""
    lower = {name.lower(): value for name, value in env.items() if name.lower().endswith("_proxy") and value}
    proxies = {name[: -len("_proxy")]: value for name, value in lower.items()}
    host = urllib.parse.urlsplit(endpoint).netloc
    if urllib.request.proxy_bypass_environment(host, proxies):  # type: ignore[attr-defined]
        proxies = {}
    trusted = env.get("REQUESTS_CA_BUNDLE") or env.get("SSL_CERT_FILE") or ""
    try:
        where = {"capath" if os.path.isdir(trusted) else "cafile": trusted} if trusted else {}
        context = ssl.create_default_context(**where)  # type: ignore[arg-type]
    except OSError as error:
        raise CannotUpload("the certificates at %s cannot be read: %s" % (trusted, error.strerror)) from error
    handlers = (urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context), _SameHost())
    return urllib.request.build_opener(*handlers)


def _token(env: Mapping[str, str]) -> str:
    """The token where the tool looks for it; empty for none."""
    given = env.get("HF_TOKEN", "") or env.get("HUGGING_FACE_HUB_TOKEN", "")
    if given:
        return given.strip()
    home = env.get("HF_HOME", "") or os.path.join(env.get("HOME", "/"), ".cache/huggingface")
    try:
        with open(env.get("HF_TOKEN_PATH", "") or os.path.join(home, "token"), encoding="utf-8") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""


def _remote(row: Any, above: str) -> Optional[Remote]:
    """One file of a listing; None for a folder."""
    if not isinstance(row, dict) or row.get("type") != "file" or not str(row.get("path", "")).startswith(above):
        return None
    name, large = str(row["path"])[len(above) :], row.get("lfs")
    told, kind = (large, "sha256") if isinstance(large, dict) else (row, "git")
    return Remote(name, int(told.get("size", -1)), digest="%s:%s" % (kind, told["oid"]) if told.get("oid") else "")


def _refused(error: urllib.error.HTTPError) -> ToolFailed:
    reason = error.headers.get("X-Error-Message", "") or error.headers.get("X-Error-Code", "") or str(error.reason)
    told = "the hub says: (%d) %s" % (error.code, " ".join(reason.split())[:_REASON_CHARACTERS])
    return ToolFailed(told, told, passing=error.code in (408, 429) or error.code >= 500)


def _origin(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return "%s://%s" % (parts.scheme, parts.netloc)
