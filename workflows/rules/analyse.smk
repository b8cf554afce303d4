# Tables, figures, the report, and named targets: table_<decoding>, figures, method_<name>.

for name in RUN.decodings:

    rule:
        name:
            f"table_{slug(name)}"
        input:
            JOBS.job("tables", name).inputs,
        output:
            kept(JOBS.job("tables", name).outputs),
        log:
            log_of(paths.MAIN_TABLE).format(decoding=name),
        localrule: True
        params:
            name=name,
            made_by=JOBS.param("tables", name),
        shell:
            run("tables", "{params.name:q}") + " > {log} 2>&1"


rule evidence:
    input:
        JOBS.job("evidence").inputs,
    output:
        kept(JOBS.job("evidence").outputs),
    log:
        log_of(f"{paths.RESULTS}/evidence"),
    params:
        made_by=made_by("evidence"),
    shell:
        run("evidence") + " > {log} 2>&1"


rule figures:
    input:
        JOBS.job("figures").inputs,
    output:
        kept(JOBS.job("figures").outputs),
    log:
        log_of(f"{paths.RESULTS}/figures"),
    params:
        made_by=made_by("figures"),
    shell:
        run("figures") + " > {log} 2>&1"


rule report:
    input:
        JOBS.job("report").inputs,
    output:
        kept([at(paths.REPORT)]),
    log:
        log_of(paths.REPORT),
    params:
        made_by=made_by("report"),
    shell:
        run("report") + " > {log} 2>&1"


rule provenance:
    input:
        # Not what the evidence is made from: thousands of files, which Snakemake would look up once more.
        sorted({*JOBS.job("provenance").inputs} - {*JOBS.job("evidence").inputs}),
    output:
        kept([at(paths.PROVENANCE), at(paths.CHECKSUMS)]),
    log:
        log_of(paths.PROVENANCE),
    params:
        made_by=made_by("provenance"),
    shell:
        run("provenance") + " > {log} 2>&1"


for name in RUN.methods:

    rule:
        name:
            f"method_{slug(name)}"
        input:
            [
                path
                for job in JOBS.all("score")
                if job.name.split("/")[1] == name
                for path in job.outputs
            ],
