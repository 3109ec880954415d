"""An `nvidia-smi` for tests, where no driver is: one card, its processes from a file, ways to fail from others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aicrun.agent.smi import FIELDS

ROW = (
    "0, GPU-aaaa, 00000000:41:00.0, 49140, 48539, 2, 599, 7, 33, 22.10, 8.6, Default, "
    "Disabled, Disabled, 550.54.14, NVIDIA RTX A6000"
)
# Answers as the real tool does: one card's row cut to the fields asked for, its processes, or its long form.
TOOL = """#!/bin/sh
dir=$(dirname "$0")
case "$1" in
  --query-gpu=*)
    [ -e "$dir/hang" ] && exec sleep 60
    [ -e "$dir/broken" ] && { cat "$dir/broken"; exit 9; }
    for field in $(cat "$dir/lacking" 2>/dev/null); do
      case ",${1#*=}," in *",$field,"*) echo "Field \\"$field\\" is not a valid field to query."; exit 2 ;; esac
    done
    exec "$dir/python" "$dir/cut" "${1#*=}" "$dir/row" ;;
  --query-compute-apps=*) [ -e "$dir/apps" ] && cat "$dir/apps"; exit 0 ;;
  -q) printf 'Driver Version      : 550.54.14\\nCUDA Version        : 12.4\\n' ;;
  *) exit 2 ;;
esac
"""
CUT = """import sys
fields, values = open(sys.argv[2]).read().splitlines()
row = dict(zip(fields.split(","), values.split(", ")))
print(", ".join(row[field] for field in sys.argv[1].split(",")))
"""


class Tool:
    """A folder with an `nvidia-smi`, in front of PATH."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "nvidia-smi").write_text(TOOL)
        (folder / "nvidia-smi").chmod(0o755)
        (folder / "python").symlink_to(sys.executable)
        (folder / "cut").write_text(CUT)
        (folder / "row").write_text(",".join(FIELDS) + "\n" + ROW + "\n")
        self.folder = folder
        self.env = {"PATH": f"{folder}:{os.environ['PATH']}"}
