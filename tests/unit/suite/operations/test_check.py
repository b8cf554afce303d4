"""What `stapo check` prints of the methods."""

from io import StringIO

from rich.console import Console

from stapo.suite.operations.check import check_document, print_check
from stapo.suite.repository import STUDIES
from stapo.suite.study import parse_study, read_study


def test_every_method_has_its_numbers_also_on_a_narrow_terminal():
    stream = StringIO()
    study = read_study(STUDIES / "paper" / "sensitivity-v5.yaml")
    print_check(study, Console(file=stream, width=40))
    tau = "tau-2e-2: tau_p 2e-2: as STAPO (v4 and v5), but tau_p 0.02, dual_clip 10\n"
    _, found, after = stream.getvalue().partition(tau)
    numbers = ("clip_high 0.28", "tau_p 0.02", "quantile 0.75", "scope candidates", "dual_clip 10")
    assert found
    assert all(number in after.splitlines()[0] for number in numbers)


def test_a_method_that_can_never_act_or_is_not_trained_is_warned_of(raw_study):
    raw_study["training"] |= {"prompts_per_batch": 8, "prompts_per_mini_batch": 8}
    raw_study["run"]["methods"] = ["justrl", "stapo", "cispo", "gspo", "qae", "lp-reg"]
    idle = [line.partition(":")[0] for line in check_document(parse_study(raw_study))["warnings"]]
    assert idle == ["methods.cispo", "methods.gspo"]
    raw_study["training"]["prompts_per_mini_batch"] = 4
    assert check_document(parse_study(raw_study))["warnings"] == []
    raw_study["training"]["top_p"] = 0.9
    (warning,) = check_document(parse_study(raw_study))["warnings"]
    assert warning.startswith("methods.stapo: rollouts have top_p 0.9")
    del raw_study["training"]["top_p"]
    bases = {"mine": "stapo", "base-of-it": "stapo", "run": "base-of-it"}
    raw_study["methods"] = {name: {"base": base} for name, base in bases.items()}
    raw_study["run"]["methods"] += ["run"]
    (warning,) = check_document(parse_study(raw_study))["warnings"]
    assert warning.startswith("methods.mine: not in run.methods")


def test_it_says_where_evaluation_asks_or_reads_otherwise_than_training(raw_study):
    def warned(training, *benchmarks):
        raw_study["training"] |= {"reward_sha256": "0" * 64, "reward": "boxed", **training}
        raw_study["benchmarks"] |= {name: {"samples": 4, **given} for name, given in benchmarks}
        raw_study["run"]["benchmarks"] = ["chain-2", "chain-3"]
        lines = check_document(parse_study(raw_study))["warnings"]
        return [line.partition(";")[0] for line in lines]

    both, number = "benchmarks chain-2, chain-3:", {"reward": "last_number"}
    assert warned({}) == []
    assert warned(number) == [f"{both} answers are read as boxed, in the training as last_number"]
    own = {"reward": "/a/b.py:own"}
    read = "answers are read as boxed, whatever the reward b.py:own reads"
    assert warned(own) == [f"{both} {read}"]
    asked = "the instruction is not that of the training"
    assert warned({"instruction": " Go."}) == [f"{both} {asked}"]
    # White space is no other instruction, and who names a reader knows it.
    found = warned(own, ("chain-2", {"instruction": "\n\nGo.", "answer": "boxed"}))
    assert sorted(found) == [f"benchmarks chain-3: {read}", f"benchmarks chain-3: {asked}"]


def test_it_says_what_differs_from_the_paper():
    found = check_document(read_study(STUDIES / "marked" / "marked.yaml"))["differing"]
    assert "learning rate 0.0001 (paper: 1e-06)" in found
    assert not any(one.startswith("tau p") for one in found)  # As stated.
    wide = parse_study({"extends": "paper", "name": "wide", "methods": {"stapo": {"tau_p": 0.05}}})
    assert "tau p 0.05 (paper: 0.002; STAPO)" in check_document(wide)["differing"]
