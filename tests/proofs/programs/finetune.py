"""A tiny fine-tune with the Trainer of transformers, on processors: a model of random weights learns a small pattern.

At the step HOLD_AT it has saved the weights and not yet the state, and waits there as long as `$HOME/hold` exists.
"""

import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

HOME, OUT = os.environ["HOME"], os.environ["AICRUN_CHECKPOINT_DIR"]
HOLD_AT = int(os.environ.get("HOLD_AT", "30"))


class Rows(torch.utils.data.Dataset):
    """Lines that count up, each from another start."""

    def __len__(self):
        return 256

    def __getitem__(self, at):
        row = torch.tensor([(at * 7 + step) % 64 for step in range(24)])
        return {"input_ids": row, "labels": row}


class Held(Trainer):
    """Stands still in the middle of one save."""

    def _save_optimizer_and_scheduler(self, output_dir):
        while self.state.global_step == HOLD_AT and os.path.exists(os.path.join(HOME, "hold")):
            open(os.path.join(HOME, "half"), "w").close()
            time.sleep(0.05)
        super()._save_optimizer_and_scheduler(output_dir)


set_seed(7)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2))
arguments = TrainingArguments(
    OUT,
    max_steps=50,
    save_steps=10,
    logging_steps=5,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    use_cpu=True,
    report_to=[],
    seed=7,
    disable_tqdm=True,
    dataloader_num_workers=0,
)
start = os.environ.get("AICRUN_RESUME_FROM") or None
with open(os.path.join(HOME, "starts"), "a") as stream:
    stream.write("%s\n" % (os.path.basename(start) if start else "-"))
print("torch", torch.__version__, "resumes from", start, flush=True)
trainer = Held(model=model, args=arguments, train_dataset=Rows())
trainer.train(resume_from_checkpoint=start)
trainer.save_model(os.path.join(OUT, "final"))
print("done", flush=True)
