# Responses of a checkpoint under a decoding, and their scores. The fingerprints are cumulative: a
# training that failed after a change can never leave old numbers standing as if they were current.


rule generate:
    input:
        model=lambda w: artifacts.checkpoint_path(STUDY.name, w.checkpoint),
    output:
        expand(
            at(artifacts.COMPLETIONS), benchmark=STUDY.evaluated(), allow_missing=True
        ),
    log:
        log_of(artifacts.RESPONSES),
    resources:
        gpu=STUDY.gpus_of("generate"),
    params:
        fingerprint=lambda w: fingerprint(
            [
                STUDY.score_fingerprint(w.checkpoint, w.decoding, name)
                for name in STUDY.evaluated()
            ]
        ),
        out=at(artifacts.RESPONSES),
        work=at(artifacts.GENERATE_WORK),
    shell:
        STAPO + " generate --study {STUDY_JSON:q} --checkpoint {wildcards.checkpoint}"
        " --decoding {wildcards.decoding} --model {input.model} --work {params.work}"
        " --out {params.out} --gpus {resources.gpu} > {log} 2>&1"


rule score:
    input:
        completions=at(artifacts.COMPLETIONS),
        verifier=[at(artifacts.VERIFIER)] if STUDY.evaluation.verifier else [],
    output:
        at(artifacts.SCORES),
    log:
        log_of(artifacts.SCORES),
    resources:
        gpu=STUDY.gpus_of("score"),
    params:
        identity=lambda w: canonical(
            STUDY.score_identity(w.checkpoint, w.decoding, w.benchmark)
        ),
        judge=lambda w, input: judge_options(input.verifier),
    shell:
        STAPO
        + " score --completions {input.completions} --identity {params.identity:q}"
        " --study {STUDY_JSON:q} --out {output} {params.judge} --gpus {resources.gpu} > {log} 2>&1"
