# Two commands matter: `make demo` and `make test`. Both set up what they need, outside the checkout.
PYTEST = -m pytest -n 2 --dist worksteal -q --durations=10
# Bytecode is written, whatever the environment says: a test session compiles some 500 modules without.
export PYTHONDONTWRITEBYTECODE =
QUICK = not slow and not full and not seeds and not corpus and not proof and not vulkan and not browser and not docs and not architectures
SLOW = slow and not full and not seeds and not corpus and not proof and not vulkan and not browser and not docs and not architectures
#: A fixed sample of a suite: make test-proof SAMPLE='--every 8'
SAMPLE =
CORE = tests/passes tests/partitioner tests/quantizer tests/compat tests/acceleration tests/fallback tests/test_safe_partitioner.py

.PHONY: help docs test-docs fuzz fuzz-1.4 fuzz-nnsmith demo test coverage test-full test-slow test-demo test-corpus test-proof test-vulkan test-browser test-first-hour first-hour-page screenshots demo-picture bench bench-1.4 flame test-seeds test-1.4 test-1.4-core test-slow-upstream upstream-tests upstream-sample upstream-pages test-architectures architectures support-table lint python wheel clean test-examples examples-page upstream-notebooks test-wheel test-pythons

help:
	@echo 'make demo       set up, export the U-Net through stock and safe_arm, print the table, write the picture'
	@echo 'make test       set up, lint and run the tests but the slow ones: tests/slow.txt, and of rows alike but for their profile all but one'
	@echo 'make test-full  the slow tests too, and the whole product of the table-driven test, not a pairwise selection (about an hour)'
	@echo "make test-slow  the slow tests alone; make test-demo runs the demo and looks for its picture and its README table"
	@echo 'make test-first-hour follows docs/first-hour.md in an empty environment and compares; make first-hour-page writes what is printed into it'
	@echo 'make docs       the docs as pages, out/site/index.html; make test-docs walks them and runs every command and Python block in them'
	@echo 'make test-examples runs the examples, slow ones too, and compares with docs/examples.md; make examples-page writes what they print into it'
	@echo "make upstream-notebooks NOTEBOOKS='.../vgf_minimal_example.ipynb' runs ExecuTorch's own with two names swapped; without NOTEBOOKS its wheel's"
	@echo "make test-wheel the wheel in an environment that pip alone makes: doctor, exports, core tests outside the checkout; WHEEL='--after-first-hour --every 40'"
	@echo "make test-pythons the same on each Python, with fewer tests: PYTHONS='python3.10 python3.13' (8 GB each where torch comes with CUDA)"
	@echo 'make test-corpus the corpus of failures: stock dies of each net, ours of none; what stock makes of the islands'
	@echo 'make test-proof  planted faults and stock silent bugs found by measurement, no false alarm on fifteen nets and a corpus of 200'
	@echo "make fuzz       random nets through ours and stock: FUZZ='--cases 500 --seed 3 --processes 2'; fuzz-nnsmith, fuzz-1.4; docs/fuzzing.md"
	@echo 'make test-vulkan delegates on a Vulkan driver, installed if need be; needs no GPU'
	@echo 'make test-browser the HTML report in headless Chromium, installed if need be; make screenshots puts its pictures into the docs'
	@echo 'make demo-picture the demo, and its picture into the README'
	@echo 'make bench      lowering through stock and safe_arm in pairs, how it grows, what trial lowering costs (about an hour)'
	@echo 'make bench-1.4  the same on ExecuTorch 1.4.1, fewer nets; make flame draws flame graphs'
	@echo 'make test-seeds the three founding bug reports in their own environment (ExecuTorch 1.2.0)'
	@echo 'make test-1.4   the tests on ExecuTorch 1.4.1; make test-1.4-core those of the passes, the partitioner and the quantisers'
	@echo "make test-slow-upstream the tests with acceleration off; make test-proof SAMPLE='--every 8' a fixed sample of any of these"
	@echo "make coverage   lines and branches of safe_arm/ that the last make test ran"
	@echo 'make test-architectures forty whole architectures under both policies (hours); make architectures beside stock, then docs/architectures.md'
	@echo 'make support-table every mode through stock and ours, then docs/support.md (half an hour)'
	@echo "make upstream-tests ExecuTorch's own Arm tests through ours (hours; goes on where it was), then docs/upstream-tests.md"
	@echo 'make upstream-sample 300 of them beside the results that are kept'
	@echo "make upstream-pages the pages of docs/upstream on the wheel, with and without their patches; WHOLE= for the repros and a few tests (CI)"
	@echo 'make python     print the interpreter of the main environment'

demo:
	@python=$$(tools/env.sh main) && $$python -m demo

lint:
	@python=$$(tools/env.sh main) && $$python -m ruff check . && $$python -m ruff format --check . && $$python -m mypy && \
		$$(dirname $$python)/lint-imports --no-logo

test: lint
	@python=$$(tools/env.sh main) && mkdir -p out && $$python -m slipcover $(PYTEST) -m '$(QUICK)' $(SAMPLE)

#: After make test.
coverage:
	@python=$$(tools/env.sh main) && $$python tools/covered.py

test-full:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m 'not seeds and not vulkan and not browser and not docs and not architectures'

test-slow:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m '$(SLOW)' $(SAMPLE)

test-demo:
	@python=$$(tools/env.sh main) && $$python -m pytest -q tests/test_demo.py

#: Builds the wheel and installs it, torch and all, into an environment that is removed afterwards.
test-first-hour:
	@python=$$(tools/env.sh main) && $$python tools/first_hour.py

#: In a lane of its own, without torch; strict: a dead link, or a page that is in no line of docs/.nav.yml, ends it.
docs:
	@python=$$(tools/env.sh docs) && NO_MKDOCS_2_WARNING=1 $$python -m mkdocs build && echo out/site/index.html

#: PAGES='docs/gate.md docs/flows.md' for some; --write among them puts what is printed into them.
PAGES =
test-docs: docs
	@python=$$(tools/env.sh main) && $$python -m pytest -q -m docs tests/test_docs_site.py tests/test_extend_docs.py tests/test_preloaded.py && $$python tools/doc_pages.py $(PAGES)

first-hour-page:
	@python=$$(tools/env.sh main) && $$python tools/first_hour.py --write

test-examples:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) tests/test_examples.py tests/test_swapped_names.py

examples-page:
	@python=$$(tools/env.sh main) && $$python tools/examples_page.py --write

upstream-notebooks:
	@python=$$(tools/env.sh main) && $$python tools/swapped_names.py $(NOTEBOOKS)

#: WHEEL='--after-first-hour --every 40' shares the environment of test-first-hour, which it runs.
WHEEL =
test-wheel:
	@python=$$(tools/env.sh main) && $$python tools/wheel_lane.py $(WHEEL)

PYTHONS = python3.10 python3.11 python3.12 python3.13
test-pythons:
	@python=$$(tools/env.sh main) && for each in $(PYTHONS); do $$python tools/wheel_lane.py --python $$each --every 60 || exit; done

test-corpus:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m 'corpus and not full' $(SAMPLE)

test-proof:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m proof $(SAMPLE)

#: Random nets; a failure becomes a script in out/fuzz. The same seed gives the same nets.
FUZZ = --cases 200 --seed 0
fuzz:
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tests.fuzz --scripts out/fuzz $(FUZZ)

fuzz-nnsmith:
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tests.fuzz --generator nnsmith --scripts out/fuzz $(FUZZ)

#: The cases are drawn in the main environment, because hypothesis is there.
fuzz-1.4:
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tests.fuzz --generate --out out/fuzz/cases-1.4.jsonl $(FUZZ)
	@python=$$(tools/env.sh executorch-1.4) && $$python -m tests.fuzz --replay out/fuzz/cases-1.4.jsonl --scripts out/fuzz $(FUZZ)

test-vulkan:
	@tools/vulkan.sh && python=$$(tools/env.sh vulkan) && $$python -m pytest -q --durations=10 -m vulkan

test-browser:
	@tools/browser.sh >/dev/null && python=$$(tools/env.sh main) && $$python -m pytest -q --durations=10 -m browser

screenshots: test-browser
	@mkdir -p docs/report && cp out/report/*.png docs/report

demo-picture: demo
	@python=$$(tools/env.sh main) && $$python -c "from PIL import Image; picture = Image.open('out/demo.png').convert('RGB'); \
		picture.thumbnail((900, 900)); picture.save('docs/demo.jpg', quality=85)"

bench:
	@python=$$(tools/env.sh main) && mkdir -p out && $$python -m benchmarks.lowering --record out/lowering.json --plot out/growth.png
	@python=$$(tools/env.sh main) && $$python -m benchmarks.preflight && $$python -m benchmarks.phases

bench-1.4:
	@python=$$(tools/env.sh executorch-1.4) && $$python -m benchmarks.lowering --nets residual-8 --nets residual-16 --nets residual-32 \
		--nets mobilenet-v2 --nets resnet-18 --nets vit-6 --nets unet --nets constants-200

flame:
	@python=$$(tools/env.sh main) && PATH=$$(dirname $$python):$$PATH $$python -m benchmarks.flame

test-seeds:
	@python=$$(tools/env.sh seeds) && $$python -m pytest -q --durations=10 -m seeds

test-1.4:
	@python=$$(tools/env.sh executorch-1.4) && $$python $(PYTEST) -m '$(QUICK)' $(SAMPLE)

test-1.4-core:
	@python=$$(tools/env.sh executorch-1.4) && $$python $(PYTEST) -m '$(QUICK)' $(SAMPLE) $(CORE)

#: Acceleration off: only slower. Left out is what tests acceleration itself, and how lowering grows.
test-slow-upstream:
	@python=$$(tools/env.sh main) && SAFE_ARM_ACCELERATION=0 $$python $(PYTEST) -m '$(QUICK)' $(SAMPLE) \
		--ignore=tests/acceleration --ignore=tests/test_growth.py

test-architectures:
	@python=$$(tools/env.sh nets) && $$python $(PYTEST) -m architectures $(SAMPLE)

#: Goes on where it was; rm tests/data/architectures-1.5.jsonl tests/data/architectures-float-1.5.jsonl to begin anew.
architectures:
	@python=$$(tools/env.sh nets) && SAFE_ARM_PROOF_CACHE=0 $$python -m benchmarks.architectures --record tests/data/architectures-1.5.jsonl \
		&& $$python -m benchmarks.architectures.beside_float --profile TOSA-1.0+INT --record tests/data/architectures-float-1.5.jsonl \
		&& $$python -m benchmarks.architectures --record tests/data/architectures-1.5.jsonl \
			--float-record tests/data/architectures-float-1.5.jsonl --write docs/architectures.md

support-table:
	@python=$$(tools/env.sh main) && rm -f tests/data/modes-1.5.json && \
		SAFE_ARM_PROOF_CACHE=0 $$python tests/support/measure_modes.py tests/data/modes-1.5.json

#: SECONDS=3600 ends after an hour, between two shards; PROCESSES=2 runs two side by side.
upstream-tests:
	@python=$$(tools/env.sh main) && $$python tests/upstream/arm_suite.py $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(PROCESSES),--processes $(PROCESSES)) && \
		$$python tests/upstream/arm_suite_table.py

upstream-sample:
	@python=$$(tools/env.sh main) && $$python tests/upstream/arm_suite.py --sample

#: Without WHOLE=--whole the tests of a few pages; NUMBERS='01 09' tries these pages alone.
WHOLE = --whole
NUMBERS =
upstream-pages:
	@python=$$(tools/env.sh main) && $$python tools/upstream_pages.py $(WHOLE) $(NUMBERS)

python:
	@tools/env.sh main

wheel:
	@python=$$(tools/env.sh main) && $$python -m build --wheel --no-isolation

clean:
	rm -rf build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
