"""The rules about imports: floors, third-party doors, the standard library, circles. Rules must not print."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from house import blueprint
from house.rules import Fault
from house.sources import House, Import


def floors(house: House) -> Iterator[Fault]:
    """Every import between rooms is in the table of allowed arrows."""
    for source in house.of("aicrun/"):
        for item in house.imports(source):
            if item.relative:
                yield Fault(source.path, item.line, "imports are absolute")
            if item.module.split(".")[0] != "aicrun" or item.module == "aicrun":
                continue
            allowed = blueprint.ARROWS.get(source.room)
            if allowed is None:
                yield Fault(source.path, 1, f"`{source.room}` is no room of the house")
                break
            if not _own(item.module, source.room) and not _admits(allowed, item.module):
                may = ", ".join(allowed) or "nothing of ours"
                yield Fault(source.path, item.line, f"{source.room} may not import {item.module} (it may: {may})")


def doors(house: House) -> Iterator[Fault]:
    """Each third-party package comes in by its own door."""
    for source in house.of("aicrun/"):
        for item in house.imports(source):
            package = item.module.split(".")[0]
            if package == "aicrun" or package in sys.stdlib_module_names:
                continue
            door = blueprint.DOORS.get(package)
            if door is None:
                yield Fault(source.path, item.line, f"{package} has no door: tests/house/blueprint.py lists them")
            elif not source.path.startswith(door):
                yield Fault(source.path, item.line, f"{package} is imported by {door} only")
            elif package in blueprint.ONLY_IN_A_FUNCTION and not item.in_function:
                yield Fault(source.path, item.line, f"{package} may be missing: import it inside one function")


def standard_library(house: House) -> Iterator[Fault]:
    """What runs where nothing is installed imports nothing that must be."""
    for source in house.of(*blueprint.STANDARD_LIBRARY_ONLY):
        shipped = source.room in ("agent", "wire")
        for item in house.imports(source):
            package = item.module.split(".")[0]
            if package == "aicrun" or (package == "pynvml" and source.path == blueprint.DOORS["pynvml"]):
                continue
            if package not in sys.stdlib_module_names or (shipped and package in blueprint.NEWER_THAN_38):
                yield Fault(source.path, item.line, f"standard library only: {package} is not there on every host")


def circles(house: House) -> Iterator[Fault]:
    """No file imports, by any way round, a file that imports it."""
    graph = {source.module: _neighbours(house, source.module) for source in house.of("aicrun/")}
    for start in sorted(graph):
        way = _way_back(graph, start)
        # Each circle is told once, at its first module.
        if way and start == min(way):
            item = graph[start][way[1 % len(way)]]
            circle = " -> ".join([*way, start])
            yield Fault(house.by_module[start].path, item.line, f"a circle of imports: {circle}")


def _neighbours(house: House, module: str) -> dict[str, Import]:
    found = house.imports(house.by_module[module])
    return {item.module: item for item in found if item.module in house.by_module and item.module != module}


def _way_back(graph: dict[str, dict[str, Import]], start: str) -> tuple[str, ...]:
    """The shortest chain of imports that leads from `start` back to it, without its end; empty: there is none."""
    seen: set[str] = set()
    ways: list[tuple[str, ...]] = [(start,)]
    while ways:
        way = ways.pop(0)
        for after in sorted(graph.get(way[-1], {})):
            if after == start:
                return way
            if after not in seen:
                seen.add(after)
                ways.append((*way, after))
    return ()


def _own(module: str, room: str) -> bool:
    return module == f"aicrun.{room}" or module.startswith(f"aicrun.{room}.")


def _admits(allowed: tuple[str, ...], module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in allowed)


RULES = (floors, doors, standard_library, circles)
