# Every target installs what it needs; only Python 3.11, 3.12 or 3.13 is required.
SHELL := /bin/sh
# Caches stay inside the repository.
export XDG_CACHE_HOME := $(CURDIR)/.cache
# `value` keeps a dollar in PATH, which make would expand.
export PATH := $(CURDIR)/.venv/bin:$(value PATH)
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
# Not the installed scripts: their first line fails if the path contains spaces or dollars.
RUN := python -P -m

.PHONY: help setup venv setup-gpu domains smoke real test test-all test-cpus test-vllm test-torch test-torch-oldest test-torch-newest mutants gpu lint site dist lock
.DELETE_ON_ERROR:

help: ## list all targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

NEXT = echo "next: make smoke (the whole pipeline, minutes on two CPU cores), or: source .venv/bin/activate && stapo --help"

setup: workflows/study.schema.json ## create or update .venv from the lock file, and the schema for editors
	@$(if $(filter setup,$(MAKECMDGOALS)),$(NEXT))

venv:
	@requirements/install.sh

# Order-only prerequisite: an update of .venv does not make the schema outdated.
workflows/study.schema.json: $(wildcard stapo/core/methods/*.py stapo/suite/study/*.py) | venv
	@$(RUN) stapo schema > $@

setup-gpu: ## the same, with vLLM for GPUs
	@requirements/install_gpu.sh
	@echo "next: make gpu (measures this GPU), or: source .venv/bin/activate && stapo plan workflows/studies/quickstart/single-gpu.yaml"

domains: setup ## install reasoning-gym, for studies of other domains, beside .venv
	@requirements/install_domains.sh

smoke: setup ## run the whole pipeline with a tiny model on the CPU
	$(RUN) snakemake --workflow-profile workflows/profiles/smoke
	$(RUN) stapo show workflows/studies/quickstart/smoke.yaml

real: setup ## train and evaluate a real language model of 135 million parameters on the CPU
	$(RUN) snakemake --configfile workflows/studies/quickstart/smollm2-words.yaml
	$(RUN) stapo show workflows/studies/quickstart/smollm2-words.yaml

grader: setup ## audit the grader beside math-verify: wrong answers accepted, right ones rejected (STAPO_DATA_DIR: real ones)
	python -P examples/measure/grader.py --show

test: setup lint site ## run lint, type checks, the site and the fast tests, 4 minutes on two cores
	$(RUN) pytest -q -n 2 --dist worksteal -m "not slow"

test-all: setup domains lint site ## run all tests, as CI does
	$(RUN) pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-cpus: setup ## run the numerical tests with the instructions of other CPUs
	tests/other_cpus.sh

test-vllm: ## run the tests with a real vLLM on the CPU, installed beside .venv
	requirements/install_vllm.sh
	VLLM_LOGGING_LEVEL=ERROR .venv-vllm/bin/python -m pytest -q -n 2 --dist loadfile tests/real_vllm tests/gpu

test-torch: test-torch-oldest test-torch-newest ## run the tests of the objective and the conformance kit with torch alone

test-torch-oldest test-torch-newest: test-torch-%:
	requirements/install_torch.sh $*
	.cache/torch-$*/bin/python -P -m pytest -q tests/numerics tests/unit/core/conformance

mutants: setup ## run mutation tests of the objective and the update, at most MINUTES=90
	requirements/install_mutants.sh
	PYTHONPATH=.cache/mutants nice -n 19 python tests/mutants.py

gpu: setup ## on a GPU: test log-probs and resuming, measure vLLM in a training (at most 9 minutes)
	$(RUN) pytest -q tests/unit/core/test_head.py tests/unit/suite/training/test_kills.py
	@PYTHONPATH=tests timeout 540 python -m gpu.vllm || echo "gpu.vllm ended early"
	@echo "its page, where there is a GPU: work/gpu/vllm.json"

lint: setup ## run ruff, snakefmt, mypy and the spell check
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) snakefmt --check Snakefile workflows
	$(RUN) mypy
	typos

site: setup ## build the documentation as a site in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict
	@$(if $(filter site,$(MAKECMDGOALS)),echo "next: python -m http.server --directory site (search needs a server; all else opens from the files)")

dist: setup ## build the release, sdist and wheel, in dist/
	requirements/dist.sh

lock: ## update the lock files from pyproject.toml
	requirements/lock.sh
