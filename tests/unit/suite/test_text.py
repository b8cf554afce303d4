"""Text of others is shown and not obeyed."""

import html
import re

import pytest
from markdown_it import MarkdownIt

from stapo.suite.text import markdown, plain, token_quoted, token_signs, visible

HIDDEN = [
    *"\x00\x1b\x7f\x85\xa0\xad\u202e\u2066\u200b\ufeff\u034f\u2800\u2028\ue000\ud800\U000e0041"
]
"""Controls, reversed text, no width or ink, lines, private, surrogates, tags."""


@pytest.mark.parametrize("character", HIDDEN, ids=lambda c: f"{ord(c):04x}")
def test_what_is_not_seen_is_shown_by_its_escape(character):
    shown = visible(f"a{character}b")
    assert shown.isascii()
    assert f"{ord(character):x}" in shown
    assert character not in markdown(f"a{character}b") + plain(f"a{character}b")


def test_what_is_seen_stays():
    text = "Größe 字 ⚠\ufe0f ✅ ≤ שלום 12 %"
    assert visible(text) == text
    assert visible("a\nb\u202e", keep="\n") == "a\nb\\u202e"


TOKENS = [
    "a", " a", "  a", "   a", "\n", "\n\n", "\r\n", "\\n", "\t", "\xa0", r"\xa0", "\u200b", "",
]  # fmt: skip


def test_tokens_that_differ_look_different():
    """Also where a browser or an SVG draws several blanks as one; the bytes of a part come as text."""
    for show in (token_signs, lambda token: token_quoted(token, 24)):
        shown = [re.sub(" +", " ", show(token)) for token in TOKENS]
        assert len({*shown}) == len(TOKENS)
    assert token_signs(" so\n\t") == "\u2423so\u21b5\u21e5"
    assert token_quoted(" so", 24) == '" so"'
    assert token_quoted("\n    \t\t", 99) == '"[newline][4 blanks][2 tabs]"'
    assert token_quoted("abcdef", 3) == '"abc\u2026"'


def test_a_line_of_a_log_is_short_and_has_no_colours():
    assert plain("a\x1b[2Kb\tc\nd") == "ab c d"
    assert plain("x\x1b]0;title\x07y") == "x\\x1b]0;title\\x07y"
    assert len(plain("z" * 1000)) == 161


MARKUP = [
    "![a](http://x.y/z.png)", "[a](http://x.y)", "[a][b]", "[a]: http://x.y", "<http://x.y>", "<img src=x>",
    "a|b", r"a\|b", "**a** _b_ `c` ~~d~~", "$\\href{x}{y}$", "WWW.x.y", "&lt;b&gt;", "a [-4.82, +0.48] (b)",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKUP)
def test_markdown_shows_markup_as_it_is_written(text):
    """By a parser of CommonMark with tables and links of bare addresses."""
    parser = MarkdownIt("commonmark", {"linkify": False}).enable("table").enable("strikethrough")
    page = parser.render(f"| t |\n|---|\n| {markdown(text)} |\n\n- {markdown(text)} end\n")
    cell = page.split("<td>")[1].split("</td>")[0]
    assert html.unescape(cell) == text
    assert not re.search("<(a|img|em|strong|code|s)[ >]", page)
    # GitHub also links bare addresses and sets formulas; these have no parser here.
    assert "://" not in markdown(text)
    assert "www." not in markdown(text).lower()
    assert "$" not in markdown(text).replace(r"\$", "")
