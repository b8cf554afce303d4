#!/bin/sh
# Bring back the raw data of a published study from the commits that hold it: results/raw_data.sh STUDY
# (responses, scores, metrics, records of tokens; of weights the base models of `marked`, which another
# processor makes with other rounding). What is there stays as it is.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
marked | marked-both) commits=a9dc0253 ;;
marked-h200) commits=4741872f ;;
marked-controls | marked-random-reward) commits=0d28f616 ;;
marked-adaptive) commits=687fe9a1 ;;
marked-doses) commits="14544ae1 db8ae823 13023c36:marked-paper" ;;
marked-targets) commits=58a0f4d6 ;;
marked-later-rivals) commits=dd815a1d ;;
marked-rivals) commits=5c460c76 ;;
marked-off-policy | marked-twins | marked-h200-twins) commits=b0471dea ;;
smollm2-s2t | smollm2-s2t-again | domain-letters | domain-sums | domain-syllogisms) commits=726c187d ;;
*)
    echo "usage: results/raw_data.sh STUDY, with domain-letters, domain-sums, domain-syllogisms, marked, marked-both," \
        "marked-adaptive, marked-controls, marked-doses, marked-h200, marked-h200-twins, marked-later-rivals, marked-off-policy," \
        "marked-random-reward, marked-rivals, marked-targets, marked-twins, smollm2-s2t or smollm2-s2t-again" >&2
    exit 2
    ;;
esac
case $1 in
marked-controls | marked-random-reward) commits="$commits e4d2182b:marked/models/base-0" ;;
marked*) commits="$commits e4d2182b:marked/models" ;;
esac
mkdir -p "results/$1"
for commit in $commits; do
    name=${commit#*:}
    [ "$name" != "$commit" ] || name=$1
    # Figures and reports of that time are not those of today's tables; snakemake draws them.
    git archive "${commit%%:*}" "results/$name" |
        tar -x --strip-components=2 --skip-old-files --exclude=report.html --exclude=figures -C "results/$1"
done
case $1 in
domain-*) echo "next: make domains; stapo verify results/$1" ;;
*) echo "next: stapo verify results/$1" ;;
esac
