"""How each tool that uploads is asked what lies at a target, and told to put and remove files there.

No command line holds what is secret: a tool finds its credentials in the environment or in the account's own files.
"""

import json
from typing import Any, Dict, List, Protocol

from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed, run
from aicrun.agent.fetch_tools import Remote, md5_of, s3_settings
from aicrun.wire.jobs import Upload

_DOING = "asking what lies at the upload target"


class Store(Protocol):
    """A target as one tool speaks to it; `env` is added to what the tool finds. Names are relative, with `/`."""

    env: Dict[str, str]

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """What lies there by name, or only the object `name`; empty when there is nothing. Raises `ToolFailed`."""

    def sending(self, folder: str) -> List[str]:
        """The command that puts everything below `folder` there, links followed, over what lies there."""

    def putting(self, path: str, name: str) -> List[str]:
        """The command that puts one file there as `name`."""

    def removing(self, name: str) -> List[str]:
        """The command that removes just the object `name`."""

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """True when what stands for the MD5 of an object is none, since the server encrypts. Raises `ToolFailed`."""


def store(upload: Upload, path: str) -> Store:
    """The target of `upload` for its tool, whose program lies at `path`."""
    return Aws(upload, path) if upload.tool == "aws" else Rclone(upload, path)


class Aws:
    """A target `s3://bucket/prefix/` with the AWS command line."""

    def __init__(self, upload: Upload, path: str) -> None:
        self._upload = upload
        self._path = path
        self._bucket, _, key = upload.destination[len("s3://") :].partition("/")
        self._prefix = key.rstrip("/") + "/" if key.strip("/") else ""
        # It must not ask anything, nor page what it prints.
        self.env = {"AWS_PAGER": "", "AWS_CLI_AUTO_PROMPT": "off"}
        # Without it an empty file makes it wait for a word that some servers never say.
        self.env.update(BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE="true")
        if upload.endpoint:
            # Servers that are not Amazon's may not know the checksums that newer versions add by themselves.
            self.env.update(AWS_REQUEST_CHECKSUM_CALCULATION="when_required")
            self.env.update(AWS_RESPONSE_CHECKSUM_VALIDATION="when_required")

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All below the prefix, or those whose key begins with the name."""
        query = ["--prefix", self._prefix + name, "--query", "Contents[].[Size,ETag,Key]", "--output", "json"]
        raw = run(self._api("list-objects-v2", *query), shop, _DOING, captures=True)
        found = {}
        for size, etag, key in _rows(raw):
            path = str(key)[len(self._prefix) :]
            if path and (not name or path == name):
                found[path] = Remote(path, int(size), md5_of(etag))
        return found

    def sending(self, folder: str) -> List[str]:
        """`s3 cp`, which follows links."""
        return [self._path, "s3", "cp", "--recursive", "--no-progress", *self._options(), folder, self._at("")]

    def putting(self, path: str, name: str) -> List[str]:
        """`s3 cp` of one file."""
        return [self._path, "s3", "cp", "--no-progress", *self._options(), path, self._at(name)]

    def removing(self, name: str) -> List[str]:
        """`s3 rm` of one key."""
        return [self._path, "s3", "rm", *self._options(), self._at(name)]

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Whether the server encrypts the object with a key of its own."""
        query = ["--query", "[ServerSideEncryption,SSECustomerAlgorithm]", "--output", "json"]
        argv = self._api("head-object", "--key", self._prefix + name, *query)
        said = _rows(run(argv, shop, "asking how %s is encrypted" % name, captures=True))
        return any(str(word).startswith("aws:kms") for word in said) or bool(said[1:2] and said[1])

    def _at(self, name: str) -> str:
        return "s3://%s/%s%s" % (self._bucket, self._prefix, name)

    def _api(self, call: str, *more: str) -> List[str]:
        return [self._path, "s3api", call, *self._options(), "--bucket", self._bucket, *more]

    def _options(self) -> List[str]:
        found = ["--endpoint-url", self._upload.endpoint] if self._upload.endpoint else []
        return found + (["--profile", self._upload.profile] if self._upload.profile else [])


class Rclone:
    """A target `s3://…` or `rclone:remote:path` with rclone."""

    # It is tried again by us: a server that is gone holds up no single call for minutes.
    WAYS = ("--retries", "1", "--low-level-retries", "1", "--contimeout", "30s", "--timeout", "5m")
    # A large file is not begun anew for one packet; a line each half minute tells how far it is.
    SENDING = ("--low-level-retries", "3", "--transfers", "8")
    TOLD = ("--stats", "30s", "--stats-one-line", "--stats-log-level", "NOTICE")

    def __init__(self, upload: Upload, path: str) -> None:
        self._path = path
        # A bucket that is missing is told; it is not made.
        self.env = {"RCLONE_ASK_PASSWORD": "false", "RCLONE_S3_NO_CHECK_BUCKET": "true"}
        if upload.scheme == "s3":
            self._remote = ":s3:" + upload.destination[len("s3://") :].rstrip("/")
            self.env.update(s3_settings(upload.endpoint, upload.profile))
        else:
            remote = upload.destination[len("rclone:") :]
            # The root of a remote is not the place that its name alone stands for.
            self._remote = remote if remote.endswith((":", ":/")) else remote.rstrip("/")

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All files below the path, or the one of that name."""
        place = self._at(name) if name else self._remote
        argv = [self._path, "lsjson", "-R", "--files-only", "--no-mimetype", "--hash", "--hash-type", "md5"]
        try:
            raw = run([*argv, *self.WAYS, place], shop, _DOING, captures=True)
        except ToolFailed as error:
            if "directory not found" in error.said or "object not found" in error.said:
                return {}
            raise
        rows = _rows(raw)
        files = [
            Remote(str(row["Path"]), int(row["Size"]), md5_of((row.get("Hashes") or {}).get("md5"))) for row in rows
        ]
        return {name: files[0]._replace(path=name)} if name and files else {one.path: one for one in files}

    def sending(self, folder: str) -> List[str]:
        """`copy`, of everything in the folder."""
        ways = ("--copy-links", "--ignore-times", *self.WAYS, *self.SENDING, *self.TOLD)
        return [self._path, "copy", *ways, folder, self._remote]

    def putting(self, path: str, name: str) -> List[str]:
        """`copyto` of one file."""
        return [self._path, "copyto", "--copy-links", "--ignore-times", *self.WAYS, path, self._at(name)]

    def removing(self, name: str) -> List[str]:
        """`deletefile` of one object."""
        return [self._path, "deletefile", *self.WAYS, self._at(name)]

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Never: it tells no MD5 that is none."""
        del name, shop
        return False

    def _at(self, name: str) -> str:
        return self._remote + ("" if self._remote.endswith((":", "/")) else "/") + name


def _rows(raw: bytes) -> Any:
    text = raw.decode("utf-8", "surrogateescape").strip()
    try:
        return json.loads(text or "[]") or []
    except ValueError as error:
        raise ToolFailed("its list of what lies at the target cannot be read: %s" % error) from error
