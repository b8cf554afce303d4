# Tables, figures, the report, and named targets: table_<decoding>, figures, method_<name>.

TABLES = paths.table_paths(STUDY)
FIGURES = paths.figure_paths(STUDY)
EVIDENCE = paths.evidence_paths(STUDY)
exhibit_settings = cache(partial(settings.exhibit_settings, STUDY))
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
            reported(
                expand(at(paths.MAIN_TABLE), decoding=name, suffix=paths.SUFFIXES),
                ".csv",
                caption="table",
                category="Main tables",
                labels={"decoding": STUDY.decodings[name].title},
            ),
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
        lambda w: paths.exhibit_sources(STUDY, exhibits.FIGURES[w.figure]),
    output:
        reported(
            expand(at(paths.FIGURE), suffix=paths.FIGURE_SUFFIXES, allow_missing=True),
            ".svg",
            caption="figure",
            category="Figures",
            labels=lambda w: {"figure": exhibits.FIGURES[w.figure].title},
        ),
    log:
        log_of(paths.FIGURE.removesuffix(".{suffix}")),
    params:
        *one_by_one(
            lambda w: exhibit_settings(exhibits.FIGURES[w.figure]),
            map(exhibit_settings, exhibits.FIGURES.values()),
        ),
        fingerprint=lambda w: with_all(
            identity.exhibit_fingerprint(STUDY, exhibits.FIGURES[w.figure])
        ),
    shell:
        STAPO + " figure --study {STUDY_FILE} --name {wildcards.figure} > {log} 2>&1"


rule evidence:
    input:
        lambda w: paths.exhibit_sources(STUDY, exhibits.TABLES[w.table]),
    output:
        reported(
            expand(at(paths.TABLE), suffix=paths.SUFFIXES, allow_missing=True),
            ".csv",
            caption="evidence",
            category="Tables of evidence",
            labels=lambda w: {"table": exhibits.TABLES[w.table].title},
        ),
    log:
        log_of(paths.TABLE.removesuffix(".{suffix}")),
    wildcard_constraints:
        table=one_of(exhibits.TABLES),
    params:
        *one_by_one(
            lambda w: exhibit_settings(exhibits.TABLES[w.table]),
            map(exhibit_settings, exhibits.TABLES.values()),
        ),
        fingerprint=lambda w: with_all(
            identity.exhibit_fingerprint(STUDY, exhibits.TABLES[w.table])
        ),
    shell:
        STAPO + " evidence --study {STUDY_FILE} --name {wildcards.table} > {log} 2>&1"


rule values:
    input:
        paths.score_paths(STUDY, RUN.decodings),
        at(paths.OVERLAP),
    output:
        reported(
            expand(at(paths.VALUES), suffix=paths.VALUE_SUFFIXES),
            ".csv",
            caption="values",
            category="Values",
            labels={"file": "All values"},
        ),
    log:
        log_of(paths.VALUES).format(suffix="all"),
    params:
        *the_same(settings.report_settings(STUDY)),
        fingerprint=REPORT_FINGERPRINT,
    shell:
        STAPO + " values --study {STUDY_FILE} > {log} 2>&1"


rule references:
    output:
        at(paths.REFERENCES),
    log:
        log_of(paths.REFERENCES),
    params:
        *the_same(settings.reference_settings(STUDY)),
        fingerprint=with_all(identity.references_fingerprint(STUDY)),
    shell:
        STAPO + " references --study {STUDY_FILE} > {log} 2>&1"


rule report:
    input:
        TABLES,
        FIGURES,
        EVIDENCE,
    output:
        reported(
            [at(paths.REPORT)],
            ".html",
            caption="report",
            category="Report",
            labels={"file": "Report of the study"},
        ),
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
