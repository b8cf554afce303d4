"""The arms of an intervention: updates from the same weights and rollout that silence different tokens."""

NOTHING, SILENCED = "none", "s2t"
ARMS = {
    NOTHING: "Nothing silenced",
    SILENCED: "S2T",
    "random_candidates": "Random candidates",
    "random_positive": "Random tokens with A > 0",
    "high_entropy": "High-entropy candidates",
}
"""Arm -> title. The last three silence exactly as many tokens as S2T does in the same rollout."""
MOMENT_ROLLOUTS = 8
"""Rollouts whose gradients give the second moments of the optimiser for all updates; our choice."""
