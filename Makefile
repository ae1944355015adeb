# make chat   install into .venv, fetch the demo model once, open the page
# make test   install what the tests need as well, and run everything CI runs (ARGS="-n 2 --dist loadgroup" for two processes)
# make bench  measure both backends against the libraries they build on (hours; ARGS=--quick to rehearse, ARGS="--add
#             --depths 512,4096" to measure in parts)
# make faults  kill, starve and stop a real Ringside at random and check that nothing is lost (ARGS="--backend echo --backend ring" to use a model too)

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LLAMACPP ?= yes
ARGS ?=

.PHONY: chat test bench faults check clean
.DELETE_ON_ERROR:

chat: .venv/ready
	$(BIN)/python -m app chat $(ARGS)

test: check
	$(BIN)/python -m pytest $(ARGS)

bench: .venv/ready-test
	$(PIP) install -q -c constraints.txt -e '.[ring,bench]'
	$(BIN)/python -m app.proof.bench $(ARGS)

faults: .venv/ready-test
	$(BIN)/python -m tests.faults.run $(ARGS)

check: .venv/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 10) <= sys.version_info < (3, 14) else "Ringside runs on Python 3.10 to 3.13; choose one with PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e '.[ring]'
	@$(llamacpp)
	touch $@

.venv/ready-test: .venv/ready
	$(PIP) install -c constraints.txt -e '.[ring,test]'
	touch $@

# llama.cpp has no ready-made wheel on the index: pip compiles it once and keeps the result in its cache.
# Without a C++ compiler the ring backend still runs, so a failure here is said and not fatal.
define llamacpp
if [ "$(LLAMACPP)" != yes ]; then echo "llama.cpp skipped (LLAMACPP=$(LLAMACPP))."; \
elif $(BIN)/python -c 'import llama_cpp' 2>/dev/null; then :; \
elif ! command -v $${CXX:-c++} >/dev/null; then echo "No C++ compiler: llama.cpp is left out. Add it later with: $(PIP) install -c constraints.txt -e '.[llamacpp]'"; \
else echo "Compiling llama.cpp once (4 to 40 minutes; to do without it: make chat LLAMACPP=no) ..."; \
  $(PIP) install -c constraints.txt -e '.[llamacpp]' || echo "llama.cpp did not build; the ring backend works without it."; fi
endef

clean:
	rm -rf .venv build dist *.egg-info
