"""Gold answers that no response can have are found when a study is read."""

import json

import pytest
from studies import lines_of

from stapo.suite.study import StudyError, read_study
from stapo.suite.study.golds import few_left_out, gold_fault

SOLUTION = "2 * 4 = <<2*4=8>>8 legs\n#### 8"
AFTER = {"after": "####"}
NO_TESTS = ["8", "[" * 10**5, "{}", "[[[1], 2]]", '{"tests": [[[1], 2]]}']
FEW = ("[]}", "3}", "[[1, 2]]}", "[[[1]]]}")
NO_TESTS += ['{"function": "f", "tests": ' + tests for tests in FEW]
UNDEFINED = "name a function that Python cannot define"
NO_FUNCTIONS = [f'{{"function": "{name}", "tests": [[[1], 2]]}}' for name in ("f(", "lambda", "")]


@pytest.mark.parametrize(
    ("setting", "answer", "rewarded", "graded"),
    [
        ("boxed", "8", None, None),
        ("boxed", r"\frac{1}{2}, $3$", None, None),
        ("boxed", SOLUTION, "are worked", "are worked"),
        ("boxed", r"\boxed{8}", "cannot be read", "cannot be read"),
        ("boxed", "}{", "cannot be read", "cannot be read"),
        ("boxed", "", "are empty", "are empty"),
        # JustRL's reward reads the last hundred characters.
        ("boxed", "8" * 92, None, None),
        ("boxed", "8" * 93, "cannot be read", None),
        (AFTER, SOLUTION, None, None),
        (AFTER, "8 legs", None, None),
        (AFTER, "8\n9", "cannot be read", "cannot be read"),
        (AFTER, "8 ####", "are empty", "are empty"),
        ({"after": "The answer is"}, SOLUTION, "are worked", "are worked"),
        ("last_number", SOLUTION, None, None),
        ("last_number", "$1,450", None, None),
        ("last_number", "1/2", "cannot be read", "cannot be read"),
        ("last_number", "eight", "cannot be read", "cannot be read"),
        ("python_function", '{"function": "f", "tests": [[[1], 2], [[], null]]}', None, None),
        *(("python_function", text, "are no tests", "are no tests") for text in NO_TESTS),
        *(("python_function", text, UNDEFINED, UNDEFINED) for text in NO_FUNCTIONS),
    ],
)
def test_a_gold_is_read_again_from_the_shortest_right_response(setting, answer, rewarded, graded):
    for is_rewarded, fault in ((True, rewarded), (False, graded)):
        found = gold_fault(setting, answer, is_rewarded)
        assert found is None if fault is None else found.startswith(fault)


def test_worked_solutions_are_prompts_and_problems_with_the_right_reader(tmp_path):
    rows = [{"question": f"{i} A?", "answer": SOLUTION} for i in range(9)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "q.jsonl").write_text((tmp_path / "p.jsonl").read_text().replace(" A", " "))
    (tmp_path / "s.yaml").write_text(
        "extends: smoke\nname: s\ndata: {file: p.jsonl}\nrun: {benchmarks: [own]}\n"
        "benchmarks: {own: {file: q.jsonl, samples: 2}}\n"
    )
    assert read_study(tmp_path / "s.yaml", changes={"training": {"reward": AFTER}})
    first, second = lines_of(read_study, tmp_path / "s.yaml")
    worked = '9 of 9 answers are worked solutions, to be read by {after: "####"}: row 1 ('
    assert first.startswith(f"data.file: {worked}")
    assert second.startswith("benchmarks.own.file: 9 of 9 answers are worked solutions")
    # A tenth of the prompts may be left out, but no problem of a benchmark.
    text = json.dumps({"question": "x?", "answer": r"\boxed{2}"}) + "\n"
    text += "".join(f'{{"question": "{i}?", "answer": {i}}}\n' for i in range(9))
    (tmp_path / "p.jsonl").write_text(text)
    (tmp_path / "q.jsonl").write_text(text.replace("?", " ?"))
    with pytest.raises(StudyError, match=r"^benchmarks\.own\.file: 1 of 10 answers cannot be read"):
        read_study(tmp_path / "s.yaml")
    (tmp_path / "q.jsonl").write_text(text.replace("x?", " X? ").replace("\\\\boxed{2}", "2"))
    with pytest.raises(
        StudyError, match=r"^benchmarks\.own\.file: 10 of its problems are training"
    ):
        read_study(tmp_path / "s.yaml")
    (tmp_path / "q.jsonl").write_text('{"question": "y?", "answer": "2"}\n')
    (line,) = few_left_out(read_study(tmp_path / "s.yaml"))
    assert line.startswith("data.file: 1 of 10 answers cannot be read")
    assert line.endswith("; left out")
