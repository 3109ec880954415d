# What a developer types. Each target needs nothing but bash and python3: tests/run makes the environment itself.

.PHONY: help test quick house lint types gpu slow systemd proofs bench golden clean

help:            ## these lines
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

test:            ## everything: format, lint, types, all suites, each against its budget of time
	@tests/run

quick:           ## the pure suites alone, a few seconds
	@tests/run --only tests/house tests/unit tests/cases

house:           ## floors, doors, words: the rules of the house
	@tests/run --only tests/house

lint:            ## format and lint, nothing is changed
	@tests/run --lint

types:           ## mypy
	@tests/run --types

gpu:             ## on a machine with a card: inventory, lease, device 0, peak memory, strangers, kills; a minute
	@tests/run --only -rs tests/gpu

slow:            ## what takes minutes or full sizes
	@tests/run --only -m slow tests

systemd:         ## on machines with a systemd of their own: needs root, mmdebstrap and systemd-nspawn
	@tests/run --only -m systemd tests/systemd

proofs:          ## a training cut in every way, uploaded to every target, fetched back: needs root; twenty minutes
	@AICRUN_PROOFS=all tests/run --only -rs tests/proofs

bench:           ## start-up, parsing, a flood of output beside cat, what an idle job costs
	@tests/run --bench

golden:          ## write what is frozen and the screens anew; the difference is for the reviewer
	@AICRUN_FREEZE=1 UPDATE_GOLDEN=1 tests/run --only tests/unit tests/contract/test_readme.py

clean:           ## what building and testing left in this folder
	rm -rf .venv .venv-quickstart .uv benchmarks/.peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
