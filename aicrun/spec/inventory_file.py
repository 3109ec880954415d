"""Writes a changed machines.yaml: read, changed, checked as a whole, and only then put in place of the old one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from aicrun.errors import UsageError, Way
from aicrun.spec.inventory import load_inventory_text
from aicrun.spec.model import Inventory


def change(path: str, edit: Callable[[str, str], str]) -> Inventory:
    """Let `edit` make the new text of the inventory at `path` (empty when it is not there) and write that.

    `edit` gets the text and the file's name. Through a link its target is written; the mode stays. Raises what `edit`
    raises, `DocumentInvalid` when the result has faults, and `UsageError` (AIC-E019) when it cannot be written: then
    nothing was changed.
    """
    place = os.path.realpath(path)
    beside = f"{place}.{os.getpid()}.part"
    try:
        before, mode = _read(place)
        after = edit(before, path)
        inventory, _ = load_inventory_text(after.encode("utf-8"), path)
        if after == before:
            return inventory
        os.makedirs(os.path.dirname(place), exist_ok=True)
        try:
            with open(beside, "x", encoding="utf-8", newline="") as stream:
                stream.write(after)
                os.fchmod(stream.fileno(), mode)
                stream.flush()
                os.fsync(stream.fileno())
            if _read(place)[0] != before:
                raise UsageError("AIC-E019", f"somebody changed {path} meanwhile", ways=(Way("look, and try again"),))
            os.replace(beside, place)
        finally:
            if os.path.exists(beside):
                os.unlink(beside)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError("AIC-E019", f"{path} cannot be changed: {why}") from error
    return inventory


def _read(place: str) -> tuple[str, int]:
    try:
        with open(place, encoding="utf-8", newline="") as stream:
            return stream.read(), stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
    except FileNotFoundError:
        return "", 0o644
