"""`examples/measure/strips.py`: no text of a model leaves its place."""

import xml.etree.ElementTree as ET

from strips import Token, picture

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</text><script>alert(1)</script>",
    "&lt;\x1b[2J",
    "\u202e",
    "\x00",
    '" onload="x',
    "\ud800",
]


def test_text_of_a_model_stays_text():
    drawn = picture(
        [(text, [Token(text, 0.0, "silenced"), Token("x" * 500, 1.0)]) for text in HOSTILE]
    )
    root = ET.fromstring(drawn.encode())
    assert {child.tag for child in root.iter()} == {
        f"{SVG}{tag}" for tag in ("svg", "style", "rect", "text")
    }
    assert not any("onload" in child.attrib for child in root.iter())
    assert drawn.isprintable() or set(filter(lambda c: not c.isprintable(), drawn)) == {"\n"}
