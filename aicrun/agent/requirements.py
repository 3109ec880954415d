"""Which requirement lines name something of the client's disk, and so cannot be installed here. Pure text."""

import re
from typing import Tuple

_EDITABLE = re.compile(r"(-e|--editable)(\s|=|\Z)")
_OTHER_FILE = re.compile(r"(-r|--requirement|-c|--constraint)(\s|=|\Z)")
_LINKS = re.compile(r"(-f|--find-links)(\s+|=)(?P<where>\S+)")
_LOCAL_START = re.compile(r"(\.|/|~|file:)")
_LOCAL_REFERENCE = re.compile(r"@\s*(file:|\.|/|~)")
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tgz)\Z", re.IGNORECASE)


def refused_lines(text: str) -> Tuple[Tuple[int, str, str], ...]:
    """The lines that cannot be installed, as (line number from 1, line, why), in order."""
    found = []
    number = 0
    for raw in re.split(r"(?<!\\)\r?\n", text):
        # A line that goes on in the next one keeps the number of its beginning.
        began, number = number + 1, number + 1 + raw.count("\n")
        line = raw.replace("\\\n", " ").split(" #")[0].strip()
        why = "" if not line or line.startswith("#") else refused(line)
        if why:
            found.append((began, line, why))
    return tuple(found)


def refused(line: str) -> str:
    """Why one requirement cannot be installed on a host; empty when it can."""
    if _EDITABLE.match(line):
        return "an editable install points into a working tree, which goes away"
    if _OTHER_FILE.match(line):
        return "it names another file; write its lines here"
    links = _LINKS.match(line)
    if links:
        return "" if re.match(r"https?://|/", links.group("where")) else "a relative folder of wheels is not sent along"
    if line.startswith("-"):
        return ""
    first = re.split(r"[\s;]", line)[0]
    is_local = _LOCAL_START.match(line) or _LOCAL_REFERENCE.search(line)
    if is_local or ("://" not in line and ("/" in first or _ARCHIVE.search(first))):
        return "a local path is not sent along"
    return ""
