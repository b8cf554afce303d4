# The whole of a study: prompts -> base model -> train -> generate -> score -> tables, figures, report.
#
#   snakemake --configfile workflows/studies/quickstart/smoke.yaml                everything of the smoke study
#   snakemake table_t1_0_p1_0 --configfile ...                                    one table
#   snakemake method_stapo --configfile ...                                       one method
#   snakemake results/smoke/scores/tiny/base/t1.0-p1.0/chain-3.parquet --configfile ...   any file
#
# All cores, and what a run needs to survive kills, are in profiles/default, which Snakemake finds by itself;
# --workflow-profile replaces it.
import os
import sys

from snakemake.utils import min_version

# Snakemake looks for modules in this directory first, and it is most often the working directory.
sys.path.sort(key=lambda path: path == workflow.basedir)

from stapo.suite import paths
from stapo.suite.jobs import jobs_of
from stapo.suite.operations import session, terminal
from stapo.suite.study.reading import write_resolved

min_version("9.27")

STUDY = session.study_of(workflow, config)
RUN = STUDY.run
JOBS = jobs_of(STUDY)
session.start(workflow, STUDY)


include: "workflows/rules/common.smk"


wildcard_constraints:
    model=one_of(RUN.models),
    method=one_of(RUN.methods),
    seed=r"\d+",
    checkpoint=one_of(STUDY.checkpoints()),
    decoding=one_of(RUN.decodings),
    benchmark=one_of(STUDY.run.benchmarks),


include: "workflows/rules/prepare.smk"
include: "workflows/rules/train.smk"
include: "workflows/rules/intervene.smk"
include: "workflows/rules/evaluate.smk"
include: "workflows/rules/analyse.smk"


if session.show(workflow, STUDY, logger, DEVICES):
    # The jobs' output goes to their logs alone. Snakemake would take another command for a change of the rule.
    shell.prefix("set -euo pipefail; exec >/dev/null; ")


# Seconds each, or downloads: on a cluster they run where Snakemake does.
localrules:
    all,
    prompts,
    overlap,
    base_model,
    weights,
    evidence,
    figures,
    report,
    provenance,


# Not in a dry run.
onstart:
    session.claim(STUDY)
    # Before this version of the study is written: reasons compare with the earlier ones.
    terminal.tell(
        terminal.first_lines(STUDY, STUDY_NAMED, os.path.relpath(log[0]), ON_CPU)
    )
    write_resolved(STUDY)


onsuccess:
    terminal.tell_end(STUDY, STUDY_NAMED, succeeded=True)


onerror:
    terminal.tell_end(STUDY, STUDY_NAMED, succeeded=False)


# Must stand here: a rule of an included file cannot be the default target.
rule all:
    default_target: True
    input:
        JOBS.published(),
        at(paths.CHECKSUMS),
