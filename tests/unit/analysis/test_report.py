"""The report is one page, safe whatever the responses hold."""

import base64
import hashlib
import json
import re

import numpy as np
import pyarrow.parquet as pq
from finished_study import finish
from studies import outputs
from synthetic import write_score
from synthetic_tokens import population, write_tokens

from stapo import paths
from stapo.analysis import report
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.notes import headline_texts
from stapo.analysis.page.document import json_block, vega
from stapo.analysis.report import write_report
from stapo.analysis.table import Column, Estimate, Table
from stapo.exhibits import figure_names
from stapo.study import parse_study

MEGABYTES = 8
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def without_scripts(page: str) -> str:
    return SCRIPT.sub("<script></script>", page)


def data_of(page: str, name: str):
    """Return the JSON of a data block."""
    start = page.index(f'id="{name}">') + len(f'id="{name}">')
    return json.loads(page[start : page.index("</script>", start)])


def drawn(study, root):
    return write_report(study, root).read_text()


def test_the_page_is_complete_self_contained_and_safe(study, finished):
    page = write_report(study, finished).read_text()
    assert len(page.encode()) < MEGABYTES * 2**20
    shown = without_scripts(page)
    table = main_table(study, "t1.0-p1.0", read_scores(study, "t1.0-p1.0", finished))
    assert headline_texts(table)[0].split(":")[1].split("%")[0].strip() in page
    names = figure_names(study)
    for name in names:
        assert f'href="figures/{name}.pdf"' in shown
        assert data_of(page, f"data-{name}")["datasets"]
    # Nothing is fetched, nothing of a response is markup.
    assert not re.search(r"(src|href)=[\"'](?!data:|#|figures/)", shown)
    assert "<script>alert" not in shown
    (response, *_) = data_of(page, "responses")
    assert response["response"].startswith("<script>alert(1)</script>")
    assert response["question"] == "What <i>is</i> 7?\\u202e"
    assert "G_R&amp;P|O &lt;b&gt;" in page
    assert "<b>" not in shown
    # Nor of the gold answer and the question, which go through no function of their own.
    assert not {"\x1b", "\u202e", "\u200b"} & set(shown)
    assert "\\u001b[31m \\u202e\\u200b" in response["response"]
    assert 'id="paper"' not in page
    assert write_report(study, finished).read_text() == page


def test_only_the_scripts_of_the_page_may_run(study, finished):
    page = drawn(study, finished)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    scripts = SCRIPT.findall(page)
    assert scripts[0] == vega()
    sums = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in sums]
    assert "connect-src" not in rules  # As by default: none.


def test_data_cannot_end_its_script():
    text = "</script><!-- <SCRIPT>\u2028"
    block = str(json_block([text]))
    assert "<" not in block
    assert json.loads(block) == [text]


def test_the_page_sets_ours_beside_the_paper_by_revision(finished_on_hub_models):
    study, root = finished_on_hub_models
    page = without_scripts(drawn(study, root))
    rows = [re.sub(r"<[^>]+>", "|", line) for line in page.splitlines() if line.startswith("<tr")]
    cells = [row for row in rows if row.startswith("||v1 to v3|") and "|1.7B|" in row]
    assert len(cells) == 4 * 7 + 1  # Rows of six benchmarks and Avg; the gain.
    intervals = r"\d\.\d\d \[\d+\.\d, \d+\.\d\]\|.*\|[+-]\d+\.\d\d \[[+-]\d+\.\d, [+-]\d+\.\d\]"
    assert sum(bool(re.search(intervals, row)) for row in cells) == 4 * 7
    (gain,) = [row for row in rows if row.startswith("||v4 and v5|")]
    assert "|+18.49|" in gain
    assert "tau_p 0.01" not in gain
    assert all("here tau_p 0.01" in row for row in cells if "STAPO" in row)
    for said in ("largely insensitive", "0.2433", "63.20", "revision of the mask: not known"):
        assert said in page
    assert page.index("<h3>Trained by others</h3>") > page.index('<h2 id="paper">')


def test_what_is_to_be_known_of_one_decoding_stands_under_its_table(raw_study, tmp_path):
    decodings = ["t1.0-p1.0", "t0.7-p0.9"]
    run = {**raw_study["run"], "decodings": decodings, "benchmarks": ["chain-2"]}
    study = parse_study({**raw_study, "name": "demo", "run": run})
    finish(study, tmp_path)
    other = parse_study({**raw_study, "name": "demo", "run": {**run, "decodings": decodings[1:]}})
    for checkpoint in study.checkpoints():
        path = write_score(tmp_path, other, checkpoint, "chain-2")
    scores = pq.read_table(path)
    verdicts = ["timeout", *scores["verdict"].to_pylist()[1:]]
    index = scores.schema.get_field_index("verdict")
    pq.write_table(scores.set_column(index, scores.schema.field(index), [verdicts]), path)
    page = drawn(study, tmp_path)
    warning = page.index("Warning: answers that the grader could not judge")
    titles = [study.decodings[name].title for name in decodings]
    places = [page.index(f"<h3>{title}</h3>") for title in titles]
    assert places[0] < places[1] < warning
    shared = "Avg is the plain mean of the benchmarks."
    assert page.count(shared) == 1
    assert warning < page.index(shared)


def test_a_row_says_how_it_is_made_again(study, finished):
    page = drawn(study, finished)
    command = (
        "snakemake results/demo/scores/tiny/stapo/seed0/t1.0-p1.0/{chain-2,linear-equation}.parquet "
        "--workflow-profile workflows/profiles/workstation --configfile workflows/studies/demo.yaml"
    )
    assert page.count(f'<code class="command">{command}</code>') == 1
    assert page.count('<code class="command">snakemake') == 5
    made = "results/demo/scores/tiny/stapo/seed0/t1.0-p1.0/linear-equation.parquet"
    assert (finished / made).exists()


def test_setting_and_cost_are_those_of_the_trainings(study, finished):
    run = next(study.runs())
    path = finished / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
    record = {
        "attempts": [{"started": "2026-05-04T03:02:01+00:00"}, {"started": 7}, 8],
        "environment": {"commit": "c0ffee" * 6, "dirty": True, "gpus": ["H100", "H100"]},
        "seconds": 1234.5,
        "gpu_seconds": 7200.0,
        "joules": 7.2e6,
    }
    path.write_text(json.dumps(record))
    page = without_scripts(drawn(study, finished))
    for said in (
        "<dt>Learning rate</dt><dd>0.0003",
        "commit c0ffeec0ffee, with uncommitted changes (dirty); commit not recorded",
        "2026-05-04 03:02 to 2026-05-04 03:02 UTC",
        "2 \u00d7 H100",
        "<td>1,234</td>",
        "<td>2.00</td><td>2.00</td>",
    ):
        assert said in page, said
    # Of other trainings nothing was recorded, and it says so.
    assert page.count("<td>unmeasured</td>") >= 3 * 3


def test_responses_are_of_every_method_and_verdict(study, finished, monkeypatch):
    page = drawn(study, finished)
    rows = data_of(page, "responses")
    assert {row["method"] for row in rows} == {
        "Base", *(study.method(name).title for name in study.run.methods)
    }  # fmt: skip
    assert {row["benchmark"] for row in rows} == {*study.run.benchmarks}
    assert {row["verdict"] for row in rows} == {"correct", "no box"}
    assert all(row["right"] == (row["verdict"] == "correct") for row in rows)


def test_tokens_are_on_the_page_only_if_there_are_records(study, finished):
    texts = {row["token"] for row in data_of(drawn(study, finished), "tokens")}
    assert any(
        text.startswith("<script>alert(1)</script> [red]markup[/red] \\x1b") for text in texts
    )
    for path in outputs(study, "train", "tokens.parquet"):
        write_tokens(finished / path, population(np.random.default_rng(0), steps=1).iloc[:0])
    assert 'id="tokens"' not in drawn(study, finished)


def shown_tables(monkeypatch, tables):
    """Replace some tables of evidence."""
    made = report.evidence_table
    replaced = lambda artefacts, name: tables[name] if name in tables else made(artefacts, name)  # noqa: E731
    monkeypatch.setattr(report, "evidence_table", replaced)


def test_estimates_of_evidence_have_the_form_of_their_column(study, finished, monkeypatch):
    values = [Estimate(0.12345, 0.1, 0.2), Estimate(0.5)]
    column = Column[Estimate]("Share", lambda row: row, ".3f")
    unknown = Column[Estimate]("Other", lambda row: float("nan"))
    found = Table(columns=[column, unknown], rows=values, caption="Shares.")
    shown_tables(monkeypatch, {"stability": found})
    page = without_scripts(drawn(study, finished))
    assert "<span>0.123</span><small>0.100 \u2013 0.200</small>" in page
    assert "<span>0.500</span></th>" in page
    table = page[page.index('<h3 id="table-stability">') :].partition("</table>")[0]
    assert "nan" not in table
    assert table.count("<td>\u2013</td>") == 2
    assert "\u2013: not measured." in page


def test_long_tables_of_evidence_are_folded(study, finished, monkeypatch):
    numbers = Column[int]("n", lambda row: row)
    sizes = {"stability": report.MANY_ROWS, "cases": report.MANY_ROWS + 1}
    shown_tables(
        monkeypatch,
        {
            name: Table(columns=[numbers], rows=range(rows), caption=f"All of {name}.")
            for name, rows in sizes.items()
        },
    )
    page = without_scripts(drawn(study, finished))
    for name, folded in {"stability": False, "cases": True}.items():
        before = page[page.index(f'id="table-{name}"') : page.index(f"All of {name}.")]
        assert ("<details><summary>Table of 25 rows</summary>" in before) == folded


def test_claims_that_the_study_does_not_measure_are_folded(study, finished):
    page = without_scripts(drawn(study, finished))
    claims = page[page.index('<h2 id="verdicts">') : page.index('<h2 id="figures">')]
    shown, _, folded = claims.partition("on what this study does not measure</summary>")
    assert "does not train" not in shown
    assert "does not train" in folded
