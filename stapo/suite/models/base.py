"""A base model: built from scratch, copied from a folder or the Hub, or made of a GGUF file.

The published prompt template of a verifier is downloaded, checked, and parsed; its source never runs. What
changed, is damaged or cannot be downloaded is a StudyError.
"""

import ast
import shutil
from hashlib import sha256
from pathlib import Path

from stapo.core.checksums import write_sums
from stapo.core.files import content_of, replace_directory, write, write_json
from stapo.suite.bars import only_ours
from stapo.suite.hub import from_hub
from stapo.suite.paths import VERIFIER_TEMPLATE
from stapo.suite.study import StudyError
from stapo.suite.study.files import FILES, SOURCE, model_checksum, model_files
from stapo.suite.study.schema import Verifier
from stapo.suite.study.sources import FolderModel, GgufModel, HubModel, Model, TinyModel, WheelModel

ADDRESS = "https://raw.githubusercontent.com"
SECONDS = 30.0


def write_base(model: Model | HubModel, path: Path) -> None:
    """Write a base model and its tokenizer to a directory, atomically; of a verifier, also its template."""
    with replace_directory(path) as aside:
        if isinstance(model, TinyModel):
            from stapo.suite.models.tiny import build_tiny

            build_tiny(model, aside)
        elif isinstance(model, GgufModel | WheelModel):
            from stapo.suite.models.gguf_files import write_dequantised

            only_ours()
            write_dequantised(model, aside)
        else:
            _copy(model, aside)
        if supervised := getattr(model, "supervised", None):
            from stapo.suite.models.supervised import warm_up

            warm_up(aside, supervised)
        if isinstance(model, Verifier):
            template = {**Verifier.template, "text": verifier_template()}
            write_json(aside / VERIFIER_TEMPLATE, template)
        write_sums(aside)


def cached(model: HubModel) -> Path:
    """Return the directory of a model in the Hub's cache; missing files are downloaded first."""
    from huggingface_hub import snapshot_download

    def download() -> str:
        return snapshot_download(model.hub, revision=model.revision, allow_patterns=[*FILES])

    return Path(from_hub(download))


def _copy(model: FolderModel | HubModel, path: Path) -> None:
    """Copy the files of a model to a directory."""
    if isinstance(model, FolderModel):
        files = model_files(Path(model.path))
    else:
        # Copied from the cache: files that `stapo fetch` downloaded need no network.
        snapshot = cached(model)
        files = sorted(file for file in snapshot.iterdir() if file.is_file())
        # The Hub's client names a snapshot by its commit, even if a branch was requested.
        write_json(
            path / SOURCE, {**model.model_dump(exclude={"supervised"}), "commit": snapshot.name}
        )
    for source in files:
        shutil.copyfile(source, path / source.name)
    _require_whole(path, model.path if isinstance(model, FolderModel) else model.hub)
    if isinstance(model, FolderModel) and model_checksum(path) != model.sha256:
        message = "its files changed since the study was read; run snakemake again"
        raise StudyError([f"{model.path}: {message}"])


def _require_whole(path: Path, name: str) -> None:
    """Check that copied weights are finite and those of their configuration."""
    from stapo.suite.models.loading import check_values, read_without_weights

    try:
        read_without_weights(path)
        check_values(path)
    except StudyError as error:
        raise StudyError([line.replace(str(path), name, 1) for line in error.errors]) from error


def verifier_template() -> str:
    """Return the prompt template of verifiers, from the cache or from GitHub."""
    named = Verifier.template["name"]
    (text,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(_source()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == named
    )
    assert isinstance(text, str)
    return text


def _source() -> bytes:
    import httpx
    from huggingface_hub import constants

    template = Verifier.template
    expected, place = template["sha256"], "{github} at {revision:.8}, {file}".format(**template)
    kept = Path(constants.HF_HOME) / "stapo" / f"{expected}.py.txt"
    if kept.is_file() and sha256(content := content_of(kept)).hexdigest() == expected:
        return content
    try:
        if constants.HF_HUB_OFFLINE:
            raise FileNotFoundError("not in the cache, and offline mode is on")
        address = "{}/{github}/{revision}/{file}".format(ADDRESS, **template)
        content = from_hub(lambda: httpx.get(address, timeout=SECONDS).raise_for_status().content)
    except (OSError, RuntimeError, httpx.HTTPError) as error:
        remedy = "run `stapo fetch` where there is a network"
        raise StudyError([f"{place}: cannot be downloaded ({error}); {remedy}"]) from error
    if (digest := sha256(content).hexdigest()) != expected:
        raise StudyError([f"{place}: SHA-256 is {digest}, expected {expected}; try again later"])
    write(kept, content)
    return content
