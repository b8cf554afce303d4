"""Fingerprints stay what they were: finished results rerun only where somebody decided that they must.

`identities.json` was written by the code before `stapo.study.identity`. It holds the recipes of that time, so
that a raised one changes nothing here. Where a change of a shipped study, method or benchmark is meant to
rerun finished results, renew it:

    python tests/unit/study/test_identity.py > tests/unit/study/identities.json
"""

import json
import sys
from pathlib import Path

import pytest

from stapo.canonical import fingerprint
from stapo.exhibits import FIGURES
from stapo.repository import STUDIES
from stapo.study import Study, identity, read_study

RECORDED = json.loads(Path(__file__).with_name("identities.json").read_text())


def identities(study: Study) -> dict[str, str]:
    """Return one fingerprint of all jobs of each kind."""
    cells = [(c, d, b) for d in study.run.decodings for c, b in study.cells(d)]
    answered = [
        (c, d) for d in study.run.decodings for c in study.checkpoints() if study.answered(c, d)
    ]
    found = {
        "study": [identity.study_fingerprint(study)],
        "data": [fingerprint(identity.data_config(study))],
        "overlap": [identity.overlap_fingerprint(study)],
        "base": [fingerprint(identity.base_config(study, size)) for size in study.run.sizes],
        "train": [identity.train_fingerprint(study, run) for run in study.runs()],
        "checkpoint": [identity.checkpoint_fingerprint(study, c) for c in study.checkpoints()],
        "generate": [identity.generate_fingerprint(study, *one) for one in answered],
        "responses": [identity.responses_fingerprint(study, *one) for one in answered],
        "score": [identity.score_fingerprint(study, *cell) for cell in cells],
        "score_identity": [identity.score_identity(study, *cell) for cell in cells],
        "table": [identity.table_fingerprint(study, decoding) for decoding in study.run.decodings],
        "metrics": [identity.exhibit_fingerprint(study, FIGURES["entropy"])],
        "accuracy": [identity.exhibit_fingerprint(study, FIGURES["accuracy"])],
        "report": [identity.report_fingerprint(study)],
    }
    return {kind: fingerprint(values) for kind, values in found.items()}


@pytest.mark.parametrize("name", RECORDED["studies"])
def test_the_fingerprints_of_a_study_are_those_recorded(name, monkeypatch):
    monkeypatch.setattr(identity, "RECIPES", RECORDED["recipes"])
    assert identities(read_study(STUDIES / f"{name}.yaml")) == RECORDED["studies"][name]


def test_a_raised_recipe_reruns_its_stage_and_what_follows(monkeypatch):
    study = read_study(STUDIES / "smoke.yaml")
    before = identities(study)
    monkeypatch.setattr(identity, "RECIPES", {**identity.RECIPES, "generate": 99})
    changed = {kind for kind, found in identities(study).items() if found != before[kind]}
    follows = {"score", "score_identity", "table", "accuracy", "report"}
    assert changed == {"generate", "responses"} | follows


if __name__ == "__main__":
    studies = {path.stem: identities(read_study(path)) for path in sorted(STUDIES.glob("*.yaml"))}
    json.dump({"recipes": identity.RECIPES, "studies": studies}, sys.stdout, indent=1)
    sys.stdout.write("\n")
