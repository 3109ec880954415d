"""The job that a plan will start: every path absolute, every placeholder filled but those that the start draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.plan.worlds import answered, card, disk, fleet, gpu_spec, machine, sft_wish, spec, wish

from aicrun.plan.ask import paths_to_ask
from aicrun.plan.decide import plan
from aicrun.plan.draft import card_need, filled
from aicrun.plan.model import Fleet, Options, RunPlan, Wanted
from aicrun.spec.model import CheckpointSpec, DiskDemand, Machine, Selector, SetupSpec, SourceSpec, UploadSpec
from aicrun.wire.facts import Python
from aicrun.wire.jobs import CardNeed, Client, JobRequest, Source

SOURCE = Source("ab" * 32, 3, 100)
TREE = SourceSpec("/home/ana/project")


def planned(wanted: Wanted, entry: Machine | None = None, **reading: Any) -> RunPlan:
    return plan((wanted,), _fleet(entry, **reading), Options()).runs[0]


def _fleet(entry: Machine | None = None, **reading: Any) -> Fleet:
    return fleet(answered("lab", (), entry or machine("lab"), **reading))


def sent(wanted: Wanted, entry: Machine | None = None, **reading: Any) -> JobRequest:
    """The request as the host gets it."""
    item = planned(wanted, entry, **reading)
    assert item.draft is not None, item.headline
    client = Client("ana", "laptop", "0.1.0")
    return filled(item.draft, job_id="1" * 16, run_id=item.run_id or "2" * 16, rank="3" * 16, client=client)


def test_a_small_run_has_a_workspace_caches_and_a_checkpoint_folder() -> None:
    made = sent(wish(spec("digits")))
    assert made.workspace == "/home/ana/aic-jobs/digits"
    assert made.checkpoints == f"/home/ana/aic-jobs/digits/checkpoints/{'2' * 16}"
    assert made.checkpoint_link == ""
    assert (made.env["HF_HOME"], made.env["TORCH_HOME"]) == ("/data/hf", "/data/torch")
    assert (made.job_id, made.run_id, made.rank, made.client.user) == ("1" * 16, "2" * 16, "3" * 16, "ana")
    assert made.machine == "lab" and made.max_jobs == 32 and made.setup.key == ""


def test_caches_lie_where_the_user_has_filled_them_when_there_is_no_data_folder() -> None:
    made = sent(wish(spec("digits")), machine("lab", data=""))
    assert made.env["HF_HOME"] == "/home/ana/.cache/huggingface"
    assert made.env["TORCH_HOME"] == "/home/ana/.cache/torch"
    assert made.env["AICRUN_MACHINE_DATA"] == "" and made.env["AICRUN_MACHINE_CACHE"] == "/home/ana/.cache"


def test_the_spec_wins_over_the_machine_and_the_machine_over_our_default() -> None:
    entry = machine("lab", env={"HF_HOME": "/m/hf", "http_proxy": "http://p/${run.id}", "A": "m"})
    made = sent(wish(spec("digits", env={"A": "${machine.data}/s", "T": "~/kept ${HOME}"})), entry)
    assert made.env["HF_HOME"] == "/m/hf" and made.env["A"] == "/data/s"
    # What the owner wrote is no template, and values are text: no tilde is touched.
    assert made.env["http_proxy"] == "http://p/${run.id}" and made.env["T"] == "~/kept ${HOME}"


def test_the_data_folder_may_lie_in_the_home() -> None:
    made = sent(wish(spec("digits")), machine("lab", data="~/d"))
    assert made.env["HF_HOME"] == "/home/ana/d/hf"


@pytest.mark.parametrize(
    ("path", "source", "folder", "link"),
    [
        ("", True, "/w/checkpoints/{id}", ""),
        ("out/ckpt", True, "/w/checkpoints/{id}", "out/ckpt"),
        ("out", False, "/w/out", ""),
        ("/big/${run.name}", True, "/big/digits", ""),
        ("~/big/${run.id}", False, "/home/ana/big/{id}", ""),
    ],
)
def test_where_checkpoints_lie(path: str, source: bool, folder: str, link: str) -> None:
    one = spec("digits", workspace="/w", checkpoints=CheckpointSpec(path), source=TREE if source else None)
    made = sent(wish(one, source=SOURCE if source else None))
    assert (made.checkpoints, made.checkpoint_link) == (folder.format(id="2" * 16), link)


@pytest.mark.parametrize(
    ("to", "layout", "destination"),
    [
        ("file:~/kept", "run", "file:/home/ana/kept/{id}/"),
        ("file:/kept/", "exact", "file:/kept"),
        ("file:${machine.data}/kept/${run.name}", "run", "file:/data/kept/digits/{id}/"),
        ("file:/kept/${run.id}", "exact", "file:/kept/{id}"),
    ],
)
def test_where_checkpoints_are_uploaded_to(to: str, layout: str, destination: str) -> None:
    upload = UploadSpec(to, "file", "copy", layout)
    made = sent(wish(spec("digits", checkpoints=CheckpointSpec("", upload))))
    assert made.upload is not None
    assert made.upload.destination == destination.format(id="2" * 16)


def test_the_folder_of_a_run_is_its_working_tree() -> None:
    one = spec("digits", command=("run --in ${run.dir}/x $${run.dir} ${gpu.count}",), workspace="/w", source=TREE)
    made = sent(wish(one, source=SOURCE))
    assert made.command == (f"run --in /w/jobs/{'1' * 16}/x ${{run.dir}} 0",)
    assert sent(wish(replace(one, source=None))).command[0].startswith("run --in /w/x ")


def test_an_argument_list_keeps_its_arguments() -> None:
    one = spec("digits", command=("python", "t.py", "${machine.data}/a b", "$x"), is_argv=True)
    made = sent(wish(one), machine("lab", data="/my data"))
    assert made.command == ("python", "t.py", "/my data/a b", "$x") and made.is_argv


def test_a_value_that_a_shell_would_split_is_refused_in_a_text_command() -> None:
    item = planned(wish(spec("digits", command=("ls ${machine.data}",))), machine("lab", data="/my data; rm"))
    assert item.refusal is not None
    assert (item.refusal.code, item.refusal.exit) == ("AIC-E680", 4)
    assert any("$AICRUN_MACHINE_DATA" in text for _, text in item.refusal.facts)


def test_a_missing_data_folder_is_refused_with_the_line_to_add() -> None:
    item = planned(wish(spec("digits", env={"X": "${machine.data}"})), replace(machine("lab", data=""), line=9))
    assert item.refusal is not None
    assert (item.refusal.code, item.refusal.exit) == ("AIC-E678", 4)
    assert item.rows == (("lab", "add to its entry in machines.yaml:9: data: /path/of/its/data/volume"),)


@pytest.mark.parametrize(
    "more",
    [
        {"command": ("ls ${machine.data}",)},
        {"workspace": "${machine.data}/w"},
        {"checkpoints": CheckpointSpec("${machine.data}/c")},
        {"checkpoints": CheckpointSpec("", UploadSpec("file:${machine.data}/u", "file", "copy"))},
        {"machine": Selector(disk=DiskDemand("${machine.data}", 1))},
        {"execution": {"setup": {"run": ["ls ${machine.data}"]}}},
    ],
)
def test_a_data_folder_is_missed_wherever_it_is_named(more: dict[str, Any]) -> None:
    item = planned(wish(spec("digits", **more)), machine("lab", data=""))
    assert item.refusal is not None and item.refusal.code == "AIC-E678"
    assert planned(wish(spec("digits", **more)), disks=(disk("/data", 9),)).sign.value == "+"


# The environment.


def _setup(setup: SetupSpec, files: dict[str, str] | None = None, **reading: Any) -> Any:
    return sent(wish(spec("digits", setup=setup), files=files or {}), **reading).setup


def test_an_environment_has_a_key_over_all_that_its_build_reads() -> None:
    base = _setup(SetupSpec(packages=("torch",)))
    assert base.path == f"/data/aicrun/envs/{base.key}" and len(base.key) == 16
    assert base.python == "/usr/bin/python3.12" and base.python_version == "3.12.4"
    others = [
        _setup(SetupSpec(packages=("torch", "peft"))),
        _setup(SetupSpec(requirements="r.txt"), {"r.txt": "torch\n"}),
        _setup(SetupSpec(requirements="r.txt"), {"r.txt": "torch==2\n"}),
        _setup(SetupSpec(packages=("torch",), torch_backend="cu128")),
        _setup(SetupSpec(packages=("torch",)), pythons=(Python("/opt/python", "3.12.4"),)),
        _setup(SetupSpec(packages=("torch",)), pythons=(Python("/usr/bin/python3.12", "3.12.5"),)),
        _setup(SetupSpec(packages=("torch",)), libc="musl 1.2"),
        _setup(SetupSpec(packages=("torch",)), architecture="aarch64"),
    ]
    assert len({base.key, *(other.key for other in others)}) == len(others) + 1


def test_extra_commands_and_a_timeout_do_not_change_the_key() -> None:
    base = _setup(SetupSpec(packages=("torch",)))
    same = _setup(SetupSpec(packages=("torch",), run=("make ${run.id} $${run.id}",), timeout_s=60))
    assert same.key == base.key
    assert same.run == (f"make {'2' * 16} ${{run.id}}",) and same.timeout_s == 60


def test_a_requirements_file_that_reaches_into_the_tree_takes_the_tree_into_its_key() -> None:
    def key(text: str, tree: str) -> str:
        one = spec("digits", setup=SetupSpec(requirements="r.txt"), source=TREE)
        made = sent(wish(one, source=Source(tree * 32, 1, 1), files={"r.txt": text}))
        return made.setup.key

    for line in ("-e .", ".", "./lib", "-r more.txt", "x @ file:./x", "lib/pkg"):
        assert key(line, "aa") != key(line, "bb"), line
    for line in ("torch==2.8", "x @ https://host/x.whl", "# -e .", "git+https://host/x"):
        assert key(line, "aa") == key(line, "bb"), line


def test_the_first_python_in_range_is_taken() -> None:
    pythons = (Python("/a", "3.7.1"), Python("/b", "3.9.2"), Python("/c", "3.12.4"))
    assert _setup(SetupSpec(packages=("x",)), pythons=pythons).python == "/b"
    assert _setup(SetupSpec(">=3.10", ("x",)), pythons=pythons).python == "/c"


def test_commands_alone_need_no_environment() -> None:
    made = _setup(SetupSpec(run=("make data",)), pythons=())
    assert (made.key, made.run) == ("", ("make data",))


def test_a_missing_requirements_file_is_refused() -> None:
    item = planned(wish(spec("digits", setup=SetupSpec(requirements="reqs.txt"))))
    assert item.refusal is not None
    assert (item.refusal.code, item.refusal.exit) == ("AIC-E679", 4)
    assert "reqs.txt" in item.headline


# What this version cannot apply.


def test_a_run_with_a_card_asks_for_it_by_uuid_and_says_how_it_waits() -> None:
    from unit.plan.worlds import gpu_box, home, lab

    item = plan((sft_wish(),), fleet(gpu_box(), lab(), home()), Options()).runs[0]
    assert item.draft is not None and len(item.draft.cards) == 1
    assert item.apply_refusal is None
    assert (item.draft.queue_wait_s, item.draft.priority) == (86400, 0)


def test_the_host_is_told_what_to_find_on_the_card_when_the_run_starts() -> None:
    assert card_need(spec()) == CardNeed()
    asked = gpu_spec(20, foreign_allowed=True, max_utilization_percent=25)
    assert card_need(asked) == CardNeed(20480 + 1024, True, 25)
    made = plan((wish(asked),), fleet(answered("lab", (card(0, "RTX 3090", 24),))), Options()).runs[0]
    assert made.draft is not None
    assert made.draft.card_need == card_need(asked)


@pytest.mark.parametrize(
    ("to", "layout", "destination"),
    [
        ("hf:me/model", "exact", "hf:me/model"),
        ("hf:me/model/runs/@lab", "exact", "hf:me/model/runs/@lab"),
        ("hf:me/model", "run", "hf:me/model/${run.id}/"),
        ("hf:me/model/runs/@lab", "run", "hf:me/model/runs/${run.id}/@lab"),
    ],
)
def test_a_target_of_the_hub_keeps_its_revision_and_is_told_to_be_untried(
    to: str, layout: str, destination: str
) -> None:
    upload = UploadSpec(to, "hf", "hf", layout)
    item = planned(wish(spec("digits", checkpoints=CheckpointSpec("", upload))))
    assert item.draft is not None and item.draft.upload is not None and item.apply_refusal is None
    assert (item.draft.upload.destination, item.draft.upload.tool) == (destination, "hf")
    told = dict(item.in_order)["upload"]
    assert told.endswith(" with hf (not verified against the service); must be verified"), told


@pytest.mark.parametrize(
    ("to", "layout", "destination"),
    [
        ("s3://bucket/x/", "run", "s3://bucket/x/${run.id}/"),
        ("s3://bucket", "run", "s3://bucket/${run.id}/"),
        ("s3://bucket/x", "exact", "s3://bucket/x"),
        ("rclone:nas:x", "run", "rclone:nas:x/${run.id}/"),
        # Its start is not its root.
        ("rclone:nas:", "run", "rclone:nas:${run.id}/"),
        ("rclone:nas:/", "run", "rclone:nas:/${run.id}/"),
    ],
)
def test_a_tool_of_the_machine_carries_to_the_target(to: str, layout: str, destination: str) -> None:
    upload = UploadSpec(to, to.partition(":")[0], "rclone", layout, endpoint="http://e", profile="lab")
    item = planned(wish(spec("digits", checkpoints=CheckpointSpec("", upload))))
    assert item.apply_refusal is None and item.draft is not None and item.draft.upload is not None
    made = item.draft.upload
    assert (made.destination, made.tool, made.endpoint, made.profile) == (destination, "rclone", "http://e", "lab")


@pytest.mark.parametrize("probe", [True, False])
def test_a_plan_says_that_nothing_is_tried_at_the_target(probe: bool) -> None:
    upload = UploadSpec("ssh://nas/x", "ssh", "rsync", probe=probe, required=False)
    item = planned(wish(spec("digits", checkpoints=CheckpointSpec("", upload))))
    assert item.draft is not None and item.draft.upload is not None and item.draft.upload.probe is probe
    words = dict(item.in_order)["upload"]
    tail = "" if probe else "; nothing is tried there before (probe: false)"
    assert words == f"checkpoints to ssh://nas/x/<run id>/ with rsync{tail}"


# What the survey is asked.


def test_the_volumes_of_all_runs_are_asked_for_once() -> None:
    upload = UploadSpec("file:/kept/${run.id}", "file", "copy")
    runs = [spec(f"r{n}", checkpoints=CheckpointSpec("/ck/${run.name}", upload)) for n in range(2)]
    asked = paths_to_ask(runs, machine("lab"))
    assert asked == ("/ck/r0", "/ck/r1", "/data", "/data/aicrun", "/kept/", "~/aic-jobs")


def test_a_volume_that_has_no_name_on_a_machine_is_not_asked_for() -> None:
    one = spec("digits", machine=Selector(disk=DiskDemand("${machine.data}/x", 1)))
    assert paths_to_ask((one,), machine("lab", data="")) == ("~/.cache", "~/.local/share/aicrun", "~/aic-jobs")
    below = ("~/aic-jobs", "~/d", "~/d/aicrun", "~/d/x")
    assert paths_to_ask((one,), machine("lab", data="~/d")) == below


def test_a_disk_in_the_home_is_recognised_in_the_reading() -> None:
    one = spec("digits", machine=Selector(disk=DiskDemand("~/big", 10 * 1024**3)))
    assert planned(wish(one), disks=(disk("/home/ana/big", 100),)).sign.value == "+"
    assert planned(wish(one), disks=(disk("~/big", 100),)).sign.value == "+"
    assert planned(wish(one), disks=(disk("/home/ana/big", 1),)).sign.value == "x"


def test_cache_folders_that_cannot_serve_are_a_warning() -> None:
    """Where they lie by themselves, where the spec puts them, and where the machine's owner does."""
    closed = disk("/data", 100, writable=False)
    by_itself = planned(wish(spec()), disks=(closed,)).warnings
    assert by_itself == tuple(
        f"{name} is /data/{folder}, which cannot be written on lab"
        for name, folder in (("HF_HOME", "hf"), ("TORCH_HOME", "torch"))
    )
    odd = spec(env={"HF_HOME": "cache/hf", "TORCH_HOME": "/big/torch"})
    no, other = planned(wish(odd), disks=(disk("/big/torch", 100, writable=False),)).warnings
    assert no == "HF_HOME is cache/hf, no absolute path: each program would make its own in its folder"
    assert other == "TORCH_HOME is /big/torch, which cannot be written on lab"
    entry = machine("lab", env={"HF_HOME": "/shared/hf"})
    below = ("/data", "/data/aicrun")
    assert paths_to_ask((odd,), entry) == ("/big/torch", *below, "/shared/hf", "~/aic-jobs")
    assert "/shared/hf" in planned(wish(spec()), entry, disks=(disk("/shared/hf", 1, writable=False),)).warnings[0]
    assert planned(wish(spec()), disks=(disk("/data", 100),)).warnings == ()
