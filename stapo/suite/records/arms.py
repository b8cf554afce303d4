"""The arms of an intervention: updates from the same weights and rollout that silence different tokens."""

NOTHING, SILENCED = "none", "s2t"
ARMS = {
    NOTHING: "Nothing silenced",
    SILENCED: "S2T",
    "random_candidates": "Random candidates",
    "random_positive": "Random tokens with A > 0",
    "high_entropy": "High-entropy candidates",
    "rare_negative": "Random rare tokens with A < 0",
    "mirror": "Low-entropy rare tokens with A < 0",
    "likely_negative": "Random likely tokens with A < 0",
    "random": "Random tokens",
}
"""Arm -> title. All after S2T silence exactly as many tokens as S2T does in the same rollout, or all there
are. Rare tokens have a probability below tau_p, random ones any sign of A but 0."""
CONTROLS = ("random_candidates", "random_positive", "high_entropy")
"""Those that a study has by default, besides the first two."""
MOMENT_ROLLOUTS = 8
"""Rollouts whose gradients give the second moments of the optimiser for all updates; our choice."""
