# Every command makes .venv first (tools/setup.sh; nothing to do takes a blink). Start with: make run
.DEFAULT_GOAL := setup
.PHONY: setup data run test pytest coverage test-current lint format lock clean
BIN := .venv/bin

setup: ## .venv in this folder, from the lock
	@tools/setup.sh

data: setup ## the examples' data, into data/
	@$(BIN)/python -m data.taxi
	@$(BIN)/python -m data.clicks
	@$(BIN)/python -m data.digits

run: data ## the example pipeline, from raw rows to a pushed model
	$(BIN)/python runner.py --local

test: data lint pytest ## everything that has to hold before a commit

pytest: setup ## the tests alone, side by side on this machine's cores; some of them: ARGS="tests/unit -k names"
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

coverage: ARGS := --cov --cov-report=term
coverage: pytest ## the same, and what of the code was run by the tests' own processes

test-current: data ## end-to-end tests, and some more, on the current release line; in a Debian 13 root where this machine is older
	@tools/test_current.sh

lint: setup ## style, types, import contracts, secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files -z | xargs -0 $(BIN)/detect-secrets-hook --no-verify --baseline .secrets.baseline

format: setup ## puts the code into the house's shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## requirements.txt anew, from pyproject.toml
	@tools/lock.sh

clean: ## removes what set-up and tests made; what your runs made (out/) stays
	rm -rf .venv .cache .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* \
	  data/taxi data/clicks data/digits uv.lock
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
