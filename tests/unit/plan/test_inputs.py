"""Inputs that are brought, from the text of a spec to the request: names, keys, what is asked of a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.plan.worlds import answered, fleet, machine

from aicrun.plan.decide import plan
from aicrun.plan.draft import digest_of
from aicrun.plan.inputs import brought_to_ask, fetchers_to_ask, fetches, name_there
from aicrun.plan.model import Options, RunPlan, Sign, Wanted
from aicrun.spec.load import load_run_text
from aicrun.spec.model import InputFrom, RunSpec
from aicrun.wire.facts import InputReady, Program
from aicrun.wire.jobs import Source

HOUR = 3600.0


def loaded(inputs: str, more: str = "") -> RunSpec:
    text = f"version: 1\nname: digits\ncommand: python x.py\ninputs: {inputs}\n{more}"
    return load_run_text(text.encode(), "run.yaml", "/home/me/p").specs[0]


def planned(one: Wanted, **reading: Any) -> RunPlan:
    return plan((one,), fleet(answered("lab", **reading)), Options()).runs[0]


def key(inputs: str, spec_env: str = "", **own: Any) -> str:
    """The key of the only input on a machine that is described by `own`."""
    spec = loaded(inputs, f"env: {spec_env}\n" if spec_env else "")
    return brought_to_ask((Wanted(spec),), machine("lab", **own))[0]


ALL = """{
  a: {from: s3://bkt/x/},
  b: {from: s3://bkt/y, with: rclone, endpoint: "http://e", profile: lab, timeout: 2h},
  c: {from: "hf:me/model", revision: v2},
  d: {from: "rclone:nas:x"},
  e: {from: "${run.name}.bin"},
  f: {path: /x},
}"""


def test_a_spec_says_where_an_input_comes_from_and_how() -> None:
    text = f"version: 1\nname: digits\ncommand: x\ninputs: {ALL}\n"
    spec = load_run_text(text.encode(), "run.yaml", "").specs[0]
    assert dict(spec.inputs) == {"f": "/x"}
    assert dict(spec.brought) == {
        "a": InputFrom("s3://bkt/x/", "s3", "aws"),
        "b": InputFrom("s3://bkt/y", "s3", "rclone", "http://e", "lab", timeout_s=7200),
        "c": InputFrom("hf:me/model", "hf", "hf", revision="v2"),
        "d": InputFrom("rclone:nas:x", "rclone", "rclone"),
        "e": InputFrom("digits.bin", "local", path="digits.bin"),
    }


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("s3://bucket/a/corpus/", "corpus"),
        ("s3://bucket/a/one.txt", "one.txt"),
        ("s3://bucket", "bucket"),
        ("rclone:nas:corpus", "corpus"),
        ("rclone:nas:", "in"),
        ("hf:datasets/me/set", "set"),
        ("s3://bucket/.hidden", "in"),
        ("s3://bucket/..", "in"),
        ("s3://bucket/" + "x" * 300, "in"),
    ],
)
def test_what_is_brought_keeps_its_name_wherever_that_can_be(address: str, name: str) -> None:
    assert name_there("in", InputFrom(address, address.partition(":")[0])) == name


def test_a_key_is_over_what_is_fetched_and_not_over_the_way() -> None:
    plain = key("{a: {from: s3://bkt/x/}}")
    assert plain == key("{a: {from: s3://bkt/x/, with: rclone, timeout: 1h}}") == key("{other: {from: s3://bkt/x/}}")
    others = ["s3://bkt/x", "s3://bkt/x/, endpoint: 'http://e'", "s3://bkt/x/, profile: lab"]
    assert len({plain, *(key(f"{{a: {{from: {one}}}}}") for one in others)}) == 4
    assert key("{a: {from: 'hf:m/x'}}") != key("{a: {from: 'hf:m/x', revision: v2}}")


S3, HUB, NAS = "{a: {from: s3://bkt/x/}}", "{a: {from: 'hf:m/x'}}", "{a: {from: 'rclone:nas:x'}}"
BY_RCLONE = "{a: {from: s3://bkt/x/, with: rclone}}"


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        *((S3, name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_REGION")),
        *((inputs, "AWS_DEFAULT_REGION") for inputs in (S3, BY_RCLONE, NAS)),
        (HUB, "HF_ENDPOINT"),
        *((inputs, name) for inputs in (BY_RCLONE, NAS) for name in ("RCLONE_CONFIG", "RCLONE_CONFIG_NAS_REMOTE")),
        (BY_RCLONE, "RCLONE_S3_ENDPOINT"),
        (NAS, "RCLONE_EXCLUDE"),
    ],
)
def test_a_variable_that_decides_what_is_fetched_tells_the_key(inputs: str, name: str) -> None:
    plain, spec, other = key(inputs), key(inputs, f"{{{name}: one}}"), key(inputs, f"{{{name}: two}}")
    assert len({plain, spec, other}) == 3
    # The machine's own counts as much, and less than that of the spec.
    assert key(inputs, env={name: "one"}) == spec == key(inputs, f"{{{name}: one}}", env={name: "two"})
    assert key(inputs, f"{{{name}: '${{machine.name}}'}}") == key(inputs, f"{{{name}: lab}}")


@pytest.mark.parametrize(
    ("inputs", "env"),
    [
        (S3, "{HF_ENDPOINT: x, RCLONE_CONFIG: x, PATH: /opt, LANG: C}"),
        (HUB, "{AWS_PROFILE: x, RCLONE_CONFIG: x, HF_HOME: /hf}"),
        (NAS, "{RCLONE_BWLIMIT: 64k, RCLONE_TRANSFERS: '2', RCLONE_LOG_LEVEL: INFO, RCLONE_RETRIES: '1'}"),
        ("{a: {from: s3://bkt/x/, endpoint: 'http://e', profile: lab}}", "{AWS_ENDPOINT_URL: x, AWS_PROFILE: x}"),
    ],
)
def test_what_does_not_decide_what_is_fetched_is_in_no_key(inputs: str, env: str) -> None:
    assert key(inputs, env) == key(inputs)


def test_nothing_secret_tells_a_key() -> None:
    for name in ("RCLONE_CONFIG_NAS_PASS", "RCLONE_S3_SECRET_ACCESS_KEY", "RCLONE_S3_ACCESS_KEY_ID", "RCLONE_X_TOKEN"):
        assert key(NAS, env={name: "x"}) == key(NAS)
    assert key(S3, env={"AWS_ENDPOINT_URL": "http://me:pw@e"}) == key(S3, env={"AWS_ENDPOINT_URL": "http://e"})


def test_keys_of_inputs_without_such_variables_stay_as_they_are() -> None:
    # Written down: data that was fetched before is found again by them.
    assert (key(S3), key(HUB), key(NAS)) == ("b3377ef156e319a5", "800658d1adb79ea0", "d15a8426ebba6816")


def test_runs_whose_variables_differ_are_judged_apart() -> None:
    there = InputReady(key(S3, "{AWS_PROFILE: one}"), 3, 1 << 20, 2 * HOUR)
    envs = {name: f"env: {{AWS_PROFILE: {name}}}\n" for name in ("one", "two")}
    runs = tuple(Wanted(replace(loaded(S3, env), name=name)) for name, env in envs.items())
    made = plan(runs, fleet(answered("lab", programs=(Program("aws"),), inputs_ready=(there,))), Options())
    assert [one.sign for one in made.runs] == [Sign.START, Sign.REFUSE]


def test_machines_are_judged_apart_where_their_name_decides_what_is_fetched() -> None:
    spec = loaded(S3, "env: {AWS_PROFILE: '${machine.name}'}\n")
    entries = [machine(name) for name in ("one", "two")]
    there = InputReady(brought_to_ask((Wanted(spec),), entries[0])[0], 3, 1 << 20, 2 * HOUR)
    known: dict[str, Any] = {"programs": (Program("aws"),), "inputs_ready": (there,)}
    made = plan((Wanted(spec),), fleet(*(answered(one.name, **known) for one in entries)), Options()).runs[0]
    assert [bool(one.rejections) for one in made.verdicts] == [False, True]


def test_files_that_are_sent_make_the_run_and_its_key() -> None:
    spec = loaded("{start: {from: /dev/null}}")
    one, two = (Wanted(spec, sent={"start": Source(tree * 64, 1, 5)}) for tree in "ab")
    assert digest_of(one) != digest_of(two)
    lab = machine("lab", data="/data")
    assert brought_to_ask((one, two, one), lab) == (*brought_to_ask((one,), lab), *brought_to_ask((two,), lab))
    fetch = fetches(one, lab, "/home/me")[0]
    assert (fetch.folder, fetch.tree, fetch.bytes) == (f"/data/aicrun/inputs/{fetch.key}", "a" * 64, 5)


def test_a_machine_without_the_tool_is_rejected_unless_the_input_is_there_already() -> None:
    spec = loaded("{a: {from: s3://bkt/x/}}")
    assert fetchers_to_ask((spec, spec), machine("lab")) == (("aws", ""),)
    assert fetchers_to_ask((loaded("{a: {from: s3://bkt/x/}}", "env: {PATH: /opt}\n"),), machine("lab")) == (
        ("aws", "/opt"),
    )
    none = (Program("aws"),)
    lacks = planned(Wanted(spec), programs=none)
    assert lacks.sign is Sign.REFUSE
    reason = lacks.verdicts[0].rejections[0]
    assert (reason.token, reason.lasting) == ("no_fetcher", True)
    assert reason.words == "input a is fetched with aws, which is no program there: uv tool install awscli"
    assert planned(Wanted(spec), programs=(Program("aws", place="/usr/bin/aws"),)).sign is Sign.START
    there = InputReady(key("{a: {from: s3://bkt/x/}}"), 3, 1 << 20, 2 * HOUR)
    made = planned(Wanted(spec), programs=none, inputs_ready=(there,))
    assert made.sign is Sign.START
    assert dict(made.in_order)["fetch"] == "input a: 3 files, 1.0 MiB, there already, fetched 2h ago"


def test_a_machine_without_the_tool_that_uploads_is_rejected_for_good() -> None:
    spec = loaded("{a: {path: /data}}", "checkpoints: {upload: {to: 's3://bkt/x/', with: rclone}}\n")
    assert fetchers_to_ask((spec,), machine("lab")) == (("rclone", ""),)
    reason = planned(Wanted(spec), programs=(Program("rclone"),)).verdicts[0].rejections[0]
    assert (reason.token, reason.lasting) == ("no_carrier", True)
    assert reason.words.startswith("checkpoints are uploaded with rclone, which is no program there: apt install")
    assert planned(Wanted(spec), programs=(Program("rclone", place="/usr/bin/rclone"),)).sign is Sign.START
    assert (
        fetchers_to_ask((loaded("{a: {path: /data}}", "checkpoints: {upload: {to: 'file:~/x'}}\n"),), machine("lab"))
        == ()
    )


def test_the_job_finds_what_is_brought_by_the_names_of_inputs() -> None:
    made = planned(Wanted(loaded("{checkpoint: {from: s3://bkt/x/}}")), programs=(Program("aws", place="/a"),)).draft
    assert made is not None
    place = f"{made.fetches[0].folder}/x"
    assert made.inputs == {"checkpoint": place}
    variables = ("AICRUN_INPUT_CHECKPOINT", "FLEXAI_INPUT_CHECKPOINT_DIR")
    assert [made.env[name] for name in variables] == [place, place]
