"""Every rule finds the fault it is there for, and names file and line; and lets the right thing pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from house import arrows, rules
from house.rules import Fault
from house.sources import House, house_of

DOC = '"""What it is for."""\n'

# rule, the file's path, its text after the docstring, the words that the one fault must hold
PLANTED = (
    (arrows.floors, "aicrun/plan/place.py", "from aicrun.errors import Exit\n", "plan may not import aicrun.errors"),
    (arrows.floors, "aicrun/plan/place.py", "import aicrun.hosts.local\n", "plan may not import aicrun.hosts.local"),
    (arrows.floors, "aicrun/plan/place.py", "from aicrun.spec import load\n", "plan may not import aicrun.spec"),
    (arrows.floors, "aicrun/hosts/bundle.py", "from aicrun.agent import serve\n", "hosts may not import aicrun.agent"),
    (arrows.floors, "aicrun/lifecycle/apply.py", "from aicrun.hosts.local import x\n", "may not import aicrun.hosts"),
    (arrows.floors, "aicrun/cli/runs.py", "def f():\n    import aicrun.wire.jobs\n", "cli may not import aicrun.wire"),
    (arrows.floors, "aicrun/wire/jobs.py", "import aicrun.errors\n", "it may: nothing of ours"),
    (arrows.floors, "aicrun/__init__.py", "from aicrun.errors import Exit\n", "version may not import"),
    (arrows.floors, "aicrun/api.py", "import aicrun.cli.main\n", "api may not import aicrun.cli.main"),
    (arrows.floors, "aicrun/attic/box.py", "import aicrun.wire\n", "`attic` is no room"),
    (arrows.floors, "aicrun/plan/place.py", "from . import model\n", "imports are absolute"),
    (arrows.doors, "aicrun/spec/load.py", "import yaml\n", "yaml is imported by aicrun/spec/source.py only"),
    (
        arrows.doors,
        "aicrun/cli/main.py",
        "from rich.table import Table\n",
        "rich is imported by aicrun/cli/views/ only",
    ),
    (arrows.doors, "aicrun/api.py", "import requests\n", "requests has no door"),
    (arrows.doors, "aicrun/agent/cards.py", "import pynvml\n", "inside one function"),
    (arrows.standard_library, "aicrun/agent/jobs.py", "import yaml\n", "yaml is not there"),
    (arrows.standard_library, "aicrun/agent/jobs.py", "import pynvml\n", "pynvml is not there"),
    (arrows.standard_library, "aicrun/wire/codec.py", "import tomllib\n", "tomllib is not there"),
    (arrows.standard_library, "aicrun/hosts/uv.py", "import fabric\n", "fabric is not there"),
    (rules.names, "aicrun/plan/utils.py", "", "`utils` says nothing"),
    (rules.size, "aicrun/plan/fit.py", "x = 1\n" * 400, "401 lines"),
    (rules.size, "aicrun/plan/fit.py", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
    (rules.size, "aicrun/plan/fit.py", "def f(a, b, c, d, *, e, g, h):\n    pass\n", "f takes 7 parameters"),
    (rules.purity, "aicrun/plan/fit.py", "import os.path\n", "may not import os.path"),
    (rules.purity, "aicrun/plan/fit.py", "from datetime import datetime\n", "may not import datetime"),
    (rules.purity, "aicrun/plan/fit.py", "def _f():\n    return open('x')\n", "may not call open()"),
    (rules.docstrings, "aicrun/plan/fit.py", "def fit():\n    return 1\n", "fit is public"),
    (
        rules.docstrings,
        "aicrun/plan/fit.py",
        'class A:\n    """A."""\n    def b(self):\n        return 1\n',
        "b is public",
    ),
    (rules.verbs, "aicrun/plan/fit.py", "def get_card():\n    return 1\n", "`get_` says nothing"),
    (rules.old_syntax, "aicrun/agent/jobs.py", "match 1:\n    case 1:\n        pass\n", "parse on Python 3.8"),
    (rules.old_syntax, "aicrun/agent/boot.py", "if (x := 1):\n    pass\n", "parse on Python 3.6"),
    (rules.old_syntax, "aicrun/wire/jobs.py", "x: int | None = None\n", "write Optional or Union"),
    (rules.old_syntax, "aicrun/wire/jobs.py", "def _f(x: dict[str, int]):\n    return x\n", "dict[str, int] is not in"),
    (rules.old_syntax, "aicrun/agent/jobs.py", "x = 'ab'.removeprefix('a')\n", "removeprefix is not in Python 3.8"),
    (rules.old_syntax, "aicrun/agent/jobs.py", "x = zip('a', 'b', strict=True)\n", "zip(strict=…)"),
    (rules.old_syntax, "aicrun/wire/jobs.py", "from __future__ import annotations\n", "the codec reads types"),
    (rules.sleeps, "tests/unit/test_x.py", "import time\ntime.sleep(1)\n", "no bare sleep"),
    (rules.sleeps, "tests/unit/test_x.py", "from time import sleep\nsleep(1)\n", "no bare sleep"),
    (rules.comments, "aicrun/plan/fit.py", "x = 1  # TO" + "DO later\n", "a wish is an issue"),
)


@pytest.mark.parametrize(("rule", "path", "text", "words"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_found(rule: Callable[[House], Iterator[Fault]], path: str, text: str, words: str) -> None:
    others = {"aicrun/spec/__init__.py": DOC, "aicrun/hosts/local.py": DOC, "aicrun/agent/serve.py": DOC}
    faults = [str(fault) for fault in rule(house_of({**others, path: DOC + text}))]
    assert len(faults) == 1, faults
    assert faults[0].startswith(f"{path}:")
    assert words in faults[0]


def test_a_fault_names_its_line() -> None:
    house = house_of({"aicrun/plan/fit.py": DOC + "\n\nimport time\n"})
    assert [str(fault) for fault in rules.purity(house)] == [
        "aicrun/plan/fit.py:4: plan is pure: it may not import time"
    ]


def test_a_circle_through_three_rooms_is_told_once_with_its_way() -> None:
    house = house_of(
        {
            "aicrun/wire/a.py": DOC + "import aicrun.wire.b\n",
            "aicrun/wire/b.py": DOC + "def _f():\n    from aicrun.wire import c\n",
            "aicrun/wire/c.py": DOC + "from aicrun.wire.a import x\n",
            "aicrun/wire/d.py": DOC + "import aicrun.wire.a\n",
        }
    )
    told = [str(fault) for fault in arrows.circles(house)]
    circle = "aicrun.wire.a -> aicrun.wire.b -> aicrun.wire.c -> aicrun.wire.a"
    assert told == [f"aicrun/wire/a.py:2: a circle of imports: {circle}"]


def test_a_module_without_a_docstring_is_found() -> None:
    house = house_of({"aicrun/plan/fit.py": "x = 1\n"})
    assert {fault.line for fault in rules.docstrings(house)} == {1}


# Things that look like faults and are none.
RIGHT = (
    ("aicrun/plan/place.py", "from aicrun.spec.model import CardDemand\nfrom aicrun.wire.jobs import Source\n"),
    ("aicrun/lifecycle/apply.py", "from aicrun.hosts.backend import Backend\nfrom aicrun import __version__\n"),
    ("aicrun/agent/cards.py", "def _door():\n    import pynvml\n    return pynvml\n"),
    ("aicrun/cli/views/human.py", "from rich.text import Text\n"),
    ("aicrun/wire/jobs.py", "from typing import Optional\nx: Optional[int] = None\nflags = 1 | 2\n"),
    ("tests/support.py", "import time\ntime.sleep(0.02)\n"),
    ("tests/faults/programs/slow.py", "import time\ntime.sleep(60)\n"),
    ("aicrun/plan/fit.py", 'open_cards = "open the door"\n'),
    (
        "aicrun/cli/main.py",
        'import click\nclass A(click.Group):\n    """A."""\n    def get_x(self):\n        """X."""\n',
    ),
)


@pytest.mark.parametrize(("path", "text"), RIGHT)
def test_what_is_right_passes_every_rule(path: str, text: str) -> None:
    house = house_of({path: DOC + text, "aicrun/spec/model.py": DOC, "aicrun/hosts/backend.py": DOC})
    assert [str(fault) for rule in (*arrows.RULES, *rules.RULES) for fault in rule(house)] == []
