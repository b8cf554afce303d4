"""Hypothesis strategies for study files: valid ones with values near their bounds, and invalid ones."""

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import Study

SMOKE: dict[str, Any] = yaml.safe_load((ROOT / "workflows" / "studies" / "smoke.yaml").read_text())
FAMILIES = SMOKE["run"]["benchmarks"]
BASES = ("grpo", "20-entropy", "justrl", "stapo", "stapo-v2", "high-entropy", "random", "full-mask")
PLAIN = st.sampled_from(
    "a 0 1e3 seed0 step5 method main-a all train nul a.b 1.7B true 010 2020-01-01 0x10 bases Verifiers "
    f"null {'x' * 20} {'ab' * 19} x-{'abcdefghij' * 11}".split()
) | st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9.+-]{0,12}\Z")
EQUAL = "a-b a+b A.B a.b base Base verifier VERIFIER verifier.json README.md ReadMe.md"
COLLIDING = st.sampled_from(EQUAL.split())
NAMES = st.integers(0, 9).flatmap(lambda die: PLAIN if die else COLLIDING)
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20
)
TEXTS |= st.sampled_from(["'\"$`\\!", "{x} {{y}}", "a b", "$(id); rm", "%s\u3042", "#: - ?", "- a"])
DIRTY = st.text(max_size=20) | st.sampled_from(
    ["", " ", "a\n\tb", "\x1b[31m", "\u202ex", "\ud800", "\0", "\x85", "\ufeff", "x" * 20_000]
)
"""Texts that are invalid in most places."""


def near(low: float, high: float, whole: bool = True) -> st.SearchStrategy[Any]:
    """Numbers at and near two bounds, in different notations."""
    if whole:
        number = st.sampled_from([int(low), int(low) + 1, int(high) - 1, int(high)])
        return st.one_of(number, number.map(str), number.map(float))
    inner = st.floats(low, high, allow_nan=False)
    return st.one_of(st.sampled_from([low, high]), inner, inner.map(lambda x: f"{x:.3e}"))


TRAINING = {
    "group_size": near(2, 1024),
    "micro_batch_tokens": near(1, 10**9),
    "learning_rate": near(1e-12, 1, False),
    "warmup_steps": near(0, 10**6),
    "weight_decay": near(0, 1, False),
    "decayed": st.sampled_from(["matrices", "all"]),
    "gradient_clip": near(1e-6, 1e9, False),
    "max_prompt_tokens": near(1, 2**20),
    "max_response_tokens": near(1, 2**20),
    "temperature": near(0.01, 100, False),
    "top_p": near(1e-6, 1, False),
    "advantage_epsilon": near(1e-12, 1, False),
    "statistics": st.sampled_from(["behaviour", "current"]),
    "rollouts": st.sampled_from(["transformers", "vllm-colocate"]),
    "instruction": TEXTS | st.sampled_from(["", "a\n\n\tb", "x" * 10_000, "\u3042" * 10_000]),
    "checkpoint_every": near(1, 10**6),
    "reward": st.sampled_from(["boxed"]),
    "overlong_buffer_tokens": st.sampled_from([None, 0, 1, 2, 2**20]),
}
METHOD = {
    "title": TEXTS,
    "clip_low": near(1e-9, 1, False),
    "clip_high": near(1e-9, 1000, False),
    "kl_coefficient": near(0, 1000, False),
    "dual_clip": near(1.5, 1e6, False),
}
DECODING = {
    "temperature": near(0.01, 100, False),
    "top_p": near(1e-300, 1, False),
    "top_k": near(0, 10**6),
}


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the fields of a section."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly valid studies, with values at their bounds and names that are nearly equal."""
    raw = copy.deepcopy(SMOKE)
    raw["name"] = draw(NAMES)
    mini, rollouts = draw(st.sampled_from([1, 3, 16])), draw(st.sampled_from([1, 4]))
    steps = rollouts * draw(st.sampled_from([1, 7, 200]))
    raw["training"] |= draw(some(TRAINING)) | {
        "prompts_per_batch": mini * rollouts, "prompts_per_mini_batch": mini, "steps": steps,
    }  # fmt: skip
    sizes, variants, decodings = (
        draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)) for _ in range(3)
    )
    builder = {"builder": "tiny-arithmetic", "supervised_steps": 1}
    raw["models"] = {size: builder | draw(some({"hidden_size": near(1, 4096)})) for size in sizes}
    bases = st.sampled_from(BASES)
    raw["methods"] = {name: {"base": draw(bases)} | draw(some(METHOD)) for name in variants}
    decoding = {"temperature": 1.0, "top_p": 1.0}
    raw["decodings"] = {name: decoding | draw(some(DECODING)) for name in decodings}
    raw["evaluation"] |= draw(some({"batch_size": near(1, 10**6), "seed": near(0, 2**31 - 1)}))
    raw |= draw(some({"end_tokens": st.lists(TEXTS, max_size=3)}))
    if draw(st.booleans()):
        raw["training"]["evaluate_every"] = every = draw(st.sampled_from([1, 7, 200, 10**6]))
        raw["evaluation"]["select"] = draw(st.sampled_from(["last", every, str(every), steps]))
    benchmarks = draw(st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=3, unique=True))
    if draw(st.booleans()):
        raw["evaluation"]["curve"] = {
            "every": draw(st.sampled_from([5, 200, 10**6])),
            "benchmarks": draw(
                st.lists(st.sampled_from(benchmarks), min_size=1, max_size=2, unique=True)
            ),
            "decoding": draw(st.sampled_from(decodings)),
        }
    seeds = draw(
        st.lists(
            near(0, 2**31 - 1), min_size=1, max_size=3, unique_by=draw(st.sampled_from([int, str]))
        )
    )
    chosen = variants + draw(st.lists(st.sampled_from(BASES), max_size=2))
    raw["run"] = {
        "sizes": sizes, "methods": chosen, "seeds": seeds, "decodings": decodings, "benchmarks": benchmarks,
    }  # fmt: skip
    return raw


ODD = st.sampled_from(
    [None, True, -1, 0, 10**5000, 1e308, 0.5, [], {}, "1e-300", "1e999", ".inf", "0x10"]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | DIRTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(DIRTY, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def broken_studies(draw: st.DrawFn) -> dict[str, Any]:
    """Studies with up to four values replaced, removed, moved to another key or added."""
    raw = draw(studies())
    for _ in range(draw(st.integers(1, 3))):
        section: Any = raw
        while True:
            key = draw(
                st.sampled_from(list(section) if isinstance(section, dict) else range(len(section)))
            )
            inner = section[key]
            if not inner or not isinstance(inner, dict | list) or draw(st.booleans()):
                break
            section = inner
        change = draw(st.sampled_from(["replace", "remove", "move", "add"]))
        if change == "replace" or isinstance(section, list):
            section[key] = draw(ODD)
        elif change == "add":
            section[draw(DIRTY)] = draw(ODD)
        else:
            value = section.pop(key)
            if change == "move":
                section[key + draw(st.sampled_from("sx_"))] = value
    return raw


def outputs(study: Study, stage: str, ending: str = "") -> list[str]:
    """Return the published files of a stage, or those with an ending."""
    found = [path for job in jobs_of(study).all(stage) for path in job.outputs]
    return [path for path in found if path.endswith(ending)]
