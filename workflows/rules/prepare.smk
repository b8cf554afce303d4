# Training prompts, their overlap with the benchmarks, base models.


rule prompts:
    output:
        kept(JOBS.job("prompts").outputs),
    log:
        log_of(paths.PROMPTS),
    params:
        made_by=made_by("prompts"),
    shell:
        run("prompts") + " > {log} 2>&1"


# An input of the tables alone: as an input of the trainings a new benchmark would train all anew, and
# `ancient` makes Snakemake 9.27 end after this job without having run the target. Each training looks
# for itself before it starts.
rule overlap:
    input:
        at(paths.PROMPTS),
    output:
        kept([at(paths.OVERLAP)]),
    log:
        log_of(paths.OVERLAP),
    params:
        made_by=made_by("overlap"),
    shell:
        run("overlap") + " > {log} 2>&1"


rule base_model:
    output:
        kept([weights_at(paths.BASE_MODEL), at(paths.BASE_RECORD)]),
    log:
        log_of(paths.BASE_MODEL),
    params:
        made_by=made_by("base", "{model}"),
    shell:
        run("base", "{model}") + " 2>&1 | tee -i {log}"


if STUDY.evaluation.verifier:

    rule verifier_model:
        output:
            kept([weights_at(paths.VERIFIER), at(paths.VERIFIER_RECORD)]),
        log:
            log_of(paths.VERIFIER),
        localrule: True
        params:
            made_by=made_by("base", "verifier"),
        shell:
            run("base", "verifier") + " 2>&1 | tee -i {log}"
