"""The plan as its JSON document: the same that a saved plan holds, by `schemas/plan.schema.json`.

It must not add or leave out anything, so that what is reviewed is what can be applied.
"""

from __future__ import annotations

from typing import Any

from aicrun.plan.model import Plan
from aicrun.plan.saved import to_document


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document of `plan`, with `schema_version` and `kind`."""
    return to_document(plan)
