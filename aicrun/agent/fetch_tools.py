"""How each tool that fetches is asked what there is, and told to copy it. Command lines only; it must not run anything
by itself, and no command line holds what is secret.

`hf` follows the tool's own help and was never tried against the service.
"""

import json
import os
import re
from typing import Dict, List, NamedTuple, Optional, Protocol, Tuple

from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import ToolFailed, run
from aicrun.wire import lean
from aicrun.wire.jobs import Fetch

# So many files are told one by one in the log.
TOLD_FILES = 10000
_MD5 = re.compile(r"[0-9a-f]{32}(?:-\d+)?\Z")


class Remote(NamedTuple):
    """One file at its place: `path` below what is fetched; its MD5, or that of its parts (`…-N`), where it is known."""

    path: str
    size: int
    md5: str = ""


@lean.dataclass(frozen=True)
class Listing:
    """What there is: one file (`is_file`, whose path is empty), or all files of a folder, sorted."""

    files: Tuple[Remote, ...]
    is_file: bool = False

    @property
    def bytes(self) -> int:
        """The size of all."""
        return sum(one.size for one in self.files)


class Tool(Protocol):
    """One tool for one address; `env` is added to what it finds."""

    env: Dict[str, str]

    def listing(self, shop: Workshop) -> Optional[Listing]:
        """What there is; None where the tool cannot tell before. Raises `ToolFailed` or `SetupFailed`."""

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """The command that brings it to `place`, a file or a folder, and goes on with what lies there."""

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """True when what stands for the MD5 of a file is none, since the server encrypts."""


def tool(wanted: Fetch, path: str) -> Tool:
    """The tool of a fetch, whose program lies at `path`; raises `SetupFailed` for one that nobody knows."""
    if wanted.scheme == "hf":
        return Hf(wanted, path)
    if wanted.scheme == "s3" and wanted.tool == "aws":
        return Aws(wanted, path)
    if wanted.tool == "rclone":
        return Rclone(wanted, path)
    raise SetupFailed("input %s: %s does not fetch %s" % (wanted.input, wanted.tool, wanted.address))


def _checked(wanted: Fetch, files: List[Remote], is_file: bool = False) -> Listing:
    """The listing, once no name in it leads elsewhere; raises `SetupFailed`."""
    for one in files:
        if (any(part in ("", ".", "..") for part in one.path.split("/")) and not is_file) or "\0" in one.path:
            raise SetupFailed("input %s: the name %r cannot be a file here" % (wanted.input, one.path))
    if not files:
        raise SetupFailed("input %s: there is no file at %s" % (wanted.input, wanted.address))
    return Listing(tuple(sorted(files)), is_file)


class Aws:
    """An address `s3://bucket/key` with the AWS command line."""

    def __init__(self, wanted: Fetch, path: str) -> None:
        self._wanted = wanted
        self._path = path
        self._bucket, _, self._key = wanted.address[len("s3://") :].partition("/")
        # It must not ask anything, nor page what it prints.
        self.env = {"AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off"}

    def listing(self, shop: Workshop) -> Listing:
        """All below the key as a folder, else the object of that key."""
        prefix = self._prefix()
        query = "Contents[].[Size,ETag,Key]"
        argv = self._api("list-objects-v2", "--prefix", prefix, "--output", "text", "--query", query)
        doing = "asking for the files of input %s" % self._wanted.input
        files = [one for one in self._rows(run(argv, shop, doing, captures=True), len(prefix)) if one.path]
        if files or prefix == self._key:
            return _checked(self._wanted, files)
        query = "[ContentLength,ETag]"
        argv = self._api("head-object", "--key", self._key, "--output", "text", "--query", query)
        row = run(argv, shop, doing, captures=True).decode("utf-8", "surrogateescape").split()
        return Listing((Remote("", int(row[0]), md5_of(row[1])),), is_file=True)

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """`s3 cp` for an object, `s3 sync`, which leaves alone what is there, for a folder."""
        is_file = listing is not None and listing.is_file
        told = "--no-progress" if listing is not None and len(listing.files) <= TOLD_FILES else "--only-show-errors"
        address = "s3://%s/%s" % (self._bucket, self._key if is_file else self._prefix())
        return [self._path, "s3", "cp" if is_file else "sync", *self._options(), told, address, place]

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """Whether the server encrypts the object with a key of its own."""
        key = self._key if not remote.path else self._prefix() + remote.path
        query = "[ServerSideEncryption,SSECustomerAlgorithm]"
        argv = self._api("head-object", "--key", key, "--output", "text", "--query", query)
        said = run(argv, shop, "asking how %s is encrypted" % remote.path, captures=True).decode("utf-8", "replace")
        return "aws:kms" in said or said.split()[1:2] not in ([], ["None"])

    def _prefix(self) -> str:
        return self._key if not self._key or self._key.endswith("/") else self._key + "/"

    def _api(self, call: str, *more: str) -> List[str]:
        return [self._path, "s3api", call, *self._options(), "--bucket", self._bucket, *more]

    def _options(self) -> List[str]:
        found = ["--endpoint-url", self._wanted.endpoint] if self._wanted.endpoint else []
        return found + (["--profile", self._wanted.profile] if self._wanted.profile else [])

    def _rows(self, raw: bytes, skipped: int) -> List[Remote]:
        found = []
        for line in raw.decode("utf-8", "surrogateescape").split("\n"):
            size, _, rest = line.partition("\t")
            etag, tab, key = rest.partition("\t")
            if tab and not key.endswith("/"):
                found.append(Remote(key[skipped:], int(size), md5_of(etag)))
            elif line and not tab and line != "None":
                raise SetupFailed("input %s: a name holds a line end: %r" % (self._wanted.input, line[:200]))
        return found


class Rclone:
    """An address `s3://…` or `rclone:remote:path` with rclone."""

    def __init__(self, wanted: Fetch, path: str) -> None:
        self._wanted = wanted
        self._path = path
        self.env = {"RCLONE_ASK_PASSWORD": "false"}
        if wanted.scheme == "s3":
            self._remote = ":s3:" + wanted.address[len("s3://") :]
            self.env.update(s3_settings(wanted.endpoint, wanted.profile))
        else:
            self._remote = wanted.address[len("rclone:") :]

    def listing(self, shop: Workshop) -> Listing:
        """All files below the path, or the one that it is."""
        # On other remotes a hash may cost reading every file.
        hashes = ["--hash", "--hash-type", "md5"] if self._wanted.scheme == "s3" else []
        doing = "asking for the files of input %s" % self._wanted.input
        argv = [self._path, "lsjson", "-R", "--files-only", "--no-mimetype", *hashes, self._remote]
        rows = json.loads(run(argv, shop, doing, captures=True).decode("utf-8", "surrogateescape") or "[]")
        files = [
            Remote(str(row["Path"]), int(row["Size"]), md5_of((row.get("Hashes") or {}).get("md5"))) for row in rows
        ]
        name = self._remote.rstrip("/").rpartition("/")[2].rpartition(":")[2]
        if len(files) == 1 and files[0].path == name and self._is_file(shop, doing):
            return Listing((files[0]._replace(path=""),), is_file=True)
        return _checked(self._wanted, files)

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """`copyto` for a file, `copy`, which leaves alone what is there, for a folder."""
        verb = "copyto" if listing is not None and listing.is_file else "copy"
        # It is tried again by us; a line each half minute tells how far it is.
        told = ["--stats", "30s", "--stats-one-line", "--stats-log-level", "NOTICE"]
        ways = ["--retries", "1", "--low-level-retries", "5", "--contimeout", "30s", "--timeout", "5m"]
        return [self._path, verb, *ways, "--transfers", "8", *told, self._remote, place]

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """Never: rclone itself compares what it copies."""
        del remote, shop
        return False

    def _is_file(self, shop: Workshop, doing: str) -> bool:
        try:
            said = run([self._path, "lsjson", "--stat", self._remote], shop, doing, captures=True)
        except ToolFailed:
            # An old one that cannot say: a folder whose only file has its own name is rare.
            return True
        return not json.loads(said.decode("utf-8", "replace")).get("IsDir")


def s3_settings(endpoint: str, profile: str) -> Dict[str, str]:
    """Settings of rclone for a server that is no remote of the account's configuration."""
    found = {"RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_PROVIDER": "Other" if endpoint else "AWS"}
    found.update({"RCLONE_S3_ENDPOINT": endpoint} if endpoint else {})
    found.update({"RCLONE_S3_PROFILE": profile} if profile else {})
    return found


class Hf:
    """An address `hf:[datasets/]owner/name[/path]` with the tool of the hub."""

    KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}

    def __init__(self, wanted: Fetch, path: str) -> None:
        self._wanted = wanted
        self._path = path
        parts = wanted.address[len("hf:") :].split("/")
        self._kind = self.KINDS.get(parts[0], "")
        parts = parts[1:] if self._kind else parts
        self._repository, self.below = "/".join(parts[:2]), "/".join(parts[2:]).strip("/")
        self.env = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_COLOR": "1"}

    def listing(self, shop: Workshop) -> Optional[Listing]:
        """None: what it copied, it tells afterwards."""
        del shop
        return None

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """`download` into a folder of its own; of a path below, all that begins like it."""
        del listing
        kind = ["--repo-type", self._kind] if self._kind else []
        revision = ["--revision", self._wanted.revision] if self._wanted.revision else []
        # A pattern of the tool: what is special in it stands for itself.
        some = ["--include", re.sub(r"([\[*?])", r"[\1]", self.below) + "*"] if self.below else []
        return [self._path, "download", self._repository, *kind, *revision, *some, "--local-dir", self.scratch(place)]

    def scratch(self, place: str) -> str:
        """The folder that is copied into: of a path below, one beside its place, which it is moved to at the end."""
        return place + ".whole" if self.below else place

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """Never: its hashes are those of the contents."""
        del remote, shop
        return False


def md5_of(etag: object) -> str:
    """What an ETag says of the MD5 of a file, or of those of its parts (`…-N`); empty when it is neither."""
    text = str(etag or "").strip('"').lower()
    return text if _MD5.match(text) else ""


def at(place: str, remote: Remote) -> str:
    """Where a file of a listing lies, once it was copied to `place`."""
    return os.path.join(place, remote.path) if remote.path else place
