# Tables, figures, the report, and named targets: table_<decoding>, figures, method_<name>.

TABLES = paths.table_paths(STUDY)
FIGURES = paths.figure_paths(STUDY)
# Of every score: asked for once.
REPORT_FINGERPRINT = identity.report_fingerprint(STUDY)

for name in RUN.decodings:

    rule:
        name:
            f"table_{slug(name)}"
        input:
            paths.table_score_paths(STUDY, name),
            at(paths.OVERLAP),
        output:
            expand(at(paths.MAIN_TABLE), decoding=name, suffix=paths.SUFFIXES),
        log:
            log_of(paths.MAIN_TABLE).format(decoding=name, suffix="all"),
        localrule: True
        params:
            decoding=name,
            fingerprint=identity.table_fingerprint(STUDY, name),
        shell:
            STAPO
            + " table --study {STUDY_FILE} --decoding {params.decoding} > {log} 2>&1"


rule figure:
    input:
        lambda w: paths.figure_sources(STUDY, w.figure),
    output:
        expand(at(paths.FIGURE), suffix=["svg", "png"], allow_missing=True),
    log:
        log_of("results/{study}/figures/{figure}"),
    params:
        fingerprint=lambda w: (
            identity.accuracy_fingerprint(STUDY)
            if paths.shows_scores(w.figure)
            else identity.metrics_fingerprint(STUDY)
        ),
    shell:
        STAPO + " figure --study {STUDY_FILE} --name {wildcards.figure} > {log} 2>&1"


rule report:
    input:
        TABLES,
        FIGURES,
    output:
        at(paths.REPORT),
    log:
        log_of(paths.REPORT),
    params:
        fingerprint=REPORT_FINGERPRINT,
    shell:
        STAPO + " report --study {STUDY_FILE} > {log} 2>&1"


rule provenance:
    input:
        [path for path in PUBLISHED if path != at(paths.PROVENANCE)],
    output:
        at(paths.PROVENANCE),
        at(paths.CHECKSUMS),
    log:
        log_of(paths.PROVENANCE),
    params:
        fingerprint=REPORT_FINGERPRINT,
    shell:
        STAPO + " provenance --study {STUDY_FILE} > {log} 2>&1"


rule figures:
    input:
        FIGURES,


for name in RUN.methods:

    rule:
        name:
            f"method_{slug(name)}"
        input:
            paths.score_paths(STUDY, RUN.decodings, method=name),
