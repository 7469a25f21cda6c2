# Every target makes .venv first (tools/setup.sh, which returns at once if there is nothing to do). Start with: make run
.DEFAULT_GOAL := setup
.PHONY: setup programs data run test checks test-rest test-all test-slow test-gpu pytest tables clients engines test-engines stores test-stores model-server cluster test-cluster coverage test-current doctor lint format lock sbom clean
BIN := .venv/bin

setup: ## .venv in this folder, from the lock
	@tools/setup.sh

programs: ## what the tests use beside .venv (tools/programs.txt): Debian packages, and environments below .cache/
	@tools/programs.sh

data: setup ## the examples' data, into data/
	@$(BIN)/python -m data.taxi
	@$(BIN)/python -m data.clicks
	@$(BIN)/python -m data.digits
	@$(BIN)/python -m data.penguins

run: data ## the example pipeline, from raw rows to a pushed model
	$(BIN)/python runner.py --local

# Many tests wait for processes that they have started: one worker more than there are cores.
WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
# Two more if nothing runs beside them. A worker takes up to 3 GB.
test: WORKERS := $(shell awk -v n=$$(nproc) '/MemTotal/ {m = int($$2 / 3e6); w = n < 2 ? 3 : 4; print m < 1 ? 1 : m < w ? m : w}' /proc/meminfo)
# Without files of bytecode, each of these processes would compile what it imports of the project.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

test: checks ## before each commit: style, types, contracts, secrets, and the tests that need nothing beside .venv
	$(PYTEST) --levels test $(ARGS)

checks: data
	@$(MAKE) --no-print-directory --jobs 2 lint .cache/imported

# The first import of the packages compiles them, which takes half a minute: do it once, not in every worker.
.cache/imported: requirements.txt
	@mkdir -p .cache
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

test-rest: data ## the tests that `make test` leaves out: long ones, orchestrators, programs beside .venv
	$(PYTEST) --levels rest $(ARGS)

test-all: test test-rest ## both

test-slow: data programs tables clients engines stores cluster ## long experiments, real Flink, Spark, Prism and Kubernetes, both release lines; needs root
	TEST_SECONDS=1790 $(PYTEST) --levels slow -o faulthandler_timeout=1800 $(ARGS)
	@tools/test_current.sh

pytest: setup ## some of the tests, in parallel, without the slow ones: ARGS="tests/unit -k names"
	$(PYTEST) --levels test,rest $(ARGS)

tables: setup ## public tables and other libraries' models, below .cache/
	@tools/environment.sh quality

clients: setup ## clients of the Open Inference Protocol, an older TensorFlow, and Grafana's types, below .cache/; needs Go
	@tools/environment.sh inference_clients
	@tools/environment.sh tensorflow_2_15
	@CGO_ENABLED=0 go build -C tools/grafana -trimpath -o ../../.cache/grafana/check .

engines: setup ## Flink, Spark and Prism below .cache/, for their tests; needs a JDK 17, Maven and Go
	@tools/engines.sh

test-engines: ARGS := --levels slow -m engine
test-engines: data engines pytest ## the tests of real Flink, Spark and Prism

stores: setup ## SeaweedFS, fake-gcs-server, Azurite and moto below .cache/, for their tests; needs Go, Node.js and npm
	@tools/stores.sh

test-stores: ARGS := --levels rest,slow tests/contract/test_object_stores.py tests/contract/test_azure_account.py tests/e2e/test_object_stores.py tests/unit/components/pusher/test_store.py tests/unit/pipeline/registry/test_promotion.py
test-stores: data stores pytest ## the tests on servers of object stores

model-server: setup ## TensorFlow Serving's own server below .cache/, for its tests; needs GitHub and Debian packages
	@tools/model_server.sh

cluster: setup ## Kubernetes below .cache/, for its tests: programs, images; needs Go, Debian and root
	@tools/cluster.sh

test-cluster: ARGS := --levels slow -m cluster
test-cluster: data programs cluster pytest ## the tests on a real Kubernetes

coverage: ARGS := --cov --cov-report=term
coverage: pytest ## the same, with the coverage of the tests' own processes

test-current: data ## what can differ on the current release line; in a Debian 13 root where this machine is older
	@tools/test_current.sh $(LEVELS)

GPU_TESTS := tests/contract/test_trainings.py tests/contract/test_precision.py tests/contract/test_models.py tests/unit/components/trainer/test_mesh.py
test-gpu: WORKERS := 1
test-gpu: data ## trainings on this machine's GPUs; fails without one
	@$(BIN)/python -c 'import sys, tensorflow as tf; sys.exit(0 if tf.config.list_physical_devices("GPU") else "no GPU: nothing was tested")'
	$(PYTEST) --levels test,rest,slow $(GPU_TESTS) $(ARGS)

doctor: setup ## what this machine lacks for runs, and for tests
	@$(BIN)/python runner.py doctor; code=$$?; $(BIN)/python tests/support/programs/programs.py && exit $$code

lint: setup ## style, types, import contracts, secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@tools/scan_secrets.sh

format: setup ## formats the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## writes requirements.txt from pyproject.toml
	@tools/lock.sh

sbom: setup ## sbom.json: the packages of .venv with their licences, as CycloneDX
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json $(BIN)/python

clean: ## removes what set-up and tests made; keeps the runs (out/)
	rm -rf .venv .cache .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* \
	  data/taxi data/clicks data/digits data/sessions data/sales data/penguins uv.lock
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
