"""1,000 run.yaml documents parsed and validated, beside PyYAML's SafeLoader with a jsonschema validator built once.

Both sides do the same documents alternately in one process; the medians are compared. Ours does more: it keeps places
and source text, applies rules and lints, and builds the RunSpec. The aim is a ratio of 3 or more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jsonschema
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aicrun.spec.check import schema_text
from aicrun.spec.load import load_run_text

ROUNDS = 7
DOCUMENT = """\
# run {number}
version: 1
name: train-{number}
description: fine tune run number {number}
labels: {{team: nlp, stage: "{number}"}}
machine:
  labels: {{site: home}}
  gpu:
    vram: 24GiB
    headroom: 1GiB
    model: [RTX 3090, RTX 4090]
  cpus: 8
  memory: 32GiB
  disk: {{path: "${{machine.data}}", free: 100GiB}}
setup:
  python: ">=3.10"
  packages: [torch, peft]
  timeout: 30m
env:
  WANDB_MODE: offline
  HF_HOME: "${{machine.data}}/hf"
  SEED: "{number}"
  LR: 3e-4
command: |
  python train.py --lr 3e-4 \\
    --seed {number} --epochs 3 \\
    --out "$AICRUN_CHECKPOINT_DIR"
limits:
  max_duration: 12h
  grace: 2m
queue: {{wait: 24h}}
checkpoints:
  upload:
    to: s3://bucket/train-{number}/
    with: aws
progress:
  loss: {{pattern: 'loss=([0-9.]+)', goal: min}}
notes: |
  Needs the driver from March.
"""


def documents(count: int = 1000) -> list[bytes]:
    """`count` different valid documents of about 800 bytes."""
    return [DOCUMENT.format(number=number).encode() for number in range(count)]


def seconds(work: Callable[[bytes], object], batch: Sequence[bytes]) -> float:
    """Wall time of `work` on every document of `batch`."""
    began = time.perf_counter()
    for document in batch:
        work(document)
    return time.perf_counter() - began


def ratio(batch: Sequence[bytes]) -> tuple[float, float, float]:
    """(theirs in ms a document, ours, theirs over ours): medians of alternating rounds."""
    validator = jsonschema.Draft202012Validator(json.loads(schema_text("run")))

    def theirs(raw: bytes) -> None:
        fault = next(validator.iter_errors(yaml.load(raw, Loader=yaml.SafeLoader)), None)
        assert fault is None, fault

    def ours(raw: bytes) -> None:
        load_run_text(raw, "run.yaml", "")

    theirs(batch[0])
    ours(batch[0])
    # Theirs is several times slower, so a part of the batch is enough for it.
    part = batch[: max(1, len(batch) // 5)]
    rounds = [(seconds(theirs, part) / len(part), seconds(ours, batch) / len(batch)) for _ in range(ROUNDS)]
    them, us = (statistics.median(side) * 1000 for side in zip(*rounds, strict=True))
    return them, us, them / us


def main() -> int:
    """Prints the ratio; 1 when it is below `--least`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", type=float, default=0.0, help="fail below this ratio")
    least = parser.parse_args().least
    batch = documents()
    them, us, times = ratio(batch)
    print(f"1,000 documents, {len(batch[0]):,} bytes each, libyaml: {'yes' if yaml.__with_libyaml__ else 'no'}")
    print(f"SafeLoader + jsonschema   {them:6.3f} ms a document")
    print(f"aicrun.spec               {us:6.3f} ms a document, with places, rules, lints and the RunSpec")
    print(f"ratio                     {times:6.2f}")
    return 1 if times < least else 0


if __name__ == "__main__":
    sys.exit(main())
