"""The register of every stable code, with what it means and an example: `aicrun explain CODE` reads it.

A number is never used for something else, also not after its error is gone. Blocks: E0 the command line, E1 files and
fields (texts in `codes_of_files.py`), E5 machines, E6 plan and host refusals, W2 lints. It must not import a room.

To add one, append an entry: a line with number and title, sentences indented by two, the example's lines behind `|`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aicrun.codes_of_files import FILES_AND_FIELDS, LINTS


@dataclass(frozen=True)
class Code:
    """One registered code; `severity` is `error` or `warning`, `explanation` a few sentences, `example` some lines."""

    number: str
    title: str
    severity: str
    explanation: str
    example: str


COMMAND_LINE = """
AIC-E001 a fault of aicrun itself
  Something happened that aicrun's own rules exclude. The run on the machine is not touched by it: look with
  `aicrun list`, and report what --debug prints.
  | aicrun --debug apply run.yaml
"""

MACHINES = """
AIC-E501 the host key is not known
  The machine showed a key that no known_hosts file has, so nothing was sent to it. Compare the key with the one
  shown on the machine itself, then accept it once with ssh.
  | ssh lab exit
AIC-E502 the host key changed
  The machine shows another key than the one accepted before: it was installed anew, or somebody stands in between.
  Nothing was sent. Ask whoever runs it before the old key is removed.
  | ssh-keygen -R lab
"""

REFUSALS = """
AIC-E601 gpu_busy: the card is held
  The card was free when the plan was made and is held now, and the spec does not allow to wait in line.
  | aicrun apply run.yaml --set queue.wait=24h
AIC-E602 the saved plan is stale
  A fact that the saved plan depends on has moved since: a driver, a card's holder, the source tree, the inventory.
  The fact is named with both values. Make a new plan and review it.
  | aicrun plan run.yaml -o plan.json
"""


def _entries(text: str) -> list[Code]:
    found: list[Code] = []
    for block in text.strip().split("\nAIC-"):
        head, *rest = block.removeprefix("AIC-").splitlines()
        number, _, title = head.partition(" ")
        words = " ".join(line.strip() for line in rest if not line.startswith("  |"))
        example = "\n".join(line[4:] for line in rest if line.startswith("  |"))
        severity = "warning" if number.startswith("W") else "error"
        found.append(Code(f"AIC-{number}", title, severity, words, example))
    return found


def _registered(*blocks: str) -> Mapping[str, Code]:
    table: dict[str, Code] = {}
    for code in (code for block in blocks for code in _entries(block)):
        if code.number in table:
            raise ValueError(f"{code.number} is registered twice")
        table[code.number] = code
    return MappingProxyType(table)


CODES: Mapping[str, Code] = _registered(COMMAND_LINE, FILES_AND_FIELDS, MACHINES, REFUSALS, LINTS)
