"""Methods of other papers, each with its authors' settings and on STAPO's base: its clip and token mean.

Only formulas and numbers are theirs; where they leave something open, the docstring of the function in
`stapo.objective` names our choice. Like `stapo.methods`, this module does not import torch.
"""

from dataclasses import replace

from stapo.methods.parts import Method

BASE = Method(title="", clip_low=0.2, clip_high=0.28, aggregation="token_mean", source="")

ADVANTAGE_REWEIGHTING = replace(
    BASE,
    title="Advantage reweighting",
    weighting="by_probability",
    source="arXiv 2505.12929, alpha 0.2; without its second method, Lopti",
)
LP_REG = replace(
    BASE,
    title="Lp-Reg",
    penalty="divergence_of_unlikely",
    source="arXiv 2510.03222 v1, share 1 % (its 14B model)",
)
STARE = replace(
    BASE,
    title="STARE-O1",
    weighting="amplify_surprising",
    source="arXiv 2606.19236, variant O1",
)
KL_COV = replace(
    BASE,
    title="KL-Cov",
    divisor="all",
    penalty="log_ratio_of_covariant",
    source="arXiv 2505.22617, share and coefficient of its 7B model; here with STAPO's clip",
)
CLIP_COV = replace(
    BASE,
    title="Clip-Cov",
    divisor="all",
    selection="drop_covariant",
    source="arXiv 2505.22617; here with STAPO's clip",
)
CISPO = replace(
    BASE,
    title="CISPO",
    surrogate="capped_weights",
    source="arXiv 2506.13585; it names no cap: that of the ratio is 5, as TRL recommends",
)
QAE = replace(BASE, title="QAE", advantage="quantile", source="arXiv 2509.22611, K 0.4")
ENTROPY_BONUS = replace(
    BASE,
    title="Entropy bonus",
    penalty="entropy_bonus",
    source="as studied in arXiv 2505.22617, section 4.1",
)
ADAPTIVE_ENTROPY = replace(
    BASE,
    title="Adaptive entropy bonus",
    penalty="adaptive_entropy_bonus",
    source="Skywork-OR1 (arXiv 2505.22312): target 0.2, step 1e-4, at most 0.005",
)
DPPO = replace(
    BASE,
    title="DPPO-TV",
    surrogate="within_divergence",
    source="arXiv 2602.04879, total variation 0.15; the weight is the ratio to the trainer's policy",
)
GSPO = replace(
    BASE,
    title="GSPO",
    clip_low=3e-4,
    clip_high=4e-4,
    aggregation="sequence_mean",
    surrogate="clipped_sequences",
    source="arXiv 2507.18071",
)
SAPO = replace(
    BASE,
    title="SAPO",
    aggregation="sequence_mean",
    surrogate="soft_gate",
    source="arXiv 2511.20347",
)
CE_GPPO = replace(
    BASE,
    title="CE-GPPO",
    surrogate="kept_clipped_gradients",
    source="arXiv 2509.20712, 0.75 and 1 (its 7B model); here with STAPO's clip",
)
W_REINFORCE = replace(
    BASE, title="W-REINFORCE", advantage="signed", source="arXiv 2506.01347, weight 0.1"
)
DR_GRPO = replace(
    BASE,
    title="Dr.GRPO",
    clip_high=0.2,
    aggregation="constant_length",
    advantage="centred",
    source="arXiv 2503.20783; the constant length is the maximum of a response",
)
MIRROR = replace(
    BASE,
    title="Mirror",
    selection="silence_spurious_negative",
    source="S2T's rule for tokens with A < 0 (ours): a control",
)
MATCHED = replace(
    BASE,
    title="Random tokens",
    selection="silence_matched",
    source="as many random tokens with A > 0 as S2T would silence (ours): a control",
)

RIVALS: dict[str, Method] = {
    "advantage-reweighting": ADVANTAGE_REWEIGHTING,
    "lp-reg": LP_REG,
    "stare": STARE,
    "kl-cov": KL_COV,
    "kl-cov-authors": replace(
        KL_COV,
        title="KL-Cov (its clip)",
        surrogate="unclipped",
        source="arXiv 2505.22617: no clip, share 0.002, coefficient 1",
    ),
    "clip-cov": CLIP_COV,
    "clip-cov-authors": replace(
        CLIP_COV,
        title="Clip-Cov (its clip)",
        clip_low=1.0,
        clip_high=1.0,
        source="arXiv 2505.22617",
    ),
    "cispo": CISPO,
    "qae": QAE,
    "entropy-bonus": ENTROPY_BONUS,
    "adaptive-entropy": ADAPTIVE_ENTROPY,
    "dppo": DPPO,
    "gspo": GSPO,
    "sapo": SAPO,
    "ce-gppo": CE_GPPO,
    "ce-gppo-authors": replace(
        CE_GPPO, title="CE-GPPO (its clip)", clip_high=0.2, source="arXiv 2509.20712"
    ),
    "w-reinforce": W_REINFORCE,
    "dr-grpo": DR_GRPO,
    "mirror": MIRROR,
    "matched": MATCHED,
}
"""Name in study files and paths -> method."""
