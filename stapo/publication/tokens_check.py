"""Check that the token records of a training are possible with its metrics, its study and each other.

Many columns follow from others: kinds from advantage, probability and threshold; weights from the numbers of
the metrics; the gradient norm and its bounds from ratio, advantage, probability, entropy and collision.
These checks do not repeat the training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import pandas as pd

from stapo.methods import Method, s2t_arguments
from stapo.publication.metrics_check import silenced_of
from stapo.records.step import StepRecord
from stapo.records.tokens import CHARACTERS, KINDS, TOP, VERSION, Kind, rows_per_step, sample_sizes
from stapo.study.fields import REWARDS
from stapo.study.schema import TrainingSettings

SORTED = ["step", "prompt", "response", "position"]
ROUNDING = 1e-5
"""Tolerance of numbers in single precision."""
PRECISION = 0.02
"""Tolerance of a bound, relative to w^2: the norm is of logits that a GPU rounds to bfloat16."""
PASSES = 0.5
"""Largest difference, in nats, of a token's log-probs in two passes of the same weights."""
RESOLUTION = 2.0**-10
"""That of entropies in a token selection (`ENTROPY_RESOLUTION` of stapo.objective)."""
CUTS = frozenset(CHARACTERS["token"] >> halvings for halvings in range(8))
"""Lengths to which texts of tokens are cut."""
CURRENT = ["ratio", "current_probability", "current_entropy"]
OF_LOGITS = ["collision", "top_tokens", "top_probabilities"]

Faults = Iterator[str]


@dataclass(frozen=True)
class _Records:
    """Token records with what they must agree with."""

    rows: pd.DataFrame
    steps: Sequence[StepRecord]
    training: TrainingSettings
    method: Method
    prompts: int
    """Number of lines of the file of prompts."""
    too_long: int
    """Number of these that are longer than the limit, and so not used."""
    vocab_size: int
    texts: Mapping[int, str] | None
    """Text of every token, if it is known."""

    def where(self, wrong: Any, what: str) -> Faults:
        """Yield the first row for which `wrong` is true."""
        (found,) = np.nonzero(np.asarray(wrong, dtype=bool))
        if len(found):
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            yield f"row {found[0] + 1}, step {self.rows['step'].iloc[found[0]]}: {what}{more}"


def token_faults(
    rows: pd.DataFrame,
    about: Mapping[str, Any],
    steps: Sequence[StepRecord],
    training: TrainingSettings,
    method: Method,
    prompts: int,
    too_long: int,
    texts: Mapping[int, str] | None = None,
) -> Faults:
    """Yield what is impossible in the token records of a training.

    Args:
        rows: columns of `records.tokens.SCHEMA`, untrusted.
        about: metadata of the file, untrusted.
        steps: metrics of all steps, which have been checked.
        training: training settings of the method in the study.
        method: method of the training.
        prompts: number of lines of the file of prompts.
        too_long: number of these that are longer than the limit.
        texts: token id -> text; None if the vocabulary is not known.
    """
    if about.get("version") != VERSION:
        yield f"of version {str(about.get('version'))[:20]!r}, expected {VERSION}"
        return
    vocab_size = about.get("vocab_size")
    if len(rows) and not (type(vocab_size) is int and 2 <= vocab_size <= 2**31):
        yield "its metadata says no size of the vocabulary"
        return
    records = _Records(rows, steps, training, method, prompts, too_long, vocab_size or 2, texts)
    for check in (
        _form_faults,
        _text_faults,
        _size_faults,
        _kind_faults,
        _policy_faults,
        _gradient_faults,
    ):
        faults = list(check(records))
        yield from faults
        if faults:  # The next checks need what this one has checked.
            return


def _form_faults(records: _Records) -> Faults:
    """Yield rows that are not tokens of this training."""
    rows, training = records.rows, records.training
    keys = rows[SORTED]
    if not keys.equals(keys.sort_values(SORTED, kind="stable").reset_index(drop=True)):
        yield f"its rows are not sorted by {', '.join(SORTED)}"
    inside = {
        "step": (1, training.steps),
        "prompt": (0, records.prompts - 1),
        "response": (0, training.group_size - 1),
        "length": (1, training.max_response_tokens),
        "token_id": (0, records.vocab_size - 1),
        "probability": (0, 1),
        "entropy": (-ROUNDING, log(records.vocab_size) * (1 + ROUNDING)),
    }
    for name, (low, high) in inside.items():
        outside = ~rows[name].between(low, high * (1 + ROUNDING))
        yield from records.where(outside, f"{name} is not within {low:.6g} and {high:.6g}")
    behind = (rows["position"] < 0) | (rows["position"] >= rows["length"])
    yield from records.where(behind, "its position is not within the response")
    for name in ("advantage", "reward", "weight"):
        yield from records.where(~np.isfinite(rows[name]), f"{name} is not a finite number")
    yield from records.where(~rows["kind"].isin(KINDS), "an unknown kind")
    for name, most in CHARACTERS.items():
        yield from records.where(rows[name].str.len() > most, f"{name} is longer than {most}")
    several = rows.groupby("token_id")["token"].transform("nunique") > 1
    yield from records.where(several, "its token has two texts")
    if training.reward in REWARDS and not training.overlong_buffer_tokens:
        yield from records.where(rows["reward"].abs() != 1, "its reward is neither 1 nor -1")
    used = training.steps * training.prompts_per_mini_batch
    if used <= records.prompts - records.too_long:  # Otherwise a prompt may be in a step twice.
        yield from records.where(rows.duplicated(SORTED), "the same token twice")
    groups = rows.groupby("step")["prompt"].nunique()
    if (groups > training.prompts_per_mini_batch).any():
        yield f"a step has more than {training.prompts_per_mini_batch} prompts"


def _text_faults(records: _Records) -> Faults:
    """Yield tokens with another text than in the vocabulary; ids beyond it have none."""
    if records.texts is None:
        return
    texts, rows = records.texts, records.rows
    wrong = [
        not _is_cut(text, texts.get(token_id, ""))
        for token_id, text in zip(rows["token_id"], rows["token"], strict=True)
    ]
    yield from records.where(wrong, "its token is another one in the vocabulary")
    known = {"", *(text[: CHARACTERS["token"]] for text in texts.values())}
    foreign = [
        top is not None and any(text not in known and len(text) not in CUTS for text in top)
        for top in rows["top_tokens"]
    ]
    yield from records.where(foreign, "a most likely token that is not in the vocabulary")


def _is_cut(text: str, whole: str) -> bool:
    """Return whether a text is another one, or its beginning where texts are cut."""
    return text == whole or (len(text) in CUTS and whole.startswith(text))


def _size_faults(records: _Records) -> Faults:
    """Yield steps whose sampled tokens and weights do not agree with the metrics."""
    training, rows = records.training, records.rows
    allowed = rows_per_step(training.token_records_mb, training.steps)
    found: dict[Any, list[float]] = {
        key: own.tolist() for key, own in rows.groupby(["step", "kind"])["weight"]
    }
    sampled = rows.groupby("step").size()
    # A training that was started with a smaller limit is not done again for a larger one.
    designs = {allowed, *([int(sampled.max())] if len(sampled) else [])}
    for record in records.steps:
        sizes, counts = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        for kind in KINDS:
            if weights := found.get((record.step, kind)):
                size, weight = len(weights), weights[0]
                count = round(weight * size)
                unlike = len(set(weights)) > 1 or abs(count - weight * size) > ROUNDING * count
                if unlike or weight < 1:
                    yield f"step {record.step}: weights of {kind} tokens that are no share of them"
                    return
                sizes[kind], counts[kind] = size, count
        if sum(sizes.values()) > allowed:
            found_size = sum(sizes.values())
            yield f"step {record.step}: {found_size} tokens, token_records_mb allows {allowed}"
            return
        counts |= _of_metrics(record, records.method, counts, sizes)
        designs = {rows for rows in designs if sample_sizes(counts, rows) == sizes}
        stated = (record.num_candidates, record.num_tokens)
        if (counts["silenced"] + counts["retained"], sum(counts.values())) != stated:
            yield f"step {record.step}: weights give {counts}, metrics {stated[0]} of {stated[1]} tokens"
            return
        if not designs:
            yield f"step {record.step}: samples of {sizes} tokens; no limit gives these for all steps"
            return


def _of_metrics(
    record: StepRecord, method: Method, counts: Mapping[Kind, int], sizes: Mapping[Kind, int]
) -> dict[Kind, int]:
    """Return the numbers of tokens of kinds without a sampled token, and of kinds that metrics count."""
    known: dict[Kind, int] = {}
    if not sizes["other"]:
        known["other"] = record.num_tokens - record.num_candidates
    if method.selection == "silence_spurious":
        known["silenced"] = record.num_silenced
        known["retained"] = record.num_candidates - record.num_silenced
        wrong = any(
            sizes[kind] and counts[kind] != known[kind] for kind in known if kind != "other"
        )
        return {} if wrong else known
    if not sizes["silenced"] and not sizes["retained"]:
        known["retained"] = record.num_candidates
    elif not sizes["retained"]:
        known["retained"] = record.num_candidates - counts["silenced"]
    elif not sizes["silenced"]:
        known["silenced"] = record.num_candidates - counts["retained"]
    return known


def _kind_faults(records: _Records) -> Faults:
    """Yield tokens of another kind than their numbers give, or that the method keeps or drops otherwise."""
    rows, args = records.rows, s2t_arguments(records.method)
    rare = rows["probability"] <= np.float32(args["tau_p"])
    common = rows["probability"] >= np.float32(args["tau_p"])
    other, silenced = rows["kind"] == "other", rows["kind"] == "silenced"
    candidate, positive = ~other, rows["advantage"] > 0
    yield from records.where(candidate & ~(rare & positive), "no candidate by its numbers")
    yield from records.where(other & ~common & positive, "a candidate by its numbers")
    threshold = rows["entropy_threshold"]
    rounded = (rows["entropy"].astype(float) / RESOLUTION).round() * RESOLUTION
    yield from records.where(candidate & threshold.isna(), "a candidate without a threshold")
    yield from records.where(silenced & (rounded > threshold), "silenced above the threshold")
    yield from records.where(
        candidate & ~silenced & (rounded < threshold), "retained below the threshold"
    )
    if (rows.groupby("step")["entropy_threshold"].nunique(dropna=False) > 1).any():
        yield "a step has two thresholds"
    for step, own in rows[candidate].groupby("step"):
        if args["scope"] == "candidates" and (own["weight"] == 1).all():
            level = np.quantile(rounded[own.index], float(args["quantile"]))
            if abs(level - own["entropy_threshold"].iloc[0]) > ROUNDING * max(level, 1):
                yield f"step {step}: its threshold is not the quantile of its candidates"
                break
    kept = rows["kept"]
    if silenced_of(10**6, records.method).least == 10**6:
        yield from records.where(kept & candidate, "kept by a method that silences all candidates")
    if records.method.spec.silenced is not None:
        yield from records.where(other & ~kept, "dropped, but no candidate")
        if records.method.selection == "silence_spurious":
            yield from records.where(candidate & (kept == silenced), "kept against its kind")
    elif records.method.spec.kept is not None:
        everything = records.method.spec.kept(10**6, records.method.arguments) == 10**6
        yield from records.where(~kept & everything, "dropped by a method that keeps all tokens")
        lowest = rounded.where(kept).groupby(rows["step"]).transform("min")
        yield from records.where(~kept & (rounded > lowest), "dropped, but of higher entropy")


def _policy_faults(records: _Records) -> Faults:
    """Yield impossible columns of the current policy."""
    rows, training, method = records.rows, records.training, records.method
    passed, known = rows["ratio"].notna(), rows["collision"].notna()
    for name in CURRENT:
        yield from records.where(rows[name].notna() != passed, f"only a part of {CURRENT}")
    for name in OF_LOGITS:
        yield from records.where(rows[name].notna() != known, f"only a part of {OF_LOGITS}")
    yield from records.where(known & ~passed, "a collision probability without a pass")
    with_kl, has_gradient = method.kl_coefficient > 0, rows["advantage"] != 0
    yield from records.where(passed & ~has_gradient & (not with_kl), "a pass without an advantage")
    needed = rows["kept"] & (has_gradient | with_kl)
    yield from records.where(needed & ~passed, "no pass, though it contributes to the loss")
    p, size = rows["current_probability"], records.vocab_size
    limits = {
        "ratio": (0, np.inf),
        "current_probability": (0, 1),
        "current_entropy": (-ROUNDING, log(size) * (1 + ROUNDING)),
        "collision": (1 / size, 1),
    }
    for name, (low, high) in limits.items():
        outside = ~rows[name].between(low * (1 - ROUNDING) - ROUNDING, high * (1 + ROUNDING))
        there = passed if name in CURRENT else known
        yield from records.where(there & outside, f"{name} is not within {low:.6g} and {high:.6g}")
    square = p.astype(float) ** 2
    yield from records.where(
        known & (rows["collision"] < square - PRECISION), "a collision below its own share"
    )
    yield from _top_faults(records, known)
    rollout = training.prompts_per_batch // training.prompts_per_mini_batch
    first = (rows["step"] - 1) % rollout == 0
    reads = {"none": rows["step"] < 0, "positive": rows["advantage"] > 0, "all": rows["step"] > 0}
    current = ~first & reads[method.reads] & (training.statistics == "current")
    product = rows["probability"].astype(float) * rows["ratio"]
    differs = (product - p).abs() > ROUNDING + 1e-3 * p
    yield from records.where(
        passed & ~current & differs, "its ratio is not that of its probabilities"
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(np.log(p.astype(float)) - np.log(rows["probability"].astype(float))) > PASSES
    yield from records.where(passed & (current | first) & far, "two probabilities of one policy")


def _top_faults(records: _Records, known: Any) -> Faults:
    """Yield rows whose most likely tokens are not the most likely, or too many."""
    rows = records.rows[known]
    number = min(TOP, records.vocab_size)
    for index, texts, values, p, collision in zip(
        rows.index, rows["top_tokens"], rows["top_probabilities"], rows["current_probability"],
        rows["collision"], strict=True,
    ):  # fmt: skip
        top = np.asarray(values, dtype=float)
        right = len(texts) == TOP == len(top) and np.isfinite(top).all()
        right = right and max(map(len, texts)) <= CHARACTERS["token"]
        right = right and (np.diff(top) <= 0).all() and top[-1] >= 0
        right = right and top.sum() <= 1 + ROUNDING and top[:number].min() >= 0
        right = right and p <= top[0] + PRECISION and (top**2).sum() <= collision + ROUNDING
        if not right:
            yield f"row {index + 1}: not the {TOP} most likely tokens"
            return


def _gradient_faults(records: _Records) -> Faults:
    """Yield gradient norms and bounds that do not follow from the other columns."""
    rows, method, size = records.rows, records.method, records.vocab_size
    names = ["gradient_norm_sq", "lower_bound", "upper_bound"]
    exact, lower, upper = (rows[name].astype(float) for name in names)
    passed, known = rows["ratio"].notna(), rows["collision"].notna()
    yield from records.where(~passed & (rows[names] != 0).any(axis=1), "a gradient without a pass")
    ratio, advantage = rows["ratio"].astype(float), rows["advantage"].astype(float)
    low, high = 1 - method.clip_low, 1 + method.clip_high
    dual = method.dual_clip or np.inf
    is_clipped = np.where(advantage > 0, ratio > high, (ratio < low) | (ratio > dual))
    edges = np.minimum.reduce([np.abs(ratio - edge) for edge in (low, high, dual)])
    sure = passed & (edges > ROUNDING)
    free = sure & ~is_clipped & (advantage != 0)
    zero = sure & ~free
    yield from records.where(zero & (rows[names] != 0).any(axis=1), "a gradient, but it is clipped")
    unknown = exact.isna()
    yield from records.where(unknown & (known | ~passed), "no gradient norm")
    if records.training.rollout_correction is not None:
        # The importance weight of a token, which scales all three, is not recorded.
        square = (upper - lower).abs()
    else:
        square = (ratio * advantage) ** 2
        p, entropy = (rows[name].astype(float) for name in CURRENT[1:])
        curvature = (size - 1) / (size * log(size) ** 2)
        formulas = {
            "gradient_norm_sq": (1 - 2 * p + rows["collision"]).clip(lower=0),
            "lower_bound": 1 - 2 * p + np.exp(-entropy),
            "upper_bound": 2 - 2 * p - curvature * entropy**2,
        }
        for name, factor in formulas.items():
            differs = (rows[name] - square * factor).abs() > ROUNDING * square
            what = f"its {name} is not that of its other columns"
            yield from records.where(free & rows[name].notna() & differs, what)
    slack = PRECISION * square.fillna(0) + ROUNDING
    outside = (exact < lower - slack) | (exact > upper + slack)
    yield from records.where(outside, "its gradient norm is not within its bounds")
