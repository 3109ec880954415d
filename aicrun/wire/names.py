"""Names both sides use: identifiers, files in the state folder, variables in a job's environment.

It must not make or open anything. Frozen by `tests/golden/names.json`.
"""

from aicrun.wire.patterns import pattern

# Of every record on disk; one that is higher was written by a newer version.
SCHEMA = 1

RUN_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{1,61}[A-Za-z0-9]\Z")
HEX16 = pattern(r"[0-9a-f]{16}\Z")
SAFE_VALUE = pattern(r"[A-Za-z0-9_@%+=:,./-]*\Z")

# Files of a run record, in `<state>/runs/<run>/<job id>/`; small, they outlive the sweep.
RECORD = "record.json"
DECISION = "decision.json"
LEFT = "left.json"
END = "end.json"
FACTS = "facts.json"
SUPERVISION = "supervision.json"
FORGOTTEN = "forgotten.json"
UPLOAD_RESULT = "upload.json"
UPLOAD_EXIT = "upload-exit.json"
UPLOADED = "uploaded.json"
UPLOAD_TO = "upload-to.json"
SOURCE_DIFF = "source.diff"

# Files of a job folder, in `<jobs root>/jobs/<job id>/`; private, swept a week after the end.
REQUEST = "request.json"
LAUNCH = "launch.json"
KEEPER_LOCK = "keeper.lock"
TOUCH = "touch"
STOP = "stop.json"
STOPPER_LOCK = "stopper.lock"
STUCK = "stuck.json"
EVENTS = "events.jsonl"
ATTEMPTS = "attempts"
STEP_START = "start.json"
STEP_EXIT = "exit.json"
LOG = "log"
LOG_TAIL = "log.tail"
LOG_STATE = "log.json"
SETUP_RESULT = "setup.json"
ENVIRONMENT = "environment.json"
TELEMETRY = "telemetry.jsonl"
TELEMETRY_PEAKS = "telemetry.json"
KEEPER_ERR = "keeper.err"
LINE = "line.json"
RETRY = "retry.json"
REFUSED = "refused.json"
SECRETS = "secrets.json"
HIDDEN_NAMES = "hidden-names.json"
ORDER = "order.json"
UPLOAD_LOCK = "upload.lock"
UPLOAD_ONLY = "upload-only.json"

# Below the state root.
AGENTS = "agents"
RUNS = "runs"
JOBS = "jobs"
TOMBSTONES = "tombstones"
STORE = "store"
TRASH = "trash"
NOTES = "notes.md"
HOST_LOCK = "host.lock"
HOST_ID = "host-id"

# Variables that a job finds in its environment; placeholders `${run.name}` … exist under these names too.
VARIABLES = {
    "run.name": "AICRUN_RUN_NAME",
    "run.id": "AICRUN_RUN_ID",
    "run.dir": "AICRUN_RUN_DIR",
    "machine.name": "AICRUN_MACHINE_NAME",
    "machine.data": "AICRUN_MACHINE_DATA",
    "machine.cache": "AICRUN_MACHINE_CACHE",
    "gpu.count": "AICRUN_GPU_COUNT",
    "resume.checkpoint": "AICRUN_RESUME_FROM",
}
PARAM_PREFIX = "AICRUN_PARAM_"
INPUT_PREFIX = "AICRUN_INPUT_"
JOB_ID = "AICRUN_JOB_ID"
CHECKPOINT_DIR = "AICRUN_CHECKPOINT_DIR"
INPUT_CHECKPOINT = "FLEXAI_INPUT_CHECKPOINT_DIR"
RESUME_FROM = "AICRUN_RESUME_FROM"
ATTEMPT = "AICRUN_ATTEMPT"
PORT = "AICRUN_PORT"
GPU_UUID = "AICRUN_GPU_UUID"
GPU_UUIDS = "AICRUN_GPU_UUIDS"

LOG_CAP_BYTES = 256 * 1024 * 1024
LOG_TAIL_BYTES = 1024 * 1024
REPLY_CAP_BYTES = 256 * 1024
# Of a slice of a log that is followed.
FOLLOW_CAP_BYTES = 1024 * 1024
COMMAND_CAP_BYTES = 65536
# Of the text that tells what a source differs in from its commit.
DIFF_CAP_BYTES = 256 * 1024
TAIL_LINES = 200
LOGS_KEPT_S = 7 * 86400
LIST_DEFAULT = 20
LIST_MOST = 200
GATE_S = 60
