# Responses of a checkpoint under a decoding, and their scores. The fingerprints are cumulative: a
# training that failed after a change can never leave old numbers standing as if they were current.


CURVE = STUDY.evaluation.curve
FULL = [point for point in STUDY.checkpoints() if STUDY.is_full(point)]
CURVE_ALONE = [point for point in STUDY.checkpoints() if not STUDY.is_full(point)]


rule generate:
    input:
        lambda w: weights_at(paths.checkpoint_path(STUDY.name, checkpoint_of(w))),
    output:
        kept(
            expand(
                at(paths.COMPLETIONS),
                benchmark=STUDY.run.benchmarks,
                allow_missing=True,
            )
        ),
    log:
        log_of(paths.RESPONSES),
    wildcard_constraints:
        checkpoint=one_of(FULL),
    threads: cores_of("generate")
    resources:
        **memory_of("generate"),
        gpu=STUDY.gpus_of("generate"),
    params:
        made_by=made_by("generate", "{checkpoint}/{decoding}"),
    shell:
        run("generate", "{checkpoint}/{decoding}")
        + " --gpus {resources.gpu} 2>&1 | tee -i {log}"


# Scores of the same responses by the same rules stay: a new benchmark is graded alone.
rule score:
    input:
        expand(
            at(paths.COMPLETIONS), benchmark=STUDY.run.benchmarks, allow_missing=True
        ),
        [weights_at(paths.VERIFIER)] if STUDY.evaluation.verifier else [],
    output:
        kept(
            expand(
                at(paths.SCORES), benchmark=STUDY.run.benchmarks, allow_missing=True
            )
        ),
    log:
        log_of(os.path.dirname(paths.SCORES)),
    wildcard_constraints:
        checkpoint=one_of(FULL),
    resources:
        gpu=STUDY.gpus_of("score"),
    params:
        made_by=made_by("score", "{checkpoint}/{decoding}"),
    shell:
        run("score", "{checkpoint}/{decoding}") + " --gpus {resources.gpu} > {log} 2>&1"


# Other rules, since the outputs of one cannot depend on its wildcards.
if CURVE_ALONE:

    use rule generate as generate_curve with:
        output:
            kept(
                expand(
                    at(paths.COMPLETIONS),
                    benchmark=CURVE.benchmarks,
                    allow_missing=True,
                )
            ),
        wildcard_constraints:
            checkpoint=one_of(CURVE_ALONE),
            decoding=one_of([CURVE.decoding]),

    use rule score as score_curve with:
        input:
            expand(
                at(paths.COMPLETIONS),
                benchmark=CURVE.benchmarks,
                allow_missing=True,
            ),
            [weights_at(paths.VERIFIER)] if STUDY.evaluation.verifier else [],
        output:
            kept(
                expand(
                    at(paths.SCORES), benchmark=CURVE.benchmarks, allow_missing=True
                )
            ),
        wildcard_constraints:
            checkpoint=one_of(CURVE_ALONE),
            decoding=one_of([CURVE.decoding]),
