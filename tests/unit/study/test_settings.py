"""The settings that reasons name: all that a fingerprint holds of a stage, and nothing else."""

import pytest

from stapo.exhibits import FIGURES, TABLES
from stapo.study import Checkpoint, TrainingRun, identity, merge, parse_study, settings

DECODING = "t1.0-p1.0"
RUN, BASE = TrainingRun("tiny", "stapo", 0), Checkpoint("tiny")
VERIFIER = {"hub": "a/b", "revision": "0" * 40, "template": "own"}
CHANGES = [
    {"training": {"learning_rate": 1e-4}},
    {"training": {"checkpoint_every": 3}},
    {"training": {"evaluate_every": 48}},
    {"methods": {"stapo": {"tau_p": 0.01}}},
    {"methods": {"stapo": {"title": "Another"}}},
    {"methods": {"mine": {"base": "justrl", "kl_coefficient": 0.1}}},
    {"models": {"tiny": {"supervised_steps": 7}}},
    {"data": {"seed": 1}},
    {"end_tokens": ["<|im_end|>", "x"]},
    {"decodings": {DECODING: {"temperature": 0.9, "top_p": 1.0}}},
    {"benchmarks": {"chain-2": {"samples": 3}}},
    {"evaluation": {"seed": 7}},
    {"evaluation": {"batch_size": 7}},
    {"evaluation": {"verifier": VERIFIER}},
    {"evaluation": {"verifier": VERIFIER, "verdict": "verifier"}},
    {"evaluation": {"select": 48}, "training": {"evaluate_every": 48}},
    {"compare": {"target": ["stapo"], "baselines": ["grpo"]}},
    {"run": {"methods": ["justrl", "stapo"]}},
    {"run": {"decodings": [DECODING]}},
    {"run": {"benchmarks": ["chain-2"]}},
    {"run": {"seeds": [0, 1]}},
]
ALL_OF_IT = {
    "base": (lambda s: settings.base_settings(s, "tiny"), lambda s: identity.base_config(s, "tiny")),
    "train": (lambda s: settings.train_settings(s, RUN), lambda s: identity.train_fingerprint(s, RUN)),
    "data": (settings.data_settings, identity.data_config),
    "verifier": (settings.verifier_settings, identity.verifier_config),
}  # fmt: skip
PART_OF_IT = {
    "overlap": (settings.overlap_settings, identity.overlap_fingerprint),
    "generate": (lambda s: settings.generate_settings(s, BASE, DECODING),
                 lambda s: identity.responses_fingerprint(s, BASE, DECODING)),
    "score": (lambda s: settings.score_settings(s, "chain-2"),
              lambda s: identity.score_fingerprint(s, BASE, DECODING, "chain-2")),
    "table": (settings.table_settings, lambda s: identity.table_fingerprint(s, DECODING)),
    "metrics": (lambda s: settings.exhibit_settings(s, FIGURES["entropy"]),
                lambda s: identity.exhibit_fingerprint(s, FIGURES["entropy"])),
    "accuracy": (lambda s: settings.exhibit_settings(s, FIGURES["accuracy"]),
                 lambda s: identity.exhibit_fingerprint(s, FIGURES["accuracy"])),
    "evidence": (lambda s: settings.exhibit_settings(s, TABLES["stability"]),
                 lambda s: identity.exhibit_fingerprint(s, TABLES["stability"])),
    "report": (settings.report_settings, identity.report_fingerprint),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change)[:60])
def test_what_reruns_a_job_is_named_and_what_is_named_reruns_it(raw_study, change):
    before, after = parse_study(raw_study), parse_study(merge(raw_study, change))
    for stage, (named, fingerprint) in (ALL_OF_IT | PART_OF_IT).items():
        settings_differ = set(named(before).values()) != set(named(after).values())
        fingerprints_differ = fingerprint(before) != fingerprint(after)
        if stage in ALL_OF_IT:
            assert settings_differ == fingerprints_differ, stage
        else:
            assert fingerprints_differ or not settings_differ, stage


def test_a_setting_says_its_place_and_value(raw_study):
    study = parse_study(merge(raw_study, {"methods": {"stapo": {"tau_p": 0.01}}}))
    assert "method.selection_args.tau_p=0.01" in settings.train_settings(study, RUN).values()
    samples = study.benchmarks["chain-2"].samples
    assert (
        f"benchmarks.chain-2.samples={samples}"
        in settings.score_settings(study, "chain-2").values()
    )
    # Prompts are counted and checked, by what changes none of them.
    assert settings.data_settings(study).keys() > {"data.seed", "recipe"}
