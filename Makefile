# Everything works from a fresh clone: each target sets up what it needs, once.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
# What Python compiles is kept: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test quick bench soak lint style docs contracts clean

PYTHON ?= python3
MINUTES ?= 5
SEED ?=
PART ?=
SINCE ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with everything installed, once per change of what is needed

$(READY): pyproject.toml constraints.txt tools/java_needed.py
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Trueline needs Python 3.11 or newer, this is %d.%d.\n  → make setup PYTHON=python3.11" % v[:2])'
	@echo "→ $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "  → install the venv module of your Python (Debian: python3-venv)"; exit 1; }
	@echo "→ packages (pyspark is a download of 456 MB, a few minutes the first time)"
	@jdk=$$($(PYTHON) tools/java_needed.py); $(PIP) -e ".[spark,dev$${jdk:+,$$jdk}]"
	@touch $(READY)

demo: setup ## tell the story in a minute, on data made up for it
	@$(BIN)/trueline demo

test: setup ## lint, contracts and all tests: what a change must pass
	@$(MAKE) --no-print-directory style
	@$(BIN)/python -m tests.lanes

quick: setup ## lint, architecture and the tests of the rooms a change touches: make quick [SINCE=main]
	@$(BIN)/python tools/quick.py $(SINCE)

lint: style ## style and types
	@$(BIN)/mypy

style: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

contracts: setup ## which numbered contracts have tests; fails on gaps in what is done
	@$(BIN)/python -m tests.contracts

bench: setup $(BENCH_READY) ## side by side with the peers, as a table
	@$(BIN)/python -m bench

$(BENCH_READY): $(READY)
	@echo "→ the peers to measure against"
	@$(PIP) -e ".[bench]"
	@touch $(BENCH_READY)

soak: setup ## explore the same properties for longer: make soak MINUTES=30 [SEED=1] [PART=chains]
	@$(BIN)/python tools/soak.py '$(MINUTES)' '$(SEED)' '$(PART)'

docs: setup ## write the reference of Python, then build the documentation into site/, strictly
	@$(BIN)/python tools/reference.py
	@$(BIN)/zensical build --clean --strict

clean: ## remove everything that was made here
	rm -rf $(VENV) site build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
