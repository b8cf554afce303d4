# Single updates of checkpoints with and without silencing, where the study asks for them.

intervention_settings = cache(partial(settings.intervention_settings, STUDY))
intervene_minutes = cache(partial(limits.intervene_minutes, STUDY, CLUSTER))

if STUDY.intervened():

    rule intervene:
        input:
            model=lambda w: paths.checkpoint_path(STUDY.name, checkpoint_of(w)),
            prompts=at(paths.PROMPTS),
        output:
            expand(
                at(paths.INTERVENTION),
                suffix=paths.INTERVENTION_SUFFIXES,
                allow_missing=True,
            ),
        log:
            log_of(paths.INTERVENTION).replace(".{suffix}", ""),
        wildcard_constraints:
            checkpoint=one_of(STUDY.intervened()),
        resources:
            gpu=STUDY.gpus_of("intervene"),
            runtime=lambda w: intervene_minutes(checkpoint_of(w)),
        params:
            *one_by_one(
                lambda w: intervention_settings(checkpoint_of(w)),
                map(intervention_settings, STUDY.intervened()),
            ),
            fingerprint=lambda w: with_all(
                identity.intervention_fingerprint(STUDY, checkpoint_of(w))
            ),
            out=at(paths.INTERVENTIONS),
        shell:
            STAPO
            + " intervene --study {STUDY_FILE} --checkpoint {wildcards.checkpoint}"
            " --model {input.model} --prompts {input.prompts} --out {params.out}"
            " --gpus {resources.gpu} 2>&1 | tee -i {log}"
