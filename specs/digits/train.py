"""Train a small classifier on the handwritten digits that scikit-learn ships: 1,797 real scans of 8x8 pixels.

Numpy alone does the work. Prints `step N/M loss=…`, writes `checkpoint-N/` folders below --out, each complete at the
moment it appears, and goes on from one of them with --resume. It must not know that aicrun runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

HIDDEN = 512
BATCH = 64
TRAINED_ON = 1500
RATE = 0.05
MOMENTUM = 0.9


class Network:
    """One hidden layer of rectified units and a softmax, trained by gradient descent with momentum."""

    def __init__(self, chance: np.random.Generator) -> None:
        """Random weights; `chance` decides them."""
        self.weights: list[Any] = [
            chance.normal(0, 0.1, (64, HIDDEN)).astype(np.float32),
            np.zeros(HIDDEN, np.float32),
            chance.normal(0, 0.1, (HIDDEN, 10)).astype(np.float32),
            np.zeros(10, np.float32),
        ]
        self.speeds = [np.zeros_like(weight) for weight in self.weights]

    def forward(self, pixels: Any) -> tuple[Any, Any]:
        """(hidden units, probability of each digit), a row for each image."""
        hidden = np.maximum(pixels @ self.weights[0] + self.weights[1], 0)
        scores = hidden @ self.weights[2] + self.weights[3]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def learn(self, pixels: Any, digits: Any) -> float:
        """One step of descent; the mean loss of this batch before it."""
        hidden, chances = self.forward(pixels)
        rows = np.arange(len(digits))
        loss = float(-np.log(chances[rows, digits] + 1e-9).mean())
        chances[rows, digits] -= 1
        chances /= len(digits)
        back = (chances @ self.weights[2].T) * (hidden > 0)
        slopes = (pixels.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0))
        for index, slope in enumerate(slopes):
            self.speeds[index] = MOMENTUM * self.speeds[index] - RATE * slope
            self.weights[index] = self.weights[index] + self.speeds[index]
        return loss

    def accuracy(self, pixels: Any, digits: Any) -> float:
        """The share of images that are read right, 0 to 1."""
        return float((self.forward(pixels)[1].argmax(axis=1) == digits).mean())


def save(out: str, network: Network, state: dict[str, Any]) -> str:
    """Write `checkpoint-N` below `out` aside, then rename it, so that a reader never meets half of one."""
    final = os.path.join(out, f"checkpoint-{state['step']}")
    aside = os.path.join(out, f".checkpoint-{state['step']}.{os.getpid()}")
    os.makedirs(aside)
    arrays = dict(zip(("w0", "w1", "w2", "w3", "v0", "v1", "v2", "v3"), network.weights + network.speeds, strict=True))
    np.savez(os.path.join(aside, "weights.npz"), **arrays)
    with open(os.path.join(aside, "trainer_state.json"), "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
    # A checkpoint of an earlier attempt under this name gives way; both hold the same step.
    shutil.rmtree(final, ignore_errors=True)
    os.rename(aside, final)
    return final


def resume(folder: str, network: Network) -> list[dict[str, float]]:
    """Put the weights of a checkpoint into `network`; the history of its training."""
    with np.load(os.path.join(folder, "weights.npz")) as arrays:
        network.weights = [arrays[f"w{index}"] for index in range(4)]
        network.speeds = [arrays[f"v{index}"] for index in range(4)]
    with open(os.path.join(folder, "trainer_state.json"), encoding="utf-8") as file:
        history: list[dict[str, float]] = json.load(file)["history"]
    return history


def train(steps: int, out: str, start: str, every: int) -> None:
    """Train to `steps`, from the checkpoint `start` if there is one; save every `every` steps and at the end."""
    pixels, digits = load_digits(return_X_y=True)
    pixels = (pixels / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(digits))
    seen, unseen = order[:TRAINED_ON], order[TRAINED_ON:]
    network = Network(np.random.default_rng(1))
    history = resume(start, network) if start else []
    first = int(history[-1]["step"]) if history else 0
    if first:
        print(f"going on from step {first}", flush=True)
    # Batches are drawn by step, so that a resumed training sees what the uninterrupted one would have seen.
    for step in range(first + 1, steps + 1):
        batch = np.random.default_rng((2, step)).choice(seen, BATCH, replace=False)
        loss = network.learn(pixels[batch], digits[batch])
        if step % every == 0 or step == steps:
            accuracy = network.accuracy(pixels[unseen], digits[unseen])
            history.append({"step": step, "loss": loss, "accuracy": accuracy})
            state = {"step": step, "steps": steps, "loss": loss, "accuracy": accuracy, "history": history}
            print(f"step {step}/{steps} loss={loss:.4f} accuracy={accuracy:.3f}", flush=True)
            print(f"saved {save(out, network, state)}", flush=True)
        elif step % 1000 == 0:
            print(f"step {step}/{steps} loss={loss:.4f}", flush=True)


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description="Train a digit classifier on scikit-learn's scans.")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--every", type=int, default=5000, help="steps between two checkpoints")
    parser.add_argument("--out", required=True, help="folder for the checkpoints")
    parser.add_argument("--resume", default="", help="a checkpoint folder to go on from")
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    train(given.steps, given.out, given.resume, given.every)


if __name__ == "__main__":
    main()
