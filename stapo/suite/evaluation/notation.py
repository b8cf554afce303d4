r"""Usual notations of answers, rewritten as math-verify reads them: decoration, Unicode, plain words, units.

Golds and answers are rewritten alike. Rules change how something is written, not what it says; what
math-verify reads by itself is left alone.
"""

import re
from collections.abc import Callable

Replacement = str | Callable[[re.Match[str]], str]

GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
    "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
NAMED = (
    "alpha|beta|gamma|delta|epsilon|zeta|theta|iota|kappa|lambda|pi|rho|sigma|tau|upsilon|phi|omega"
)
"""Names that are taken for letters outside of commands; the others could be products of variables."""
LETTERS = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", GREEK, strict=True))
SIGNS = {
    "−": "-", "–": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "∗": r"\cdot ", "÷": r"\div ", "∞": r"\infty ", "°": r"^{\circ}", "º": r"^{\circ}", "≤": r"\le ",
    "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∪": r"\cup ",
    "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "√": r"\sqrt ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "′": "'", "’": "'", "…": r"\ldots ", "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "€": "", "£": "",
    "。": ".", "﹣": "-", "\u200b": "", "\u2061": "", "\ufeff": "",
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # Full-width forms of ASCII.
    **{letter: rf"\{name} " for letter, name in LETTERS.items()},
    "ϕ": r"\phi ", "ϵ": r"\epsilon ", "Δ": r"\Delta ", "Ω": r"\Omega ", "Φ": r"\Phi ", "Σ": r"\Sigma ",
}  # fmt: skip
UNICODE = str.maketrans(SIGNS)
RAISED, LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "₀₁₂₃₄₅₆₇₈₉₋₊ₙ"
AS_PLAIN = str.maketrans(RAISED + LOWERED, "0123456789-+n" * 2)

STYLES = (
    "mathbf|boldsymbol|bm|pmb|mathit|mathsf|mathtt|mathnormal|textsf|textsc|underline|emph|ensuremath|"
    "boxed|fbox|mathord|hbox|operatorname"
)
"""Commands of one argument that change how it looks."""
COLOURS = "textcolor|color|colorbox"
"""Those whose first argument is a colour."""
SWITCHES = (
    "bf|rm|it|sf|tt|bfseries|itshape|displaystyle|textstyle|scriptstyle|tiny|small|normalsize|large|"
    "Large|LARGE|huge|Huge|limits|nolimits"
)
CONCLUSIONS = "therefore|implies|Rightarrow|Longrightarrow|rightarrow|to|approx"
SPACES = "quad|qquad|enspace|thinspace|medspace|thickspace|negthinspace|hfill|nobreakspace"
FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|max|min|gcd|lcm"
BASES = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen",
)  # fmt: skip
SCALES = r"hundred|thousand|million|billion|trillion|dozen|percent|percentage|half|halves|thirds?|quarters?"
POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
NUMBER = r"[-+]?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)"
QUANTITY = rf"{NUMBER}|\\[dt]?frac\s*\{{[0-9]+\}}\s*\{{[0-9]+\}}"


def _words(names: str) -> str:
    """Return the pattern of names that stand alone, outside of commands and indices."""
    return rf"(?<!\\text\{{)(?<!\\mathrm\{{)(?<![a-zA-Z\\_])({names})(?![a-zA-Z])"


def _repeating(match: re.Match[str]) -> str:
    """Return the fraction of a repeating decimal."""
    before, after, again = match.groups()
    nines = 10 ** len(after) * (10 ** len(again) - 1)
    top = int(before + after + again) - int(before + after or "0")
    return rf"\frac{{{top}}}{{{nines}}}"


def _mixed(match: re.Match[str]) -> str:
    whole, top, bottom = match.groups()
    return rf"{whole}\frac{{{top}}}{{{bottom}}}" if int(top) < int(bottom) else match[0]


def _system(match: re.Match[str]) -> str:
    """Return the rows of a system of equations as a list."""
    return ", ".join(
        row.replace("&", "").strip() for row in re.split(r"\\\\", match[1]) if row.strip()
    )


def _answer(match: re.Match[str]) -> str:
    return r"\text{" if match["open"] and not match["close"] else ""


RULES: list[tuple[str, Replacement]] = [
    (rf"[{RAISED}]+", lambda match: f"^{{{match[0].translate(AS_PLAIN)}}}"),
    (rf"[{LOWERED}]+", lambda match: f"_{{{match[0].translate(AS_PLAIN)}}}"),
    # Frames: dollars, \( \), \[ \], Markdown.
    (r"(?<!\\)\\[()\[\]]", " "),
    (r"(?<!\\)\$", ""),
    (r"^\s*(\*\*|__|[*_`])(.*?)\1\s*$", r"\2"),
    (
        r"^\s*(?P<open>\\text\s*\{)?\s*(?i:(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*[:=]?)\s*(?P<close>\})?",
        _answer,
    ),
    # Switches and spaces; a thin space between digits is one of thousands: MATH 10,\!080.
    (rf"\\(?:{SWITCHES})(?![a-zA-Z])|\\(?:text|mathrm)(?![a-zA-Z]|\s*\{{)", " "),
    # What an answer follows from.
    (rf"^\s*(?:(?:[=:]|\\(?:{CONCLUSIONS})(?![a-zA-Z]))\s*)+", ""),
    (r"\\!", ""),
    (r"(?<=[0-9])\\[,;: ](?=[0-9]{3}(?![0-9]))", ""),
    (rf"(?<!\\)\\[,;:! ]|(?<!\\)~|\\(?:{SPACES})(?![a-zA-Z])|\\[hv]space\*?\{{[^{{}}]*\}}", " "),
    (r"\\([lr])brace(?![a-zA-Z])", lambda match: r"\{" if match[1] == "l" else r"\}"),
    (
        r"\\(?:left|right|m?big[lrm]?|Big[lrm]?|bigg[lrm]?|Bigg[lrm]?)\s*"
        r"(?=[()\[\]|]|\\\}|\\\{(?!\s*\\begin))",
        "",
    ),
    # Names of what LaTeX has a command for; Minerva has np.arcsin(10/13).
    (r"\b(?:np|numpy|math)\.(?=[a-z])", ""),
    (r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}", r"\\emptyset "),
    (r"\\degrees?(?![a-zA-Z])", r"^{\\circ}"),
    (r"\\log\s*_\s*(?:e|\{e\})", r"\\ln "),
    (r"\\(?:lor|vee)(?![a-zA-Z])", r"\\text{ or }"),
    (r"\\(?:lt|gt)(?![a-zA-Z])", lambda match: "<" if match[0] == r"\lt" else ">"),
    (r"\\(?:leq|leqslant)(?![a-zA-Z])|<=", r"\\le "),
    (r"\\(?:geq|geqslant)(?![a-zA-Z])|>=", r"\\ge "),
    (r"(?<=[\w)}\]])\s*\*\*\s*(?=[\w({\\-])", "^"),
    (r"(?<=[\w)}\]])\s*\*\s*(?=[\w({\\-])", r"\\cdot "),
    (_words(NAMED), r"\\\1 "),
    # Not of units, as in 10 min.
    (_words(FUNCTIONS) + r"(?=\s*[\w({\\^])", r"\\\1 "),
    (r"\\langle(?![a-zA-Z])", "("),
    (r"\\rangle(?![a-zA-Z])", ")"),
    # Numbers.
    (
        rf"({NUMBER})\s*(?:\\text\s*\{{\s*)?({'|'.join(POWERS)})s?(?![a-zA-Z])\s*\}}?",
        lambda match: rf"{match[1]}\cdot 10^{{{POWERS[match[2]]}}}",
    ),
    (r"([0-9]+)\.([0-9]*)\\(?:overline|bar|dot)\s*\{([0-9]+)\}", _repeating),
    (r"(?<![\w.^{/\\])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![\w.])", _mixed),
    (
        r"_\s*\{?\s*\\text\s*\{\s*(?:base\s*)?(" + "|".join(BASES) + r")\s*\}\s*\}?",
        lambda match: f"_{BASES.index(match[1]) + 2}",
    ),
    # A system of equations.
    (
        r"\\left\s*\\\{\s*\\begin\{(?:array|aligned|cases)\}(?:\{[lcr|]*\})?(.*?)\\end\{(?:array|aligned|cases)\}\s*\\right\s*\.",
        _system,
    ),
    # math-verify reads \gamma(...) and \gamma-1 as a function, of which the latter is at a pole.
    (r"\\gamma(?![a-zA-Z]|\s*_)", r"\\Xi_{g}"),
    # The end of a sentence, such as "12." that math-verify reads as text; three dots are an unfinished list.
    (r"(?:(?<!\\)(?:[\s,;:~]|(?<!\.)\.(?!\.))|\\\\)+$", ""),
]
COMPILED = [(re.compile(pattern, re.DOTALL), replacement) for pattern, replacement in RULES]
SCIENTIFIC = re.compile(
    r"(?<![\w.])([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))[eE]\+?(-?)0*([0-9]+)(?!\.?\w)"
)
MISREAD: tuple[tuple[re.Pattern[str], Replacement], ...] = (
    # Minerva 4.5e33, read as 4.5 times e times 33.
    (SCIENTIFIC, r"\1\\times10^{\2\3}"),
    # Minerva -1./3, which cannot be parsed.
    (re.compile(r"(?<=[0-9])\./"), "/"),
    # Minerva 1.25 as \text{1.25}: #37 is solved for integers only.
    (re.compile(r"\\text\s*\{\s*([-+]?[0-9]*\.[0-9]+)\s*\}"), r"\1"),
    # MATH 6+9i: only a separate i is read as the imaginary unit, so that 6+9i and 6+9 i differ.
    (re.compile(r"(?<=[0-9])i(?![a-zA-Z])"), " i"),
    # Minerva y^{\prime}+r y-r x(t)=0 with an apostrophe; of several, math-verify drops all but the first.
    (re.compile(r"(?<=[a-zA-Z])'+"), lambda match: "^{" + r"\prime" * len(match[0]) + "}"),
    # Minerva E_{1},E_{2}: E is read as Euler's number, which has no index.
    (re.compile(r"(?<![a-zA-Z\\])E_"), r"\\Xi_"),
    # OlympiadBench m_{\max } and Minerva L_{\odot}: a command as index cannot be parsed.
    (re.compile(r"_\s*\{\s*\\(max|min|odot)\s*\}"), r"_{\1}"),
)
"""What math-verify would misread, in golds of the benchmarks, by pattern; after `RULES`."""

MORE = (
    r"or|and|half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?|"
    r"hundredths?|thousandths?|millionths?|dozen|squared|cubed|factorial|choose"
)
CHANGED = re.compile(
    rf"(?:{QUANTITY})\s*"
    rf"(?:\\text\w*\s*\{{(?:\s*,\s*[0-9]|[^{{}}]*\b(?:{MORE})\b)[^{{}}]*\}}"
    rf"|[a-zA-Z ]*\b(?:{MORE})\b[a-zA-Z ]*)"
)
r"""A number and words that make it another or name a second one, of which math-verify drops \text{ or 6}."""
UNIT = re.compile(
    rf"(?P<number>{QUANTITY}|{NUMBER}\s*/\s*[0-9]+)"
    rf"\s*(?:\\text\w*\s*\{{[^{{}}]*\}}|(?!(?:{SCALES})\b)[a-zA-Z]{{3,}}(?:\s+[a-zA-Z]+)*)(?:\s*\^\s*\{{?[23]\}}?)?\.?"
)
"""A number and words behind it, which are no scale."""
DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*\^\s*\{?\s*\\circ(?![a-zA-Z])\s*\}?")
STYLED = re.compile(rf"\\(?:({COLOURS})\s*\{{[^{{}}]*\}}\s*(?:(?=\{{)|)|({STYLES})(?![a-zA-Z])\s*)")


def rewritten(text: str) -> str:
    """Return an answer without decoration, in LaTeX that math-verify reads."""
    text = _without_styles(text.translate(UNICODE))
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    text = _roots(text).strip()
    while text.startswith("{") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    for pattern, replacement in MISREAD:
        text = pattern.sub(replacement, text)
    return text


def without_unit(text: str) -> str:
    """Return the number of a text that is a number with words behind it; other texts unchanged."""
    match = UNIT.fullmatch(text.strip())
    return match["number"] if match else text


def in_radians(text: str, other: str) -> str:
    """Return text with radians for degrees if the other text has pi and no degrees."""
    if DEGREES.search(text) and not DEGREES.search(other) and r"\pi" in other:
        return DEGREES.sub(r"\\frac{\1 \\pi}{180}", text)
    return text


def _without_styles(text: str) -> str:
    r"""Return text without commands that change how it looks, such as \mathbf{5} and \color{red}5."""
    while match := STYLED.search(text):
        start, rest = match.start(), match.end()
        end = _closing(text, rest) if text[rest : rest + 1] == "{" else None
        if end is None:
            text = text[:start] + " " + text[rest:]
            continue
        # An index or exponent stays together.
        inner = (
            slice(rest, end + 1)
            if text[:start].rstrip()[-1:] in ("^", "_")
            else slice(rest + 1, end)
        )
        text = text[:start] + text[inner] + text[end + 1 :]
    return text


def _roots(text: str) -> str:
    r"""Return text with sqrt(...) and \sqrt 2 as \sqrt{...}."""
    text = re.sub(r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z])", r"\\sqrt", text)
    start = 0
    while match := re.compile(r"\\sqrt\s*\(").search(text, start):
        start = match.start() + 1
        end = _closing(text, match.end() - 1, "()")
        if end is not None:
            text = rf"{text[: match.start()]}\sqrt{{{text[match.end() : end]}}}{text[end + 1 :]}"
    return re.sub(r"\\sqrt\s+([0-9]+(?:\.[0-9]+)?|[a-zA-Z])", r"\\sqrt{\1}", text)


def _closing(text: str, opening: int, pair: str = "{}") -> int | None:
    """Return where the bracket at a place closes."""
    depth = 0
    for place in range(opening, len(text)):
        if text[place] in pair and text[place - 1 : place] != "\\":
            depth += 1 if text[place] == pair[0] else -1
            if depth == 0:
                return place
    return None
