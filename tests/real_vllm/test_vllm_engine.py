"""A real vLLM on the CPU answers the same requests as Transformers; `make test-vllm` runs this."""

import os
from pathlib import Path

import pytest
from judge_model import SETTINGS as JUDGE, build

pytest.importorskip("vllm", reason="make test-vllm")

from stapo.core.files import read_jsonl
from stapo.suite.evaluation.generate import Benchmark, generate
from stapo.suite.evaluation.scores import Judgement, Question
from stapo.suite.evaluation.verifier import judge
from stapo.suite.models.tiny import build_tiny
from stapo.suite.study.schema import Decoding, EngineSettings, Evaluation
from stapo.suite.study.sources import TinyModel
from stapo.suite.tasks import benchmark_definitions

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
SETTINGS = EngineSettings(vllm_evaluation_memory=0.2)
NAME = "chain-2"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "base"
    settings = TinyModel(builder="tiny-arithmetic", supervised_steps=300, supervised_batch=96)
    build_tiny(settings, path)
    return path


def answer(
    model: Path, root: Path, backend: str, samples: int = 2, temperature: float = 1.0
) -> int:
    evaluation = Evaluation(backend=backend, batch_size=50, max_response_tokens=32)
    config = {"task": benchmark_definitions()[NAME], "samples": samples}
    benchmarks = [Benchmark(NAME, config, root / f"{NAME}.jsonl")]
    decoding, work = Decoding(temperature=temperature, top_p=1.0), root / "work"
    about = {"backend": backend}
    return generate(model, about, decoding, evaluation, benchmarks, work, SETTINGS)


def test_a_larger_n_adds_samples_and_changes_none(model, tmp_path):
    assert answer(model, tmp_path, "vllm") == 200
    two = read_jsonl(tmp_path / f"{NAME}.jsonl")
    assert answer(model, tmp_path, "vllm", samples=3) == 100
    three = read_jsonl(tmp_path / f"{NAME}.jsonl")
    assert [r["responses"][:2] for r in three] == [r["responses"] for r in two]
    assert all(len(set(record["responses"])) > 1 for record in three)


def test_it_says_what_transformers_says(model, tmp_path):
    """Nearly greedy, they differ only where tokens are nearly equally likely; lengths count alike."""
    for backend in ("hf", "vllm"):
        answer(model, tmp_path / backend, backend, samples=1, temperature=0.01)
    hf, vllm = (read_jsonl(tmp_path / b / f"{NAME}.jsonl") for b in ("hf", "vllm"))
    same = [a for a, b in zip(hf, vllm, strict=True) if a["responses"] == b["responses"]]
    assert len(same) >= 85  # Two seeds of Transformers agree on 92 to 98 of the 100.
    lengths = {b["problem"]: b["num_tokens"] for b in vllm}
    assert all(record["num_tokens"] == lengths[record["problem"]] for record in same)


def test_a_verifier_says_through_vllm_what_it_says_through_transformers(tmp_path):
    path = build(tmp_path, "A")
    asked = [Question("q", "7", f"response {i}" * (100 * (i == 3) + 1)) for i in range(6)]
    hf, vllm = (judge(path, JUDGE, asked, b, SETTINGS) for b in ("hf", "vllm"))
    assert hf == vllm == [Judgement("accepted", i == 3) for i in range(6)]
