"""Fleets, specs and records for tests of the plan, short to write; the example fleet of the screens among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aicrun.plan.model import Fleet, MachineView, Wanted
from aicrun.spec.model import (
    CardDemand,
    CheckpointSpec,
    DiskDemand,
    LimitsSpec,
    LocalReach,
    Machine,
    RetrySpec,
    RunSpec,
    Selector,
    SetupSpec,
    SourceSpec,
    SshReach,
    UploadSpec,
)
from aicrun.wire.facts import (
    BootIdentity,
    Card,
    CardProcess,
    Cards,
    Disk,
    Holder,
    HostReading,
    Notes,
    Python,
    Survival,
)
from aicrun.wire.jobs import (
    Client,
    JobReport,
    NextAttempt,
    Source,
    StepExit,
    StepReport,
    StopIntent,
    Upload,
    UploadResult,
)
from aicrun.wire.seen import Checkpoints

GIB = 1024
HOUR = 3600.0
COMMAND = 'python sft.py --config cfg.yaml --out "$AICRUN_CHECKPOINT_DIR" ${AICRUN_RESUME_FROM:+--resume x}'


def card(index: int, model: str, total_gib: float, free_gib: float | None = None, **more: Any) -> Card:
    """A healthy card, idle unless told otherwise."""
    total = round(total_gib * GIB)
    free = round((total_gib - 0.3 if free_gib is None else free_gib) * GIB)
    facts: dict[str, Any] = {
        "uuid": f"GPU-{index:08d}-{model.replace(' ', '')}",
        "vram_total_mib": total,
        "vram_free_mib": free,
        "vram_used_mib": total - free,
        "vram_reserved_mib": 300,
        "utilization_percent": 0,
        "compute_capability": "8.6",
        "mig": "unsupported",
        "processes_listed": True,
    }
    return Card(index, model=model, **{**facts, **more})


def held(run: str, account: str, age_s: float, yours: bool = False, job_id: str = "f" * 16) -> Holder:
    """A live ticket on a card."""
    return Holder(run, account, job_id, age_s, yours)


def stranger(pid: int, name: str, user: str, gib: float) -> CardProcess:
    """Somebody's compute process."""
    return CardProcess(pid, "compute", round(gib * GIB), user, name)


def reading(name: str, cards: tuple[Card, ...] | Cards = (), **more: Any) -> HostReading:
    """What a host says; without cards it has no driver. `cards` may also be a whole `Cards`."""
    found = cards if isinstance(cards, Cards) else Cards("none", "no_driver")
    if cards and not isinstance(cards, Cards):
        found = Cards("devices", driver="570.124.06", cuda="12.8", cards=cards)
    facts: dict[str, Any] = {
        "hostname": name,
        "host_id": f"{name}-id",
        "boot": BootIdentity("boot", "pid:[1]", 10),
        "account": "ana",
        "uid": 1000,
        "home": "/home/ana",
        "shell": "/bin/bash",
        "system": "Linux",
        "architecture": "x86_64",
        "libc": "glibc 2.35",
        "python": "3.10.12",
        "agent_digest": "5c1f02ab",
        "cpus": 16,
        "cpus_free": more.get("cpus", 16) - 1.0,
        "memory_mib": 64 * GIB,
        "memory_free_mib": 60 * GIB,
        "cards": found,
        "state_root": "/home/ana/.local/state/aicrun",
        "jobs_root": "/home/ana/.local/state/aicrun",
        "survival": Survival("A", "goes on when you disconnect or log out; a restart of this machine ends it", "yes"),
        "disks": (disk("/data", 410), disk("/home/ana/aic-jobs", 200)),
        "pythons": (Python("/usr/bin/python3.12", "3.12.4"),),
    }
    return HostReading(**{**facts, **more})


def disk(path: str, free_gib: float, total_gib: float = 2048, **more: Any) -> Disk:
    """A volume with room."""
    facts: dict[str, Any] = {"free_inodes": 10_000_000, "total_inodes": 20_000_000, "filesystem": "ext4", **more}
    return Disk(path, round(free_gib * GIB**3), round(total_gib * GIB**3), **facts)


def machine(name: str, **more: Any) -> Machine:
    """An entry of the inventory with a data volume."""
    return Machine(name, **{"reach": LocalReach(), "data": "/data", **more})


def answered(name: str, cards: tuple[Card, ...] | Cards = (), entry: Machine | None = None, **more: Any) -> MachineView:
    """A machine that answered the survey."""
    return MachineView(entry or machine(name), "answered", reading(name, cards, **more))


def silent(name: str, why: str = "no answer within 5s (connect timed out)", **more: Any) -> MachineView:
    """A machine that did not answer."""
    return MachineView(machine(name, **{"reach": SshReach(name), **more}), "silent", why=why)


def fleet(*views: MachineView, file: str = "machines.yaml") -> Fleet:
    """An inventory as surveyed."""
    return Fleet(views, file, "4be1c07a" if file else "", "ana")


def spec(name: str = "sft-run", **more: Any) -> RunSpec:
    """A run without a card, unless a selector says otherwise."""
    facts: dict[str, Any] = {
        "file": "run.yaml",
        "folder": "/home/ana/project",
        "command": ("python train.py",),
        "execution": {"command": "python train.py"},
        "supervision": {},
        "selector": {},
    }
    return RunSpec(name, **{**facts, **more})


def demand(gib: float = 20, headroom_gib: float | None = None, **more: Any) -> CardDemand:
    """A demand with the default headroom: 5%, at least 512 MiB."""
    headroom = max(512, round(gib * GIB * 0.05)) if headroom_gib is None else round(headroom_gib * GIB)
    return CardDemand(round(gib * GIB), headroom, **more)


def gpu_spec(gib: float = 20, name: str = "sft-run", selector: dict[str, Any] | None = None, **more: Any) -> RunSpec:
    """A run that asks a card; `more` are fields of the demand."""
    return spec(name, machine=Selector(gpu=demand(gib, **more), **(selector or {})))


def wish(one: RunSpec, **more: Any) -> Wanted:
    """A wish for one run."""
    return Wanted(one, **more)


def job(wanted: Wanted, state: str = "running", **more: Any) -> JobReport:
    """A record of the run as `wanted` would have made it, in one of a few states."""
    from aicrun.plan.draft import digest_of, execution_of

    facts: dict[str, Any] = {
        "job_id": "7c1e09d2a4b86f13",
        "run": wanted.spec.name,
        "run_id": "3f9a1c0e77b2d416",
        "digest": digest_of(wanted),
        "client": Client("ana", "laptop", "0.1.0"),
        "age_s": 3 * HOUR + 8 * 60,
        "decision": "go",
        "phase": "command",
        "supervised": True,
        "execution": execution_of(wanted),
        "supervision": dict(wanted.spec.supervision),
        "source": wanted.source,
        "machine": "lab",
    }
    return JobReport(**{**facts, **_STATES[state], **more})


def _ended(command: StepExit, *others: StepReport) -> dict[str, Any]:
    steps = (StepReport("command", "ended", exit=command), *others)
    return {"phase": "ended", "ended_age_s": 2 * HOUR, "steps": steps}


def _exit(step: str = "command", **more: Any) -> StepExit:
    return StepExit(step, 1, 41 * 60.0, 0.0, **more)


_STATES: dict[str, dict[str, Any]] = {
    "running": {"steps": (StepReport("command", "running", 48211, 3 * HOUR + 8 * 60),)},
    "building": {"phase": "setup", "age_s": 64.0},
    "waiting": {"phase": "waiting", "age_s": 1200.0},
    "undecided": {"phase": "reserved", "decision": "undecided", "age_s": 4.0},
    "never started": {"phase": "never_started"},
    "withdrawn": {"decision": "no", "decision_reason": "by client"},
    "stopping": {"stop_age_s": 5.0, "stop": StopIntent("ana@laptop", 30, 0.0)},
    "stop failed": {"leftover_pids": (811, 812)},
    "succeeded": _ended(_exit(code=0)),
    "failed": _ended(_exit(code=1)),
    "oom": _ended(_exit(signal=9, oom_kill=True)),
    "stopped": _ended(_exit(signal=15, stop_sent=True)),
    "stopped in upload": _ended(
        _exit(code=0), StepReport("upload", "ended", exit=_exit("upload", signal=15, stop_sent=True))
    ),
    "upload failed": {
        **_ended(_exit(code=0), StepReport("upload", "ended", exit=_exit("upload", code=1))),
        "upload_request": Upload("file:/out", "file", "file:/out/3f9a1c0e77b2d416/"),
        "upload": UploadResult("file:/out/3f9a1c0e77b2d416/", False, error="disk full"),
    },
    "unknown": {
        "phase": "ended",
        "lost": "supervisor_lost",
        "lost_detail": "its keeper was killed",
        "ended_age_s": 900.0,
    },
    "rebooted": {"phase": "ended", "lost": "reboot", "lost_detail": "lab rebooted", "ended_age_s": 900.0},
    "pausing": {
        **_ended(_exit(code=75)),
        "phase": "waiting",
        "next_attempt": NextAttempt(2, 4, "exit:75", 40.0),
    },
    "rebooted in the pause": {
        **_ended(_exit(code=75)),
        "next_attempt": NextAttempt(2, 4, "exit:75", not_made="reboot"),
    },
    "lost in the pause": {
        **_ended(_exit(code=75)),
        "next_attempt": NextAttempt(2, 4, "exit:75", not_made="supervisor_lost"),
    },
    "stopped in the pause": {
        **_ended(_exit(code=75)),
        "stop": StopIntent("ana@laptop", 30, 0.0),
        "next_attempt": NextAttempt(2, 4, "exit:75", not_made="stopped"),
    },
    "newer": {"newer_schema": True},
}


# The example of the screens: fleet, spec and notes.

NOTES = Notes(
    "Corpus is on /data/corpus (read only).\ntorch 2.8 with cu128 works, cu130 does not: driver 570.\n"
    "Card 0 is alice's.\n",
    3,
    1,
    8,
)
REQUIREMENTS = "torch==2.8.0\ntransformers\npeft\n"
SOURCE = Source("aa11bb22" * 8, 43, 1_258_291, "9f2c1ab0ffee", "main", ("sft.py", "cfg.yaml"))


def gpu_box(**more: Any) -> MachineView:
    cards = (
        card(0, "NVIDIA GeForce RTX 5080", 15.92, 15.6, display=True),
        card(1, "NVIDIA GeForce RTX 3090", 24, 2.1, holder=held("dpo-2", "ana", 5 * HOUR + 720, yours=True)),
    )
    entry = machine("gpu-box", labels={"site": "home"}, keep_free=(0,))
    return answered("gpu-box", cards, entry, **more)


def lab(free1: float = 47.6, holder1: Holder | None = None, **more: Any) -> MachineView:
    cards = (
        card(0, "NVIDIA RTX A6000", 48, 9.0, holder=held("whisper-ft", "alice", 26 * HOUR), vram_reserved_mib=410),
        card(1, "NVIDIA RTX A6000", 48, free1, holder=holder1, vram_reserved_mib=410),
        card(2, "NVIDIA GeForce RTX 2080 Ti", 11, 10.8),
        card(3, "NVIDIA GeForce RTX 2080 Ti", 11, 10.8),
    )
    facts: dict[str, Any] = {"cpus": 64, "memory_mib": 251 * GIB, "memory_free_mib": 200 * GIB, "notes": NOTES}
    return answered("lab", cards, **{**facts, **more})


def home(free: float = 22.3018, **more: Any) -> MachineView:
    browser = CardProcess(900, "graphics", 1600, "ana", "firefox")
    facts = {"display": True, "processes": (browser,), **more}
    return answered("home", (card(0, "NVIDIA GeForce RTX 4090", 24, free, **facts), *_igpu()), machine("home"))


def _igpu() -> tuple[Card, ...]:
    return ()


ATTIC = MachineView(machine("attic", down=True), "down", why="down: true in machines.yaml")


def sft_run(**more: Any) -> RunSpec:
    """The run of the screens."""
    selector = Selector(gpu=demand(20), cpus=8, memory_mib=32 * GIB, disk=DiskDemand("${machine.data}", 100 * GIB**3))
    supervision = {
        "limits": {"max_duration": "12h", "grace": "2m", "stall": "30m"},
        "retry": {"max": "3", "when": ["oom_kill", "reboot", "exit:75"]},
        "notify": {"when": ["failed"]},
    }
    execution = {
        "command": COMMAND,
        "env": {"LR": "1e-4"},
        "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
        "resume": {"from": "latest"},
    }
    facts: dict[str, Any] = {
        "command": (COMMAND,),
        "machine": selector,
        "source": SourceSpec("/home/ana/project"),
        "setup": SetupSpec(requirements="requirements.txt", torch_backend="cu128"),
        "env": {"LR": "1e-4"},
        "limits": LimitsSpec(12 * 3600, 120, 1800),
        "retry": RetrySpec(3, ("oom_kill", "reboot", "exit:75"), 60, 900),
        "checkpoints": CheckpointSpec("out", UploadSpec("s3://bucket/sft-run/", "s3", "aws")),
        "execution": execution,
        "supervision": supervision,
    }
    return replace(spec("sft-run"), **{**facts, **more})


def sft_wish(**more: Any) -> Wanted:
    """The wish of the screens: a dirty git tree of 43 files."""
    return Wanted(sft_run(**more), SOURCE, {"requirements.txt": REQUIREMENTS})


def checkpoint(name: str = "checkpoint-4000", age_s: float = 540.0) -> Checkpoints:
    """A checkpoint folder with one entry worth telling."""
    return Checkpoints(
        "/home/ana/aic-jobs/sft-run/checkpoints/3f9a1c0e77b2d416", name, age_s, round(16.1 * GIB**3), 3, 0, name, age_s
    )


MEASURED = {"run": "sft-run", "vram_peak_mib": 18022, "card_model": "NVIDIA GeForce RTX 3090", "age_s": 3 * 86400.0}
