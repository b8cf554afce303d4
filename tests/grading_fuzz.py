# ruff: noqa: E501
r"""Generator of pairs of gold answer and answer that are known to be equal or not.

The golds are of the same kinds as in the six benchmarks. Each is written in other notations (equal), and
changed, hedged or left unevaluated (not equal). Nothing here uses the grader.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple


class Pair(NamedTuple):
    """One test case for the grader."""

    kind: str
    """Kind of the gold answer."""
    way: str
    """How the answer was made from the gold answer."""
    gold: str
    answer: str
    equal: bool


Ways = list[tuple[str, str]]

NUMBERS = ("integer", "fraction", "decimal", "scientific", "root", "pi", "mixed")
WRAPPED = {
    "as it is": "{}", "dollars": "${}$", "parentheses of LaTeX": r"\({}\)", "brackets of LaTeX": r"\[{}\]",
    "spaces": "  {} ", "full stop": "{}.", "bold": r"\boldsymbol{{{}}}", "bm": r"\bm{{{}}}",
    "colour": r"\color{{red}}{{{}}}", "textcolour": r"\textcolor{{blue}}{{{}}}", "braces": "{{{}}}",
    "display style": r"\displaystyle {}", "thin spaces": r"\,{}\;", "fbox": r"\fbox{{{}}}",
}  # fmt: skip
UNITS = (
    r"\text{ cm}",
    r"\,\text{m}",
    r"\mathrm{ kg}",
    r"\text{ cm}^2",
    " cm",
    " units",
    r"\mbox{ inches}",
)
"""Units added to a gold answer that has none, since the question asks for a number."""
MARKS = {
    "prime": "{g}'", "primes": "{g}''", "double quote": '{g}"', "prime command": r"{g}^{{\prime}}",
    "dots": r"{g}\ldots", "comma and dots": r"{g},\ldots", "three full stops": "{g}...", "transposed": "{g}^T",
    "dagger": r"{g}\dagger", "star": r"\star {g}", "not": r"\not {g}", "logical not": r"\neg {g}",
    "cancelled": r"\cancel{{{g}}}", "text not": r"\text{{not }}{g}", "million": r"{g}\text{{ million}}",
    "phantom": r"\phantom{{{g}}}", "absolute bound": r"x < {g}", "bound": r"x\le {g}", "letter": "{g}{letter}",
}  # fmt: skip
HEDGES = {
    "or": r"{g}\text{{ or }}{h}", "comma": "{g}, {h}", "space": "{g} {h}", "wide space": r"{g}\quad {h}",
    "first in a frame": r"\fbox{{{g}}} {h}", "second in a frame": r"{h} \fbox{{{g}}}",
    "two displays": r"\[{h}\]\[{g}\]", "two formulas": r"\({h}\)\({g}\)", "two in dollars": "${h}$ ${g}$",
    "approximately another": r"{g}\approx {h}", "another approximately": r"{h}\approx {g}",
    "equals another": "{g}={h}", "another equals": "{h}={g}", "unequal": r"{g}\neq {h}",
    "two lines": r"{h}\\{g}", "says no": r"{g}\text{{ is wrong; it is }}\frac{{{h}}}{{1}}",
}  # fmt: skip
UNEVALUATED = {
    "sum": r"\sum_{{k=1}}^{{{g}}}1", "product": r"\prod_{{k=1}}^{{1}}{g}", "integral": r"\int_0^{{{g}}}1\,dx",
    "limit": r"\lim_{{x\to {g}}}x", "gcd": r"\gcd({two},{three})", "gcd by name": r"\operatorname{{gcd}}({two},{three})",
    "lcm": r"\operatorname{{lcm}}(1,{g})", "mod": r"{more} \mod {modulus}", "bmod": r"{more} \bmod {modulus}",
    "pmod": r"{g}\pmod{{{modulus}}}", "max": r"\max(0,{g})", "min": r"\min({g},{modulus})",
    "floor": r"\lfloor {g}.5\rfloor", "ceiling": r"\left\lceil {less}.5\right\rceil",
}  # fmt: skip


def _digits(n: int, base: int) -> str:
    return (_digits(n // base, base) if n >= base else "") + str(n % base)


def number(draw: random.Random, kind: str) -> tuple[str, str, float, Ways]:
    """Return a numeric gold, a different number of the same kind, its value, and other notations of it."""
    a, b, c = draw.randint(2, 900), draw.randint(2, 60), draw.randint(2, 9)
    if kind == "integer":
        ways = [(".0", f"{a}.0"), ("zero", f"0{a}"), ("sum", f"{a - 1}+1"), ("plus", f"+{a}")]
        ways += [("double over two", rf"\frac{{{2 * a}}}{{2}}"), ("text", rf"\text{{{a}}}")]
        ways += [
            ("chain", f"{a - 1}+1={a}"),
            ("long chain", f"S={a - 1}+1={a}"),
            ("bold", rf"\mathbf{{{a}}}"),
        ]
        ways += [
            ("root", rf"\sqrt{{{a * a}}}"),
            ("named", f"m+n={a}"),
            ("sum that ends", rf"\sum_{{k=1}}^{{{a}}}1={a}"),
        ]
        return str(a), str(a + draw.randint(1, 9)), a, ways
    if kind == "fraction":
        q = 61
        ways = [
            ("dfrac", rf"\dfrac{{{a}}}{{{q}}}"),
            ("slash", f"{a}/{q}"),
            ("twice", rf"\frac{{{2 * a}}}{{{2 * q}}}"),
        ]
        ways += [
            ("approximately", rf"\frac{{{a}}}{{{q}}}\approx {a / q:.3f}"),
            ("decimal", f"{a / q:.8f}"),
        ]
        ways += [
            ("chain", rf"\frac{{{2 * a}}}{{{2 * q}}}=\frac{{{a}}}{{{q}}}"),
            ("named", rf"P=\frac{{{a}}}{{{q}}}"),
        ]
        return rf"\frac{{{a}}}{{{q}}}", rf"\frac{{{a + 1}}}{{{q}}}", a / q, ways
    if kind == "decimal":
        ways = [
            ("zero at the end", f"{a / 8}0"),
            ("fraction", rf"\frac{{{a}}}{{8}}"),
            ("named", f"v={a / 8}"),
        ]
        return str(a / 8), str((a + 1) / 8), a / 8, ways
    if kind == "scientific":
        ways = [("times", rf"{a / 10}\times 10^{{{b}}}"), ("cdot", rf"{a / 10} \cdot 10^{{{b}}}")]
        ways += [("big E", f"{a / 10}E{b}"), ("plus", f"{a / 10}e+{b}")]
        ways += [("approximately named", rf"E\approx {a / 10}\times 10^{{{b}}}")]
        return f"{a / 10}e{b}", f"{a / 10}e{b + 1}", a / 10 * 10.0**b, ways
    if kind == "root":
        ways = [
            ("cdot", rf"{b}\cdot\sqrt{{7}}"),
            ("one root", rf"\sqrt{{{7 * b * b}}}"),
            ("turned", rf"\sqrt{{7}}\cdot {b}"),
        ]
        ways += [
            ("approximately", rf"{b}\sqrt{{7}}\approx {b * 7**0.5:.2f}"),
            ("over", rf"\frac{{{7 * b}}}{{\sqrt{{7}}}}"),
        ]
        return rf"{b}\sqrt{{7}}", rf"{b + 1}\sqrt{{7}}", b * 7**0.5, ways
    if kind == "pi":
        ways = [
            ("spaced", rf"{b} \pi"),
            ("cdot", rf"{b}\cdot\pi"),
            ("sign", f"{b}π"),
            ("turned", rf"\pi\cdot {b}"),
        ]
        return rf"{b}\pi", rf"{b + 1}\pi", b * 3.14159265, ways
    ways = [
        ("improper", rf"\frac{{{b * 10 + c}}}{{10}}"),
        ("decimal", f"{b}.{c}"),
        ("plus", rf"{b}+\frac{{{c}}}{{10}}"),
    ]
    return rf"{b}\frac{{{c}}}{{10}}", rf"{b + 1}\frac{{{c}}}{{10}}", b + c / 10, ways


def _numeric(draw: random.Random) -> Pair:
    kind = draw.choice(NUMBERS)
    gold, other, _, ways = number(draw, kind)
    which = draw.random()
    if which < 0.45:
        ways += [(name, form.format(gold)) for name, form in WRAPPED.items()]
        ways += [("unit" + unit, gold + unit) for unit in UNITS]
        ways += [("assigned", f"x = {gold}"), ("two formulas of one", f"${gold}={gold}$")]
        return Pair(kind, *(w := draw.choice(ways))[:1], gold, w[1], True)
    words = {"g": gold, "h": other, "letter": draw.choice("abcdhmnstx")}
    forms = {"another value": "{h}", "another sign": "-{g}", **MARKS, **HEDGES}
    if kind == "integer":
        g, m = int(gold), int(gold) + draw.randint(5, 50)
        words |= {"two": 2 * g, "three": 3 * g, "more": g + 3 * m, "modulus": m, "less": g - 1}
        forms |= {**UNEVALUATED, "a base": "{g}_9", "base in text": r"{g}_{{\text{{nine}}}}"}
    elif kind != "scientific":
        forms |= {
            name: UNEVALUATED[name] for name in ("product", "integral", "limit", "lcm", "max")
        }
    if kind == "scientific":  # 1e5,\ldots and the like would be read as an e.
        del forms["letter"]
    way = draw.choice(list(forms))
    return Pair(kind, way, gold, forms[way].format(**words), False)


def _base(draw: random.Random) -> Pair:
    base, n = draw.randint(3, 9), draw.randint(20, 900)
    text, other = _digits(n, base), _digits(n, base + 1 if base < 9 else 7)
    ways = [
        ("braces", f"{text}_{{{base}}}", True), ("plain", f"{text}_{base}", True), ("no base", text, True),
        ("parentheses", f"({text})_{{{base}}}", True), ("dollars", f"${text}_{base}$", True),
        ("another base", f"{text}_{base + 1}", False), ("ten", f"{text}_{{10}}", False),
        ("other digits", f"{_digits(n + 1, base)}_{base}", False), ("another numeral", f"{other}_{base}", other == text),
    ]  # fmt: skip
    way, answer, equal = draw.choice(ways)
    return Pair("base", way, draw.choice([f"{text}_{base}", f"{text}_{{{base}}}"]), answer, equal)


def _list(draw: random.Random) -> Pair:
    a, b, c = draw.sample(range(-9, 30), 3)
    gold = f"{a},{b},{c}"
    ways = [
        ("spaced", f"{a}, {b}, {c}", True), ("turned", f"{c}, {a}, {b}", True), ("and", rf"{a}, {b}\text{{ and }}{c}", True),
        ("set", rf"\{{{a},{b},{c}\}}", True), ("named", f"x={a}, x={b}, x={c}", True), ("or", f"{a}, {b} or {c}", True),
        ("several formulas", f"${a}$, ${b}$, ${c}$", True), ("bold", rf"\boldsymbol{{{gold}}}", True),
        ("dots", rf"{gold},\ldots", False), ("dots", rf"{gold},\dots", False), ("one less", f"{a},{b}", False),
        ("one more", f"{gold},{b + 40}", False), ("one other", f"{a},{b},{c + 40}", False), ("spaces", f"{a} {b} {c}", False),
        ("primes", f"{a},{b},{c}'", False), ("one approximately", rf"{a},{b},{c}\approx {c + 1}", False),
    ]  # fmt: skip
    way, answer, equal = draw.choice(ways)
    return Pair("list", way, gold, answer, equal)


def _tuple(draw: random.Random) -> Pair:
    a, b = draw.randint(1, 30), draw.randint(31, 60)
    gold = f"({a},{b})"
    ways = [
        ("left", rf"\left({a}, {b}\right)", True), ("named", f"(x,y)=({a},{b})", True), ("fraction", rf"(\frac{{{2 * a}}}{{2}},{b})", True),
        ("big", rf"\bigl({a},{b}\bigr)", True), ("turned", f"({b},{a})", False), ("set", rf"\{{{a},{b}\}}", False),
        ("closed", f"[{a},{b}]", False), ("half", f"({a},{b}]", False), ("three", f"({a},{b},{a})", False),
        ("other", f"({a},{b + 1})", False), ("prime", f"({a},{b}')", False), ("dots", rf"({a},{b},\ldots)", False),
        ("two", f"({a},{b}) ({b},{a})", False), ("or", rf"({a},{b})\text{{ or }}({b},{a})", False),
    ]  # fmt: skip
    way, answer, equal = draw.choice(ways)
    return Pair("tuple", way, gold, answer, equal)


def _interval(draw: random.Random) -> Pair:
    a = draw.randint(2, 60)
    b = a + draw.randint(1, 9)
    gold, ways = draw.choice([
        (f"x>{a}", [(rf"({a},\infty)", True), (f"{a}<x", True), (rf"x\in({a},\infty)", True), (rf"[{a},\infty)", False),
                    (rf"x\ge {a}", False), (f"x<{a}", False), (f"x>{b}", False), (rf"(-\infty,{a})", False)]),
        (rf"({a},\infty)", [(f"x>{a}", True), (rf"x\in({a},\infty)", True), (rf"\left({a},+\infty\right)", True),
                            (rf"x\ge {a}", False), (f"x<{a}", False), (rf"[{a},\infty)", False), (rf"({b},\infty)", False)]),
        (f"[{a},{b}]", [(rf"{a}\le x\le {b}", True), (rf"{a}\leq x\leq {b}", True), (rf"x\in[{a},{b}]", True), (f"({a},{b})", False),
                        (f"{a}<x<{b}", False), (f"{a},{b}", False), (f"[{a},{b + 1}]", False), (f"[{a},{b})", False)]),
        (rf"(-\infty,{a})\cup({b},\infty)", [(rf"({b},\infty)\cup(-\infty,{a})", True), (rf"x<{a}\text{{ or }}x>{b}", True),
                                           (rf"\mathbb{{R}}\setminus[{a},{b}]", True), (rf"(-\infty,{a}]\cup({b},\infty)", False),
                                           (rf"({a},{b})", False), (rf"(-\infty,{a})\cap({b},\infty)", False)]),
    ])  # fmt: skip
    answer, equal = draw.choice(ways)
    return Pair("interval", "other form" if equal else "another set", gold, answer, equal)


def _equation(draw: random.Random) -> Pair:
    a, b, k = draw.randint(2, 9), draw.randint(1, 30), draw.randint(2, 5)
    gold, ways = draw.choice([
        (f"{k}x={k * b}", [(f"x={b}", True), (f"{k * b}={k}x", True), (f"x={b + 1}", False), (f"y={b}", False), (f"x^2={b * b}", False)]),
        (f"x={b}", [(str(b), True), (f"x = {b}", True), (f"{b}=x", True), (f"y={b}", False), (f"x<{b}", False), (f"x={b}'", False)]),
        (f"y={a}x+{b}", [(f"{a}x-y+{b}=0", True), (f"y={b}+{a}x", True), (f"{k}y={k * a}x+{k * b}", True), (f"{a}x+{b}", True),
                         (f"y={a}x-{b}", False), (f"x={a}y+{b}", False), (f"y={a + 1}x+{b}", False), (f"y>{a}x+{b}", False)]),
        (f"f(x)={a}x+{b}", [(f"{a}x+{b}", True), (f"f(x)={b}+{a}x", True), (f"f(x)={a}x", False), (f"f(x)={a}x+{b}'", False)]),
        (f"{a}x-{a + 1}y+{b}=0", [(f"{k * a}x-{k * (a + 1)}y+{k * b}=0", True), (f"{a}x+{b}={a + 1}y", True), (f"{a}x-{a + 1}y={b}", False)]),
        (f"x^2+y^2={b}", [(f"{k}x^2+{k}y^2={k * b}", True), (f"y^2+x^2={b}", True), (f"x^2+y^2={b + 1}", False), (f"x^2-y^2={b}", False)]),
    ])  # fmt: skip
    answer, equal = draw.choice(ways)
    return Pair("equation", "other form" if equal else "another equation", gold, answer, equal)


def _expression(draw: random.Random) -> Pair:
    a, b = draw.randint(2, 9), draw.randint(2, 30)
    gold, ways = draw.choice([
        (f"{a}x^2+{b}x", [(f"{b}x+{a}x^2", True), (f"x({a}x+{b})", True), (f"{a}x^2-{b}x", False), (f"{a}x^2+{b}x+1", False),
                          (f"{a}y^2+{b}y", False), (f"{a}x^2+{b}x'", False), (f"{a}x^2+{b}x+\\ldots", False)]),
        (rf"{a}n", [(f"n\\cdot {a}", True), (f"{a}n+0", True), (f"{a}m", False), (str(a), False), (f"{a}n^2", False), (f"{a}n m", False)]),
        (rf"{a}m", [(f"{a} m", True), (rf"\boldsymbol{{{a}m}}", True), (str(a), False), (f"{a}d", False), (f"{a}n", False)]),
        (r"\frac{n(n+1)}{2}", [(r"\frac{n^2+n}{2}", True), (r"\binom{n+1}{2}", True), (r"\frac12n(n+1)", True), (r"\sum_{k=1}^n k", False),
                               (r"\frac{n(n-1)}{2}", False), (r"1+2+\ldots+n", False), (r"1+2+\cdots+n", False)]),
        (r"2^{n-1}", [(r"\frac{2^n}{2}", True), (r"2^n/2", True), (r"2^{n}-1", False), (r"2^{n}", False)]),
        (r"\sqrt{1/n}", [(r"1/\sqrt{n}", True), (r"\frac{1}{\sqrt{n}}", True), (r"\sqrt{n}", False), (r"-\frac{1}{\sqrt n}", False)]),
        (r"\lfloor n/2\rfloor", [(r"\left\lfloor\frac n2\right\rfloor", True), (r"\frac n2", False), (r"\lceil n/2\rceil", False)]),
        (r"e^{-2 t}", [(r"\exp(-2t)", True), (r"\frac{1}{e^{2t}}", True), (r"e^{2t}", False), (r"-2t", False)]),
        (r"a+b", [("b+a", True), ("a b", False), ("a", False), ("a+b+c", False), ("a+b c", False)]),
        (r"a", [("a b c", False), ("a b", False), ("b", False), (r"\boldsymbol{a}", True), ("2a", False), ("a'", False)]),
        (f"{b}+{a}i", [(f"{a}i+{b}", True), (f"{b} + {a} i", True), (f"{b}-{a}i", False), (f"{b}+{a}", False), (f"{b}+{a}j", False)]),
    ])  # fmt: skip
    answer, equal = draw.choice(ways)
    return Pair("expression", "other form" if equal else "another expression", gold, answer, equal)


def _other(draw: random.Random) -> Pair:
    a, b = draw.randint(2, 60), draw.randint(2, 60)
    c = a + b
    gold, ways = draw.choice([
        (r"\text{Evelyn}", [("Evelyn", True), (r"\text{ Evelyn }", True), (r"\textbf{Evelyn}", True), (r"\text{Briana}", False)]),
        (r"\text{even}", [("even", True), (r"\mathrm{even}", True), ("odd", False), (r"\text{not even}", False), (r"\text{even or odd}", False)]),
        (r"\text{(C)}", [("C", True), ("(C)", True), (r"\textbf{(C)}", True), ("D", False), ("(A)", False), ("C, D", False)]),
        (rf"{a}^\circ", [(str(a), True), (rf"{a}^{{\circ}}", True), (rf"{a}\text{{ degrees}}", True), (f"{a}°", True), (rf"{c}^\circ", False)]),
        (rf"{a}\%", [(str(a), True), (rf"{a}\%", True), (f"{a}%", True), (rf"{c}\%", False), (str(c), False)]),
        (rf"\$ {a}.50", [(f"{a}.50", True), (f"{a}.5", True), (rf"\${a}.50", True), (f"{c}.50", False), (rf"{a}.50'", False)]),
        (rf"{a},\!{100 + b}", [(f"{a},{100 + b}", True), (f"{a}{100 + b}", True), (rf"{a}\,{100 + b}", True), (f"{a}{{,}}{100 + b}", True),
                               (f"{a} {100 + b}", True), (f"{a}, {100 + b}", False), (str(a), False), (f"{a}.{100 + b}", False)]),
        (rf"{a} \text{{ cm}}^2", [(str(a), True), (rf"{a}\text{{ square cm}}", True), (str(c), False), (rf"{c} \text{{ cm}}^2", False)]),
        (rf"{a}\pm\sqrt{{{b}}}", [(rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}", True), (rf"{a}+\sqrt{{{b}}}", False), (rf"{a}\mp\sqrt{{{b}}}", True)]),
        (rf"\begin{{pmatrix}} {a} \\ {b} \end{{pmatrix}}", [(rf"\begin{{bmatrix}} {a} \\ {b} \end{{bmatrix}}", True),
            (rf"\begin{{pmatrix}}{a}\\{b}\end{{pmatrix}}", True), (rf"\begin{{pmatrix}} {b + 60} \\ {a} \end{{pmatrix}}", False),
            (rf"\begin{{pmatrix}} {a} \\ {b} \\ 1 \end{{pmatrix}}", False)]),
        (r"\frac{d x}{d t}=k x-a", [(r"\frac{dx}{dt}=kx-a", True), (r"\frac{dx}{dt}=kx+a", False), (r"\frac{dx}{dt}=-kx-a", False)]),
    ])  # fmt: skip
    answer, equal = draw.choice(ways)
    return Pair("other", "other form" if equal else "another answer", gold, answer, equal)


def pairs(seed: int, count: int) -> Iterator[Pair]:
    """Yield `count` pairs; the same seed gives the same pairs."""
    draw = random.Random(seed)
    makers = [_numeric, _base, _list, _tuple, _interval, _equation, _expression, _other]
    for _ in range(count):
        yield draw.choices(makers, weights=(50, 6, 7, 6, 6, 7, 10, 8))[0](draw)
