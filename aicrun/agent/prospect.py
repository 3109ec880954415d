"""How a keeper would be kept alive here, as a survey tells it. It must not change anything, nor start a keeper."""

from typing import Mapping

from aicrun.agent import survival, units
from aicrun.wire.facts import Survival


def outlook(login: Mapping[str, str]) -> Survival:
    """What a start would come to by what can be known without changing anything."""
    tools = units.Tools(login, tool_s=1.0)
    facts = units.probe(tools)
    chosen = survival.choose(facts)
    return survival.choose(units.with_rules(tools, facts)) if chosen.mode == "C" else chosen
