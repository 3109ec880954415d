"""An upload target as somebody types it, checked by the rules that a spec's own target is checked by."""

from __future__ import annotations

import json

from aicrun.spec.load import load_run_text
from aicrun.spec.model import UploadSpec


def upload_target(to: str, more: dict[str, str]) -> UploadSpec:
    """The target `to`; `more` holds the fields beside it as a spec names them, empty ones left out.

    Raises `DocumentInvalid` with every fault, of a document that has that target alone.
    """
    upload = {"to": to, **{name: value for name, value in more.items() if value}}
    document = {"version": 1, "name": "upload", "command": "true", "checkpoints": {"upload": upload}}
    loaded = load_run_text(json.dumps(document, indent=1).encode(), "--to", "")
    found = loaded.specs[0].checkpoints.upload
    assert found is not None
    return found
