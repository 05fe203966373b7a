# What CI and nightly jobs run, and what makes pages and pictures. `make TARGET`, each by itself; some take hours.

.PHONY: coverage mutants same-programs test-full test-slow stock-verdicts test-demo test-first-hour test-docs first-hour-page test-examples examples-page \
	upstream-notebooks test-wheel test-pythons test-corpus test-proof fuzz fuzz-nnsmith fuzz-1.4 test-vulkan test-browser \
	screenshots demo-picture bench-1.4 cycles flame test-seeds test-1.4 test-1.4-core test-slow-upstream test-architectures architectures \
	test-newest-tools test-next coverage-map quality support-table upstream-tests upstream-sample upstream-pages wheel

#: All that needs no other environment but the corpus, the proofs and the full product; and which lines of safe_arm/ none of it runs.
coverage:
	@python=$$(tools/env.sh main) && mkdir -p out && $$python -m slipcover $(PYTEST) -m '$(ELSEWHERE)' $(SAMPLE) && $$python tools/covered.py

#: All that needs no other environment: the slow rows, the corpus, the proofs, the full product.
test-full:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m 'not seeds and not vulkan and not browser and not docs and not architectures'

#: What tests/slow.txt lists.
test-slow:
	@python=$$(tools/env.sh main) && $$python $(PYTEST) -m 'slow and $(ELSEWHERE)' $(SAMPLE)

#: Measures anew what stock does with the tests' nets, and writes tests/data/stock-verdicts-*.json.
stock-verdicts:
	@python=$$(tools/env.sh main) && rm -f out/stock-verdicts.jsonl && \
		SAFE_ARM_STOCK=record $$python $(PYTEST) -m '$(ELSEWHERE)' $$(grep -rlE --include='test_*.py' 'by_stock|stock_lower|stock_codes_apart|check_stocks_bytes' tests/*/ tests/test_stock_untouched.py) && \
		$$python tests/support/stock.py

#: Changes the package in 160 places, one at a time, and asks the tests about each (hours).
mutants:
	@python=$$(tools/env.sh mutants) && $$python tools/mutants.py draw --number 160 -o out/mutants.jsonl
	@python=$$(tools/env.sh main) && $$python tools/mutants.py run out/mutants.jsonl -o out/killed.jsonl

#: Makes programs with this checkout and with another revision, and compares their bytes: BASE=main.
BASE = HEAD
same-programs:
	@python=$$(tools/env.sh main) && $$python tools/same_programs.py $(BASE)

test-demo:
	@python=$$(tools/env.sh main) && $$python -m pytest -q tests/test_demo.py

#: Builds the wheel and installs it, torch and all, into an environment that is removed afterwards.
test-first-hour:
	@python=$$(tools/env.sh main) && $$python tools/first_hour.py

#: PAGES='docs/gate.md docs/flows.md' for some; --write among them puts what is printed into them; '--every 2' runs half.
PAGES =
test-docs: docs
	@python=$$(tools/env.sh main) && $$python -m pytest -q -m docs tests/test_docs_site.py tests/test_extend_docs.py && $$python tools/doc_pages.py $(PAGES)

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
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tools.fuzz --scripts out/fuzz $(FUZZ)

fuzz-nnsmith:
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tools.fuzz --generator nnsmith --scripts out/fuzz $(FUZZ)

#: The cases are drawn in the main environment, because hypothesis is there.
fuzz-1.4:
	@python=$$(tools/env.sh main) && mkdir -p out/fuzz && $$python -m tools.fuzz --generate --out out/fuzz/cases-1.4.jsonl $(FUZZ)
	@python=$$(tools/env.sh executorch-1.4) && $$python -m tools.fuzz --replay out/fuzz/cases-1.4.jsonl --scripts out/fuzz $(FUZZ)

test-vulkan:
	@tools/vulkan.sh && python=$$(tools/env.sh vulkan) && $$python -m pytest -q --durations=10 -m vulkan

test-browser:
	@tools/browser.sh >/dev/null && python=$$(tools/env.sh main) && $$python -m pytest -q --durations=10 -m browser $(SAMPLE)

screenshots: test-browser
	@mkdir -p docs/report && cp out/report/*.png docs/report

demo-picture: demo
	@python=$$(tools/env.sh main) && $$python -c "from PIL import Image; picture = Image.open('out/demo.png').convert('RGB'); \
		picture.thumbnail((900, 900)); picture.save('docs/demo.jpg', quality=85)"

bench-1.4:
	@python=$$(tools/env.sh executorch-1.4) && $$python -m benchmarks.lowering --nets residual-8 --nets residual-16 --nets residual-32 \
		--nets mobilenet-v2 --nets resnet-18 --nets vit-6 --nets unet --nets constants-200

#: What Vela estimates for the nets of docs/footprint.md, beside stock and beside LiteRT; CYCLES='--only resnet8' for some.
CYCLES =
cycles:
	@python=$$(tools/env.sh main) && $$python -m benchmarks.cycles $(CYCLES)
	@litert=$$(tools/env.sh litert) && python=$$(tools/env.sh main) && $$python -m benchmarks.cycles --litert $$litert $(CYCLES)

flame:
	@python=$$(tools/env.sh main) && PATH=$$(dirname $$python):$$PATH $$python -m benchmarks.flame

test-seeds:
	@python=$$(tools/env.sh seeds) && $$python -m pytest -q --durations=10 -m seeds

test-1.4:
	@python=$$(tools/env.sh executorch-1.4) && $$python $(PYTEST) -m '$(QUICK)' $(SAMPLE)

#: On the newest tested Vela and tosa-tools, where they are newer than the main lane's: the tests that name either.
test-newest-tools:
	@pins=$$($$(tools/env.sh main) -c 'from safe_arm._compat.tested_releases import NEWEST; print(*map("==".join, NEWEST.items()))') && \
		python=$$(tools/env.sh main $$pins) && \
		$$python $(PYTEST) -m '$(QUICK)' $(SAMPLE) $$(grep -rliE --include='test_*.py' 'ethos|vela|reference.model' tests)

CORE = tests/passes tests/partitioner tests/quantizer tests/compat tests/acceleration tests/fallback tests/test_safe_partitioner.py
test-1.4-core:
	@python=$$(tools/env.sh executorch-1.4) && $$python $(PYTEST) -m '$(QUICK)' $(SAMPLE) $(CORE)

#: A release that is not supported yet: what it requires, what moved, the core tests. EXECUTORCH=1.6.0 or a wheel, and what it needs beside it,
#: WITH='torch==2.14.0 torchao==0.19.0'. CONTRIBUTING.md says what to do then.
EXECUTORCH =
WITH =
test-next:
	@[ -n '$(EXECUTORCH)' ] || { echo 'usage: make test-next EXECUTORCH=1.6.0, or a wheel' >&2; exit 2; }
	@python=$$(tools/env.sh main $(if $(filter %.whl,$(EXECUTORCH)),,executorch==)$(EXECUTORCH) $(WITH)) && \
		$$python tools/next_release.py $(PYTEST) -m '$(QUICK)' $(SAMPLE) $(CORE)

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

#: Goes on where it was, one net after the other. Nets of libraries that the lane lacks are taken from LIBRARIES, where
#: `pip install --no-deps --target DIRECTORY monai vit-pytorch x-transformers pytorchcv ultralytics` put them.
MAP = --target 'TOSA INT' --by ours
LIBRARIES =
coverage-map:
	@python=$$(tools/env.sh nets) && PYTHONPATH=$(LIBRARIES) $$python -m benchmarks.coverage_map --record tests/data/coverage-1.5.jsonl $(MAP) \
		&& $$python -m benchmarks.coverage_map --record tests/data/coverage-1.5.jsonl --write docs/coverage.md

#: Goes on where it was; ROWS="--only 'b/|c/2-layers/x3'" judges a change of the quantiser in two minutes.
ROWS = --json tests/data/quality-1.5.json --write docs/quality.md
quality:
	@python=$$(tools/env.sh main) && $$python -m benchmarks.quality $(ROWS)

support-table:
	@python=$$(tools/env.sh main) && rm -f tests/data/modes-1.5.json && \
		SAFE_ARM_PROOF_CACHE=0 $$python tools/measure_modes.py tests/data/modes-1.5.json

#: PROCESSES=2 runs two shards side by side; what has a result is not run again.
upstream-tests:
	@python=$$(tools/env.sh main) && $$python tools/arm_suite/arm_suite.py $(if $(PROCESSES),--processes $(PROCESSES)) && \
		$$python tools/arm_suite/arm_suite_table.py

#: UPSTREAM='--every 3' for one in 3, others every day.
UPSTREAM =
upstream-sample:
	@python=$$(tools/env.sh main) && $$python tools/arm_suite/arm_suite.py --sample $(UPSTREAM)

#: Without WHOLE=--whole the tests of a few pages; NUMBERS='01 09' tries these pages alone.
WHOLE = --whole
NUMBERS =
upstream-pages:
	@python=$$(tools/env.sh main) && $$python tools/upstream_pages.py $(WHOLE) $(NUMBERS)

wheel:
	@python=$$(tools/env.sh main) && $$python -m build --wheel --no-isolation
