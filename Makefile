# Everything a person needs from a fresh machine with Python 3.11+ and make: `make demo`, `make test`.

PYTHON ?= python3
TORCH  ?= 2.13.0

VENV := .venv
BIN  := $(VENV)/bin

# pip installs exactly the versions of constraints.txt, in the isolated build of this package as well: older versions of pip
# read the first variable there, newer ones the second. The path is relative because pip splits the value at spaces.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
       $(BIN)/python -m pip install -qq

# Without bytecode on disk every worker of pytest rewrites every test file, and every process of a test compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint type imports unit slow engines gpu bench docs site constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.core ## Train three times side by side: fp32, fp16 as found in the wild, fp16 guarded
	@$(BIN)/stayfinite demo

test: ## Check everything: lint, types, imports, unit tests; stops at the first failure
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory type
	@$(MAKE) --no-print-directory imports
	@$(MAKE) --no-print-directory unit

lint: $(VENV)/.dev ## Check style and format (ruff)
	@echo "== ruff: style"
	@$(BIN)/ruff check
	@echo "== ruff: format"
	@$(BIN)/ruff format --check

type: $(VENV)/.dev ## Check types (mypy --strict)
	@echo "== mypy: types"
	@$(BIN)/mypy -n 2

imports: $(VENV)/.dev ## Check that imports run downwards only (import-linter)
	@echo "== import-linter: architecture"
	@$(BIN)/lint-imports --no-logo

unit: $(VENV)/.dev ## Run the tests, without the slow ones and those for a GPU
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "== no Chromium found: the tests of the page in a browser are skipped"
	@echo "== pytest: tests"
	@$(BIN)/pytest

# pytest ends with 5 when it finds no test, which is no failure for a campaign that is still empty.
slow: $(VENV)/.dev ## Run the slow tests; those of the engines only where they are installed
	@echo "== pytest: slow campaigns"
	@$(BIN)/pytest -m "slow and not gpu" --timeout 900 --dist loadfile --no-loadscope-reorder || [ $$? -eq 5 ]

engines: $(VENV)/.engines ## Run the tests with DeepSpeed, megatron-core, torchtitan, OLMo-core and ray, which it installs
	@echo "== pytest: engines"
	@$(BIN)/pytest -m slow --timeout 1800 --dist loadfile tests/integrations/deepspeed tests/integrations/megatron \
	  tests/integrations/torchtitan tests/integrations/olmo tests/integrations/test_ray.py

gpu: $(VENV)/.dev ## Run the tests that need a CUDA device, one after the other
	@echo "== pytest: tests on the GPU"
	@$(BIN)/pytest -m gpu -n 0 --timeout 900

docs: $(VENV)/.core ## Write the page of every rule into docs/rules
	@$(BIN)/stayfinite rules --docs docs/rules

site: $(VENV)/.dev docs ## Build the docs site into site/, strictly; site/index.html opens without a server
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

bench: $(VENV)/.dev ## Run every benchmark; each prints a table
	@set -e; for script in $(filter-out %/__init__.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; PYTHONPATH=. $(BIN)/python "$$script"; done
	@echo "== benchmarks.failures"; $(BIN)/python -m benchmarks.failures --quiet

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "stayfinite needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name another one:  make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "== $(VENV): a new environment of $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml constraints.txt
	@echo "== $(VENV): installing stayfinite and torch (a large download the first time)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "== $(VENV): installing the extras and what the tests need"
	@$(PIP) -e '.[all,dev]'
	@touch $@

# Engines that only their own tests need, without what they would pull in: none of them may move torch or the versions above.
ENGINES := deepspeed==0.19.8 einops==0.8.2 hjson==3.1.0 msgpack==1.2.4 ninja==1.13.2 py-cpuinfo==9.0.0 \
  megatron-core==0.16.1 torchtitan==0.3.0 spmd_types==0.2.3 torch_checkpointing==0.1.1 torchdata==0.11.0 \
  ai2-olmo-core==3.0.0 bettermap cached-path dataclass-extensions importlib_resources boto3 botocore cffi cryptography google-api-core \
  google-auth google-cloud-core google-cloud-storage google-crc32c google-resumable-media jmespath proto-plus pyasn1 pyasn1_modules \
  pycparser s3transfer six ray==2.60.0 jsonschema jsonschema-specifications referencing rpds-py tensorboardX
$(VENV)/.engines: $(VENV)/.dev
	@echo "== $(VENV): installing the engines"
	@$(PIP) --no-deps $(ENGINES)
	@touch $@

# Resolves all versions anew, in an environment of its own, and keeps what came out. Where torch comes without CUDA, the versions of
# the packages that bring it elsewhere stay as they were. Try the outcome with the oldest Python that is served, to the patch:
# Debian 12 has 3.11.2, and some packages ask for 3.11.5. A suffix such as +cpu names a build, not a version.
CUDA := ^(cuda-|nvidia-|triton==)
constraints: ## Resolve every version anew and rewrite constraints.txt
	@set -e; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	echo "== constraints: resolving around torch $(TORCH)"; \
	echo "torch==$(TORCH)" > "$$work/torch.txt"; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1; \
	$(PYTHON) -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install -qq -c "$$work/torch.txt" '.[all,dev]' hatchling editables; \
	"$$work/venv/bin/python" -m pip freeze --all | grep -Ev '^(pip|stayfinite)( @|==)' | sed -E 's/\+[a-z0-9.]+$$//' > "$$work/pins.txt"; \
	grep -Eq '$(CUDA)' "$$work/pins.txt" || grep -E '$(CUDA)' constraints.txt >> "$$work/pins.txt" || true; \
	! grep -n '@' "$$work/pins.txt"; \
	{ echo "# Every version that the Makefile installs. Written by \`make constraints\`; the ranges are in pyproject.toml."; \
	  sort -f "$$work/pins.txt"; } > constraints.txt; \
	echo "== constraints: $$(grep -c == constraints.txt) versions in constraints.txt"

clean: ## Remove the environment and all caches
	@rm -rf $(VENV) dist build site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
