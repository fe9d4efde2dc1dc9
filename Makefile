# SPDX-License-Identifier: Apache-2.0
PREFIX ?= /usr/local
DESTDIR ?=
export DESTDIR

.PHONY: all demo tests test test-full test-gpu bench install format clean help configure

all: configure ## build the library, the tool, the examples and the benchmarks into build/
	@cmake --build --preset release

configure:
	@scripts/deps.sh build
	@cmake --preset release $(CMAKE_FLAGS) > /dev/null

demo: all ## build, then show every collective, train a small GPT on these sources, and a short benchmark
	@scripts/demo.sh

tests: configure ## build all that, and the test programs, without running them
	@cmake --build --preset release --target all build_tests

test: ## build and run every test that ends within minutes, sanitizers included
	@scripts/deps.sh build test
	@scripts/test.sh quick

test-full: ## the same, with the long tests
	@scripts/deps.sh build test
	@scripts/test.sh full

test-gpu: ## test on a GPU; without one, build programs to be carried to a machine with one
	@scripts/deps.sh build
	@scripts/test_gpu.sh

bench: ## measure against the other libraries (installs them)
	@scripts/deps.sh build bench
	@$(MAKE) --no-print-directory all
	@bench/peers/run.sh

install: configure ## build what is installed, and install it into PREFIX (/usr/local), below DESTDIR
	@cmake --build --preset release --target installed
	@cmake --install build --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2> /dev/null || true

format: ## bring the sources into the form of .clang-format
	@clang-format-14 -i $$(scripts/sources.sh)

clean: ## remove everything that was built
	rm -rf build build-dev build-asan build-tsan build-gpu

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
