r"""Normalisation of boxed answers as text, and rejection of text that is not an answer.

math-verify drops what it does not understand: 5' becomes 5, 2516_7 the number 2516, `1,2,3,\ldots` three
numbers, 6m and 6d both 6. Here marks, bases and dots are kept. `rewritten` is applied to gold and answer,
`fault` compares the two. Only text is used, so results are fast and the same on all machines.
"""

import re

from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex

from stapo.evaluation.grading import normalise

# Units are removed in this module: math-verify takes the d of 3d and the m of 3m for units.
CONFIG = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)

_INNER = r"[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*"
GROUP = rf"\{{{_INNER}\}}"
CHARACTERS = str.maketrans(
    {"\u2212": "-", "\u2032": "'", "\u2033": "''", "\u2026": r"\ldots ", "\u2248": r"\approx ",
     "\u00b0": r"^{\circ}", "\u00b7": r"\cdot ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
     "\u00a0": " "}
)  # fmt: skip
INVISIBLE = re.compile(
    rf"\\[hv]?phantom\s*{GROUP}|\\(?:text)?color\s*{GROUP}"
    r"|\\(?:(?:display|text|script|scriptscript)style|boldsymbol|bm|pmb|underline|(?:no)?limits"
    r"|[bB]igg?[lrm]?|mathstrut|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
)
"""Commands for style, size and colour, and phantoms with their invisible content."""
FRAME = re.compile(rf"\s*\\(?:fbox|framebox|boxed|mbox|hbox)\s*\{{({_INNER})\}}\s*")
NUMBER_IN_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|normal)?|math(?:bf|rm|sf|it|tt)|mbox)\s*(\{\s*[-+]?[0-9][0-9.,]*\s*\})"
)
AFTER_DOLLAR = re.compile(r"\$\s?\.{1,2}$")
"""Full stop after a closing dollar sign, as at the end of one gold answer."""
FULL_STOP = re.compile(r"(?<=[^\s.\\])\s*\.\s*$")
FRACTION = re.compile(r"(?<![\w}\])^\\])\(([^()]*)\)/\(([^()]*)\)")
"""Fractions such as (1)/(2) x, which math-verify parses as 1/(2x)."""
DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]|(?<!\\)\$")
DOLLAR = re.compile(r"\\\$|\\text\s*\{\s*\\?\$\s*\}")
_GAP = r"(?:\\[,!;:]|\\ |~|\{,\}|,\\!|\\thinspace(?![a-zA-Z]))\s*"
THOUSANDS = re.compile(rf"(?<![\w.,])[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}})+(?![0-9])")
SPACED_THOUSANDS = re.compile(r"-?[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?")
SPACE = re.compile(
    r"(?<!\\)\\(?:[,;:!> ]|(?:q?quad|enspace|thinspace|medspace|space)(?![a-zA-Z]))|~"
)
QUOTED = re.compile(r"\s*(?:``|\"|'')([^\"'`]*)(?:''|\")\s*")
PRIMES = re.compile(r"\^\s*\{?\s*((?:\\prime\s*)+)\}?|(['\"]+)")
UNIT = re.compile(
    r"(?<=[\w)\]}%\s])(?<![\^_])\s*(?:\\(?:text|mbox|mathrm|textrm|textnormal)\s*\{([^{}]*)\}"
    r"|\s((?:square |cubic )?(?:[cmk]m|ft|feet|inch(?:es)?|yards?|miles?|met(?:er|re)s?|kg|grams?|lbs?"
    r"|pounds?|hours?|minutes?|seconds?|days?|weeks?|months?|years?|degrees?|units?|mph|dollars?|cents?)))"
    r"(?:\s*\^\s*\{?[0-9]\}?)?\s*$"
)
POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
NOT_A_UNIT = re.compile(
    r"[0-9]|\b(?:or|and|not|no|less|more|least|most|than|wrong|incorrect|false|times|mod|dozen)\b"
)

MARKED = re.compile(r"[0-9)}\]]\s*\^\{(?:\\prime)+\}")
NAMED = re.compile(r"(?<![\w})])([a-zA-Z](?:_\{?\w+\}?)?)\s*\\(?:approx|simeq)(?![a-zA-Z])")
APPROXIMATELY = re.compile(r"\\(?:approx|simeq)(?![a-zA-Z])")
DOTS = re.compile(r"\\(?:[lcvd]?dots[bcmio]?)(?![a-zA-Z])|\.\.\.")
OPERATORS = re.compile(
    r"\\(?:sum|prod|i*int|oint|lim|gcd|lcm|[bp]?mod)(?![a-zA-Z])"
    r"|\\(?:operatorname\*?|text|mathrm)\s*\{\s*(?:gcd|lcm|mod|GCD|LCM|lim|sum)\s*\}"
    r"|(?<![\\a-zA-Z])(?:gcd|lcm|mod)(?![a-zA-Z])"
)
"""Unevaluated operations. Powers, roots, factorials and logarithms are allowed: gold answers use them."""
CHOICES = re.compile(
    r"\\(?:max|min|lfloor|lceil|floor|ceil|det)(?![a-zA-Z])|\\operatorname\*?\s*\{(?:max|min|floor|ceil|det)\}"
)
"""Operations that are also unevaluated if the gold is a number; with a variable they form a closed form."""
TRANSPOSED = re.compile(r"\^\s*(?:T|\{\s*(?:T|\\top)\s*\}|\\top)(?![a-zA-Z])")
APART = re.compile(r"(\\[a-zA-Z]+|[\^_])?\s*[0-9][0-9.]*\s+(?=[0-9.])")
NUMERAL = re.compile(
    r"\(?\s*([0-9A-Z]+)\s*\)?\s*_\s*(?:([0-9])|\{\s*\(?([0-9]+)\)?\s*\}|(?:\{\s*)?\\text\s*\{\s*([a-z]+)\s*\}\s*\}?)"
)
"""A number with its base as an index."""
SUBSCRIPT = re.compile(r"[0-9)]\s*_")
BASES = {
    name: base
    for base, name in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2
    )
} | {"sixteen": 16}  # fmt: skip
LINK = re.compile(r"(\\(?:approx|simeq)(?![a-zA-Z])|(?<![<>!:=])=(?!=))")
RELATION = re.compile(
    r"[<>,;&]|(?<![a-zA-Z])(?:or|and)(?![a-zA-Z])"
    r"|\\(?:[lg]eq?(?:slant|q)?|neq?|[lg]t|in|not|sim|equiv|cong|to|pm|mp|cup|cap|begin)(?![a-zA-Z])"
)
DECIMAL = re.compile(r"[-+]?[0-9]*\.?([0-9]*)(?:\\times\s*10\^\{(-?[0-9]{1,3})\})?")


def rewritten(text: str) -> str:
    """Return a gold or an answer in a normal form: no style, delimiters or units, and primes as powers."""
    text = re.sub(r"\s+", " ", text.translate(CHARACTERS)).strip()
    text = FRACTION.sub(r"\\frac{\1}{\2}", INVISIBLE.sub(" ", text))
    for _ in range(2):
        if (frame := FRAME.fullmatch(text)) is not None:
            text = frame[1]
    text = DELIMITER.sub(" ", AFTER_DOLLAR.sub("$", DOLLAR.sub("", text)))
    text = NUMBER_IN_TEXT.sub(r"\1", text)
    text = THOUSANDS.sub(lambda m: re.sub(r"[^0-9]", "", m[0]), text)
    text = FULL_STOP.sub("", SPACE.sub(" ", text).strip())
    if (quoted := QUOTED.fullmatch(text)) is not None:
        text = quoted[1]
    if SPACED_THOUSANDS.fullmatch(text):
        text = text.replace(" ", "")
    text = _without_unit(PRIMES.sub(_prime, text))
    # math-verify reads only a separate i as the imaginary unit.
    text = re.sub(r"(?<=[0-9])i(?![a-zA-Z])", " i", text)
    return normalise(text)


def _prime(match: re.Match[str]) -> str:
    marks = match[2] or ""
    count = marks.count("'") + 2 * marks.count('"') + (match[1] or "").count("prime")
    return r"^{" + r"\prime" * count + "}"


def _without_unit(text: str) -> str:
    match = UNIT.search(text)
    if match is None or not text[: match.start()].strip():
        return text
    word = (match[1] or match[2] or "").strip()
    number = text[: match.start()].strip()
    first, _, rest = word.partition(" ")
    if first in POWERS and NOT_A_UNIT.search(rest) is None:
        return rf"{number}\times 10^{{{POWERS[first]}}}"
    if NOT_A_UNIT.search(word):
        return text
    return number


def simplified(text: str) -> str:
    """Return rewritten text in the form that latex2sympy needs."""
    return str(normalize_latex(text, config=CONFIG))


def fault(gold: str, answer: str) -> str:
    """Return why an answer is invalid or wrong whatever its value, empty if it is not; both are rewritten.

    In a chain only the last side must be evaluated; the sides before it are the derivation.
    """
    last = _pieces(answer)[-1]

    def only_in_answer(pattern: re.Pattern[str]) -> bool:
        return pattern.search(last) is not None and pattern.search(gold) is None

    if only_in_answer(DOTS):
        return "unfinished"
    if only_in_answer(MARKED):
        return "marked"
    if only_in_answer(TRANSPOSED) and "matrix" not in answer:
        return "transposed"
    unevaluated = only_in_answer(OPERATORS) or (is_numeric(gold) and only_in_answer(CHOICES))
    if unevaluated and not _has_value(answer):
        return "unevaluated"
    if any(m[1] is None for m in APART.finditer(answer)) and not APART.search(gold):
        return "several numbers"
    return _fault_of_base(gold, answer)


def _has_value(answer: str) -> bool:
    """Return whether a side of a chain is evaluated."""
    sides = _pieces(answer)[::2]
    done = [s for s in sides if not any(p.search(s) for p in (DOTS, OPERATORS, CHOICES))]
    return any(is_numeric(side) for side in done) and len(sides) > 1


def is_numeric(text: str) -> bool:
    """Return whether text has digits or constants but no variables."""
    bare = re.sub(r"\\[a-zA-Z]+", " ", text.replace(r"\pi", "3"))
    return re.search("[0-9]", bare) is not None and re.search("[a-zA-Z]", bare) is None


def numeral(text: str) -> tuple[str, int] | None:
    """Return digits and base of a number with an index, None for other text."""
    match = NUMERAL.fullmatch(text.strip())
    if match is None or (match[4] and match[4] not in BASES):
        return None
    base = BASES[match[4]] if match[4] else int(match[2] or match[3])
    return match[1].lstrip("0") or "0", base


def _fault_of_base(gold: str, answer: str) -> str:
    """Return "base" if numbers with bases differ, else an empty text; math-verify ignores the index."""
    if not SUBSCRIPT.search(gold + " " + answer):
        return ""
    sides = _pieces(answer)[::2]
    expected, found = numeral(gold), numeral(sides[-1])
    if len({_value(*written) for side in sides if (written := numeral(side))}) > 1:
        return "base"
    if expected:  # An answer without a base has that of the question.
        digits = sides[-1].strip().lstrip("0")
        return "" if expected == found or expected[0] == digits else "base"
    if found:
        return "" if found[1] == 10 and gold.strip() == found[0] else "base"
    return "" if re.sub(r"\s", "", gold) == re.sub(r"\s", "", answer) else "base"


def _value(digits: str, base: int) -> int | None:
    try:
        return int(digits, base)
    except ValueError:  # Such as a 9 in base 8.
        return None


def links(text: str) -> list[str] | None:
    r"""Return alternating sides and signs (= or \approx) of a chain, None for other text and lists."""
    parts = _pieces(text)
    if len(parts) == 1 or any(_joined(side) for side in parts[::2]):
        return None
    return parts


def _pieces(text: str) -> list[str]:
    r"""Return the text split at the signs = and \approx outside of parentheses and braces."""
    parts, depth, piece = [], 0, ""
    for token in LINK.split(text):
        if LINK.fullmatch(token) and depth == 0:
            parts += [piece.strip(), token]
            piece = ""
            continue
        depth += len(re.findall(r"[({\[]", token)) - len(re.findall(r"[)}\]]", token))
        piece += token
    return [*parts, piece.strip()]


def _joined(side: str) -> bool:
    """Return whether text has a comma, an inequality or a similar sign outside all parentheses."""
    bare = side
    while (shorter := re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]", "", bare)) != bare:
        bare = shorter
    return RELATION.search(bare) is not None


def last_place(text: str) -> int | None:
    """Return the power of ten of a decimal's last digit, None for other text."""
    match = DECIMAL.fullmatch(text.replace(r"\cdot", r"\times").strip())
    if match is None or not re.search("[0-9]", text):
        return None
    return int(match[2] or 0) - len(match[1])
