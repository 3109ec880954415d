"""The commands that a plan tells people to type. It must not run or check any."""

from __future__ import annotations

import shlex

from aicrun.spec.model import RunSpec


def typed(verb: str, spec: RunSpec, *extra: str) -> str:
    """`aicrun VERB FILE`, with the `--set` arguments that shaped the spec and what the way out adds."""
    parts = ["aicrun", verb, spec.file or "run.yaml"]
    for override in spec.overrides:
        parts += ["--set", override]
    return " ".join(shlex.quote(part) for part in (*parts, *extra))


def of_run(verb: str, run: str, *extra: str) -> str:
    """`aicrun VERB RUN …`."""
    return " ".join(shlex.quote(part) for part in ("aicrun", *verb.split(), run, *extra))
