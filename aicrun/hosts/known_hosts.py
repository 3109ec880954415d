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
# What makes names of a line more than one name to compare with.
_SPECIAL = re.compile(r"[|,!*?]")


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
    files = [_lines(text) for text in texts]
    names = [host.lower()] if port == SSH_PORT else [f"[{host.lower()}]:{port}", host.lower()]
    for name in names:
        found = tuple(key for lines in files for kind, body in lines.named(name) if (key := _key(kind, body)))
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


class _Lines:
    """The lines of a file as (place, kind, key in base64): those of one plain name by it, others with patterns."""

    def __init__(self, text: str) -> None:
        self._plain: dict[str, list[tuple[int, str, str]]] = {}
        self._others: list[tuple[str, tuple[int, str, str]]] = []
        for place, line in enumerate(text.splitlines()):
            words = line.split(None, 3)
            if len(words) < 3 or words[0].startswith(("#", "@")):
                continue
            entry = (place, words[1], words[2])
            if _SPECIAL.search(words[0]):
                self._others.append((words[0], entry))
            else:
                self._plain.setdefault(words[0].lower(), []).append(entry)

    def named(self, name: str) -> list[tuple[str, str]]:
        """Kind and key of each line that means `name`, in their order."""
        found = [*self._plain.get(name, ()), *(entry for patterns, entry in self._others if _is_meant(patterns, name))]
        return [(kind, body) for _, kind, body in sorted(found)]


# Many machines are looked up in the same few files, which may have a line for each.
@lru_cache(maxsize=8)
def _lines(text: str) -> _Lines:
    return _Lines(text)


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
