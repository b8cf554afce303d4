"""Tasks of reasoning-gym: rows, what is refused, and hostile answers."""

import json
import os

import pytest
from programs import missing, python
from studies import lines_of

from stapo.suite import domains
from stapo.suite.answers import READERS, built_in
from stapo.suite.domains import safety
from stapo.suite.evaluation import grading
from stapo.suite.jobs import jobs_of
from stapo.suite.study import StudyError, merge, parse_study
from stapo.suite.study.reading import read_study
from stapo.suite.training.rewards import answer_reward

needs_library = pytest.mark.usefixtures("library")
READER = READERS["reasoning_gym"]
DIGITS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
STUDY = {
    "data": {"reasoning_gym": {"chain_sum": DIGITS}, "prompts": 8},
    "training": {"reward": "reasoning_gym"},
    "benchmarks": {"sums": {"reasoning_gym": {"chain_sum": DIGITS}, "rows": 4, "samples": 1}},
    "run": {"benchmarks": ["sums"]},
}
HOSTILE = {
    "imports": "__import__('os').system('touch FILE')",
    "reads": "open('/etc/passwd').read()",
    "asks": "input()",
    "leaves": "exit()",
    "tower": "9**9**9**9",
    "product": "*".join(["9" * 90] * 20),
    "nested": "(" * 900 + "1" + ")" * 900,
    "long": "1+" * 5_000_000 + "1",
    "letters": "x" * 1999,
    "number": "1e999999999",
    "brackets": "[" * 1000 + "]" * 1000,
}


@pytest.fixture
def library() -> None:
    if domains.missing():
        missing("make domains")


EVALUATING = """
import ast, inspect, json, sys, textwrap
from reasoning_gym.factory import DATASETS
RUN = {"eval", "exec", "parse_expr", "sympify", "S", "compile", "literal_eval", "lambdify"}

def evaluates(function, module, seen):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in RUN:
            return True
        inner = getattr(DATASETS[task][0], name, None) or getattr(module, name, None)
        if inspect.isfunction(inner) and name not in seen:
            seen.add(name)
            if evaluates(inner, sys.modules[inner.__module__], seen):
                return True
    return False

names = []
for task, (kind, _) in DATASETS.items():
    if evaluates(kind.score_answer, sys.modules[kind.__module__], set()):
        names.append(task)
print(json.dumps(names))
"""


@needs_library
def test_rows_that_do_not_exist_and_answers_that_no_reader_reads_are_told_before_a_run(tmp_path):
    note, few = {"ransom_note": {}}, {"gcd": {"max_numbers": 2, "max_value": 5}}
    study = {"extends": "smoke", "name": "mine", **STUDY}
    study |= {"data": {"reasoning_gym": note, "prompts": 8}}
    study |= {"training": {"reward": {"reasoning_gym": "last_number"}}}
    benchmark = {"reasoning_gym": few, "rows": 60, "samples": 1, "answer": "reasoning_gym"}
    (tmp_path / "mine.yaml").write_text(json.dumps(study | {"benchmarks": {"sums": benchmark}}))
    number, reading = lines_of(read_study, tmp_path / "mine.yaml")
    assert number.startswith("benchmarks.sums.reasoning_gym: there are only about ")
    assert reading.startswith(
        "data.reasoning_gym: 8 of 8 answers cannot be read from a response by"
    )
    assert "; change training.reward" in reading


def study_of(raw, **changes):
    return parse_study(merge(merge(raw, STUDY), changes))


def test_a_missing_library_is_one_line_with_the_command(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({"extends": "smoke", "name": "mine", **STUDY}))
    monkeypatch.setattr(domains, "FOLDER", tmp_path)
    (line,) = lines_of(read_study, path)
    assert line.startswith("benchmarks.sums.reasoning_gym: reasoning-gym")
    assert "make domains" in line


def test_settings_and_version_of_the_library_are_in_the_fingerprints(raw_study):
    def fingerprints(study):
        return [next(iter(jobs_of(study).all(stage))).fingerprint for stage in ("prompts", "score")]

    before = study_of(raw_study)
    harder = {"reasoning_gym": {"chain_sum": {"max_digits": 2}}}
    other = study_of(raw_study, data=harder, benchmarks={"sums": harder})
    assert set(fingerprints(before)).isdisjoint(fingerprints(other))
    assert before.task("sums")["metadata"]["library"].endswith(domains.VERSION)
    assert before.data.constants() == {"library": f"reasoning-gym {domains.VERSION}"}


def test_data_and_reward_must_fit(raw_study):
    by_number = study_of(raw_study, training={"reward": {"reasoning_gym": "last_number"}})
    assert by_number.answer("sums") == {"reasoning_gym": "last_number"}
    for changes, told in (
        ({"training": {"reward": "boxed"}}, "training.reward: these tasks judge themselves"),
        (
            {"data": {"builder": "tiny-arithmetic", "prompts": 8}},
            "training.reward: only for tasks of reasoning-gym",
        ),
        ({"benchmarks": {"sums": {"answer": "boxed"}}}, "benchmarks.sums.answer: these tasks"),
        ({"benchmarks": {"sums": {"rows": None}}}, "benchmarks.sums.rows: missing"),
    ):
        with pytest.raises(StudyError, match=told):
            study_of(raw_study, **changes)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer>1</answer> or <answer> 2\n</answer> <answer>3", "2"),
        ("<answer>I write <answer>1</answer>", "1"),
        ("</answer>1<answer>", None),
        ("1", None),
    ],
)
def test_the_answer_is_the_last_text_in_tags(response, answer):
    assert READER.read('{"answer": "5"}', response) == answer
    assert built_in({"reasoning_gym": "last_number"}).read('{"answer": "5"}', "3 or 5.") == "5"
    assert built_in({"reasoning_gym": "whole"}).read('{"answer": "No"}', " No.\n") == "No"


@needs_library
def test_rows_are_the_same_in_each_process_and_no_question_is_trained_and_asked():
    domains._worker.cache_clear()
    # One-digit sums are few, so that different seeds would give the same questions.
    asked = domains.rows({"chain_sum": DIGITS, "word_ladder": {}}, 12, is_training=False)
    trained = domains.rows({"chain_sum": DIGITS}, 60, is_training=True)
    assert {row["question"] for row in asked}.isdisjoint(row["question"] for row in trained)
    assert {json.loads(row["answer"])["task"] for row in asked} == {"chain_sum", "word_ladder"}
    domains._worker.cache_clear()
    os.environ["PYTHONHASHSEED"] = "7"
    assert domains.rows({"chain_sum": DIGITS, "word_ladder": {}}, 12, is_training=False) == asked
    with pytest.raises(ValueError, match="only about"):
        domains.rows({"chain_sum": DIGITS}, 500, is_training=False)


@needs_library
def test_unknown_names_and_unsafe_tasks_are_refused():
    wrong = {"countdwn": {}, "countdown": {"numbers": 3}, "dice": {"num_dice": 0}}
    with pytest.raises(ValueError, match="countdown") as caught:
        domains.rows({**wrong, "simple_integration": {}, "chain_sum": {}}, 1, is_training=True)
    told = str(caught.value).splitlines()
    for line, word in zip(told, ("countdown?", "min_numbers", "gte 1", "Python"), strict=True):
        assert word in line


@needs_library
def test_every_verifier_that_evaluates_text_is_listed():
    listed = safety.REFUSED.keys() | safety.ANSWERS.keys() | safety.ROWS_ALONE
    evaluating = json.loads(
        python("-c", EVALUATING, **domains.environment()).stdout.splitlines()[-1]
    )
    assert safety.ANSWERS.keys() | safety.ROWS_ALONE <= set(evaluating) <= listed


@needs_library
def test_hostile_answers_are_bounded_and_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "SECONDS", 1.0)
    grading._idle.clear()
    pairs = []
    for task in ("countdown", "coin_flip", "n_queens", "jugs", "calendar_arithmetic"):
        (row,) = domains.rows({task: {}}, 1, is_training=False)
        own = f"<answer>{json.loads(row['answer'])['answer']}</answer>"
        hostile = [text.replace("FILE", str(tmp_path / "made")) for text in HOSTILE.values()]
        pairs += [(row["answer"], f"<answer>{text}</answer>") for text in hostile]
        # A worker that was misled or ended does not judge the next answer otherwise.
        pairs.append((row["answer"], own))
    grades = [grade.correct for grade in grading.grade_all(pairs, READER)]
    assert grades == ([False] * len(HOSTILE) + [True]) * 5
    assert not [*tmp_path.iterdir()]
    grading._idle.clear()


@needs_library
def test_the_reward_is_the_verdict_of_evaluation_and_needs_the_full_score():
    (row,) = domains.rows({"spell_backward": {}}, 1, is_training=True)
    word = json.loads(row["answer"])["answer"]
    responses = [f"<answer>{text}</answer>" for text in (word, word[:-1] + "?")] + [word]
    golds = [row["answer"]] * 3
    assert answer_reward("reasoning_gym")(responses, golds) == [1.0, -1.0, -1.0]
    grades = grading.grade_all([*zip(golds, responses, strict=True)], READER)
    assert [grade.verdict for grade in grades] == ["correct", "wrong", "no_box"]
