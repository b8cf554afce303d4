# One training: resumable state in an undeclared directory that Snakemake never deletes, keyed by the
# fingerprint, so that a changed hyperparameter cannot resume from another run's checkpoint.


rule train:
    input:
        base=at(artifacts.BASE_MODEL),
        prompts=at(artifacts.PROMPTS),
    output:
        metrics=at(artifacts.METRICS),
        provenance=at(artifacts.RUN_PROVENANCE),
        model=directory(at(artifacts.MODEL)),
        steps=[
            directory(at(artifacts.STEP_MODEL).replace("{step}", str(step)))
            for step in STUDY.kept_steps()
        ],
    log:
        log_of(artifacts.MODEL),
    resources:
        gpu=STUDY.gpus_of("train"),
        nodes=1,
    params:
        fingerprint=lambda w: fingerprint(
            STUDY.train_config(w.size, w.method, int(w.seed))
        ),
        work=at(artifacts.TRAIN_WORK),
    # tee -i: Ctrl-C is for the training, which saves and says so; without its reader it would die of that.
    shell:
        STAPO
        + " train --study {STUDY_JSON:q} --size {wildcards.size} --method {wildcards.method}"
        " --seed {wildcards.seed} --base {input.base} --prompts {input.prompts}"
        " --work {params.work}/{params.fingerprint} --out {output.model} --metrics {output.metrics}"
        " --gpus {resources.gpu} --nodes {resources.nodes} 2>&1 | tee -i {log}"
