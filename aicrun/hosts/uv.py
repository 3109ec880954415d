"""Fetches uv's one binary for a machine from the package index: pinned version, pinned hashes, nothing else.

Standard library only, so that the first command of the README can use it before anything is installed. It must not
run what it fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import re
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping

from aicrun.errors import TransferFailed, Way
from aicrun.wire.tools import UV, UV_VERSION, uv_platform

DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 60.0
# The page of uv is 3 MB and its wheels are 20 MB; a server that sends far more is not an index.
PAGE_CAP_BYTES = 64 * 1024 * 1024
WHEEL_CAP_BYTES = 128 * 1024 * 1024

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"']+)["'][^>]*>\s*([^<\s]+)\s*</a>""", re.IGNORECASE)


def fetch_uv(into: str, *, system: str, machine: str, libc: str, env: Mapping[str, str]) -> str:
    """The path of uv for that platform below the folder `into`, fetched when it is not there yet.

    `system`, `machine` and `libc` are words of uname and of a survey (`Linux`, `x86_64`, `glibc 2.36`). The index is
    `PIP_INDEX_URL`, else `UV_DEFAULT_INDEX`, else pypi.org; proxies and certificates are those of `env`. Raises
    `TransferFailed` for a platform without a pinned wheel, when the index cannot be reached or has other bytes.
    """
    platform = uv_platform(system, machine, libc)
    known = UV.get(platform)
    if known is None:
        raise _failed(f"there is no pinned uv for {system} on {machine}")
    tag, wheel_hash, binary_hash = known
    place = os.path.join(into, f"uv-{UV_VERSION}-{'-'.join(filter(None, platform))}")
    if _has_hash(place, binary_hash):
        return place
    name = f"uv-{UV_VERSION}-py3-none-{tag}.whl"
    fetcher = _Fetcher(env)
    wheel = fetcher.wheel(name)
    if hashlib.sha256(wheel).hexdigest() != wheel_hash:
        raise _failed(f"{fetcher.index} has other bytes under {name} than uv's authors published; nothing was kept")
    _place(_binary(wheel), place)
    return place


def index_url(env: Mapping[str, str]) -> str:
    """The simple index that `env` names, without a slash at its end."""
    return (env.get("PIP_INDEX_URL") or env.get("UV_DEFAULT_INDEX") or DEFAULT_INDEX).strip().rstrip("/")


class _Fetcher:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._index, self._login = _parted(index_url(env))
        self.index = self._index
        proxies = {
            scheme: found
            for scheme in ("http", "https")
            if (found := env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY"))
        }
        self._no_proxy = env.get("no_proxy") or env.get("NO_PROXY") or ""
        context = ssl.create_default_context()
        for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            if env.get(name) and os.path.isfile(env[name]):
                context.load_verify_locations(cafile=env[name])
                break
        secure = urllib.request.HTTPSHandler(context=context)
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)
        self._proxied = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), secure)

    def wheel(self, name: str) -> bytes:
        """The bytes of the file `name` of project uv."""
        page_url = f"{self._index}/uv/"
        page, kind, page_url = self._read(page_url, PAGE_CAP_BYTES, {"Accept": _ACCEPT})
        url = find_link(page.decode("utf-8", "replace"), kind, name)
        if not url:
            raise _failed(f"{self.index} does not list {name}")
        return self._read(urllib.parse.urljoin(page_url, url), WHEEL_CAP_BYTES, {})[0]

    def _read(self, url: str, cap: int, headers: dict[str, str]) -> tuple[bytes, str, str]:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https", "file"):
            raise _failed(f"{url}: only http and https indexes are read")
        if self._login and parts.netloc == urllib.parse.urlsplit(self._index).netloc:
            headers = dict(headers, Authorization="Basic " + base64.b64encode(self._login.encode()).decode())
        opener = self._direct if passes_by(parts.hostname or "", self._no_proxy) else self._proxied
        try:
            request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the scheme was looked at
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                raw = answer.read(cap + 1)
                kind, landed = answer.headers.get_content_type(), answer.geturl()
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            if isinstance(error, urllib.error.HTTPError):
                # An answer of refusal is an open connection too.
                error.close()
            raise _failed(f"{parts.scheme}://{parts.hostname}{parts.path} cannot be fetched: {why}") from error
        if len(raw) > cap:
            raise _failed(f"{url} sends more than {cap} bytes")
        return raw, kind, landed


def find_link(page: str, kind: str, name: str) -> str:
    """The address of file `name` on a project page (PEP 503 HTML or PEP 691 JSON), "" when it is not listed.

    It may be relative to the page; a fragment is left off.
    """
    if kind.endswith("json"):
        try:
            files = json.loads(page)["files"]
            return next((str(item["url"]) for item in files if item["filename"] == name), "")
        except (ValueError, KeyError, TypeError):
            return ""
    found = next((link for link, text in _LINK.findall(page) if html.unescape(text) == name), "")
    return html.unescape(found).partition("#")[0]


def passes_by(host: str, no_proxy: str) -> bool:
    """True when `no_proxy` (names or domains parted by commas, or `*`) keeps the proxy out of the way to `host`."""
    rules = [rule.strip().lstrip(".").lower() for rule in no_proxy.split(",") if rule.strip()]
    return any(rule == "*" or host.lower() == rule or host.lower().endswith("." + rule) for rule in rules)


def _parted(url: str) -> tuple[str, str]:
    # Credentials of an index go into a header, never into a message.
    parts = urllib.parse.urlsplit(url)
    if not parts.username:
        return url, ""
    netloc = parts.hostname or ""
    if parts.port:
        netloc += f":{parts.port}"
    login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return parts._replace(netloc=netloc).geturl(), login


def _binary(wheel: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return archive.read(f"uv-{UV_VERSION}.data/scripts/uv")


def _has_hash(path: str, wanted: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest() == wanted
    except OSError:
        return False


def _place(raw: bytes, path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".uv-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
        os.chmod(temporary, 0o755)  # noqa: S103  # a program, for whoever may enter the folder
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _failed(message: str) -> TransferFailed:
    ways = (Way("install uv by hand where it is needed", "pip install uv"),)
    return TransferFailed("AIC-E515", f"uv could not be fetched: {message}", ways=ways)
