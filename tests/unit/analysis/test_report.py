"""The report is one page, safe whatever the responses hold."""

import re

from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.figures import FIGURES, write_figure
from stapo.analysis.report import write_report
from stapo.analysis.tables import headline_texts


def test_the_page_is_complete_self_contained_and_safe(study, finished):
    for name in FIGURES:
        write_figure(study, name, finished)
    page = write_report(study, finished).read_text()
    table = main_table(study, "t1.0-p1.0", read_scores(study, "t1.0-p1.0", finished))
    assert headline_texts(table)[0].split(":")[1].split("%")[0].strip() in page
    assert page.count("data:image/png;base64,") == len(FIGURES)
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
