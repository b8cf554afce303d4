"""The idea and its exact update: nothing of the suite here, no pydantic, no Snakemake.

Read in this order:

1. `objective/selection.py`: which tokens S2T silences, and other selections
2. `objective/surrogates.py`, `advantages.py`, `aggregation.py`: the loss of a token, and its mean
3. `methods`: GRPO, 20-Entropy, JustRL, STAPO and methods of other papers, as data
4. `minibatch.py`: what an update gets, and its micro-batches
5. `loss.py`: the loss of a micro-batch, by weights from the whole mini-batch
6. `update.py`: selection, threshold, divisor and gradient of a mini-batch, however it is cut
7. `ranks.py`, `forward.py`, `head.py`, `shared_prompts.py`: the same on several processes; log-probs
8. `trainer.py`: TRL's GRPOTrainer with this update; `checkpoints.py`: how it survives a kill

`conformance` compares the loss of other trainers with it.
"""
