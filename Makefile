# captiond: everything a newcomer needs. `make demo` and `make test` create .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo run test test-fast lint clean

demo: $(INSTALLED) ## Start the daemon, stream the sample through it, show captions, stop
	$(BIN)/captiond demo

run: $(INSTALLED) ## Start the service with the bundled model; its page is at http://127.0.0.1:8765
	$(BIN)/captiond serve

test: ## Every test; installs the Debian packages that they need, where it may
	@PYTHON=$(PYTHON) bash tests/support/packages.sh install
	@$(MAKE) --no-print-directory $(INSTALLED)
	@status=0; \
	bash tests/support/tiers.sh $(BIN)/python || status=1; \
	bash tests/support/packages.sh lacking; \
	exit $$status

test-fast: $(INSTALLED) ## The tier for after each change: seconds
	$(BIN)/python -m pytest -q -m "not real and not slow"

lint: $(INSTALLED) ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1" "setuptools>=77"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[daemon,mic,models,bench,training,zeroconf]" --group dev
	touch $@

clean: ## Remove what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
