"""What is brought from elsewhere: inputs to a host, files of an upload to a client. It must not know how."""

from typing import Tuple

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Fetch:
    """One input that is brought to the host before its command: once for all jobs of the account that want it.

    It becomes `name`, a file or folder, in `folder`, whose last part is the `key`: `hashes.input_key` over all that
    tells it from others. `scheme` is `local` (the files of `tree`, which a client has put into the store), `s3`,
    `rclone` or `hf`: fetched from `address` by `tool` within `timeout_s`. `files` and `bytes` are known for a tree.
    """

    input: str
    key: str
    folder: str
    name: str
    scheme: str
    address: str = ""
    tool: str = ""
    endpoint: str = ""
    profile: str = ""
    revision: str = ""
    timeout_s: int = 21600
    tree: str = ""
    files: int = 0
    bytes: int = 0


@lean.dataclass(frozen=True)
class Back:
    """Files of an upload that a tool of this machine copies to the folder `to`, each under its own path.

    `address` is the target that they lie at, of `scheme`; the first of `tools` that is here is used. Of each of
    `folders` it is all that lies below it; `manifests` means each `*/aicrun-manifest.json`. What lies in `to` is gone
    on with. `subject` begins every message.
    """

    subject: str
    scheme: str
    address: str
    tools: Tuple[str, ...]
    to: str
    endpoint: str = ""
    profile: str = ""
    folders: Tuple[str, ...] = ()
    files: Tuple[str, ...] = ()
    manifests: bool = False


@lean.dataclass(frozen=True)
class Brought:
    """How that ended: the `tool` that did it, or a `fault` (one of `FAULTS`) and `why` in words."""

    tool: str = ""
    fault: str = ""
    why: str = ""


NO_TOOL, NOT_THERE, NO_ROOM, FAILED = "no_tool", "not_there", "no_room", "failed"
FAULTS = (NO_TOOL, NOT_THERE, NO_ROOM, FAILED)
