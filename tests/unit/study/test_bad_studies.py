"""Bad study files: all errors at once, one line each, with place, cause and remedy, and file and line."""

import os
from pathlib import Path

import pytest

from stapo.study import StudyError, read_study
from stapo.study.loader import MAX_BYTES, MAX_ERRORS, MAX_LINE, parse_json

HEAD = "extends: smoke\nname: mine\n"
NAMES = "run: {seeds: [%s]}\ntraining: {evaluate_every: 1}" % ", ".join(map(str, range(900)))  # noqa: UP031
WIDE = "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 10)}]" for i in range(9))
LONG = "methods:\n" + "\n".join(f"  m{i}: {{base: stapo, title: {'é' * 40}}}" for i in range(2000))

TABLE = [
    ('training: {prompts_per_mini_batch: 24, learning_rate: fast, epochs: 3}\ntraning: {}', [
        'training.epochs: unknown key; remove it or correct its spelling',
        'traning: unknown key; did you mean training? (s.yaml:4)',
        'training.learning_rate: Input should be a valid number, unable to parse',
        'training.prompts_per_mini_batch: 24 does not divide prompts_per_batch']),
    ('methods: {stapo: {tau_p: 1.5}, grpo: {tau_p: 0.1}, mine: {base: stapoo}, other: {tau_p: 0.1}}', [
        'methods.stapo.tau_p: Input should be less than 1',
        "methods.mine.base: unknown name 'stapoo'; did you mean stapo? known:",
        "methods.other: unknown method 'other'; choose from grpo, 20-entropy,",
        'methods.grpo.tau_p: grpo has no such setting; it takes none (s.yaml:3)']),
    ('benchmarks: {chain-3: {samples: null}, chain-99: {samples: 4}}', [
        'benchmarks.chain-3.samples: Input should be a valid integer',
        'benchmarks.chain-99: no task of this name in benchmarks/']),
    ('run: {methods: [stapo, dapo, stapo], benchmarks: [chain-2, aime24], seeds: []}', [
        'run.seeds: List should have at least 1 item after validation, not 0',
        "run.methods: unknown name 'dapo'",
        "run.methods: 'stapo' is listed twice; remove one (s.yaml:3)",
        "run.benchmarks: unknown name 'aime24'"]),
    ('models: {7B: {hub: a/b, revision: v1.0}}', [
        'models.7B.revision: expected a commit, 40 hex digits, or main']),
    ('methods: {stapo: {tau_p: .nan}}', ['methods.stapo.tau_p: Input should be a finite number']),
    ('training: [1]', ['training: expected a mapping of names to values']),
    ('benchmarks: {own: 3}', ['benchmarks.own: expected a mapping of names to values']),
    ('methods: {a: {base: b}, b: {base: a}, c: {base: a}}', [
        'methods.a.base: is in a cycle: a -> b -> a; choose another base']),
    ('methods: {stapo: {base: c}, c: {base: random}}', [
        'methods.stapo.base: is in a cycle: stapo -> c -> random -> stapo;']),
    ('methods: {stapo: {training: {prompts_per_mini_batch: 5}}}', [
        'methods.stapo.training.prompts_per_mini_batch: 5 does not divide']),
    ('methods: {stapo: {training: {overlong_buffer_tokens: 48}}}\nrun: {methods: [justrl, stapo-v2]}', [
        'methods.stapo-v2.training.overlong_buffer_tokens: 48 are not below']),
    ('training: {overlong_buffer_tokens: 48}', [
        'training.overlong_buffer_tokens: 48 are not below max_response_tokens']),
    ('data: {wrapper: keep}', ['data.wrapper: unknown key; remove it or correct its spelling (s.yaml:3)']),
    ('methods: {stapo: {base: stapo}, mine: {base: grpo, title: STAPO}}\nrun: {methods: [stapo, mine]}', [
        "methods.mine.title: 'STAPO' is also the title of stapo; choose another"]),
    ('methods: {grpo: {base: stapo}, mine: {base: stapo, title: GRPO+}}\nrun: {methods: [grpo, mine]}', [
        'methods.grpo.base: is based on stapo, but has the name of another method; choose another name',
        "methods.mine.title: 'GRPO+' has the title of grpo, but is based on stapo; choose another"]),
    ('methods: {mine: {base: stapo, title: "STAPO, mine"}}\nrun: {methods: [mine]}\ncompare: {x: 1}', [
        'compare.x: unknown key']),
    ('methods: {stapo: {title: Base}}', [
        "methods.stapo.title: 'Base' is also the title of the base model; choose"]),
    ("methods: {stapo: {title: ' '}}", [
        'methods.stapo.title: expected 1 to 40 characters in one line, without']),
    ('methods: {base: {base: justrl}, BASE: {base: grpo}}', [
        'methods.base: this name is reserved for the row of the base model;',
        'methods.BASE: this name is reserved for the row of the base model;']),
    ('methods: {a-b: {base: grpo}, a.b: {base: justrl}, A-B: {base: stapo}}\n'
        'run: {methods: [a-b, a.b, A-B]}', [
        "run.methods: 'a-b' and 'a.b' become the same rule name, where . + and -",
        "run.methods: 'a-b' and 'A-B' become the same rule name, where . + and -"]),
    ('benchmarks: {aime24: {samples: 4}}\nrun: {benchmarks: [aime24]}', [
        'benchmarks.aime24.samples: 4 are too few for its number of problems;']),
    ('benchmarks: {Avg: {file: q.jsonl, question: q, answer: a, samples: 1}}', [
        'benchmarks.Avg: this name is reserved for the average of the tables;']),
    ('benchmarks: {mine: {samples: 1, question: q}, chain-2: {question: q}}', [
        'benchmarks.chain-2.question: only for a benchmark with `file`; add it,',
        'benchmarks.mine: no task of this name in benchmarks/']),
    ('benchmarks: {own: {file: 3, question: q, answer: a, samples: 1}}\nrun: {benchmarks: [own]}', [
        'benchmarks.own.file: expected text; put it in quotes']),
    ('evaluation: {verdict: verifier}', [
        'evaluation.verdict: verifier, but evaluation.verifier names none; add']),
    ('evaluation: {select: best}', ["evaluation.select: Input should be 'last' or 'development'"]),
    ('evaluation: {select: development}', [
        'evaluation.select: development, but evaluation.development is empty;',
        'evaluation.select: needs training.evaluate_every; add it (s.yaml:3)']),
    ('evaluation: {select: 7}\ntraining: {evaluate_every: 4}', [
        'evaluation.select: no weights of step 7 are kept; choose a multiple of']),
    ('evaluation: {development: [chain-2, none, none]}', [
        "evaluation.development: unknown name 'none'",
        "evaluation.development: 'none' is listed twice; remove one (s.yaml:3)",
        "evaluation.development: 'chain-2' is also in run.benchmarks; no table"]),
    ('evaluation: {curve: {every: 0, benchmarks: [chain-4, aime24], decoding: cold, step: 1}}', [
        'evaluation.curve.step: unknown key; remove it or correct its spelling',
        'evaluation.curve.every: Input should be greater than or equal to 1',
        "evaluation.curve.benchmarks: unknown name 'aime24'; known in run: chain-2",
        "evaluation.curve.decoding: unknown name 'cold'; known in run: t1.0"]),
    ('evaluation: {seed: -1, batchsize: 4}', [
        'evaluation.batchsize: unknown key; did you mean batch_size? (s.yaml:3)',
        'evaluation.seed: Input should be greater than or equal to 0']),
    ('compare: {baselines: [none], target: none}', [
        "compare.target: unknown name 'none'; known in run.methods: grpo,",
        "compare.baselines: unknown name 'none'; known in run.methods: grpo,"]),
    ('compare: {target: justrl}\nrun: {methods: [justrl]}', [
        'compare.baselines: run.methods has none of grpo, 20-entropy, justrl']),
    ('compare: {baselines: [stapo]}\nrun: {methods: [stapo]}', [
        'compare.target: run.methods has none of stapo, stapo-v2; name a target']),
    ("run: {sizes: [big, big], seeds: [0, '0', x]}", [
        'run.seeds.2: Input should be a valid integer, unable to parse string as',
        "run.sizes: unknown name 'big'",
        "run.sizes: 'big' is listed twice; remove one (s.yaml:3)"]),
    ('run: {seeds: [1099511627776, 99999999999999999999, true]}', [
        'run.seeds.1: an integer of more than 18 digits; write a smaller one',
        'run.seeds.2: no setting is true or false; if it is text, put it in',
        'run.seeds.0: Input should be less than or equal to 2147483647']),
    ('models: {abababababababababababababababababababab: {hub: a/b, revision: main}}', [
        'models.abababababababababababababababababababab: Snakemake rejects a']),
    ('models: {m: {hub: /abs/path, revision: main}, n: {hub: a/b--c, revision: main}}', [
        'models.m.hub: expected a repository of the Hub as owner/name; of your',
        'models.n.hub: the Hub does not allow --, .. or a final .git in a name']),
    ('models: {Verifier: {hub: a/b, revision: main}}', [
        'models.Verifier: this name is reserved for the files of the verifier;']),
    ('models: {m: {hub: a/b}}', ['models.m.revision: missing; add it (s.yaml:3)']),
    ('training: {instruction: "a\\u202eb"}', [
        'training.instruction: the character U+202E is not allowed; remove it']),
    ('training: {learning_rate: 1.0e+300, advantage_epsilon: 1.0e-300, max_response_tokens: 1099511627776}', [
        'training.learning_rate: Input should be less than or equal to 1',
        'training.max_response_tokens: Input should be less than or equal to',
        'training.advantage_epsilon: Input should be greater than or equal to']),
    ('training: {stepps: 8, warmup_step: 1}', [
        'training.stepps: unknown key; did you mean steps? (s.yaml:3)',
        'training.warmup_step: unknown key; did you mean warmup_steps? (s.yaml:3)']),
    ('decodings: {t1.0-p1.0: {temperature: 1.0e-300, top_k: 2147483648}, cold: {top_p: 1}}', [
        'decodings.cold.temperature: missing; add it (s.yaml:3)',
        'decodings.t1.0-p1.0.temperature: Input should be greater than or equal',
        'decodings.t1.0-p1.0.top_k: Input should be less than or equal to 1000000']),
    ('end_tokens: [\'\', "\\e[31m"]', [
        'end_tokens.0: String should have at least 1 character',
        'end_tokens.1: the character U+001B is not allowed; remove it']),
    ('training: {reward: verifier}', ['training.reward: expected boxed, FILE.py:function, or']),
    ("training: {reward: 'not.there:f'}", [
        'training.reward: not.there:f: not found; install its package, or give']),
    ('training: {reward_sha256: 0000000000000000000000000000000000000000000000000000000000000000}', [
        'training.reward_sha256: expected text; put it in quotes']),
    ("engine: {sizes: {small: {}}}", [
        "engine.sizes: unknown name 'small'"]),
    ('data: {hub: a/b, revision: main, sha256: 0}', ['data.sha256: expected text; put it in quotes']),
    ('interventions: {nope: 1, method: justrl,\n  checkpoints: [x, big/base, tiny/nope/seed0, '
        'tiny/justrl/seed7, tiny/justrl/seed0/step7]}', [
        'interventions.nope: unknown key; remove it or correct its spelling',
        "interventions.checkpoints: 'x': expected size/base, size/method/seedK",
        "interventions.checkpoints: unknown name 'big'",
        "interventions.checkpoints: unknown name 'nope'",
        'interventions.checkpoints: unknown name 7',
        "interventions.checkpoints: 'tiny/justrl/seed0/step7': no weights of",
        'interventions.method: justrl silences no candidates; choose from stapo,']),
    ('interventions: {method: nope, repetitions: 1}', [
        'interventions.repetitions: Input should be greater than or equal to 2',
        "interventions.method: unknown name 'nope'"]),
    ('interventions: {method: grpo}', [
        'interventions.method: grpo silences no candidates; choose from stapo,',
        'interventions.method: grpo has a KL term, whose reference model is no']),
    ('places: {a: /b}', ['places: unknown key; remove it or correct its spelling (s.yaml:3)']),
    ('"\\e[31m": 1', ['\\x1b[31m: unknown key; remove it or correct its spelling (s.yaml:3)']),
    ('training:\n  steps: 8\n  steps: 9\n  epochs: 1', [
        'training.steps: given twice, again in line 5; keep one (s.yaml:4)',
        'training.epochs: unknown key; remove it or correct its spelling']),
    ('training: &a {b: *a}', ['s.yaml:3: nested more than 20 levels deep, aliases included; write fewer']),
    ('training: {steps: 2020-01-01}', [
        'training.steps: YAML takes this for a date; put it in quotes (s.yaml:3)']),
    ('8: x', ['8: this key is not text; put it in quotes (s.yaml:3)']),
    ('? [a]\n: x', ["?: this key is not text; put it in quotes (s.yaml:3)"]),
    ('training: !!python/name:os.system', [
        'training: a value with a tag of its own; remove the tag (s.yaml:3)']),
    ('training: !!int abc', ["training: not YAML: invalid literal for int() with base 10"]),
    ('training:\n\tsteps: 1', ['s.yaml:4: not YAML: while scanning for the next token, found character']),
    ('training: {steps: 8', ["s.yaml:4: not YAML: while parsing a flow mapping, expected ',' or '}',"]),
    ('---\nname: b', ['s.yaml:3: not YAML: expected a single document in the stream, but found']),
    ('training: \x1b', ['s.yaml: not YAML: unacceptable character #x001b: special characters are']),
    ('name: Mine\nextends: smoke', [
        'name: given twice, again in line 3; keep one (s.yaml:2)',
        'extends: given twice, again in line 4; keep one (s.yaml:1)']),
    (NAMES, ["run: 4147212 score files, more than 50000"]),
    (LONG, ["too long: "]),
    (WIDE, ["s.yaml:3: more than 262144 values, aliases included"]),
    ("training: " + "[" * 5000, ["s.yaml: nested more than 20 levels deep"]),
    ("x: " + "[" * 30 + "]" * 30, ["s.yaml:3: nested more than 20 levels deep"]),
    ("#" * MAX_BYTES, ["s.yaml: larger than"]),
]  # fmt: skip
"""Text after `HEAD`, and the beginnings of the lines that answer it."""


def errors_of(path: Path) -> list[str]:
    with pytest.raises(StudyError) as caught:
        read_study(path)
    return caught.value.errors


@pytest.mark.parametrize(("text", "lines"), TABLE, ids=range(len(TABLE)))
def test_every_error_is_a_line(tmp_path, monkeypatch, text, lines):
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(f"{HEAD}{text}\n")
    errors = errors_of(Path("s.yaml"))
    assert len(errors) == len(lines), errors
    for error, line in zip(errors, lines, strict=True):
        assert error.startswith(line), error
        assert error.isprintable()
        assert ".yaml:" in error or line.startswith(("s.yaml", "too long", "methods.stapo-v2"))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"name: [", "s.yaml:1: not YAML"),
        (b"- a", "s.yaml: expected a mapping with name, training, run, ..."),
        (b"", "s.yaml: expected a mapping"),
        (b"a: \xff", "s.yaml: not UTF-8 at byte 3; save it as UTF-8"),
        (
            b"extends: smoke",
            "name: missing; a study that extends another has one of its own (s.yaml:1)",
        ),
        (b"name: a\nextends: smke", 'extends: "smke": no such study; did you mean smoke?'),
        (b"name: a\nextends: [smoke]", 'extends: ["smoke"]: no such study'),
        (
            b"name: a\nextends: ../paper.yaml",
            'extends: "../paper.yaml": no such study; did you mean paper?',
        ),
    ],
)
def test_a_file_that_is_no_study_is_a_line(tmp_path, monkeypatch, content, line):
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_bytes(content)
    (error,) = errors_of(Path("s.yaml"))
    assert error.startswith(line)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "a\0b", tmp_path / "absent"):
        assert len(errors_of(path)) == 1


def test_a_study_cannot_extend_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("stapo.study.reading.STUDIES", tmp_path)
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nextends: {other}\n")
    (error,) = errors_of(tmp_path / "a.yaml")
    assert error.startswith('extends: "b": extends itself; choose another')


def test_an_error_names_the_file_that_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"{HEAD}training: {{steps: x}}\n")
    Path("b.yaml").write_text("run: {seeds: [x]}\n")
    with pytest.raises(StudyError) as caught:
        read_study(Path("a.yaml"), Path("b.yaml"), changes={"training": {"stepps": 8}})
    ends = [error.rpartition(" (")[2] for error in caught.value.errors]
    assert ends == ["--config)", "a.yaml:3)", "b.yaml:1)"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "o: the key 'c' is given twice; keep one"),
        ('{"a": NaN}', "o: NaN is no number; write a finite one"),
        ('{"a": ' + "9" * 30 + "}", "o: a: an integer of more than 18 digits; write a smaller one"),
        ("[" * 10**5, "o: nested more than 20 levels deep"),
        ("[1]", 'o: expected a JSON object, such as {"key": 1}'),
        (" " * (MAX_BYTES + 1), f"o: longer than {MAX_BYTES} characters"),
    ],
)
def test_json_has_the_same_bounds(text, error):
    with pytest.raises(StudyError) as caught:
        parse_json(text, "o")
    assert caught.value.errors == [error]


def test_no_error_controls_the_terminal_or_fills_it():
    error = StudyError(["\x1b[31mred\nline\u202e é", "x" * 10**6, *["y"] * 1000])
    assert error.errors[0] == r"\x1b[31mred\nline\u202e é"
    assert len(error.errors[1]) == MAX_LINE
    assert len(error.errors) == MAX_ERRORS + 1
    assert error.errors[-1] == "and 902 more"
