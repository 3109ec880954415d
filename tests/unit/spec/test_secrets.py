"""A secret in a file is never shown again: not in any excerpt, message, summary or data form, wherever it stands."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.spec.documents import FULL

from aicrun.spec import render
from aicrun.spec.diagnostics import DocumentInvalid
from aicrun.spec.load import load_run_text
from aicrun.spec.secrets import Mask, is_random, is_secret_by_name, shapes_in

BEFORE = st.sampled_from(["", " ", "\n", ": ", "\n  ", '"', "'", " # "])
BEHIND = st.sampled_from(["", "\n", '"', ": x"])
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVbNm123456"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(FULL)), BEFORE, BEHIND)
def test_a_token_put_anywhere_is_never_shown(at: int, before: str, behind: str) -> None:
    # A letter before it would make another word of it, which no reader would take for a token.
    text = FULL[:at] + " " + before + TOKEN + " " + behind + FULL[at:]
    try:
        loaded = load_run_text(text.encode(), "run.yaml", "")
    except DocumentInvalid as invalid:
        rows = invalid.diagnostics
    else:
        rows = loaded.warnings
    shown = render.text(rows, verbose=True) + json.dumps(render.document(rows))
    assert TOKEN not in shown
    assert TOKEN[3:20] not in shown


@pytest.mark.parametrize(
    "token",
    [
        TOKEN,
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 12,
        "glpat-" + "a1B2" * 5,
        "sk-ant-api03-" + "a1B2" * 10,
        "sk-" + "a1B2" * 12,
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "a1B2c" * 7,
        "xoxb-1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9abc.eyJzdWIiOiIxMjM0NSJ9.dBjftJeZ4CVPmB92K27u",
        "https://me:hunter2@x.org/",
        "-----BEGIN RSA PRIVATE KEY-----",
    ],
)
def test_known_shapes(token: str) -> None:
    assert shapes_in(f"a {token} b")
    value = shapes_in(token)[0][0]
    assert value not in Mask().words(f"see {token} here")


@pytest.mark.parametrize(
    "harmless",
    [
        "meta-llama/Llama-3.1-8B-Instruct",
        "/data/sk-experiments-of-last-year/out",
        "hf_transfer",
        "https://x.org:8080/a@b",
        "git@github.com:a/b.git",
        "http://$USER:$PASS@proxy",
        "AKIA",
    ],
)
def test_no_shapes(harmless: str) -> None:
    assert shapes_in(harmless) == []


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("WANDB_API_KEY", "abcdef123456", True),
        ("DB_PASSWORD", "correct-horse7", True),
        ("api_key", "1234567890", True),
        ("HF_TOKEN_PATH", "/home/u/.token1", False),
        ("TOKEN", "/run/secrets/t", False),
        ("PAD_TOKEN", "<pad>", False),
        ("MAX_TOKENS", "1234567890", False),
        ("TOKENIZERS_PARALLELISM", "false1234", False),
        ("SECRET", "disabled", False),
        ("HF_TOKEN", "${HF_TOKEN}", False),
    ],
)
def test_names_that_sound_secret(name: str, value: str, secret: bool) -> None:
    assert is_secret_by_name(name, value) == secret


@pytest.mark.parametrize(
    ("value", "random"),
    [
        ("0123456789abcdef0123456789abcdef01234567", True),
        ("q7Zt9KpLw2Xv8RbN4mYc6Hd1Js3Gf5Ta", True),
        ("0" * 40, False),
        ("Qwen2-VL-7B-Instruct-AWQ-lora-r16-a32-run7", False),
        ("/data/q7Zt9KpLw2Xv8RbN4mYc6Hd1Js3Gf5Ta", False),
        ("the quick brown fox jumps over it all", False),
        ("short1A", False),
    ],
)
def test_random_values(value: str, random: bool) -> None:
    assert is_random(value) == random


HOSTILE = [
    "a",
    "eyJ-",
    "-xoxb-",
    "sk-ant-",
    "://a:",
    "--token ",
    "token=",
    "wandb login ",
    "${a.",
    "cuda:1 ",
    ". activate ",
]
HOSTILE += [
    "nohup ",
    "${run.nane} ",
    "a_",
    "-----BEGIN ",
    "& ",
    "0",
    "hf_" + "a1" * 20 + " ",
    "read -p ",
    "--gpus 9 ",
    "$ ",
]
HOSTILE += ["cuda:" + "9" * 60000, "--gpus " + "9" * 60000, " " * 500 + "x", "[" * 900, "apt install ", ". activate "]
HOSTILE += ["".join(f"hf_{number:030} " for number in range(1900))]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_no_text_makes_a_search_slow(text: str) -> None:
    text *= 65000 // len(text) or 1
    # Processor time, generous against the quarter of a second of the slowest; what was quadratic took minutes.
    began = time.process_time()
    document = f'version: 1\nname: sft-run\nmachine: {{gpu: 20GiB}}\ncommand: "{text[:65000]}"\nzzz: "{text}"\n'
    with pytest.raises(DocumentInvalid) as caught:
        load_run_text(document.encode(), "run.yaml", "")
    render.text(caught.value.diagnostics, verbose=True)
    assert time.process_time() - began < 10


HEAD = "version: 1\nname: sft-run\ncommand: x\n"
MANY = {
    "tokens": HEAD + "env:\n" + "".join(f"  A{number}: hf_{number:030}\n" for number in range(4000)),
    "passwords": HEAD + "env:\n" + "".join(f"  A{number}_TOKEN: se{number:010}x\n" for number in range(4500)),
    "unknown keys": "".join(f"key{number}: 1\n" for number in range(4900)),
    "wrong items": HEAD + "secrets: [" + "[]," * 4000 + "]\n",
    "twice": "a: 1\n" * 4900,
}


@pytest.mark.parametrize("text", MANY.values(), ids=MANY.keys())
def test_thousands_of_faults_are_all_told_and_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(DocumentInvalid) as caught:
        load_run_text(text.encode(), "run.yaml", "")
    shown = render.text(caught.value.diagnostics, verbose=True)
    assert time.process_time() - began < 10
    assert len(caught.value.diagnostics) >= 4000
    assert "se0000000042x" not in shown
    assert f"{42:030}" not in shown
