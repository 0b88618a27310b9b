# `make` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# The tests start Python hundreds of times, and without bytecode each start compiles all modules.
unexport PYTHONDONTWRITEBYTECODE

TESTS = $(BIN)/python -m pytest --numprocesses auto --dist worksteal
# Each commit tests other random clusters. The header of pytest prints the seed that repeats them.
FIRST_SEED ?= $(shell printf %d "0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)")
SEEDED = --first-seed $(FIRST_SEED) --hypothesis-seed $(FIRST_SEED) --hypothesis-profile default
# These tests wait more than they work: three control planes fit on two cores.
E2E = $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m e2e tests/e2e

.DEFAULT_GOAL := help
.PHONY: help setup demo docs lint check check-full nightly promtool chromium e2e e2e-tools e2e-oldest cluster chaos kills days hostile laws mutate fix picture bench bench-table lock release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies

# All dependencies are locked. Without --no-deps pip would look for a newer release of a package that
# another one requires with an extra.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ebb needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	  -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $(STAMP)

demo: setup ## simulate a day of a small cluster: a table, and a picture in ebb-demo.png
	$(BIN)/ebb demo

docs: setup ## build the documentation as a site in build/site
	$(BIN)/python -m tests.support.site

lint: setup ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint, quick tests, and laws on the same 30 random clusters each time: run it before each commit
	$(TESTS) -m "not e2e and not long and not mutant and not nightly" --seeds 30 --hypothesis-profile quick

check-full: lint ## lint, all tests, and laws on 150 random clusters that differ by commit: CI runs it
	$(TESTS) -m "not e2e and not law and not long and not mutant and not nightly" --hypothesis-profile quick
	$(TESTS) -m "(law or long) and not mutant and not nightly" --seeds 150 $(SEEDED)

nightly: setup ## coverage, and what takes long and rarely fails, with other seeds each time: as much as fits in 80 minutes; --minutes M --first-seed N in ARGS
	$(BIN)/python -m tests.nightly $(ARGS)

promtool: ## install promtool, which tests of alerts need, unless it exists (Debian, root)
	command -v promtool || { apt-get update --quiet && \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends prometheus; }

chromium: ## install Chromium, which tests of the page need, unless it exists (Debian, root)
	command -v chromium || { apt-get update --quiet && \
	  DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends chromium; }

e2e-tools: setup ## build the control plane and Karpenter into a cache, once (needs Go)
	$(BIN)/python -m tests.e2e.tools

e2e: e2e-tools ## the programs against a real API server, scheduler and autoscaler: CI runs it; pytest options in ARGS
	$(E2E) $(ARGS)

# The control plane is built from tests/e2e/controlplane/oldest.mod, once.
e2e-oldest: setup ## as make e2e, with the oldest supported minor version of Kubernetes
	programs=$$($(BIN)/python -m tests.e2e.tools --oldest) && KUBEBUILDER_ASSETS="$$programs" $(E2E) $(ARGS)

cluster: e2e-tools ## a throw-away cluster for docs/tutorial.md, until Ctrl-C
	$(BIN)/python -m tests.e2e.cluster

chaos: e2e-tools ## faults of a minute each on a real control plane, for a quarter of an hour; --seed N --rounds M in ARGS
	$(BIN)/python -m tests.e2e.chaos $(ARGS)

kills: e2e-tools ## kill the leader each minute for ten minutes, and compare its figures with what happened; --seed N --kills N in ARGS
	$(BIN)/python -m tests.e2e.kills $(ARGS)

days: setup ## 1,000 simulated days with faults and restarts, for half an hour; --seed N --runs M in ARGS
	$(BIN)/python -m tests.soak.days $(ARGS)

# The laws of a file share their random clusters, so each file stays in one process.
laws: setup ## the laws on 20,000 random clusters or 3,000 histories of clusters, for an hour
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "law and not mutant" --seeds 20000

hostile: setup ## the hostile suite in full: 10,000 mutated clusters, reviews and calls
	$(BIN)/python -m pytest tests/hostile --hypothesis-profile=hostile $(ARGS)

mutate: setup ## mutants of changed files of engine, marks and writes, or of the files in ARGS
	$(BIN)/python -m tests.mutation $(ARGS)

fix: setup ## format, repair what the linter can, and write the generated pages
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/ebb reasons -o markdown > docs/reasons.md.new
	mv docs/reasons.md.new docs/reasons.md
	$(BIN)/ebb config schema -o markdown > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	$(BIN)/python -m tests.support.first_page
	$(BIN)/python -m tests.support.life_cycle
	$(BIN)/python -m tests.support.metrics_page
	$(BIN)/python -m tests.support.alerts
	$(BIN)/python -m tests.support.dashboard
	$(BIN)/python -m tests.support.chart
	$(BIN)/python -m tests.support.packages_page
	$(BIN)/python -m tests.support.doctor_page
	$(BIN)/python -m tests.support.flags_page
	$(BIN)/python -m tests.support.readme_plan
	$(BIN)/python -m tests.support.json_documents
	$(BIN)/python -m tests.support.terminal_pictures
	$(BIN)/python -m tests.support.explanation_pictures

picture: setup ## write the PNG and GIF pictures in docs/; takes minutes, needs chromium and promtool
	$(BIN)/python -m tests.support.page_picture
	$(BIN)/python -m tests.support.lapse_picture
	$(BIN)/python -m tests.support.day_picture
	$(BIN)/python -m tests.support.dashboard_picture

bench: setup ## print times, memory and ratios; bench_page needs chromium, the last three e2e-tools
	$(BIN)/python -m tests.bench.bench_engine
	$(BIN)/python -m tests.bench.bench_shapes
	$(BIN)/python -m tests.bench.bench_extender
	$(BIN)/python -m tests.bench.bench_webhook
	$(BIN)/python -m tests.bench.bench_bodies
	$(BIN)/python -m tests.bench.bench_running
	$(BIN)/python -m tests.bench.bench_page
	$(BIN)/python -m tests.bench.bench_kube
	$(BIN)/python -m tests.bench.bench_cli
	$(BIN)/python -m tests.bench.bench_scheduler
	$(BIN)/python -m tests.bench.bench_batching
	$(BIN)/python -m tests.bench.bench_live

bench-table: setup ## print the figures that docs/design/results-log.md has a budget for; the last needs e2e-tools
	$(BIN)/python -m tests.bench.bench_engine 5000,15000 --short
	$(BIN)/python -m tests.bench.bench_extender
	$(BIN)/python -m tests.bench.bench_kube
	$(BIN)/python -m tests.bench.bench_running
	$(BIN)/python -m tests.bench.bench_cli
	$(BIN)/python -m tests.bench.bench_scheduler

# Not `setup`: it would install the old lock files, and fail if they lack a new dependency.
lock: ## resolve the dependencies again: all, those of the image, and those of its build
	test -x $(BIN)/pip-compile || $(MAKE) setup
	$(COMPILE) --extra demo --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file requirements-runtime.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --only-build-deps --build-deps-for wheel \
	  --output-file requirements-build.lock pyproject.toml

release: setup ## build the files of a release in dist/; --dry-run, --base IMAGE@DIGEST in ARGS
	rm -rf dist
	$(BIN)/python -m tests.release $(ARGS)

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
