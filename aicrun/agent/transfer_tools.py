"""What fetches and uploads share in speaking to the AWS command line and to rclone: listings, options, settings.

No command line holds what is secret: a tool finds its credentials in the environment or in the account's own files.
"""

import json
import re
from typing import Any, List, NamedTuple

from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed, run

_MD5 = re.compile(r"[0-9a-f]{32}(?:-\d+)?\Z")


class Remote(NamedTuple):
    """One file at its place: `path` below what is meant; its MD5, or that of its parts (`…-N`), where it is known.

    `stamp` is what else the place tells by which a change shows, a time say; `digest` another hash of the contents,
    `sha256:…`, or `git:…` as git names a blob.
    """

    path: str
    size: int
    md5: str = ""
    stamp: str = ""
    digest: str = ""


class AwsCli:
    """One bucket of one server, by the AWS command line at `path`; `env` is added to what that finds."""

    def __init__(self, path: str, bucket: str, endpoint: str, profile: str) -> None:
        self._path, self._bucket = path, bucket
        self._options = ["--endpoint-url", endpoint] if endpoint else []
        self._options += ["--profile", profile] if profile else []
        # It must not ask anything, nor page what it prints.
        self.env = {"AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off"}
        # Without it an empty file makes it wait for a word that some servers never say.
        self.env.update(BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE="true")
        if endpoint:
            # Servers that are not Amazon's may not know the checksums that newer versions add by themselves.
            self.env.update(AWS_REQUEST_CHECKSUM_CALCULATION="when_required")
            self.env.update(AWS_RESPONSE_CHECKSUM_VALIDATION="when_required")

    def s3(self, verb: str, *words: str) -> List[str]:
        """The command `s3 VERB` with the options of this server."""
        return [self._path, "s3", verb, *self._options, *words]

    def address(self, key: str) -> str:
        """`s3://bucket/key`."""
        return "s3://%s/%s" % (self._bucket, key)

    def objects(self, prefix: str, shop: Workshop, doing: str) -> List[Remote]:
        """All objects whose key begins with `prefix`, by their paths behind it, marks of folders left out."""
        query = ["--prefix", prefix, "--query", "Contents[].[Size,ETag,Key]", "--output", "json"]
        rows = self._asked("list-objects-v2", query, shop, doing)
        files = (row for row in rows if not str(row[2]).endswith("/"))
        return [Remote(str(key)[len(prefix) :], int(size), md5_of(etag)) for size, etag, key in files]

    def object(self, key: str, shop: Workshop, doing: str) -> Remote:
        """The size and MD5 of one object, its path empty; raises `ToolFailed` where there is none."""
        query = ["--key", key, "--query", "[ContentLength,ETag]", "--output", "json"]
        size, etag = self._asked("head-object", query, shop, doing)
        return Remote("", int(size), md5_of(etag))

    def is_encrypted(self, key: str, shop: Workshop) -> bool:
        """Whether the server encrypts the object with a key of its own, so that what it tells is no MD5."""
        query = ["--key", key, "--query", "[ServerSideEncryption,SSECustomerAlgorithm]", "--output", "json"]
        said = self._asked("head-object", query, shop, "asking how %s is encrypted" % key)
        return any(str(word).startswith("aws:kms") for word in said) or bool(said[1:2] and said[1])

    def _asked(self, call: str, more: List[str], shop: Workshop, doing: str) -> Any:
        argv = [self._path, "s3api", call, *self._options, "--bucket", self._bucket, *more]
        return rows_of(run(argv, shop, doing, captures=True))


class RcloneCli:
    """rclone at `path`; `env` is added to what it finds."""

    # It is tried again by us: a server that is gone holds up no single call for minutes.
    _WAYS = ("--retries", "1", "--low-level-retries", "1", "--contimeout", "30s", "--timeout", "5m")
    # A large file is not begun anew for one packet; a line each half minute tells how far it is.
    _MOVING = ("--low-level-retries", "3", "--transfers", "8")
    _TOLD = ("--stats", "30s", "--stats-one-line", "--stats-log-level", "NOTICE")

    def __init__(self, path: str) -> None:
        self._path = path
        # A bucket that is missing is told; it is not made.
        self.env = {"RCLONE_ASK_PASSWORD": "false", "RCLONE_S3_NO_CHECK_BUCKET": "true"}

    def on_s3(self, address: str, endpoint: str, profile: str) -> str:
        """The remote that `s3://…` is; its server is no remote of the account's configuration."""
        self.env.update({"RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_PROVIDER": "Other" if endpoint else "AWS"})
        self.env.update({"RCLONE_S3_ENDPOINT": endpoint} if endpoint else {})
        self.env.update({"RCLONE_S3_PROFILE": profile} if profile else {})
        return ":s3:" + address[len("s3://") :]

    def files(self, remote: str, with_hashes: bool, shop: Workshop, doing: str) -> List[Remote]:
        """All files below a remote's path, or the one that it is; raises `ToolFailed`."""
        hashes = ["--hash", "--hash-type", "md5"] if with_hashes else []
        argv = self.one("lsjson", "-R", "--files-only", "--no-mimetype", *hashes, remote)
        rows = rows_of(run(argv, shop, doing, captures=True))
        return [
            Remote(str(row["Path"]), int(row["Size"]), md5_of((row.get("Hashes") or {}).get("md5"))) for row in rows
        ]

    def is_folder(self, remote: str, shop: Workshop, doing: str) -> bool:
        """Whether a remote's path is a folder; raises `ToolFailed` where it cannot say."""
        found = rows_of(run(self.one("lsjson", "--stat", remote), shop, doing, captures=True))
        return isinstance(found, dict) and bool(found.get("IsDir"))

    def one(self, verb: str, *words: str) -> List[str]:
        """A command for one thing."""
        return [self._path, verb, *self._WAYS, *words]

    def many(self, verb: str, *words: str) -> List[str]:
        """A command that moves many bytes."""
        return [self._path, verb, *self._WAYS, *self._MOVING, *self._TOLD, *words]


def rows_of(raw: bytes) -> Any:
    """What a tool printed as JSON, an empty list for nothing; raises `ToolFailed`."""
    text = raw.decode("utf-8", "surrogateescape").strip()
    try:
        return json.loads(text or "[]") or []
    except ValueError as error:
        raise ToolFailed("its list of what lies there cannot be read: %s" % error) from error


def md5_of(etag: object) -> str:
    """The MD5, or that of parts, that an entity tag is; empty for another."""
    text = str(etag or "").strip('"').lower()
    return text if _MD5.match(text) else ""
