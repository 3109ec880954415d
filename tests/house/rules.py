"""The rules of the house, each a function from a house to its faults. `arrows.py` holds those about imports.

A fault names file, line and rule, so that it can be mended without reading this file. Rules must not print.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from house import blueprint
from house.sources import House, Source


@dataclass(frozen=True)
class Fault:
    """A broken rule at one line of one file."""

    path: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def names(house: House) -> Iterator[Fault]:
    """No file is named for nothing."""
    for source in house.of("aicrun/", "tests/", "benchmarks/"):
        stem = source.path.rpartition("/")[2][: -len(".py")]
        if stem in blueprint.FORBIDDEN_NAMES and source.path not in blueprint.NAMED_ALL_THE_SAME:
            yield Fault(source.path, 1, f"a file is named for what it holds; `{stem}` says nothing")


def size(house: House) -> Iterator[Fault]:
    """A file holds one idea; a function fits on a screen."""
    for source in house.sources:
        lines = source.text.count("\n")
        if lines > blueprint.FILE_LINES:
            yield Fault(source.path, blueprint.FILE_LINES, f"{lines} lines; a file has {blueprint.FILE_LINES} at most")
        for function in _functions(source):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if source.room and length > blueprint.FUNCTION_LINES:
                most = blueprint.FUNCTION_LINES
                yield Fault(source.path, function.lineno, f"{function.name} has {length} lines; {most} at most")
            # A command's parameters are its options; the decorators list them.
            given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
            taken = sum(argument.arg not in ("self", "cls") for argument in given)
            if source.room and taken > blueprint.PARAMETERS and not function.decorator_list:
                yield Fault(
                    source.path, function.lineno, f"{function.name} takes {taken} parameters: a type is missing"
                )


def purity(house: House) -> Iterator[Fault]:
    """`plan` knows no clock, disk, process, chance, network or log, and writes nothing."""
    for source in house.of("aicrun/plan/"):
        for item in house.imports(source):
            if item.module.split(".")[0] in blueprint.IMPURE_MODULES:
                yield Fault(source.path, item.line, f"plan is pure: it may not import {item.module}")
        for node in ast.walk(source.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in blueprint.IMPURE_CALLS
            ):
                yield Fault(source.path, node.lineno, f"plan is pure: it may not call {node.func.id}()")


def docstrings(house: House) -> Iterator[Fault]:
    """Every module, public class and public function says what it is."""
    for source in house.sources:
        if not ast.get_docstring(source.tree) and (source.room or not source.path.endswith("/__init__.py")):
            yield Fault(source.path, 1, "a module opens with what it is for and what it must not do")
        if source.room:
            yield from _undocumented(source, source.tree.body)


def _undocumented(source: Source, body: list[ast.stmt]) -> Iterator[Fault]:
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from _undocumented(source, node.body)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        # `...` alone is a promise of a type that its class names, or one of several signatures.
        if not ast.get_docstring(node) and ast.unparse(node.body) != "...":
            yield Fault(source.path, node.lineno, f"{node.name} is public and has no docstring")
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(source, node.body)


def verbs(house: House) -> Iterator[Fault]:
    """A function is named for what it gives back or what it changes."""
    for source in house.of("aicrun/"):
        theirs = _overrides(source)
        for function in _functions(source):
            empty = next((verb for verb in blueprint.EMPTY_VERBS if function.name.lstrip("_").startswith(verb)), "")
            if empty and function not in theirs:
                yield Fault(source.path, function.lineno, f"{function.name}: `{empty}` says nothing")


def _overrides(source: Source) -> set[ast.AST]:
    """Methods of classes that extend another module's (`click.Group`), and Python's own: their names are given."""
    classes = (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))
    bases = {one: [isinstance(base, ast.Attribute) for base in one.bases] for one in classes}
    theirs = {node for one, given in bases.items() if any(given) for node in one.body}
    return theirs | {function for function in _functions(source) if function.name.endswith("__")}


def old_syntax(house: House) -> Iterator[Fault]:
    """What is shipped to a host parses on the oldest Python it may meet there."""
    for source in house.of("aicrun/", "quickstart.py"):
        oldest = next((version for prefix, version in blueprint.SYNTAX if source.path.startswith(prefix)), None)
        if oldest is None:
            continue
        spoken = ".".join(map(str, oldest))
        try:
            ast.parse(source.text, source.path, feature_version=oldest)
        except SyntaxError as error:
            yield Fault(source.path, error.lineno or 1, f"does not parse on Python {spoken}: {error.msg}")
            continue
        yield from _newer(source)


def _newer(source: Source) -> Iterator[Fault]:
    for node in ast.walk(source.tree):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and source.room == "wire":
            yield Fault(source.path, line, "the codec reads types at run time: no `from __future__ import annotations`")
        if isinstance(node, ast.Attribute) and node.attr in blueprint.NEWER_METHODS:
            yield Fault(source.path, line, f"{node.attr} is not in Python 3.8")
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            for word in node.keywords:
                if (called, word.arg) in blueprint.NEWER_ARGUMENTS:
                    yield Fault(source.path, line, f"{called}({word.arg}=…) is not in Python 3.8")
        for annotation in _annotations(node):
            for part in ast.walk(annotation):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
                    yield Fault(
                        source.path, part.lineno, "`X | Y` as a type is not in Python 3.8: write Optional or Union"
                    )
                if isinstance(part, ast.Subscript) and ast.unparse(part.value) in (
                    "list",
                    "dict",
                    "tuple",
                    "set",
                    "type",
                ):
                    yield Fault(
                        source.path, part.lineno, f"{ast.unparse(part)} is not in Python 3.8: write typing's name"
                    )


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
        yield node.returns
    if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation:
        yield node.annotation


def sleeps(house: House) -> Iterator[Fault]:
    """A test waits until something holds, never for a time."""
    for source in house.of("tests/"):
        if source.path in blueprint.SLEEPS or blueprint.PROGRAMS in source.path:
            continue
        bare = any(item.module == "time" for item in house.imports(source)) and _takes_sleep(source)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and (
                ast.unparse(node.func) == "time.sleep" or (bare and ast.unparse(node.func) == "sleep")
            ):
                yield Fault(source.path, node.lineno, "no bare sleep in a test: use support.until")


def _takes_sleep(source: Source) -> bool:
    taken = (node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom) and node.module == "time")
    return any(alias.name == "sleep" for node in taken for alias in node.names)


def comments(house: House) -> Iterator[Fault]:
    """No comment promises work that nobody has asked for."""
    promise = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
    for source in house.sources:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT and promise.search(token.string):
                yield Fault(source.path, token.start[0], "a wish is an issue, not a comment")


def _functions(source: Source) -> Iterator[Function]:
    return (node for node in ast.walk(source.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


RULES = (names, size, purity, docstrings, verbs, old_syntax, sleeps, comments)
