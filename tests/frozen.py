"""Comparing with a golden file of what is frozen: names, shapes and bytes that other versions of aicrun rely on.

A new name is added to its golden file in the same commit (`AICRUN_FREEZE=1 pytest …` writes it); one that is there is
never changed or removed, for hosts hold records of every version. It must not decide what is frozen.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def frozen(name: str, value: Any) -> None:
    """Assert that `value` (plain JSON) is exactly what `tests/golden/<name>.json` holds."""
    path = GOLDEN / f"{name}.json"
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("AICRUN_FREEZE") == "1":
        path.write_text(text, "utf-8")
    held = path.read_text("utf-8") if path.exists() else ""
    assert json.loads(held or "null") == json.loads(text), (
        f"{path.name} is frozen. What it holds may not change; what is new is added to it, in its own commit."
    )
