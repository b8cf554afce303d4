"""Program of the tests of trainings with vLLM: trains on one prompt and saves what each step computed.

Usage: python vllm_training.py WORLD OUT CASE...
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path += [str(Path(__file__).parents[1])]
import vllm_on_cpu  # noqa: F401  Before TRL.
from safetensors.torch import save_file
from training_jobs import job_in, parity_reward
from trl.generation.vllm_generation import VLLMGeneration

from stapo.core.trainer import StapoTrainer
from stapo.suite.study.schema import TrainingSettings
from stapo.suite.training.rewards import BUILT_IN
from stapo.suite.training.run import TrainingJob, train

TRAINING = TrainingSettings(
    checkpoint_every=1,
    steps=6, prompts_per_batch=8, group_size=4, prompts_per_mini_batch=4, micro_batch_tokens=512,
    learning_rate=1e-2, max_prompt_tokens=24, max_response_tokens=32, rollouts="vllm-colocate",
)  # fmt: skip
SEEDS = {"whole": 0, "killed": 0, "unsynced": 0, "other": 1}
SAVED = ("completion_ids", "completion_mask", "old_per_token_logps", "sampling_per_token_logps")
KILLED = 3
"""Steps that are completed before the kill: in the middle of the second of three rollouts."""


def job(world: Path, out: Path, case: str) -> TrainingJob:
    return job_in(world, out, TRAINING, "stapo", config={"case": case}, seed=SEEDS[case])


def main(world: str, out: str, *cases: str) -> None:
    accumulate, synchronise = StapoTrainer._accumulate_gradients, VLLMGeneration.sync_weights
    for case in cases:
        directory = Path(out) / case
        directory.mkdir(parents=True, exist_ok=True)
        resumed = (directory / "work").exists()

        def look(
            self: StapoTrainer,
            model: Any,
            inputs: Any,
            directory=directory,
            case=case,
            resumed=resumed,
        ) -> Any:
            step = self.state.global_step
            if case == "killed" and step == KILLED and not resumed:
                os.kill(os.getpid(), signal.SIGKILL)
            found = {name: inputs[name].contiguous() for name in SAVED}
            save_file(found, directory / f"step{step}.safetensors")
            return accumulate(self, model, inputs)

        def synchronise_once(self: VLLMGeneration, case=case) -> None:
            if case != "unsynced":
                synchronise(self)

        with (
            patch.object(StapoTrainer, "_accumulate_gradients", look),
            patch.object(VLLMGeneration, "sync_weights", synchronise_once),
            patch.dict(BUILT_IN, boxed=parity_reward),
        ):
            train(job(Path(world), directory, case))


if __name__ == "__main__":
    main(*sys.argv[1:])
