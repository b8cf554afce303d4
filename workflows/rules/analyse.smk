# Tables, figures, the report, and named targets: table_<decoding>, figures, method_<name>.

SUFFIXES = ("md", "tex", "csv")


def scores_of(decodings=RUN.decodings, method=None):
    """Return the score files of some decodings, of all checkpoints or of those of one method."""
    checkpoints = [c for c in STUDY.checkpoints() if method in (None, c.split("/")[1])]
    return expand(
        at(artifacts.SCORES),
        checkpoint=checkpoints,
        decoding=decodings,
        benchmark=RUN.benchmarks,
    )


def score_fingerprints(decoding):
    return [
        STUDY.score_fingerprint(checkpoint, decoding, benchmark)
        for checkpoint in STUDY.checkpoints()
        for benchmark in RUN.benchmarks
    ]


METRICS = [
    at(artifacts.METRICS).format(size=size, method=method, seed=seed)
    for size, method, seed in STUDY.runs()
]
TITLES = [STUDY.method(name).title for name in RUN.methods]
TABLES = expand(
    at(artifacts.TABLE), table=[f"main-{name}" for name in RUN.decodings], suffix=SUFFIXES
)
FIGURES = expand(at(artifacts.FIGURE), figure=artifacts.FIGURE_NAMES, suffix=["svg", "png"])

for name in RUN.decodings:

    rule:
        name:
            f"table_{slug(name)}"
        input:
            scores_of([name]),
        output:
            expand(at(artifacts.TABLE), table=f"main-{name}", suffix=SUFFIXES),
        log:
            log_of(f"results/{{study}}/tables/main-{name}"),
        params:
            decoding=name,
            fingerprint=fingerprint([TITLES, score_fingerprints(name)]),
        shell:
            STAPO + " table --study {STUDY_JSON:q} --decoding {params.decoding} > {log} 2>&1"


rule figure:
    input:
        METRICS,
    output:
        expand(at(artifacts.FIGURE), suffix=["svg", "png"], allow_missing=True),
    log:
        log_of("results/{study}/figures/{figure}"),
    params:
        fingerprint=fingerprint([TITLES, [STUDY.train_config(*run) for run in STUDY.runs()]]),
    shell:
        STAPO + " figure --study {STUDY_JSON:q} --name {wildcards.figure} > {log} 2>&1"


rule report:
    input:
        TABLES,
        FIGURES,
    output:
        at(artifacts.REPORT),
    log:
        log_of(artifacts.REPORT),
    params:
        fingerprint=fingerprint([STUDY.name, [score_fingerprints(name) for name in RUN.decodings]]),
    shell:
        STAPO + " report --study {STUDY_JSON:q} > {log} 2>&1"


rule figures:
    input:
        FIGURES,


for name in RUN.methods:

    rule:
        name:
            f"method_{slug(name)}"
        input:
            scores_of(method=name),
