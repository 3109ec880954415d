"""Opens a file that a person named, and says what is wrong when it cannot be opened."""

from __future__ import annotations

from aicrun.errors import UsageError, Way

# More than any file may have, so that the size is refused with its own words and never read whole.
_MOST_READ_BYTES = 1024 * 1024


def contents(path: str, way: Way) -> bytes:
    """The bytes of the file at `path`, cut off at 1 MiB; raises `UsageError`, with `way` when it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_READ_BYTES)
    except FileNotFoundError as error:
        raise UsageError("AIC-E180", f"there is no file {path}", ways=(way,)) from error
    except IsADirectoryError as error:
        raise UsageError(
            "AIC-E181", f"{path} is a folder", ways=(Way("name a file in it", f"{path}/run.yaml"),)
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name cannot be used"
        raise UsageError("AIC-E181", f"{path} cannot be read: {why}") from error
