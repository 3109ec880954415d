"""The command line of the system's ssh for a person at a terminal: it may ask, and still accepts no key by itself."""

from __future__ import annotations

from aicrun.hosts.remote_call import command_of
from aicrun.hosts.ssh_route import Target, configuration

_NOT_FORWARDED = ("ForwardAgent=no", "ForwardX11=no")


def attended(target: Target, argv: tuple[str, ...], ports: tuple[int, ...]) -> tuple[str, ...]:
    """The command that runs `argv` on `target` in this terminal; each of `ports` there answers on the same one here."""
    forwards = tuple(part for port in ports for part in ("-L", f"127.0.0.1:{port}:127.0.0.1:{port}"))
    # What the configuration forwards may be taken by another ssh of the same person; it can be left out only where
    # nothing is forwarded at all.
    forwarding = "ExitOnForwardFailure=yes" if ports else "ClearAllForwardings=yes"
    options = ("StrictHostKeyChecking=yes", "RemoteCommand=none", "PermitLocalCommand=no", forwarding, *_NOT_FORWARDED)
    strict = tuple(part for option in options for part in ("-o", option))
    return ("ssh", *configuration(), "-t", *strict, *forwards, *target.arguments, command_of(argv))
