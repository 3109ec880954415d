"""Every counterexample of the start protocol has its test, by number, which runs with its guard and without it."""

from __future__ import annotations

import re
from pathlib import Path

# The rows of the protocol's table, which has no 14: what the rule does, without the guard, that lets two start or none.
EXCLUDED = {
    1: "the lower one goes on beside a higher one that it sees",
    2: "a silent machine is skipped at the look",
    3: "a confirm after the expiry revives the record",
    4: "what was withdrawn is deleted",
    5: "the look is sent together with the reserve",
    6: "the own earlier record is ignored",
    7: "ended jobs do not count",
    8: "both wait for each other",
    9: "whoever sees another one gives way",
    10: "both withdraw the other",
    11: "the lower one has died and is waited for",
    12: "a new lower rank on each attempt",
    16: "one machine decides, and lists differ",
    17: "the new one is confirmed before the old one ended",
    18: "a moved one is confirmed before it left its line",
    19: "who tries again is placed behind first attempts",
    20: "the higher one withdraws at sight and spends its attempts",
}
NOT_EXCLUDED = {13: "lists overlap, a target outside", 15: "lists share no machine"}


def test_each_row_of_the_table_has_its_test_with_and_without_its_guard() -> None:
    guarded: set[int] = set()
    told: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for mark, numbers in re.findall(r"(@guarded\n)?(?:@.*\n)*def test_((?:\d\d_)+)", path.read_text()):
            (guarded if mark else told).update(int(number) for number in numbers.split("_") if number)
    assert guarded == set(EXCLUDED)
    assert told == set(NOT_EXCLUDED)
