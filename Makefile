# Everything that is built, checked or installed here, by one name each: `make help` lists them.

BIN     := bin/genv
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
PREFIX  ?= /usr/local
DESTDIR ?=

GO        ?= go
# The tags leave out what urfave/cli would write manuals with, which costs every start half a
# millisecond, and HTTP/2, which costs a tenth: a reverse proxy can add it to the page.
# What lint and the tests build has the same flags, so that each package is compiled once for all of them.
BUILDFLAGS := -trimpath -tags=urfave_cli_no_docs,nethttpomithttp2
BUILD      := CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -ldflags '-s -w -X main.version=$(VERSION)'
# Many tests wait, for processes or timeouts, so more of them run at a time than there are cores. Vet is a part of lint,
# and without debug information programs are linked in half the time.
TESTFLAGS ?= -timeout=30m -p 4 -parallel 4 -vet=off -ldflags=-w
# The packages that wait longest begin first.
PACKAGES  := ./packaging ./remote/sshclient ./cmd/genv/enforcement ./cmd/genv/fleet ./cmd/genv/host ./cmd/genv/user ./snapshot/state/disk \
             ./remote/agent ./snapshot/local ./remote/controller ./remote/web ./remote/usage/store ./remote/install ./remote/election \
             ./snapshot/state/service ./snapshot/proc ./cmd/genv/guard ./enforce/rules ./...
# The tests start these without the race detector.
PROGRAMS  := ./cmd/genv ./cmd/genv-demo ./remote/testfleet/genv143 ./remote/testfleet/gpus/nvidia-smi
# Where a page fault is slow, what makes much garbage (lint, some tests) takes half the time if it keeps more of it.
TESTGOGC  ?= 200
FUZZTIME  ?= 10s
FAULTS    := .tools/faults.txt
SOAK      ?= 2m

LINTER_VERSION := v2.15.0
LINTER         := .tools/$(LINTER_VERSION)/golangci-lint

NFPM_VERSION := v2.45.0
NFPM         := .tools/nfpm-$(NFPM_VERSION)/nfpm

CYCLONEDX_VERSION := v1.10.0
CYCLONEDX         := .tools/cyclonedx-gomod-$(CYCLONEDX_VERSION)/cyclonedx-gomod

# What builds a release, and its tools: another Go would give other bytes.
RELEASE_GO := go1.26.8

# Packages that only compute (SQLite, ciphers, hashes, compression) take five times as long under the race detector: it leaves
# them out. One that has generic code with atomics (go tool nm shows it) must not be named: the linker may take that copy for
# the whole program.
UNRACED := modernc.org/memory modernc.org/sqlite/lib compress/flate hash/crc32 \
           $(addprefix golang.org/x/crypto/,blowfish chacha20 internal/poly1305) \
           $(addprefix crypto/internal/fips140/,aes aes/gcm edwards25519/field nistec nistec/fiat bigmod sha256 sha512)

# The race detector needs cgo, and so a C compiler.
RACE = $(if $(shell command -v "$$($(GO) env CC)"),-race $(UNRACED:%=-gcflags=%=-race=false))

# A program with the race detector sleeps for a second before it ends, unless it is told not to.
export GORACE := $(strip atexit_sleep_ms=0 $(GORACE))

# The version comes from VERSION; asking git again would fail where it distrusts the folder's owner.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build
.PHONY: help build demo screenshots test testdeps lint format bench fuzz soak packages release install uninstall clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the static program, bin/genv (GOARCH=arm64 works too)
	$(BUILD) -o $(BIN) ./cmd/genv

$(BIN):
	@$(MAKE) build

demo: ## a fleet of simulated hosts on this machine, and genv at work on it; needs no root and no GPU. KEEP=1 keeps it until Ctrl-C
	@echo "Building genv and the demo, which takes a minute or two the first time …"
	@$(MAKE) --no-print-directory build
	@$(GO) build -o $(BIN)-demo ./cmd/genv-demo
	@exec $(BIN)-demo -genv $(BIN)$(if $(KEEP), -keep)

screenshots: build ## the pictures in docs/images, from the demo; needs chromium, tmux and aha
	@docs/images/take.sh

test: testdeps ## all tests, with the race detector where there is a C compiler
	@$(if $(RACE),,echo "There is no C compiler: the tests run without the race detector.")
	@mkdir -p $(dir $(FAULTS)) && rm -f $(FAULTS)
	CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -ldflags '-s -w' -o bin/test/ $(PROGRAMS)
	MAKEFLAGS= CGO_ENABLED=$(if $(RACE),1,0) GENV_FAULT_TABLE='$(CURDIR)/$(FAULTS)' TESTFLEET_PROGRAMS='$(CURDIR)/bin/test' GOGC=$(TESTGOGC) $(GO) test $(RACE) $(TESTFLAGS) $(PACKAGES)
	@if [ -s $(FAULTS) ]; then echo; cat $(FAULTS); fi

# What the tests need beside Go: a command, and the Debian package it comes in.
TESTDEPS := tmux:tmux sshd:openssh-server ssh:openssh-client sudo:sudo zsh:zsh tcsh:tcsh fish:fish ip:iproute2 mount:mount \
            unshare:util-linux /usr/lib/libnss_extrausers.so.2:libnss-extrausers prometheus:prometheus gcc:gcc /usr/include/stdio.h:libc6-dev \
            python3:python3 /usr/lib/python3/dist-packages/psutil:python3-psutil \
            /usr/lib/python3/dist-packages/paramiko:python3-paramiko /usr/lib/python3/dist-packages/icalendar:python3-icalendar chromium:chromium \
            /lib/systemd/systemd:systemd rpm:rpm curl:curl pgrep:procps script:bsdutils \
            strace:strace /usr/share/bash-completion/bash_completion:bash-completion man:man-db groff:groff-base \
            dockerd:docker.io docker:docker.io busybox:busybox-static nsenter:util-linux runc:runc rootlesskit:rootlesskit newuidmap:uidmap setpriv:util-linux \
            etcd:etcd-server etcdctl:etcd-client openssl:openssl /usr/lib/postgresql:postgresql

testdeps:
	@[ -x $(NFPM) ] || $(MAKE) $(NFPM) || echo "nfpm could not be built; the tests of packages will be skipped."
	@[ -x $(CYCLONEDX) ] || $(MAKE) $(CYCLONEDX) || echo "cyclonedx-gomod could not be built; the test of releases will be skipped."
	@missing=; for dep in $(TESTDEPS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${dep%%:*}" >/dev/null || [ -e "$${dep%%:*}" ] || missing="$$missing $${dep##*:}"; \
	done; \
	if [ "$$(id -u)" != 0 ]; then \
	  echo "Not root: the tests with real sshd, sudo and other users' processes will be skipped."; \
	elif [ -z "$$missing" ]; then :; \
	elif command -v apt-get >/dev/null; then \
	  echo "Installing what the tests need:$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	else \
	  echo "Missing, and this is no Debian to install it on; the tests that need it will be skipped:$$missing"; \
	fi

lint: $(LINTER) ## golangci-lint with .golangci.yml; the first time it is built, which takes a minute or two
	CGO_ENABLED=0 GOFLAGS='$(GOFLAGS) $(BUILDFLAGS)' GOGC=$(TESTGOGC) $(LINTER) run ./...

format: $(LINTER) ## gofumpt
	$(LINTER) fmt ./...

$(LINTER):
	@echo "Building golangci-lint $(LINTER_VERSION) into $(@D)"
	@$(INSTALL_TOOL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINTER_VERSION)

bench: build ## whole fleets against genv's goals, as a table, then the Go benchmarks of all packages. AGAINST=v2.0 compares with that build
	@$(GO) run ./cmd/genv-bench -genv $(BIN) $(AGAINST:%=-against %)
	$(GO) test -run '^$$' -bench . -benchmem $(TESTFLAGS) ./...

# Go shortens each new input for up to a minute, in which no case counts; ten tries are enough.
FUZZ = $(GO) test -run '^$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 10x

# Before Go 1.27 a run may fail with no more than "context deadline exceeded" when its time is over, without
# a failing input: its coordinator takes the end of the time for an error (https://go.dev/issue/75804).
fuzz: ## each fuzz test for FUZZTIME (10s)
	@log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && \
	grep -roE '^func Fuzz\w+' --include='*_test.go' . | while IFS=: read -r file name; do \
	  echo "$${name#func } in $${file%/*}"; \
	  { $(FUZZ) -fuzz "^$${name#func }\$$" "$${file%/*}" || echo "fuzz: failed"; } 2>&1 | tee "$$log"; \
	  grep -qx 'fuzz: failed' "$$log" || continue; \
	  grep -qx '    context deadline exceeded' "$$log" && ! grep -q 'Failing input written' "$$log" || exit 1; \
	  echo "It ended with its time; no input failed."; \
	done

soak: ## the tests named TestSoak…, each for SOAK (2m), and all cases of the tests named TestProperty…
	GENV_SOAK=$(SOAK) $(GO) test $(RACE) -v -count=1 -run '^Test(Soak|Property)' -timeout=24h ./...

packages: $(NFPM) ## .deb, .rpm and .tar.gz for amd64 and arm64, and SHA256SUMS, in dist/
	@NFPM='$(CURDIR)/$(NFPM)' VERSION='$(VERSION)' packaging/build.sh

release: $(NFPM) $(CYCLONEDX) ## packages and an SBOM of VERSION=v2.0.0, the same bytes wherever it is run. KEY=FILE signs SHA256SUMS with ssh-keygen
	@echo '$(VERSION)' | grep -qxE 'v[0-9]+\.[0-9]+\.[0-9]+(-rc[0-9]+)?' || { echo "Write the version, such as make release VERSION=v2.0.0" >&2; exit 1; }
	@changed=$$(git status --porcelain) && [ -z "$$changed" ] || { echo "Commit or stash your changes first: a release is of a commit" >&2; exit 1; }
	@env -u SOURCE_DATE_EPOCH GOTOOLCHAIN=$(RELEASE_GO) GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFIPS140=off GOWORK=off \
	  NFPM='$(CURDIR)/$(NFPM)' CYCLONEDX='$(CURDIR)/$(CYCLONEDX)' FORMATS='deb rpm tar sbom' KEY='$(KEY)' VERSION='$(VERSION)' packaging/build.sh

INSTALL_TOOL = GOBIN='$(CURDIR)/$(@D)' GOTOOLCHAIN=$(RELEASE_GO) GOFLAGS=-trimpath CGO_ENABLED=0 $(GO) install

$(NFPM):
	@echo "Building nfpm $(NFPM_VERSION) into $(@D)"
	@$(INSTALL_TOOL) github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

$(CYCLONEDX):
	@echo "Building cyclonedx-gomod $(CYCLONEDX_VERSION) into $(@D)"
	@$(INSTALL_TOOL) github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

SHIMS := nvidia-smi docker

install: $(BIN) ## to DESTDIR/PREFIX (PREFIX is /usr/local): bin/genv, bin/genv-docker, and the shims in lib/genv/shims
	install -D -m 0755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/genv'
	ln -sfn genv '$(DESTDIR)$(PREFIX)/bin/genv-docker'
	install -d -m 0755 '$(DESTDIR)$(PREFIX)/lib/genv/shims'
	for shim in $(SHIMS); do ln -sfn ../../../bin/genv '$(DESTDIR)$(PREFIX)/lib/genv/shims/'$$shim; done
	install -d '$(DESTDIR)/etc/tmpfiles.d'
	echo 'x /var/tmp/genv' >'$(DESTDIR)/etc/tmpfiles.d/genv-state.conf' # the state, of which systemd-tmpfiles removes what is old

uninstall: ## what install put there
	rm -f '$(DESTDIR)/etc/tmpfiles.d/genv-state.conf' '$(DESTDIR)$(PREFIX)/bin/genv' '$(DESTDIR)$(PREFIX)/bin/genv-docker' $(SHIMS:%='$(DESTDIR)$(PREFIX)/lib/genv/shims/%')
	rmdir '$(DESTDIR)$(PREFIX)/lib/genv/shims' '$(DESTDIR)$(PREFIX)/lib/genv' 2>/dev/null || :

clean: ## bin/ and dist/; the tools in .tools/ stay
	rm -rf bin dist
