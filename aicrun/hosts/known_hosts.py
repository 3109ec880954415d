"""Which keys a person has accepted for a machine, read out of known_hosts files as OpenSSH reads them (sshd(8)).

A line that cannot be read is passed over, in whatever bytes it is. It must not decide whether a key is good: lines with
markers (`@cert-authority`, `@revoked`) are none of its.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One accepted key: its type, `ssh-ed25519` say, and its bytes."""

    kind: str
    blob: bytes

    @property
    def shown(self) -> str:
        """`ED25519 SHA256:…`, as ssh-keygen prints a fingerprint."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"{self.kind.removeprefix('ssh-').upper()} SHA256:{digest}"


def keys_for(texts: Iterable[str], host: str, port: int) -> tuple[KnownKey, ...]:
    """Every key that `texts` accept for `host` at `port`, in their order.

    Only where none is named for a port that is not the usual one, those for the host alone count.
    """
    lines = [parts for text in texts for parts in _lines(text)]
    names = [host.lower()] if port == SSH_PORT else [f"[{host.lower()}]:{port}", host.lower()]
    for name in names:
        found = tuple(key for patterns, kind, body in lines if _is_meant(patterns, name) and (key := _key(kind, body)))
        if found:
            return found
    return ()


def text_of(path: str) -> str:
    """The text of a file, whatever its bytes are; empty when it cannot be read. `~` is the home."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


# Many machines are looked up in the same few files.
@lru_cache(maxsize=8)
def _lines(text: str) -> tuple[tuple[str, str, str], ...]:
    """(patterns, kind, key in base64) of each line that is no comment and has no marker."""
    found = (line.split(None, 3) for line in text.splitlines())
    return tuple(
        (words[0], words[1], words[2]) for words in found if len(words) >= 3 and not words[0].startswith(("#", "@"))
    )


def _key(kind: str, body: str) -> KnownKey | None:
    try:
        return KnownKey(kind, base64.b64decode(body, validate=True))
    except (binascii.Error, ValueError):
        return None


def _is_meant(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _is_hash_of(patterns, name)
    meant = False
    for pattern in patterns.lower().split(","):
        if _matches(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            meant = True
    return meant


def _matches(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    # fnmatch would take the brackets around a host with a port for a set of letters.
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name) is not None


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in hashed.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
