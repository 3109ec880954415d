"""A clear no of the host, as data: what `serve` turns into a refusal. It must not carry anything secret."""

from typing import Dict, Optional


class Refused(Exception):
    """The host says no: `token` is one of `calls.REFUSALS`, `facts` are short texts by name."""

    def __init__(self, token: str, message: str, facts: Optional[Dict[str, str]] = None) -> None:
        super().__init__(message)
        self.token = token
        self.message = message
        self.facts: Dict[str, str] = dict(facts or {})
