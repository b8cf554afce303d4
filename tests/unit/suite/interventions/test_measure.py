"""Parts of a mini-batch that were generated on their own are one mini-batch."""

import torch

from stapo.suite.interventions.measure import KEPT, joined


def test_parts_are_joined_with_prompts_padded_before_and_responses_behind():
    def part(value: int, prompt: int, response: int) -> dict[str, torch.Tensor]:
        widths = {name: prompt if name.startswith("prompt") else response for name in KEPT}
        single = dict.fromkeys(("advantages", "rewards"), torch.tensor([value]))
        return {name: torch.full((1, width), value) for name, width in widths.items()} | single

    whole = joined([part(1, 3, 1), part(2, 1, 2)])
    assert whole["prompt_ids"].tolist() == [[1, 1, 1], [0, 0, 2]]
    assert whole["completion_mask"].tolist() == [[1, 0], [2, 2]]
    assert whole["rewards"].tolist() == [1, 2]
