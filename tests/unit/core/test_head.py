"""TRL's fused head with float32 logits: values and gradients of whole logits, also under bfloat16 weights.

`make gpu` runs this too: on a GPU, the kernels are Triton's.
"""

import pytest
import torch
from torch import Tensor
from trl.kernels import chunked_logprob

from stapo.core.head import Float32LogProbs, _Proxy

TOKENS, HIDDEN, WORDS, TILE = 70, 48, 100, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.rounding

OUTPUTS = ("log_probs", "entropy")
CASES = {
    "float32": (False, {}),
    "bfloat16": (True, {}),
    "scaled": (True, {"temperature": 0.7, "softcap": 30.0, "logit_scale": 1.3}),
}
Found = tuple[Tensor, Tensor, list[Tensor]]


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch) -> None:
    monkeypatch.setattr(chunked_logprob, "TOKEN_CHUNK_SIZE", 32)


def arguments(biased: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Logits with a standard deviation of 6, as of a model that has learnt something."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        hidden, weight = torch.randn(TOKENS, HIDDEN), torch.randn(WORDS, HIDDEN) * 6 / HIDDEN**0.5
        bias = torch.randn(WORDS) if biased else None
        return hidden, weight, bias, torch.randint(0, WORDS, (TOKENS,))


def differentiated(leaves: list[Tensor], logps: Tensor, entropies: Tensor) -> Found:
    slopes = torch.randn(2, TOKENS, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    ((logps * slopes[0]).sum() + (entropies * slopes[1]).sum()).backward()
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    return logps.detach().double(), entropies.detach().double(), gradients


def by_tiles(biased: bool, mixed: bool, **scaling: float) -> Found:
    *tables, targets = arguments(biased)
    leaves = [one if one is None else one.requires_grad_() for one in tables]
    scaling = {"temperature": 1.0, "softcap": None, "logit_scale": 1.0, **scaling}
    with torch.autocast(DEVICE, torch.bfloat16, enabled=mixed):
        logps, entropies, *_ = Float32LogProbs.apply(
            *leaves, targets, scaling["temperature"], TILE, scaling["softcap"],
            scaling["logit_scale"], OUTPUTS,
        )  # fmt: skip
    return differentiated([one for one in leaves if one is not None], logps, entropies)


def whole(biased: bool, mixed: bool, **scaling: float) -> Found:
    """The same from whole logits in double precision, of the same rounded matrices."""
    *tables, targets = arguments(biased)
    leaves = [one for one in tables if one is not None]
    leaves = [(one.bfloat16() if mixed else one).double().requires_grad_() for one in leaves]
    logits = leaves[0] @ leaves[1].T
    logits = (logits + leaves[2] if biased else logits) * scaling.get("logit_scale", 1.0)
    if cap := scaling.get("softcap"):
        logits = cap * torch.tanh(logits / cap)
    log_probs = (logits / scaling.get("temperature", 1.0)).log_softmax(dim=1)
    logps = log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    return differentiated(leaves, logps, -(log_probs.exp() * log_probs).sum(dim=1))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_whole_logits(case: str, biased: bool):
    mixed, scaling = CASES[case]
    found, expected = (by_tiles(biased, mixed, **scaling), whole(biased, mixed, **scaling))
    for ours, exact in zip(found[:2], expected[:2], strict=True):
        # Sums of 48 products and 100 words in single precision; up to some 25 nats.
        torch.testing.assert_close(ours, exact, rtol=0, atol=3e-5)
    for ours, exact in zip(found[2], expected[2], strict=True):
        apart = (ours.double() - exact).norm() / exact.norm()
        # The gradient of the logits is rounded to the type of the products: 8 bits of each in bfloat16.
        assert apart < (3e-3 if mixed else 1e-5)


@pytest.mark.parametrize("biased", [False, True])
def test_a_proxy_is_the_policy_over_its_likely_words(biased: bool) -> None:
    hidden, weight, bias, targets = arguments(biased)
    logits = 1.3 * (hidden @ weight.t() + (0 if bias is None else bias)).double()
    probabilities = (30 * torch.tanh(logits / 30) / 0.7).softmax(dim=1)
    targets[::2] = probabilities.argmax(dim=1)[::2]
    found, *_ = _Proxy(0.02).apply(hidden, weight, bias, targets, 0.7, TILE, 30.0, 1.3)
    likely = probabilities >= 0.02 * probabilities.max(dim=1, keepdim=True).values
    proxy = torch.where(likely, probabilities, 0.0)
    expected = (proxy / proxy.sum(dim=1, keepdim=True)).log()
    own = expected.gather(1, targets.unsqueeze(1)).squeeze(1)
    assert 0 < int(own.isinf().sum()) <= TOKENS // 2  # Random words are hardly among them.
    assert (own[::2].exp() < 1).any()
    # Single precision of logits with a standard deviation of 6.
    torch.testing.assert_close(found.double(), own, rtol=0, atol=1e-4)
