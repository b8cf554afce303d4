# Single updates of checkpoints with and without silencing, where the study asks for them.

if STUDY.intervened():

    rule intervene:
        input:
            lambda w: weights_at(paths.checkpoint_path(STUDY.name, checkpoint_of(w))),
            at(paths.PROMPTS),
        output:
            kept(
                expand(
                    at(paths.INTERVENTION),
                    suffix=paths.INTERVENTION_SUFFIXES,
                    allow_missing=True,
                )
            ),
        log:
            log_of(paths.INTERVENTION).replace(".{suffix}", ""),
        wildcard_constraints:
            checkpoint=one_of(STUDY.intervened()),
        threads: cores_of("intervene")
        resources:
            **memory_of("intervene"),
            gpu=STUDY.gpus_of("intervene"),
        params:
            made_by=made_by("intervene", "{checkpoint}"),
        shell:
            run("intervene", "{checkpoint}")
            + " --gpus {resources.gpu} 2>&1 | tee -i {log}"
