"""Regular expressions that are compiled when they are first used: an agent reads many, and one question needs few.

It must not be lax: a pattern is the standard library's own once it is there, and a wrong one raises what that raises.
"""

import re
from typing import Any, AnyStr


class Later:
    """Stands for a compiled pattern; every method and attribute is the pattern's own."""

    def __init__(self, text: Any, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)
        # Found at once from now on.
        self.__dict__[name] = found
        return found


def pattern(text: AnyStr, flags: int = 0) -> "re.Pattern[AnyStr]":
    """`re.compile`, at the first use of what it gives; a fault in `text` is told then (`re.error`)."""
    return Later(text, flags)  # type: ignore[return-value]  # it has all that a pattern has
