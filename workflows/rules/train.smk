# One training, and its weights. What it makes lies in a directory that Snakemake does not know, named by the
# fingerprint: a changed hyperparameter cannot resume from another run's checkpoint, changing it back costs
# nothing, and studies that have the same training share it.


rule train:
    input:
        weights_at(paths.BASE_MODEL),
        at(paths.PROMPTS),
    output:
        kept(at(path) for path in (paths.METRICS, paths.TOKENS, paths.RUN_PROVENANCE)),
    log:
        log_of(paths.MODEL),
    threads: cores_of("train")
    resources:
        **memory_of("train"),
        gpu=STUDY.gpus_of("train"),
        nodes=1,
        slurm_extra=f"--signal={NOTICE.name[3:]}@{NOTICE_SECONDS}",
    params:
        made_by=made_by("train", "{model}/{method}/seed{seed}"),
    # tee -i: Ctrl-C is for the training, which saves and says so; without its reader it would die of that.
    shell:
        run("train", "{model}/{method}/seed{seed}")
        + " --gpus {resources.gpu} --nodes {resources.nodes} 2>&1 | tee -i {log}"


# Both inputs: git has a record without the rest of a training.
rule weights:
    input:
        at(paths.RUN_PROVENANCE),
        at(paths.METRICS),
    output:
        kept(
            weights_at(path)
            for path in (
                paths.MODEL,
                *(
                    paths.STEP_MODEL.replace("{step}", str(step))
                    for step in STUDY.kept_steps()
                ),
            )
        ),
    log:
        log_of(f"{paths.RUN}/weights"),
    params:
        made_by=made_by("weights", "{model}/{method}/seed{seed}"),
    shell:
        run("weights", "{model}/{method}/seed{seed}") + " > {log} 2>&1"
