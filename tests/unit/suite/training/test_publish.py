"""What a training finished is published whole, and only for what it was made from."""

import os

import pytest
from studies import lines_of

from stapo.core.checksums import SUMS, checksums, file_sha256, write_sums
from stapo.core.files import write_json
from stapo.suite.runners.train import finished, publish


@pytest.fixture
def made(tmp_path):
    """A base model, prompts, and a training of theirs."""
    base, prompts, trained = (tmp_path / name for name in ("base", "prompts.jsonl", "trained"))
    for directory in (base, trained / "model"):
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_bytes(b"w" * 100)
        write_sums(directory)
    prompts.write_text("{}\n")
    (trained / "metrics.jsonl").write_text("{}\n")
    (trained / "tokens.parquet").write_text("tokens")
    made = [trained / name for name in ("model", "metrics.jsonl", "tokens.parquet")]
    outputs = checksums(made, trained)
    of = {"base": checksums([base], base), "prompts": file_sha256(prompts)}
    write_json(trained / "provenance.json", {"fingerprint": "ours", "outputs": outputs, **of})
    return base, prompts, trained


def test_a_training_is_finished_for_its_settings_its_base_and_its_prompts(made):
    base, prompts, trained = made
    assert finished(trained, "ours", ["model"], base, prompts)
    assert not finished(trained, "others", ["model"], base, prompts)
    assert not finished(trained, "ours", ["model", "step4"], base, prompts)
    sums = (base / SUMS).read_text()
    (base / SUMS).write_text("0" + sums[1:] if sums[0] != "0" else "1" + sums[1:])
    assert not finished(trained, "ours", ["model"], base, prompts)
    (base / SUMS).write_text(sums)
    prompts.write_text("{}\n{}\n")
    assert not finished(trained, "ours", ["model"], base, prompts)
    prompts.write_text("{}\n")
    for name in ("model/model.safetensors", "provenance.json"):
        assert finished(trained, "ours", ["model"], base, prompts)
        whole = (trained / name).read_text()
        (trained / name).write_text("?")
        assert not finished(trained, "ours", ["model"], base, prompts)
        (trained / name).write_text(whole)


def test_weights_are_published_as_links_if_they_are_whole(made, tmp_path):
    _, _, trained = made
    out = tmp_path / "results"
    (out / "model").mkdir(parents=True)
    (out / "model" / "old.safetensors").write_text("old")
    publish(trained, out, ["model", "metrics.jsonl", "provenance.json"], "ours")
    assert not (out / "model" / "old.safetensors").exists()
    linked = (out / "model" / "model.safetensors", trained / "model" / "model.safetensors")
    assert os.path.samefile(*linked)
    assert (out / "metrics.jsonl").read_text() == "{}\n"
    # Damaged weights replace nothing, and say how to train again.
    (trained / "model" / "model.safetensors").write_text("?")
    first, second = lines_of(publish, trained, out, ["model", "step4"], "ours")
    assert first.startswith(f"{trained}/model/model.safetensors: missing, truncated or corrupt; ")
    assert f"snakemake --forcerun {out}/provenance.json" in first
    assert second.startswith(f"{trained}/step4: missing")
    assert (out / "model").exists()
