# Every target sets itself up: nothing but Python 3.11 is needed beforehand.
SHELL := /bin/sh
# Caches stay inside the repository.
export XDG_CACHE_HOME := $(CURDIR)/.cache
# value: a dollar in PATH is no variable of make.
export PATH := $(CURDIR)/.venv/bin:$(value PATH)
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
# Not the installed scripts: below a path with a space and a dollar their first line names no file.
RUN := python -P -m

.PHONY: help setup venv setup-gpu smoke test test-cpus test-vllm mutants bench lint lock
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: workflows/study.schema.json ## create or renew .venv from the lock, and the schema for editors

venv:
	@requirements/install.sh

# Order-only: the schema is as old as the code that it is made from.
workflows/study.schema.json: stapo/methods.py $(wildcard stapo/study/*.py) | venv
	@$(RUN) stapo schema > $@

setup-gpu: ## the same, and vLLM for GPUs
	@requirements/install_gpu.sh

smoke: setup ## the whole pipeline on a tiny model, on the CPU
	$(RUN) snakemake --workflow-profile workflows/profiles/smoke --quiet rules
	$(RUN) stapo show workflows/studies/smoke.yaml

test: setup lint ## lint, types, unit and numerical tests, one reduced run of the DAG
	$(RUN) pytest -n 2 --dist loadgroup

test-cpus: setup ## the tests of numbers, as other CPUs compute them
	tests/other_cpus.sh

test-vllm: ## a real vLLM on the CPU, in a layer over .venv
	requirements/install_vllm.sh
	VLLM_LOGGING_LEVEL=ERROR .venv-vllm/bin/python -m pytest -q tests/real_vllm

mutants: setup ## mutation tests of the objective and the update; MINUTES=90 at most
	requirements/install_mutants.sh
	PYTHONPATH=.cache/mutants nice -n 19 python tests/mutants.py

bench: setup ## our update beside TRL's, our grading beside a plain loop: ratios
	python tests/performance/bench_update.py
	python tests/performance/bench_grading.py

lint: setup ## ruff, snakefmt, snakemake --lint, mypy
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) snakefmt --check Snakefile workflows
	$(RUN) mypy

lock: ## renew the locks from pyproject.toml
	requirements/lock.sh
