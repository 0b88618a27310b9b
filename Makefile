# `make` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# The tests start Python hundreds of times, and each start compiles what was not kept.
unexport PYTHONDONTWRITEBYTECODE

TESTS = $(BIN)/python -m pytest --numprocesses auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo lint check check-full e2e e2e-tools chaos days hostile laws mutate fix bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the locked dependencies

# Without dependencies: all of them are locked, and pip takes what a package needs with an extra for
# one that is not, as soon as there is a newer release of it.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ebb needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	  -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $(STAMP)

demo: setup ## a day of a small cluster in virtual time: a table, and a picture in ebb-demo.png
	$(BIN)/ebb demo

lint: setup ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint, tests, and laws on 200 random clusters: what to run before each commit
	$(TESTS) -m "not e2e and not mutant" --seeds 200

# The coverage tracer makes laws three times as slow, and only the other tests should count as
# coverage.
check-full: lint ## lint, tests with coverage, laws on 1,000 random clusters and their mutants: what CI runs
	$(TESTS) -m "not e2e and not law and not mutant" --cov
	$(TESTS) -m "law or mutant"

e2e-tools: setup ## build the control plane's programs and Karpenter into a cache, once (needs Go)
	$(BIN)/python -m tests.e2e.tools

# These tests wait more than they work: two control planes fit on two cores.
e2e: e2e-tools ## the programs against a real API server, scheduler and autoscaler; pytest's options in ARGS
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m e2e tests/e2e $(ARGS)

chaos: e2e-tools ## every trouble of a minute on a real control plane, a quarter of an hour; --seed N --rounds M in ARGS
	$(BIN)/python -m tests.e2e.chaos $(ARGS)

days: setup ## 1,000 simulated days with faults and restarts, half an hour; --seed N --runs M in ARGS
	$(BIN)/python -m tests.soak.days $(ARGS)

# The laws of a file share their random clusters, so each file stays in one process.
laws: setup ## the laws on 20,000 random clusters, or 3,000 histories of clusters; most of an hour
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m law --seeds 20000

hostile: setup ## the hostile suite at its full size: 10,000 mutated clusters, reviews and calls
	EBB_HOSTILE_CLUSTERS=10000 $(BIN)/python -m pytest tests/hostile --hypothesis-profile=hostile $(ARGS)

mutate: setup ## mutants of engine, marks and writes, for hours; goes on where it was; --again or --report in ARGS
	$(BIN)/python -m tests.mutation $(ARGS)

fix: setup ## format, repair what the linter can, write the generated pages of docs/
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/ebb reasons -o markdown > docs/reasons.md.new
	mv docs/reasons.md.new docs/reasons.md
	$(BIN)/ebb config schema -o markdown > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	$(BIN)/python -m tests.support.life_cycle
	$(BIN)/python -m tests.support.metrics_page
	$(BIN)/python -m tests.support.packages_page

bench: setup ## times, memory and ratios; the last two need the programs of e2e-tools
	$(BIN)/python -m tests.bench.bench_engine
	$(BIN)/python -m tests.bench.bench_shapes
	$(BIN)/python -m tests.bench.bench_extender
	$(BIN)/python -m tests.bench.bench_webhook
	$(BIN)/python -m tests.bench.bench_bodies
	$(BIN)/python -m tests.bench.bench_running
	$(BIN)/python -m tests.bench.bench_kube
	$(BIN)/python -m tests.bench.bench_scheduler
	$(BIN)/python -m tests.bench.bench_live

lock: setup ## resolve the dependencies anew, and of them what the image runs on and is built with
	$(COMPILE) --extra demo --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file requirements-runtime.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --only-build-deps --build-deps-for wheel \
	  --output-file requirements-build.lock pyproject.toml

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
