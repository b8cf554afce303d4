r"""Selection of the boxes of a response that are its answer: the last one or, for lists, several.

math-verify reads boxes less than 10 characters apart, or less than 70 with an "and", "or", comma or
semicolon between them, as one list. Here only these words and signs, delimiters and spaces may be between
them, and they count as one list only if the gold is a list of equally many parts and each box contains one
part. In all other cases the last box is the answer, so several candidates for one gold do not count.
"""

import re
from functools import lru_cache

BRACES = re.compile(r"\\boxed\{|[{}]")
COMMAND = len(r"\boxed{")
LONGEST_JOINT = 70
JOINT = re.compile(
    r"(?:\s|\$|[,;&]|\\\\|\\[()\[\],;:! ]|~|\*\*|\\q?quad(?![a-zA-Z])|(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])"
    r"|\\(?:text|textrm|mathrm|mbox)\s*\{[\s,;]*(?:and|or)?[\s,;]*\})*"
)
"""Text allowed between two boxes. Not possessive, which Python before 3.11.5 matches wrongly (gh-106052)."""
DELIMITERS = re.compile(r"(?<!\\)\$|\\[()\[\]](?!\w)|\\quad(?![a-zA-Z])")
SET = re.compile(
    r"(?:\\left\s*)?\\(?:\{|lbrace(?![a-zA-Z]))(?P<set>.*?)(?:\\right\s*)?\\(?:\}|rbrace(?![a-zA-Z]))"
    r"|\{(?P<group>[^{}]*)\}"
)
THOUSANDS = re.compile(
    r"[-+]?(?:\\?\$)?\s*[0-9]{1,3}(?:(?:,|\{,\})(?:\\!)?\s?[0-9]{3})+(?:\.[0-9]*)?"
)
"""A number with thousands commas; a list that looks like one is taken for one number."""
TOKENS = re.compile(
    r"(?P<open>\\[{(\[]|\\lbrace|[({\[])|(?P<close>\\[})\]]|\\rbrace|[)}\]])"
    r"|(?P<between>(?<!\\)[,;](?!\s*+\\!)|\\(?:text|mathrm|textrm|mbox)\s*+\{\s*+(?:,\s*+)?(?:and|or)\s*+\}"
    r"|(?<![\\a-zA-Z])(?:and|or)(?![a-zA-Z]))"
)
MAX_PARTS = 100


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} whose braces close, None without one.

    If a response is truncated inside its last box, the box before it counts.
    """
    boxes = _closed(text)
    return None if not boxes else text[slice(*max(boxes))]


def final_answer(gold: str, response: str) -> str | None:
    """Return the answer of a response: its last box, or a list of its last boxes; None without a box.

    Args:
        gold: trusted gold answer, which determines the number of parts.
        response: untrusted response.
    """
    wanted = _parts_of_gold(gold)
    boxes = _closed(response)
    if not boxes:
        return None
    last = max(boxes)
    if 1 < wanted <= MAX_PARTS and len(boxes) >= wanted:
        run = _joined(response, sorted(boxes), wanted + 1)
        found = [response[start:end].strip() for start, end in run]
        if len(found) == wanted and all(found) and all(parts(one) == 1 for one in found):
            # The space keeps 1 and 234 from being read as 1,234.
            return ", ".join(found)
    return response[slice(*last)]


def parts(text: str) -> int:
    r"""Return the number of parts of a list, outside of all brackets; of a set \{...\}, its elements."""
    text = DELIMITERS.sub(" ", text).strip()
    if THOUSANDS.fullmatch(text):
        return 1
    if (whole := SET.fullmatch(text)) is not None and r"\{" not in (whole["set"] or ""):
        text = whole["set"] or whole["group"] or ""
    pieces, depth, start = [], 0, 0
    for match in TOKENS.finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        elif depth == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    # Nothing is between an Oxford comma and the word after it.
    return sum(bool(piece.strip()) for piece in pieces)


_parts_of_gold = lru_cache(maxsize=4096)(parts)
"""Cached `parts` for gold answers; answers are too long and too many for a cache."""


def _closed(text: str) -> list[tuple[int, int]]:
    """Return start and end of the content of every box that is closed."""
    opened: list[tuple[bool, int]] = []
    found = []
    for match in BRACES.finditer(text):
        if match[0] != "}":
            opened.append((match[0] != "{", match.end()))
        elif opened:
            is_box, position = opened.pop()
            if is_box:
                found.append((position, match.start()))
    return found


def _joined(text: str, boxes: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Return the last boxes that only joints separate, at most `most`."""
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box[1] + 1 : run[0][0] - COMMAND]
        apart = box[1] > run[0][0] or len(between) > LONGEST_JOINT
        if apart or not JOINT.fullmatch(between) or len(run) == most:
            break
        run.insert(0, box)
    return run
