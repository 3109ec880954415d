"""Modules of the standard library that are loaded when they are first used, or all at once by who must not load later.

For what is dear and mostly not needed: an agent that answers one question, a setup that has nothing to build. It must
not stand for modules of our own: what a file needs of this house is said by its imports.
"""

from typing import Any, List

_KNOWN: List[str] = []


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(__import__(self._name), attribute)


def module(name: str, *, by_all: bool = True) -> Any:
    """What stands for the top-level module `name`; beside a real import for the type checker.

    `by_all` False: whoever must not load later does not use it, so that `load` need not load it.
    """
    if by_all:
        _KNOWN.append(name)
    return _Later(name)


def load() -> None:
    """Load what the files of this process stand for: nothing is left that could be missing later."""
    for name in _KNOWN:
        __import__(name)
