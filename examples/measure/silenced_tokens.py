"""Which tokens S2T would silence before any training.

Usage: `python examples/measure/silenced_tokens.py STUDY MODEL`, after `stapo run base` and `stapo run
prompts` with the study. One mini-batch of the study's STAPO is generated from its base model and scored,
without an update, in parts that a kill does not lose.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev

import torch
from safetensors.torch import load_file, save_file
from strips import Token, picture
from torch import Tensor
from torch.nn.functional import pad

from stapo.core.checksums import file_sha256, sums_of
from stapo.core.files import fingerprint, replace_file, write
from stapo.core.methods import Args
from stapo.core.minibatch import MiniBatch
from stapo.core.trainer import StapoTrainer, mini_batch
from stapo.suite import paths
from stapo.suite.bars import bar
from stapo.suite.interventions.arms import candidates_of
from stapo.suite.interventions.gradients import quadrants_of, token_gradients
from stapo.suite.interventions.job import InterventionJob, make_trainer
from stapo.suite.interventions.updates import Rollout
from stapo.suite.records.interventions import Quadrant, TokenGradient
from stapo.suite.study import Study, read_study
from stapo.suite.training.token_text import text_of

KEPT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps",
        "old_entropies", "advantages", "rewards")  # fmt: skip
CONTEXT = 12
"""Tokens shown before a token; after it a third as many."""
SHOWN = 30
"""Tokens shown of each kind."""
STRIPS, AROUND = 4, 80
"""Responses in the picture; their tokens before the first that is silenced, from it on half as many."""


def job_of(study: Study, model: str, work: Path, prompts: int) -> InterventionJob:
    """Return what makes the trainer of a part of a mini-batch."""
    settings = study.interventions.model_copy(update={"rollout_prompts": prompts})
    return InterventionJob(
        config={}, training=study.training_of("stapo"), method=study.method("stapo"), s2t=study.s2t(),
        prompts=Path(paths.PROMPTS.format(study=study.name)), engine=study.engine_of(model),
        end_tokens=study.end_tokens, checkpoint=f"{model}/base", settings=settings, methods={},
        model=Path(paths.BASE_MODEL.format(study=study.name, model=model)), work=work, out=work / "out",
    )  # fmt: skip


def joined(parts: Sequence[Rollout]) -> Rollout:
    """Return several rollouts as one: prompts padded on the left, responses on the right."""
    rollout: Rollout = {}
    for name in KEPT:
        tables = [part[name] for part in parts]
        if tables[0].dim() == 2:
            gaps = [max(table.shape[1] for table in tables) - table.shape[1] for table in tables]
            sides = [(gap, 0) if name.startswith("prompt") else (0, gap) for gap in gaps]
            tables = [pad(table, side) for table, side in zip(tables, sides, strict=True)]
        rollout[name] = torch.cat(tables)
    return rollout


def respond(job: InterventionJob) -> tuple[StapoTrainer, Rollout]:
    """Generate what is not there yet; return the trainer and the mini-batch."""
    count = job.training.prompts_per_mini_batch // job.rollout_prompts
    trainer, records = make_trainer(job)
    chosen = Random("tokens").sample(records, count * job.rollout_prompts)
    parts = []
    for number in bar("responding", count, "part", over=range(count)):
        path = job.work / f"part-{number}.safetensors"
        if not path.exists():
            prompts = chosen[number * job.rollout_prompts :][: job.rollout_prompts]
            rollout = trainer.respond(prompts, number)
            with replace_file(path, "wb") as stream:
                save_file({name: rollout[name].contiguous() for name in KEPT}, stream.name)
        parts.append(load_file(path))
    return trainer, joined(parts)


def shares(batch: MiniBatch, rewards: Tensor, s2t: Args, limit: int) -> list[str]:
    """Return rows of a table: how many tokens are of each kind."""
    tau_p, mask, total = float(s2t["tau_p"]), batch.mask, int(batch.mask.sum())
    positive, negative = (
        mask & sign.unsqueeze(1) for sign in (batch.advantages > 0, batch.advantages < 0)
    )
    rare = mask & (batch.old_logps < torch.tensor(tau_p, dtype=torch.double).log())
    candidates = candidates_of(batch, tau_p)
    kinds = {f"p < {tau_p}": rare, f"p < {tau_p}, A > 0": candidates, "A > 0": positive}
    quadrants = {f"A > 0, {name}": tokens for name, tokens in quadrants_of(batch, s2t).items()}
    lengths = mask.sum(dim=1)
    return [
        f"responses {len(lengths)}, tokens {total}, mean {lengths.float().mean():.0f}, at the limit "
        f"{(lengths == limit).float().mean():.1%}, right {(rewards > 0).float().mean():.1%}, "
        f"mean entropy {batch.old_entropies[mask].mean():.3f} nats",
        *(
            f"| {name} | {int(tokens.sum())} | {int(tokens.sum()) / total:.4%} |"
            for name, tokens in {**kinds, "A < 0": negative, **quadrants}.items()
        ),
    ]


def words(rollout: Rollout, mask: Tensor, text: Callable[[Sequence[int]], str]) -> list[str]:
    """Return tokens of a mask with their context, probability and entropy, drawn at random."""
    places, lines = mask.nonzero().tolist(), []
    for row, at in sorted(Random(0).sample(places, min(SHOWN, len(places)))):
        ids = rollout["completion_ids"][row].tolist()
        before, after = ids[max(at - CONTEXT, 0) : at], ids[at + 1 : at + 1 + CONTEXT // 3]
        p, entropy = (
            rollout["old_per_token_logps"][row, at].exp(),
            rollout["old_entropies"][row, at],
        )
        shown = f"{text(before)}⟦{text(ids[at : at + 1])}⟧{text(after)}"
        lines.append(f"p {p:.5f} H {entropy:.2f}  {shown!r}")
    return lines


def strips(
    rollout: Rollout, kinds: Mapping[Quadrant, Tensor], text: Callable[[Sequence[int]], str]
) -> list[tuple[str, list[Token]]]:
    """Return parts of responses around a silenced token, each of another response at random."""
    silenced, retained = kinds["rare, sure"], kinds["rare, unsure"]
    rows = silenced.any(dim=1).nonzero().flatten().tolist()
    shown = []
    for row in sorted(Random("strips").sample(rows, min(STRIPS, len(rows)))):
        length, middle = int(rollout["completion_mask"][row].sum()), int(silenced[row].nonzero()[0])
        part = range(max(middle - AROUND, 0), min(middle + AROUND // 2, length))
        title = f"Tokens {part.start + 1} to {part.stop} of {length} of a response with A > 0"
        ids, logps = rollout["completion_ids"][row], rollout["old_per_token_logps"][row]
        kind = {
            at: "silenced" if silenced[row, at] else "retained" if retained[row, at] else ""
            for at in part
        }
        tokens = [Token(text([int(ids[at])]), float(logps[at].exp()), kind[at]) for at in part]
        shown.append((title, tokens))
    return shown


def norms(gradients: Sequence[TokenGradient]) -> list[str]:
    """Return the mean norms of the gradients of each quadrant, with standard errors."""
    lines = []
    for quadrant in dict.fromkeys(gradient.quadrant for gradient in gradients):
        tokens = [gradient for gradient in gradients if gradient.quadrant == quadrant]
        means = [
            f"{mean(values):.2f}"
            + (f" ± {stdev(values) / sqrt(len(values)):.2f}" if len(values) > 1 else "")
            for values in ([g.at_logits for g in tokens], [g.at_weights for g in tokens])
        ]
        lines.append(f"| {quadrant} | {len(tokens)} | {means[0]} | {means[1]} |")
    return lines


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a part")
    parser.add_argument("--gradients", type=int, default=12, help="tokens of each quadrant")
    parser.add_argument("--picture", type=Path, help="SVG file to write, of responses as strips")
    given = parser.parse_args()
    study = read_study(given.study)
    mini_batch_prompts = study.training_of("stapo").prompts_per_mini_batch
    prompts = min(given.prompts, mini_batch_prompts)
    if mini_batch_prompts % prompts:
        parser.error(f"--prompts: {prompts} does not divide a mini-batch of {mini_batch_prompts}")
    job = job_of(study, given.model, Path(f"work/tokens/{study.name}"), prompts)
    inputs = [sums_of(job.model), file_sha256(job.prompts), job.training.model_dump(mode="json")]
    job = replace(job, work=job.work / fingerprint([*inputs, prompts]))
    job.work.mkdir(parents=True, exist_ok=True)
    threads, s2t = torch.get_num_threads(), job.measured
    trainer, rollout = respond(job)
    batch, text = mini_batch(rollout), text_of(trainer.processing_class)
    lines = [f"{study.name}, {given.model}, {threads} threads"]
    lines += shares(batch, rollout["rewards"], s2t, job.training.max_response_tokens)
    kinds = quadrants_of(batch, s2t)
    for name in ("rare, sure", "rare, unsure"):
        mask = kinds.get(name, torch.zeros_like(batch.mask))
        lines += [name, *words(rollout, mask, text)]
    shown = strips(rollout, kinds, text) if kinds else []
    if given.picture and shown:
        write(given.picture, picture(shown).encode())
    elif given.picture:
        lines.append(f"no token would be silenced; {given.picture} was not written")
    print(*lines, "| quadrant | tokens | at the logits | at all weights |", sep="\n", flush=True)
    print(*norms(token_gradients(trainer, rollout, s2t, given.gradients, "gradients")), sep="\n")
    print(f"candidates {int(candidates_of(batch, float(s2t['tau_p'])).sum())}")


if __name__ == "__main__":
    main()
