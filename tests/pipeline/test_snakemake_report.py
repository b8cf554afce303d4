"""`snakemake --report`: a page with captions and categories, made without a network."""

import json
import re

from stapo import paths
from stapo.study import parse_study


def test_the_report_of_snakemake_lists_tables_figures_and_report(edited, tmp_path):
    page = tmp_path / "report-dag.html"
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://[::1]:9"
    )
    done = edited.snakemake("--report", str(page), **nowhere)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    results, categories = (
        json.loads(re.search(rf"var {name} = (\{{.*?\}});?\s*</script>", text, re.DOTALL)[1])
        for name in ("results", "categories")
    )
    for path, result in results.items():
        assert result["caption"].strip(), path
        assert "{{" not in result["caption"]
    kinds = {
        category: {path for paths_ in inner.values() for path in paths_}
        for category, inner in categories.items()
    }
    assert kinds.keys() == {"Main tables", "Figures", "Tables of evidence", "Values", "Report"}
    study = parse_study(
        json.loads((edited.path / "results/smoke/provenance.json").read_text())["study"]
    )
    drawn = [path for path in paths.figure_paths(study) if path.endswith(".svg")]
    assert kinds["Figures"] == {*drawn}
    assert kinds["Report"] == {paths.REPORT.format(study="smoke")}
    titles = {label for path in drawn for label in results[path]["labels"].values()}
    assert "Policy entropy" in titles
