"""The one line that a login shell on a machine gets to see, for any program and any login shell.

A fixed `sh` call between single quotes, in characters that bash, dash, zsh, fish and tcsh all leave alone; everything
else travels on stdin. It must not contain anything secret: it stands in the process list over there.
"""

from __future__ import annotations

import shlex
import string

from aicrun.hosts.bootstrap import ARGV, ONE_LINER

# Exit code of the call itself, apart from whatever the program ends with.
NO_PYTHON = 96

_OLD = 95
_PLACES = "/usr/bin/python3 python3 /usr/local/bin/python3 .local/bin/python3"
_TRIED = f"import sys;sys.version_info<(3,8)and sys.exit({_OLD});{ONE_LINER}"
_AGENT = (
    "exec sh -c '"
    f"for p in {_PLACES}; do command -v $p >/dev/null || continue; "
    f'$p -I -S -c "{_TRIED}"; r=$?; test $r = {_OLD} || exit $r; done; '
    # Too old, all of them: the agent's own first lines say so, with the version.
    f'command -v python3 >/dev/null || exit {NO_PYTHON}; exec python3 -I -S -c "{ONE_LINER}"'
    "'"
)
_PLAIN = frozenset(string.ascii_letters + string.digits + "/._-+=:,@ ")


def command_of(argv: tuple[str, ...]) -> str:
    """The line for `argv`; for the agent's own call a suitable python3 is looked for."""
    if argv == ARGV:
        return _AGENT
    line = shlex.join(argv)
    if _PLAIN.issuperset(line):
        # No shell sees anything in it to change.
        return f"exec sh -c 'exec {line}'"
    text = "".join(_escaped(line))
    return f"""exec sh -c 'eval "exec $(printf %b "{text}")"'"""


def _escaped(text: str) -> list[str]:
    plain = []
    for byte in text.encode("utf-8", "surrogateescape"):
        plain.append(chr(byte) if byte < 128 and chr(byte) in _PLAIN else f"\\0{byte:03o}")
    return plain
