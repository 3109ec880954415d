"""An input that is brought to a host, as a request names it. It must not know how it is brought."""

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
