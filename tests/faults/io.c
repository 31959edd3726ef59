/*
** io.c: every operation on a file whose writes fail at each point: with a disk
** error or because the disk is full; once or from there on; alone or inside
** BEGIN; with a write-ahead log or a rollback journal.
**
** What must hold when the file is opened again: it is consistent, and has
** either all of the operation or nothing of it; all, if the call succeeded. So
** evidence exists whenever the ring from which it came is empty. On the
** connection that failed, the next attempt succeeds.
*/
#include "../harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "model.db"
#define WORK "work.db"
#define SAMPLE (isFull() ? 1000 : 1) /* fault points of one case */
#define MAX_CASES 6000

typedef struct Case {
  char zName[140];
  const Operation *pOp;
  FaultKind eKind;
  int bSticky, bBegin, bWal;
  char *zNothing, *zAll; /* contents of the file, opened again */
  i64 nAll;              /* rows queued that the archive has then */
  int nEvent;
} Case;

/* Problems of the model, which some operations mend; NULL until it is asked. */
static char *zKnown;

static const char *known(void) {
  if (zKnown == 0) {
    sqlite3 *db = openDb(MODEL, 0);
    zKnown = problems(db);
    closeDb(db);
  }
  return zKnown;
}

static void makeModel(const Case *p) {
  static const Operation *pMade;
  static int bWal;
  sqlite3 *db;
  if (pMade == p->pOp && bWal == p->bWal) return;
  unlink(MODEL);
  db = openDb(MODEL, "faulty");
  must(db, p->bWal ? "PRAGMA journal_mode = wal" : "PRAGMA journal_mode");
  prepareDb(db, p->pOp);
  sqlite3_free(zKnown);
  zKnown = 0;
  closeDb(db);
  pMade = p->pOp;
  bWal = p->bWal;
}

static sqlite3 *start(const Case *p) {
  sqlite3 *db;
  unlink(WORK "-journal");
  unlink(WORK "-wal");
  unlink(WORK "-shm");
  copyFile(MODEL, WORK);
  db = openDb(WORK, "faulty");
  if (p->pOp->zBefore != 0) must(db, p->pOp->zBefore);
  return db;
}

/* Runs the operation; inside BEGIN, with the rest of the transaction. */
static int act(const Case *p, sqlite3 *db) {
  int rc = SQLITE_OK;
  if (p->bBegin) rc = run(db, "BEGIN; INSERT INTO app VALUES('first')");
  if (rc == SQLITE_OK) rc = run(db, p->pOp->zSql);
  if (rc == SQLITE_OK && p->bBegin) rc = run(db, "COMMIT");
  return rc;
}

/* The contents of the file after every connection is closed. It must be
** consistent. The check reads the newest object first and is thorough only if
** that is a table, so a table is created. */
static char *reopened(const char *zWhere) {
  sqlite3 *db = openDb(WORK, 0);
  char *z = contents(db), *zCheck;
  static int nLook;
  must(db, "CREATE TABLE zz_last(x)");
  zCheck = text(db, "PRAGMA integrity_check");
  mustBeSame(zWhere, zCheck, "ok");
  sqlite3_free(zCheck);
  if (isFull() || nLook++ % 16 == 0) {
    zCheck = problems(db);
    if (strcmp(zCheck, known()) != 0) mustBeSame(zWhere, zCheck, "");
    sqlite3_free(zCheck);
  }
  closeDb(db);
  return z;
}

static i64 queued(void) {
  sqlite3 *db = openDb(WORK, 0);
  i64 n = number(
      db, "SELECT count(*) FROM event_payloads WHERE event_id GLOB 'w*'");
  closeDb(db);
  return n;
}

/* A queued row may be stored without the clean-up that it carries, or in
** another order, or though its call failed; but it must not be lost. */
static int isLoose(const Case *p) {
  return (p->pOp->flags & OP_STAGES) && (p->pOp->flags & OP_CARRIES);
}

static void learn(Case *p) {
  sqlite3 *db;
  makeModel(p);
  db = start(p);
  closeDb(db);
  p->zNothing = reopened("nothing done");
  db = start(p);
  faultArm(p->eKind, -1, 0, db);
  if (act(p, db) != SQLITE_OK) fail_msg("undisturbed: %s", message());
  faultDisarm(&p->nEvent);
  closeDb(db);
  p->zAll = reopened("all done");
  if (isLoose(p)) p->nAll = queued();
}

/* After a failure no transaction is open, and nothing is half done. Sometimes
** tries again. */
static int recover(const Case *p, sqlite3 *db, int iPoint, const char *zWhere) {
  char *zBefore, *zNow;
  int bAgain;
  sqlite3 *dbOther;
  if (!sqlite3_get_autocommit(db)) {
    if (!p->bBegin) fail_msg("%s: a transaction was left open", zWhere);
    must(db, "ROLLBACK");
  }
  if (iPoint % 2 == 0 || p->pOp->flags & OP_STAGES) return 0;
  dbOther = openDb(WORK, 0);
  zNow = contents(dbOther);
  closeDb(dbOther);
  zBefore = p->zNothing;
  bAgain = strcmp(zNow, zBefore) == 0 && strcmp(zNow, p->zAll) != 0;
  sqlite3_free(zNow);
  if (bAgain && act(p, db) != SQLITE_OK) {
    fail_msg("%s: again: %s", zWhere, message());
  }
  return bAgain;
}

static void disturb(const Case *p, int iPoint) {
  char zWhere[200], *z;
  sqlite3 *db = start(p);
  int rc, nFailed, bAll;
  faultArm(p->eKind, iPoint, p->bSticky, db);
  rc = act(p, db);
  nFailed = faultDisarm(0);
  snprintf(zWhere, sizeof(zWhere), "point %d of %d: code %d %.100s", iPoint,
      p->nEvent, rc, rc ? message() : "");
  if (rc != SQLITE_OK && nFailed == 0) fail_msg("%s", zWhere);
  bAll = rc == SQLITE_OK;
  if (!bAll) bAll = recover(p, db, iPoint, zWhere);
  closeDb(db);
  z = reopened(zWhere);
  if (p->pOp->flags & OP_MARKS) bAll = 0;
  if (rc != SQLITE_OK && bAll && p->pOp->flags & OP_LATER) {
    bAll = 0; /* the connection believes that it has looked */
  } else if (isLoose(p)) {
    if (bAll) assert_int_equal(queued(), p->nAll);
  } else if (bAll || strcmp(z, p->zNothing) != 0) {
    mustBeSame(zWhere, z, p->zAll);
  }
  sqlite3_free(z);
}

static void testCase(void **ppState) {
  static int nCase; /* cases begin their samples at different points */
  Case *p = (Case *)*ppState;
  int iPoint, nStep;
  learn(p);
  nStep = p->nEvent <= SAMPLE ? 1 : p->nEvent / SAMPLE;
  for (iPoint = nCase++ % nStep; iPoint <= p->nEvent; iPoint += nStep) {
    disturb(p, iPoint);
  }
  sqlite3_free(p->zNothing);
  sqlite3_free(p->zAll);
}

static int addCases(const Operation *pOp, int iOperation,
    struct CMUnitTest *aTest, Case *aCase) {
  int i, n = 0;
  for (i = 0; i < 16; i++) {
    Case *p = &aCase[n];
    p->pOp = pOp;
    p->bWal = (i & 8) != 0;
    p->eKind = i & 4 ? FAULT_FULL : FAULT_WRITE;
    p->bSticky = (i & 2) != 0;
    p->bBegin = i & 1;
    /* a queued row waits outside the transaction */
    if (p->bBegin && pOp->flags & (OP_ALONE | OP_STAGES | OP_MARKS)) continue;
    if (!isFull() && iOperation % 2 == 0) continue; /* disturb.c has those */
    if (!isPicked(i, iOperation / 2, 40)) continue;
    snprintf(p->zName, sizeof(p->zName), "%s: %s%s%s%s", pOp->zName,
        i & 4 ? "full" : "i/o", p->bSticky ? " from there on" : "",
        p->bBegin ? ", in BEGIN" : "", p->bWal ? ", wal" : "");
    aTest[n].name = p->zName;
    aTest[n].test_func = testCase;
    aTest[n++].initial_state = p;
  }
  return n;
}

/* The argument: see chooseOperations(). */
int main(int argc, char **argv) {
  static struct CMUnitTest aTest[MAX_CASES];
  static Case aCase[MAX_CASES];
  const Operation *pOp;
  int i, n = 0;
  stopClock();
  faultVfs();
  chooseOperations(argc, argv);
  for (i = 0; (pOp = chosenOperation(i)) != 0; i++) {
    n += addCases(pOp, i, &aTest[n], &aCase[n]);
    if (n > MAX_CASES - 40) return 1;
  }
  return _cmocka_run_group_tests("io", aTest, (size_t)n, 0, 0);
}
