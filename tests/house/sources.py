"""Reading a house: its files as syntax trees, and every import with its line. It must not judge; `rules.py` does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from house.blueprint import FILES


@dataclass(frozen=True)
class Import:
    """One imported module, absolute and as exact as the house knows it, and whether a function holds the statement."""

    module: str
    line: int
    in_function: bool = False
    relative: bool = False


@dataclass(frozen=True)
class Source:
    """A Python file of the repository: `path` is relative, with slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree by today's grammar."""
        return ast.parse(self.text, self.path)

    @property
    def room(self) -> str:
        """The room it lies in; empty outside the package."""
        if self.path in FILES:
            return FILES[self.path]
        parts = self.path.split("/")
        return parts[1] if parts[0] == "aicrun" and len(parts) > 2 else ""

    @property
    def module(self) -> str:
        """The name it is imported by."""
        name = self.path[: -len(".py")].replace("/", ".")
        return name[: -len(".__init__")] if name.endswith(".__init__") else name


@dataclass(frozen=True)
class House:
    """All Python files that are ours, by path."""

    sources: tuple[Source, ...]
    by_module: Mapping[str, Source] = field(default_factory=dict)

    def of(self, *prefixes: str) -> tuple[Source, ...]:
        """The files whose path begins with one of `prefixes`."""
        return tuple(source for source in self.sources if source.path.startswith(prefixes))

    def imports(self, source: Source) -> Iterator[Import]:
        """Every import of `source`, in the order of its lines; `from a import b` is `a.b` where that is a file."""
        inside = {
            id(node)
            for function in ast.walk(source.tree)
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
            for node in ast.walk(function)
        }
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, id(node) in inside)
            elif isinstance(node, ast.ImportFrom):
                base = _base(source, node)
                for alias in node.names:
                    exact = f"{base}.{alias.name}"
                    module = exact if exact in self.by_module else base
                    yield Import(module, node.lineno, id(node) in inside, node.level > 0)


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    if not source.path.endswith("__init__.py"):
        package = package[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


def house_of(texts: Mapping[str, str]) -> House:
    """The house whose files are `texts` (path -> text)."""
    sources = tuple(Source(path, text) for path, text in sorted(texts.items()))
    return House(sources, {source.module: source for source in sources})


def read_house(top: Path) -> House:
    """The house that stands in the repository at `top`: the package, its tests, specs and benchmarks.

    What lies in a folder with a dot before its name was put there by a tool.
    """
    paths = [path for folder in ("aicrun", "tests", "specs", "benchmarks") for path in (top / folder).rglob("*.py")]
    paths += top.glob("*.py")
    names = {path.relative_to(top): path for path in paths}
    ours = {name: path for name, path in names.items() if not any(part.startswith(".") for part in name.parts)}
    return house_of({name.as_posix(): path.read_text("utf-8") for name, path in ours.items()})
