# One training, and its weights. What it makes lies in a directory that Snakemake does not know, keyed by the
# fingerprint: a changed hyperparameter cannot resume from another run's checkpoint, and changing it back costs
# nothing. Weights take the place of earlier ones only when they are finished.

TRAINED = f"{{params.work}}/{{params.fingerprint}}/{paths.TRAINED}"


train_settings = cache(partial(settings.train_settings, STUDY))
train_minutes = cache(partial(limits.train_minutes, STUDY, CLUSTER))
notice_seconds = cache(partial(limits.notice_seconds, STUDY, CLUSTER))


rule train:
    input:
        base=at(paths.BASE_MODEL),
        prompts=at(paths.PROMPTS),
    output:
        metrics=at(paths.METRICS),
        tokens=at(paths.TOKENS),
        provenance=at(paths.RUN_PROVENANCE),
    log:
        log_of(paths.MODEL),
    retries: retries(limits.train_attempts(STUDY, CLUSTER))
    resources:
        gpu=STUDY.gpus_of("train"),
        nodes=1,
        runtime=lambda w: train_minutes(run_of(w)),
        slurm_extra=lambda w: f"--signal={NOTICE.name[3:]}@{notice_seconds(run_of(w))}",
    params:
        *one_by_one(
            lambda w: train_settings(run_of(w)), map(train_settings, STUDY.runs())
        ),
        # Of a function of the output, and so not compared: all that it is made of is, one by one.
        fingerprint=lambda w, output: trained_by(w),
        steps=STUDY.kept_steps(),
        work=at(paths.TRAIN_WORK),
        run=subpath(output.metrics, parent=True),
    # tee -i: Ctrl-C is for the training, which saves and says so; without its reader it would die of that.
    shell:
        STAPO
        + " train --study {STUDY_FILE} --size {wildcards.size} --method {wildcards.method}"
        " --seed {wildcards.seed} --base {input.base} --prompts {input.prompts}"
        " --work {params.work}/{params.fingerprint}"
        f" --out {TRAINED}/model --metrics {TRAINED}/metrics.jsonl"
        " --gpus {resources.gpu} --nodes {resources.nodes} 2>&1 | tee -i {log} && "
        + STAPO
        + f" publish --trained {TRAINED} --out {{params.run}} metrics.jsonl tokens.parquet"
        " provenance.json"
        " >> {log} 2>&1"


# Both inputs: git has a record without the rest of a training.
rule weights:
    input:
        at(paths.RUN_PROVENANCE),
        at(paths.METRICS),
    output:
        model=directory(at(paths.MODEL)),
        steps=[
            directory(at(paths.STEP_MODEL).replace("{step}", str(step)))
            for step in STUDY.kept_steps()
        ],
    log:
        log_of(f"{paths.RUN}/weights"),
    localrule: True
    params:
        fingerprint=trained_by,
        names=["model", *(f"step{step}" for step in STUDY.kept_steps())],
        work=at(paths.TRAIN_WORK),
        run=subpath(output.model, parent=True),
    shell:
        STAPO
        + f" publish --trained {TRAINED} --out {{params.run}} {{params.names}} > {{log}} 2>&1"
