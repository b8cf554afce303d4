"""The table of hyperparameters says what the study trains."""

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.tables.hyperparameters import make
from stapo.methods import METHODS
from stapo.reference import paper
from stapo.repository import STUDIES
from stapo.study import read_study


def rows(**changes):
    study = read_study(STUDIES / "paper.yaml", changes=changes)
    return {(row.name, row.methods): row for row in make(Artefacts(study)).rows}


def test_the_papers_study_is_as_the_paper_or_our_choice():
    found = rows()
    assert found["learning_rate", "all"].source.startswith("as in the paper [read in")
    source = found["weight_decay", "all"].source
    assert source == "our choice: the paper does not state it; JustRL's script has 0.1"
    assert found["kl_coefficient", "GRPO"].ours == 0.04
    assert found["kl_coefficient", "GRPO"].source == "as in the paper [inferred]"
    assert not [row for row in found.values() if row.source.startswith("differs")]
    for name, stated in paper()["hyperparameters"]["methods"].items():
        method = METHODS[name]
        for key in {*stated} - {"confidence", "inferred"}:
            ours = method.arguments[key] if key in method.arguments else getattr(method, key)
            assert stated[key] == ours, (name, key)


def test_a_change_is_shown_as_a_difference():
    found = rows(training={"learning_rate": 2e-6}, methods={"stapo": {"tau_p": 0.01}})
    for place, ours in ((("learning_rate", "all"), 2e-6), (("tau_p", "STAPO"), 0.01)):
        assert found[place].ours == ours
        assert found[place].source.startswith("differs from the paper")
