"""What a plan says of the files that a run sends, and of those that it cannot send."""

from __future__ import annotations

from unit.plan.worlds import answered, fleet, spec, wish

from aicrun.cli.views.plan_human import plan_screen
from aicrun.plan.decide import plan
from aicrun.plan.model import Options, Plan, Wanted
from aicrun.plan.source_words import LARGE_TREE_FILES, source_warnings
from aicrun.spec.model import SourceSpec
from aicrun.wire.jobs import Source

MIB = 1 << 20


def tree(size: int = 10, files: int = 3, **more: object) -> Wanted:
    source = Source("aa" * 32, files, size)
    return wish(spec(source=SourceSpec("/home/ana/project")), source=source, **more)


def planned(one: Wanted) -> Plan:
    return plan((one,), fleet(answered("lab", ())), Options())


def test_a_tree_that_is_large_is_told_with_its_largest_files() -> None:
    largest = (("a.bin", 300 * MIB), ("b\x1b.bin", 90 * MIB))
    told = source_warnings(tree(600 * MIB, largest=largest))
    assert told == (
        "the source holds a.bin, 300.0 MiB: source.exclude leaves it out",
        (
            "the source is 3 files, 600.0 MiB; its largest: a.bin 300.0 MiB, b.bin 90.0 MiB: data belongs into inputs, "
            "and source.exclude leaves out what is no code"
        ),
    )
    assert source_warnings(tree(499 * MIB)) == ()
    assert len(source_warnings(tree(1, LARGE_TREE_FILES))) == 1


def test_what_git_has_elsewhere_is_told_before_the_run_misses_it() -> None:
    pointers = ("a.bin", "b.bin", "c.bin", "d.bin")
    made = planned(tree(pointers=pointers, submodules=("dep/lib",))).runs[0]
    assert made.warnings == (
        (
            "4 files are pointers of git-lfs without contents (a.bin, b.bin, c.bin, …) and would be sent as such: "
            "git lfs pull brings them"
        ),
        "the submodule dep/lib is not checked out here and cannot be sent: git submodule update --init dep/lib",
    )
    assert source_warnings(tree(pointers=("a.bin",)))[0].startswith("1 file is a pointer of git-lfs")


def test_the_largest_files_of_any_source_stand_in_the_long_plan() -> None:
    made = planned(tree(largest=(("a.py", 2048), ("b.py", 1024))))
    long, short = (plan_screen(made, width=80, verbose=verbose, ascii=False).plain for verbose in (True, False))
    assert "largest   a.py 2 KiB, b.py 1 KiB" in long
    assert "largest" not in short
