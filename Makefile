# Every target does its own set-up.

CARGO ?= cargo

.PHONY: demo test test-gpu lint setup-build setup-test

setup-build:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test

# Trains on real images, on the GPU where there is one.
demo: setup-test
	$(CARGO) build --release -p genesis
	target/release/genesis train fashion-mnist

# Everything that needs no GPU. What is left out for want of something is told in lines of `skipped: `; with
# GENESIS_TEST_REQUIRE=ptxas its absence is a failure.
test: setup-test
	@scripts/ptxas.sh >/dev/null || echo "skipped: no ptxas: tests will assemble no PTX"
	$(CARGO) test --workspace

# Builds what a machine with a GPU runs, and runs it where there is one.
test-gpu: setup-test
	scripts/gpu.sh

lint: setup-build
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
