"""How each tool that fetches is asked what there is, and told to copy it. Command lines only; it must not run anything
by itself, and no command line holds what is secret.

`hf` follows the tool's own help and was never tried against the service.
"""

import os
import re
from typing import Dict, List, Optional, Protocol, Tuple

from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import ToolFailed
from aicrun.agent.transfer_tools import AwsCli, RcloneCli, Remote
from aicrun.wire import lean
from aicrun.wire.jobs import Fetch

# So many files are told one by one in the log.
TOLD_FILES = 10000


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
        bucket, _, self._key = wanted.address[len("s3://") :].partition("/")
        self._cli = AwsCli(path, bucket, wanted.endpoint, wanted.profile)
        self.env = self._cli.env

    def listing(self, shop: Workshop) -> Listing:
        """All below the key as a folder, else the object of that key."""
        prefix = self._prefix()
        doing = "asking for the files of input %s" % self._wanted.input
        files = self._cli.objects(prefix, shop, doing)
        odd = next((one.path for one in files if "\n" in one.path), None)
        if odd is not None:
            # A log tells each file by a line of its own.
            raise SetupFailed("input %s: a name holds a line end: %r" % (self._wanted.input, odd[:200]))
        if files or prefix == self._key:
            return _checked(self._wanted, files)
        return Listing((self._cli.object(self._key, shop, doing),), is_file=True)

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """`s3 cp` for an object, `s3 sync`, which leaves alone what is there, for a folder."""
        is_file = listing is not None and listing.is_file
        told = "--no-progress" if listing is not None and len(listing.files) <= TOLD_FILES else "--only-show-errors"
        address = self._cli.address(self._key if is_file else self._prefix())
        return self._cli.s3("cp" if is_file else "sync", told, address, place)

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """Whether the server encrypts the object with a key of its own."""
        return self._cli.is_encrypted(self._key if not remote.path else self._prefix() + remote.path, shop)

    def _prefix(self) -> str:
        return self._key if not self._key or self._key.endswith("/") else self._key + "/"


class Rclone:
    """An address `s3://…` or `rclone:remote:path` with rclone."""

    def __init__(self, wanted: Fetch, path: str) -> None:
        self._wanted = wanted
        self._cli = RcloneCli(path)
        if wanted.scheme == "s3":
            self._remote = self._cli.on_s3(wanted.address, wanted.endpoint, wanted.profile)
        else:
            self._remote = wanted.address[len("rclone:") :]
        self.env = self._cli.env

    def listing(self, shop: Workshop) -> Listing:
        """All files below the path, or the one that it is."""
        doing = "asking for the files of input %s" % self._wanted.input
        # On other remotes a hash may cost reading every file.
        files = self._cli.files(self._remote, self._wanted.scheme == "s3", shop, doing)
        name = self._remote.rstrip("/").rpartition("/")[2].rpartition(":")[2]
        if len(files) == 1 and files[0].path == name and self._is_file(shop, doing):
            return Listing((files[0]._replace(path=""),), is_file=True)
        return _checked(self._wanted, files)

    def copying(self, place: str, listing: Optional[Listing]) -> List[str]:
        """`copyto` for a file, `copy`, which leaves alone what is there, for a folder."""
        verb = "copyto" if listing is not None and listing.is_file else "copy"
        return self._cli.many(verb, self._remote, place)

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        """Never: rclone itself compares what it copies."""
        del remote, shop
        return False

    def _is_file(self, shop: Workshop, doing: str) -> bool:
        try:
            return not self._cli.is_folder(self._remote, shop, doing)
        except ToolFailed:
            # An old one that cannot say: a folder whose only file has its own name is rare.
            return True


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


def at(place: str, remote: Remote) -> str:
    """Where a file of a listing lies, once it was copied to `place`."""
    return os.path.join(place, remote.path) if remote.path else place
