"""Check that the metrics of a training are possible with the settings of its study and method.

Many values of a record follow from others: built-in rewards are +1 or -1, so that their mean over a
mini-batch has few possible values; a method that silences nothing keeps every token; the schedule determines
the learning rate. These checks do not repeat the training.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, isfinite
from typing import Any

from stapo.methods import Method, Silenced
from stapo.records.step import (
    COUNTS,
    NESTED,
    NUMBERS,
    OF_VLLM,
    QUANTILES,
    ROLLOUT,
    UPDATE,
    StepRecord,
)
from stapo.study.fields import REWARDS
from stapo.study.schema import TrainingSettings

SHARES = tuple(name for name in NUMBERS if name.endswith("_fraction"))
ROUNDING = 1e-5
"""Tolerance for means in single precision."""
MANY = 5
"""Number of steps with candidates in which silencing none is an error; in fewer, entropies may be equal."""


@dataclass(frozen=True)
class Step:
    """Values of a step by which trainings are distinguished."""

    entropy: float
    loss: float
    gradient_norm: float
    kept_fraction: float


def metrics_faults(
    records: Iterator[dict[str, Any]], training: TrainingSettings, method: Method
) -> tuple[list[Step], dict[str, float], list[str]]:
    """Return the steps of a training, its seconds by phase, and contradictions to its settings.

    Args:
        records: records of `metrics.jsonl`, untrusted.
        training: training settings of the method in the study.
        method: method of the training.
    """
    steps: list[Step] = []
    seconds: dict[str, float] = {}
    faults: list[str] = []
    unsilenced = silenced = with_kl = 0
    for number, line in enumerate(records, 1):
        fault = _form_fault(line, training, method)
        if fault is None:
            record = StepRecord(**line)
            fault = next(_faults(record, number, training, method), None)
        if fault:
            faults.append(f"step {number}: {fault}")
            break
        steps.append(Step(**{name: getattr(record, name) for name in Step.__dataclass_fields__}))
        for phase, value in record.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + value
        expected = silenced_of(record.num_candidates, method).usual
        unsilenced += expected > 0 and not record.num_silenced
        silenced += record.num_silenced
        with_kl += record.kl > 0
    else:
        if len(steps) != training.steps:
            faults.append(f"holds {len(steps)} steps, the study has {training.steps}")
        if unsilenced >= MANY and not silenced:
            faults.append(f"several candidates in {unsilenced} steps, but none was ever silenced")
        moved = any(step.gradient_norm > 0 for step in steps[:-1])
        if method.kl_coefficient > 0 and moved and not with_kl:
            faults.append("the KL divergence is always 0, though the method has such a term")
    return steps, seconds, faults


def _form_fault(record: Any, training: TrainingSettings, method: Method) -> str | None:
    """Return why a record does not have the fields of a step, None if it does."""
    expected = {
        *NUMBERS,
        *COUNTS,
        *NESTED,
        *(("mask_scope",) if method.spec.has_threshold else ()),
        *_of_vllm(training),
    }
    if not isinstance(record, dict) or record.keys() != expected:
        found = set(record) if isinstance(record, dict) else set()
        return f"other fields than this method's: {', '.join(sorted(expected ^ found)[:5])}"
    nested = [record[name] for name in NESTED]
    if not all(isinstance(value, dict) for value in nested):
        return f"{' or '.join(NESTED)} is not a mapping"
    numbers = [record[name] for name in (*NUMBERS, *_of_vllm(training))]
    numbers += [v for value in nested for v in value.values()]
    if not all(type(number) in (int, float) and isfinite(number) for number in numbers):
        return "a value is not a finite number"
    if not all(type(record[name]) is int and record[name] >= 0 for name in COUNTS):
        return f"{', '.join(COUNTS)}: not all are counts"
    return None


def _faults(
    record: StepRecord, number: int, training: TrainingSettings, method: Method
) -> Iterator[str]:
    """Yield the values of a record that its settings do not allow."""
    if record.step != number:
        yield f"its number is {record.step}"
    warm = min(1.0, (number - 1) / training.warmup_steps) if training.warmup_steps else 1.0
    expected = training.learning_rate * warm
    if not isclose(record.learning_rate, expected, rel_tol=1e-9, abs_tol=1e-300):
        yield f"learning rate {record.learning_rate}, by the study {expected}"
    yield from _size_faults(record, training)
    yield from _selection_faults(record, method)
    yield from _phase_faults(record, number, training)
    if _of_vllm(training):
        yield from _mismatch_faults(record, training)
    quantiles = list(record.entropy_quantiles.values())
    if list(record.entropy_quantiles) != [str(level) for level in QUANTILES]:
        yield "other quantiles of the entropy"
    if quantiles != sorted(quantiles) or min(*quantiles, record.entropy) < -ROUNDING:
        yield "the quantiles of the entropy are not in increasing order, or negative"
    if method.kl_coefficient == 0 and record.kl != 0:
        yield f"a KL divergence of {record.kl}, but the method has no such term"
    if record.kl < -ROUNDING or record.gradient_norm < 0:
        yield "a negative KL divergence or gradient norm"
    if record.zero_advantage_fraction == 1 and method.kl_coefficient == 0 and record.loss:
        yield f"a loss of {record.loss} without any advantage"


def _size_faults(record: StepRecord, training: TrainingSettings) -> Iterator[str]:
    """Yield the values of a record that are impossible for a mini-batch of this size."""
    groups = training.prompts_per_mini_batch
    responses, tokens = groups * training.group_size, record.num_tokens
    if not 1 <= tokens <= responses * training.max_response_tokens:
        yield f"{tokens} tokens in {responses} responses of at most {training.max_response_tokens}"
    length = tokens / responses
    if not isclose(record.response_length, length, rel_tol=ROUNDING) and tokens > 1:
        yield f"a mean length of {record.response_length}, its tokens give {length}"
    if not all(-ROUNDING <= getattr(record, name) <= 1 + ROUNDING for name in SHARES):
        yield "a share is not between 0 and 1"
    # With only two reward values, either all responses of a group have an advantage or none.
    plain = training.reward in REWARDS and not training.overlong_buffer_tokens
    advantaged = groups if plain else responses
    counted = {
        "truncated_fraction": (record.truncated_fraction, responses),
        "zero_advantage_fraction": (record.zero_advantage_fraction, advantaged),
        "clip_low_fraction": (record.clip_low_fraction, tokens),
        "clip_high_fraction": (record.clip_high_fraction, tokens),
    }
    yield from reward_faults(record.reward, responses, training)
    for name, (share, of) in counted.items():
        if abs(share * of - round(share * of)) > max(1e-3, ROUNDING * of):
            yield f"{name} {getattr(record, name)} is no share of {of}"


def reward_faults(reward: float, responses: int, training: TrainingSettings) -> Iterator[str]:
    """Yield why a mean reward is impossible; for a user's reward function, any number is possible."""
    if training.reward not in REWARDS:
        return
    if training.overlong_buffer_tokens:
        if not -2 - ROUNDING <= reward <= 1 + ROUNDING:
            yield f"reward {reward} is not within -2, wrong and overlong, and 1"
        return
    right = (reward + 1) / 2
    if not 0 <= right <= 1 or abs(right * responses - round(right * responses)) > max(
        1e-3, ROUNDING * responses
    ):
        yield f"reward {reward} is no share of {responses}"


def silenced_of(num_candidates: int, method: Method) -> Silenced:
    """Return the numbers of candidates that a method can silence."""
    spec = method.spec
    if spec.silenced:
        return spec.silenced(num_candidates, method.arguments)
    return Silenced(0, 0 if spec.is_known else num_candidates, 0)


def _selection_faults(record: StepRecord, method: Method) -> Iterator[str]:
    """Yield the values of a record that the method's selection cannot give."""
    tokens, candidates = record.num_tokens, record.num_candidates
    silenced, spec = record.num_silenced, method.spec
    least, most, _ = silenced_of(candidates, method)
    if not least <= silenced <= most or candidates > tokens:
        yield f"{silenced} of {candidates} candidates silenced, by the method {least} to {most}"
    kept = round(record.kept_fraction * tokens)
    if spec.kept is not None:
        kept = spec.kept(tokens, method.arguments)
    elif spec.silenced is not None:
        kept = tokens - silenced
    counts = {
        "candidate_fraction": candidates,
        "silenced_fraction": silenced,
        "kept_fraction": kept,
    }
    for name, count in counts.items():
        if not isclose(getattr(record, name), count / tokens, rel_tol=1e-9):
            yield f"{name} {getattr(record, name)}, its counts give {count / tokens}"
    own = {"num_dropped": tokens - kept, "num_different": 0}
    if spec.has_threshold:
        scopes = record.mask_scope
        if not isinstance(scopes, dict) or scopes.get("mini_batch") != own:
            yield "mask_scope: not what was dropped"


def _of_vllm(training: TrainingSettings) -> tuple[str, ...]:
    """Return the fields that a record has because of vLLM's rollouts."""
    return OF_VLLM if training.rollouts != "transformers" else ()


def _mismatch_faults(record: StepRecord, training: TrainingSettings) -> Iterator[str]:
    """Yield why differences between vLLM's and the trainer's log-probs are impossible."""
    mean, largest = record.rollout_mismatch or 0.0, record.rollout_mismatch_max or 0.0
    if not 0 <= mean <= largest * (1 + ROUNDING):
        yield f"a mean rollout mismatch of {mean}, the largest is {largest}"
    if not 0 <= (record.rollout_changed_fraction or 0.0) <= 1:
        yield "rollout_changed_fraction is not between 0 and 1"
    limit = training.rollout_mismatch_limit
    if limit is not None and mean > limit:
        yield f"a mean rollout mismatch of {mean}, the study stops at {limit}"


def _phase_faults(record: StepRecord, number: int, training: TrainingSettings) -> Iterator[str]:
    """Yield contradictions between the phases of a step and its position in the rollout."""
    first = (number - 1) % (training.prompts_per_batch // training.prompts_per_mini_batch) == 0
    phases = record.seconds
    if first != (ROLLOUT in phases) or UPDATE not in phases:
        yield f"is {'the first' if first else 'not the first'} step of a rollout, by its phases not"
    if any(value < 0 for value in phases.values()):
        yield "negative seconds"
