# Everything runs in .venv, which the targets build and renew by themselves.
# Needed beforehand: make, and Python 3.11 or later (choose one with PYTHON=...).

PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
CODE := $(wildcard src tests bench examples)

.DEFAULT_GOAL := help
.PHONY: help demo test soak check format bench bench-quick clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.installed ## Show the product at work
	$(BIN)/holdfast demo

# The tests start hundreds of interpreters: each would compile holdfast anew where an environment
# says that nothing is to be written.
test soak: export PYTHONDONTWRITEBYTECODE :=

test: .venv/.dev ## Run the test suite, on SQLite and on a real PostgreSQL
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

soak: .venv/.dev ## Run the long tests
	$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

check: .venv/.dev ## Lint, formatting, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

format: .venv/.dev ## Fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.bench ## Measure against the peers: about 15 minutes
	$(BIN)/python -m bench $(ARGS)

bench-quick: .venv/.bench ## The same on little data, in about one: proves that it runs, not how fast
	$(BIN)/python -m bench --quick $(ARGS)

clean: ## Remove .venv and all caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch .venv/.installed $@

.venv/.bench: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[bench]'
	@touch .venv/.installed $@
