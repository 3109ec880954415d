"""What a checked spec becomes: values with their units, and the fields as written that the digest is taken over."""

from __future__ import annotations

from pathlib import Path

import pytest
from frozen import frozen
from support import REPOSITORY
from unit.spec.documents import FULL

from aicrun.errors import UsageError
from aicrun.spec.diagnostics import DocumentInvalid
from aicrun.spec.endings import ending_help
from aicrun.spec.load import find_specs, load_run, load_run_text
from aicrun.spec.model import Bounds, CardDemand, ProgressSpec, RetrySpec, RunSpec, SourceSpec, UploadSpec
from aicrun.spec.placeholders import SAFE_VALUE
from aicrun.wire import names
from aicrun.wire.hashes import digest

SMALL = 'version: 1\nname: sft-run\ncommand: echo "$AICRUN_CHECKPOINT_DIR"\n'


def load(text: str, *overrides: str) -> RunSpec:
    return load_run_text(text.encode(), "run.yaml", "", overrides=overrides).specs[0]


def codes(text: str, *overrides: str, folder: str = "") -> list[str]:
    with pytest.raises(DocumentInvalid) as caught:
        load_run_text(text.encode(), "run.yaml", folder, overrides=overrides)
    return [row.code for row in caught.value.diagnostics]


def test_a_full_spec() -> None:
    spec = load(FULL)
    assert spec.machine.names == ("gpu-box", "lab")
    assert spec.machine.gpu == CardDemand(
        vram_mib=20480,
        headroom_mib=1024,
        count=2,
        models=("RTX 3090", "RTX 4090"),
        total_vram_mib=Bounds(22888, 45776),
        compute_capability=Bounds((8, 0), None),
        driver=Bounds((550,), None),
    )
    assert spec.machine.memory_mib == 32768
    assert spec.machine.disk is not None
    assert (spec.machine.disk.path, spec.machine.disk.free_bytes) == ("${machine.data}", 100 * 2**30)
    assert spec.env == {"HF_HOME": "${machine.data}/hf", "LR": "1e-4", "ON": "true", "N": "7"}
    assert spec.labels == {"team": "nlp", "year": "2024"}
    assert spec.command == ('python sft.py --out "$AICRUN_CHECKPOINT_DIR" --name sft-run',)
    assert (spec.limits.max_duration_s, spec.limits.grace_s, spec.limits.stall_s) == (43200, 120, 1800)
    assert (spec.queue_wait_s, spec.queue_priority) == (86400, 1)
    assert spec.checkpoints.upload == UploadSpec(
        "s3://bucket/sft-run/", "s3", "aws", endpoint="https://minio.lan", profile="lab"
    )
    assert spec.progress == (
        ProgressSpec("step", r"step (\d+)/(\d+)"),
        ProgressSpec("loss", "loss=([0-9.]+)", "min"),
    )
    assert spec.setup is not None
    assert (spec.setup.python, spec.setup.torch_backend, spec.setup.timeout_s) == (">=3.10", "auto", 1800)


def test_defaults_of_the_smallest_spec() -> None:
    spec = load(SMALL)
    assert (spec.workspace, spec.shell, spec.queue_wait_s, spec.limits.grace_s) == (
        "~/aic-jobs/sft-run",
        "bash",
        86400,
        30,
    )
    assert (spec.source, spec.setup, spec.machine.gpu, spec.limits.max_duration_s) == (None, None, None, None)
    assert dict(spec.execution) == {"command": 'echo "$AICRUN_CHECKPOINT_DIR"'}
    assert dict(spec.supervision) == dict(spec.selector) == {}


def test_each_written_field_is_in_exactly_one_class() -> None:
    spec = load(FULL)
    assert set(spec.execution) == {"command", "cwd", "shell", "env", "source", "setup", "gpu", "checkpoints"}
    assert set(spec.supervision) == {"limits", "queue", "progress", "notes", "description", "labels", "checkpoints"}
    assert set(spec.selector) == {"machine", "workspace"}
    assert spec.execution["checkpoints"] == {"path": "out"}
    assert set(spec.supervision["checkpoints"]) == {"upload"}
    assert "gpu" not in spec.selector["machine"]


def test_written_fields_keep_the_characters_typed() -> None:
    spec = load(SMALL + "env: {LR: 1e-4, HEX: 0x10, ON: true}\nmachine: {cpus: 0x10, gpu: {vram: 20GiB, count: 2}}\n")
    assert spec.execution["env"] == {"LR": "1e-4", "HEX": "0x10", "ON": "true"}
    assert spec.execution["gpu"] == {"vram": "20GiB", "count": "2"}
    assert spec.selector["machine"] == {"cpus": "0x10"}
    assert spec.machine.cpus == 16


def test_python_3_10_is_not_3_1() -> None:
    spec = load(SMALL + "setup: {python: 3.10}\n")
    assert spec.setup is not None
    assert spec.setup.python == "3.10"


@pytest.mark.parametrize("python", ["3.12", ">=3.10", "'>=3.10,<3.13'", "'==3.11.*'", "~=3.11", "'>= 3.9 , != 3.10.1'"])
def test_python_ranges(python: str) -> None:
    quoted = python if python.startswith("'") else f'"{python}"'
    assert load(SMALL + f"setup: {{python: {quoted}}}\n").setup is not None


def test_an_escaped_placeholder_is_left_for_the_last_filling() -> None:
    spec = load("version: 1\nname: sft-run\ncommand: echo ${run.name} $${run.name} ${run.id} ${HOME}\n")
    assert spec.command == ("echo sft-run $${run.name} ${run.id} ${HOME}",)


@pytest.mark.parametrize(
    ("to", "scheme", "tool", "layout"),
    [
        ("s3://b/x/", "s3", "aws", "run"),
        ("rclone:remote:path", "rclone", "rclone", "run"),
        ("hf:user/repo", "hf", "hf", "exact"),
        ("ssh://u@host/path", "ssh", "rsync", "run"),
        ("file:/abs", "file", "copy", "run"),
        ("file:~/x", "file", "copy", "run"),
        ("file:${machine.data}/x", "file", "copy", "run"),
    ],
)
def test_targets(to: str, scheme: str, tool: str, layout: str) -> None:
    upload = load(SMALL + f'checkpoints: {{upload: {{to: "{to}"}}}}\n').checkpoints.upload
    assert upload == UploadSpec(to, scheme, tool, layout)


def test_source_is_absolute_and_its_folder_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    spec = load_run_text((SMALL + "source: {path: code}\n").encode(), "run.yaml", str(tmp_path)).specs[0]
    assert spec.source == SourceSpec(str(tmp_path / "code"))
    assert codes(SMALL + "source: {path: cod}\n", folder=str(tmp_path)) == ["AIC-E160"]
    (tmp_path / "file").write_text("x")
    assert codes(SMALL + "source: {path: file}\n", folder=str(tmp_path)) == ["AIC-E160"]


def test_requirements_lie_in_the_source_and_a_missing_file_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "requirements.txt").write_text("")
    setup = "setup: {requirements: requirements.txt}\n"
    assert load_run_text((SMALL + setup).encode(), "run.yaml", str(tmp_path)).specs[0].setup is not None
    assert codes(SMALL + setup + "source: {path: code}\n", folder=str(tmp_path)) == ["AIC-E160"]


def test_overrides_are_typed_by_the_schema_and_recorded() -> None:
    given = ("name=2024-run", "env.LR=3e-4", "machine.gpu.count=2", "machine.name=[a, b]", "queue.wait=0", "env.E=")
    spec = load(SMALL + "machine: {gpu: 20GiB}\ncheckpoints: {path: out}\n", *given)
    assert (spec.name, spec.env, spec.machine.names) == ("2024-run", {"LR": "3e-4", "E": ""}, ("a", "b"))
    assert spec.machine.gpu == CardDemand(20480, 1024, 2)
    assert spec.queue_wait_s == 0
    assert spec.overrides == given
    assert spec.execution["gpu"] == {"vram": "20GiB", "count": "2"}


def test_an_override_is_as_good_as_the_line() -> None:
    written = load(SMALL + "env: {LR: 3e-4}\nlimits: {max_duration: 30m}\n")
    given = load(SMALL, "env.LR=3e-4", "limits.max_duration=30m")
    assert (written.execution, written.supervision) == (given.execution, given.supervision)


def test_a_command_with_a_colon_is_text_in_an_override() -> None:
    assert load(SMALL, "command=echo now: go # on").command == ("echo now: go # on",)


def test_an_override_of_a_shared_value_changes_one_place_only() -> None:
    spec = load(SMALL + "x-a: &a {A: 1}\nenv: *a\nlabels: *a\n", "env.A=2")
    assert (spec.env, spec.labels) == ({"A": "2"}, {"A": "1"})


def test_a_fault_of_an_override_is_shown_in_the_argument() -> None:
    with pytest.raises(DocumentInvalid) as caught:
        load(SMALL, "env.A=1", "machine.cpus=many")
    (row,) = caught.value.diagnostics
    assert (row.span.file, row.span.line, row.span.column) == ("--set", 2, 14)


def test_a_warning_is_an_error_when_strict() -> None:
    text = (SMALL + "limits: {max_duration: 12h}\n").encode()
    assert [row.code for row in load_run_text(text, "run.yaml", "").warnings] == ["AIC-W210"]
    with pytest.raises(DocumentInvalid):
        load_run_text(text, "run.yaml", "", strict=True)


def test_a_missing_file_a_folder_and_a_strange_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as missing:
        load_run(str(tmp_path / "run.yaml"))
    assert missing.value.code == "AIC-E180"
    assert "aicrun init" in missing.value.ways[0].command
    for path in (str(tmp_path), "a\0b"):
        with pytest.raises(UsageError) as unreadable:
            load_run(path)
        assert unreadable.value.code == "AIC-E181"


def test_specs_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "machines.yaml", "notes.txt"):
        (tmp_path / name).write_text("")
    assert find_specs(str(tmp_path)) == (str(tmp_path / "a.yml"), str(tmp_path / "b.yaml"))
    assert find_specs("run.yaml") == ("run.yaml",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        find_specs(str(tmp_path / "empty"))


@pytest.mark.parametrize("file", sorted((REPOSITORY / "specs").rglob("run.yaml")), ids=lambda file: file.parent.name)
def test_every_example_spec_is_valid_without_a_warning(file: Path) -> None:
    assert load_run(str(file), strict=True).warnings == ()


def test_names_and_safe_values_are_those_of_the_wire() -> None:
    assert SAFE_VALUE.pattern == names.SAFE_VALUE.pattern
    for name in ("a-b", "ab", "a" * 63, "a" * 64, "-ab", "a_b", "a.b", "abc-", "ab\n"):
        text = f'version: 1\nname: "{name}"\ncommand: x\n'.replace('\n"', '\\n"')
        valid = True
        try:
            load(text)
        except DocumentInvalid:
            valid = False
        assert valid == bool(names.RUN_NAME.match(name)), name


def test_digests_never_change() -> None:
    documents = {
        "smallest": SMALL,
        "full": FULL,
        "argv": "version: 1\nname: sft-run\ncommand: [python, train.py, --lr, 1e-4, --flag, true]\n",
        "short gpu": SMALL + "machine: {gpu: 2 x 20GiB}\ncheckpoints: {path: out}\n",
        "placeholders": SMALL + "cwd: ${run.name}/$${run.name}\nenv:\n  A: ${run.name} ${run.id}\n",
        "text of all kinds": SMALL + "env: {A: no, B: 012, C: 12:30, D: ~, E: '', F: é, G: 0x1F, H: 1_000}\n",
    }
    frozen("digests", {name: digest(dict(load(text).execution)) for name, text in documents.items()})


def test_what_does_not_change_the_training_does_not_change_the_digest() -> None:
    one = digest(dict(load(SMALL).execution))
    words = (
        "description: x\nnotes: y\nlabels: {a: b}\nlimits: {max_duration: 30m}\nworkspace: ~/x\nmachine: {cpus: 1}\n"
    )
    more = "checkpoints: {upload: {to: 'file:/x'}}\nprogress: {l: {pattern: '(x)'}}\nqueue: {wait: 1h}\n"
    assert digest(dict(load(SMALL + words + more).execution)) == one
    for changed in ("env: {A: ''}", "cwd: x", "shell: bash", "machine: {gpu: 20GiB}", "checkpoints: {path: out}"):
        assert digest(dict(load(SMALL + changed + "\n").execution)) != one, changed


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("{max: 3}", RetrySpec(3, ("exit", "signal", "oom_kill", "timeout", "reboot"), 60, 900)),
        ("{max: 1, when: [oom_kill, 'exit:75'], backoff: 30s}", RetrySpec(1, ("oom_kill", "exit:75"), 30, 30)),
        ("{max: 9, when: [unknown], backoff: 1m30s..1h}", RetrySpec(9, ("unknown",), 90, 3600)),
        ("{max: 2, when: [exit, 'signal:SEGV'], backoff: 5s..5s}", RetrySpec(2, ("exit", "signal:SEGV"), 5, 5)),
    ],
)
def test_a_retry_rule(written: str, rule: RetrySpec) -> None:
    spec = load(f"{SMALL}retry: {written}\n")
    assert spec.retry == rule
    # It is supervision: a run that has one is the same run.
    assert digest(dict(spec.execution)) == digest(dict(load(SMALL).execution))
    assert "retry" in spec.supervision
    assert load(SMALL).retry is None


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("{max: 0}", "AIC-E117"),
        ("{max: 1001}", "AIC-E117"),
        ("{when: [exit]}", "AIC-E112"),
        ("{max: 1, when: []}", "AIC-E119"),
        ("{max: 1, when: [exit, exit]}", "AIC-E119"),
        ("{max: 1, when: [exit:0]}", "AIC-E117"),
        ("{max: 1, when: [exit:256]}", "AIC-E117"),
        ("{max: 1, when: [oom]}", "AIC-E118"),
        ("{max: 1, when: [signal:9]}", "AIC-E118"),
        ("{max: 1, when: [signal:STOP]}", "AIC-E118"),
        ("{max: 1, when: [1, 2]}", "AIC-E120"),
        ("{max: 1, backoff: 0s..1m}", "AIC-E117"),
        ("{max: 1, backoff: 2m..1m}", "AIC-E123"),
        ("{max: 1, backoff: 1m5h}", "AIC-E122"),
        ("{max: 1, backoff: 1m..}", "AIC-E122"),
        ("{max: 1, backoff: 60}", "AIC-E121"),
    ],
)
def test_a_retry_rule_that_is_none(written: str, code: str) -> None:
    assert set(codes(f"{SMALL}retry: {written}\n")) == {code}


@pytest.mark.parametrize(
    ("word", "help_"),
    [
        ("oom", "did you mean oom_kill?"),
        ("OOM-kill", "did you mean oom_kill?"),
        ("75", "did you mean exit:75?"),
        ("exit_code:75", "did you mean exit:75?"),
        ("SIGKILL", "did you mean signal:KILL?"),
        ("segv", "did you mean signal:SEGV?"),
        ("signal:SIGTERM", "did you mean signal:TERM?"),
        ("signal:KIL", "did you mean signal:KILL?"),
        ("signal:9", "write signal:KILL, signal:SEGV or another by its name"),
        ("deadline", "did you mean timeout?"),
        ("rebooted", "did you mean reboot?"),
        ("bananas", ""),
    ],
)
def test_what_was_meant_by_a_word_that_is_no_ending(word: str, help_: str) -> None:
    assert ending_help(word) == help_
