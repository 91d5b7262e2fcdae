# SPDX-License-Identifier: Apache-2.0
# make demo    from a fresh Debian 12 with Rust to packets through the switch
# make demo-ovn   two hosts driven by OVN, in namespaces
# make test    all tests
# make lint    formatting, Clippy, rustdoc, words, licences; what CI runs before the tests
# make build   target/release/slipswitchd and target/release/slipswitch
# make install, make uninstall   after make build; below PREFIX (/usr/local), staged in DESTDIR
# make bench   measures this machine and writes docs/benchmarks.md, in about 30 minutes
# make bench-full   the same with all points to target/benchmarks-full.md, in an hour and a half or two
# make bench-kernel   the kernel's Open vSwitch and Slipswitch in an emulated guest, to docs/benchmarks-kernel.md

PACKAGES := openvswitch-switch openvswitch-common openvswitch-pki openvswitch-testcontroller \
	iproute2 iputils-ping fping iperf3 tcpdump nftables ethtool procps util-linux openssl ca-certificates gcc libc6-dev make \
	busybox-static curl ovn-central ovn-host vsftpd lftp tftpd-hpa tftp-hpa \
	nfdump nfdump-sflow python3-os-ken \
	clang libbpf-dev linux-libc-dev libelf-dev zlib1g-dev pkg-config

# The switches that Slipswitch is compared with. openvswitch-switch-dpdk leaves the alternative
# ovs-vswitchd as it is. It only recommends the packages of DPDK's drivers, so they are named here.
PACKAGES_BENCH := openvswitch-switch-dpdk librte-net-af-xdp23 librte-mempool-ring23 nftables

# The emulator that runs the tests on other kernels, and the tools to build its guests.
PACKAGES_VM := qemu-system-x86 kmod xz-utils

.PHONY: all build install uninstall demo demo-ovn test bench bench-full bench-kernel deps deps-bench deps-vm lint clean

all: build

build:
	cargo build --release -p slipswitchd -p slipswitch

PREFIX ?= /usr/local
BUILT ?= target/release
SBIN := $(PREFIX)/sbin
BIN := $(PREFIX)/bin
UNITS := $(PREFIX)/lib/systemd/system
MAN := $(PREFIX)/share/man
INSTALLED = $(SBIN)/slipswitchd $(BIN)/slipswitch $(UNITS)/slipswitchd.service \
	$(UNITS)/slipswitch-xdp-flow@.service \
	$(MAN)/man8/slipswitchd.8 $(MAN)/man1/slipswitch.1

# It does not build, so that root needs no Rust.
install:
	@test -x $(BUILT)/slipswitchd && test -x $(BUILT)/slipswitch || \
		{ echo "$(BUILT) has no slipswitchd and slipswitch: run make build first" >&2; exit 1; }
	install -D -m 755 $(BUILT)/slipswitchd $(DESTDIR)$(SBIN)/slipswitchd
	install -D -m 755 $(BUILT)/slipswitch $(DESTDIR)$(BIN)/slipswitch
	install -D -m 644 packaging/slipswitchd.8 $(DESTDIR)$(MAN)/man8/slipswitchd.8
	install -D -m 644 packaging/slipswitch.1 $(DESTDIR)$(MAN)/man1/slipswitch.1
	install -d $(DESTDIR)$(UNITS)
	sed 's|@sbindir@|$(SBIN)|' packaging/slipswitchd.service.in > $(DESTDIR)$(UNITS)/slipswitchd.service
	sed 's|@bindir@|$(BIN)|' packaging/slipswitch-xdp-flow@.service.in \
		> $(DESTDIR)$(UNITS)/slipswitch-xdp-flow@.service
	chmod 644 $(DESTDIR)$(UNITS)/slipswitchd.service $(DESTDIR)$(UNITS)/slipswitch-xdp-flow@.service

# Directories stay: others may use them.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))

deps:
	@./demo/install-packages $(PACKAGES)

demo: deps build
	@./demo/tutorial

demo-ovn: deps build
	@./demo/ovn

deps-bench:
	@./demo/install-packages $(PACKAGES_BENCH)

deps-vm:
	@./demo/install-packages $(PACKAGES_VM)

test: deps deps-vm
	./tests/run

# ARGS has further arguments, as in `make bench ARGS='--repeat 9'`.
BENCH = cargo build --release -p slipswitchd -p slipswitch-bench && \
	cargo run --release -p slipswitch-bench --

bench: deps deps-bench
	$(BENCH) --page docs/benchmarks.md $(ARGS)

bench-full: deps deps-bench
	$(BENCH) --full --page target/benchmarks-full.md $(ARGS)

# The guest's clock counts instructions: a packet's nanoseconds are its instructions, and figures do
# not depend on the host. (Linux 6.1 does not boot with that clock.) The guest's files are lost when it
# ends: its results are the JSON object in its output. Five minutes.
KERNEL := 6.12
KERNEL_RESULTS := target/bench-kernel.json
bench-kernel: deps deps-vm
	cargo build --release -p slipswitchd -p slipswitch-bench
	rm -f $(KERNEL_RESULTS)
	cargo xtask vm --kernel $(KERNEL) --timeout 3600 --count-instructions --run "\
		SLIPSWITCHD=$(CURDIR)/target/release/slipswitchd target/release/slipswitch-bench \
		--only one-flow,setup --quick --repeat 2 --systems bare-tc,linux-bridge,ovs-kernel,slipswitch-tcx \
		--note 'This machine is emulated, and its clock counts instructions, one to a nanosecond: only ratios count.' \
		--page /tmp/page.md --json /tmp/results.json $(ARGS) && cat /tmp/results.json" \
		| awk '/^{$$/ { is_json = 1 } { if (is_json) print > "$(KERNEL_RESULTS)"; else print } /^}$$/ { is_json = 0 }'
	target/release/slipswitch-bench --render $(KERNEL_RESULTS) --page docs/benchmarks-kernel.md

# cargo-deny (`cargo install cargo-deny --locked`) is used where it is installed: it adds known
# vulnerabilities, when its database can be fetched. `cargo xtask lint` checks licences without it.
lint:
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo xtask lint
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	cargo clippy --workspace --all-targets -- -D warnings
	@if ! command -v cargo-deny >/dev/null; then \
		echo "lint: cargo-deny is not installed: no check of vulnerabilities"; \
	elif cargo deny fetch db 2>/dev/null; then cargo deny check; \
	else echo "lint: the database of vulnerabilities cannot be fetched"; \
		cargo deny check licenses bans sources; fi

clean:
	cargo clean
