"""The texts of the codes that faults of files have: E1 errors and W2 lints. Read through `codes.py` only."""

from __future__ import annotations

FILES_AND_FIELDS = """
AIC-E100 the file is not UTF-8
  Specs and inventories are UTF-8, whatever the locale says; a byte-order mark is fine. The position of the first
  byte that is no UTF-8 is given. Nothing of such a file is used.
  | iconv -f cp1252 -t utf-8 run.yaml > fixed.yaml
AIC-E101 this is no YAML
  The text cannot be read as YAML. The caret stands where reading ended; the cause is there or shortly before. The
  rest of the file could not be checked, so more faults may show once this one is gone.
  | gpu: 20GiB        # a space after the ":"
AIC-E102 a key stands twice
  YAML would use the second value and drop the first without a word, so aicrun refuses. Both places are shown. Keys
  are compared as the text they stand for: gpu and "gpu" are one key.
  | machine:
  |   gpu: 24GiB      # once
AIC-E103 more than one document
  One file holds one run or one inventory. A leading `---` and an empty document at the end are fine.
  | aicrun plan first.yaml second.yaml
AIC-E104 a merge key
  The merge key `<<` is not part of YAML 1.2, and people disagree about what it should do. Write the keys out, or
  use a plain anchor and alias for one whole value, with helpers in top-level keys that start with x-.
  | x-caches: &caches {HF_HOME: /data/hf}
  | env: *caches
AIC-E105 a tag
  Tags such as !secret or !!python/object ask the reader to build something else than text, numbers, lists and
  mappings. aicrun builds nothing from a file, so that reading the spec of somebody else is always safe.
  | seed: "1"         # not: seed: !!str 1
AIC-E106 the file is too large for a spec
  Size, depth and the number of values after following all aliases are limited, so that a short file cannot grow
  without end: 256 KiB of text, 32 levels, 10,000 values.
  | command: bash train.sh    # long programs belong into a file of the source
AIC-E107 an alias that leads nowhere
  An alias *name needs an anchor &name before it, and a value cannot contain itself.
  | x-home: &home /data/hf
  | env: {HF_HOME: *home}
AIC-E108 a key that is no plain text
  Keys are words. Lists, mappings and nothing at all cannot be keys.
  | labels: {team: nlp}
AIC-E109 a character that text cannot hold
  NUL and other control characters, and halves of surrogate pairs, cannot be passed to a program or shown in a file.
  | command: printf '\\t'     # write escapes for the shell, not the characters
AIC-E110 an unknown key
  No such key stands at this place of the grammar, so it would have no effect. The nearest name is given, or the
  place where the key belongs. Top-level keys that start with x- are free.
  | aicrun explain machine
AIC-E111 the file is not a mapping of keys
  A run.yaml or machines.yaml is a mapping that starts with `version: 1`. An empty file is not a valid one.
  | version: 1
  | name: sft-run
  | command: python train.py
AIC-E112 a key is missing
  The key is required at this place.
  | version: 1
AIC-E113 an unknown version
  This aicrun reads version 1 of the file's grammar.
  | version: 1
AIC-E114 keys that exclude each other
  Exactly one, or at most one, of the named keys can stand here.
  | source: {path: .}
AIC-E115 a key without a value
  Nothing stands after the ":", which YAML reads as null. Remove the line, or give a value; for the empty text
  write "".
  | env: {EXTRA_ARGS: ""}
AIC-E116 none of the known values
  The field takes one of a few words. The nearest is given.
  | shell: bash
AIC-E117 a number out of its range
  The number is below the least or above the greatest that makes sense here.
  | gpu: {vram: 20GiB, count: 1}
AIC-E118 text of the wrong form
  The text does not have the form of this field; `aicrun explain FIELD` tells the form and gives examples.
  | name: sft-run     # 3 to 63 letters, digits, - and _, a letter or digit at both ends
AIC-E119 a wrong number of items
  The list or mapping is empty, too long, or names one item twice.
  | setup: {packages: [torch]}
AIC-E120 a value of the wrong type
  The field wants another kind of value. Only null, true, false and plain numbers are typed; everything else, also
  yes, on, 012 and 12:30, is text. A text that looks like a number needs quotes where text is wanted.
  | count: 2
AIC-E121 a measure without unit
  Sizes and durations carry their unit, so that nobody has to guess. GiB counts by 1024, GB by 1000.
  | gpu: 20GiB
  | limits: {max_duration: 12h}
AIC-E122 no such measure
  Sizes are like 20GiB or 512MiB (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB), durations like 90s, 30m, 1h30m or 2d,
  percentages like 10%, ranges like 24GB..48GB or 8.0.. (either side may be left out).
  | gpu: {vram: 20GiB, headroom: 5%, total_vram: 24GB..48GB}
AIC-E123 a range upside down
  The left side of the range is above the right side, so nothing can lie in it.
  | total_vram: 24GB..48GB
AIC-E124 a path that cannot be used here
  Some paths are relative to the source tree and stay inside it; others lie on the machine and start with / or ~/.
  | cwd: train        # below the tree
  | workspace: ~/aic-jobs/sft-run
AIC-E125 no range of Python versions
  setup.python is a version such as 3.12, or conditions parted by commas, each with an operator and a version.
  | setup: {python: ">=3.10,<3.13"}
AIC-E126 a pattern that cannot be used
  The pattern of a progress value is a regular expression with at least one group; the first group is the value.
  | progress: {loss: {pattern: 'loss=([0-9.]+)', goal: min}}
AIC-E127 an upload target that cannot be used
  Targets start with s3://, rclone:, hf:, ssh:// or file:, and some tools and options belong to one kind of target.
  | upload: {to: s3://bucket/sft-run/, with: aws}
AIC-E128 a command that is too long
  A text command has at most 65,536 bytes. Put the program into a file of the source and call that.
  | command: bash train.sh
AIC-E129 a variable that aicrun sets itself
  With a card asked for, aicrun says which cards a run sees, and it sets every variable that starts with AICRUN_.
  A value in the spec would point at another card than the reserved one.
  | machine: {gpu: {vram: 20GiB, index: 1}}   # to pin one card
AIC-E130 an unknown placeholder
  Every ${word.word} is a placeholder of aicrun; $HOME and ${HOME} are left to the shell. The known ones: run.name,
  run.id, run.dir, machine.name, machine.data, machine.cache, gpu.count, resume.checkpoint, params.NAME.
  | command: echo $${not.ours}    # two $ write the text itself
AIC-E131 a placeholder where none is filled in
  Placeholders are filled in commands, env, paths and targets only. This field must be known before a machine is.
  | workspace: ~/aic-jobs/${run.name}
AIC-E132 a value that is not safe inside a command
  A placeholder in a text command is put in as it is, so its value may only hold letters, digits and _@%+=:,./- .
  Every placeholder is also a variable of the job's environment, which the shell quotes properly.
  | command: python train.py --title "$AICRUN_PARAM_TITLE"
AIC-E133 a field that needs another
  The field says how something else of the spec is done, and that is not there.
  | setup: {requirements: requirements.txt, wheels: /data/wheels}
AIC-E134 an input that cannot be brought from there
  An input comes from s3://, rclone: or hf:, fetched by the machine, or is a file or folder of this computer, which is
  sent there. Some tools and options belong to one kind of address; no address carries a key, which others would see.
  | inputs: {corpus: {from: s3://bucket/corpus/, with: rclone, endpoint: https://minio.lan}}
AIC-E140 what looks like a secret
  Specs are reviewed and shared, so a token in one is a token lost. Name it under secrets; its value comes from your
  environment, travels on standard input and is never printed. A key whose name sounds secret but whose value is not
  can be listed under x-not-secret; values in the shape of a known token cannot.
  | secrets: [HF_TOKEN]
  | x-not-secret: [env.PAD_TOKEN]
AIC-E141 a value as random as a key
  The value is long and random, as keys are. If it is none (a commit, a hash), list its place under the top-level
  key x-not-secret; the mark is then part of the review.
  | x-not-secret: [env.DATASET_SHA]
AIC-E150 not supported yet
  The field is part of the grammar, and this version of aicrun does not do it yet. It is refused, so that nothing
  that was asked for is left undone in silence.
  | aicrun explain run       # marks each field that is not supported yet
AIC-E151 a reserved word
  The word is kept for a later version of the grammar.
  | x-nodes: 2        # keys of your own start with x-
AIC-E160 a local file is missing
  The spec names a file or folder of this client, relative to the spec's folder, that is not there. A missing file is
  never treated as an empty one.
  | setup: {requirements: requirements.txt}
AIC-E170 a --set that cannot be used
  The form is --set key.path=value. The path names a field of the grammar; the value is read as in the file.
  | aicrun plan run.yaml --set machine.gpu.count=2
AIC-E171 two machines of one name
  The name of a machine stands in plans, messages and records, so it names one machine only.
  | machines: [{name: lab, ssh: lab}, {name: attic, ssh: attic}]
AIC-E172 two local machines
  The machine aicrun runs on stands in an inventory once.
  | machines: [{name: here, local: true}]
AIC-E180 no such file
  The spec or inventory that was named is not there. `aicrun init` writes a first spec.
  | aicrun init
AIC-E181 the file cannot be read
  The path is a folder, or reading it is not permitted.
  | aicrun validate run.yaml
AIC-E182 nothing to explain
  `aicrun explain` takes a field of run.yaml (machine.gpu), of machines.yaml (machines.keep_free), or a code.
  | aicrun explain machine.gpu
"""

LINTS = """
AIC-W201 an activated environment
  A job reads no start file, so conda activate and source …/activate often work by hand and not here. With setup the
  environment is built and first on PATH; otherwise call the interpreter by its path.
  | command: /home/u/venv/bin/python train.py
AIC-W202 pip install inside the command
  It installs at every start, also while a card is held, into whatever Python comes first. Let setup do it once.
  | setup: {packages: [torch, peft]}
AIC-W203 torchrun without --standalone
  Without it torchrun uses a fixed port, and the second run on the machine fails. A free port is in $AICRUN_PORT.
  | command: torchrun --standalone --nproc_per_node "$AICRUN_GPU_COUNT" train.py
AIC-W204 a card's number in a run of one card
  Inside a run the reserved card is device 0, whichever card of the machine it is; cuda:1 does not exist there.
  | command: python train.py --device cuda:0
AIC-W205 CUDA_VISIBLE_DEVICES inside the command
  aicrun sets it to the reserved cards. Setting it again points the run at cards that others hold.
  | command: python train.py
AIC-W206 a device flag that does not match the cards
  The command names a device, or a number of devices, beyond those asked for.
  | machine: {gpu: 2 x 20GiB}
AIC-W207 a command that may ask
  A job has no keyboard: reading from standard input gets its end at once. Give the answer as a flag or a secret.
  | secrets: [WANDB_API_KEY]
AIC-W208 caches on the system's partition
  Models and data sets fill small partitions, and /tmp is emptied at reboot. Put caches on the data volume.
  | env: {HF_HOME: "${machine.data}/hf"}
AIC-W209 no checkpoint path
  Checkpoints are what lies in $AICRUN_CHECKPOINT_DIR, or in checkpoints.path. Neither stands in the spec, the command
  or the program that it names. What is saved elsewhere is not listed, uploaded or resumed from; a program that finds
  the variable in another way loses nothing.
  | command: python train.py --out "$AICRUN_CHECKPOINT_DIR"
AIC-W210 hours of training and no upload
  The only copy of the checkpoint will be on the machine.
  | checkpoints: {upload: {to: file:~/checkpoints/}}
AIC-W211 an ending that hides a failure
  With a trailing & or || true the command ends with success whatever happened, and the run would be called succeeded.
  Pipes are fine: the shell runs with pipefail.
  | command: python train.py 2>&1 | tee train.txt
AIC-W212 a value that nothing expands
  env values reach the job exactly as typed; no shell reads them, so $HOME and ~ stay as they are.
  | env: {DATA: "${machine.data}/corpus"}
AIC-W213 a command that detaches itself
  aicrun already outlives the connection. What detaches by tmux, screen, nohup … & or setsid -f ends the command at
  once, and its exit code is lost.
  | command: python train.py
AIC-W214 a wrapper that hides the output or the exit code
  conda run holds back all output until the end, and releases of it ended with 0 whatever the program did. The run has
  the exit code of the command as it is written.
  | command: /opt/conda/envs/x/bin/python train.py
AIC-W215 pip install in setup.run
  The environment that setup builds is shared by all runs that want it, and has no pip. The pip that would be found is
  the machine's own or conda's; it refuses, for it is told to leave its Python alone.
  | setup: {requirements: requirements.txt, run: [make data]}
"""
