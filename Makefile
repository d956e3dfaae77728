# Every command installs what it needs, prints what it does, and can be repeated safely.
# The Python environment .venv is made from the hashed requirements files.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Run several tests at a time: they mostly wait, for servers or for a time to pass.
# Let Python keep what it compiled, whatever the environment says: each process that collects the
# tests, and each command that a test starts, would compile all modules anew.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest --durations 12 --dist loadfile
UNITS  := $(PYTEST) --numprocesses 3 -q --hypothesis-profile quick -m "not integration and not long"
# Two: with three, tests of time limits fail on a slow machine with two cores.
SERVERS := $(PYTEST) --numprocesses 2 --no-loadscope-reorder --ignore e2e/on_machine/test_alert_rules.py e2e/on_machine functions/tests client/tests
# A cluster that three tests found broken is broken for the others.
CLUSTER_TESTS := $(BIN)/python -m pytest --durations 12 --maxfail 3 e2e/on_cluster
STRANGERS := $(addprefix functions/tests/,alerts deadletters events handlers fuzz images ingest lookup read store)
# What merges objects sees only bytes that were decoded, checked and stored before.
STORED_BEFORE := $(addprefix --ignore functions/tests/,handlers/merges store/compaction store/simulation)
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off

# CEPH=18.2 with any target: that Ceph, not the one of this machine. On a cluster the site's image has it.
ifneq ($(CEPH),)
export CEPH
CEPH_PROGRAMS := $(shell tools/ceph $(CEPH))
$(if $(CEPH_PROGRAMS),,$(error there is no Ceph $(CEPH)))
export PATH := $(CEPH_PROGRAMS):$(PATH)
endif

.PHONY: help demo test test-all check lint units client coverage programs checked servers servers-needs nightly alerts ceph-18 e2e e2e-all e2e-duel e2e-up e2e-down simulate faults fuzz bench docs release format lock clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/stampede ## run everything here with 2,000 simulated alerts, or yours with ALERTS=PATH
	@$(BIN)/stampede demo $(if $(ALERTS),--alerts-from "$(ALERTS)",) $(OPTIONS)

check: lint units ## quick checks: format, lint, types, spelling, unit tests, the chart

test: units servers ## tests on this machine: unit tests, real Ceph and Kafka, killed processes

test-all: test checked nightly ## these and those for a night: native code checked, long searches, every benchmark

lint: $(VENV)/dev
	$(BIN)/ruff format --check functions e2e eventing tools charts client
	$(BIN)/ruff check functions e2e eventing tools charts client
	$(BIN)/mypy
	$(BIN)/mypy --config-file tools/mypy_tests.ini functions/tests e2e tools
	$(BIN)/mypy --config-file tools/mypy_tests.ini client/tests charts/tests
	$(BIN)/typos

units: programs
	$(UNITS)

client: $(VENV)/dev ## the tests of the Python client alone; PYTHON=python3.13 makes .venv with another Python
	$(PYTEST) --numprocesses 3 -q -m "not integration and not long" client/tests

coverage: programs ## lines and branches that the unit tests run, as a table; fails below the floor
	$(UNITS) --cov --cov-report term

# What the unit tests start.
programs: $(VENV)/dev
	@$(BIN)/python -m e2e.cluster tool helm >/dev/null
	@tools/prometheus promtool >/dev/null
	@$(BIN)/python charts/tests/origins.py

servers: servers-needs
	$(SERVERS) --hypothesis-profile quick -m "(integration or long) and not nightly"

# Property tests with all their examples, long searches, and each benchmark.
nightly: servers-needs
	$(SERVERS) -m "nightly or hypothesis"

servers-needs: $(VENV)/dev $(VENV)-lightkurve/ready $(VENV)-lsdb/ready $(VENV)-spark/ready $(VENV)-brokers/ready
	@tools/need chromium
	@tools/need gcc
	@tools/versitygw/build >/dev/null

# The unit tests of what sees bytes of strangers, and the fuzz corpora, where native code that writes
# beyond its memory ends its process.
checked: $(VENV)/dev
	tools/checked $(UNITS) $(STORED_BEFORE) $(STRANGERS)
	cd functions && ../tools/checked $(abspath $(BIN))/python -m tests.fuzz --corpora

alerts: $(VENV)/dev ## each alert rule fires and ends, by real faults in real servers, under a real Prometheus
	@tools/need gcc
	$(BIN)/python -m pytest --durations 12 e2e/on_machine/test_alert_rules.py

# Ends with an error if one of the two fails, but runs both.
ceph-18: ## the tests that start a Ceph, and those on a cluster, on Ceph 18.2; for a night
	$(MAKE) --keep-going servers e2e CEPH=18.2

e2e: $(VENV)/dev ## end-to-end tests on a Kubernetes cluster of three nodes; creates one if there is none
	@tools/need chromium
	@$(BIN)/python -m e2e.on_cluster build
	$(CLUSTER_TESTS) -m "not long"

e2e-all: $(VENV)/dev ## these and the long ones: upgrades, exchange of keys, scaling, a restart of the node
	@tools/need chromium
	@$(BIN)/python -m e2e.on_cluster build
	$(CLUSTER_TESTS)

e2e-duel: $(VENV)/dev ## the same alerts by Knative and by KEDA on a cluster, in turn: build/duel.md; OPTIONS=--quick
	WORKERS=0 $(BIN)/python -m e2e.duel $(OPTIONS)

e2e-up: $(VENV)/dev ## start a cluster with Knative, a small Ceph and Kafka; pulls no images
	@$(BIN)/python -m e2e.on_cluster

e2e-down: $(VENV)/dev ## stop that cluster and delete its state
	@$(BIN)/python -m e2e.cluster down --wipe

simulate: $(VENV)/dev ## a million requests of the store's simulation; SEED=1 STEPS=1000000
	cd functions && $(abspath $(BIN))/python -m tests.store.simulation $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))

# Every object of a bucket is damaged, and everything that reads it is asked.
DAMAGE := read/test_no_wrong_answer.py cli/test_no_wrong_output.py

faults: $(VENV)/dev ## damage to every object, 20 topics made anew, 300 faults at two sites; SEED=1 FAULTS=300
	@tools/need gcc
	ROUNDS=4 $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -s $(addprefix functions/tests/,$(DAMAGE))
	RECREATIONS=20 $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -s functions/tests/events/kafka/test_recreations.py
	$(BIN)/python -m e2e.faults $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(OPTIONS)

fuzz: $(VENV)-fuzz/ready $(if $(TARGET),,$(VENV)/dev) ## fuzz what strangers can send; SECONDS=60 for each target; property tests with SEED=1 EXAMPLES=100
	cd functions && $(abspath $(VENV))-fuzz/bin/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET))
	$(if $(TARGET),,STRANGERS=20 $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest -s functions/tests/read/test_strangers.py -k any_shape)
	$(if $(TARGET),,$(if $(EXAMPLES),EXAMPLES=$(EXAMPLES)) $(PYTEST) --numprocesses 2 -q --hypothesis-profile search --hypothesis-seed $(or $(SEED),$(shell date +%s)) -m hypothesis functions/tests client/tests)

bench: $(VENV)/dev ## run the benchmarks: build/bench.json and build/bench.md; OPTIONS="--real DIR"
	PYTHONPATH=client $(BIN)/stampede bench $(OPTIONS)

docs: $(VENV)/stampede $(VENV)-docs/ready ## the documentation as a site: build/site; a dead link fails
	@rm -rf build/docs build/site
	@$(BIN)/python -m tools.docs build/docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict --config-file build/docs/mkdocs.yml
	@echo "open build/site/index.html"

release: $(VENV)/dev ## make wheel, chart, image, SBOM and checksums in dist/; REGISTRY=host/path KEY=key.pem pushes and signs them
	@$(BIN)/python tools/release $(if $(REGISTRY),--registry $(REGISTRY)) $(OPTIONS)
	@$(if $(REGISTRY),$(BIN)/python tools/publish $(REGISTRY) $(if $(KEY),--key $(KEY)))

format: $(VENV)/dev ## format, fix what the linter can fix, copy the Triggers to the chart and the package, write the man page
	@for to in charts/stampede/files functions/stampede/events/broker; do cp eventing/triggers.yaml $$to/; done
	@cp eventing/eventtypes.yaml charts/stampede/files/
	$(BIN)/python tools/man.py
	$(BIN)/ruff format functions e2e eventing tools charts client
	$(BIN)/ruff check --fix functions e2e eventing tools charts client

lock: $(VENV)/dev ## update the pins in requirements.txt and requirements-dev.txt
	$(PIP) --quiet pip-tools
	tools/lock $(BIN)

clean: ## delete the environment, the demo's data and results
	rm -rf $(VENV) $(VENV)-fuzz $(VENV)-docs $(VENV)-lightkurve $(VENV)-lsdb $(VENV)-spark $(VENV)-brokers .stampede build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@tools/need python3-venv
	@echo "making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/stampede: requirements.txt pyproject.toml | $(BIN)/python
	@echo "installing Python packages, pinned and hashed (about 40 s)"
	@$(PIP) --quiet --require-hashes --requirement requirements.txt
	@$(PIP) --quiet --no-deps --editable .
	@touch $@

$(VENV)-fuzz/ready: requirements-fuzz.txt pyproject.toml
	@tools/need python3-venv
	@echo "making a Python environment for fuzzing, pinned and hashed (about 60 s)"
	@$(PYTHON) -m venv $(VENV)-fuzz
	@$(VENV)-fuzz/bin/python -m pip install --disable-pip-version-check --progress-bar off --quiet --require-hashes --requirement requirements-fuzz.txt
	@$(VENV)-fuzz/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	@touch $@

$(VENV)-docs/ready: requirements-docs.txt
	@tools/need python3-venv
	@echo "making a Python environment for the site, pinned and hashed (about 20 s)"
	@$(PYTHON) -m venv $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install --disable-pip-version-check --progress-bar off --quiet --require-hashes --requirement requirements-docs.txt
	@touch $@

# What people use together with the client. They cannot share an environment.
$(VENV)-lightkurve/ready $(VENV)-lsdb/ready $(VENV)-spark/ready $(VENV)-brokers/ready: $(VENV)-%/ready: requirements-%.txt
	@tools/need python3-venv
	@echo "making a Python environment of $*, pinned and hashed (about 40 s)"
	@$(PYTHON) -m venv $(VENV)-$*
	@$(VENV)-$*/bin/python -m pip install --disable-pip-version-check --progress-bar off --quiet --require-hashes --requirement requirements-$*.txt
	@touch $@

$(VENV)/dev: requirements-dev.txt pyproject.toml | $(BIN)/python
	@echo "installing Python packages for development, pinned and hashed (about 90 s)"
	@$(PIP) --quiet --require-hashes --requirement requirements-dev.txt
	@$(PIP) --quiet --no-deps --editable .
	@touch $@ $(VENV)/stampede
