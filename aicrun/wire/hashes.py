"""The hashes both sides must compute alike: canonical JSON, the spec digest, the tree hash, the environment key.

It must not read files: callers hand in bytes. Every format here is frozen by golden files; a change needs a new
version number in front, never a new meaning of an old one.
"""

import json
from typing import Any, Dict, Iterable, Tuple

DIGEST_VERSION = "1"
TREE_VERSION = "1"
ENV_KEY_VERSION = "1"


def sha256(raw: bytes) -> str:
    """64 hex digits of the SHA-256 of `raw`."""
    # Imported here: it loads a library of its own, and most calls of an agent hash nothing.
    import hashlib

    return hashlib.sha256(raw).hexdigest()


def canonical(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, every scalar as its text.

    Numbers and booleans become text (`1`, `true`), so that `1` and `"1"` in a spec are the same wish.
    """
    return json.dumps(_texts(value), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _texts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_texts(item) for item in value]
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def digest(execution: Dict[str, Any]) -> str:
    """The spec digest: 64 hex digits over the execution fields as written (design section 5).

    `execution` holds only the keys that were written; the hash of the source tree stands in it as
    `source_tree` when the spec has a source.
    """
    return sha256(b"aicrun-digest-" + DIGEST_VERSION.encode() + b"\n" + canonical(execution))


def tree_hash(entries: Iterable[Tuple[str, str, str]]) -> str:
    """The hash of a source tree from its (path, kind, content) entries, in any order.

    `path` is relative with `/`; `kind` is `f` (file), `x` (executable file) or `l` (link); `content` is the
    SHA-256 of the file's bytes, or the link's target. Each entry is one NUL-parted record.
    """
    lines = ["%s\0%s\0%s\n" % entry for entry in sorted(entries)]
    return sha256(b"aicrun-tree-" + TREE_VERSION.encode() + b"\n" + "".join(lines).encode("utf-8", "surrogateescape"))


def env_key(reads: Dict[str, Any]) -> str:
    """The key of a built environment: 16 hex digits over all that its build reads."""
    return sha256(b"aicrun-env-" + ENV_KEY_VERSION.encode() + b"\n" + canonical(reads))[:16]


def input_key(tells: Dict[str, Any]) -> str:
    """The key of an input that is brought to a host: 16 hex digits over all that tells it from others."""
    return sha256(b"aicrun-input-1\n" + canonical(tells))[:16]
