# `make demo` and `make test` set up what they need, outside the checkout. The targets that CI and nightly jobs are made of: tools/targets.mk
PYTEST = -m pytest -n 2 --dist worksteal -q
# Bytecode is written, whatever the environment says: a test session compiles some 500 modules without.
export PYTHONDONTWRITEBYTECODE =
ELSEWHERE = not full and not seeds and not corpus and not proof and not vulkan and not browser and not docs and not architectures
QUICK = not slow and $(ELSEWHERE)
#: A sample of a suite, another each day: make test-proof SAMPLE='--every 8'
SAMPLE =

.PHONY: help check test test-all demo docs bench lint python clean

help:
	@echo 'make check      before every commit: lint, types, layers, and the tests that lower nothing (a minute)'
	@echo 'make test       all that guards a promise, at least once (minutes); lints first'
	@echo 'make test-all   what a nightly job runs: every row, every lane, what stock does measured anew (hours)'
	@echo 'make demo       export the U-Net through stock and safe_arm, print the table, write the picture'
	@echo 'make docs       the docs as pages, out/site/index.html'
	@echo 'make bench      lowering through stock and safe_arm in pairs (about an hour)'
	@echo 'The rest, one by one: tools/targets.mk'

check: lint
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m 'unit and $(QUICK)' $$(sed 's,^,tests/,' tests/unit.txt)

test: lint
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m '$(QUICK)' --cpu-limit 5 $(SAMPLE)

test-all: export SAFE_ARM_UPSTREAM_SAMPLE = 1
test-all: lint coverage test-corpus test-proof test-vulkan test-browser test-seeds test-docs test-demo test-wheel \
		test-slow-upstream test-1.4 upstream-sample upstream-pages test-architectures

demo:
	@python=$$(tools/env.sh main) && $$python -m demo

#: mypy keeps what it knows beside the interpreter: a fresh checkout is not read anew.
lint:
	@python=$$(tools/env.sh main) && $$python -m ruff check . && $$python -m ruff format --check . && \
		$$python -m mypy --cache-dir $$(dirname $$(dirname $$python))/.mypy_cache && \
		$$(dirname $$python)/lint-imports --no-logo

#: In a lane of its own, without torch; strict: a dead link, or a page that is in no line of docs/.nav.yml, ends it.
docs:
	@python=$$(tools/env.sh docs) && NO_MKDOCS_2_WARNING=1 $$python -m mkdocs build && echo out/site/index.html

bench:
	@python=$$(tools/env.sh main) && mkdir -p out && $$python -m benchmarks.lowering --record out/lowering.json --plot out/growth.png
	@python=$$(tools/env.sh main) && $$python -m benchmarks.preflight && $$python -m benchmarks.phases

python:
	@tools/env.sh main

clean:
	rm -rf build dist out .pytest_cache .ruff_cache .hypothesis

include tools/targets.mk
