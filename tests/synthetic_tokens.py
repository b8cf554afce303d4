"""Token records of a known truth: all tokens of small trainings, and samples of them as `tokens.parquet`.

Every token has a distribution over `VOCABULARY` of its own, from which its probability, entropy, collision,
five most likely tokens and exact gradient norm are computed.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from stapo.suite import paths
from stapo.suite.records.tokens import MARKED, METADATA_KEY, SCHEMA, TOP, VERSION
from stapo.suite.study import Study, TrainingRun

VOCABULARY = (*"0123456789+=$;.x", " ", "\n", " so ", " wait ", " Let", "the", "}", "<eos>")
V = len(VOCABULARY)
TAU_P, QUANTILE = 0.002, 0.75
CLIP_LOW, CLIP_HIGH = 0.8, 1.28
BUDGET = {"silenced": 20, "retained": 20, "other": 60}
ALL = dict.fromkeys(BUDGET, 10**6)


def population(
    rng: np.random.Generator,
    steps: int = 4,
    prompts: int = 4,
    group: int = 4,
    length: int = 25,
    slips: float = 0.02,
    tau_p: float = TAU_P,
    top: bool = True,
) -> pd.DataFrame:
    """Return all tokens of a training, with the columns of the records.

    Tokens of one response are alike: they share how peaked their distributions are. A share `slips` of the
    tokens is drawn uniformly. Without `top`, there are no most likely tokens, which take most of the time.
    """
    shape, frames = (prompts, group), []
    for step in range(1, steps + 1):
        rewards = rng.choice([-1.0, 1.0], size=shape)
        deviation = np.maximum(rewards.std(axis=1, ddof=1, keepdims=True), 1e-6)
        advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / deviation
        lengths = rng.integers(max(length // 2, 1), 3 * length // 2 + 1, size=shape)
        prompt, response = np.repeat(np.indices(shape).reshape(2, -1), lengths.ravel(), axis=1)
        scales = np.where(rng.random(shape) < 0.5, 2.0, 8.0)[prompt, response]
        places = {
            "step": step,
            "prompt": prompt + step * prompts,
            "response": response,
            "position": np.concatenate([np.arange(n) for n in lengths.ravel()]),
            "length": lengths[prompt, response],
            "advantage": advantages[prompt, response],
            "reward": rewards[prompt, response],
            "before": "1+1=",
            "after": ";2",
        }
        frame = pd.DataFrame(places | _distributions(rng, scales, slips, top))
        frames.append(_judged(frame, rng, tau_p))
    return pd.concat(frames, ignore_index=True)


def _distributions(rng: np.random.Generator, scales: np.ndarray, slips: float, top: bool) -> dict:
    """Return what follows from each token's distribution over the vocabulary."""
    n = len(scales)
    logits = scales[:, None] * rng.random((n, V))
    peaked = 6.0 * (rng.random((n, 1)) < 0.7)
    logits += peaked * (np.arange(V) == rng.integers(V, size=(n, 1)))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    drawn = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    token = np.where(rng.random(n) < slips, rng.integers(V, size=n), drawn)
    order = np.argsort(-p, axis=1)[:, :TOP] if top else np.zeros((n, 0), int)
    entropies, probabilities = -(p * np.log(p)).sum(axis=1), p[np.arange(n), token]
    return {
        "token_id": token,
        "token": [VOCABULARY[i] for i in token],
        "probability": probabilities,
        "entropy": np.round(entropies * 1024) / 1024,
        "current_probability": probabilities,
        "current_entropy": entropies,
        "collision": (p**2).sum(axis=1),
        "top_tokens": [[VOCABULARY[i] for i in row] for row in order.tolist()],
        "top_probabilities": np.take_along_axis(p, order, axis=1).tolist(),
    }


def _judged(frame: pd.DataFrame, rng: np.random.Generator, tau_p: float) -> pd.DataFrame:
    """Return the tokens of a mini-batch with the decision of S2T and gradients."""
    ratio = np.exp(0.15 * rng.standard_normal(len(frame)))
    a, p = frame["advantage"], frame["current_probability"]
    candidate = (a > 0) & (frame["probability"] < tau_p)
    entropies = frame.loc[candidate, "entropy"]
    threshold = np.quantile(entropies, QUANTILE) if len(entropies) else np.nan
    silenced = candidate & (frame["entropy"] < threshold)
    clipped = ((a > 0) & (ratio > CLIP_HIGH)) | ((a < 0) & (ratio < CLIP_LOW))
    square = np.where(clipped, 0.0, ratio * a) ** 2
    return frame.assign(
        kind=np.where(silenced, "silenced", np.where(candidate, "retained", "other")),
        kept=~silenced,
        entropy_threshold=threshold,
        weight=1.0,
        ratio=ratio,
        gradient_norm_sq=square * (1 - 2 * p + frame["collision"]),
        lower_bound=0.0,
        upper_bound=2 * square,
    )


def drawn(
    everything: pd.DataFrame, rng: np.random.Generator, budget: dict[str, int]
) -> pd.DataFrame:
    """Return a sample of a training's tokens: at most `budget[kind]` of each kind in each step."""
    found = [everything.iloc[:0]]
    for (_, kind), frame in everything.groupby(["step", "kind"]):
        if number := min(budget[kind], len(frame)):
            chosen = np.sort(rng.choice(len(frame), size=number, replace=False))
            found.append(frame.iloc[chosen].assign(weight=len(frame) / number))
    return pd.concat(found[1:] or found, ignore_index=True)


def write_tokens(path: Path, frame: pd.DataFrame) -> None:
    schema = MARKED if "mark" in frame else SCHEMA
    rows = frame.reindex(columns=schema.names).to_dict("list")
    arrays = [pa.array(rows[one.name], type=one.type, from_pandas=True) for one in schema]
    about = json.dumps({"version": VERSION, "vocab_size": V}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays, schema=schema.with_metadata({METADATA_KEY: about})), path)


def write_study(
    root: Path,
    study: Study,
    budget: dict[str, int] = BUDGET,
    marks: Sequence[str] = (),
    **settings: float,
) -> dict[TrainingRun, pd.DataFrame]:
    """Write the token records of every training of a study; return all tokens of each, by training."""
    truth = {}
    for i, run in enumerate(study.runs()):
        rng = np.random.default_rng(i)
        everything = population(rng, steps=study.training.steps, **settings)
        everything["kept"] |= run.method != "stapo"
        if marks:
            everything["mark"] = rng.choice(marks, size=len(everything))
            everything["touched"] = ~everything["kept"]
        path = root / paths.TOKENS.format(study=study.name, **run._asdict())
        write_tokens(path, drawn(everything, rng, budget))
        truth[run] = everything
    return truth
