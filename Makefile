PYTHON ?= python3
EXP ?= quickstart
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: quickstart test install repro check

quickstart: $(INSTALLED)  ## install everything, then train the quickstart agent
	$(BIN)/agentfly train quickstart

test: $(INSTALLED)  ## install what is missing, check types and style, run the test suite
	$(BIN)/ruff check .
	$(BIN)/mypy --strict agentfly_core
	$(BIN)/python -m pytest

install: $(INSTALLED)  ## install everything into .venv

repro: $(INSTALLED)  ## reproduce an experiment with DVC: make repro EXP=shop
	$(BIN)/agentfly repro $(EXP)

$(INSTALLED): requirements/cpu.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=24" "setuptools>=77"
	$(BIN)/pip install --quiet "$$(grep '^torch==' requirements/cpu.txt)"
	$(BIN)/pip install --quiet --no-deps -r requirements/cpu.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(INSTALLED)
