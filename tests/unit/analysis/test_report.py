"""The report is one page, safe whatever the responses hold."""

import re

import pyarrow.parquet as pq
from conftest import finish
from synthetic import write_score

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import write_figure
from stapo.analysis.notes import headline_texts
from stapo.analysis.report import write_report
from stapo.study import parse_study


def test_the_page_is_complete_self_contained_and_safe(study, finished):
    for name in paths.figure_names(study):
        write_figure(study, name, finished)
    page = write_report(study, finished).read_text()
    table = main_table(study, "t1.0-p1.0", read_scores(study, "t1.0-p1.0", finished))
    assert headline_texts(table)[0].split(":")[1].split("%")[0].strip() in page
    assert page.count("data:image/png;base64,") == len(paths.figure_names(study))
    # Nothing is fetched, nothing runs, nothing of a response is markup.
    assert not re.search(r"(src|href)=[\"'](?!data:)", page)
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "What &lt;i&gt;is&lt;/i&gt; 7?" in page
    assert "G_R&amp;P|O &lt;b&gt;" in page
    # Nor of the gold answer and the question, which go through no function of their own.
    assert not {"\x1b", "\u202e", "\u200b"} & set(page)
    assert "\\u001b[31m \\u202e\\u200b" in page
    assert "nothing to compare" in page
    assert write_report(study, finished).read_text() == page


def test_the_page_sets_ours_beside_the_paper_by_revision(finished_on_hub_models):
    study, root = finished_on_hub_models
    for name in paths.figure_names(study):
        write_figure(study, name, root)
    page = write_report(study, root).read_text()
    rows = [re.sub(r"<[^>]+>", "|", line) for line in page.splitlines() if line.startswith("<tr")]
    cells = [row for row in rows if "||v1 to v3||" in row and "||1.7B||" in row]
    assert len(cells) == 4 * 7 + 1  # Rows of six benchmarks and Avg; the gain.
    (gain,) = [row for row in rows if "||v4 and v5||" in row]
    assert "||+18.49||" in gain
    assert "tau_p 0.01" not in gain
    assert all("here tau_p 0.01" in row for row in cells if "STAPO" in row)
    assert "nothing to compare" not in page
    assert "||MATH||43.50||math500||" in "".join(rows)
    for said in ("largely insensitive", "0.2433", "63.20", "revision of the mask: not known"):
        assert said in page
    assert page.index("<h3>Trained by others</h3>") > page.index("<h2>Against the paper</h2>")


def test_what_is_to_be_known_of_one_decoding_stands_under_its_table(raw_study, tmp_path):
    first, second = decodings = ["t1.0-p1.0", "t0.7-p0.9"]
    run = {**raw_study["run"], "decodings": decodings, "benchmarks": ["chain-2"]}
    study = parse_study({**raw_study, "name": "demo", "run": run})
    finish(study, tmp_path)
    other = parse_study({**raw_study, "name": "demo", "run": {**run, "decodings": [second]}})
    for checkpoint in study.checkpoints():
        path = write_score(tmp_path, other, checkpoint, "chain-2")
    scores = pq.read_table(path)
    verdicts = ["timeout", *scores["verdict"].to_pylist()[1:]]
    index = scores.schema.get_field_index("verdict")
    pq.write_table(scores.set_column(index, scores.schema.field(index), [verdicts]), path)
    for name in paths.figure_names(study):
        write_figure(study, name, tmp_path)
    page = write_report(study, tmp_path).read_text()
    warning = page.index("Warning: answers that the grader could not judge")
    assert page.index(f"<h2>{first}</h2>") < page.index(f"<h2>{second}</h2>") < warning
    shared = "Avg is the plain mean of the benchmarks."
    assert page.count(shared) == 1
    assert warning < page.index(shared)
