"""The report is one page, safe whatever the responses hold."""

import json
import re

import pytest

from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.main_rendering import headline_texts
from stapo.suite.analysis.main_table import main_table
from stapo.suite.analysis.report import json_block, render_report, write_report
from stapo.suite.exhibits import figure_names
from stapo.suite.jobs.prepare import model_settings
from stapo.suite.study.sources import FolderModel, GgufModel, WheelModel

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def test_the_page_is_complete_self_contained_and_safe(study, finished):
    run = next(study.runs())
    path = finished / paths.RUN_PROVENANCE.format(study=study.name, **run._asdict())
    environment = {"commit": "c0ffee" * 6, "dirty": True, "gpus": ["H100", "H100"]}
    cost = {"seconds": 1234.5, "gpu_seconds": 7200.0, "joules": 7.2e6}
    path.write_text(json.dumps({"environment": environment, **cost}))
    page = write_report(Artefacts(study, finished)).read_text()
    assert len(page.encode()) < 5 * 2**20
    shown = SCRIPT.sub("", page)
    table = main_table(Artefacts(study, finished), "t1.0-p1.0")
    for said in (
        headline_texts(table)[0].split(":")[1].split("%")[0].strip(),
        "<dt>Learning rate</dt><dd>0.0003 (weight decay 0.1)</dd>",
        "c0ffeec0ffee",
        "<td>0.34</td><td>2.00</td><td>2.00</td>",
    ):
        assert said in shown, said
    # Of other trainings nothing was recorded.
    cost = shown[shown.index('<h2 id="cost">') :]
    assert cost.count("<td>\u2013</td>") == 3 * 3
    for name in figure_names(study):
        assert f'href="figures/{name}.pdf"' in shown
        assert json.loads(re.search(rf'id="data-{name}">(.*?)</script>', page)[1])["datasets"]
    # Claims that the study does not measure are folded.
    claims = shown[shown.index('<h2 id="verdicts">') : shown.index('<h2 id="figures">')]
    before, _, folded = claims.partition(
        "not measured by this study: what each of them needs</summary>"
    )
    assert "does not train" not in before
    assert "does not train" in folded
    assert "is too wide to decide" not in folded
    assert "rest on those at the logits" in folded
    # Nothing is fetched, nothing of a token or a title is markup.
    assert not re.search(
        r"<\w[^>]*\s(src|href)=[\"'](?!data:|#|figures/|tables/|provenance)", shown
    )
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert "G_R&amp;P|O &lt;b&gt;" in page
    assert "<b>" not in shown
    assert not {"\x1b", "\u202e", "\u200b"} & set(shown)
    assert "default-src &#39;none&#39;" in page
    assert render_report(Artefacts(study, finished)) == page
    text = "</script><!-- <SCRIPT>\u2028"
    assert "<" not in json_block([text])
    assert json.loads(json_block([text])) == [text]


@pytest.mark.slow
def test_it_says_what_file_the_base_model_was_made_of(study, finished, monkeypatch):
    digest, warm = "a" * 64, {"file": "rows.jsonl", "steps": 1200}
    kinds = {
        f"m.gguf, dequantised, SHA-256 {'a' * 12}": GgufModel(gguf="/at/m.gguf", sha256=digest),
        f"m.gguf of the package small 0.1, dequantised, SHA-256 {'a' * 12}": WheelModel(
            wheel="small", version="0.1", file="in/m.gguf", sha256=digest
        ),
        f"mine, SHA-256 {'a' * 12}, after 1,200 supervised updates": FolderModel(
            path="/at/mine", sha256=digest, supervised=warm
        ),
    }
    made = {size: model_settings(model) for size, model in study.models.items()}
    monkeypatch.setattr("stapo.suite.jobs.prepare.model_settings", lambda _: made["tiny"])
    for said, model in kinds.items():
        models = dict.fromkeys(study.models, model)
        page = render_report(Artefacts(study.model_copy(update={"models": models}), finished))
        assert f"<dd>{said}</dd>" in page
