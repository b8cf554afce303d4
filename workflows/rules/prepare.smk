# Training prompts, their overlap with the benchmarks, base models.


rule prompts:
    output:
        prompts=at(paths.PROMPTS),
        record=at(paths.PROMPTS_RECORD),
    log:
        log_of(paths.PROMPTS),
    params:
        *the_same(settings.data_settings(STUDY)),
    shell:
        STAPO
        + " prompts --study {STUDY_FILE} --out {output.prompts} --record {output.record} > {log} 2>&1"


# An input of the tables alone: as an input of the trainings a new benchmark would train all anew, and
# `ancient` makes Snakemake 9.27 end after this job without having run the target. Each training looks
# for itself before it starts.
rule overlap:
    input:
        at(paths.PROMPTS),
    output:
        at(paths.OVERLAP),
    log:
        log_of(paths.OVERLAP),
    params:
        *the_same(settings.overlap_settings(STUDY)),
        benchmarks=[f"--benchmark={name}" for name in STUDY.evaluated()]
        + ["--published"] * hasattr(STUDY.data, "hub"),
        fingerprint=with_all(identity.overlap_fingerprint(STUDY)),
    shell:
        STAPO
        + " overlap --study {STUDY_FILE} --prompts {input} {params.benchmarks} --out {output} > {log} 2>&1"


base_settings = cache(partial(settings.base_settings, STUDY))


rule base_model:
    output:
        model=directory(at(paths.BASE_MODEL)),
        record=at(paths.BASE_RECORD),
    log:
        log_of(paths.BASE_MODEL),
    params:
        *one_by_one(lambda w: base_settings(w.size), map(base_settings, RUN.sizes)),
    shell:
        STAPO
        + " base --study {STUDY_FILE} --size {wildcards.size} --out {output.model} --record {output.record} 2>&1 | tee -i {log}"


if STUDY.evaluation.verifier:

    rule verifier_model:
        output:
            model=directory(at(paths.VERIFIER)),
            record=at(paths.VERIFIER_RECORD),
        log:
            log_of(paths.VERIFIER),
        localrule: True
        params:
            *the_same(settings.verifier_settings(STUDY)),
        shell:
            STAPO
            + " base --study {STUDY_FILE} --verifier --out {output.model} --record {output.record} 2>&1 | tee -i {log}"
