# SPDX-License-Identifier: GPL-2.0
# `make help` lists the targets. KDIR is a kernel tree prepared for this machine's own tools, or `stock` or `test`: the
# kernels that ci/ builds for in a toolchain root of its own.

ifeq ($(KERNELRELEASE),)

here := $(CURDIR)
RELEASE ?= $(shell uname -r)
running := /lib/modules/$(RELEASE)/build
KDIR ?= $(firstword $(wildcard $(here)/build/kdir/Makefile $(running)/Makefile) stock)
override KDIR := $(patsubst %/Makefile,%,$(KDIR))
KERNEL ?= stock
INSTALL_MOD_PATH ?=
DESTDIR ?= $(INSTALL_MOD_PATH)

ours := $(filter stock test,$(KDIR))
out = $(here)/build/$(if $(ours),$(shell ci/series.sh pick)/$(ours),native)
MODULE = $(out)/rust/ib_srp.ko
llvm = $(if $(LLVM),,$(if $(shell grep -sx CONFIG_CC_IS_CLANG=y $(KDIR)/.config),LLVM=1))
# The kbuild of a kernel without Rust may be too old for MO=, so the objects go beside links to the sources.
ifneq ($(ours)$(shell grep -sx CONFIG_RUST=y $(KDIR)/.config),)
where = M=$(here) MO=$(out)
else
where = M=$(out) SRP_CRATE=$(here)/crate
linked = find $(out) -lname '$(here)/*' -delete; cp -rs $(addprefix $(here)/,Kbuild include rust debian) $(out)
endif
version = $(shell sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
dkms = /usr/src/ib-srp-rs-$(version)

.PHONY: modules kdir install uninstall install-tools srpctl dkms dkms-source deb rpm host one lint rust-analyzer clippy fmt fmt-check doc docs kunit srpctl-test srpctl-clippy install-srpctl storage install-target install-storage test test-long bench bench-peers bench-path bench-moderation bench-curves bench-scale bench-cores bench-rt papers demo demo-wss demo-xorset shell clean help

modules:
ifneq ($(ours),)
	@out=$(out); ci/module.sh $(KDIR) $$out && ls $$out/rust/ib_srp.ko
else
	@tools/kdir check $(KDIR)
	@mkdir -p $(out)
	@$(linked)
	@$(MAKE) -C $(KDIR) $(where) $(llvm) modules
	@ls $(MODULE)
endif

# Prepares Debian's kernel in the toolchain root if this machine does not run it, for KDIR=stock.
kdir:
	@if [ -e $(running)/.config ] || [ -e /usr/src/linux-headers-$(RELEASE)/.config ] || dpkg -s linux-image-$(RELEASE) >/dev/null 2>&1; then \
		tools/kdir make $(RELEASE) $(here)/build/kdir; \
	else \
		ci/kernel.sh stock >/dev/null && echo "prepared: Debian's kernel in the toolchain root; build for it with make KDIR=stock"; \
	fi

# `install` has no prerequisite: a user builds the module, root installs it.
install:
	@[ -e $(MODULE) ] || { echo "there is no $(MODULE) yet: run make first" >&2; exit 1; }
	@$(MAKE) -s install-tools
	@module=$(MODULE); \
	release=$$(modinfo -F vermagic $$module | cut -d' ' -f1) && \
	install -D -m 644 $$module $(INSTALL_MOD_PATH)/lib/modules/$$release/updates/ib_srp.ko && \
	depmod -b $(or $(INSTALL_MOD_PATH),/) $$release && echo "ib_srp installed for $$release"
	@[ -n "$(DESTDIR)" ] || ! command -v udevadm >/dev/null || udevadm control --reload || true
	@[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

# Removes what `install` has put there: the files that it would install now. The program that is installed makes the
# list of its pages if none is built.
uninstall:
	@[ -n "$(DESTDIR)" ] || ! dpkg -S /usr/sbin/srplat 2>/dev/null || { echo "apt purge removes the package" >&2; exit 1; }
	@list=$$(mktemp -d) && trap "rm -r $$list" EXIT && \
	$(MAKE) -s install-tools DESTDIR=$$list srpctl=$(or $(firstword $(wildcard $(srpctl) $(DESTDIR)/usr/sbin/srpctl)),/nonexistent) && \
	(cd $$list && find . ! -type d -print0) | (cd $(or $(DESTDIR),/) && xargs -0 rm -fv && \
	rmdir -p --ignore-fail-on-non-empty usr/share/srpctl/schema usr/lib/dracut/modules.d/95srp 2>/dev/null || true)
	@for module in $(INSTALL_MOD_PATH)/lib/modules/*/updates/ib_srp.ko; do \
		[ -e "$$module" ] || continue; rm -v "$$module"; release=$${module%/updates/*} && \
		depmod -b $(or $(INSTALL_MOD_PATH),/) $${release##*/} || exit; done
	@[ -n "$(DESTDIR)" ] || ! command -v udevadm >/dev/null || udevadm control --reload || true
	@[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

# Uses the crates of Debian's packages if they are installed, otherwise those that cargo downloads, which tools/Cargo.lock
# then keeps. Debian's crates have no checksums and other dependencies, so they neither fit a lock file nor make one that
# fits others.
export CARGO_TARGET_DIR ?= $(here)/build/srpctl
built_for = $(CARGO_TARGET_DIR)/$(CARGO_BUILD_TARGET:=/)release
srpctl = $(built_for)/srpctl
# Pages are made by the programs. NATIVE=DIR: by those in DIR, if the others are for another architecture.
NATIVE ?= $(patsubst %/,%,$(dir $(srpctl)))
debian_crates := /usr/share/cargo/registry
debian := $(wildcard $(debian_crates)/clap-4*)
cargo = $(if $(debian),rm -f tools/Cargo.lock &&) cargo $(1) -q --release --manifest-path tools/Cargo.toml $(if $(debian), \
	--offline --config 'source.crates-io.replace-with="debian"' --config 'source.debian.directory="$(debian_crates)"') $(2)
srpctl:
	@$(call cargo,build)
	@ls $(srpctl)
srpctl-test:
	@$(call cargo,test)
srpctl-clippy:
	@$(call cargo,clippy,-- -D warnings)

install-tools:
	@install -D -m 644 -t $(DESTDIR)/usr/lib/udev/rules.d tools/udev/60-srp.rules tools/udev/50-srp-scheduler.rules
	@install -D -m 755 -t $(DESTDIR)/usr/lib/udev tools/udev/srp-name
	@install -D -m 755 -t $(DESTDIR)/usr/sbin tools/srplat
	@ln -sf srplat $(DESTDIR)/usr/sbin/srpslow
	@install -D -m 644 -t $(DESTDIR)/usr/share/man/man8 tools/srplat.8 tools/srpslow.8
	@if [ -e $(srpctl) ]; then $(MAKE) -s install-srpctl; else echo "srpctl is not installed: make srpctl builds it"; fi

install-srpctl:
	@install -D -m 755 -t $(DESTDIR)/usr/sbin $(srpctl)
	@install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system tools/systemd/*.service tools/systemd/*.timer
	@install -D -m 644 -t $(DESTDIR)/usr/lib/udev/rules.d tools/udev/61-srp-rescan.rules
	@install -D -m 644 -t $(DESTDIR)/usr/share/srpctl/schema tools/srpctl/schema/*.json
	@install -D -m 755 -t $(DESTDIR)/usr/lib/systemd/system-generators tools/systemd/srp-generator
	@install -D -m 755 tools/initramfs/hook $(DESTDIR)/usr/share/initramfs-tools/hooks/srp
	@install -D -m 755 tools/initramfs/local-top $(DESTDIR)/usr/share/initramfs-tools/scripts/local-top/srp
	@install -D -m 755 -t $(DESTDIR)/usr/lib/dracut/modules.d/95srp tools/dracut/*.sh
	@to=$$(mktemp -d) && $(NATIVE)/srpctl generate $$to && \
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man8 $$to/*.8 && \
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man5 $$to/*.5 && \
	install -D -m 644 $$to/srpctl.fish $(DESTDIR)/usr/share/fish/vendor_completions.d/srpctl.fish && \
	install -D -m 644 $$to/srpctl.bash $(DESTDIR)/usr/share/bash-completion/completions/srpctl && \
	install -D -m 644 $$to/_srpctl $(DESTDIR)/usr/share/zsh/vendor-completions/_srpctl && rm -r $$to

# srp-target, wss, xorset and srp-storage. CRATES=DIR: with the crates in DIR, and its Cargo.lock (storage/run crates).
# BUILT=DIR: takes them from DIR (storage/run build).
CRATES ?=
BUILT ?=
storage:
ifneq ($(BUILT),)
	@install -D -t $(built_for) $(addprefix $(BUILT)/,srp-target wss xorset srp-storage)
else
	@$(if $(CRATES),cp $(CRATES)/Cargo.lock storage/ &&) cargo build -q --release --manifest-path storage/Cargo.toml \
		-p srp-target -p wss -p xorset -p srp-storage --bins $(if $(CRATES),--locked --offline \
		--config 'source.crates-io.replace-with="given"' --config 'source.given.directory="$(CRATES)/vendor"')
endif

page = storage/manual $(NATIVE)/$(1) $(version) >$(DESTDIR)/usr/share/man/man8/$(1).8
examples = $(DESTDIR)/usr/share/doc/$(1)/examples
install-target:
	@install -D -m 755 -t $(DESTDIR)/usr/sbin $(built_for)/srp-target
	@install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system storage/systemd/srp-target@.service
	@install -D -m 644 -t $(call examples,srp-target) storage/examples/srp-target.toml
	@install -d $(DESTDIR)/etc/srp-storage/targets $(DESTDIR)/usr/share/man/man8
	@$(call page,srp-target) 'exports files and block devices by SRP' \
		'/etc/srp-storage/targets/NAME.toml: the options of srp-target@NAME.service'

install-storage:
	@install -D -m 755 -t $(DESTDIR)/usr/sbin $(built_for)/wss $(built_for)/xorset $(built_for)/srp-storage
	@install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system storage/systemd/wss@.service storage/systemd/xorset@.service
	@install -D -m 644 -t $(call examples,srp-storage) storage/examples/wss.toml storage/examples/xorset.toml
	@install -d $(DESTDIR)/etc/srp-storage $(DESTDIR)/usr/share/man/man8
	@$(call page,wss) 'storage system whose caches move the data' \
		'/etc/srp-storage/wss.toml: the options of wss@rs, wss@se and wss@ce'
	@$(call page,xorset) 'redundant set of five nodes' \
		'/etc/srp-storage/xorset.toml: the options of xorset@node and xorset@client'
	@$(call page,srp-storage) 'looks at srp-target, wss and xorset' '/run/srp-storage/*.sock: the sockets of the units'

# The source tree that dkms builds.
dkms-source:
	@install -d $(DESTDIR)$(dkms)
	@cp -r Kbuild Makefile LICENSE include rust $(wildcard crate) $(DESTDIR)$(dkms)
	@install -D -t $(DESTDIR)$(dkms)/tools tools/kdir tools/renew-initramfs
	@install -D -m 644 -t $(DESTDIR)$(dkms)/debian debian/changelog
	@sed 's/#MODULE_VERSION#/$(version)/' dkms.conf >$(DESTDIR)$(dkms)/dkms.conf

dkms: dkms-source install-tools
	@dkms status -m ib-srp-rs -v $(version) | grep -q . || dkms add -m ib-srp-rs -v $(version)
	@dkms install -m ib-srp-rs -v $(version) -k $(RELEASE)

deb:
	@ci/deb.sh

rpm:
	@rpmbuild -bb --quiet --build-in-place $(RPMFLAGS) --define '_topdir $(here)/build/rpm' rpm/ib-srp-rs.spec
	@ls $(here)/build/rpm/RPMS/*/*.rpm

# Uses this machine's own cargo: needs neither root nor Debian.
host:
	@cargo test -q --manifest-path userspace-tests/host/Cargo.toml --target-dir $(here)/build/host -p srp-host --lib --tests

one:
	@ci/guests.sh --one '$(TEST)$(addprefix :,$(KIND))'

lint:
	@ci/lint.sh all

clippy fmt fmt-check doc docs:
	@ci/lint.sh $@

rust-analyzer:
	@ci/rust-analyzer.sh

kunit:
	@SUITES='$(or $(SUITES),$(ONLY))' ci/kunit.sh

test:
	@ci/test.sh

test-long:
	@LONG=1 ci/test.sh

bench:
	@ci/bench.sh

bench-peers:
	@MODE=peers ci/bench.sh

bench-path:
	@MODE=path ci/bench.sh

bench-moderation:
	@MODE=moderation ci/bench.sh

bench-curves:
	@MODE=curves ci/bench.sh

bench-scale:
	@MODE=scale ci/bench.sh

bench-cores:
	@MODE=cores ci/bench.sh

bench-rt:
	@MODE=rt ci/bench.sh

papers:
	@ci/papers.sh

demo:
	@ci/demo.sh
demo-wss:
	@ci/demo.sh wss
demo-xorset:
	@ci/demo.sh xorset

shell:
	@ci/shell.sh $(KERNEL)

clean:
	rm -rf build

help:
	@echo 'Build'
	@echo '  make                ib_srp.ko, in build/. KDIR=DIR: for another kernel than the running one.'
	@echo '                      KDIR=stock: for the newest Debian 13 backports kernel, or that of SERIES (7.2;'
	@echo '                      6.12 is Debian 13 itself). KDIR=test: for the test kernel.'
	@echo '  make kdir           prepares a tree for KDIR where the kernel package ships no Rust metadata'
	@echo '  make srpctl         the program srpctl, with cargo'
	@echo '  make storage        the programs of storage/, with cargo (CRATES=DIR: offline)'
	@echo '  make deb            the Debian packages, an apt repository in build/deb (SIGN=KEYID: signed)'
	@echo '  make rpm            the same packages for rpm, in build/rpm, with rpmbuild'
	@echo '  make clean          removes build/; kernels and tools stay in the cache'
	@echo
	@echo 'Install'
	@echo '  make install        the module to updates/, tools, udev rules, depmod (INSTALL_MOD_PATH, DESTDIR)'
	@echo '  make uninstall      removes what make install has installed, for all kernels'
	@echo '  make dkms           the tools, and the source, which dkms builds for each new kernel'
	@echo
	@echo 'Try'
	@echo '  make demo           a guest with the stock kernel: target, login, verified I/O on /dev/srp0 (KERNEL=rt|arm64|arm64-16k)'
	@echo '  make demo-wss       the same with a storage system of five nodes (docs/fabric.md)'
	@echo '  make demo-xorset    the same with a set of five nodes, of which any two may be lost'
	@echo '  make shell          a guest with a target and a login, and a prompt (KERNEL=stock|rt|test)'
	@echo
	@echo 'Change (CONTRIBUTING.md)'
	@echo '  make host           the host tests, with the cargo of this machine; no root'
	@echo '  make one            one guest test: TEST=09-channels KIND=rxe (ci/guests.sh: several)'
	@echo '  make kunit          the KUnit suites, in a guest with the KASAN kernel (ONLY=srp_slot: one suite)'
	@echo '  make lint           all checks of the source (make clippy: that alone)'
	@echo '  make fmt            formats the Rust files (fmt-check: only looks)'
	@echo '  make doc            rustdoc of the crate, private items included, in build/doc'
	@echo '  make docs           the pictures of README, in docs/, from docs/performance.md and ci/drawings.py'
	@echo '  make rust-analyzer  rust-project.json for an editor'
	@echo
	@echo 'Test and measure'
	@echo '  make test           the fast set of all tests, counted; the last line is the sum'
	@echo '  make test-long      the same with all rounds, and the tests that take long (PART=1/8: a part of it)'
	@echo '  make bench          this driver and the C driver in turns, in instructions per I/O (SHORT=1: only'
	@echo '                      what has a bound; MODE=wall on this machine: see ci/bench.sh)'
	@echo '  make bench-peers    both in turns with NVMe/RDMA, RNBD, iSER and iSCSI over TCP'
	@echo '  make bench-path     what the initiator alone executes for an I/O, by layer'
	@echo '  make bench-moderation  polled I/O beside interrupts and moderated ones'
	@echo '  make bench-curves   what it executes against depth, CPUs, LUNs and sessions'
	@echo '  make bench-scale    how both grow with sessions, LUNs, targets and channels'
	@echo '  make bench-cores    all of them by the clock, on all CPUs, with confidence intervals (SHORT=1: 5 minutes)'
	@echo '  make bench-rt       latency of both drivers with PREEMPT_RT, under load'
	@echo '  make papers         what the papers measured, with our code'

endif
