"""Which tokens of a model S2T would silence before any training: `python tests/measure_tokens.py STUDY SIZE`.

One mini-batch of the study's STAPO is generated from its base model and scored, without an update, in parts
that a kill does not lose. First: `stapo run base` and `stapo run prompts` with the study.
"""

import argparse
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import pad

from stapo.core.files import replace_file
from stapo.core.methods import s2t_arguments
from stapo.core.minibatch import MiniBatch
from stapo.core.trainer import mini_batch
from stapo.suite import paths
from stapo.suite.bars import bar
from stapo.suite.records.interventions import TokenGradient
from stapo.suite.study import Study, read_study
from stapo.suite.training.intervene import InterventionJob, make_trainer
from stapo.suite.training.single_updates import InterventionTrainer, Rollout, candidates_of
from stapo.suite.training.token_gradients import quadrants_of, token_gradients
from stapo.suite.training.token_text import text_of

KEPT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps",
        "old_entropies", "advantages", "rewards")  # fmt: skip
CONTEXT = 12
"""Tokens shown before a token; after it a third as many."""


def job_of(study: Study, size: str, work: Path, prompts: int) -> InterventionJob:
    """Return what makes the trainer of a part of a mini-batch."""
    settings = study.interventions.model_copy(update={"rollout_prompts": prompts})
    return InterventionJob(
        config={}, training=study.training_of("stapo"), method=study.method("stapo"),
        prompts=Path(paths.PROMPTS.format(study=study.name)), engine=study.engine_of(size),
        end_tokens=study.end_tokens, checkpoint=f"{size}/base", settings=settings, methods={},
        model=Path(paths.BASE_MODEL.format(study=study.name, size=size)), work=work, out=work / "out",
    )  # fmt: skip


def rollout_of(parts: Sequence[dict[str, Tensor]]) -> Rollout:
    """Return several rollouts as one: prompts padded on the left, responses on the right."""
    found: Rollout = {}
    for name in KEPT:
        tables = [part[name] for part in parts]
        if tables[0].dim() == 2:
            width = max(table.shape[1] for table in tables)
            left = name.startswith("prompt")
            tables = [
                pad(one, (gap, 0) if left else (0, gap))
                for one in tables
                for gap in [width - one.shape[1]]
            ]
        found[name] = torch.cat(tables)
    return found


def respond(
    study: Study, size: str, work: Path, prompts: int, wanted: int | None
) -> tuple[InterventionTrainer, Rollout]:
    """Generate what is not there yet; return the trainer and the mini-batch, or its first parts."""
    count = study.training.prompts_per_mini_batch // prompts
    trainer, records = make_trainer(job_of(study, size, work, prompts))
    chosen = Random("tokens").sample(records, count * prompts)
    parts = []
    numbers = range(min(wanted or count, count))
    for number in bar("responding", len(numbers), "part", over=numbers):
        path = work / f"part-{number}.safetensors"
        if not path.exists():
            rollout = trainer.respond(chosen[number * prompts :][:prompts], number)
            with replace_file(path, "wb") as stream:
                save_file({name: rollout[name].contiguous() for name in KEPT}, stream.name)
        parts.append(load_file(path))
    return trainer, rollout_of(parts)


def shares(batch: MiniBatch, rewards: Tensor, tau_p: float, study: Study) -> list[str]:
    """Return rows of a table: how many tokens are of each kind."""
    mask, positive = batch.mask, (batch.advantages > 0).unsqueeze(1)
    rare = mask & (batch.old_logps < torch.tensor(tau_p, dtype=torch.double).log())
    quadrants, total = (
        quadrants_of(batch, s2t_arguments(study.method("stapo"), study.s2t())),
        int(mask.sum()),
    )
    lengths = mask.sum(dim=1)
    cut = (lengths == study.training.max_response_tokens).float().mean()
    named = {f"p < {tau_p}": rare, f"p < {tau_p}, A > 0": rare & positive, "A > 0": mask & positive}
    named["A < 0"] = mask & (batch.advantages < 0).unsqueeze(1)
    named |= {f"A > 0, {name}": one for name, one in quadrants.items()}
    return [
        f"responses {len(lengths)}, tokens {total}, mean {lengths.float().mean():.0f}, at the limit "
        f"{cut:.1%}, right {(rewards > 0).float().mean():.1%}, mean entropy "
        f"{batch.old_entropies[mask].mean():.3f} nats",
        *(f"| {name} | {int(one.sum())} | {int(one.sum()) / total:.4%} |" for name, one in named.items()),
    ]  # fmt: skip


def words(
    rollout: Rollout, mask: Tensor, text: Callable[[Sequence[int]], str], size: int
) -> list[str]:
    """Return tokens of a mask with their context, probability and entropy, drawn at random."""
    places = mask.nonzero().tolist()
    drawn, lines = sorted(Random(0).sample(places, min(size, len(places)))), []
    for row, at in drawn:
        ids = rollout["completion_ids"][row].tolist()
        before, after = ids[max(at - CONTEXT, 0) : at], ids[at + 1 : at + 1 + CONTEXT // 3]
        values = (float(rollout[k][row, at]) for k in ("old_per_token_logps", "old_entropies"))
        p, entropy = torch.tensor(next(values)).exp(), next(values)
        shown = f"{text(before)}⟦{text(ids[at : at + 1])}⟧{text(after)}"
        lines.append(f"p {p:.5f} H {entropy:.2f}  {shown!r}")
    return lines


def norms(gradients: Sequence[TokenGradient]) -> list[str]:
    """Return the mean norms of the gradients of each quadrant, with standard errors."""
    lines = []
    for quadrant in dict.fromkeys(one.quadrant for one in gradients):
        own = [one for one in gradients if one.quadrant == quadrant]
        means = [
            f"{mean(values):.2f} ± {stdev(values) / sqrt(len(values)):.2f}"
            for values in ([g.at_logits for g in own], [g.at_weights for g in own])
        ]
        lines.append(f"| {quadrant} | {len(own)} | {means[0]} | {means[1]} |")
    return lines


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("size")
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a part")
    parser.add_argument("--parts", type=int, help="only the first parts of the mini-batch")
    parser.add_argument("--gradients", type=int, default=12, help="tokens of each quadrant")
    parser.add_argument("--words", type=int, default=30, help="tokens shown of each kind")
    given = parser.parse_args()
    study, torch_threads = read_study(given.study), torch.get_num_threads()
    work = Path(f"work/tokens/{study.name}")
    work.mkdir(parents=True, exist_ok=True)
    trainer, rollout = respond(study, given.size, work, given.prompts, given.parts)
    batch, method = mini_batch(rollout), s2t_arguments(study.method("stapo"), study.s2t())
    say = print
    say(f"{study.name}, {given.size}, {torch_threads} threads")
    say(*shares(batch, rollout["rewards"], float(method["tau_p"]), study), sep="\n")
    kinds, text = quadrants_of(batch, method), text_of(trainer.processing_class)
    for name in ("rare, sure", "rare, unsure"):
        say(
            name,
            *words(rollout, kinds.get(name, ~batch.mask & batch.mask), text, given.words),
            sep="\n",
        )
    say("| quadrant | tokens | at the logits | at all weights |")
    say(*norms(token_gradients(trainer, rollout, method, given.gradients, "gradients")), sep="\n")
    say(f"candidates {int(candidates_of(batch, method).sum())}")


if __name__ == "__main__":
    main()
