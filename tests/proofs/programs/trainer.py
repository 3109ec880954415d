"""A small training with the files that real trainers write; the same steps give the same bytes, cut or not.

It fits a linear map by descent with momentum, in numpy where there is numpy, else in plain Python. Every tenth step is
saved as `checkpoint-N` (config, weights as safetensors, the optimizer's state, `trainer_state.json` last), the end as
`final`. At the step HOLD_AT it has written half a checkpoint and waits there for as long as `$HOME/hold` exists.
"""

import json
import math
import os
import random
import struct
import sys
import time

try:
    import numpy
except ImportError:
    numpy = None

WIDE, HIGH, BATCH = 48, 12, 16
STEPS, EVERY = int(os.environ.get("STEPS", "50")), 10
HOLD_AT = int(os.environ.get("HOLD_AT", "30"))
IN_PLACE = os.environ.get("WRITES") == "in place"
RATE, MOMENTUM = 0.05, 0.9
HOME, OUT = os.environ["HOME"], os.environ["AICRUN_CHECKPOINT_DIR"]


def noise(seed, count):
    """`count` numbers that depend on `seed` alone."""
    chance = random.Random(seed)
    return [chance.uniform(-1, 1) for _ in range(count)]


class Plain:
    """The arithmetic without numpy."""

    kind = "plain"

    def __init__(self, flat, speed):
        self.flat, self.speed = list(flat), list(speed)

    def learn(self, inputs, wanted):
        slopes, loss = [0.0] * (WIDE * HIGH), 0.0
        for row in range(BATCH):
            seen = inputs[row * WIDE : (row + 1) * WIDE]
            for out in range(HIGH):
                weights = self.flat[out * WIDE : (out + 1) * WIDE]
                off = sum(map(float.__mul__, weights, seen)) - wanted[row * HIGH + out]
                loss += off * off
                for at in range(WIDE):
                    slopes[out * WIDE + at] += off * seen[at] / BATCH
        self.speed = [MOMENTUM * speed - RATE * slope for speed, slope in zip(self.speed, slopes)]
        self.flat = [weight + speed for weight, speed in zip(self.flat, self.speed)]
        return loss / BATCH / HIGH

    def raw(self):
        return struct.pack("<%dd" % len(self.flat), *self.flat), struct.pack("<%dd" % len(self.speed), *self.speed)


class Fast(Plain):
    """The same by numpy."""

    kind = "numpy"

    def __init__(self, flat, speed):
        self.flat, self.speed = (numpy.array(one, numpy.float64).reshape(HIGH, WIDE) for one in (flat, speed))

    def learn(self, inputs, wanted):
        seen = numpy.array(inputs).reshape(BATCH, WIDE)
        off = seen @ self.flat.T - numpy.array(wanted).reshape(BATCH, HIGH)
        self.speed = MOMENTUM * self.speed - RATE * (off.T @ seen) / BATCH
        self.flat = self.flat + self.speed
        return float((off * off).mean())

    def raw(self):
        return self.flat.astype("<f8").tobytes(), self.speed.astype("<f8").tobytes()


def safetensors(raw):
    """The bytes of a safetensors file with one tensor: the header's length, the header, the data."""
    entry = {"dtype": "F64", "shape": [HIGH, WIDE], "data_offsets": [0, len(raw)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "linear.weight": entry}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + raw


def doubles(raw):
    return struct.unpack("<%dd" % (len(raw) // 8), raw)


def load(folder):
    """(model, step, history) of a checkpoint."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as stream:
        flat = stream.read()
    flat = flat[8 + struct.unpack("<Q", flat[:8])[0] :]
    with open(os.path.join(folder, "optimizer.pt"), "rb") as stream:
        speed = stream.read()
    with open(os.path.join(folder, "trainer_state.json")) as stream:
        state = json.load(stream)
    return KIND(doubles(flat), doubles(speed)), state["global_step"], state["log_history"]


def write(folder, name, raw):
    with open(os.path.join(folder, name), "wb") as stream:
        half = len(raw) // 2
        stream.write(raw[:half])
        stream.flush()
        if hold(folder, name):
            time.sleep(0.01)
        stream.write(raw[half:])


def hold(folder, name):
    """Stand still in the middle of the weights of one checkpoint, as a kill finds a trainer."""
    if "checkpoint-%d" % HOLD_AT not in folder or name != "model.safetensors":
        return False
    while os.path.exists(os.path.join(HOME, "hold")):
        open(os.path.join(HOME, "half"), "w").close()
        if os.path.exists(os.path.join(HOME, "eat")):
            os.unlink(os.path.join(HOME, "eat"))
            eat()
        time.sleep(0.02)
    return True


def eat():
    """Take memory until the kernel ends it."""
    kept = []
    while True:
        kept.append(bytearray(b"x" * (8 << 20)))


def save(model, name, step, history):
    final = os.path.join(OUT, name)
    folder = final if IN_PLACE else os.path.join(OUT, "tmp-%s.%s" % (name, os.environ["AICRUN_ATTEMPT"]))
    os.makedirs(folder, exist_ok=True)
    flat, speed = model.raw()
    config = {"model_type": "linear", "hidden_size": WIDE, "transformers_version": "4.46.1"}
    write(folder, "config.json", json.dumps(config).encode())
    write(folder, "model.safetensors", safetensors(flat))
    if name != "final":
        write(folder, "optimizer.pt", speed)
        state = {"global_step": step, "max_steps": STEPS, "log_history": history}
        write(folder, "trainer_state.json", json.dumps(state).encode())
    if not IN_PLACE:
        os.rename(folder, final)


KIND = Fast if numpy else Plain
start = os.environ.get("AICRUN_RESUME_FROM", "")
model, done, history = load(start) if start else (KIND(noise("first", WIDE * HIGH), [0.0] * (WIDE * HIGH)), 0, [])
with open(os.path.join(HOME, "starts"), "a") as stream:
    stream.write("%s %s\n" % (done, os.path.basename(start) or "-"))
print("arithmetic by", model.kind, sys.version.split()[0], flush=True)
for step in range(done + 1, STEPS + 1):
    loss = model.learn(noise("in %d" % step, BATCH * WIDE), noise("out %d" % (step % 7), BATCH * HIGH))
    if not math.isfinite(loss):
        sys.exit("the loss is %s" % loss)
    print("step %d/%d loss=%.6f" % (step, STEPS, loss), flush=True)
    history.append({"step": step, "loss": loss})
    if step % EVERY == 0:
        history.append({"step": step, "eval_loss": loss / 2})
        save(model, "checkpoint-%d" % step, step, history)
save(model, "final", STEPS, history)
print("done", flush=True)
