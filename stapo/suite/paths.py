"""Where every file of a study lives: paths relative to the working directory."""

from stapo.suite.study import Checkpoint, Study

# Paths relative to the working directory; `{checkpoint}` is the name of a `Checkpoint`.
RESULTS = "results/{study}"
PROMPTS = "results/{study}/data/prompts.jsonl"
"""Training prompts: `question` and `answer`, one line per prompt."""
PROMPTS_RECORD = "results/{study}/data/prompts.json"
"""Number and SHA-256 of the training prompts, and what was removed."""
OVERLAP = "results/{study}/data/overlap.json"
"""Training prompts that are problems of a benchmark, or share 13 words with one."""
BASE_MODEL = "results/{study}/models/{model}/base"
"""Weights of the base model: safetensors, config.json, tokenizer, SHA256SUMS."""
BASE_RECORD = "results/{study}/models/{model}/base.json"
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
RUN = "results/{study}/runs/{model}/{method}/seed{seed}"
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
SCORES_FOLDER = "results/{study}/scores"
RESPONSES = "results/{study}/completions/{checkpoint}/{decoding}"
COMPLETIONS = RESPONSES + "/{benchmark}.jsonl"
"""Responses of a checkpoint to a benchmark: one line per problem."""
SCORES = SCORES_FOLDER + "/{checkpoint}/{decoding}/{benchmark}.parquet"
"""Scores of these responses: one row per response; the metadata say what made them."""
MAIN_TABLE = "results/{study}/tables/main-{decoding}.md"
"""Main table of a decoding; its numbers are in the file of values."""
FIGURE = "results/{study}/figures/{figure}.{suffix}"
"""A figure, as SVG, PDF and PNG."""
TABLE = "results/{study}/tables/{table}.{suffix}"
"""A table of evidence, as Markdown and CSV."""
VALUES = "results/{study}/tables/values.csv"
"""Every number of the main tables, of the last weights: one row per value."""
INTERVENTIONS = "results/{study}/interventions"
INTERVENTION = INTERVENTIONS + "/{checkpoint}.{suffix}"
"""What one update of a checkpoint does: numbers as JSON, a sample of tokens as Parquet."""
INTERVENTION_SUFFIXES = ("json", "parquet")
REPORT = "results/{study}/report.html"
"""One page with tables and figures, which opens offline."""
PROVENANCE = "results/{study}/provenance.json"
"""The study, its fingerprints and environments, and the cost of its trainings."""
CHECKSUMS = "results/{study}/SHA256SUMS"
"""SHA-256 of every file, which `stapo verify` checks."""
JOB_RECORD = "results/{study}/.jobs/{stage}/{name}.json"
"""With which settings, from which files a job made which files; `stapo.suite.jobs.record` writes it."""
BASE_WORK = "work/base/{fingerprint}"
TRAIN_WORK = "work/train/{fingerprint}"
TRAINED = "published"
"""Below the work directory of a training: what it made, laid out as its part of the results."""
INTERVENE_WORK = "work/intervene/{fingerprint}"
GENERATE_WORK = "work/generate/{fingerprint}"
SUFFIXES = ("md", "csv")
"""Of tables of evidence."""
FIGURE_SUFFIXES = ("svg", "pdf", "png")


def checkpoint_path(study: str, checkpoint: Checkpoint) -> str:
    """Return where the weights of a checkpoint are published."""
    if checkpoint.run is None:
        return BASE_MODEL.format(study=study, model=checkpoint.model)
    path = MODEL if checkpoint.step is None else STEP_MODEL
    return path.format(study=study, **checkpoint.run._asdict(), step=checkpoint.step)


def results_of(study: Study) -> dict[str, str]:
    """Return what a reader of a finished study opens first, by kind."""
    results = RESULTS.format(study=study.name)
    return {
        "report": REPORT.format(study=study.name),
        "tables": f"{results}/tables/",
        "figures": f"{results}/figures/",
    }
