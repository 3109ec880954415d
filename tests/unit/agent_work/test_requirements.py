"""Lines that name the client's disk are refused by line; everything an index can serve passes."""

from __future__ import annotations

import pytest

from aicrun.agent.requirements import refused, refused_lines


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch>=2.1,<3",
        'numpy==1.26; python_version < "3.12"',
        "transformers[torch]",
        "--index-url https://mirror/simple",
        "--extra-index-url=https://x/simple",
        "-f https://download/wheels.html",
        "--find-links /data/wheels",
        "flash-attn @ https://host/flash_attn-2.0-cp311-cp311-linux_x86_64.whl",
        "peft @ git+https://github.com/huggingface/peft@v0.9",
        "https://host/x-1.0-py3-none-any.whl",
        "zope.interface",
        "--no-binary :all:",
    ],
)
def test_what_an_index_can_serve_passes(line: str) -> None:
    assert refused(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable=./lib",
        "-e git+https://host/x",
        "-r base.txt",
        "-c constraints.txt",
        ".",
        "./lib",
        "../lib[extra]",
        "/home/ana/lib",
        "~/lib",
        "file:///home/ana/lib",
        "lib @ file:///home/ana/lib",
        "lib @ ../lib",
        "wheels/x-1.0-py3-none-any.whl",
        "x-1.0.tar.gz",
        "--find-links wheels",
        "libs/mine",
    ],
)
def test_what_names_the_clients_disk_is_refused(line: str) -> None:
    assert refused(line)


def test_lines_are_counted_from_one_and_comments_are_none() -> None:
    text = "# -e .\n\ntorch  # -e .\n-e .  # ours\nnumpy \\\n  >=1\n./x\n"
    assert [(number, line) for number, line, _ in refused_lines(text)] == [(4, "-e ."), (7, "./x")]
