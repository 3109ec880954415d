"""Which of a machine's notes a plan shows: what people wrote first, and what this run itself left last."""

from __future__ import annotations

from unit.plan.worlds import answered, fleet, spec, wish

from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.decide import plan
from aicrun.plan.model import Options
from aicrun.wire.facts import Notes

OWN = "aicrun: run digits, job 00000000000000aa, 2026-11-14\n  succeeded in 41s\n  torch 2.8.0\n"
OTHER = "aicrun: run digits-2, job 00000000000000bb, 2026-11-14\n  failed (exit_code)\n"
PEOPLE = "one\ntwo\nthree\n"


def _shown(text: str, total: int = 60) -> list[str]:
    view = answered("lab", notes=Notes(text, 3, 9, total))
    made = plan((wish(spec("digits")),), fleet(view), Options())
    lines = plan_screen(made, width=80, verbose=False, ascii=False).plain.splitlines()
    at = lines.index("  notes of lab, text from the host, not checked:")
    return [line.strip(" │") for line in lines[at + 1 : lines.index("", at)]]


def test_people_first_and_then_what_the_run_itself_left() -> None:
    own = ["aicrun: run digits, job 00000000000000aa, 2026-11-14", "succeeded in 41s"]
    more = "(56 lines more: aicrun notes lab)"
    assert _shown(PEOPLE + OTHER + OWN) == ["one", "two", *own, more]
    assert _shown(PEOPLE + OWN + OTHER) == ["one", "two", *own, more]
    assert _shown(OTHER + OWN, 5) == [*own, "(3 lines more: aicrun notes lab)"]


def test_without_either_it_is_what_any_run_left_last() -> None:
    other = ["aicrun: run digits-2, job 00000000000000bb, 2026-11-14", "failed (exit_code)"]
    assert _shown(OTHER, 2) == other
    assert _shown(PEOPLE + OTHER) == ["one", "two", "(58 lines more: aicrun notes lab)"]
