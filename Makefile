# Every command sets up what it needs, says what it does, and is harmless to run again.
# The Python environment is .venv, made from the hashed requirements files.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two at a time: much of what tests do is wait for servers.
PYTEST := $(BIN)/python -m pytest --durations 12 --numprocesses 2 --dist loadfile
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off

.PHONY: help demo test check lint units servers e2e e2e-up e2e-down bench format lock clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/stampede ## run it all here: 2,000 simulated alerts, or ALERTS=PATH for yours
	@$(BIN)/stampede demo $(if $(ALERTS),--alerts-from "$(ALERTS)",) $(OPTIONS)

check: lint units ## the quick loop: format, lint, types, unit tests, the chart

test: units servers ## all tests on this machine: units, a real Ceph and Kafka, all of it with things killed under it

lint: $(VENV)/dev
	$(BIN)/ruff format --check functions e2e tools charts
	$(BIN)/ruff check functions e2e tools charts
	$(BIN)/mypy

units: $(VENV)/dev
	@$(BIN)/python -m e2e.cluster tool helm >/dev/null
	@$(BIN)/python charts/tests/origins.py
	$(PYTEST) -q -m "not integration"

servers: $(VENV)/dev
	@tools/need chromium
	$(PYTEST) -m integration --no-loadscope-reorder e2e/on_machine functions/tests

e2e: $(VENV)/dev ## the same system on a real cluster, made here if there is none
	@tools/need chromium
	@$(BIN)/python -m e2e.on_cluster build
	$(BIN)/python -m pytest --durations 12 e2e/on_cluster

e2e-up: $(VENV)/dev ## a cluster with Knative, a small Ceph and Kafka; nothing is pulled
	@$(BIN)/python -m e2e.on_cluster

e2e-down: $(VENV)/dev ## take that cluster down, with all that was in it
	@$(BIN)/python -m e2e.cluster down --wipe

bench: $(VENV)/dev ## measure: build/bench.json and build/bench.md
	$(BIN)/stampede bench

format: $(VENV)/dev ## format, mend what the linter can mend, copy the Triggers to where they are shipped
	@for to in charts/stampede/files functions/stampede/events; do cp eventing/triggers.yaml $$to/; done
	$(BIN)/ruff format functions e2e tools charts
	$(BIN)/ruff check --fix functions e2e tools charts

lock: $(VENV)/dev ## pin anew: requirements.txt, requirements-dev.txt
	$(PIP) --quiet pip-tools
	tools/lock $(BIN)

clean: ## remove what these commands made here: the environment, the demo's data, results
	rm -rf $(VENV) .stampede build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@tools/need python3-venv
	@echo "making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/stampede: requirements.txt pyproject.toml | $(BIN)/python
	@echo "installing Python packages, pinned and hashed (about 40 s)"
	@$(PIP) --quiet --require-hashes --requirement requirements.txt
	@$(PIP) --quiet --no-deps --editable .
	@touch $@

$(VENV)/dev: requirements-dev.txt pyproject.toml | $(BIN)/python
	@echo "installing Python packages with the tests' own, pinned and hashed (about 90 s)"
	@$(PIP) --quiet --require-hashes --requirement requirements-dev.txt
	@$(PIP) --quiet --no-deps --editable .
	@touch $@ $(VENV)/stampede
