"""Own samples: a seed for each, a store that only grows, and draws that do not depend on the batch."""

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from damaged import NORM, weights

from stapo.core.checksums import write_sums
from stapo.core.files import DamagedFileError, read_jsonl
from stapo.suite.evaluation import engines
from stapo.suite.evaluation.engines import Request, Sampling, hf_engine, sample_seed
from stapo.suite.evaluation.generate import Benchmark, generate
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Decoding, Evaluation
from stapo.suite.tasks import benchmark_definitions

DECODING = Decoding(temperature=1.0, top_p=1.0)

pytestmark = pytest.mark.rounding


def answer(model: Path, root: Path, samples: int = 2, names=("chain-2",), **changes: Any) -> int:
    benchmarks = [
        Benchmark(n, {"task": benchmark_definitions()[n], "samples": samples}, root / f"{n}.jsonl")
        for n in names
    ]
    evaluation = Evaluation(**{"batch_size": 64, "max_response_tokens": 24} | changes)
    return generate(model, {"of": "test"}, DECODING, evaluation, benchmarks, root / "work")


def test_a_seed_belongs_to_row_and_sample():
    # Written down: another number would redraw every published sample.
    assert sample_seed(1234, "What is 1+1?", "2", 0) == 6536136214537664170


def test_a_larger_n_or_another_benchmark_adds_samples_and_changes_none(model, tmp_path):
    assert answer(model, tmp_path, samples=2) == 200
    two = read_jsonl(tmp_path / "chain-2.jsonl")
    assert answer(model, tmp_path, samples=3, names=("chain-2", "chain-3")) == 400
    three = read_jsonl(tmp_path / "chain-2.jsonl")
    assert [r["responses"][:2] for r in three] == [r["responses"] for r in two]
    assert answer(model, tmp_path, samples=2) == 0
    assert read_jsonl(tmp_path / "chain-2.jsonl") == two


class LastFirst:
    """A `vllm.LLM` that finishes requests one by one, the last one first, with tokens of their seed."""

    die_after = 1000

    def __init__(self, **_: Any) -> None:
        self.llm_engine = self

    def enqueue(self, prompts, parameters, use_tqdm):
        self.left = [(str(i), one.seed) for i, one in enumerate(parameters)]
        return [f"{number}-1b2c3d4e" for number, _ in self.left]

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self):
        if LastFirst.die_after == 0:
            raise KeyboardInterrupt
        LastFirst.die_after -= 1
        number, seed = self.left.pop()
        tokens = SimpleNamespace(token_ids=[5 + seed % 7, 5 + seed % 5, 5 + seed % 3])
        unfinished = SimpleNamespace(request_id="0", finished=False, outputs=[])
        return [unfinished, SimpleNamespace(request_id=number, finished=True, outputs=[tokens])]


def test_a_kill_of_vllm_loses_only_what_it_is_generating(model, tmp_path, monkeypatch):
    module = SimpleNamespace(LLM=LastFirst, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr("stapo.suite.evaluation.generate.label", lambda backend: backend)
    names = ("chain-2", "chain-3")
    assert answer(model, tmp_path / "whole", names=names, backend="vllm") == 400
    monkeypatch.setattr(LastFirst, "die_after", 230)
    with pytest.raises(KeyboardInterrupt):
        answer(model, tmp_path / "killed", names=names, backend="vllm")
    stores = sorted((tmp_path / "killed" / "work").glob("chain-*.jsonl"))
    assert [len(read_jsonl(store)) for store in stores] == [30, 200]
    monkeypatch.setattr(LastFirst, "die_after", 1000)
    assert answer(model, tmp_path / "killed", names=names, backend="vllm") == 170
    for name in names:
        whole, killed = (tmp_path / n / f"{name}.jsonl" for n in ("whole", "killed"))
        assert whole.read_bytes() == killed.read_bytes()


def test_without_vllm_a_line_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [])  # Also where it is installed.
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    with pytest.raises(StudyError, match=r"^evaluation.backend: vLLM is not installed; run `make"):
        answer(model, tmp_path, backend="vllm")


class Invariant(LastFirst):
    def __init__(self, **settings: Any) -> None:
        assert os.environ["VLLM_BATCH_INVARIANT"] == "1"
        super().__init__(**settings)


def test_deterministic_algorithms_make_vllm_batch_invariant(model, tmp_path, monkeypatch):
    module = SimpleNamespace(LLM=Invariant, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr("stapo.suite.evaluation.generate.label", lambda backend: backend)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(os, "environ", {**os.environ, "VLLM_BATCH_INVARIANT": "0"})
    assert answer(model, tmp_path, backend="vllm") == 200


def test_damaged_and_altered_responses_are_generated_again(model, tmp_path, capsys):
    answer(model, tmp_path)
    whole = (tmp_path / "chain-2.jsonl").read_text()
    (store,) = (tmp_path / "work").glob("chain-2-*.jsonl")
    lines = store.read_text().splitlines(keepends=True)
    # An altered text, another sample, a wrong type, a line of another store.
    changes = ("text", "?"), ("sample", 100), ("num_tokens", "7"), ("checksum", "0")
    for number, (name, value) in zip((3, 50, 99, 150), changes, strict=True):
        lines[number] = json.dumps({**json.loads(lines[number]), name: value}) + "\n"
    lines[180] = lines[180][:40] + "\n"
    # A kill within a line leaves its beginning.
    store.write_text("".join(lines[:-1]) + lines[-1][:17])
    assert answer(model, tmp_path) == 6
    said = [line for line in capsys.readouterr().out.splitlines() if "generated again" in line]
    assert said == [f"{store}:4 and 4 more: truncated, corrupt or altered; generated again"]
    # To the bit: their batches are answered as a whole.
    assert (tmp_path / "chain-2.jsonl").read_text() == whole


def test_responses_belong_to_whole_weights_and_not_to_how_they_were_made(model, tmp_path):
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    write_sums(copy)
    assert [answer(copy, tmp_path) for _ in range(2)] == [200, 0]
    weights(copy, lambda held: held | {NORM: 1.5 * held[NORM]})
    with pytest.raises(DamagedFileError, match=r"model\.safetensors: missing, truncated or"):
        answer(copy, tmp_path)
    write_sums(copy)
    assert answer(copy, tmp_path) == 200


def test_batches_do_not_change_a_draw(model, tmp_path):
    for size in (64, 7):
        answer(model, tmp_path / str(size), batch_size=size)
    a, b = (read_jsonl(tmp_path / n / "chain-2.jsonl") for n in ("64", "7"))
    texts = [[text for one in problems for text in one["responses"]] for problems in (a, b)]
    # Padding changes logits by rounding; a draw that lies that close is another one, hardly ever.
    assert sum(x == y for x, y in zip(*texts, strict=True)) >= 198


@pytest.mark.parametrize("decoding", [DECODING, Decoding(temperature=0.7, top_p=0.9, top_k=20)])
def test_models_without_full_attention_draw_the_same(model, decoding, monkeypatch):
    sampling = Sampling(**vars(decoding), max_response_tokens=24, eos_token_ids=(1,))
    asked = [Request(0, seed, seed, (6, 8 + seed % 5, 20)) for seed in range(30)]
    ours = [response for _, response in hf_engine(str(model), sampling)(asked)]
    monkeypatch.setattr(engines, "has_full_attention", lambda _: False)
    theirs = [response for _, response in hf_engine(str(model), sampling)(asked)]
    # Rounding differs; a draw that lies that close is another one, hardly ever.
    assert sum(x == y for x, y in zip(ours, theirs, strict=True)) >= 29
    assert len({response.text for response in ours}) > 20
