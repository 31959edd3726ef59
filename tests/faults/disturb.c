/*
** disturb.c: every operation, while memory runs out or an interrupt comes, at
** each point: once, or from there on; alone, or inside BEGIN.
**
** What must hold: the call either succeeds with the same answer as if nothing
** had happened, or fails with NOMEM or INTERRUPT, says so, and has changed
** nothing. (In some of these cases SQLite itself rolls back the whole
** transaction; then nothing of it may remain.) blackbox_check() reports
** nothing, the next attempt succeeds, the connection closes, and all memory is
** freed.
**
** An interrupt has more cases, at every point of a connection whose prepared
** statements have expired: no transaction may stay open. It also comes from
** another thread, between any two instructions.
*/
#define _POSIX_C_SOURCE 200809L
#include "../harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_OUT 20000
#define MAX_CASES 9000
#define SAMPLE 60 /* fault points of one case in the full run */

typedef struct Case {
  char zName[120];
  const Operation *pOp;
  FaultKind eKind;
  int bSticky, bBegin;
  /* of the undisturbed run */
  char *zOutside, *zBefore, *zAfter; /* contents */
  char zOut[MAX_OUT];
  int nEvent;
} Case;

/* What the cases of one operation begin with, computed by the first. */
static struct {
  const Operation *pOp;
  unsigned char *aByte;
  i64 nByte;
  char *zProblems; /* known beforehand; NULL until it is asked */
} model;

static void makeModel(const Operation *pOp) {
  sqlite3 *db;
  if (model.pOp == pOp) return;
  sqlite3_free(model.aByte);
  free(model.zProblems);
  memset(&model, 0, sizeof(model));
  db = openDb(0, 0);
  prepareDb(db, pOp);
  model.aByte = sqlite3_serialize(db, "main", &model.nByte, 0);
  model.pOp = pOp;
  closeDb(db);
}

static const char *knownProblems(void) {
  if (model.zProblems == 0) {
    sqlite3 *db = openCopy(model.aByte, model.nByte);
    char *z = problems(db);
    model.zProblems = strdup(z); /* not memory of SQLite, which is counted */
    sqlite3_free(z);
    closeDb(db);
  }
  return model.zProblems;
}

static sqlite3 *start(const Case *p) {
  sqlite3 *db = openCopy(model.aByte, model.nByte);
  if (p->pOp->zBefore != 0) must(db, p->pOp->zBefore);
  return db;
}

static void begin(const Case *p, sqlite3 *db) {
  if (p->bBegin) must(db, "BEGIN; INSERT INTO app VALUES('first')");
}

/* The undisturbed run: the contents before, and the result. */
static void learn(Case *p) {
  sqlite3 *db;
  makeModel(p->pOp);
  db = start(p);
  p->zOutside = contents(db);
  begin(p, db);
  p->zBefore = contents(db);
  faultArm(p->eKind, -1, 0, db);
  if (runOut(db, p->pOp->zSql, p->zOut, MAX_OUT) != SQLITE_OK) {
    fail_msg("undisturbed: %s", message());
  }
  faultDisarm(&p->nEvent);
  p->zAfter = contents(db);
  closeDb(db);
  assert_true(p->nEvent > 0);
}

static void forget(Case *p) {
  sqlite3_free(p->zOutside);
  sqlite3_free(p->zBefore);
  sqlite3_free(p->zAfter);
}

static void same(const Case *p, int iPoint, const char *zWhat, const char *zIs,
    const char *zShould) {
  char zWhere[200];
  snprintf(
      zWhere, sizeof(zWhere), "point %d of %d: %s", iPoint, p->nEvent, zWhat);
  mustBeSame(zWhere, zIs, zShould);
}

static int isExpected(const Case *p, int rc) {
  if (p->eKind != FAULT_MEMORY) {
    /* ALTER TABLE has its own message, and so has a virtual table whose
    ** declaration was interrupted */
    return (rc & 0xff) == SQLITE_INTERRUPT ||
           strstr(message(), "interrupted") ||
           strstr(message(), "vtable constructor failed") ||
           /* a row value, whose compilation was interrupted */
           strstr(message(), "columns assigned");
  }
  return ((rc & 0xff) == SQLITE_NOMEM && strstr(message(), "out of memory")) ||
         rc == SQLITE_IOERR_NOMEM;
}

/* The rows in the queue and the archive together: none lost, none twice. */
static i64 queued(sqlite3 *db) {
  return number(db,
      "SELECT (SELECT count(*) FROM event_payloads WHERE event_id GLOB 'w*')"
      " + (SELECT count(*) FROM payload_queue)");
}

/* After success a row is there once. After failure it is not there, unless the
** failure came when it waited: what flushes the queue then may fail, and SQLite makes
** the whole statement fail when there was no memory for a part of it. */
static void judgeQueue(const Case *p, int rc, i64 nMore) {
  int bDone = p->eKind != FAULT_MEMORY || p->pOp->flags & OP_CARRIES;
  if (rc != SQLITE_OK && nMore == 1 && bDone) return;
  assert_int_equal(nMore, rc == SQLITE_OK);
}

/* After a failure nothing has changed, and the next attempt succeeds. An
** interrupt may also come when everything is done. */
static void judgeFailure(Case *p, sqlite3 *db, int iPoint) {
  int bRolledBack;
  char *z;
  int bDone;
  bRolledBack = p->bBegin && sqlite3_get_autocommit(db);
  z = contents(db);
  bDone =
      (p->eKind != FAULT_MEMORY || p->pOp->flags & (OP_CARRIES | OP_MARKS)) &&
      strcmp(z, p->zAfter) == 0;
  if (!p->bBegin && !sqlite3_get_autocommit(db)) {
    fail_msg("point %d of %d: a transaction was left open", iPoint, p->nEvent);
  }
  if (!bDone) {
    same(p, iPoint, "failed, and changed something", z,
        bRolledBack ? p->zOutside : p->zBefore);
  }
  sqlite3_free(z);
  if (bDone) return;
  if (bRolledBack) begin(p, db);
  if (run(db, p->pOp->zSql) != SQLITE_OK) {
    fail_msg("point %d of %d: again: %s", iPoint, p->nEvent, message());
  }
}

/* The result is consistent. Checking everything takes time. */
static void judgeWhole(Case *p, sqlite3 *db, int iPoint) {
  static int nLook;
  char *z;
  if (!isFull() && nLook++ % 16 != 0) return;
  z = problems(db);
  if (strcmp(z, knownProblems()) != 0) same(p, iPoint, "in the end", z, "");
  sqlite3_free(z);
}

static void disturb(Case *p, int iPoint, int *pbFired) {
  char zOut[MAX_OUT];
  sqlite3 *db = start(p);
  i64 nQueued;
  char *z;
  int rc;
  begin(p, db);
  nQueued = p->pOp->flags & OP_STAGES ? queued(db) : 0;
  faultArm(p->eKind, iPoint, p->bSticky, db);
  rc = runOut(db, p->pOp->zSql, zOut, MAX_OUT);
  *pbFired = faultDisarm(0) > 0;
  if (rc != SQLITE_OK && !isExpected(p, rc)) {
    fail_msg("point %d of %d: code %d %s", iPoint, p->nEvent, rc, message());
  }
  if (rc == SQLITE_OK) {
    same(p, iPoint, "succeeded, with another result", zOut, p->zOut);
  }
  if (p->pOp->flags & OP_STAGES) {
    judgeQueue(p, rc, queued(db) - nQueued);
  } else {
    if (rc != SQLITE_OK) judgeFailure(p, db, iPoint);
    z = contents(db);
    if (!(p->pOp->flags & OP_MARKS) || strcmp(z, p->zBefore) != 0) {
      same(p, iPoint, rc ? "failed, then went wrong" : "succeeded, but", z,
          p->zAfter);
    }
    sqlite3_free(z);
  }
  judgeWhole(p, db, iPoint);
  closeDb(db);
}

/* The same, and all memory is freed. Returns whether the fault took place. */
static int disturbAt(Case *p, int iPoint, i64 nUsed) {
  int bFired;
  disturb(p, iPoint, &bFired);
  if (sqlite3_memory_used() != nUsed) {
    fail_msg("point %d of %d: %lld bytes not given back", iPoint, p->nEvent,
        sqlite3_memory_used() - nUsed);
  }
  return bFired;
}

/* In the quick run: the first fault, and one more, at another place in each
** case. */
static void testCase(void **ppState) {
  Case *p = (Case *)*ppState;
  static int nCase;
  i64 nUsed;
  int iPoint, bFired, nStep;
  learn(p);
  disturb(p, 0, &bFired); /* this also fills the caches of SQLite */
  assert_true(bFired);
  nUsed = sqlite3_memory_used();
  nStep = p->nEvent < SAMPLE ? 1 : p->nEvent / SAMPLE;
  iPoint = (int)((i64)p->nEvent * (++nCase * 61 % 97) / 97);
  if (!isFull()) {
    disturbAt(p, iPoint, nUsed);
  } else {
    for (iPoint %= nStep; bFired || iPoint < p->nEvent; iPoint += nStep) {
      bFired = disturbAt(p, iPoint, nUsed);
    }
  }
  forget(p);
}

/*------------------------------------------------- stopped at every point --*/

/* What is in the file, as bytes. The counters of its header, which each commit
** moves, are made 0. Those of a database in memory are not copied. */
static unsigned char *image(sqlite3 *db, i64 *pnByte) {
  unsigned char *a =
      sqlite3_serialize(db, "main", pnByte, SQLITE_SERIALIZE_NOCOPY);
  assert_non_null(a);
  memset(a + 24, 0, 4);
  memset(a + 92, 0, 4);
  return a;
}

typedef struct Image {
  unsigned char *a;
  i64 n;
} Image;

static Image copyImage(sqlite3 *db) {
  Image copy;
  unsigned char *a = image(db, &copy.n);
  copy.a = malloc((size_t)copy.n);
  assert_non_null(copy.a);
  memcpy(copy.a, a, (size_t)copy.n);
  return copy;
}

static int isImage(sqlite3 *db, const Image *p) {
  i64 n;
  unsigned char *a = image(db, &n);
  return n == p->n && memcmp(a, p->a, (size_t)n) == 0;
}

/* One operation that is stopped again and again on one connection. */
typedef struct Stop {
  Case *p;
  sqlite3 *db;
  Image outside, inside; /* the file before, and with app's row */
  int bUndone;           /* every statement has to be prepared anew each time */
} Stop;

static void stopOpen(Stop *pStop) {
  sqlite3 *db = pStop->db = start(pStop->p);
  must(db, "BEGIN; INSERT INTO app VALUES('first'); COMMIT");
  pStop->inside = copyImage(db);
  must(db, "DELETE FROM app");
  pStop->outside = copyImage(db);
}

static void stopClose(Stop *pStop) {
  free(pStop->inside.a);
  free(pStop->outside.a);
  closeDb(pStop->db);
}

/* An operation that was stopped has changed nothing, or everything; returns
** which. Inside BEGIN the row of app exists unless SQLite rolled back. */
static int stopJudge(Stop *pStop, int iPoint) {
  Case *p = pStop->p;
  sqlite3 *db = pStop->db;
  int bInside = !sqlite3_get_autocommit(db), bDone;
  char *z;
  if (bInside) must(db, "COMMIT");
  assert_int_not_equal(sqlite3_txn_state(db, 0), SQLITE_TXN_WRITE);
  if (isImage(db, bInside ? &pStop->inside : &pStop->outside)) {
    if (bInside) must(db, "DELETE FROM app");
    return 0;
  }
  z = contents(db);
  bDone = strcmp(z, p->zAfter) == 0;
  if (!bDone) {
    same(p, iPoint, "stopped, and changed something", z,
        bInside ? p->zBefore : p->zOutside);
  }
  sqlite3_free(z);
  return 1;
}

static void stopBegin(const Stop *pStop) {
  if (pStop->bUndone) must(pStop->db, "ATTACH ':memory:' AS gone; DETACH gone");
  begin(pStop->p, pStop->db);
}

/* The number of points, on the connection as it is opened. */
static int stopCount(Stop *pStop) {
  Case *p = pStop->p;
  char zOut[MAX_OUT];
  int n;
  stopBegin(pStop);
  faultArm(p->eKind, -1, 0, pStop->db);
  if (runOut(pStop->db, p->pOp->zSql, zOut, MAX_OUT) != SQLITE_OK) {
    fail_msg("undisturbed: %s", message());
  }
  faultDisarm(&n);
  stopClose(pStop);
  stopOpen(pStop);
  return n;
}

/* A call that returned rc has succeeded, or was stopped. */
static void stopExpected(const Stop *pStop, int iPoint, int rc, char *zOut) {
  const Case *p = pStop->p;
  if (rc == SQLITE_OK) {
    same(p, iPoint, "succeeded, with another result", zOut, p->zOut);
  } else if (!isExpected(p, rc)) {
    fail_msg("point %d of %d: code %d %s", iPoint, p->nEvent, rc, message());
  }
  if (!p->bBegin && !sqlite3_get_autocommit(pStop->db)) {
    fail_msg("point %d of %d: a transaction was left open", iPoint, p->nEvent);
  }
}

/* Judges what such a call has left. */
static void stopVerdict(Stop *pStop, int iPoint, int rc, i64 nQueued) {
  int bChanged = 1;
  if (pStop->p->pOp->flags & OP_STAGES) {
    judgeQueue(pStop->p, rc, queued(pStop->db) - nQueued);
  } else if (rc != SQLITE_OK) {
    bChanged = stopJudge(pStop, iPoint);
  }
  if (bChanged) {
    stopClose(pStop);
    stopOpen(pStop);
  }
}

/* Stops at one point. Returns 0 when the operation has no such point. */
static int stopAt(Stop *pStop, int iPoint) {
  Case *p = pStop->p;
  char zOut[MAX_OUT];
  i64 nQueued;
  int rc;
  stopBegin(pStop);
  nQueued = p->pOp->flags & OP_STAGES ? queued(pStop->db) : 0;
  faultArm(p->eKind, iPoint, p->bSticky, pStop->db);
  rc = runOut(pStop->db, p->pOp->zSql, zOut, MAX_OUT);
  if (faultDisarm(0) == 0) return 0;
  stopExpected(pStop, iPoint, rc, zOut);
  stopVerdict(pStop, iPoint, rc, nQueued);
  return 1;
}

/* In the quick run: the points around the ends of a savepoint, and some
** between. A statement that must be prepared again can take more steps than
** were counted. */
static int nextPoint(const Case *p, int iPoint) {
  int iEnd = p->nEvent - 4;
  if (isFull() || iPoint < 2) return iPoint + 1;
  if (iPoint >= iEnd && iPoint < p->nEvent) return iPoint + 1;
  iPoint += p->nEvent / 4 + 1;
  return iPoint < iEnd || iPoint > p->nEvent ? iPoint : iEnd;
}

static void testStopped(void **ppState) {
  Case *p = (Case *)*ppState;
  Stop stop = {p, 0, {0, 0}, {0, 0}, 0};
  int iPoint, bFired;
  learn(p);
  stopOpen(&stop);
  for (stop.bUndone = !isFull(); stop.bUndone < 2; stop.bUndone++) {
    p->nEvent = stopCount(&stop);
    for (iPoint = 0, bFired = 1; bFired; iPoint = nextPoint(p, iPoint)) {
      bFired = stopAt(&stop, iPoint);
      if (!bFired && iPoint == 0) fail_msg("nothing was stopped");
    }
    stopClose(&stop);
    stopOpen(&stop);
  }
  stopClose(&stop);
  forget(p);
}

/*------------------------------------------ interrupted by another thread --*/

/* Interrupts a call some time after its start, once or until it ends. The call
** may end before; that is right too. */
typedef struct Interrupter {
  pthread_t thread;
  sqlite3 *db;
  i64 nDelay; /* nanoseconds */
  int bAgain;
  atomic_int eState;
} Interrupter;
enum { STARTING, READY, CALLING, ENDED };

static i64 nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits at least that long, without taking time from the other thread. */
static void rest(i64 nTime) {
  struct timespec t = {
      (time_t)(nTime / 1000000000), (long)(nTime % 1000000000)};
  nanosleep(&t, 0);
}

static void *interrupter(void *pArg) {
  Interrupter *p = (Interrupter *)pArg;
  atomic_store(&p->eState, READY);
  while (atomic_load(&p->eState) == READY) rest(1000);
  rest(p->nDelay);
  do {
    sqlite3_interrupt(p->db);
    rest(1000);
  } while (p->bAgain && atomic_load(&p->eState) == CALLING);
  return 0;
}

static int runInterrupted(Interrupter *p, const char *zSql, char *zOut) {
  int rc;
  atomic_init(&p->eState, STARTING);
  assert_int_equal(pthread_create(&p->thread, 0, interrupter, p), 0);
  while (atomic_load(&p->eState) == STARTING) rest(1000);
  atomic_store(&p->eState, CALLING);
  rc = runOut(p->db, zSql, zOut, MAX_OUT);
  atomic_store(&p->eState, ENDED);
  assert_int_equal(pthread_join(p->thread, 0), 0);
  return rc;
}

/* A write that succeeds in autocommit is in the file at once. */
static void mustKeepWrites(sqlite3 *db) {
  Image before = copyImage(db);
  must(db, "INSERT INTO app VALUES('first')");
  assert_false(isImage(db, &before));
  must(db, "DELETE FROM app");
  free(before.a);
}

/* Numbers that seem random, the same in every run. */
static unsigned int chance(void) {
  static unsigned int n = 2463534242;
  n ^= n << 13;
  n ^= n >> 17;
  return n ^= n << 5;
}

/* How long the operation takes on the connection as it is opened. */
static i64 stopTime(Stop *pStop) {
  char zOut[MAX_OUT];
  i64 iStart;
  stopBegin(pStop);
  iStart = nanoseconds();
  runOut(pStop->db, pStop->p->pOp->zSql, zOut, MAX_OUT);
  iStart = nanoseconds() - iStart;
  stopClose(pStop);
  stopOpen(pStop);
  return iStart;
}

static void testThread(void **ppState) {
  Case *p = (Case *)*ppState;
  Stop stop = {p, 0, {0, 0}, {0, 0}, 0};
  Interrupter other = {0};
  char zOut[MAX_OUT];
  i64 nTime, nQueued;
  int i, rc, nStopped = 0;
  learn(p);
  p->nEvent = isFull() ? 40 : 4;
  stopOpen(&stop);
  nTime = stopTime(&stop);
  for (i = 0; i < p->nEvent; i++) {
    stop.bUndone = i % 2;
    stopBegin(&stop);
    nQueued = p->pOp->flags & OP_STAGES ? queued(stop.db) : 0;
    other.db = stop.db;
    other.bAgain = i / 2 % 2;
    other.nDelay = (i64)(chance() % 1100) * nTime / 1000;
    rc = runInterrupted(&other, p->pOp->zSql, zOut);
    stopExpected(&stop, i, rc, zOut);
    if (sqlite3_get_autocommit(stop.db)) mustKeepWrites(stop.db);
    stopVerdict(&stop, i, rc, nQueued);
    nStopped += rc != SQLITE_OK;
  }
  print_message("%d of %d calls were stopped\n", nStopped, p->nEvent);
  stopClose(&stop);
  forget(p);
}

/*------------------------------------------------------------------ loading --*/

/* Loading fails at each point (in the quick run, at some points). The result
** must not crash, and the next attempt must succeed. */
static void testLoad(void **ppState) {
  int iPoint, bSticky, bFired;
  i64 nUsed = 0;
  (void)ppState;
  for (bSticky = 0; bSticky < 2; bSticky++) {
    for (iPoint = 0, bFired = 1; bFired; iPoint += isFull() ? 1 : 149) {
      sqlite3 *db;
      char *z, *zErr = 0;
      int rc;
      assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
      sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, (void *)0, 0, 0);
      must(db, "CREATE TABLE app(x)");
      faultArm(FAULT_MEMORY, iPoint, bSticky, db);
      rc = sqlite3_blackbox_init(db, &zErr, 0);
      bFired = faultDisarm(0) > 0;
      sqlite3_free(zErr);
      if (rc != SQLITE_OK) {
        assert_int_equal(rc, SQLITE_NOMEM);
        run(db, "INSERT INTO blackbox_call(command, arguments) "
                "VALUES('payload_queue', '[1,2,3,4]')");
        run(db, "SELECT payload_queue(1,2,3,4)");
        run(db, "SELECT * FROM payload_queue");
        run(db, "SELECT * FROM payload_waiting");
      }
      addModule(db);
      must(db, "SELECT blackbox_install('main', 'payload');"
               "CREATE VIRTUAL TABLE ring USING payload_ring;"
               "INSERT INTO blackbox_settings(name, value) "
               "VALUES('payload.enabled', 1);"
               "SELECT payload_queue(1,2,3,4);"
               "SELECT count(*) FROM payload_queue");
      z = problems(db);
      assert_string_equal(z, "");
      sqlite3_free(z);
      closeDb(db);
      if (nUsed == 0) nUsed = sqlite3_memory_used();
      assert_int_equal(sqlite3_memory_used(), nUsed);
    }
    assert_true(iPoint > 50);
  }
}

/* A second load without memory changes nothing. */
static void testLoadAgain(void **ppState) {
  int iPoint, bFired = 1;
  (void)ppState;
  for (iPoint = 0; bFired; iPoint++) {
    sqlite3 *db = openDb(0, 0);
    char *zErr = 0;
    int rc;
    must(db, "SELECT blackbox_install();"
             "INSERT INTO blackbox_settings(name, value) "
             "VALUES('payload.enabled', 1),"
             "  ('payload.queue_mode', 'memory');"
             "SELECT payload_queue('e','a','q','r')");
    faultArm(FAULT_MEMORY, iPoint, 1, db);
    rc = sqlite3_blackbox_init(db, &zErr, 0);
    bFired = faultDisarm(0) > 0;
    sqlite3_free(zErr);
    assert_true(rc == SQLITE_OK || rc == SQLITE_NOMEM);
    assert_int_equal(number(db, "SELECT count(*) FROM payload_queue"), 1);
    must(db, "SELECT payload_flush()");
    assert_int_equal(number(db, "SELECT count(*) FROM event_payloads"), 1);
    closeDb(db);
  }
  assert_true(iPoint > 5);
}

/* The cases of testStopped(). */
static int addStops(const Operation *pOp, int iOperation,
    struct CMUnitTest *aTest, Case *aCase) {
  static const struct {
    const char *zName;
    FaultKind eKind;
    int bSticky;
  } aKind[] = {
      {"stopped", FAULT_STEP, 0},
      {"stopped from there on", FAULT_STEP, 1},
      {"interrupted", FAULT_INTERRUPT, 0},
      {"no memory", FAULT_MEMORY, 0},
      {"no memory from there on", FAULT_MEMORY, 1},
  };
  int i, bBegin, n = 0, nBegin = pOp->flags & OP_ALONE ? 1 : 2;
  for (i = 0; i < 5; i++) {
    for (bBegin = 0; bBegin < nBegin; bBegin++) {
      Case *p = &aCase[n];
      if (!isPicked((i + 5) * nBegin + bBegin, iOperation, 10 * nBegin))
        continue;
      p->pOp = pOp;
      p->eKind = aKind[i].eKind;
      p->bSticky = aKind[i].bSticky;
      p->bBegin = bBegin;
      snprintf(p->zName, sizeof(p->zName), "%s: %s anywhere%s", pOp->zName,
          aKind[i].zName, bBegin ? ", in BEGIN" : "");
      aTest[n].name = p->zName;
      aTest[n].test_func = testStopped;
      aTest[n++].initial_state = p;
    }
  }
  return n;
}

/* The cases of testThread(). */
static int addThreads(const Operation *pOp, int iOperation,
    struct CMUnitTest *aTest, Case *aCase) {
  int bBegin, n = 0;
  for (bBegin = 0; bBegin < (pOp->flags & OP_ALONE ? 1 : 2); bBegin++) {
    Case *p = &aCase[n];
    if (!isPicked(bBegin * 8, iOperation, 40)) continue;
    p->pOp = pOp;
    p->eKind = FAULT_INTERRUPT;
    p->bBegin = bBegin;
    snprintf(p->zName, sizeof(p->zName), "%s: interrupted by a thread%s",
        pOp->zName, bBegin ? ", in BEGIN" : "");
    aTest[n].name = p->zName;
    aTest[n].test_func = testThread;
    aTest[n++].initial_state = p;
  }
  return n;
}

/* In the quick run one operation of two has one case here or in addStops(). */
static int addCases(const Operation *pOp, int iOperation,
    struct CMUnitTest *aTest, Case *aCase) {
  static const struct {
    const char *zName;
    FaultKind eKind;
    int bSticky;
  } aKind[] = {
      {"memory", FAULT_MEMORY, 0},
      {"memory from there on", FAULT_MEMORY, 1},
      {"stopped", FAULT_STEP, 0},
      {"stopped from there on", FAULT_STEP, 1},
      {"interrupt", FAULT_INTERRUPT, 0},
  };
  int i, bBegin, n = 0, nBegin = pOp->flags & OP_ALONE ? 1 : 2;
  for (i = 0; i < 5; i++) {
    for (bBegin = 0; bBegin < nBegin; bBegin++) {
      Case *p = &aCase[n];
      if (!isPicked(i * nBegin + bBegin, iOperation, 10 * nBegin)) continue;
      p->pOp = pOp;
      p->eKind = aKind[i].eKind;
      p->bSticky = aKind[i].bSticky;
      p->bBegin = bBegin;
      snprintf(p->zName, sizeof(p->zName), "%s: %s%s", pOp->zName,
          aKind[i].zName, bBegin ? ", in BEGIN" : "");
      aTest[n].name = p->zName;
      aTest[n].test_func = testCase;
      aTest[n++].initial_state = p;
    }
  }
  return n;
}

/* The argument: see chooseOperations(). */
int main(int argc, char **argv) {
  static struct CMUnitTest aTest[MAX_CASES];
  static Case aCase[MAX_CASES];
  const Operation *pOp;
  int i, n = 0;
  faultMemory();
  stopClock();
  chooseOperations(argc, argv);
  if (isFirstPart()) {
    aTest[n++] = (struct CMUnitTest)cmocka_unit_test(testLoad);
    aTest[n++] = (struct CMUnitTest)cmocka_unit_test(testLoadAgain);
  }
  for (i = 0; (pOp = chosenOperation(i)) != 0; i++) {
    if (isFull() || i % 2 == 0) {
      n += addCases(pOp, i / 2, &aTest[n], &aCase[n]);
      n += addStops(pOp, i / 2, &aTest[n], &aCase[n]);
    }
    n += addThreads(pOp, i, &aTest[n], &aCase[n]);
    if (n > MAX_CASES - 40) return 1;
  }
  return _cmocka_run_group_tests("disturb", aTest, (size_t)n, 0, 0);
}
