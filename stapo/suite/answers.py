r"""Readers: how the answer is read out of a response, and whether it earns the training reward.

A study and the task files of `benchmarks/` name a reader: `boxed`, `last_number`, `whole` or
`{after: MARKER}`. Each is a few pure functions of text. Evaluation grades what was read; the training reward
compares it with the gold answer, exactly. Tasks of reasoning-gym judge what was read themselves:
`reasoning_gym` reads its tags, `{reasoning_gym: last_number}` and others as their name says. Tests judge the
code that `python_function` reads.

With `boxed` the answer is the last \boxed{...}, or several boxes if the gold answer is a list: math-verify
takes boxes near each other for one list, so that 1 and 2 would be one answer in "\boxed{1}. No, \boxed{2}".
Here only separators may be between them, and the gold must be a list of equally many parts (OlympiadBench
$69$,$84$ and many others).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from textwrap import dedent
from typing import Any, Literal

Setting = str | Mapping[str, str]
"""Name of a reader, or `{"after": marker}`; a function of a study's own is `FILE.py:function`."""

Verifier = Literal["math_verify", "reasoning_gym", "python_function"]
"""Who judges an answer that was read."""

BRACES = re.compile(
    r"(?P<box>\\(?:boxed|fbox)\s*\{)|(?P<short>\\(?:boxed|fbox)(?:(?=[0-9])|\s+)(?=[^\s{}\\$]))"
    r"|\\.|[{}]",
    re.DOTALL,
)
r"""What opens and closes as in LaTeX: \{ is no brace, and \boxed5 has a box around one character."""
BETWEEN = re.compile(
    r"(?:[\s$,;&~]|\\[()\[\],;:! ]|\\text\s*\{|\}|\*\*|\\q?quad|\b(?:and|or)\b|\b[a-zA-Z](?:_\w)?\s*=)*"
)
"""Text allowed between the boxes of a list: separators, and names as in x = 1 or x = 2."""
LONGEST_GAP = 70
DELIMITERS = re.compile(r"(?<!\\)\$|\\[()\[\]](?!\w)")
THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
"""A number with thousands commas; a list that looks like one is taken for one number."""
PART = re.compile(r"(?P<open>\\\{|[({\[])|(?P<close>\\\}|[)}\]])|(?P<comma>,(?!\\!))")
BOX = r"\boxed{"
TAIL = 100
"""Characters at the end of a response that must contain the box that earns the reward."""
NUMBER = re.compile(
    r"(?:(?<![\w)\]}])[-+\u2212]\$?)?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
"""A decimal number; the minus of 16-3 is no sign."""
EDGES = " \t\r$"
MARKDOWN = " \t\r*_`"
"""Of a line, what emphasis leaves of a marker in it: **Answer:** 5."""
CODE = re.compile(
    r"^(?P<indent>[ \t]*)```py[^\n]*\n(?P<code>.*?)^[ \t]*```",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
"""Also blocks of `py`, `python3` and, as some models copy an instruction, `python block`; also in a list."""


@dataclass(frozen=True)
class Reader:
    """What a reader does with responses and with the answers of rows."""

    read: Callable[[str, str], str | None]
    """Gold answer and response -> the answer of the response, None if there is none."""
    gold: Callable[[str], str]
    """Answer of a row, which may be a worked solution -> the gold answer."""
    written: Callable[[str], str]
    """Gold answer -> the shortest response with this answer."""
    is_right: Callable[[str, str], bool]
    """Gold answer and response -> whether it earns the training reward, if no verifier process decides."""
    verifier: Verifier = "math_verify"


def built_in(setting: Setting) -> Reader:
    """Return the reader of a setting; `{"after": marker}` has a reader for each marker."""
    if isinstance(setting, str):
        return READERS[setting]
    if name := setting.get("reasoning_gym"):
        return _judged_by_task(READERS[name])
    return _after(setting["after"])


def is_built_in(setting: Any) -> bool:
    """Return whether a setting names a built-in reader; a function in a file does not."""
    if isinstance(setting, Mapping):
        marker = setting.get("after")
        if [*setting] == ["reasoning_gym"]:
            return setting["reasoning_gym"] in ("boxed", "last_number", "whole")
        return [*setting] == ["after"] and isinstance(marker, str) and bool(marker.strip())
    return isinstance(setting, str) and setting in READERS


def judged_by_task(setting: Any) -> bool:
    """Return whether a setting names a reader for tasks of reasoning-gym, which judge themselves."""
    return is_built_in(setting) and built_in(setting).verifier == "reasoning_gym"


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} whose braces close, also of a truncated text; or None."""
    boxes = _closed(text)
    return boxes[-1].inside(text) if boxes else None


def final_answer(gold: str, response: str) -> str | None:
    """Return the answer of a response: its last box, or as many of its last boxes as the gold has parts."""
    boxes = _closed(response)
    if not boxes:
        return None
    wanted = parts(gold)
    run = [boxes[-1]]
    for box in reversed(boxes[-wanted - 1 : -1]):
        between = response[box.after : run[0].before]
        if len(between) > LONGEST_GAP or not BETWEEN.fullmatch(between):
            break
        run.insert(0, box)
    answers = [box.inside(response).strip() for box in run]
    if len(run) == wanted > 1 and all(parts(answer) == 1 for answer in answers):
        return ", ".join(answers)
    return boxes[-1].inside(response)


def parts(text: str) -> int:
    """Return the number of parts of a list, separated by commas outside of all brackets."""
    text = DELIMITERS.sub("", text).strip()
    if THOUSANDS.fullmatch(text):
        return 1
    depth = commas = 0
    for match in PART.finditer(text):
        depth += bool(match["open"]) - bool(match["close"])
        commas += match["comma"] is not None and depth == 0
    return commas + 1


@dataclass(frozen=True, order=True)
class Box:
    """Places in a response."""

    start: int
    end: int
    before: int
    after: int
    """Start and end of the content, and those of the whole command."""

    def inside(self, text: str) -> str:
        """Return the content."""
        return text[self.start : self.end]


def _closed(text: str) -> list[Box]:
    r"""Return every box that is closed, in their order; empty ones, as in "in \boxed{}", if all are."""
    opened: list[re.Match[str]] = []
    boxes = []
    for match in BRACES.finditer(text):
        if match["short"]:
            boxes.append(Box(match.end(), match.end() + 1, match.start(), match.end() + 1))
        elif match["box"] or match[0] == "{":
            opened.append(match)
        elif match[0] == "}" and opened and (opening := opened.pop())["box"]:
            boxes.append(Box(opening.end(), match.start(), opening.start(), match.end()))
    return sorted([box for box in boxes if box.inside(text).strip()] or boxes)


def box_content(text: str) -> str | None:
    r"""Return the content of the last \boxed{; None if it is not closed, even if an earlier box is.

    Evaluation is less strict with a truncated response (`last_boxed`).
    """
    start = text.rfind(BOX)
    depth = 0
    for place in range(start, len(text)) if start >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if text[place] == "}" and depth == 0:
            return text[start + len(BOX) : place]
    return None


def is_right_box(gold: str, response: str) -> bool:
    r"""Return whether the last \boxed{...} at the end of a response is the gold answer, as a string.

    Source: the strict box of JustRL's and veRL's `math_dapo.py`: the last 100 characters of the last 300.
    """
    return box_content(response[-TAIL:]) == gold


def last_number(text: str) -> str | None:
    """Return the last number of a text, without thousands separators; None without one."""
    numbers = NUMBER.findall(text)
    return _plain(numbers[-1]) if numbers else None


def text_after(marker: str, text: str) -> str | None:
    """Return what follows a marker's last occurrence in its line, or None.

    It is without `EDGES`, full stop and, unless nothing else is there, `MARKDOWN`.
    """
    _, there, rest = text.rpartition(marker)
    bare = _bare(rest.partition("\n")[0])
    return _bare(bare.strip(MARKDOWN)) or bare or None if there else None


def last_tagged(text: str) -> str | None:
    """Return the last text in `<answer>` and `</answer>`; None without one.

    As by `extract_answer` of reasoning-gym, but that an answer begins after the last opening tag.
    """
    before, closing, _ = text.rpartition("</answer>")
    _, opening, answer = before.rpartition("<answer>")
    return answer.strip() if opening and closing else None


def last_code(gold: str, text: str) -> str | None:
    """Return the last block of Python that defines the function, or else the last; None if none is closed.

    After it there may be an example of its use.
    """
    blocks = [
        dedent(match["code"]) if match["indent"] else match["code"] for match in CODE.finditer(text)
    ]
    name = re.search(r'"function":\s*"(\w+)"', gold)
    definition = re.compile(rf"\bdef\s+{name[1]}\s*\(") if name else None
    defining = [block for block in blocks if definition and definition.search(block)]
    return next((block.removesuffix("\n") for block in reversed(defining or blocks)), None)


def same(gold: str, answer: str | None) -> bool:
    """Return whether two answers are the same number, or else the same text."""
    if answer is None:
        return False
    numbers = [_number(text) for text in (gold, answer)]
    return numbers[0] == numbers[1] if None not in numbers else gold.strip() == answer.strip()


def _number(text: str) -> Decimal | None:
    text = text.strip()
    return Decimal(_plain(text)) if NUMBER.fullmatch(text) else None


def _plain(number: str) -> str:
    return number.translate({ord(","): None, ord("$"): None, ord("+"): None, ord("\u2212"): "-"})


def _bare(text: str) -> str:
    return text.replace(r"\$", "$").strip(EDGES).removesuffix(".").strip(EDGES)


def _gold_number(text: str) -> str:
    r"""Return the number that is the last line of an answer, as in "…\n#### 18"; other answers unchanged."""
    line = _bare(text.strip().rpartition("\n")[2].lstrip("#"))
    return _plain(line) if NUMBER.fullmatch(line) else text.strip()


def _after(marker: str) -> Reader:
    def read(_: str, response: str) -> str | None:
        return text_after(marker, response)

    return Reader(
        read,
        # Of a worked solution such as those of GSM8K, what a response would be read as.
        gold=lambda text: (
            _bare(text.strip()) if marker not in text else text_after(marker, text) or ""
        ),
        written=lambda gold: f"{marker} {gold}",
        is_right=lambda gold, response: same(gold, read(gold, response)),
    )


def _judged_by_task(reader: Reader) -> Reader:
    """Return a reader for rows of reasoning-gym, whose gold is JSON with one of the right answers."""

    def own(gold: str) -> str:
        return str(json.loads(gold)["answer"]).strip()

    def read(gold: str, response: str) -> str | None:
        return reader.read(own(gold), response)

    return Reader(
        read,
        gold=lambda text: text,
        written=lambda gold: reader.written(own(gold)),
        is_right=lambda gold, response: read(gold, response) == own(gold),
        verifier="reasoning_gym",
    )


READERS = {
    "boxed": Reader(
        final_answer,
        gold=lambda text: text,
        written=lambda gold: rf"\boxed{{{gold}}}",
        is_right=is_right_box,
    ),
    "last_number": Reader(
        lambda _, response: last_number(response),
        gold=_gold_number,
        written=lambda gold: gold,
        is_right=lambda gold, response: same(gold, last_number(response)),
    ),
    "whole": Reader(
        lambda _, response: _bare(response.strip()) or None,
        gold=lambda text: text.strip(),
        written=lambda gold: gold,
        is_right=lambda gold, response: same(gold, _bare(response.strip())),
    ),
    "reasoning_gym": _judged_by_task(
        Reader(
            lambda _, response: last_tagged(response),
            gold=lambda text: text,
            written=lambda gold: f"<answer>{gold}</answer>",
            is_right=lambda gold, response: last_tagged(response) == gold,
        )
    ),
    # Of tests no right function is known: `stapo.suite.sandbox` tells which golds are tests.
    "python_function": Reader(
        last_code,
        gold=lambda text: text,
        written=lambda gold: gold,
        is_right=lambda gold, response: False,
        verifier="python_function",
    ),
}
"""Built-in readers without settings of their own, by name."""
READERS_IN_WORDS = (
    f"{', '.join(READERS)}, {{reasoning_gym: last_number}}, {{after: TEXT}} or FILE.py:function"
)
