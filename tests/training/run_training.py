"""A training in a process of its own: what tests kill, or start twice with torchrun."""

from __future__ import annotations

import json
import os
import signal
import sys

import torch
from transformers import TrainerCallback

import pt_convsearch as cs


class KillAfter(TrainerCallback):
    """kill -9 once a step is done (and its checkpoint written)."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    options = json.loads(sys.argv[1])
    kill = options.pop("kill_after", None)
    folder = options.pop("pairs")
    cs.train(folder, device="cpu", callbacks=[] if kill is None else [KillAfter(kill)], **options)
