"""Checkpoints out of verified uploads, as one door: which upload, what it holds, which part, and bringing it here."""

from aicrun.lifecycle.fetch_upload import Manifest as Manifest
from aicrun.lifecycle.fetch_upload import Part as Part
from aicrun.lifecycle.fetch_upload import fetch as fetch
from aicrun.lifecycle.fetch_upload import named as named
from aicrun.lifecycle.fetch_upload import opened as opened
from aicrun.lifecycle.instead import Instead as Instead
from aicrun.lifecycle.instead import instead as instead
from aicrun.lifecycle.ledger import Uploaded as Uploaded
from aicrun.lifecycle.upload_parts import is_as_seen as is_as_seen
from aicrun.lifecycle.upload_parts import meant_part as meant_part
