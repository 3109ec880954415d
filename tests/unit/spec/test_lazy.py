"""What the spec room imports, and when: a start of the program must not pay for a file that is not read."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import REPOSITORY

PROGRAM = """
import sys
from aicrun.spec import load
{then}
print(sorted({{"yaml", "jsonschema", "difflib"}} & set(sys.modules)))
"""
VALID = "load.load_run_text(b'version: 1\\nname: abc\\ncommand: x\\n', 'run.yaml', '')"
INVALID = f"""
try:
    {VALID.replace("name: abc", "nam: abc")}
except Exception:
    pass
"""


@pytest.mark.parametrize(
    ("then", "loaded"),
    [("", "[]"), (VALID, "['yaml']"), (INVALID, "['difflib', 'jsonschema', 'yaml']")],
    ids=["import", "valid", "invalid"],
)
def test_heavy_modules_come_when_they_are_needed(then: str, loaded: str) -> None:
    program = PROGRAM.format(then=then)
    ran = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == loaded, ran.stderr
