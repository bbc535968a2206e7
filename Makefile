# postrider - one file, no recursion into folders. Quiet unless V=1.
#
#   make                     release flavour: build/postrider, build/providers/NAME.so
#   make SAN=address,undefined   the same under sanitizers, in build/san
#   make COV=1               the same with coverage counters, in $(BUILD)/coverage
#   make CC=clang            any flavour with another compiler (objects are rebuilt)
#   make BUILD=other         a second build tree beside the first
#
# The checkout may lie under a path with a space, so rules use relative paths only.

CC       := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
PYTHON   ?= /usr/bin/python3
PREFIX   ?= /usr/local
DESTDIR  ?=
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

Q := $(if $(V),,@)
# Sub-makes that may have just gained their packages use every core unless told otherwise.
CORES = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# ---- flavours: a folder each, so that objects never mix ---------------------------------------
ifdef FUZZ
  FLAVOUR := fuzz
  CC := clang
  FLAVOUR_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
                   -fno-sanitize-recover=all
  FLAVOUR_LINK := -fsanitize=address,undefined
else ifdef SAN
  FLAVOUR := $(if $(filter address%undefined,$(SAN)),san,san-$(SAN))
  FLAVOUR_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all
  FLAVOUR_LINK := -fsanitize=$(SAN)
else ifdef COV
  FLAVOUR := coverage
  FLAVOUR_FLAGS := -O0 -g --coverage
  FLAVOUR_LINK := --coverage
else
  FLAVOUR := release
  FLAVOUR_FLAGS := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong
  FLAVOUR_LINK := -Wl,-z,relro,-z,now
endif
BUILD ?= build
O := $(BUILD)/$(FLAVOUR)

# ---- flags ------------------------------------------------------------------------------------
PACKAGES := libpq libcurl jansson libmicrohttpd libcrypto
WARN     := -Wall -Wextra -Wpedantic -Werror
STD      := -std=c17 -D_GNU_SOURCE
INCLUDE  := -I. $(patsubst -I%,-isystem %,$(shell pkg-config --cflags-only-I $(PACKAGES) 2>/dev/null))
FLAGS     = $(STD) $(WARN) $(INCLUDE) $(FLAVOUR_FLAGS)
VERSION  := 0.1.0
DEFINES   = -DPOSTRIDER_VERSION='"$(VERSION)"' -DPOSTRIDER_PROVIDER_DIR='"$(PREFIX)/lib/postrider/providers"'
LINK      = -Wl,--as-needed $(FLAVOUR_LINK)
LIBS     := -lpq -lcurl -ljansson -lev -lmicrohttpd -lcrypto -ldl -lm
# Plugins are shared objects and may borrow pure core parts; all else is the executable's own.
PIC       = $(if $(filter providers/% worker/core/% tests/unit/badplugins/%,$<),-fPIC -fvisibility=hidden,-fPIE)

# ---- sources ----------------------------------------------------------------------------------
find_c     = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))
MAIN      := $(wildcard worker/main.c)
OWN       := $(filter-out worker/main.c,$(call find_c,worker providers/sandbox providers/kit))
CORE      := $(filter worker/core/%,$(OWN))
KIT       := $(filter providers/kit/%,$(OWN))
PLUGINS   := $(filter-out sandbox kit,$(sort $(patsubst providers/%/,%,$(dir $(wildcard providers/*/*.c)))))
MIGRATION := $(sort $(wildcard sql/[0-9]*.sql))
PAGE      := $(wildcard worker/web/index.html)
UNIT      := $(sort $(wildcard tests/unit/test_*.c tests/unit/*_driver.c))
BAD       := $(sort $(wildcard tests/unit/badplugins/*.c))
FUZZERS   := $(sort $(wildcard tests/fuzz/fuzz_*.c))

objects     = $(patsubst %.c,$(O)/%.o,$(1))
plugin_obj  = $(call objects,$(sort $(wildcard providers/$(1)/*.c)))
GEN      := $(BUILD)/gen/migrations.c $(BUILD)/gen/web_index.c
GEN_OBJ  := $(O)/gen/migrations.o $(O)/gen/web_index.o
BINARY   := $(if $(MAIN),$(O)/postrider)
MODULES  := $(PLUGINS:%=$(O)/providers/%.so)
TESTS    := $(UNIT:tests/unit/%.c=$(O)/tests/%)
BAD_SO   := $(BAD:tests/unit/%.c=$(O)/tests/%.so)
FUZZ_BIN := $(FUZZERS:tests/fuzz/%.c=$(O)/fuzz/%)
FUZZ_ANY := $(PLUGINS:%=$(O)/fuzz/fuzz_plugin_%)

.PHONY: all help deps demo test test-unit test-sql test-e2e test-smoke test-programs lint format \
        format-check bench chaos model fuzz fuzz-programs soak lab conformance demo-kannel \
        install uninstall deb clean coverage FORCE

## all           build/postrider and its providers (the default)
all: $(BINARY) $(MODULES)
ifeq ($(FLAVOUR),release)
	@mkdir -p $(O)/providers
	@for name in postrider providers; do ln -sfn "release/$$name" "$(BUILD)/$$name"; done
endif

help:
	@echo "usage: make [TARGET] [V=1] [SAN=address,undefined] [COV=1] [CC=clang]"; echo
	@sed -n 's/^## /  /p' Makefile

# ---- compile and link -------------------------------------------------------------------------
# The stamps change only when their text does: other flags, or a file that came or went, rebuild.
define stamp
	$(Q)mkdir -p $(@D)
	$(Q)printf '%s\n' $(1) | cmp -s - $@ || printf '%s\n' $(1) > $@
endef
$(O)/flags.stamp: FORCE
	$(call stamp,"$(CC) $(FLAGS) $(CFLAGS) $(PREFIX) $(VERSION)")
$(O)/sources.stamp: FORCE
	$(call stamp,"$(OWN) $(wildcard providers/*/*.c)")
$(BUILD)/gen/inputs.stamp: FORCE
	$(call stamp,"$(MIGRATION) $(PAGE)")

$(O)/%.o: %.c $(O)/flags.stamp
	@echo "  CC    $<"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(PIC) $(DEFINES) $(CFLAGS) -MMD -MP -c -o $@ $<

$(O)/gen/%.o: $(BUILD)/gen/%.c $(O)/flags.stamp
	@echo "  CC    $<"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) -fPIE $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/gen/migrations.c: sql/embed.sh $(MIGRATION) $(BUILD)/gen/inputs.stamp
	@echo "  GEN   $@"
	$(Q)mkdir -p $(@D)
	$(Q)sh sql/embed.sh migrations $(MIGRATION) > $@
$(BUILD)/gen/web_index.c: sql/embed.sh $(PAGE) $(BUILD)/gen/inputs.stamp
	@echo "  GEN   $@"
	$(Q)mkdir -p $(@D)
	$(Q)sh sql/embed.sh page $(PAGE) > $@

# Everything but main.o: the executable takes it whole, a test only the members it needs.
$(O)/libpostrider.a: $(call objects,$(OWN)) $(GEN_OBJ) $(O)/sources.stamp
	@echo "  AR    $@"
	$(Q)rm -f $@; ar rcs $@ $(filter %.o,$^)
$(O)/libcore.a: $(call objects,$(CORE)) $(O)/sources.stamp
	@echo "  AR    $@"
	$(Q)rm -f $@; ar rcs $@ $(filter %.o,$^)
$(O)/libkit.a: $(call objects,$(KIT)) $(O)/sources.stamp
	@echo "  AR    $@"
	$(Q)rm -f $@; ar rcs $@ $(filter %.o,$^)

$(O)/postrider: $(call objects,$(MAIN)) $(O)/libpostrider.a
	@echo "  LINK  $@"
	$(Q)$(CC) -pie $(LINK) $(LDFLAGS) -o $@ $^ $(LIBS)

# `-z defs`: a plugin that needs a function of the executable is refused here, not at dlopen.
define plugin_rules
$(O)/providers/$(1).so: $(call plugin_obj,$(1)) $(O)/libkit.a $(O)/libcore.a $(O)/sources.stamp
	@echo "  LINK  $$@"
	$(Q)mkdir -p $$(@D)
	$(Q)$$(CC) -shared $$(LINK) $(if $(SAN)$(FUZZ),,-Wl$(COMMA)-z$(COMMA)defs) $$(LDFLAGS) -o $$@ \
	    $$(filter %.o,$$^) -Wl,--exclude-libs,ALL $(O)/libkit.a $(O)/libcore.a -ljansson -lcrypto -lm
$(O)/plugins/lib$(1).a: $(call plugin_obj,$(1)) $(O)/sources.stamp
	@echo "  AR    $$@"
	$(Q)mkdir -p $$(@D); rm -f $$@; ar rcs $$@ $$(filter %.o,$$^)
endef
COMMA := ,
$(foreach p,$(PLUGINS),$(eval $(call plugin_rules,$(p))))
# Every plugin exports the same symbol: only what a test links by name may be here.
PLUGIN_LIBS := $(O)/plugins/libhttp.a
ARCHIVES    := $(O)/libpostrider.a $(PLUGIN_LIBS)

$(TESTS): $(O)/tests/%: $(O)/tests/unit/%.o $(ARCHIVES)
	@echo "  LINK  $@"
	$(Q)$(CC) -pie $(LINK) $(LDFLAGS) -o $@ $< -Wl,--start-group $(ARCHIVES) -Wl,--end-group \
	    -lcmocka $(LIBS)
# Plugins that break one rule of the ABI each, for test_plugin.
$(BAD_SO): $(O)/tests/badplugins/%.so: $(O)/tests/unit/badplugins/%.o
	@echo "  LINK  $@"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -shared $(LINK) $(LDFLAGS) -o $@ $<
.SECONDARY: $(call objects,$(UNIT) $(FUZZERS) $(BAD) tests/fuzz/plugin_any.c)

$(FUZZ_BIN): $(O)/fuzz/%: $(O)/tests/fuzz/%.o $(ARCHIVES)
	@echo "  LINK  $@"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer $(LINK) $(LDFLAGS) -o $@ $< -Wl,--start-group $(ARCHIVES) \
	    -Wl,--end-group $(LIBS)
# One program a plugin: all export the same symbol.
$(FUZZ_ANY): $(O)/fuzz/fuzz_plugin_%: $(O)/tests/fuzz/plugin_any.o $(O)/plugins/lib%.a $(O)/libpostrider.a
	@echo "  LINK  $@"
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer $(LINK) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(shell find $(O) -name '*.d' 2>/dev/null)

# ---- packages ---------------------------------------------------------------------------------
## deps          install every Debian package that building, testing and linting need
deps:
	@bash deploy/deps.sh
# Targets a newcomer types first install what is missing, say so, and go on in a fresh make that
# sees the new packages.
WITH_DEPS = bash deploy/deps.sh --if-missing && $(MAKE) --no-print-directory $(CORES)

# ---- tests ------------------------------------------------------------------------------------
# `exec`, here and below: a signal to make must reach the program, not a shell in between.
RUN_PYTHON = exec env POSTRIDER="$(O)/postrider" POSTRIDER_TESTS="$(O)/tests" \
      ASAN_OPTIONS="abort_on_error=1:detect_leaks=1:$$ASAN_OPTIONS" \
      UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:$$UBSAN_OPTIONS" $(PYTHON)
RUN = $(RUN_PYTHON) tests/run.py

test-programs: all $(TESTS) $(BAD_SO)

## test          everything below, on a machine that has only Debian; last line N passed, N failed
test:
	@$(WITH_DEPS) test-programs
	@$(MAKE) --no-print-directory $(CORES) fuzz-programs FUZZ_OPTIONAL=1
	@$(RUN) unit sql e2e smoke
## test-unit     unit tests (cmocka)
test-unit: test-programs ; @$(RUN) unit
## test-sql      SQL tests (pgTAP) in a private PostgreSQL
test-sql: test-programs ; @$(RUN) sql
## test-e2e      end to end (pytest); ARGS= goes to pytest, e.g. ARGS="-k torn -x"
test-e2e: test-programs ; @$(RUN) e2e -- $(ARGS)
## test-smoke    every command answers --help, each fuzzer runs a few seconds
test-smoke: test-programs ; @$(RUN) smoke
## coverage      line coverage of unit, SQL and end-to-end tests, a file a line
coverage:
	@$(WITH_DEPS) test-programs COV=1
	@find $(BUILD)/coverage -name '*.gcda' -delete
	-@$(MAKE) --no-print-directory COV=1 coverage-run
	@$(PYTHON) tests/coverage.py $(BUILD)/coverage
coverage-run: ; @$(RUN) unit sql e2e

## conformance   every plugin through every outcome against its vendor's dialect (ARGS="--only twilio")
conformance:
	@$(WITH_DEPS) all $(O)/tests/caps_driver
	@$(RUN_PYTHON) tests/conformance/run.py $(ARGS)

FUZZ_SECONDS ?= 60
## fuzz          run every fuzzer FUZZ_SECONDS (60) under clang's sanitizers
fuzz:
	@$(MAKE) --no-print-directory $(CORES) fuzz-programs
	@exec env POSTRIDER_FUZZ="$(BUILD)/fuzz/fuzz" FUZZ_SECONDS="$(FUZZ_SECONDS)" $(PYTHON) tests/run.py fuzz
# Optional means: without clang's fuzzer the tests go on and say so.
fuzz-programs:
ifdef FUZZ
fuzz-programs: $(FUZZ_BIN) $(FUZZ_ANY) ; @:
else
	@if bash deploy/deps.sh --has-fuzzer; then \
	    $(MAKE) --no-print-directory FUZZ=1 fuzz-programs; \
	elif [ -n "$(FUZZ_OPTIONAL)" ]; then echo "fuzzers skipped: clang's libFuzzer is not installed"; \
	else echo "fuzzing needs clang and its libFuzzer: make deps" >&2; exit 1; fi
endif

# ---- looking at it ----------------------------------------------------------------------------
## demo          a campaign and one-time codes through a killed worker, judged by the phones
demo:
	@$(WITH_DEPS) all
	@exec env POSTRIDER="$(O)/postrider" $(if $(MESSAGES),MESSAGES="$(MESSAGES)") $(PYTHON) tests/lab/demo.py $(ARGS)
## lab           the published laboratory: naive loop beside postrider (JOBS=100000)
lab:
	@$(WITH_DEPS) all
	@exec env POSTRIDER="$(O)/postrider" $(if $(JOBS),JOBS="$(JOBS)") $(PYTHON) tests/lab/lab.py $(ARGS)
## demo-kannel   through a real gateway, Debian's Kannel, whose smsbox is killed twice
demo-kannel:
	@$(WITH_DEPS) all
	@exec env POSTRIDER="$(O)/postrider" $(if $(MESSAGES),MESSAGES="$(MESSAGES)") $(PYTHON) tests/lab/kannel.py $(ARGS)
## bench         messages a second and what they cost (MESSAGES=200000)
bench:
	@$(WITH_DEPS) all
	@exec env POSTRIDER="$(O)/postrider" $(if $(MESSAGES),MESSAGES="$(MESSAGES)") $(PYTHON) tests/bench/bench.py $(ARGS)

# ---- code quality -----------------------------------------------------------------------------
## lint          format, clang-tidy, cppcheck, shellcheck, layers, headers, banned calls
lint: ; @bash tests/lint/lint.sh
## format        rewrite C files in the project's format
format: ; @bash tests/lint/lint.sh --format
## format-check  say which C files are not in it
format-check: ; @bash tests/lint/lint.sh format

# ---- install ----------------------------------------------------------------------------------
SHARE = $(DESTDIR)$(PREFIX)/share/postrider
PLUGIN_DIR = $(DESTDIR)$(PREFIX)/lib/postrider/providers
UNIT_DIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
DOC_DIR = $(DESTDIR)$(PREFIX)/share/doc/postrider
INCLUDE_DIR = $(DESTDIR)$(PREFIX)/include/postrider
## install       into DESTDIR and PREFIX (/usr/local)
install: all
	@echo "  INST  $(DESTDIR)$(PREFIX)"
	$(Q)install -d "$(DESTDIR)$(PREFIX)/bin" "$(PLUGIN_DIR)" "$(SHARE)/sql" "$(SHARE)/examples" \
	    "$(UNIT_DIR)" "$(DOC_DIR)" "$(INCLUDE_DIR)"
	$(Q)install -m 644 providers/provider.h "$(INCLUDE_DIR)/"
	$(Q)install -m 755 $(O)/postrider "$(DESTDIR)$(PREFIX)/bin/postrider"
	$(Q)for so in $(MODULES); do install -m 644 "$$so" "$(PLUGIN_DIR)/" || exit; done
	$(Q)for sql in $(MIGRATION); do install -m 644 "$$sql" "$(SHARE)/sql/" || exit; done
	$(Q)install -m 644 deploy/examples/* "$(SHARE)/examples/"
	$(Q)sed 's|@PREFIX@|$(PREFIX)|g' deploy/systemd/postrider@.service > "$(UNIT_DIR)/postrider@.service"
	$(Q)chmod 644 "$(UNIT_DIR)/postrider@.service"
	$(Q)for doc in $(wildcard README.md ARCHITECTURE.md CHANGELOG.md LICENSE); do \
	    install -m 644 "$$doc" "$(DOC_DIR)/" || exit; done
## uninstall     takes away what install put there
uninstall:
	$(Q)rm -f "$(DESTDIR)$(PREFIX)/bin/postrider" "$(UNIT_DIR)/postrider@.service"
	$(Q)rm -rf "$(DESTDIR)$(PREFIX)/lib/postrider" "$(SHARE)" "$(DOC_DIR)" "$(INCLUDE_DIR)"
## clean         remove build/
clean: ; $(Q)rm -rf $(BUILD)

# ---- not there yet: say so, never pretend -----------------------------------------------------
define later
	@echo "make $@: $(1) is not built yet" >&2; exit 2
endef
## model         (later) the model of claims, crashes and zombies, checked exhaustively
model: ; $(call later,the model checker)
## chaos         (later) random faults in every part for hours, judged by the ledger
chaos: ; $(call later,the chaos run)
## soak          (later) a day of load, watching memory and bloat
soak: ; $(call later,the soak run)
## deb           (later) a Debian package
deb: ; $(call later,the Debian package)
