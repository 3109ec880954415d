"""The register of every stable code, with what it means and an example: `aicrun explain CODE` reads it.

A number is never used for something else, also not after its error is gone. Blocks: E0 the command line, E1 files and
fields (texts in `codes_of_files.py`), E5 machines, E6 plan and host refusals, W2 lints. It must not import a room.

To add one, append an entry: a line with number and title, sentences indented by two, the example's lines behind `|`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aicrun.codes_of_files import FILES_AND_FIELDS, LINTS


@dataclass(frozen=True)
class Code:
    """One registered code; `severity` is `error` or `warning`, `explanation` a few sentences, `example` some lines."""

    number: str
    title: str
    severity: str
    explanation: str
    example: str


COMMAND_LINE = """
AIC-E001 a fault of aicrun itself
  Something happened that aicrun's own rules exclude. The run on the machine is not touched by it: look with
  `aicrun list`, and report what --debug prints.
  | aicrun --debug apply run.yaml
AIC-E002 no such machine
  The inventory has no machine of that name. The message lists the names and the file they come from.
  | aicrun machines
AIC-E003 no such run
  No machine that answered has a record of that run name, run id or job id.
  | aicrun list --all
AIC-E004 the name means more than one run
  Two machines have runs of the same name that do not belong together. Write NAME@MACHINE.
  | aicrun logs sft-run@lab
AIC-E005 a note is one line of text
  Notes are added line by line. An empty line, or one with control characters, is not written.
  | aicrun notes lab --add "Card 2 has a loud fan"
AIC-E006 the command line is not understood
  An option or an argument is unknown, missing or contradicts another one. Nothing was done.
  | aicrun apply --help
AIC-E012 a question needs an answer, and nobody can be asked
  A command that changes something asks first. Where stdin is no terminal, --yes gives the answer beforehand.
  | aicrun apply run.yaml --yes
AIC-E013 the file is there already
  A file that people may have written is never overwritten.
  | aicrun init --to other.yaml
AIC-E015 the plan cannot be read
  The file is not there, is no saved plan, or was written by a newer version.
  | aicrun plan run.yaml -o plan.json
AIC-E016 stdout takes nothing more
  What the command prints could not be written: a full disk behind a redirection, mostly. The command may have done its
  work before that; look before you repeat it.
  | aicrun list
AIC-E017 the plan cannot be written
  The folder is missing, may not be written, or its disk is full. The plan was made, and nothing was changed.
  | aicrun plan run.yaml -o ~/plan.json
AIC-E020 something else is there already
  A pull replaces nothing unasked. What is the same, by its SHA-256, is left as it is and counts as done.
  | aicrun pull lab:/data/out/model.bin . --replace
AIC-E021 there is nothing to send
  The path is not there, cannot be read, or is neither a file nor a folder. Links are not followed.
  | aicrun push model.bin lab:/data/
AIC-E022 a secret has no value here
  The spec names secrets, and the environment of the caller is where their values come from. One of them is not set, or
  empty. Nothing was started; a value stands in no file, argument or log of ours.
  | read -rs HF_TOKEN && export HF_TOKEN
AIC-E023 the command that prints a secret failed
  The command of a secret runs on this client, through sh, when a run is started or uploaded again. It ended with a code
  that is not 0, printed nothing, or took longer than two minutes.
  | pass show hf
AIC-E024 no such checkpoint
  A checkpoint is named by latest, best, its name, or its id. latest is the newest that is whole; best needs an eval
  loss, which trainer_state.json tells.
  | aicrun checkpoints sft-run
AIC-E025 the checkpoint is not whole
  A file of it is missing, shorter than its header says, or was written to within the last minute.
  | aicrun checkpoints sft-run
AIC-E026 a secret's value cannot be one
  A value is hidden in every log, which a text of fewer than 8 characters cannot be: it would turn up everywhere. Nor
  can one with a NUL character, or of over 32 KiB. Nothing was sent; the message names the secret, never its value.
  | read -rs HF_TOKEN && export HF_TOKEN
AIC-E027 a file or folder here cannot be used
  A file or folder of this computer could not be read or written: it is not there, belongs to somebody else, or its disk
  is full or read-only. What the command does on machines is not touched by it.
  | aicrun init --to ~/run.yaml
AIC-E019 machines.yaml cannot be changed by a command
  It is laid out in a way that a small change would not keep: a list in brackets, say. Nothing was written.
  | aicrun explain machines
AIC-E018 exec is for short steps
  A training started by hand has no lock on its card, no record and no end that anybody knows: it belongs into a run.
  What leaves something behind (nohup, a trailing &) does too.
  | aicrun init
"""

MACHINES = """
AIC-E501 the host key is not known
  The machine showed a key that no known_hosts file has, so nothing was sent to it. Compare the key with the one
  shown on the machine itself, then accept it once with ssh.
  | ssh lab exit
AIC-E502 the host key changed
  The machine shows another key than the one accepted before: it was installed anew, or somebody stands in between.
  Nothing was sent. Ask whoever runs it before the old key is removed.
  | ssh-keygen -R lab
AIC-E503 the name of a machine is not known
  Neither your ssh configuration nor the name service knows the name.
  | ssh -G lab
AIC-E504 a machine refuses connections
  It is up, and nothing listens on that port: sshd is not running, or listens on another port.
  | ssh lab exit
AIC-E505 a machine does not answer
  Nothing came back from that address within the time to connect. This says nothing about runs on it.
  | aicrun machines down lab
AIC-E506 a machine does not let you in
  Nothing is ever asked at a prompt: a key, an agent or a ticket must be enough. A shared connection that you opened by
  hand (ControlPath in your ssh configuration) is used too.
  | ssh -v lab exit
AIC-E507 a key cannot be used
  The key file is missing, cannot be read, or has a passphrase and no agent holds it.
  | ssh-add
AIC-E508 a jump host failed
  The machine itself was never asked. Try the hop by hand first.
  | ssh -J hop lab exit
AIC-E509 the ssh configuration cannot be read
  The system's ssh is asked how it would reach the machine (`ssh -G`); it refused, or the target in machines.yaml names
  no host.
  | ssh -G lab
AIC-E510 a machine has no suitable python3
  The agent needs a python3 of 3.8 or newer that belongs to the system. A virtual environment's does not count, for it
  goes away.
  | python3 --version
AIC-E511 the connection to the agent ended
  The machine answered before and then the connection broke. Runs on it are not touched by that.
  | aicrun doctor lab
AIC-E512 the agent's answer cannot be read
  What came back is not what the agent says: a fault of aicrun, or something on the machine that writes into the pipe.
  | aicrun --debug doctor lab
AIC-E513 the agent cannot be put on the machine
  It is unpacked once below ~/.local/state/aicrun there, and that folder cannot be written.
  | ls -ld ~/.local/state/aicrun
AIC-E514 the machine does not run Linux
  Runs need Linux. A macOS client can start them on Linux machines; on Windows, use WSL.
  | aicrun machines list
AIC-E515 uv could not be fetched
  Environments are built with uv. Where a machine has none, one pinned version is fetched from the package index and
  checked against a pinned hash.
  | PIP_INDEX_URL=https://mirror.lan/simple aicrun apply run.yaml
AIC-E516 the login shell does not run commands
  A start file of the account replaces the shell or ends it, or the shell is a restricted one. The agent is called
  through the login shell, once for each command.
  | ssh lab true
AIC-E520 the connection was dropped before anything was said
  A busy sshd drops some of many new connections (MaxStartups). It was tried again several times.
  | aicrun doctor lab
AIC-E521 no algorithm in common
  Your ssh and the machine's sshd each have a list of ciphers, keys and the like, and no entry stands in both: one of
  them is much older, or one list was cut. `ssh -vv` shows both.
  | ssh -vv lab exit
AIC-E590 this way to reach a machine is not supported yet
  The inventory names a cluster, which this version does not reach. It counts as silent: it may hold the run.
  | aicrun apply run.yaml --except lab
AIC-E591 a machine gave no answer in time
  It was asked together with all others and had not answered when the deadline passed. This says nothing about runs.
  | aicrun doctor lab
AIC-E592 the reply was lost
  A start was sent and no answer came back. It may have started. The same apply asks for the same run again, and adopts
  the job if there is one.
  | aicrun apply run.yaml
AIC-E593 the run is not known where it was asked, and a machine is silent
  No machine that answered knows the run; one that did not answer may.
  | aicrun doctor lab
AIC-E594 a machine may hold a copy of the run
  Before a start is confirmed, every machine must say that it holds no other copy. One of them could not.
  | aicrun apply run.yaml --except lab
AIC-E595 a machine fell silent before the start was confirmed
  Nothing was started: what was reserved there starts nothing by itself and ends within a minute. The same apply begins
  anew.
  | aicrun apply run.yaml
AIC-E596 a machine fell silent after the start was confirmed
  The run is started and goes on without you; how it stands can be told once the machine answers again.
  | aicrun inspect sft-run
AIC-E597 the machine of the job that gives way fell silent
  The new job was not started. Whether the old one was still asked to end, or left its line, is not known before its
  machine answers.
  | aicrun inspect sft-run
"""

REFUSALS = """
AIC-E601 gpu_busy: the card is held
  The card was free when the plan was made and is held now, and the spec does not allow to wait in line.
  | aicrun apply run.yaml --set queue.wait=24h
AIC-E602 the saved plan is stale
  A fact that the saved plan depends on has moved since: a driver, a card's holder, the source tree, the inventory.
  The fact is named with both values. Make a new plan and review it.
  | aicrun plan run.yaml -o plan.json
AIC-E603 too_many_jobs: the account's limit on the machine is reached
  A machine takes a number of jobs of one account at a time (max_jobs in machines.yaml, 32 by default).
  | aicrun list
AIC-E604 busy: the run has another job there
  Another record of this run stands on the machine, undecided or going on.
  | aicrun inspect sft-run
AIC-E605 not_found: the machine knows no such job
  It was deleted there, or never was there.
  | aicrun list
AIC-E606 not_finished: the job has not ended
  Only an ended job can be deleted, forgotten or uploaded again.
  | aicrun stop sft-run
AIC-E607 nothing_to_upload: the job has no upload, or no checkpoint
  Its spec names no target, or its checkpoint folder is empty.
  | aicrun inspect sft-run
AIC-E608 newer_record: a newer aicrun wrote the record
  This version shows it and leaves it untouched.
  | uv tool upgrade aicrun
AIC-E609 store_incomplete: a part of the source is missing on the machine
  The store there is safe to lose; the same apply sends what is missing.
  | aicrun apply run.yaml
AIC-E610 state_unusable: the state folder of the machine cannot be used
  It must be a folder of the account's own, on a file system with hard links.
  | aicrun doctor lab
AIC-E611 no_lock: a lock could not be had
  Without the lock nothing is changed.
  | aicrun doctor lab
AIC-E612 start_failed: the job could not be started
  The machine says why in the message.
  | aicrun logs sft-run
AIC-E613 invalid_request: the agent refuses what was sent
  A fault of aicrun, or a request from another version.
  | aicrun --version
AIC-E614 protocol_mismatch: client and agent speak different versions
  The agent that answered knows no version of the calls that this client knows. Nothing was done; runs go on. The older
  of the two must be updated.
  | uv tool upgrade aicrun
AIC-E615 drained: the machine starts no new run
  Its owner drained it: root for every account, any other account for its own runs. What runs goes on; a run with a card
  may stand in line there; a run without one has no line to stand in. Who drained it, or root, lifts it.
  | aicrun machines drain lab --off
AIC-E616 secret_refused: the value of a secret cannot be hidden, or not handed over
  A value is hidden in every log, which a text of fewer than 8 characters cannot be: it would turn up everywhere. A
  value with a NUL character, or of more than 32 KiB, is refused too. The message names the secret, never its value.
  | export HF_TOKEN=...
AIC-E617 disk_full: the machine has not the room that the run needs
  Each file system is counted once: working tree, environment, records, and what machine.disk asks. The machine looks
  when it takes the job, since a plan looked some time before; nothing was started. `plan` shows the numbers, and what
  takes the room: gc removes what is aicrun's own, the rest is yours.
  | aicrun gc lab --dry-run
AIC-E620 the start could not be settled
  Several clients were starting the run at the same moment, and five attempts did not decide it. Nothing was started by
  this one.
  | aicrun inspect sft-run
AIC-E621 the run was started with another spec meanwhile
  Between the plan and the start somebody started a run of this name with other execution fields.
  | aicrun plan run.yaml
AIC-E630 the plan refuses a run
  One refused run refuses the whole apply, so that nothing happens by halves.
  | aicrun plan run.yaml
AIC-E632 an offline plan cannot be applied
  It was made from what this client saw last; whether a copy of the run is somewhere, nobody was asked.
  | aicrun plan run.yaml
AIC-E631 the old job did not end
  A replaced job must have ended, with its whole process tree, before the new one starts. It has not, so the new one
  was not started.
  | aicrun inspect sft-run
AIC-E640 exists: something else is there already
  A push or pull replaces nothing unasked. What is the same, by its SHA-256, is left as it is and counts as done.
  | aicrun pull lab:/data/out/model.bin . --replace
AIC-E641 not_a_file: it is neither a regular file nor a folder
  Links and devices are not followed. In a folder they are left out, and named.
  | aicrun exec lab -- ls -l /data/out
AIC-E642 too_large: it holds more files than one transfer takes
  200,000 files in one folder. Pack them, or take its folders one by one.
  | aicrun exec lab -- tar -cf /data/out.tar /data/out
AIC-E643 unreadable: a file over there cannot be read
  The account that ssh logs in as may not read it, or the disk refuses.
  | aicrun exec lab -- ls -l /data/out
AIC-E644 unwritable: a file over there cannot be written
  The account may not write there, or the disk is full. What was sent lies beside its place, and goes on from there.
  | aicrun doctor lab
AIC-E645 transfer_failed: what arrived is not what was sent
  The SHA-256 of the two sides differ. Nothing was put in place. The file may have been written to meanwhile.
  | aicrun pull lab:/data/out/model.bin .
AIC-E646 a file here cannot be written
  What was pulled has no place on this machine: the folder is read-only or not yours, or the disk is full.
  What arrived lies beside its place where it could, and goes on from there.
  | df -h .
AIC-E647 the checkpoint cannot be brought out of its upload
  The run's machine cannot give it, and this machine has no tool for the target, or no way or no credentials to it, or
  what lies there is no verified upload of the run. What was whole when it was cut off is not brought again.
  | aicrun fetch sft-run --from s3://bucket/runs/
AIC-E650 a source file changed while it was read
  What is sent must be what was hashed. A file was written meanwhile, so nothing was started.
  | aicrun apply run.yaml
AIC-E651 source.path is not a folder
  The folder named by source.path, relative to the spec's own folder, is not there.
  | source: {path: .}
AIC-E652 git cannot list the source
  The source lies in a git repository that git refuses to read. Guessing would send ignored files, so nothing is sent.
  | git -C . status
AIC-E653 the source is empty
  No file is left to send: all are ignored by git, excluded, or caches.
  | source: {path: ., exclude: [data]}
AIC-E654 a file name is not UTF-8
  Trees are hashed over UTF-8 names. Rename the file, or exclude it.
  | source: {path: ., exclude: ["caf*"]}
AIC-E655 a link leaves the source
  A link is sent as a link, so its target must lie in the tree. Data belongs to the machine, not to the source.
  | source: {path: ., exclude: [data]}
AIC-E656 an input holds no file
  The folder of this computer that an input is sent from holds no regular file.
  | inputs: {corpus: {from: ./data}}
AIC-E670 nothing fits
  No card of any machine that answered fits the run, or none is free and the spec does not allow to wait. The table says
  for each card why.
  | aicrun explain machine.gpu
AIC-E671 a silent machine may hold the run
  A machine that the spec admits, or that a record names, does not answer. It may hold a copy, so nothing is started.
  | aicrun apply run.yaml --except lab
AIC-E672 the run is in progress with another spec
  Execution fields differ from those of the job that runs. It goes on; --replace stops it and starts the new one.
  | aicrun plan run.yaml --replace
AIC-E673 the run ended badly, with this very spec
  It failed or was stopped, and the same spec would do the same again. Say that it shall run once more.
  | aicrun apply run.yaml --again
AIC-E674 nobody knows how the run ended
  Its end was not recorded. That is neither success nor failure, and a person decides what follows.
  | aicrun logs sft-run --tail 50
AIC-E675 a stop could not end the run
  Processes of it live still, so nothing may start in its place.
  | aicrun inspect sft-run
AIC-E676 an ended run was not uploaded
  Its training is done and its checkpoint is not at its target; another spec would leave it behind.
  | aicrun apply run.yaml --again
AIC-E677 a record cannot be read
  A machine has a record that may be this run and cannot be read, so nothing is started.
  | aicrun doctor lab
AIC-E678 machine.data has no value
  The spec uses the placeholder, and the inventory gives no data: for the machine.
  | - {name: lab, ssh: lab, data: /data}
AIC-E679 the requirements file is missing
  setup.requirements names a file that is not in the source.
  | setup: {requirements: requirements.txt}
AIC-E680 a value is unsafe inside a text command
  A placeholder's value has characters that a shell would read as more than one plain word. Use its variable, quoted.
  | command: python sft.py --name "$AICRUN_RUN_NAME"
AIC-E681 cards cannot be leased yet
  An older version plans runs with cards and does not start them; this one does.
  | aicrun plan run.yaml
AIC-E682 this upload target is not supported yet
  An older version said so. This one writes to every kind of target that the grammar knows.
  | checkpoints: {upload: {to: "file:~/kept/"}}
AIC-E683 the lock cannot be used
  setup.lock takes a uv.lock whose packages all come from an index, an address or git. Packages of your own disk, the
  members of a workspace say, need the source: setup.project installs them, as far as they lie below it.
  | setup: {project: true}
AIC-E684 the lock is missing
  setup.lock names, and setup.project reads, a uv.lock with pyproject.toml beside it, and one of them is not in the
  source. What git ignores is not sent, so it is missing too.
  | uv lock
AIC-E685 the revision is not in the repository
  source.revision names no branch, tag or commit that the machines find in source.git.
  | git ls-remote https://git.example.org/team/sft.git
"""


def _entries(text: str) -> list[Code]:
    found: list[Code] = []
    for block in text.strip().split("\nAIC-"):
        head, *rest = block.removeprefix("AIC-").splitlines()
        number, _, title = head.partition(" ")
        words = " ".join(line.strip() for line in rest if not line.startswith("  |"))
        example = "\n".join(line[4:] for line in rest if line.startswith("  |"))
        severity = "warning" if number.startswith("W") else "error"
        found.append(Code(f"AIC-{number}", title, severity, words, example))
    return found


def _registered(*blocks: str) -> Mapping[str, Code]:
    table: dict[str, Code] = {}
    for code in (code for block in blocks for code in _entries(block)):
        if code.number in table:
            raise ValueError(f"{code.number} is registered twice")
        table[code.number] = code
    return MappingProxyType(table)


CODES: Mapping[str, Code] = _registered(COMMAND_LINE, FILES_AND_FIELDS, MACHINES, REFUSALS, LINTS)
