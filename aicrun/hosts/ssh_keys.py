"""Looks at the key files that a configuration names, to tell why none of them opened the door. It never shows a key."""

from __future__ import annotations

import base64
import binascii
import os
import socket

from aicrun.hosts.ssh_route import Route

# The head of OpenSSH's own key format, and where the name of its cipher stands in it (PROTOCOL.key of OpenSSH).
_MAGIC = b"openssh-key-v1\0"
# SSH_AGENTC_REQUEST_IDENTITIES with its length (draft-miller-ssh-agent).
_LIST_KEYS = b"\0\0\0\1\x0b"
AGENT_ANSWERS_S = 3.0
_BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"


def trouble_of(route: Route) -> str:
    """One line about a key file that is missing, cannot be read or has a passphrase; empty when none is at fault."""
    for path in map(os.path.expanduser, route.identities):
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                text = stream.read(65536)
        except FileNotFoundError:
            # Of the usual names most are not there on any machine.
            if route.has_own_identities:
                return f"{path} is not there"
            continue
        except OSError as error:
            return f"{path}: {error.strerror}"
        if _has_passphrase(text):
            return f"{path} has a passphrase, and no agent that this command reaches holds the key"
    mute = mute_agent()
    return f"the agent at {mute} gives no answer" if mute else ""


def mute_agent() -> str:
    """The socket of an agent that takes a connection and gives no answer; empty for a good one, or for none.

    Whoever asked such a one for keys would wait for ever; a locked one answers that it has none.
    """
    path = os.environ.get("SSH_AUTH_SOCK", "")
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(AGENT_ANSWERS_S)
        try:
            asked.connect(path)
            asked.sendall(_LIST_KEYS)
            asked.recv(1)
        except TimeoutError:
            return path
        except OSError:
            return ""
    return ""


def _has_passphrase(text: str) -> bool:
    if "ENCRYPTED" in text[:200]:
        return True
    if not text.startswith(_BEGIN):
        return False
    try:
        raw = base64.b64decode("".join(text[len(_BEGIN) :].split("-----")[0].split()))
    except (binascii.Error, ValueError):
        return False
    length = int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 4], "big")
    return raw.startswith(_MAGIC) and raw[len(_MAGIC) + 4 : len(_MAGIC) + 4 + length] != b"none"
