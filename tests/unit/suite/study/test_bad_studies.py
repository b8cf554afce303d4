"""Bad study files: all errors at once, one line each, with place, cause, remedy, file and line."""

import json
import os
from pathlib import Path

import pytest
from studies import lines_of

from stapo.core.files import DamagedFileError, content_of, text_of
from stapo.suite.study import StudyError, parse_study, read_study
from stapo.suite.study.files import read_rows
from stapo.suite.study.loader import MAX_ERRORS, MAX_LINE
from stapo.suite.tasks import benchmark_definitions

AIME24 = benchmark_definitions()["aime24"]["metadata"]["sha256"]
HEAD = "extends: smoke\nname: mine\n"
NAMES = "run: {seeds: [%s]}\ntraining: {evaluate_every: 1}" % ", ".join(map(str, range(900)))  # noqa: UP031

TABLE = [
    ('training: {learning_rate: fast, epochs: 3}\ntraning: {}\nrun: {seeds: []}', [
        'training.learning_rate: Input should be a valid number, unable to parse',
        'training.epochs: unknown key; remove it or correct its spelling',
        'run.seeds: List should have at least 1 item after validation, not 0',
        'traning: unknown key; did you mean training? remove it or correct its spelling (s.yaml:4)']),
    # Single settings come first; here a mini-batch does not divide the batch either.
    ('training: {steps: x, prompts_per_mini_batch: 24}\nmodels: {m: {hub: a/b}}\nrun: {seeds: [-1]}\n'
        'benchmarks: {chain-3: {row: 3}}\nmethods: {mine: {base: stapo, alpha: 2}}', [
        'models.m.revision: missing; add it (s.yaml:4)', 'training.steps: Input should be a valid integer',
        'methods.mine.alpha: Input should be less than or equal to 1',
        'benchmarks.chain-3.row: unknown key; did you mean rows? remove it or correct its spelling',
        'run.seeds.0: Input should be greater than or equal to 0']),
    ('training: {prompts_per_mini_batch: 24}\nrun: {methods: [dapo], benchmarks: [own]}\n'
        'benchmarks: {own: {file: absent, samples: 1}}', [
        "run.methods: unknown name 'dapo'",
        'training.prompts_per_mini_batch: 24 does not divide prompts_per_batch',
        'benchmarks.own.file: absent: No such file']),
    ('methods: {grpo: {tau_p: 0.1}, mine: {base: stapoo}, other: {tau_p: 0.1}}', [
        "methods.mine.base: unknown name 'stapoo'; did you mean stapo? known:",
        "methods.other: unknown name 'other'; known: grpo, 20-entropy,",
        'methods.grpo.tau_p: none of its parts takes it; they take nothing (s.yaml:3)']),
    ('methods: {'
        'both: {base: stapo, surrogate: gspo}, cispo: {kept_low: 0.1, clip_high: 1}}', [
        'methods.both: the surrogate gspo has one ratio per response, of which no token can',
        'methods.cispo.clip_high: the surrogate cispo does not take it (s.yaml:3)',
        'methods.cispo.kept_low: none of its parts takes it; they take ratio_cap (s.yaml:3)']),
    ('benchmarks: {chain-99: {samples: 4}}', ['benchmarks.chain-99: no task of this name in']),
    ('models: {7B: {hub: a/b, revision: v1.0}}', [
        'models.7B.revision: expected a commit, 40 hex digits, or main']),
    ('training: [1]', ['training: expected a mapping of names to values']),
    ('methods: {a: {base: b}, b: {base: a}, c: {base: a}}', [
        'methods.a.base: is in a cycle: a -> b -> a; choose another base',
        'methods.b.base: is in a cycle: b -> a -> b; choose another base']),
    ('methods: {stapo: {training: {overlong_buffer_tokens: 48}}}\nrun: {methods: [justrl, stapo-v2]}', [
        'methods.stapo-v2.training.overlong_buffer_tokens: 48 are not below']),
    ('data: {wrapper: keep}', ['data.wrapper: unknown key; remove it or correct its spelling (s.yaml:3)']),
    ('methods: {stapo: {base: stapo}, mine: {base: grpo, title: STAPO}}\nrun: {methods: [stapo, mine]}', [
        "methods.mine.title: 'STAPO' is also the title of stapo; choose another"]),
    ('methods: {base: {base: justrl}, BASE: {base: grpo}}\nmodels: {base: {hub: a/b, revision: main}}', [
        'methods.base: this name is reserved; choose another',
        'methods.BASE: this name is reserved; choose another',
        'models.base: this name is reserved; choose another']),
    ('methods: {a-b: {base: grpo}, a.b: {base: justrl}, A-B: {base: stapo}}\n'
        'run: {methods: [a-b, a.b, A-B]}', [
        "run.methods: 'a-b' and 'a.b' are equal where . + and - are _ and case is",
        "run.methods: 'a-b' and 'A-B' are equal where . + and - are _ and case is"]),
    ('benchmarks: {aime24: {samples: 4}}\nrun: {benchmarks: [aime24]}', [
        'benchmarks.aime24.samples: 4 are too few for its number of problems;']),
    ('benchmarks: {chain-2: {rows: 101, sha256: %s}, '
        'chain-4: {answer: boxed, answer_sha256: %s}}' % (2 * ("a" * 64,)), [
        'benchmarks.chain-2.rows: it has only 100 problems; use at most as many',
        'benchmarks.chain-2.sha256: only beside a `file` or `hub`; the task file has',
        'benchmarks.chain-4.answer_sha256: only beside an `answer` in a file of']),
    ('benchmarks: {a: {hub: a/b, samples: 1}, b: {reasoning_gym: {gcd: {}}, hub: a/b, '
        'revision: main, split: test, rows: 1, samples: 1}, c: {hub: a/b, revision: main, '
        'split: test, rows: 1, samples: 1, sha256: ' + AIME24 + '}, chain-2: {samples: 1, split: test}}', [
        'benchmarks.chain-2.split: only beside `hub`; remove it',
        'benchmarks.a.rows: missing; say how many problems it has',
        'benchmarks.a.hub: needs revision and split beside it; add them',
        'benchmarks.b.reasoning_gym: not beside `hub`; remove one of them',
        'benchmarks.c.sha256: that of aime24; remove it until `stapo fetch` prints it']),
    ('benchmarks: {own: {file: 3, samples: 1}}\nrun: {benchmarks: [own]}', [
        'benchmarks.own.file: expected text; put it in quotes']),
    ('data: {file: a, reasoning_gym: {gcd: {}}}\nmodels: {tiny: {hub: a/b, path: c}}', [
        'data: has file and reasoning_gym; keep one of them',
        'models.tiny: has hub and path; keep one of them']),
    ('evaluation: {verdict: verifier}', [
        'evaluation.verdict: verifier, but evaluation.verifier names none; add']),
    ('evaluation: {curve: {every: 1, benchmarks: [chain-4, aime24], decoding: cold}}', [
        "evaluation.curve.benchmarks: unknown name 'aime24'; known in run: chain-2",
        "evaluation.curve.decoding: unknown name 'cold'; known in run: t1.0"]),
    ('compare: {baselines: [none], target: none}', [
        "compare.target: unknown name 'none'; known in run.methods: grpo,",
        "compare.baselines: unknown name 'none'; known in run.methods: grpo,"]),
    ('compare: {target: grpo, baselines: [grpo]}', [
        'compare: a target without a baseline, or the reverse; name both']),
    ("run: {models: [big, big], seeds: [0, '0']}", [
        "run.models: unknown name 'big'",
        "run.models: 'big' is listed twice; remove one (s.yaml:3)",
        "run.seeds: 0 is listed twice"]),
    ('run: {seeds: [1099511627776]}\ntraining: {warmup_steps: true}', [
        'training.warmup_steps: no setting is true or false; put text in quotes',
        'run.seeds.0: Input should be less than or equal to 2147483647']),
    ('training: {instruction: "a\\u202eb"}', [
        'training.instruction: the character \\u202e is not allowed; remove it']),
    ('training: {reward: verifier}\nbenchmarks: {chain-2: {answer: {before: x}}, chain-3: {answer: '
        '{after: " "}}, chain-4: {answer: 7}, chain-5: {answer: {after: "a\\nb"}}}', [
        *(f'{place}: expected boxed, last_number, whole, reasoning_gym, ' for place in
          ("training.reward", *(f"benchmarks.chain-{i}.answer" for i in (2, 3, 4)))),
        'benchmarks.chain-5.answer: the character \\n is not allowed; remove it']),
    ('interventions: {method: justrl,\n  checkpoints: [x, big/base, tiny/nope/seed0, '
        'tiny/justrl/seed7, tiny/justrl/seed0/step7]}', [
        *(f"interventions.checkpoints: unknown name '{name}'; " for name in
          ("x", "big/base", "tiny/nope/seed0", "tiny/justrl/seed7", "tiny/justrl/seed0/step7")),
        'interventions.method: justrl is unknown, silences no candidates, or has a KL']),
    ('training:\n  steps: 8\n  steps: 9\n  epochs: 1', [
        's.yaml:5: not YAML: while constructing a mapping, found duplicate key "steps"']),
    ('training: !!set {a: null}', ['s.yaml:3: tag:yaml.org,2002:set: a tag; write a plain mapping or list']),
    ('training: &a {b: *a}', ['s.yaml:3: training.b: an alias; write the value itself']),
    ('training: !!python/name:os.system', [
        's.yaml:3: not YAML: could not determine a constructor for the tag']),
    ('---\nname: b', ['s.yaml:3: not YAML: expected a single document in the stream, but found']),
    ('interventions: {methods: [justrl], rollout_prompts: 7}', [
        'interventions.rollout_prompts: 7 is not a multiple of training.prompts_per_mini_batch']),
    # Checkpoints of interventions are not looked for among so many.
    (NAMES + "\ninterventions: {checkpoints: [x]}", ["run: 4147212 score files, more than 50000"]),
    (f"models: {{m: {{path: {300 * 'a'}}}}}\nrun: {{models: [m]}}", ["models.m.path: "]),
    ("training: " + "[" * 5000, ["s.yaml: too many brackets"]),
    ("training: {instruction: '%s'}" % ("a" * 10**5), ["s.yaml: longer than 100,000 characters; "]),
    *((f"training: {{reward: '{name}:f'}}", [f"training.reward: {about}"]) for name, about in (
        ("absent.py", "absent.py: No such file"), ("nul.py", "nul.py: not Python: source code"))),
    ("methods: {own: {base: stapo, selection: 'inf.py:f'}}\nrun: {methods: [own]}", [
        "methods.own.selection: inf.py: argument tau of f needs a default that is a finite number"]),
    ("methods: {own: {base: justrl, selection: 'few.py:f', selection_args: {tau_p: x}}}\n"
        "run: {methods: [own]}", [
        "methods.own.selection: selection_args.tau_p: expected a number, as its default in few.py",
        "methods.own.selection: few.py: f takes too few arguments; the first 4 are logps, entropies,"]),
    *((f"training:\n  steps: {value}", [f"s.yaml:4: not YAML: '{value.split()[-1]}': "])
      for value in ("!!bool maybe", "!!int abc", "2026-13-45", "!!float x")),
    *((f"{key}: 3", ["s.yaml:3: a key that is no text; put it in quotes"]) for key in
      ("null", "? [a]\n", "1")),
    ("methods:" + "".join(f"\n  m{i}: {{base: stapo}}" for i in range(201)), [
        "methods: more than 200; write several studies (found"]),
    ("run: {seeds: [true, false]}", ["run.seeds: no setting is true or false"]),
    (b"", ["s.yaml: expected a mapping with name, training, run, ..."]),
    (b"a: \xff", ["s.yaml: not UTF-8 at byte 3; save it as UTF-8"]),
    (b"extends: smoke", [
        "extends: name missing; a study that extends another has one of its own (s.yaml:1)"]),
    (b"name: a\nextends: [smoke]", ['extends: ["smoke"]: no such study']),
    (b"name: a\nextends: b.yaml", [
        'extends: "b.yaml": no such study: neither beside this file nor in ']),
    (b"name: a\nextends: s", ['extends: "/']),
    (b"name: a\nextends: " + 300 * b"b", ['extends: "bbb']),
    (b"extends: smoke\nname: smoke", ['name: "smoke": the study that it extends has this name']),
]  # fmt: skip
"""Text after `HEAD`, or bytes of a whole file, and the beginnings of the lines that answer it."""


@pytest.mark.parametrize(("text", "lines"), TABLE, ids=range(len(TABLE)))
def test_every_error_is_a_line(tmp_path, monkeypatch, text, lines):
    monkeypatch.chdir(tmp_path)
    whole = text if isinstance(text, bytes) else f"{HEAD}{text}\n".encode()
    Path("s.yaml").write_bytes(whole)
    Path("nul.py").write_text("\0")
    Path("few.py").write_text("def f(logps, entropies, mask, *, extra=1, tau_p=0.002): pass")
    Path("inf.py").write_text(f"def f(logps, entropies, advantages, mask, tau={10**400}): pass")
    errors = lines_of(read_study, Path("s.yaml"))
    assert len(errors) == len(lines), errors
    for error, line in zip(errors, lines, strict=True):
        assert error.startswith(line), error
        assert error.isprintable()
        assert ".yaml:" in error or line.startswith(("s.yaml", "methods.stapo-v2"))


def test_only_regular_files_of_a_possible_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**40)
    for name in (".", "fifo", "a\0b", "absent", "sparse"):
        assert len(lines_of(read_study, tmp_path / name)) == 1
    with pytest.raises(DamagedFileError, match="1,099,511,627,776 bytes, more than 4,"):
        content_of(tmp_path / "sparse")
    assert text_of(tmp_path / "sparse") == ""


def test_a_study_cannot_extend_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("stapo.suite.study.reading.STUDIES", tmp_path)
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nextends: {other}\n")
    (error,) = lines_of(read_study, tmp_path / "a.yaml")
    assert error.startswith('extends: "b": extends itself; choose another')
    # A published study names no file that would be read.
    with pytest.raises(StudyError, match="no such study"):
        parse_study({"name": "c", "extends": str(tmp_path / "a.yaml")})


def test_an_error_names_the_file_that_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"{HEAD}training: {{steps: x}}\n")
    Path("b.yaml").write_text("run: {seeds: [x]}\n")
    changes = {"training": {"stepps": 8}}
    errors = lines_of(read_study, Path("a.yaml"), Path("b.yaml"), changes=changes)
    ends = [error.rpartition(" (")[2] for error in errors]
    assert ends == ["a.yaml:3)", "--config)", "b.yaml:1)"]


def test_no_error_controls_the_terminal_or_fills_it():
    error = StudyError(["\x1b[31mred\nline\u202e é", "x" * 10**6, *["y"] * 1000])
    assert error.errors[0] == r"\x1b[31mred\nline\u202e é"
    assert len(error.errors[1]) == MAX_LINE
    assert len(error.errors) == MAX_ERRORS + 1
    assert error.errors[-1] == "and 902 more"


def test_every_row_that_is_no_question_with_an_answer_is_a_line(tmp_path):
    rows = {
        '{"question": "1+1?", "answer": 2}': "",
        '{"question": " 1+1?", "answer": 3}': "repeats the question of line 1",
        '{"question": "a", "answer": NaN}': "found nan",
        '{"question": "c", "answer": 3.0}': "a whole number with a point (3.0); write 3",
        '{"question": "d", "answer": 1, "answer": 2}': "names a column twice",
        '{"question": "\\ud800", "answer": 1}': "surrogates not allowed",
        json.dumps({"question": "x" * 10**7, "answer": 1}): "longer than 1000000 bytes",
        '{"question": "e"': "delimiter",
    }
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    lines = lines_of(read_rows, tmp_path / "rows.jsonl", is_unique=True)
    wanted = [(number, about) for number, about in enumerate(rows.values(), 1) if about]
    for (number, about), line in zip(wanted, lines, strict=True):
        assert f"line {number}: " in line
        assert about in line
    (tmp_path / "rows.jsonl").write_text("question,answer\n1+1?,2\n")
    with pytest.raises(StudyError, match=r"rows\.jsonl: no line is JSON; expected lines"):
        read_rows(tmp_path / "rows.jsonl")
