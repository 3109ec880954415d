"""How each tool that uploads is asked what lies at a target, and told to put and remove files there.

No command line holds what is secret: a tool finds its credentials in the environment or in the account's own files.
"""

from typing import Dict, FrozenSet, List, Mapping, Protocol

from aicrun.agent import ssh_store
from aicrun.agent.build import Workshop
from aicrun.agent.fetch_run import ToolFailed, run
from aicrun.agent.transfer_tools import AwsCli, RcloneCli, Remote
from aicrun.wire.jobs import Upload

_DOING = "asking what lies at the upload target"


class Store(Protocol):
    """A target as one tool speaks to it; `env` is added to what the tool finds. Names are relative, with `/`.

    `compares`: the tool itself tells which files are alike on both sides, and no MD5. `any_name`: also one that is no
    UTF-8 can be kept. `makes`: putting makes a target that is missing, so it is looked for before. `proof`
    tells how files are found to agree.
    """

    env: Dict[str, str]
    compares: bool
    any_name: bool
    makes: bool
    proof: str

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """What lies there by name, or only the object `name`; empty when there is nothing. Raises `ToolFailed`."""

    def sending(self, folder: str) -> List[str]:
        """The command that puts everything below `folder` there, links followed, over what lies there."""

    def putting(self, path: str, name: str) -> List[str]:
        """The command that puts one file, called `name` here too, there as `name`."""

    def remove(self, name: str, shop: Workshop, doing: str) -> None:
        """Remove just the object `name`. Raises `ToolFailed`."""

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """True when what stands for the MD5 of an object is none, since the server encrypts. Raises `ToolFailed`."""

    def alike(self, folder: str, shop: Workshop) -> FrozenSet[str]:
        """Names below `folder`, links followed, of files with the same bytes there. Raises `ToolFailed`."""


def store(upload: Upload, path: str, env: Mapping[str, str]) -> Store:
    """The target of `upload` for its tool, whose program lies at `path`; `env` is what that will find."""
    if upload.scheme == "hf":
        # Imported here: it loads what speaks to the web, and most targets need none of it.
        from aicrun.agent.hub_store import Hub

        return Hub(upload, path, env)
    if upload.scheme == "ssh":
        return ssh_store.Rsync(upload, path)
    return Aws(upload, path) if upload.tool == "aws" else Rclone(upload, path)


def absent(upload: Upload) -> str:
    """What may be done where the target is not there; empty when it is only to be looked at."""
    if upload.scheme == "hf":
        # Imported here, as above.
        from aicrun.agent import hub_store

        return hub_store.absent(upload)
    return ssh_store.absent(upload) if upload.scheme == "ssh" else ""


class _Hashed:
    """A place that tells hashes in its listing: no file is read again for being compared."""

    compares, any_name, makes = False, False, False
    proof = "by their MD5"

    def alike(self, folder: str, shop: Workshop) -> FrozenSet[str]:
        """None: the listing tells it."""
        del folder, shop
        return frozenset()


class Aws(_Hashed):
    """A target `s3://bucket/prefix/` with the AWS command line."""

    def __init__(self, upload: Upload, path: str) -> None:
        bucket, _, key = upload.destination[len("s3://") :].partition("/")
        self._prefix = key.rstrip("/") + "/" if key.strip("/") else ""
        self._cli = AwsCli(path, bucket, upload.endpoint, upload.profile)
        self.env = self._cli.env

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All below the prefix, or those whose key begins with the name."""
        found = self._cli.objects(self._prefix + name, shop, _DOING)
        named = (one._replace(path=name + one.path) for one in found)
        return {one.path: one for one in named if not name or one.path == name}

    def sending(self, folder: str) -> List[str]:
        """`s3 cp`, which follows links."""
        return self._cli.s3("cp", "--recursive", "--no-progress", folder, self._at(""))

    def putting(self, path: str, name: str) -> List[str]:
        """`s3 cp` of one file."""
        return self._cli.s3("cp", "--no-progress", path, self._at(name))

    def remove(self, name: str, shop: Workshop, doing: str) -> None:
        """`s3 rm` of one key."""
        run(self._cli.s3("rm", self._at(name)), shop, doing)

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Whether the server encrypts the object with a key of its own."""
        return self._cli.is_encrypted(self._prefix + name, shop)

    def _at(self, name: str) -> str:
        return self._cli.address(self._prefix + name)


class Rclone(_Hashed):
    """A target `s3://…` or `rclone:remote:path` with rclone."""

    # Links are followed, and nothing is left out because it looks the same.
    WAYS = ("--copy-links", "--ignore-times")

    def __init__(self, upload: Upload, path: str) -> None:
        self._cli = RcloneCli(path)
        if upload.scheme == "s3":
            self._remote = self._cli.on_s3(upload.destination, upload.endpoint, upload.profile).rstrip("/")
        else:
            remote = upload.destination[len("rclone:") :]
            # The root of a remote is not the place that its name alone stands for.
            self._remote = remote if remote.endswith((":", ":/")) else remote.rstrip("/")
        self.env = self._cli.env

    def listing(self, shop: Workshop, name: str = "") -> Dict[str, Remote]:
        """All files below the path, or the one of that name."""
        try:
            files = self._cli.files(self._at(name) if name else self._remote, True, shop, _DOING)
        except ToolFailed as error:
            if "directory not found" in error.said or "object not found" in error.said:
                return {}
            raise
        return {name: files[0]._replace(path=name)} if name and files else {one.path: one for one in files}

    def sending(self, folder: str) -> List[str]:
        """`copy`, of everything in the folder."""
        return self._cli.many("copy", *self.WAYS, folder, self._remote)

    def putting(self, path: str, name: str) -> List[str]:
        """`copyto` of one file."""
        return self._cli.one("copyto", *self.WAYS, path, self._at(name))

    def remove(self, name: str, shop: Workshop, doing: str) -> None:
        """`deletefile` of one object."""
        run(self._cli.one("deletefile", self._at(name)), shop, doing)

    def is_opaque(self, name: str, shop: Workshop) -> bool:
        """Never: it tells no MD5 that is none."""
        del name, shop
        return False

    def _at(self, name: str) -> str:
        return self._remote + ("" if self._remote.endswith((":", "/")) else "/") + name
