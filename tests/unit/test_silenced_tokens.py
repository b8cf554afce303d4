"""`examples/measure/silenced_tokens.py`: parts of a mini-batch, and strips that no text leaves."""

import xml.etree.ElementTree as ET

import torch
from silenced_tokens import KEPT, joined
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


def test_parts_are_joined_with_prompts_padded_before_and_responses_behind():
    def part(value: int, prompt: int, response: int) -> dict[str, torch.Tensor]:
        widths = {name: prompt if name.startswith("prompt") else response for name in KEPT}
        single = dict.fromkeys(("advantages", "rewards"), torch.tensor([value]))
        return {name: torch.full((1, width), value) for name, width in widths.items()} | single

    whole = joined([part(1, 3, 1), part(2, 1, 2)])
    assert whole["prompt_ids"].tolist() == [[1, 1, 1], [0, 0, 2]]
    assert whole["completion_mask"].tolist() == [[1, 0], [2, 2]]
    assert whole["rewards"].tolist() == [1, 2]


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
