# Every target makes its own .venv; only Python >= 3.11 and the package index are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint schema cron torture real bench clean

run: $(VENV)/.run
	@chmod 700 checkpoints
	@$(BIN)/resumed --config config/jobs.yaml daemon --until-done
	@$(BIN)/resumed --config config/jobs.yaml status
	@for job in shipping-question welcome-note; do \
		printf '\n%s: ' "$$job"; $(BIN)/resumed --config config/jobs.yaml show "$$job" --answer; echo; done

test: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

schema: $(VENV)/.run
	$(BIN)/python -c "import json, pathlib; from scheduler.jobfile import json_schema; \
		pathlib.Path('config/jobs.schema.json').write_text(json.dumps(json_schema(), indent=2) + '\n')"

# Debian's cron runs the sample line for three minutes; needs root, and the package cron.
cron: $(VENV)/.run
	$(BIN)/python -m tests.cron_proof

# The harnesses of faults at their proper size, up to 45 minutes, three at once, for most of their time is waiting; FULL=1
# runs every case, and takes about two hours.
torture: $(VENV)/.test
	RESUMED_TIER=$(if $(FULL),full,torture) \
		$(BIN)/python -m pytest --numprocesses 3 --dist worksteal --timeout $(if $(FULL),14400,2400) tests/faults

# Three jobs and a real model on this machine; installs a llama.cpp server and a small model from the package index.
real: $(VENV)/.run
	$(BIN)/python -m tests.real

# What the program costs beside a floor and its peers; installs those into build/bench, and takes about 15 minutes.
# ROUNDS=3 is faster and less exact; ROWS="tick slice" takes these measures alone.
bench: $(VENV)/.test
	$(BIN)/python -m tests.bench --rounds $(or $(ROUNDS),15) $(ROWS)

# A stamp per set of packages; each is made again when what it depends on has changed.
$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "resumed needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
