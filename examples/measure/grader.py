r"""Audit of the grader: real golds, each changed once into a wrong answer, and written in usual other ways.

    python examples/measure/grader.py [--golds DIRECTORY] [--each 4] [--show]

Wrong answers that are accepted are false positives, right ones that are rejected false negatives; those of
math-verify alone stand beside ours. Golds are those of the six benchmarks if they are at hand, in
`--golds` or `STAPO_DATA_DIR`, otherwise the forms of `grader_golds.yaml`.
"""

import argparse
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import yaml

from stapo.suite.answers import parts
from stapo.suite.evaluation.grading import Grade, grade_answers
from stapo.suite.evaluation.task import normalise

Change = Callable[[str, Random], Iterator[str]]
"""From a gold to other texts: wrong answers, or right ones."""
OPEN, CLOSE = r"(\[{", r")\]}"


def split(text: str, separators: str) -> list[str]:
    """Return the parts of a text at separators outside of all brackets, each but the first with its own."""
    found, depth = [""], 0
    for place, letter in enumerate(text):
        depth += (letter in OPEN) - (letter in CLOSE)
        if (
            letter in separators
            and depth == 0
            and found[-1].strip()
            and text[place - 1] not in "\\^_"
        ):
            found.append("")
        found[-1] += letter
    return found


def inside(gold: str) -> tuple[str, list[str], str]:
    """Return opening bracket, parts and closing bracket of a list, point, set or interval."""
    match = re.fullmatch(r"(\(|\[|\\\{|)(.*?)(\)|\]|\\\}|)", gold, re.DOTALL)
    assert match
    found = [part.lstrip(",").strip() for part in split(match[2], ",")]
    return match[1], found, match[3]


def is_expression(gold: str) -> bool:
    r"""Return whether a gold is one value: no list, relation, text or \pm."""
    plain = re.sub(r"\\(?:left|right)", "", gold)
    return parts(plain) == 1 and not re.search(
        r"[=<>,;:]|\\(?:text|le|ge|ne|in|cup|cap|pm|mp|begin|l?dots)", plain
    )


# Wrong answers


def other_digit(gold: str, rng: Random) -> Iterator[str]:
    numbers = [match for match in re.finditer(r"[0-9]+", gold) if len(match[0]) <= 5]
    for match in rng.sample(numbers, min(2, len(numbers))):
        changed = str(int(match[0]) + 1)
        yield gold[: match.start()] + changed.zfill(len(match[0])) + gold[match.end() :]


def other_sign(gold: str, _: Random) -> Iterator[str]:
    if is_expression(gold) and not re.fullmatch(r"[-0.\s]*", gold):
        yield (
            gold.lstrip()[1:]
            if gold.lstrip().startswith("-") and len(split(gold, "+-")) == 1
            else f"-({gold})"
        )


def other_operator(gold: str, rng: Random) -> Iterator[str]:
    places = [match.start() for match in re.finditer(r"(?<=[\w)}\s])[+-](?=[\w(\\\s{])", gold)]
    for place in rng.sample(places, min(1, len(places))):
        yield gold[:place] + "-+"[gold[place] == "-"] + gold[place + 1 :]


def one_term(gold: str, _: Random) -> Iterator[str]:
    terms = split(gold, "+-")
    if is_expression(gold) and len(terms) > 1:
        yield from (terms[0].strip(), terms[-1].lstrip("+").strip())


def one_symbol(gold: str, rng: Random) -> Iterator[str]:
    symbols = re.findall(r"(?<![a-zA-Z\\{])[a-zA-Z](?:_\{?\w+\}?)?(?![a-zA-Z])", gold)
    if is_expression(gold) and symbols and symbols[0].strip() != gold.strip():
        yield rng.choice(symbols)


def fewer_parts(gold: str, _: Random) -> Iterator[str]:
    before, found, after = inside(gold)
    if parts(re.sub(r"\\(?:left|right)", "", gold)) > 1 or (before and len(found) > 1):
        yield before + ", ".join(found[:-1]) + after
        yield before + ", ".join([*found, "77"]) + after


def other_order(gold: str, _: Random) -> Iterator[str]:
    before, found, after = inside(gold)
    if before in ("(", "[") and len(found) > 1 and found[0] != found[1]:
        yield before + ", ".join([found[1], found[0], *found[2:]]) + after


def other_brackets(gold: str, _: Random) -> Iterator[str]:
    before, found, after = inside(gold)
    if before and after and len(found) > 1:
        if "infty" in gold:
            yield (
                re.sub(r"\((-\\infty)", r"[\1", gold)
                if "(-\\infty" in gold
                else gold.replace("\\infty)", "\\infty]")
            )
        yield rf"\{{{', '.join(found)}\}}" if before != r"\{" else f"({', '.join(found)})"
        if before in "([" and len(found) == 2:
            yield ("[" if before == "(" else "(") + ", ".join(found) + after


def upside_down(gold: str, _: Random) -> Iterator[str]:
    match = re.search(r"\\frac\{([^{}]+)\}\{([^{}]+)\}", gold)
    if match and match[1] != match[2]:
        yield rf"{gold[: match.start()]}\frac{{{match[2]}}}{{{match[1]}}}{gold[match.end() :]}"


def without_root(gold: str, _: Random) -> Iterator[str]:
    match = re.search(r"\\sqrt\{([^{}]+)\}", gold)
    if match and match[1] not in ("0", "1"):
        yield f"{gold[: match.start()]}{{({match[1]})}}{gold[match.end() :]}"


def other_constant(gold: str, _: Random) -> Iterator[str]:
    if re.search(r"\\pi(?![a-zA-Z])", gold):
        yield re.sub(r"\\pi(?![a-zA-Z])", "e", gold)


def twice(gold: str, _: Random) -> Iterator[str]:
    if is_expression(gold) and not re.fullmatch(r"[0.\s]*|.*\\infty.*", gold):
        yield rf"2\cdot({gold})"


def other_relation(gold: str, _: Random) -> Iterator[str]:
    for pattern, other in (
        (r"\\leq?(?![a-zA-Z])", "<"),
        (r"\\geq?(?![a-zA-Z])", ">"),
        ("<", ">"),
        (">", r"\\le "),
    ):
        if re.search(pattern, gold):
            yield re.sub(pattern, other, gold, count=1)
            return


def other_word(gold: str, _: Random) -> Iterator[str]:
    if match := re.fullmatch(r"(\\text\{\(?[A-Za-z]*)([A-Za-z])(\)?\})", gold):
        before, last, after = match.groups()
        yield before + chr(ord(last) + (1 if last not in "zZ" else -1)) + after


WRONG: dict[str, Change] = {
    "another digit": other_digit, "another sign": other_sign, "another operator": other_operator,
    "one term of a sum": one_term, "one symbol alone": one_symbol, "a part less or more": fewer_parts,
    "another order": other_order, "other brackets": other_brackets, "a fraction upside down": upside_down,
    "without a root": without_root, "e instead of pi": other_constant, "twice": twice,
    "another relation": other_relation, "another word": other_word,
}  # fmt: skip

# Right answers


def framed(*frames: str) -> Change:
    """Return the change that puts a gold into each of these frames, at `@`."""

    def change(gold: str, _: Random) -> Iterator[str]:
        yield from (frame.replace("@", gold) for frame in frames)

    return change


def replaced(pattern: str, other: str, only: str = "") -> Change:
    """Return the change that replaces a pattern, in golds that contain `only`."""

    def change(gold: str, _: Random) -> Iterator[str]:
        if re.search(only or pattern, gold) and (changed := re.sub(pattern, other, gold)) != gold:
            yield changed

    return change


def assigned(gold: str, _: Random) -> Iterator[str]:
    if is_expression(gold) and not re.search(r"[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", gold)):
        yield from (f"x = {gold}", f"x={gold}")


def as_decimal(gold: str, _: Random) -> Iterator[str]:
    match = re.fullmatch(r"(-?)\\frac\{([0-9]+)\}\{([0-9]+)\}", gold)
    if match:
        top, bottom = int(match[2]), int(match[3])
        yield f"{match[1]}{top}/{bottom}"
        yield rf"{match[1]}{{{top} \over {bottom}}}"
        if bottom in (2, 4, 5, 8, 10, 20, 25, 50, 100):
            yield f"{match[1]}{top / bottom}"
        if top > bottom and not match[1]:
            yield rf"{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}"
            yield f"{top // bottom} {top % bottom}/{bottom}"
        if bottom in (3, 9) and top < bottom:
            yield rf"{match[1]}0.\overline{{{top * 9 // bottom}}}"


def reversed_sum(gold: str, _: Random) -> Iterator[str]:
    terms = split(gold, "+-")
    if is_expression(gold) and 1 < len(terms) < 8 and not re.search("[0-9]e[-+]?[0-9]", gold):
        terms = [terms[0] if terms[0].lstrip().startswith("-") else f"+{terms[0]}", *terms[1:]]
        yield "".join(term.strip() for term in reversed(terms)).removeprefix("+")


def reversed_list(gold: str, _: Random) -> Iterator[str]:
    before, found, after = inside(gold)
    if (before in ("", r"\{") and parts(gold) == len(found) > 1) or (
        before == r"\{" and len(found) > 1
    ):
        yield before + ", ".join(reversed(found)) + after
        if not before:
            yield r" \text{ and } ".join(found)


def with_thousands(gold: str, _: Random) -> Iterator[str]:
    if re.fullmatch(r"-?[0-9]{4,}", gold):
        number = int(gold)
        yield from (
            f"{number:,}",
            f"{number:,}".replace(",", r"{,}"),
            f"{number:,}".replace(",", r"\,"),
            f"{number:,}".replace(",", r"\!,"),
        )


def with_unit(gold: str, _: Random) -> Iterator[str]:
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", gold):
        yield from (
            rf"{gold} \text{{ cm}}",
            rf"{gold}\text{{ units}}",
            f"{gold} dollars",
            rf"{gold} \text{{ square units}}",
            rf"{gold}\,\mathrm{{m}}",
        )


def as_inequalities(gold: str, _: Random) -> Iterator[str]:
    if match := re.fullmatch(r"([(\[])(-?[0-9]+),\s*(-?[0-9]+)([)\]])", gold):
        low, high = (r"\le" if bracket in "[]" else "<" for bracket in (match[1], match[4]))
        yield rf"{match[2]} {low} x {high} {match[3]}"
    if match := re.fullmatch(
        r"\(-\\infty,\s*([^,()\[\]]+)([)\]])\s*\\cup\s*([(\[])([^,()\[\]]+),\s*\\infty\)", gold
    ):
        low, high = (r"\le" if match[2] == "]" else "<"), (r"\ge" if match[3] == "[" else ">")
        yield rf"x {low} {match[1]} \text{{ or }} x {high} {match[4]}"


def in_scientific(gold: str, _: Random) -> Iterator[str]:
    if match := re.fullmatch(r"(-?[0-9.]+)e([-+]?[0-9]+)", gold):
        yield from (
            rf"{match[1]} \times 10^{{{int(match[2])}}}",
            rf"{match[1]} \cdot 10^{{{int(match[2])}}}",
            f"{match[1]}E{int(match[2])}",
        )


def as_word(gold: str, _: Random) -> Iterator[str]:
    if match := re.fullmatch(r"\\text\{\(?([A-Za-z ]+)\)?\}", gold):
        yield from (match[1], rf"\mathrm{{{match[1]}}}", rf"\textbf{{{match[1]}}}")


RIGHT: dict[str, Change] = {
    "dollars": framed("$@$", "$$@$$"),
    r"\( \)": framed(r"\(@\)"),
    r"\[ \]": framed(r"\[@\]"),
    "bold": framed(r"\mathbf{@}", r"\boldsymbol{@}", r"\bf @", "**@**", r"{\bf @}"),
    "underlined, coloured": framed(
        r"\underline{@}", r"\color{red}@", r"\textcolor{blue}{@}", r"{\color{red}@}"
    ),
    "style": framed(r"\displaystyle @", r"{@}", r"\large @"),
    "full stop": framed("@.", "$@$."),
    "comma, semicolon": framed("@,", "@;", "@ ,"),
    "blanks": framed(r"\ @\ ", r"\,@\,", r"\quad @", "@~", r"~@"),
    "a box in the box": framed(r"\boxed{@}", r"\fbox{@}"),
    "words before": framed(
        "Answer: @",
        r"\text{Answer: }@",
        r"\text{The answer is }@",
        "The answer is @",
        "Final answer: @",
    ),
    "an assignment": assigned,
    "dfrac, tfrac": replaced(r"\\frac", r"\\dfrac"),
    "fraction otherwise": as_decimal,
    r"without \left": replaced(r"\\(?:left|right)\s*", ""),
    r"with \left": replaced(r"^\((.*)\)$", r"\\left(\1\\right)"),
    "no blanks": replaced(r"(?<![a-zA-Z]) | (?![a-zA-Z])", ""),
    "braces of exponents": replaced(r"\^([0-9a-z])(?![\w])", r"^{\1}"),
    "Unicode minus": replaced("-", "\u2212"),
    "Unicode root": replaced(r"\\sqrt\{([0-9]+)\}", r"√\1"),
    "Unicode pi": replaced(r"\\pi(?![a-zA-Z])", "π"),
    "Unicode infinity": replaced(r"\\infty", "∞"),
    "Unicode product": replaced(r"\\times|\\cdot", "×"),
    "Unicode degrees": replaced(r"\^\{?\\circ\}?", "°"),
    "Unicode exponents": replaced(r"\^(?:2(?![0-9])|\{2\})", "²"),
    "Unicode relations": replaced(r"\\leq?(?![a-zA-Z])", "≤"),
    "Unicode union": replaced(r"\\cup", "∪"),
    "plain pi": replaced(r"\\pi(?![a-zA-Z])", "pi"),
    "plain root": replaced(r"\\sqrt\{([^{}]+)\}", r"sqrt(\1)"),
    "asterisks": replaced(r"\\times|\\cdot", "*"),
    "cdot": replaced(r"\\times", r"\\cdot"),
    "percent": replaced(r"\\%", "%"),
    "degrees left out": replaced(r"\^\{?\\circ\}?", ""),
    "dollar sign left out": replaced(r"\\\$", ""),
    "sum in another order": reversed_sum,
    "list in another order": reversed_list,
    "thousands": with_thousands,
    "unit": with_unit,
    "inequalities": as_inequalities,
    "power of ten": in_scientific,
    "words": as_word,
    "row for a column": replaced(
        r"^\\begin\{pmatrix\}(.*?)\\\\(.*?)(?:\\\\(.*?))?\\end\{pmatrix\}$", r"(\1, \2, \3)"
    ),
    "empty set": replaced(r"\\emptyset", r"\\varnothing"),
    "base": replaced(r"_\{?([0-9]+)\}?$", r"_{\1}", only=r"^[0-9]+_"),
}


def golds_of(directory: str | None) -> list[str]:
    """Return the distinct golds at hand."""
    if directory is None:
        text = Path(__file__).with_name("grader_golds.yaml").read_text(encoding="utf-8")
        return list(yaml.safe_load(text))
    import pandas as pd

    found: dict[str, None] = {}
    for path in sorted(Path(directory).rglob("*.parquet")):
        for row in pd.read_parquet(path).to_dict("records"):
            found[normalise(row, str(path))["answer"].strip("$")] = None
    return list(found)


def cases(
    golds: list[str], changes: dict[str, Change], each: int
) -> Iterator[tuple[str, str, str]]:
    """Yield kind, gold and changed gold, at most `each` of a gold, drawn by the gold alone."""
    for gold in golds:
        rng = Random(gold)
        made = {
            kind: [text for text in change(gold, rng) if text.strip() != gold]
            for kind, change in changes.items()
        }
        kinds = [kind for kind, texts in made.items() if texts]
        for kind in rng.sample(kinds, min(each, len(kinds))):
            yield kind, gold, rng.choice(made[kind])


def table(
    title: str, pairs: list[tuple[str, str, str]], grades: list[Grade], wanted: bool, show: bool
) -> list[str]:
    """Return the lines of a table: for each kind, how many, and the errors of both."""
    asked: Counter[str] = Counter()
    errors: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (kind, gold, answer), grade in zip(pairs, grades, strict=True):
        asked[kind] += 1
        errors[kind][0] += grade.correct is not wanted
        errors[kind][1] += grade.plain is not wanted
        if show and grade.correct is not wanted:
            mark = "ALONE" if grade.plain is wanted else ""
            print(f"{mark:6}{kind:22} {gold!r:60} {answer!r:60} {grade.verdict}")
    total = [sum(one[place] for one in errors.values()) for place in (0, 1)]
    rows = [
        f"| {kind} | {count} | {errors[kind][0]} | {errors[kind][1]} |"
        for kind, count in sorted(asked.items())
    ]
    return [
        f"| {title} | answers | stapo | math-verify |", "|---|---|---|---|", *rows,
        f"| **all** | {sum(asked.values())} | **{total[0]}** | **{total[1]}** |", "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--golds", default=os.environ.get("STAPO_DATA_DIR"))
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    golds = golds_of(given.golds)
    for title, changes, wanted in (
        ("wrong, accepted", WRONG, False),
        ("right, rejected", RIGHT, True),
    ):
        pairs = list(cases(golds, changes, given.each))
        grades = grade_answers([pair[1:] for pair in pairs], progress=True)
        print("\n".join(table(title, pairs, grades, wanted, given.show)))


if __name__ == "__main__":
    main()
