"""Where every file of a study lives: paths relative to the working directory."""

from collections.abc import Callable, Iterable

from stapo.exhibits import FIGURES, TABLES, Exhibit, Need
from stapo.study import Checkpoint, Study
from stapo.study.families import families

# Paths relative to the working directory; `{checkpoint}` is the name of a `Checkpoint`.
RESULTS = "results/{study}"
PROMPTS = "results/{study}/data/prompts.jsonl"
"""Training prompts: `question` and `answer`, one line per prompt."""
PROMPTS_RECORD = "results/{study}/data/prompts.json"
"""Number and SHA-256 of the training prompts, and what was removed."""
OVERLAP = "results/{study}/data/overlap.json"
"""Training prompts that are problems of a benchmark, or share 13 words with one."""
BASE_MODEL = "results/{study}/models/{size}/base"
"""Weights of the base model: safetensors, config.json, tokenizer, SHA256SUMS."""
BASE_RECORD = "results/{study}/models/{size}/base.json"
"""What a base model was made from: small, and kept where its weights are removed."""
VERIFIER = "results/{study}/models/verifier"
"""Weights of the verifier, if the study has one, with the template of its prompt."""
VERIFIER_RECORD = "results/{study}/models/verifier.json"
"""What the verifier was made from."""
VERIFIER_TEMPLATE = "verifier_template.json"
"""Beside the verifier's weights: the wording of its prompt and where that came from."""
METRICS_FILE, TOKENS_FILE, RECORD_FILE = "metrics.jsonl", "tokens.parquet", "provenance.json"
"""Files of a training, in the results and in its work directory."""
TOKENS_LOG = "tokens.jsonl"
"""In the work directory of a training: its token records as ids, one line per step."""
RUN = "results/{study}/runs/{size}/{method}/seed{seed}"
MODEL = RUN + "/model"
"""Final weights of a training."""
STEP_MODEL = RUN + "/step{step}"
"""Weights after an optimiser step, if the study keeps them."""
METRICS = f"{RUN}/{METRICS_FILE}"
"""Metrics of a training: one line per optimiser step."""
TOKENS = f"{RUN}/{TOKENS_FILE}"
"""Sampled tokens of a training, with probability, entropy, gradient norm and context."""
RUN_PROVENANCE = f"{RUN}/{RECORD_FILE}"
"""Inputs, environment, checksums, attempts, time and energy of a training."""
RESPONSES = "results/{study}/completions/{checkpoint}/{decoding}"
COMPLETIONS = RESPONSES + "/{benchmark}.jsonl"
"""Responses of a checkpoint to a benchmark: one line per problem."""
SCORES = "results/{study}/scores/{checkpoint}/{decoding}/{benchmark}.parquet"
"""Scores of these responses: one row per response; the metadata say what made them."""
MAIN_TABLE = "results/{study}/tables/main-{decoding}.{suffix}"
"""Main table of a decoding, as Markdown, LaTeX and CSV."""
FIGURE = "results/{study}/figures/{figure}.{suffix}"
"""A figure, as SVG, PDF and PNG."""
TABLE = "results/{study}/tables/{table}.{suffix}"
"""A table of evidence, as Markdown, LaTeX and CSV."""
VALUES = "results/{study}/tables/values.{suffix}"
"""Every number of the main tables, and the accuracy of every checkpoint: one row per value."""
VALUE_SUFFIXES = ("csv", "parquet")
REFERENCES = "results/{study}/references.bib"
"""What to cite with these results."""
INTERVENTIONS = "results/{study}/interventions"
INTERVENTION = INTERVENTIONS + "/{checkpoint}.{suffix}"
"""What one update of a checkpoint does: numbers as JSON, a sample of tokens as Parquet."""
INTERVENTION_SUFFIXES = ("json", "parquet")
REPORT = "results/{study}/report.html"
"""One page with tables, figures, tokens and responses, which opens offline."""
PROVENANCE = "results/{study}/provenance.json"
"""The study, its fingerprints and environments, and the cost of its trainings."""
CHECKSUMS = "results/{study}/SHA256SUMS"
"""SHA-256 of every file, which `stapo verify` checks."""
BASE_WORK = "work/base/{fingerprint}"
TRAIN_WORK = "work/train/{fingerprint}"
TRAINED = "published"
"""Below the work directory of a training: what it made, laid out as its part of the results."""
INTERVENE_WORK = "work/intervene/{fingerprint}"
GENERATE_WORK = "work/generate/{fingerprint}"
SUFFIXES = ("md", "tex", "csv")
"""Of tables."""
FIGURE_SUFFIXES = ("svg", "pdf", "png")


def checkpoint_path(study: str, checkpoint: Checkpoint) -> str:
    """Return where the weights of a checkpoint are published."""
    if checkpoint.run is None:
        return BASE_MODEL.format(study=study, size=checkpoint.size)
    path = MODEL if checkpoint.step is None else STEP_MODEL
    return path.format(study=study, **checkpoint.run.wildcards, step=checkpoint.step)


def score_paths(study: Study, decodings: Iterable[str], method: str | None = None) -> list[str]:
    """Return the score files of some decodings, of all checkpoints or of those of one method."""
    return _cell_paths(SCORES, study, decodings, study.cells, method)


def table_score_paths(study: Study, decoding: str) -> list[str]:
    """Return the score files from which the table of a decoding is computed."""
    return _cell_paths(SCORES, study, [decoding], study.table_cells)


def completion_paths(study: Study, decodings: Iterable[str]) -> list[str]:
    """Return the files of responses of some decodings."""
    return _cell_paths(COMPLETIONS, study, decodings, study.cells)


def _cell_paths(
    path: str,
    study: Study,
    decodings: Iterable[str],
    cells: Callable[[str], Iterable[tuple[Checkpoint, str]]],
    method: str | None = None,
) -> list[str]:
    return [
        path.format(study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark)
        for decoding in decodings
        for checkpoint, benchmark in cells(decoding)
        if method in (None, checkpoint.method)
    ]


def table_paths(study: Study) -> list[str]:
    """Return the tables of a study."""
    return [
        MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
        for decoding in study.run.decodings
        for suffix in SUFFIXES
    ]


def figure_paths(study: Study) -> list[str]:
    """Return the figures of a study, each in two formats."""
    return [
        FIGURE.format(study=study.name, figure=figure, suffix=suffix)
        for figure in figure_names(study)
        for suffix in FIGURE_SUFFIXES
    ]


def evidence_paths(study: Study) -> list[str]:
    """Return the tables of evidence of a study, each in three formats."""
    return [
        TABLE.format(study=study.name, table=table, suffix=suffix)
        for table in table_names(study)
        for suffix in SUFFIXES
    ]


def value_paths(study: Study) -> list[str]:
    """Return the values of a study's tables as CSV and Parquet."""
    return [VALUES.format(study=study.name, suffix=suffix) for suffix in VALUE_SUFFIXES]


def figure_names(study: Study) -> list[str]:
    """Return the figures of a study for which it has data, in the order of the report."""
    has = _has(study)
    return [name for name, figure in FIGURES.items() if figure.needs in has]


def table_names(study: Study) -> list[str]:
    """Return the tables of evidence of a study for which it has data, in the order of the report."""
    has = _has(study)
    return [name for name, table in TABLES.items() if table.needs in has]


def _has(study: Study) -> set[Need | None]:
    """Return what a study has of all that an exhibit may need."""
    has: dict[Need | None, bool] = {
        None: True,
        "vllm": study.training.rollouts != "transformers",
        "checkpoints": bool(study.kept_steps()),
        "full-mask": {"justrl", "full-mask"} <= {*study.run.methods},
        "ablation": bool(families(study)),
        "interventions": bool(study.intervened()),
    }
    return {need for need, there in has.items() if there}


def exhibit_sources(study: Study, exhibit: Exhibit) -> list[str]:
    """Return the files from which a figure or a table of evidence is computed."""
    found = []
    if "metrics" in exhibit.sources:
        found += metrics_paths(study)
    if "scores" in exhibit.sources:
        found += score_paths(study, study.run.decodings)
    if "responses" in exhibit.sources:
        found += completion_paths(study, study.run.decodings)
    if "tokens" in exhibit.sources:
        found += token_paths(study)
    if "interventions" in exhibit.sources:
        found += intervention_paths(study)
    return found


def intervention_paths(study: Study) -> list[str]:
    """Return the files of the interventions at every checkpoint where the study makes them."""
    return [
        INTERVENTION.format(study=study.name, checkpoint=checkpoint, suffix=suffix)
        for checkpoint in study.intervened()
        for suffix in INTERVENTION_SUFFIXES
    ]


def token_paths(study: Study) -> list[str]:
    """Return the token records of every training."""
    return [TOKENS.format(study=study.name, **run.wildcards) for run in study.runs()]


def metrics_paths(study: Study) -> list[str]:
    """Return the metrics of every training."""
    return [METRICS.format(study=study.name, **run.wildcards) for run in study.runs()]


def run_provenance_paths(study: Study) -> list[str]:
    """Return what every training says of itself."""
    return [RUN_PROVENANCE.format(study=study.name, **run.wildcards) for run in study.runs()]


def base_record_paths(study: Study) -> list[str]:
    """Return what says from what the base models, and the verifier, were made."""
    sizes = [BASE_RECORD.format(study=study.name, size=size) for size in study.run.sizes]
    return sizes + [VERIFIER_RECORD.format(study=study.name)] * bool(study.evaluation.verifier)


def published_paths(study: Study) -> list[str]:
    """Return every file that a finished study has, weights and checksums apart.

    All of them are asked for by name: Snakemake takes a file that is missing for one that is not needed
    as long as what was made from it is there.
    """
    about = (PROMPTS, PROMPTS_RECORD, OVERLAP, REPORT, PROVENANCE)
    return [
        *(path.format(study=study.name) for path in about),
        *base_record_paths(study),
        *metrics_paths(study),
        *token_paths(study),
        *run_provenance_paths(study),
        *completion_paths(study, study.run.decodings),
        *score_paths(study, study.run.decodings),
        *intervention_paths(study),
        *table_paths(study),
        *figure_paths(study),
        *evidence_paths(study),
        *value_paths(study),
        REFERENCES.format(study=study.name),
    ]


def results_of(study: Study) -> dict[str, str]:
    """Return what a reader of a finished study opens first, by kind."""
    results = RESULTS.format(study=study.name)
    return {
        "report": REPORT.format(study=study.name),
        "tables": f"{results}/tables/",
        "figures": f"{results}/figures/",
    }
