# Responses of a checkpoint under a decoding, and their scores. The fingerprints are cumulative: a
# training that failed after a change can never leave old numbers standing as if they were current.


CURVE = STUDY.evaluation.curve
FULL = [one for one in STUDY.checkpoints() if STUDY.is_full(one)]
CURVE_ALONE = [one for one in STUDY.checkpoints() if not STUDY.is_full(one)]
generate_settings = cache(partial(settings.generate_settings, STUDY))
score_settings = cache(partial(settings.score_settings, STUDY))
generate_minutes = cache(partial(limits.generate_minutes, STUDY, CLUSTER))
score_minutes = cache(partial(limits.score_minutes, STUDY, CLUSTER))


rule generate:
    input:
        model=lambda w: paths.checkpoint_path(STUDY.name, checkpoint_of(w)),
    output:
        expand(at(paths.COMPLETIONS), benchmark=STUDY.evaluated(), allow_missing=True),
    log:
        log_of(paths.RESPONSES),
    wildcard_constraints:
        checkpoint=one_of(FULL),
    retries: retries(limits.generate_attempts(STUDY, CLUSTER))
    resources:
        gpu=STUDY.gpus_of("generate"),
        runtime=lambda w: generate_minutes(checkpoint_of(w), w.decoding),
    params:
        *one_by_one(
            lambda w: generate_settings(checkpoint_of(w), w.decoding),
            [
                generate_settings(one, decoding)
                for one in FULL[:1] + CURVE_ALONE[:1]
                for decoding in RUN.decodings
            ],
        ),
        fingerprint=lambda w: with_all(
            identity.responses_fingerprint(STUDY, checkpoint_of(w), w.decoding)
        ),
        out=at(paths.RESPONSES),
        work=at(paths.GENERATE_WORK),
    shell:
        STAPO + " generate --study {STUDY_FILE} --checkpoint {wildcards.checkpoint}"
        " --decoding {wildcards.decoding} --model {input.model} --work {params.work}"
        " --out {params.out} --gpus {resources.gpu} 2>&1 | tee -i {log}"


# Another rule, since the outputs of one cannot depend on its wildcards.
if CURVE_ALONE:

    use rule generate as generate_curve with:
        output:
            expand(
                at(paths.COMPLETIONS),
                benchmark=CURVE.benchmarks,
                allow_missing=True,
            ),
        wildcard_constraints:
            checkpoint=one_of(CURVE_ALONE),
            decoding=one_of([CURVE.decoding]),


rule score:
    input:
        completions=at(paths.COMPLETIONS),
        verifier=[at(paths.VERIFIER)] if STUDY.evaluation.verifier else [],
    output:
        at(paths.SCORES),
    log:
        log_of(paths.SCORES),
    resources:
        gpu=STUDY.gpus_of("score"),
        runtime=lambda w: score_minutes(w.benchmark),
    params:
        *one_by_one(
            lambda w: score_settings(w.benchmark),
            map(score_settings, STUDY.evaluated()),
        ),
        fingerprint=lambda w: with_all(
            identity.score_fingerprint(
                STUDY, checkpoint_of(w), w.decoding, w.benchmark
            )
        ),
        judge=lambda w, input: judge_options(input.verifier),
    shell:
        STAPO + " score --study {STUDY_FILE} --checkpoint {wildcards.checkpoint}"
        " --decoding {wildcards.decoding} --benchmark {wildcards.benchmark}"
        " --completions {input.completions} --out {output} {params.judge}"
        " --gpus {resources.gpu} > {log} 2>&1"
