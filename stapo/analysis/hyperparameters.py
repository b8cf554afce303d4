"""The hyperparameters of a study beside the paper's, and its algorithm in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stapo.methods import Method
from stapo.reference import confidence, paper
from stapo.study import Study
from stapo.study.schema import TrainingSettings

ALL = "all"
OFF = "off"
NOT_STATED = "not stated"
OWN = "our choice: the paper does not state it"
LABELS = {
    "steps": "optimiser steps",
    "prompts_per_batch": "prompts per rollout",
    "group_size": "responses per prompt, G",
    "prompts_per_mini_batch": "prompts per mini-batch",
    "learning_rate": "learning rate (AdamW)",
    "warmup_steps": "warm-up steps",
    "gradient_clip": "maximum norm of the gradient",
    "max_prompt_tokens": "maximum prompt [tokens]",
    "max_response_tokens": "maximum response [tokens]",
    "temperature": "temperature of rollouts",
    "top_p": "top-p of rollouts",
    "advantage_epsilon": "epsilon of the advantage",
    "statistics": "policy whose p and H select tokens",
    "overlong_buffer_tokens": "overlong buffer [tokens]",
    "clip_low": "lower clip, ε_low",
    "clip_high": "upper clip, ε_high",
    "aggregation": "mean of the loss",
    "kl_coefficient": "KL coefficient",
    "dual_clip": "dual clip",
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "scope": "tokens of the quantile",
    "fraction": "share of the tokens that are kept",
}
"""Setting -> how the table calls it, if not by its name with spaces."""
OF_METHODS = ("clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip")


@dataclass(frozen=True)
class Setting:
    """A setting of some methods."""

    setting: str
    methods: str
    """Their titles, or `ALL`."""
    ours: str
    paper: str
    source: str


def settings(study: Study) -> Iterator[Setting]:
    """Yield the hyperparameters of the study as run, beside the paper's."""
    yield from _training_rows(study)
    yield from _method_rows(study)
    yield from _evaluation_rows(study)


def _shown(value: Any) -> str:
    if value is None:
        return OFF
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def _label(setting: str) -> str:
    return LABELS.get(setting, setting.replace("_", " "))


def _source(ours: Any, stated: Any, letter: str, elsewhere: str = "") -> str:
    about = f"; {elsewhere}" if elsewhere else ""
    if stated is None:
        return OWN + about
    verdict = "as in the paper" if ours == stated else "differs from the paper"
    return f"{verdict} [{confidence(letter)}]{about}"


def _training_rows(study: Study) -> Iterator[Setting]:
    training = {name: study.training_of(name) for name in study.run.methods}
    for one in paper()["hyperparameters"]["training"]:
        setting, stated = one["setting"], one["value"]
        for titles, ours in _grouped(
            study, {m: getattr(of, setting) for m, of in training.items()}
        ):
            yield Setting(
                _label(setting),
                titles,
                _shown(ours),
                NOT_STATED if stated is None else _shown(stated),
                _source(ours, stated, one["confidence"], one.get("elsewhere", "")),
            )


def _grouped(study: Study, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the titles of the methods with each value, and the value."""
    for value in dict.fromkeys(values.values()):
        names = [name for name, own in values.items() if own == value]
        everyone = len(names) == len(study.run.methods)
        yield ALL if everyone else ", ".join(study.method(name).title for name in names), value


def _method_rows(study: Study) -> Iterator[Setting]:
    """Yield the settings of methods: a row for all with the same value here and in the paper."""
    methods = {name: study.method(name) for name in study.run.methods}
    arguments = dict.fromkeys(key for method in methods.values() for key in method.arguments)
    elsewhere = paper()["hyperparameters"]["elsewhere"]
    for setting in (*OF_METHODS, *arguments):
        values = {
            name: _pair(study, name, setting)
            for name, method in methods.items()
            if setting in OF_METHODS or setting in method.arguments
        }
        for titles, (ours, stated, letter) in _grouped(study, values):
            yield Setting(
                _label(setting),
                titles,
                _shown(ours),
                NOT_STATED if stated is None else _shown(stated),
                _source(ours, stated, letter, elsewhere.get(setting, "")),
            )


def _pair(study: Study, name: str, setting: str) -> tuple[Any, Any, str]:
    """Return a method's setting here, in the paper (None if it is not stated), and how sure that is."""
    method = study.method(name)
    ours = method.arguments[setting] if setting in method.arguments else getattr(method, setting)
    stated = paper()["hyperparameters"]["methods"].get(study.origin_of(name), {})
    if setting not in stated:
        return ours, None, ""
    return (
        ours,
        stated[setting],
        "L" if setting in stated.get("inferred", ()) else stated["confidence"],
    )


def _evaluation_rows(study: Study) -> Iterator[Setting]:
    known = paper()["hyperparameters"]
    for one in known["evaluation"]:
        ours, stated = getattr(study.evaluation, one["setting"]), one["value"]
        source = _source(ours, stated, one["confidence"])
        yield Setting(
            f"{_label(one['setting'])}, evaluation", ALL, _shown(ours), _shown(stated), source
        )
    for name in study.run.benchmarks:
        samples, stated = study.benchmarks[name].samples, known["samples"]["values"].get(name)
        source = _source(samples, stated, known["samples"]["confidence"])
        shown = NOT_STATED if stated is None else _shown(stated)
        yield Setting(f"responses per problem, {name}", ALL, _shown(samples), shown, source)


def algorithm(study: Study) -> list[str]:
    """Return Algorithm 1 as the study runs it, in lines of plain text: one for each distinct method.

    Source: arXiv 2602.15620 v5, Algorithm 1; the other methods in the same words.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for name in study.run.methods:
        found.setdefault((*_steps(study, name),), []).append(study.method(name).title)
    lines: list[str] = []
    for steps, titles in found.items():
        lines += ([""] if lines else []) + [", ".join(titles), *steps]
    return lines


def _steps(study: Study, name: str) -> list[str]:
    method, training = study.method(name), study.training_of(name)
    updates = training.prompts_per_batch // training.prompts_per_mini_batch
    lines = [
        f"repeat until {training.steps} updates are done:",
        f"  sample G = {training.group_size} responses to each of {training.prompts_per_batch} prompts "
        f"(T = {training.temperature:g}, top-p = {training.top_p:g}, at most "
        f"{training.max_response_tokens} tokens)",
        f"  R: reward of each response ({training.reward})",
        f"  A = (R - mean R) / (std R + {training.advantage_epsilon:g}) over the G responses to a prompt, "
        "with the sample standard deviation",
        f"  for each mini-batch of {training.prompts_per_mini_batch} prompts ({updates} per rollout):",
        *(f"    {line}" for line in _selection(method, training)),
        "    r = p of the current policy / p of the policy of the rollout",
        f"    J = {_mean(method)} of {_surrogate(method)}",
    ]
    if method.kl_coefficient:
        lines.append(f"    J = J - {method.kl_coefficient:g} · KL to the base model (k3 estimate)")
    lines.append(
        f"    AdamW ascends J: learning rate {training.learning_rate:g} after {training.warmup_steps} steps "
        f"of warm-up, weight decay {training.weight_decay:g}, gradient norm up to {training.gradient_clip:g}"
    )
    return lines


def _surrogate(method: Method) -> str:
    low, high = 1 - method.clip_low, 1 + method.clip_high
    found = f"min(r A, clip(r, {low:g}, {high:g}) A)"
    return f"{found}, at least {method.dual_clip:g} A where A < 0" if method.dual_clip else found


def _mean(method: Method) -> str:
    """Return the mean that divides the loss, in words."""
    return {
        "token_mean": "mean over the kept tokens of the mini-batch",
        "group_token_mean": "mean over groups of the mean over the kept tokens of a group",
        "sequence_mean": "mean over responses of the mean over the kept tokens of a response",
    }[method.aggregation]


SELECTIONS = {
    "silence_spurious": (
        "candidates: tokens with A > 0 and p < {tau_p:g}",
        "τ_h = {quantile:g} quantile of H of {scope} of the mini-batch",
        "silence candidates with H < τ_h; keep all other tokens",
    ),
    "silence_high_entropy": (
        "candidates: tokens with A > 0 and p < {tau_p:g}",
        "τ_h = 1 - {quantile:g} quantile of H of {scope} of the mini-batch",
        "silence candidates with H > τ_h; keep all other tokens",
    ),
    "silence_random": (
        "candidates: tokens with A > 0 and p < {tau_p:g}",
        "silence a random {quantile:g} of the candidates; keep all other tokens",
    ),
    "silence_candidates": ("silence tokens with A > 0 and p < {tau_p:g}; keep all other tokens",),
    "keep_high_entropy": ("keep the {fraction:g} of the mini-batch's tokens with the highest H",),
}
"""Token selection -> its lines."""
SCOPES = {"candidates": "the candidates", "all": "all response tokens"}


def _selection(method: Method, training: TrainingSettings) -> list[str]:
    """Return what a token selection does; name and arguments if it is not known here."""
    arguments = dict(method.arguments)
    if method.reads == "none":
        return ["keep all tokens"]
    policy = {"current": "the current policy", "behaviour": "the policy of the rollout"}
    first = f"p, H: probability and entropy of each token, of {policy[training.statistics]}"
    if method.selection not in SELECTIONS:
        given = ", ".join(f"{key} = {_shown(value)}" for key, value in arguments.items())
        return [first, f"select tokens by {method.selection} ({given})"]
    if "scope" in arguments:
        arguments["scope"] = SCOPES[str(arguments["scope"])]
    return [first, *(line.format(**arguments) for line in SELECTIONS[method.selection])]
