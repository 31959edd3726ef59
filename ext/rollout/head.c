/*
** head.c: finds conversations by their id, reports what is wrong with one, and
** remembers which ones were shut down on this connection.
**
** An id is an RFC 9562 UUID of any version, stored in lower case. A shutdown is
** a state of the connection, stored in the domain's memory slot;
** rollout_resume() ends it.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

int bxRolloutUuid(const char *z, int n, char zId[37]) {
  int i;
  assert(n >= 0);
  if (n != 36) return 0;
  for (i = 0; i < 36; i++) {
    char c = z[i];
    if (c >= 'A' && c <= 'F') c = (char)(c + ('a' - 'A'));
    if (i == 8 || i == 13 || i == 18 || i == 23
            ? c != '-'
            : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
      return 0;
    }
    zId[i] = c;
  }
  zId[36] = 0;
  return 1;
}

void bxRolloutId(sqlite3_value *pVal, char zId[37], BxErr *pErr) {
  memset(zId, 0, 37);
  if (pErr->rc != SQLITE_OK) return;
  if (pVal != 0 && sqlite3_value_type(pVal) == SQLITE_TEXT) {
    const char *z = (const char *)sqlite3_value_text(pVal);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    if (z != 0 && bxRolloutUuid(z, sqlite3_value_bytes(pVal), zId) &&
        zId[14] >= '1' && zId[14] <= '8' && strchr("89ab", zId[19]) != 0) {
      return;
    }
  }
  bxRefuse(pErr,
      "InvalidIdError: Invalid conversation ID: %s, it must be an RFC 9562 "
      "UUID such as '5973b6c0-94b8-487b-a530-2aeb6098ae0e'",
      pVal);
}

BxStmts *bxRolloutSchema(Bx *bx, BxErr *pErr) {
  return bxDomainSchema(bx, "rollout", pErr);
}

/* The guard's guess of a user event among the items that wait is no fact yet. */
static const char zFind[] =
    "SELECT no, last_sequence, expires_at, turns, iif(user_sequence >= behind, "
    "-1, coalesce(user_sequence, -1)), updated, coalesce(behind, -1), EXISTS "
    "(SELECT 1 FROM main.rollout__heads WHERE behind IS NOT NULL), whole "
    "FROM main.rollout__heads WHERE id = ?1";

int bxRolloutFind(
    BxStmts *p, int bWrite, const char *zId, RolloutHead *pHead, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  int bFound;
  memset(pHead, 0, sizeof(*pHead));
  pHead->iLast = pHead->iUser = pHead->iBehind = -1;
  if (p == 0) return 0;
  if (bWrite) bxLock(p, pErr); /* now, so that the busy timeout applies */
  pStmt = bxStmt(p, zFind, pErr);
  bxBind(pStmt, pErr, "t", zId);
  bFound = bxStep(pStmt, pErr);
  if (bFound) {
    pHead->no = sqlite3_column_int64(pStmt, 0);
    pHead->iLast = sqlite3_column_int64(pStmt, 1);
    pHead->iExpire = sqlite3_column_type(pStmt, 2) == SQLITE_NULL
                         ? BX_MAX_TIME + 1
                         : sqlite3_column_int64(pStmt, 2);
    pHead->nTurn = sqlite3_column_int64(pStmt, 3);
    pHead->iUser = sqlite3_column_int64(pStmt, 4);
    pHead->iUpdated = sqlite3_column_int64(pStmt, 5);
    pHead->iBehind = sqlite3_column_int64(pStmt, 6);
    pHead->bAnyBehind = sqlite3_column_int(pStmt, 7);
    pHead->bImported = sqlite3_column_int(pStmt, 8);
  }
  bxReset(pStmt, pErr);
  if (bFound && (pHead->no < 1 || pHead->no > 2147483647 || pHead->iLast < -1 ||
                    pHead->iLast > ROLLOUT_LAST)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedRolloutError: Corrupted rollout: the counters of %s are out "
        "of range; rollout_items shows the items that exist",
        zId);
  }
  return bFound && pErr->rc == SQLITE_OK;
}

i64 bxRolloutKey(i64 no, i64 iSequence) {
  assert(no >= 0 && iSequence >= 0 && iSequence <= ROLLOUT_LAST);
  return (no << 32) + iSequence;
}

void bxRolloutMissing(const char *zId, BxErr *pErr) {
  bxFail(pErr, SQLITE_ERROR,
      "RolloutNotFoundError: Rollout not found: %s; SELECT "
      "rollout_create('%s') to start it",
      zId, zId);
}

void bxRolloutExists(const char *zId, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "RolloutExistsError: %s already exists; call rollout_resume('%s') to "
      "continue it, if it has not expired",
      zId, zId);
}

void bxRolloutExpired(const char *zId, i64 iExpire, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "RolloutExpiredError: Rollout expired: %s, at %lld; UPDATE rollouts SET "
      "expires_at = 'permanent' WHERE id = '%s' to continue it",
      zId, iExpire, zId);
}

BxStmts *bxRolloutNamed(BxCall *p, char zId[37], RolloutHead *pHead) {
  BxStmts *pHome;
  bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  bxRolloutOpen(pHome, 0, zId, 0, pHead, &p->err);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

void bxRolloutOpen(BxStmts *p, int bWrite, const char *zId, i64 iNow,
    RolloutHead *pHead, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  if (!bxRolloutFind(p, bWrite, zId, pHead, pErr)) {
    bxRolloutMissing(zId, pErr);
  } else if (pHead->iExpire < iNow) {
    bxRolloutExpired(zId, pHead->iExpire, pErr);
  }
}

RolloutHead bxRolloutLive(Bx *bx, sqlite3_value *pId, i64 iNow, BxErr *pErr) {
  static const RolloutHead none = {0, -1, 0, 0, -1, 0, -1, 0, 0};
  char zId[37];
  RolloutHead head;
  BxStmts *p;
  bxRolloutId(pId, zId, pErr);
  p = bxRolloutSchema(bx, pErr);
  if (p == 0 || !bxRolloutFind(p, 0, zId, &head, pErr)) return none;
  return head.iExpire < iNow ? none : head;
}

sqlite3_stmt *bxRolloutQuery(Bx *bx, const char *zSql, BxErr *pErr) {
  BxStmts *p = bxRolloutSchema(bx, pErr);
  return p ? bxPrepare(p, zSql, pErr) : 0;
}

void bxRolloutExplain(BxErr *pErr, const char *zPrefix) {
  BxErr said;
  if ((pErr->rc & 0xff) == SQLITE_NOMEM) return;
  if (!bxErrContains(pErr, "unsafe use of")) {
    bxErrPrefix(pErr, zPrefix);
    return;
  }
  said = bxErrTake(pErr);
  bxFail(pErr, said.rc,
      "%s%s: SQLite %s refuses this in triggers while trusted_schema is off; "
      "set PRAGMA trusted_schema = ON%s",
      zPrefix, said.zMsg, sqlite3_libversion(),
      bxErrContains(&said, "virtual table") ? ", or rollout_search_remove()"
                                            : ", or use a later SQLite");
  bxErrClear(&said);
}

/*--------------------------------------------------- of a connection ----*/

/* A conversation that was shut down here. */
typedef struct Shut {
  BxStmts *pHome; /* its schema */
  char zId[37];
} Shut;

static void freeMemory(void *p) {
  RolloutMemory *pMemory = p;
  bxRolloutRulesFree(pMemory->pRules);
  bxMaskFree(&pMemory->masking);
  sqlite3_free(pMemory->aShut);
  sqlite3_free(pMemory);
}

RolloutMemory *bxRolloutMemory(Bx *bx, BxErr *pErr) {
  BxDomainData *pSlot = bxDomainData(bx, "rollout");
  if (pSlot->p == 0 && pErr->rc == SQLITE_OK) {
    pSlot->p = bxZalloc(sizeof(RolloutMemory), pErr);
    pSlot->xFree = freeMemory;
  }
  return pSlot->p;
}

char *bxRolloutMask(BxStmts *pHome, const char **pz, i64 *pn, BxErr *pErr) {
  RolloutMemory *p = pHome ? bxRolloutMemory(pHome->bx, pErr) : 0;
  const RolloutRules *pRules =
      p != 0 && *pz != 0 ? bxRolloutRules(pHome, 0, pErr) : 0;
  char *z = 0;
  assert(*pn >= 0);
  if (pRules == 0 || pErr->rc != SQLITE_OK || !pRules->bMask) {
    if (p != 0) p->masking.pFrom = 0; /* nobody notes changes until then */
    return 0;
  }
  z = bxMaskText(&p->masking, pHome, "rollout.secrets", *pz, *pn, pn, pErr);
  if (z != 0) *pz = z;
  return z;
}

void bxRolloutMaskEnd(BxStmts *pHome, char *z) {
  RolloutMemory *p = pHome ? bxDomainData(pHome->bx, "rollout")->p : 0;
  /* a row of blackbox_call counts as one more change: then they are read again */
  if (p != 0) p->masking.nChange = sqlite3_total_changes(pHome->bx->db);
  sqlite3_free(z);
}

/* Its entry in the list, or NULL. */
static Shut *findShut(BxStmts *pHome, const char *zId) {
  const RolloutMemory *p = bxDomainData(pHome->bx, "rollout")->p;
  i64 i;
  for (i = 0; p != 0 && i < p->nShut; i++) {
    if (p->aShut[i].pHome == pHome && strcmp(p->aShut[i].zId, zId) == 0) {
      return &p->aShut[i];
    }
  }
  return 0;
}

int bxRolloutIsClosed(BxStmts *pHome, const char *zId) {
  return findShut(pHome, zId) != 0;
}

void bxRolloutRequireOpen(BxStmts *pHome, const char *zId, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || !bxRolloutIsClosed(pHome, zId)) return;
  bxFail(pErr, SQLITE_MISUSE,
      "RolloutShutDownError: Rollout is shut down: %s, on this connection; "
      "call rollout_resume('%s') to continue it",
      zId, zId);
}

void bxRolloutSetClosed(
    BxStmts *pHome, const char *zId, int bShut, BxErr *pErr) {
  Shut *pShut = findShut(pHome, zId);
  RolloutMemory *p;
  assert(bShut == 0 || bShut == 1);
  if ((pShut != 0) == bShut || pErr->rc != SQLITE_OK) return;
  p = bxRolloutMemory(pHome->bx, pErr);
  if (p == 0) return;
  if (!bShut) {
    *pShut = p->aShut[--p->nShut];
    return;
  }
  pShut =
      bxArrayAdd(&p->aShut, &p->nShut, &p->nShutAlloc, sizeof(*pShut), pErr);
  if (pShut == 0) return;
  pShut->pHome = pHome;
  sqlite3_snprintf((int)sizeof(pShut->zId), pShut->zId, "%s", zId);
}
