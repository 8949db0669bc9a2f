# make demo: a minute's tour.   make test: the test suite (ARGS="-k lease" goes to pytest).
# Each sets up what it needs in .venv, once; where packages come from is the machine's own pip configuration.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq
ARGS ?=

.PHONY: help demo test dev lint format types bench wheel-smoke clean

help:
	@echo "make demo          a minute's tour: real processes, SQLite, a failure, a retry, a crash"
	@echo "make test          the test suite; ARGS=\"-k lease -x\" goes to pytest"
	@echo "make lint          house rules      make types   mypy, strict      make format   ruff's formatter"
	@echo "make bench         the benchmarks; ARGS=\"--quick p1 p6\" goes to them"
	@echo "make wheel-smoke   builds the wheel and tries it in a fresh environment"

# Stamps: set up again only when what is to be installed has changed.
$(VENV)/.demo-ready: setup.cfg pyproject.toml .ci/make-venv
	@.ci/make-venv $(VENV)
	@echo "setting up $(VENV) (once) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev-ready: setup.cfg pyproject.toml .ci/make-venv
	@.ci/make-venv $(VENV)
	@echo "setting up $(VENV) for tests (once) ..."
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo-ready

dev: $(VENV)/.dev-ready

demo: $(VENV)/.demo-ready
	@$(BIN)/procrastinate-py demo

test: $(VENV)/.dev-ready
	@.ci/servers
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(VENV)/.dev-ready
	@$(BIN)/ruff format .

types: $(VENV)/.dev-ready
	@$(BIN)/mypy

bench: $(VENV)/.dev-ready
	@$(BIN)/python benchmarks/run.py $(ARGS)

wheel-smoke: $(VENV)/.dev-ready
	@.ci/wheel-smoke $(BIN)/python

clean:
	rm -rf $(VENV) .venv-s3 build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
