"""Methods of other papers, each with its authors' settings and on STAPO's base: its clip and token mean.

Only formulas and numbers are theirs; where they leave something open, the docstring of the function in
`stapo.core.objective` names our choice. Like `stapo.core.methods`, this module does not import torch.
"""

from typing import Any

from stapo.core.methods.parts import Method


def _rival(title: str, source: str, **settings: Any) -> Method:
    base: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token_mean"}
    return Method(title=title, source=source, **base | settings)


KL_COV: dict[str, Any] = {"divisor": "all", "penalty": "kl_cov"}
CLIP_COV: dict[str, Any] = {"divisor": "all", "selection": "clip_cov"}

RIVALS: dict[str, Method] = {
    "advantage-reweighting": _rival(
        "Advantage reweighting",
        "arXiv 2505.12929, alpha 0.2; without its second method, Lopti",
        weighting="advantage_reweighting",
    ),
    "lp-reg": _rival("Lp-Reg", "arXiv 2510.03222 v1, share 1 % (its 14B model)", penalty="lp_reg"),
    "stare": _rival("STARE-O1", "arXiv 2606.19236, variant O1", weighting="stare"),
    "kl-cov": _rival(
        "KL-Cov",
        "arXiv 2505.22617, share and coefficient of its 7B model; here with STAPO's clip",
        **KL_COV,
    ),
    "kl-cov-authors": _rival(
        "KL-Cov (its clip)",
        "arXiv 2505.22617: no clip, share 0.002, coefficient 1",
        surrogate="unclipped",
        **KL_COV,
    ),
    "clip-cov": _rival("Clip-Cov", "arXiv 2505.22617; here with STAPO's clip", **CLIP_COV),
    "clip-cov-authors": _rival(
        "Clip-Cov (its clip)", "arXiv 2505.22617", clip_low=1.0, clip_high=1.0, **CLIP_COV
    ),
    "cispo": _rival(
        "CISPO",
        "arXiv 2506.13585; it names no cap: that of the ratio is 5, as TRL recommends",
        surrogate="cispo",
    ),
    "qae": _rival("QAE", "arXiv 2509.22611, K 0.4", advantage="qae"),
    "entropy-bonus": _rival(
        "Entropy bonus", "as studied in arXiv 2505.22617, section 4.1", penalty="entropy_bonus"
    ),
    "adaptive-entropy": _rival(
        "Adaptive entropy bonus",
        "Skywork-OR1 (arXiv 2505.22312): target 0.2, step 1e-4, at most 0.005",
        penalty="adaptive_entropy_bonus",
    ),
    "dppo": _rival(
        "DPPO-TV",
        "arXiv 2602.04879, total variation 0.15; the weight is the ratio to the trainer's policy",
        surrogate="dppo",
    ),
    "gspo": _rival(
        "GSPO",
        "arXiv 2507.18071",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation="sequence_mean",
        surrogate="gspo",
    ),
    "sapo": _rival("SAPO", "arXiv 2511.20347", aggregation="sequence_mean", surrogate="sapo"),
    "ce-gppo": _rival(
        "CE-GPPO",
        "arXiv 2509.20712, 0.75 and 1 (its 7B model); here with STAPO's clip",
        surrogate="ce_gppo",
    ),
    "ce-gppo-authors": _rival(
        "CE-GPPO (its clip)", "arXiv 2509.20712", clip_high=0.2, surrogate="ce_gppo"
    ),
    "w-reinforce": _rival("W-REINFORCE", "arXiv 2506.01347, weight 0.1", advantage="w_reinforce"),
    "dr-grpo": _rival(
        "Dr.GRPO",
        "arXiv 2503.20783; the constant length is the maximum of a response",
        clip_high=0.2,
        aggregation="constant_length",
        advantage="dr_grpo",
    ),
    "wapo": _rival(
        "WAPO", "arXiv 2606.16154 and its code; here with STAPO's clip", advantage="wapo"
    ),
    "wapo-authors": _rival(
        "WAPO (its clip)",
        "its code: clip 9, a constant length (there of prompt and response, here of a response); the divisor "
        "counts all groups, there those with unequal rewards",
        clip_high=9.0,
        aggregation="constant_length",
        advantage="wapo",
    ),
    "clip-b": _rival(
        "Clip_B",
        "arXiv 2602.03392, mu 2.5 (its code); here with STAPO's clip",
        selection="clip_b",
    ),
    "rlvr-directions": _rival(
        "RLVR Directions",
        "arXiv 2603.22117, 1 + 0.2 (1 - p) (its 7B model), without its extrapolation",
        weighting="advantage_reweighting",
        args={"alpha": -0.2},
    ),
    "mirror": _rival(
        "Mirror",
        "S2T's rule for tokens with A < 0 (ours): a control",
        selection="silence_spurious_negative",
    ),
    "matched": _rival(
        "Random tokens",
        "as many random tokens with A > 0 as S2T would silence (ours): a control",
        selection="silence_matched",
    ),
    "stapo-above-entropy": _rival(
        "STAPO above 0.12 nats",
        "S2T whose quantile falls to 0 as the mean entropy falls to a target (ours)",
        selection="silence_above_entropy",
        args={"tau_p": 0.05},
    ),
    "stapo-towards-entropy": _rival(
        "STAPO towards 0.12 nats",
        "the same, and its mirror below the target (ours)",
        selection="silence_towards_entropy",
        args={"tau_p": 0.05},
    ),
    "stapo-early": _rival(
        "STAPO in updates 1 to 40",
        "S2T in some updates of a training (ours): a control",
        selection="silence_in_updates",
        args={"tau_p": 0.05},
    ),
}
"""Name in study files and paths -> method."""
