r"""The answer of a response: its last \boxed{...}, or several boxes if the gold answer is a list.

math-verify takes boxes near each other for one list, so that 1 and 2 would be one answer in
"\boxed{1}. No, \boxed{2}". Here only separators may be between them, and the gold must be a list of equally
many parts (OlympiadBench $69$,$84$ and many others).
"""

import re

BRACES = re.compile(r"\\boxed\{|[{}]")
BETWEEN = re.compile(r"(?:[\s$,;&~]|\\[()\[\],;:! ]|\\text\s*\{|\}|\*\*|\\q?quad|\b(?:and|or)\b)*")
"""Text allowed between the boxes of a list."""
LONGEST_GAP = 70
DELIMITERS = re.compile(r"(?<!\\)\$|\\[()\[\]](?!\w)")
THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
"""A number with thousands commas; a list that looks like one is taken for one number."""
PART = re.compile(r"(?P<open>\\\{|[({\[])|(?P<close>\\\}|[)}\]])|(?P<comma>,(?!\\!))")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} whose braces close, None without one.

    If a response is truncated inside its last box, the box before it counts.
    """
    boxes = _closed(text)
    return text[slice(*max(boxes))] if boxes else None


def final_answer(gold: str, response: str) -> str | None:
    """Return the answer of a response: its last box, or a list of its last boxes; None without a box.

    Args:
        gold: trusted gold answer, which determines the number of parts.
        response: untrusted response.
    """
    boxes = sorted(_closed(response))
    if not boxes:
        return None
    wanted = parts(gold)
    run = [boxes[-1]]
    for box in reversed(boxes[-wanted - 1 : -1]):
        between = response[box[1] + 1 : run[0][0] - len(r"\boxed{")]
        if len(between) > LONGEST_GAP or not BETWEEN.fullmatch(between):
            break
        run.insert(0, box)
    found = [response[slice(*box)].strip() for box in run]
    if len(run) == wanted > 1 and all(parts(one) == 1 for one in found):
        return ", ".join(found)
    return response[slice(*boxes[-1])]


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
