"""Files of users: bounds, keys that stand twice, values that YAML takes for something else."""

import pytest

from stapo.study.loader import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ERRORS,
    MAX_LINE,
    StudyError,
    load_yaml,
    parse_json,
)

WIDE = "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 10)}]" for i in range(9))
LIST = "a: &a [x, y]\nb: *a\nc: {d: *a}\n"


def errors_of(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        document = load_yaml(path)
    except StudyError as error:
        return error.errors
    return [f"{'.'.join(map(str, place))}: {what}" for place, what in document.problems]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("a: 1\nb: {c: 1, c: 2}\na: 3\na: 4\n", [
            "b.c: given twice, first in line 2; keep one (s.yaml:2)",
            "a: given twice, first in line 1; keep one (s.yaml:3)",
            "a: given twice, first in line 1; keep one (s.yaml:4)",
        ]),
        ("x: &a {b: *a}\n", [f"s.yaml:1: nested more than {MAX_DEPTH} levels deep, aliases included"]),
        ("x: &a [*a]\n", [f"s.yaml:1: nested more than {MAX_DEPTH} levels deep, aliases included"]),
        (WIDE, ["s.yaml:1: more than 20000 values, aliases included; write fewer"]),
        ("[" * 5000, [f"s.yaml:1: nested more than {MAX_DEPTH} levels deep"]),
        ("x:\n" + "- " * 5000, [f"s.yaml:2: nested more than {MAX_DEPTH} levels deep"]),
        (f"x:\n  y: {'9' * 5000}\n", ["x.y: an integer of 5000 digits; at most 18 (s.yaml:2)"]),
        ("x: 2020-01-01\n", ["x: YAML takes '2020-01-01' for a date; put it in quotes (s.yaml:1)"]),
        ("x: 010\n", ["x: YAML reads '010' differently; write it in decimal or in quotes (s.yaml:1)"]),
        ("x: 1:30\n", ["x: YAML reads '1:30' differently; write it in decimal or in quotes (s.yaml:1)"]),
        ("8: x\n", ["8: YAML takes this key for a number; put it in quotes (s.yaml:1)"]),
        ("? [a]\n: x\n", [": a key that is not text (s.yaml:1)"]),
        ("a: &a {b: 1}\nc: {<<: *a}\n", ["c: merge keys (<<) are unsupported; write keys out (s.yaml:2)"]),
        ("x: !!set {a}\n", ["x: a value of the type set; remove the tag (s.yaml:1)"]),
        ("x: !!python/name:os.system\n", ["x: a value of the type python/name:os.system; remove the tag "
            "(s.yaml:1)"]),
        ("x: !!int abc\n", ["x: 'abc' is not a number (s.yaml:1)"]),
        ("- a\n", ["s.yaml: expected a mapping with name, training, run, ..."]),
        ("a: 1\n---\nb: 2\n", ["s.yaml:2: not YAML: expected a single document in the stream, "
            "but found another document"]),
        ("a: b: c\n", ["s.yaml:1: not YAML: mapping values are not allowed here"]),
        ("a: \x1b\n", ["s.yaml: not YAML: unacceptable character #x001b: special characters are not allowed "
            'in "<unicode string>", position 3']),
        (b"a: \xff\n", ["s.yaml: not UTF-8 at byte 3; save it as UTF-8"]),
        (b"#" * (MAX_BYTES + 1), [f"s.yaml: larger than {MAX_BYTES} bytes; not a study"]),
    ],
    ids=range(22),
)  # fmt: skip
def test_what_cannot_be_read_is_a_line(tmp_path, monkeypatch, text, errors):
    assert errors_of(tmp_path, monkeypatch, text) == errors


def test_values_and_their_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.yaml"
    path.write_text(LIST + "e: [0, -1, 0x10, 1_000, 1.5e+3, -.inf, on, ~, '1']\n\nf:\n  g: h\n")
    found = load_yaml(path)
    numbers = [0, -1, 16, 1000, 1500.0, float("-inf"), True, None, "1"]
    both = ["x", "y"]
    assert found.content == {"a": both, "b": both, "c": {"d": both}, "e": numbers, "f": {"g": "h"}}
    assert found.lines[("c", "d")] == "s.yaml:3"
    assert found.lines[("f", "g")] == "s.yaml:7"
    assert not found.problems


def test_a_directory_and_a_name_with_nul_are_lines(tmp_path):
    for path in (tmp_path, tmp_path / "a\0b"):
        with pytest.raises(StudyError) as caught:
            load_yaml(path)
        assert len(caught.value.errors) == 1


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}', ["o: the key 'c' is given twice; keep one",
            "o: the key 'a' is given twice; keep one"]),
        ('{"a": NaN}', ["o: NaN is not allowed in a study; write a finite number"]),
        ('{"a": -' + "9" * 5000 + "}", ["o: an integer of 5000 digits; at most 18"]),
        ("[" * 10**5, [f"o: nested more than {MAX_DEPTH} levels deep"]),
        ('{"a": ' + "[" * 30 + "]" * 30 + "}", [f"o: nested more than {MAX_DEPTH} levels deep"]),
        ("[1]", ['o: expected a JSON object, such as {"key": 1}']),
        ("{", ["o: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"]),
        (" " * (MAX_BYTES + 1), [f"o: longer than {MAX_BYTES} characters"]),
    ],
    ids=range(8),
)  # fmt: skip
def test_json_of_an_option_has_the_same_bounds(text, errors):
    with pytest.raises(StudyError) as caught:
        parse_json(text, "o")
    assert caught.value.errors == errors


def test_no_error_controls_the_terminal_or_fills_it():
    error = StudyError(["\x1b[31mred\nline\u202e é", "x" * 10**6, *["y"] * 1000])
    assert error.errors[0] == r"\x1b[31mred\nline\u202e é"
    assert len(error.errors[1]) == MAX_LINE
    assert len(error.errors) == MAX_ERRORS + 1
    assert error.errors[-1] == "and 902 more"
