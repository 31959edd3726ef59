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

/* Whether z is a UUID of versions 1 to 8; writes it in lower case. */
static int readUuid(const char *z, int n, char zId[37]) {
  int i;
  if (n != 36) return 0;
  for (i = 0; i < 36; i++) {
    char c = z[i];
    if (c >= 'A' && c <= 'F') c = (char)(c + ('a' - 'A'));
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (c != '-') return 0;
    } else if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
      return 0;
    }
    zId[i] = c;
  }
  zId[36] = 0;
  return zId[14] >= '1' && zId[14] <= '8' && strchr("89ab", zId[19]) != 0;
}

void bxRolloutId(sqlite3_value *pVal, char zId[37], BxErr *pErr) {
  memset(zId, 0, 37);
  if (pErr->rc != SQLITE_OK) return;
  if (pVal != 0 && sqlite3_value_type(pVal) == SQLITE_TEXT) {
    const char *z = (const char *)sqlite3_value_text(pVal);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    if (z != 0 && readUuid(z, sqlite3_value_bytes(pVal), zId)) return;
  }
  bxRefuse(pErr,
      "InvalidIdError: Invalid conversation ID: %s, it must be an RFC 9562 "
      "UUID such as '5973b6c0-94b8-487b-a530-2aeb6098ae0e'",
      pVal);
}

BxStmts *bxRolloutHome(Bx *bx, BxErr *pErr) {
  return bxHome(bx, "rollout", pErr);
}

/* This changes nothing. It takes the write lock before anything is read, so
** that the busy timeout applies. (RETURNING would build a table.) */
static const char zTouchHead[] =
    "UPDATE main.rollout_heads SET status = status WHERE id = ?1";
static const char zFind[] =
    "SELECT no, last_sequence, expires_at FROM main.rollout_heads "
    "WHERE id = ?1";

int bxRolloutFind(
    BxStmts *p, int bWrite, const char *zId, RolloutHead *pHead, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  int bFound;
  memset(pHead, 0, sizeof(*pHead));
  if (p == 0) return 0;
  if (bWrite) {
    bxDo(p, zTouchHead, pErr, "t", zId);
  }
  pStmt = bxStmt(p, zFind, pErr);
  bxBind(pStmt, pErr, "t", zId);
  bFound = bxRow(pStmt, pErr);
  if (bFound) {
    pHead->no = sqlite3_column_int64(pStmt, 0);
    pHead->iLast = sqlite3_column_int64(pStmt, 1);
    pHead->iExpire = sqlite3_column_type(pStmt, 2) == SQLITE_NULL
                         ? BX_MAX_TIME + 1
                         : sqlite3_column_int64(pStmt, 2);
  }
  bxDone(pStmt, pErr);
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
  static const RolloutHead none = {0, -1, 0};
  char zId[37];
  RolloutHead head;
  BxStmts *p;
  bxRolloutId(pId, zId, pErr);
  p = bxRolloutHome(bx, pErr);
  if (p == 0 || !bxRolloutFind(p, 0, zId, &head, pErr)) return none;
  return head.iExpire < iNow ? none : head;
}

sqlite3_stmt *bxRolloutQuery(Bx *bx, const char *zSql, BxErr *pErr) {
  BxStmts *p = bxRolloutHome(bx, pErr);
  return p ? bxPrepare(p, zSql, pErr) : 0;
}

void bxRolloutExplain(BxErr *pErr, const char *zPrefix) {
  BxErr said;
  if ((pErr->rc & 0xff) == SQLITE_NOMEM) return;
  if (!bxSays(pErr, "unsafe use of")) {
    bxPrefix(pErr, zPrefix);
    return;
  }
  said = bxTake(pErr);
  bxFail(pErr, said.rc,
      "%s%s: SQLite %s refuses this in triggers while trusted_schema is off; "
      "set PRAGMA trusted_schema = ON%s",
      zPrefix, said.zMsg, sqlite3_libversion(),
      bxSays(&said, "virtual table") ? ", or rollout_search_remove()"
                                     : ", or use a later SQLite");
  bxClear(&said);
}

/*--------------------------------------------------- of a connection ----*/

static void freeSlot(void *p) {
  sqlite3_free(((RolloutSlot *)p)->aShut);
  sqlite3_free(p);
}

RolloutSlot *bxRolloutSlot(Bx *bx, BxErr *pErr) {
  BxSlot *pSlot = bxSlot(bx, "rollout");
  if (pErr->rc != SQLITE_OK) return 0;
  if (pSlot->p == 0) pSlot->p = bxNew(sizeof(RolloutSlot), pErr);
  if (pSlot->p != 0) pSlot->xFree = freeSlot;
  return (RolloutSlot *)pSlot->p;
}

/* By schema and number: an id may be used again, a number never is. */
static int findShut(const RolloutSlot *p, const RolloutShut *pWanted) {
  int i;
  for (i = 0; p != 0 && i < p->nShut; i++) {
    const RolloutShut *pShut = &p->aShut[i];
    if (pShut->pHome == pWanted->pHome && pShut->no == pWanted->no &&
        strcmp(pShut->zId, pWanted->zId) == 0) {
      return i;
    }
  }
  return -1;
}

static RolloutShut shutKey(BxStmts *pHome, const char *zId, i64 no) {
  RolloutShut shut = {pHome, {0}, no};
  assert(strlen(zId) < sizeof(shut.zId));
  memcpy(shut.zId, zId, strlen(zId));
  return shut;
}

int bxRolloutIsShut(BxStmts *pHome, const char *zId, i64 no) {
  RolloutShut shut = shutKey(pHome, zId, no);
  return findShut((RolloutSlot *)bxSlot(pHome->bx, "rollout")->p, &shut) >= 0;
}

void bxRolloutNotShut(BxStmts *pHome, const char *zId, i64 no, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || !bxRolloutIsShut(pHome, zId, no)) return;
  bxFail(pErr, SQLITE_MISUSE,
      "RolloutShutDownError: Rollout is shut down: %s, on this connection; "
      "call rollout_resume('%s') to continue it",
      zId, zId);
}

void bxRolloutSetShut(
    BxStmts *pHome, const char *zId, i64 no, int bShut, BxErr *pErr) {
  RolloutSlot *p = bxRolloutSlot(pHome->bx, pErr);
  RolloutShut shut = shutKey(pHome, zId, no), *aNew;
  int i = findShut(p, &shut);
  if (p == 0 || (i >= 0) == bShut) return;
  if (!bShut) {
    p->aShut[i] = p->aShut[--p->nShut];
    return;
  }
  aNew = bxGrow(p->aShut, p->nShut, &p->nShutAlloc, sizeof(shut), pErr);
  if (aNew == 0) return;
  p->aShut = aNew;
  p->aShut[p->nShut++] = shut;
}
