# SPDX-License-Identifier: GPL-2.0
# `make help` says what there is. KDIR is a prepared kernel tree for this
# machine's own tools, or `stock` or `test`, the kernels that ci/ makes and
# builds for in a toolchain root of its own.

ifeq ($(KERNELRELEASE),)

here := $(CURDIR)
running := /lib/modules/$(shell uname -r)/build
KDIR ?= $(firstword $(wildcard $(here)/build/kdir/Makefile $(running)/Makefile) stock)
override KDIR := $(patsubst %/Makefile,%,$(KDIR))
KERNEL ?= stock
INSTALL_MOD_PATH ?=
DESTDIR ?= $(INSTALL_MOD_PATH)

ours := $(filter stock test,$(KDIR))
out = $(here)/build/$(if $(ours),$(shell ci/series.sh pick)/$(ours),native)
MODULE = $(out)/rust/ib_srp.ko

.PHONY: modules kdir install clippy fmt fmt-check doc kunit test test-long bench bench-peers papers demo shell clean help

modules:
ifneq ($(ours),)
	@out=$(out); ci/module.sh $(KDIR) $$out && ls $$out/rust/ib_srp.ko
else
	@ci/kdir.sh check $(KDIR)
	@mkdir -p $(out)
	@$(MAKE) -C $(KDIR) M=$(here) MO=$(out) modules
	@ls $(MODULE)
endif

kdir:
	@ci/kdir.sh make

# No prerequisite: the module is built by the user and installed by root.
install:
	@module=$(MODULE); \
	[ -e $$module ] || { echo "there is no $$module yet: run make first" >&2; exit 1; }; \
	release=$$(modinfo -F vermagic $$module | cut -d' ' -f1) && \
	install -D -m 644 $$module $(INSTALL_MOD_PATH)/lib/modules/$$release/updates/ib_srp.ko && \
	install -D -m 644 -t $(DESTDIR)/usr/lib/udev/rules.d rust/udev/60-srp.rules && \
	install -D -m 755 -t $(DESTDIR)/usr/lib/udev rust/udev/srp-name && \
	depmod -b $(or $(INSTALL_MOD_PATH),/) $$release && echo "ib_srp installed for $$release"
	@[ -n "$(DESTDIR)" ] || ! command -v udevadm >/dev/null || udevadm control --reload || true

clippy fmt fmt-check doc:
	@ci/lint.sh $@

kunit:
	@ci/kunit.sh

test:
	@ci/test.sh

test-long:
	@LONG=1 ci/test.sh

bench:
	@ci/bench.sh

bench-peers:
	@MODE=peers ci/bench.sh

papers:
	@ci/papers.sh

demo:
	@ci/demo.sh

shell:
	@ci/shell.sh $(KERNEL)

clean:
	rm -rf build

help:
	@echo 'make [modules]  ib_srp.ko, in build/; KDIR=DIR for another kernel than the running one,'
	@echo '                KDIR=stock for the newest Debian 13 backports kernel, or that of SERIES'
	@echo '                (7.2, say; 6.12 is Debian 13 itself), KDIR=test for the test kernel'
	@echo 'make kdir       prepares a tree for KDIR where the kernel package ships no Rust metadata'
	@echo 'make install    the module to updates/, udev rules, depmod (INSTALL_MOD_PATH, DESTDIR)'
	@echo 'make clippy     lints; no warning is allowed'
	@echo 'make fmt        formats the Rust files (fmt-check: only looks)'
	@echo 'make doc        documentation of the crate, private items included, in build/doc'
	@echo 'make kunit      the KUnit suites, in a guest with the KASAN kernel'
	@echo 'make test       the fast set of all tests, counted; the last line is the sum'
	@echo 'make test-long  the same with all rounds, and the tests that take long'
	@echo 'make bench      this driver and the C driver in turns, in instructions per I/O (SHORT=1: only'
	@echo '                what has a bound; MODE=wall on this machine: see ci/bench.sh)'
	@echo 'make bench-peers both in turns with NVMe/RDMA, RNBD, iSER and iSCSI over TCP'
	@echo 'make papers     what the papers measured, with our code'
	@echo 'make demo       a guest with the stock kernel: target, login, verified I/O on /dev/srp0'
	@echo 'make shell      a guest with target and initiator set up, to play in (KERNEL=stock|test)'
	@echo 'make clean      removes build/; kernels and tools stay in the cache'

endif
