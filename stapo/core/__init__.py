"""The idea and its exact update: nothing of the suite here, no pydantic, no Snakemake.

Read in this order:

1. `objective/selection.py`: which tokens S2T silences, and other selections
2. `objective/surrogates.py`, `advantages.py`, `aggregation.py`: the loss of a token, and its mean
3. `methods/parts.py`, `methods/__init__.py`: GRPO, 20-Entropy, JustRL, STAPO and others, as data
4. `minibatch.py`: what an update gets, and its micro-batches
5. `loss.py`: the loss of a micro-batch, by tables of the whole mini-batch
6. `update.py`: `accumulate_gradient`, the exact update of a mini-batch, however it is cut
7. `ranks.py`, `forward.py`, `head.py`, `shared_prompts.py`: the same on several processes; log-probs
8. `trainer.py`: TRL's GRPOTrainer with this update; `checkpoints.py`: how it survives a kill

One optimiser step, by what each line is computed over:

- each rank: `trainer.StapoTrainer._generate_and_score_completions` gets responses and rewards from TRL, and
  `scored` their log-probs and entropies, without gradient
- all ranks: `ranks.whole_rollout` gathers them, so that every rank knows the whole mini-batch
- each rank: `trainer.StapoTrainer.training_step` calls `_accumulate_gradients`, which calls
  `update.accumulate_gradient`, which calls what follows
- mini-batch: `update.select` keeps tokens; `loss.TokenTables.build` gives each its weight, with the divisor
- each rank: `minibatch.micro_batches_by_rank` gives it some rows; rows without gradient are left out
- micro-batch: `update._run_micro_batches` runs the model; `loss.micro_batch_loss` is a part of the loss
- all ranks: sums of the parts are the record (`step_record.py`); TRL's trainer clips the gradient and updates

`conformance` compares the loss of other trainers with it. `objective/formulas.json` has checksums of formulas
for `stapo.suite.formulas`.
"""
