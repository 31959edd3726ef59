/*
** writes.c: xUpdate of every virtual table, while a statement inside it fails in
** each of the ways of failures.c.
**
** What must hold, in the transaction if it is still open, and after its end: of the
** host's statement there is everything if it has succeeded, and nothing if it has
** failed. A transaction that SQLite has rolled back was told by an error.
**
** The virtual table tiny shows that the rule of ext/core/transaction.c is enough for that,
** and that without the rule these failures leave half writes.
*/
#include "writes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "model.db"
#define WORK "work.db"
#define SIDE "side.db"
#define MAX_WRITTEN 200
#define MAX_TARGETS 1000

typedef enum { ALONE, IN_BEGIN, IN_SAVEPOINT, N_SHAPE } Shape;

/* A statement of the host. */
typedef struct Target {
  char zName[140];
  const Operation *pOp;
  char *zSql;
  const char *zJournal;
  int bTiny;
  Written aWritten[MAX_WRITTEN];
  int nWritten;
  int nPoint; /* inner statements that write */
} Target;

/* What has come of the runs. */
typedef struct Tally {
  int nRun, nReached, nFailed;
  int nHalf; /* the statement failed, and a part of it stayed */
  int nLost; /* it succeeded, and a part of it, or of the transaction, is gone */
  int nKnown; /* the first, as expected for now */
  char zFirst[4000];
} Tally;

/*------------------------------------------------------------ connections --*/

static void forget(const char *zFile) {
  char z[40];
  unlink(zFile);
  snprintf(z, sizeof(z), "%s-journal", zFile);
  unlink(z);
  snprintf(z, sizeof(z), "%s-wal", zFile);
  unlink(z);
  snprintf(z, sizeof(z), "%s-shm", zFile);
  unlink(z);
}

static void setJournal(sqlite3 *db, const char *zJournal) {
  char zSql[60], zOut[40];
  snprintf(zSql, sizeof(zSql), "PRAGMA journal_mode = %s", zJournal);
  assert_int_equal(runOut(db, zSql, zOut, sizeof(zOut)), SQLITE_OK);
}

static char *zKnown; /* problems of the model */

static void makeModel(const Target *p) {
  static const Operation *pMade;
  static const char *zJournal;
  sqlite3 *db;
  if (pMade == p->pOp && zJournal == p->zJournal) return;
  forget(MODEL);
  db = openDb(MODEL, "faulty");
  tinyRegister(db);
  setJournal(db, p->zJournal);
  if (p->bTiny) {
    must(db, p->pOp->zSetup);
  } else {
    prepareDb(db, p->pOp);
    sqlite3_free(zKnown);
    zKnown = problems(db);
  }
  closeDb(db);
  pMade = p->pOp;
  zJournal = p->zJournal;
}

static sqlite3 *start(const Target *p, int bShared) {
  sqlite3 *db;
  makeModel(p);
  forget(WORK);
  forget(SIDE);
  copyFile(MODEL, WORK);
  db = openDb(bShared ? "file:" WORK "?cache=shared" : WORK, "faulty");
  tinyRegister(db);
  failureReady(db);
  setJournal(db, p->zJournal);
  must(db, "CREATE TEMP TABLE mine(x)");
  if (p->pOp->zBefore != 0) must(db, p->pOp->zBefore);
  return db;
}

static sqlite3 *startOther(const Target *p, const Failure *pFailure) {
  sqlite3 *db = 0;
  const char *zFile = pFailure->flags & SHARED ? "file:" WORK "?cache=shared"
                      : p->bTiny               ? SIDE
                                               : WORK;
  if (pFailure->zOther == 0) return 0;
  db = openDb(zFile, "faulty");
  tinyRegister(db);
  return db;
}

/* With something of the host's own. */
static void begin(sqlite3 *db, const Failure *p, Shape eShape) {
  if (eShape == ALONE) return;
  must(db, "BEGIN; INSERT INTO mine VALUES('first')");
  if (!(p->flags & LOCKS)) must(db, "INSERT INTO app VALUES('first')");
  if (eShape == IN_SAVEPOINT) must(db, "SAVEPOINT s");
}

/*--------------------------------------------------------------- verdicts --*/

/* Takes the rows of the tables whose names begin so out of contents. */
static void leaveOut(char *z, const char *zTables) {
  char *zTo = z;
  while (*z != 0) {
    char *zEnd = strchr(z, '\n') + 1;
    if (strncmp(z, zTables, strlen(zTables)) != 0) {
      memmove(zTo, z, (size_t)(zEnd - z));
      zTo += zEnd - z;
    }
    z = zEnd;
  }
  *zTo = 0;
}

/* What is stored, without what tiny writes beside its records. */
static char *stored(const Target *p, sqlite3 *db) {
  char *z = contents(db);
  if (p->bTiny) leaveOut(z, "t_log|");
  return z;
}

/* One run. */
typedef struct Run {
  Target *p;
  const Failure *pFailure;
  const Written *pWritten;
  int iPoint;
  Shape eShape;
  Tally *pTally;
  char *zOutside, *zBefore, *zNow; /* what is stored */
  char *zSaid;
  int rc, bOpen; /* of the statement */
} Run;

static void describe(Run *r, const char *zWhat, const char *zShould) {
  static const char *const azShape[] = {"alone", "in BEGIN", "in a savepoint"};
  Tally *t = r->pTally;
  const char *zIs = r->zNow;
  int i = 0, iLine = 0;
  if (t->zFirst[0] != 0 && getenv("BLACKBOX_WRITES") == 0) return;
  for (; zShould != 0 && zIs[i] != 0 && zIs[i] == zShould[i]; i++) {
    if (zIs[i] == '\n') iLine = i + 1;
  }
  snprintf(t->zFirst, sizeof(t->zFirst),
      "%s: %s at %s %s %d (%s, %s): %s: %d %s\n--- is\n%.300s\n--- should "
      "be\n%.300s\n",
      r->p->zName, r->pFailure->zName, r->pWritten->zOp, r->pWritten->zTable,
      r->iPoint, azShape[r->eShape], r->p->zJournal, zWhat, r->rc, r->zSaid,
      zIs + iLine, zShould ? zShould + iLine : "");
  if (getenv("BLACKBOX_WRITES") != 0) printf("%s", t->zFirst);
}

/* What the statement leaves if nothing fails; NULL if it fails all the same. */
static char *undisturbed(const Run *r) {
  sqlite3 *db = start(r->p, 0);
  char *z = 0;
  if (r->pFailure->zArrange != 0) {
    failureArrange(db, 0, r->pFailure, r->pWritten);
  }
  begin(db, r->pFailure, r->eShape);
  failureArm(db, 0, 0);
  if (run(db, r->p->zSql) == SQLITE_OK) z = stored(r->p, db);
  failureCalm(0);
  if (!sqlite3_get_autocommit(db)) must(db, "ROLLBACK");
  closeDb(db);
  return z;
}

/* After success everything is there, or the log says what was left out, if it can be
** written. Its rows may wait for their leaves. A trigger of the user with RAISE(IGNORE) may leave something
** out. */
static void judgeSuccess(Run *r) {
  static const char *const azBeside[] = {"blackbox__tree|", "blackbox__leaves|",
      "blackbox__log|", "payload_verdicts|", "payload_agents|"};
  /* The log of a ring in temp is in main, which may be locked alone. */
  int bAway = strstr(r->p->zSql, "temp.") != 0 &&
              strcmp(r->pFailure->zName, "file locked") == 0;
  int nBeside = (bAway || r->pFailure->flags & MUTES) && !r->p->bTiny ? 5 : 2;
  char *zAll;
  int i;
  if (r->eShape != ALONE && !r->bOpen) {
    r->pTally->nLost++;
    describe(r, "succeeded, and the transaction is gone", r->zBefore);
    return;
  }
  if (r->pFailure->flags & DAMAGES) return;
  if (r->pFailure->flags & SILENT && !r->p->bTiny) return;
  if (strstr(r->zNow, "|3 refusal|") || strstr(r->zNow, "|3 passed_over|") ||
      strstr(r->zNow, "|3 repair|"))
    return;
  if (r->p->pOp->flags & (OP_CARRIES | OP_STAGES | OP_MARKS | OP_LATER)) return;
  if (strstr(r->p->zSql, "OR IGNORE") && strcmp(r->zNow, r->zBefore) == 0)
    return;
  zAll = undisturbed(r);
  if (zAll == 0) return;
  for (i = 0; i < nBeside; i++) {
    leaveOut(zAll, azBeside[i]);
    leaveOut(r->zNow, azBeside[i]);
  }
  if (strcmp(zAll, r->zNow) != 0) {
    r->pTally->nLost++;
    describe(r, "succeeded, and did not do everything", zAll);
  }
  sqlite3_free(zAll);
}

/* What spans two files is two steps: without a rollback journal, one commits after
** the other. */
static int isTwoSteps(const Run *r) {
  return r->p->bTiny && r->p->pOp->zBefore != 0 && r->eShape == ALONE &&
         r->pFailure->flags & FILES && strcmp(r->p->zJournal, "delete") != 0;
}

static void judge(Run *r) {
  const char *zShould = r->bOpen ? r->zBefore : r->zOutside;
  r->pTally->nFailed += r->rc != SQLITE_OK;
  if (r->rc == SQLITE_OK) {
    judgeSuccess(r);
  } else if (strcmp(r->zNow, zShould) == 0 || isTwoSteps(r)) {
    return;
  } else if (r->pFailure->flags & KNOWN && r->pWritten->bTrigger) {
    r->pTally->nKnown++;
  } else {
    r->pTally->nHalf++;
    describe(r, "failed, and changed something", zShould);
  }
}

/* The end of the transaction, and the file. */
static void finish(Run *r, sqlite3 *db) {
  int bCommit = r->pTally->nRun % 2;
  char *z;
  if (r->bOpen) must(db, bCommit ? "COMMIT" : "ROLLBACK");
  z = stored(r->p, db);
  if (!bCommit || !(r->p->pOp->flags & OP_COMMITS)) {
    mustBeSame(r->p->zName, z, r->bOpen && !bCommit ? r->zOutside : r->zNow);
  }
  sqlite3_free(z);
  if (r->pTally->nRun % 8 != 0) return;
  /* (what mutes a row of the log may also keep a leaf from being taken back) */
  if (!r->p->bTiny &&
      (r->pFailure->flags & (AT_STATEMENT | MUTES)) == AT_STATEMENT) {
    z = problems(db);
    if (strcmp(z, zKnown) != 0) mustBeSame(r->p->zName, z, "");
    sqlite3_free(z);
  }
  must(db, "CREATE TABLE zz_last(x)"); /* the check needs a table at the end */
  z = text(db, "PRAGMA integrity_check");
  mustBeSame(r->p->zName, z, "ok");
  sqlite3_free(z);
}

/* Runs the statement while it fails. */
static void execute(Run *r, sqlite3 *db, sqlite3 *pOther) {
  r->zOutside = stored(r->p, db);
  begin(db, r->pFailure, r->eShape);
  r->zBefore = stored(r->p, db);
  failureArm(db, r->pFailure, r->iPoint);
  r->rc = run(db, r->p->zSql);
  r->zSaid = sqlite3_mprintf("%s", message());
  r->pTally->nReached += failureCalm(0) || r->rc != SQLITE_OK;
  r->bOpen = !sqlite3_get_autocommit(db);
  if (pOther != 0) closeDb(pOther);
  r->zNow = stored(r->p, db);
  finish(r, db);
}

static void runOne(Run *r) {
  sqlite3 *db = start(r->p, r->pFailure->flags & SHARED);
  sqlite3 *pOther = startOther(r->p, r->pFailure);
  int bRuns = failureArrange(db, pOther, r->pFailure, r->pWritten);
  if (bRuns) {
    r->pTally->nRun++;
    execute(r, db, pOther);
  } else if (pOther != 0) {
    closeDb(pOther);
  }
  closeDb(db);
  if (!bRuns) return;
  judge(r);
  sqlite3_free(r->zOutside);
  sqlite3_free(r->zBefore);
  sqlite3_free(r->zNow);
  sqlite3_free(r->zSaid);
}

/* Fills in what the statement writes. Returns 0 if it fails undisturbed. */
static int learn(Target *p) {
  sqlite3 *db = start(p, 0);
  int rc;
  failureArm(db, 0, -1);
  rc = run(db, p->zSql);
  failureCalm(&p->nPoint);
  closeDb(db);
  if (rc != SQLITE_OK) return 0;
  db = start(p, 0);
  p->nWritten = failureLearn(db, p->zSql, p->aWritten, MAX_WRITTEN);
  closeDb(db);
  return 1;
}

/* Runs one of nPick cases of a statement. */
static void runSome(Target *p, const Failure *pFailure, int nPick, Tally *t) {
  static int nCase;
  static const Written none = {"main", "", "", 0};
  int bPoint = pFailure->flags & AT_STATEMENT, i, e;
  for (i = 0; i < (bPoint ? p->nPoint : p->nWritten); i++) {
    for (e = 0; e < (p->pOp->flags & OP_ALONE ? 1 : N_SHAPE); e++) {
      Run r = {p, pFailure, bPoint ? &none : &p->aWritten[i], bPoint ? i : 0,
          (Shape)e, t, 0, 0, 0, 0, 0, 0};
      if (nCase++ % nPick == 0) runOne(&r);
    }
  }
}

/*------------------------------------------------------------------- tiny --*/

#define TINY(schema, rule)                                                     \
  "CREATE TABLE app(x); CREATE VIRTUAL TABLE t USING tiny(" schema ", " rule   \
  ");"                                                                         \
  "CREATE TABLE t_record(id INTEGER PRIMARY KEY, n, body);"                    \
  "CREATE TABLE t_log(n, body);"                                               \
  "CREATE TRIGGER theirs AFTER INSERT ON app WHEN NEW.x = 'go' BEGIN"          \
  "  INSERT INTO t(n, body) VALUES(4, 'four'); END;"                           \
  "INSERT INTO t_record VALUES(1, 10, 'ten'), (2, 20, zeroblob(9000));"
#define COUNTER(schema)                                                        \
  "CREATE TABLE " schema ".t_counter(total INTEGER PRIMARY KEY, k, body);"     \
  "INSERT INTO " schema                                                        \
  ".t_counter VALUES(30, 'sum', NULL), (-1, 'none', x'00')"
#define BESIDE "ATTACH '" SIDE "' AS side;" COUNTER("side")

/* For each rule: the counter in the same file, and in another. */
static const Operation aTiny[2][2] = {
    {{"without the rule", TINY("main", "0") COUNTER("main"), 0, 0, 0},
        {"without the rule, in two files", TINY("side", "0"), BESIDE, 0, 0}},
    {{"with the rule", TINY("main", "1") COUNTER("main"), 0, 0, 0},
        {"with the rule, in two files", TINY("side", "1"), BESIDE, 0, 0}}};

static char *const azTiny[] = {"INSERT INTO t(n, body) VALUES(5, 'five')",
    "INSERT INTO t(n, body) VALUES(5, 'five'), (6, zeroblob(9000))",
    "INSERT INTO t(n, body) SELECT * FROM (VALUES(7, 8), (9, 10))",
    "INSERT OR IGNORE INTO t(n, body) VALUES(5, zeroblob(9000))",
    "INSERT OR FAIL INTO t(n, body) VALUES(5, zeroblob(9000))",
    "INSERT OR ROLLBACK INTO t(n, body) VALUES(5, zeroblob(9000))",
    "UPDATE t SET n = 99 WHERE rowid = 1", "UPDATE t SET n = n + 1",
    "DELETE FROM t WHERE rowid = 1", "DELETE FROM t",
    "INSERT INTO app VALUES('go')", 0};

static void runTiny(int bRule, Tally *pSum) {
  static const char *const azJournal[] = {"delete", "wal", "memory"};
  static Target target;
  int iFile, iJournal, i, n = 0;
  for (iFile = 0; iFile < 2; iFile++) {
    for (iJournal = 0; iJournal < 3; iJournal++) {
      for (i = 0; azTiny[i] != 0; i++) {
        const Failure *p;
        memset(&target, 0, sizeof(target));
        target.pOp = &aTiny[bRule][iFile];
        target.zJournal = azJournal[iJournal];
        target.zSql = azTiny[i];
        target.bTiny = 1;
        snprintf(target.zName, sizeof(target.zName), "%s: %s",
            target.pOp->zName, target.zSql);
        assert_true(learn(&target));
        for (p = aFailure; p->zName != 0; p++) {
          runSome(&target, p, isFull() ? 3 : 97, &pSum[p - aFailure]);
        }
        n++;
      }
    }
  }
}

static void tell(const Tally *aTally) {
  int i;
  for (i = 0; aFailure[i].zName != 0; i++) {
    const Tally *t = &aTally[i];
    print_message("%-24s %6d runs, %6d reached, %6d failed, %5d half, %5d "
                  "lost\n",
        aFailure[i].zName, t->nRun, t->nReached, t->nFailed, t->nHalf,
        t->nLost);
  }
}

static void testRule(void **ppState) {
  static Tally aTally[40];
  int i;
  (void)ppState;
  runTiny(1, aTally);
  tell(aTally);
  for (i = 0; aFailure[i].zName != 0; i++) {
    if (aTally[i].zFirst[0] != 0) fail_msg("%s", aTally[i].zFirst);
    if (aTally[i].nReached == 0 && !(aFailure[i].flags & DAMAGES)) {
      fail_msg("no %s", aFailure[i].zName);
    }
  }
}

static void testNoRule(void **ppState) {
  static Tally aTally[40];
  int i, nHalf = 0, nLost = 0;
  (void)ppState;
  runTiny(0, aTally);
  tell(aTally);
  for (i = 0; aFailure[i].zName != 0; i++) {
    nHalf += aTally[i].nHalf;
    nLost += aTally[i].nLost;
  }
  assert_true(nHalf > 0 && nLost > 0);
}

/*-------------------------------------------------------------- the module --*/

/* The row of blackbox_call for SELECT command(arguments), to free(); NULL if it is
** another statement. */
static char *asRow(const char *zSql) {
  static const char zSelect[] = "SELECT ";
  size_t nName, n = strlen(zSql);
  char *z;
  if (strncmp(zSql, zSelect, strlen(zSelect)) != 0) return 0;
  zSql += strlen(zSelect);
  n -= strlen(zSelect);
  if (n > 0 && zSql[n - 1] == ';') n--;
  nName = strspn(zSql, "abcdefghijklmnopqrstuvwxyz_");
  if (strstr(zSql, "blackbox_install") || strstr(zSql, "uninstall")) return 0;
  if (zSql[nName] != '(' || zSql[n - 1] != ')') return 0;
  z = malloc(n + 100);
  assert_non_null(z);
  snprintf(z, n + 100,
      "INSERT INTO blackbox_call(command, arguments) VALUES('%.*s', "
      "json_array%.*s)",
      (int)nName, zSql, (int)(n - nName), zSql + nName);
  return z;
}

/* The name of the table that a statement writes; NULL if it is no such statement. */
static const char *tableOf(const char *zSql) {
  static const char *const azVerb[] = {"INSERT INTO ", "DELETE FROM ",
      "UPDATE ", "INSERT OR IGNORE INTO ", "INSERT OR REPLACE INTO "};
  size_t i;
  for (i = 0; i < sizeof(azVerb) / sizeof(azVerb[0]); i++) {
    size_t n = strlen(azVerb[i]);
    if (strncmp(zSql, azVerb[i], n) != 0) continue;
    return strncmp(zSql + n, "temp.", 5) == 0 ? zSql + n + 5 : zSql + n;
  }
  return 0;
}

/* Whether that is a virtual table. */
static int isVirtual(sqlite3 *db, const char *zTable) {
  int n = (int)strspn(zTable, "abcdefghijklmnopqrstuvwxyz_"), bVirtual;
  char *z = sqlite3_mprintf(
      "SELECT '%.*s' IN ('payload_queue', 'blackbox_call') OR EXISTS ("
      "SELECT 1 FROM (SELECT * FROM main.sqlite_schema UNION ALL SELECT * "
      "FROM temp.sqlite_schema) WHERE name = '%.*s' AND rootpage = 0 AND "
      "type = 'table')",
      n, zTable, n, zTable);
  bVirtual = (int)number(db, z);
  sqlite3_free(z);
  return bVirtual;
}

static void testTarget(void **ppState) {
  Target *p = (Target *)*ppState;
  static Tally tally;
  const Failure *pFailure;
  sqlite3 *db;
  int bVirtual;
  db = start(p, 0);
  bVirtual = isVirtual(db, tableOf(p->zSql));
  closeDb(db);
  if (!bVirtual || !learn(p)) return;
  memset(&tally, 0, sizeof(tally));
  for (pFailure = aFailure; pFailure->zName != 0; pFailure++) {
    runSome(p, pFailure, isFull() ? 13 : 151, &tally);
  }
  print_message(
      "%d tables, %d statements: %d runs, %d failed, %d half, %d lost\n",
      p->nWritten, p->nPoint, tally.nRun, tally.nFailed, tally.nHalf,
      tally.nLost);
  if (tally.zFirst[0] != 0) fail_msg("%s", tally.zFirst);
}

/* The user's trigger on a table that a trigger of blackbox writes ends with RAISE(FAIL).
** SQLite then keeps what the statement has done before, and tells nobody (KNOWN). A kill
** switch writes event_payloads itself, and so notices it. */
static void testKnown(void **ppState) {
  static Target target;
  Tally tally = {0};
  const Failure *pFailure = aFailure;
  int i = 0;
  (void)ppState;
  do {
    target.pOp = anyOperation(i++);
    assert_non_null(target.pOp);
  } while (strcmp(target.pOp->zName, "kill switch as a row") != 0);
  target.zSql = (char *)target.pOp->zSql;
  target.zJournal = "delete";
  assert_true(learn(&target));
  while (strcmp(pFailure->zName, "RAISE(FAIL) after") != 0) pFailure++;
  for (i = 0; i < target.nWritten; i++) {
    const Written *p = &target.aWritten[i];
    Run r = {&target, pFailure, p, 0, IN_BEGIN, &tally, 0, 0, 0, 0, 0, 0};
    if (strcmp(p->zTable, "event_payloads") == 0) runOne(&r);
  }
  assert_int_equal(tally.nHalf + tally.nLost + tally.nKnown, 0);
}

static int addTarget(const Operation *pOp, char *zSql, Target *pTarget,
    struct CMUnitTest *pTest) {
  static int nTarget;
  if (zSql == 0) return 0;
  if (tableOf(zSql) == 0 || !isPicked(nTarget++, 0, 23)) {
    if (zSql != pOp->zSql) free(zSql);
    return 0;
  }
  pTarget->pOp = pOp;
  pTarget->zSql = zSql;
  pTarget->zJournal = "delete";
  snprintf(pTarget->zName, sizeof(pTarget->zName), "%s%s", pOp->zName,
      zSql == pOp->zSql ? "" : ", as a row");
  pTest->name = pTarget->zName;
  pTest->test_func = testTarget;
  pTest->initial_state = pTarget;
  return 1;
}

/* The argument: see chooseOperations(). */
int main(int argc, char **argv) {
  static Target aTarget[MAX_TARGETS];
  static struct CMUnitTest aTest[MAX_TARGETS] = {cmocka_unit_test(testRule),
      cmocka_unit_test(testNoRule), cmocka_unit_test(testKnown)};
  const Operation *pOp;
  int i, n;
  sqlite3_config(SQLITE_CONFIG_URI, 1);
  sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, 0);
  faultMemory();
  stopClock();
  faultVfs();
  chooseOperations(argc, argv);
  n = isFirstPart() ? 3 : 0;
  for (i = 0; (pOp = chosenOperation(i)) != 0; i++) {
    n += addTarget(pOp, (char *)pOp->zSql, &aTarget[n], &aTest[n]);
    n += addTarget(pOp, asRow(pOp->zSql), &aTarget[n], &aTest[n]);
    if (n > MAX_TARGETS - 2) return 1;
  }
  return _cmocka_run_group_tests("writes", aTest, (size_t)n, 0, 0);
}
