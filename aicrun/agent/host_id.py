"""Which machine this is, for ever: the id that names state roots and owners and survives reboots.

It must not change once it was told, so a host without a machine id gets a random one that is written once.
"""

import os

from aicrun.wire import names

MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_HEX = frozenset("0123456789abcdef")


def host_id(folder: str) -> str:
    """The id of this host, 32 hex digits; `folder` (there, ours) keeps the one that is made where the system has none.

    Source: machine-id(5); an image may ship it empty or as the word `uninitialized`, which count as none.
    """
    for path in MACHINE_IDS:
        text = _first_line(path)
        if _is_id(text) and text != "0" * 32:
            return text
    return _kept(os.path.join(folder, names.HOST_ID))


def _kept(path: str) -> str:
    text = _first_line(path)
    if _is_id(text):
        return text
    temporary = "%s.%s" % (path, os.urandom(6).hex())
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as stream:
        stream.write(os.urandom(16).hex() + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    try:
        # link, not rename: two first contacts at once must agree on one id.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)
    return _first_line(path)


def _is_id(text: str) -> bool:
    return len(text) == 32 and _HEX.issuperset(text)


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline(200).strip().lower()
    except OSError:
        return ""
