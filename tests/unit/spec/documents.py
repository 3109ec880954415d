"""Documents for the property tests: a full valid one, and ways to spoil it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FULL = """\
version: 1
name: sft-run
description: SFT of the 8B model
labels: {team: nlp, year: 2024}
machine:
  name: [gpu-box, lab]
  labels: {site: home}
  gpu:
    vram: 20GiB
    headroom: 1GiB
    count: 2
    model: [RTX 3090, RTX 4090]
    total_vram: 24GB..48GB
    max_utilization: 10%
    foreign: reject
    compute_capability: 8.0..
    driver: "550.."
    same_model: true
  cpus: 8
  memory: 32GiB
  disk: {path: "${machine.data}", free: 100GiB}
workspace: ~/aic-jobs/sft-run
cwd: train
source: {path: ., include: [train.py], exclude: [docs/]}
setup:
  python: ">=3.10"
  requirements: requirements.txt
  packages: [torch, peft]
  torch_backend: auto
  run: [make data]
  timeout: 30m
  preflight: none
env: {HF_HOME: "${machine.data}/hf", LR: 1e-4, ON: true, N: 7}
shell: bash
command: python sft.py --out "$AICRUN_CHECKPOINT_DIR" --name ${run.name}
limits: {max_duration: 12h, grace: 2m, stall: 30m}
queue: {wait: 24h, priority: 1}
checkpoints:
  path: out
  upload: {to: "s3://bucket/sft-run/", with: aws, endpoint: "https://minio.lan", profile: lab, required: true}
progress: {step: {pattern: 'step (\\d+)/(\\d+)'}, loss: {pattern: 'loss=([0-9.]+)', goal: min}}
notes: |
  Needs the driver from March.
"""
MACHINES = """\
version: 1
machines:
  - {name: gpu-box, ssh: gpu-box, labels: {site: home}, data: /data, keep_free: [0], env: {A: 1}, path: [/opt/bin]}
  - {name: here, local: true, max_jobs: 4, down: false, sleeps: true, shared_memory: true}
  - {name: cluster, slurm: {ssh: login, partition: gpu}}
"""

WORDS = st.sampled_from(
    [
        "version",
        "name",
        "machine",
        "gpu",
        "vram",
        "20GiB",
        "2",
        "0",
        "-1",
        "1.5",
        "true",
        "false",
        "null",
        "12h",
        "x",
        "x-a",
        "env",
        "labels",
        "uuid",
        "path",
        "to",
        "s3://b/x/",
        "[]",
        "{}",
        "nodes",
        "secrets",
        "params",
        "product",
        "../x",
        "~/x",
        "/x",
        "${run.name}",
        "${run.nane}",
        "$${a.b}",
        "1e-4",
        "2e1",
        "012",
        "source",
        "git",
        "upload",
    ]
)
NUMBERS = st.one_of(st.integers(-3, 200), st.floats(allow_nan=False, allow_infinity=False))
SCALARS: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.text(max_size=8))
KEYS = st.one_of(WORDS, st.text(max_size=5))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def spoiled(draw: st.DrawFn, document: Any) -> Any:
    """The plain `document` with up to three of its parts removed, replaced or added to."""
    import copy  # only this function needs it

    whole = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        at: Any = whole
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(at[key], (dict, list)) and at[key] and draw(st.booleans()):
                at = at[key]
                continue
            action = draw(st.sampled_from(["replace", "remove", "add"]))
            if action == "replace":
                at[key] = draw(VALUES)
            elif action == "remove":
                del at[key]
            elif isinstance(at, dict):
                at[draw(WORDS)] = draw(VALUES)
            else:
                at.append(draw(VALUES))
            break
    return whole
