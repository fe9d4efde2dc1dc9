# SPDX-License-Identifier: Apache-2.0
PREFIX ?= /usr/local
DESTDIR ?=
export DESTDIR

.PHONY: all demo test test-full bench install format clean help

all: ## build the library and the tool into build/
	@scripts/deps.sh build
	@cmake --preset release $(CMAKE_FLAGS) > /dev/null
	@cmake --build --preset release

demo: all ## build, then show every collective, train a small GPT on these sources, and a short benchmark
	@scripts/demo.sh

test: ## build and run every test that ends within minutes, sanitizers included
	@scripts/deps.sh build test
	@scripts/test.sh quick

test-full: ## the same, with the long tests
	@scripts/deps.sh build test
	@scripts/test.sh full

bench: ## measure against the other libraries (installs them)
	@scripts/deps.sh build bench
	@$(MAKE) --no-print-directory all
	@bench/peers/run.sh

install: all ## install into PREFIX (/usr/local), below DESTDIR
	@cmake --install build --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2> /dev/null || true

format: ## bring the sources into the form of .clang-format
	@clang-format-14 -i $$(scripts/sources.sh)

clean: ## remove everything that was built
	rm -rf build build-dev build-asan build-tsan

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
