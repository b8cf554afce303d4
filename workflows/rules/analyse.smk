# Tables, figures, the report, and named targets: table_<decoding>, figures, method_<name>.

TABLES = paths.table_paths(STUDY)
FIGURES = paths.figure_paths(STUDY)
figure_settings = cache(partial(settings.figure_settings, STUDY))
# Of every score: asked for once.
REPORT_FINGERPRINT = with_all(identity.report_fingerprint(STUDY))

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
            *the_same(settings.table_settings(STUDY)),
            decoding=name,
            fingerprint=with_all(identity.table_fingerprint(STUDY, name)),
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
        *one_by_one(
            lambda w: figure_settings(w.figure),
            map(figure_settings, paths.figure_names(STUDY)),
        ),
        fingerprint=lambda w: with_all(identity.figure_fingerprint(STUDY, w.figure)),
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
        *the_same(settings.report_settings(STUDY)),
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
        *the_same(settings.report_settings(STUDY)),
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
