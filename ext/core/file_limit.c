/*
** file_limit.c: blackbox.max_file_bytes, the limit of the pages of a file in use.
**
** After a row that it has written, the module looks whether the file is above the
** limit (bxFileLimitTend): at each row if the file is near the limit, otherwise at every
** ROOM_STEP-th row of a connection. Then about as many bytes go as there are too many:
**
**   texts that nothing refers to   swept first, as only then their pages are free;
**                                  nothing else goes meanwhile
**   rows of the domains            of the first domain that has some, the oldest
**                                  first; ROOM_LOOK rows at most are looked at for
**                                  each row that was written
**   with a push                    one row; if the file has grown, the next push
**                                  removes it, as that one writes less
**
** The rows that blackbox may remove stay while they take less than a ROOM_SHARE-th
** of the limit, however large the tables of others are. What they take is estimated
** from the sums that are kept.
**
** All of it runs inside an INSERT that inserts nothing. SQLite makes a savepoint for
** that also where the module cannot: in xUpdate. A row that a hold keeps, or whose
** removal fails, is passed over, and the log says so once a day. The rows that the
** write has just written stay, however old their times are: they are acknowledged.
*/
#include "core.h"
#include "log.h"
#include "file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define ROOM_LOOK 100
#define ROOM_SHARE 4
#define ROOM_STEP 64
#define ROOM_ROWS 16 /* rows that go at most for each row that was written */
#define ROOM_FEW 6 /* the write does nothing else beside it if more have gone */
#define ROOM_AGAIN 600000 /* ms after which kept rows are looked at again */
#define LIMIT_SETTING "blackbox.max_file_bytes"

/* What one write removes. */
typedef struct Making {
  BxStmts *p;
  i64 nGone, nHeld, nRefused; /* rows */
  char *zWhy;                 /* the first refusal */
} Making;

static i64 roomLimit(BxStmts *p, BxErr *pErr) {
  static const char zLimit[] =
      "SELECT value FROM main.blackbox_settings WHERE name = '" LIMIT_SETTING
      "'";
  return bxQueryInt(p, zLimit, pErr, "");
}

/* The bytes that the file has above its limit; less than 0: below it. (SQLite prepares
** PRAGMA page_size anew each time.) */
static i64 roomOver(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char zCount[] = "PRAGMA main.page_count";
  static const char zFree[] = "PRAGMA main.freelist_count";
  static const char zSize[] = "PRAGMA main.page_size";
  i64 nPage, iSchema;
  if (nLimit == 0) return 0;
  iSchema = bxSchemaVersion(p, pErr);
  if (p->room.nPageSize == 0 || p->room.iSchema != iSchema) {
    p->room.nPageSize = bxQueryInt(p, zSize, pErr, "");
    p->room.iSchema = iSchema;
  }
  nPage = bxQueryInt(p, zCount, pErr, "") - bxQueryInt(p, zFree, pErr, "");
  return pErr->rc == SQLITE_OK ? nPage * p->room.nPageSize - nLimit : 0;
}

i64 bxFileLimitExcess(BxStmts *p, BxErr *pErr) {
  return roomOver(p, roomLimit(p, pErr), pErr);
}

/* The domains that are installed, a bit each. */
static i64 roomDomains(BxStmts *p, BxErr *pErr) {
  static const char zHas[] = "SELECT domain FROM main.blackbox_domains";
  sqlite3_stmt *pStmt = bxStmt(p, zHas, pErr);
  i64 mHas = 0;
  int i;
  while (bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 0, pErr);
    for (i = 0; z != 0 && i < p->bx->nDomain; i++) {
      if (strcmp(z, p->bx->aDomain[i].zName) == 0) mHas |= (i64)1 << i;
    }
  }
  bxReset(pStmt, pErr);
  return mHas;
}

/* What domain i removes; NULL: nothing, or it is not installed. */
static const BxFileLimit *roomOf(BxStmts *p, i64 mHas, int i) {
  return mHas >> i & 1 ? p->bx->aDomain[i].pRoom : 0;
}

static void roomNote(
    BxStmts *p, const BxFileLimit *pRoom, int bBegin, BxErr *pErr) {
  const BxDue *pDue = pRoom->pDue;
  bxStmtExec(
      p, pDue->zNote, pErr, "t", bBegin ? strchr(pDue->zRule, '.') + 1 : 0);
}

static void roomRemove(
    Making *m, const BxFileLimit *pRoom, i64 iRow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  bxStmtExec(m->p, pRoom->zRemove, &err, "i", iRow);
  if (err.rc == SQLITE_OK) {
    m->nGone++;
  } else if (bxErrMayIgnore(m->p, &err)) {
    m->nRefused++;
    if (m->zWhy == 0) m->zWhy = sqlite3_mprintf("%s", err.zMsg);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

/* Removes the oldest rows of a domain, of so many bytes. Returns about how many bytes
** went. Rows that are all kept are not looked at again for a while: those behind them
** are what goes next. */
static i64 roomOldest(Making *m, BxDomainData *pSlot, const BxFileLimit *pRoom,
    i64 nWant, BxErr *pErr) {
  i64 aRow[ROOM_LOOK], n = 0, nByte = 0, nLook = 0, nGone = m->nGone, iAt = 0,
                       i;
  sqlite3_stmt *pStmt;
  if (nWant <= 0) return 0;
  if (pSlot->pRoom != m->p || bxNow() > pSlot->iRoomUntil) {
    pSlot->pRoom = m->p;
    pSlot->iRoom = -BX_MAX_TIME * 100;
    pSlot->iRoomUntil = bxNow() + ROOM_AGAIN;
  }
  pStmt = bxStmt(m->p, pRoom->zOldest, pErr);
  bxBind(pStmt, pErr, "ii", pSlot->iRoom, (i64)ROOM_LOOK);
  while (nByte < nWant && n < m->p->room.nMost && bxStep(pStmt, pErr)) {
    i64 iRow = sqlite3_column_int64(pStmt, 0);
    if (pRoom == m->p->room.pNew && iRow >= m->p->room.iNew &&
        iRow <= m->p->room.iNewLast) {
      continue;
    }
    iAt = sqlite3_column_int64(pStmt, 2);
    nLook++;
    if (sqlite3_column_int(pStmt, 3)) {
      m->nHeld++;
    } else {
      aRow[n++] = iRow;
      nByte += sqlite3_column_int64(pStmt, 1);
    }
  }
  bxReset(pStmt, pErr);
  /* (A refusal could end the transaction.) */
  if (n > 0 &&
      bxOthersRefuse(m->p, pRoom->pDue->zRule, pRoom->pDue->zTable, pErr)) {
    m->nRefused += n;
    return 0;
  }
  if (n > 0) roomNote(m->p, pRoom, 1, pErr);
  for (i = 0; i < n; i++) roomRemove(m, pRoom, aRow[i], pErr);
  if (n > 0) roomNote(m->p, pRoom, 0, pErr);
  m->p->room.nMost -= m->nGone - nGone;
  m->p->room.bAgain = nLook == ROOM_LOOK && nByte < nWant;
  if (nLook == ROOM_LOOK && m->nGone == nGone) {
    pSlot->iRoom = iAt > pSlot->iRoom ? iAt : pSlot->iRoom + 1;
  }
  return m->nGone > nGone ? nByte : 0;
}

/* Says in the log once a day that rows stay. */
static void roomSay(const Making *m, BxErr *pErr) {
  static const char zSaid[] =
      "SELECT EXISTS (SELECT 1 FROM main.blackbox__log WHERE subject ="
      " '" LIMIT_SETTING "' AND at > ?1 - ?2 AND kind = 'refusal')";
  static const char zSay[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, reason)"
      " VALUES(?1, 'core', 'refusal', '" LIMIT_SETTING "', printf('the file has"
      " more bytes than its limit; of the rows that were looked at %lld are"
      " held, and %lld cannot be removed%s; what is pinned, or new, or of"
      " others, or less than the share of blackbox, stays too', ?2, ?3, ': ' "
      "|| ?4))";
  i64 iNow = bxNow();
  if (bxQueryInt(m->p, zSaid, pErr, "ii", iNow, (i64)BX_MS_PER_DAY)) return;
  bxLogBegin(m->p, pErr);
  bxStmtExec(m->p, zSay, pErr, "iiit", iNow, m->nHeld, m->nRefused, m->zWhy);
  bxLogProve(m->p, ROOM_LOOK, pErr);
}

/* Gives back what is removed already. Returns whether there was something. */
static int roomTend(BxStmts *p, i64 mHas, BxErr *pErr) {
  i64 nDone = 0;
  int i;
  for (i = 0; i < p->bx->nDomain && !nDone && pErr->rc == SQLITE_OK; i++) {
    const BxFileLimit *pRoom = roomOf(p, mHas, i);
    if (pRoom == 0 || pRoom->zTend == 0) continue;
    nDone = bxQueryIntInner(p, pRoom->zTend, pErr, "ti", p->zDb, p->room.nSize);
  }
  p->room.bSwept = nDone > 1;
  return nDone > 0;
}

/* What blackbox may remove beyond its share. */
static i64 roomBeyond(BxStmts *p, i64 mHas, i64 nLimit, BxErr *pErr) {
  i64 nHas = 0;
  int i;
  for (i = 0; i < p->bx->nDomain; i++) {
    const BxFileLimit *pRoom = roomOf(p, mHas, i);
    if (pRoom == 0 || pRoom->zHas == 0) continue;
    nHas += bxQueryInt(p, pRoom->zHas, pErr, "");
  }
  return nHas - nLimit / ROOM_SHARE;
}

void bxFileLimitCall(BxCall *pCall) {
  BxErr *pErr = &pCall->err;
  const char *zDb = bxText(pCall->aArg[0], "schema", 1000, 0, pErr);
  Making m = {zDb ? bxSchema(pCall->bx, zDb, pErr) : 0, 0, 0, 0, 0};
  i64 nLimit, nOver, nBeyond, mHas;
  int i;
  bxRefuseInTransaction(pCall);
  if (pErr->rc != SQLITE_OK) return;
  nLimit = roomLimit(m.p, pErr);
  nOver = m.p->room.nSize == 1 ? 1 : roomOver(m.p, nLimit, pErr);
  bxReturnInt(pCall, 0);
  if (nOver <= 0) return;
  mHas = roomDomains(m.p, pErr);
  if (roomTend(m.p, mHas, pErr)) return;
  nBeyond = roomBeyond(m.p, mHas, nLimit, pErr);
  for (i = 0; i < m.p->bx->nDomain && pErr->rc == SQLITE_OK; i++) {
    const BxFileLimit *pRoom = roomOf(m.p, mHas, i);
    i64 nWant, nByte;
    if (m.p->room.bAgain || (m.p->room.nSize == 1 && m.nGone > 0)) break;
    if (pRoom == 0 || pRoom->zOldest == 0) continue;
    nWant = pRoom->bDue || nOver < nBeyond ? nOver : nBeyond;
    nByte = roomOldest(&m, &m.p->bx->aSlot[i], pRoom, nWant, pErr);
    nOver -= nByte;
    nBeyond -= nByte;
  }
  if (m.nGone == 0 || m.nHeld + m.nRefused > 0) roomSay(&m, pErr);
  sqlite3_free(m.zWhy);
}

/* When to look again: before the file has grown by a sixteenth of what is left, if it
** grows as since the last time; nGrown 0: it has no limit, or nothing can go. */
static void roomStep(BxStmts *p, i64 nOver, i64 nGrown) {
  i64 nStep = ROOM_STEP;
  if (nGrown > 0) nStep = -nOver * p->room.nStep / (16 * nGrown);
  p->room.nStep = nStep > ROOM_STEP ? ROOM_STEP : nStep < 1 ? 1 : nStep;
  p->room.nLeft = p->room.nStep;
  p->room.nOver = nOver;
}

void bxFileLimitWrote(
    BxStmts *p, const BxFileLimit *pRoom, i64 iFirst, i64 iLast) {
  p->room.pNew = pRoom;
  p->room.iNew = iFirst;
  p->room.iNewLast = iLast;
}

void bxFileLimitUndone(BxStmts *p) {
  p->room.nLeft = 0;
  p->room.pNew = 0;
  p->room.bWaits = 0;
  p->room.nOver = 0;
}

void bxFileLimitTend(BxStmts *p, i64 nRow, int bRow, BxErr *pErr) {
  static const char zTry[] =
      "INSERT INTO main.blackbox__open(domain, rule, minute) SELECT '', '', 0"
      " WHERE blackbox_room(?1)";
  int bAlone = !bRow && p != 0 && sqlite3_get_autocommit(p->bx->db);
  int nChange, bMore = 1, bPush = nRow < 0;
  BxErr err = {SQLITE_OK, 0};
  i64 nLimit, nOver, nGrown, nMost;
  if (p == 0) return;
  p->room.nSize = bPush ? 1 : 4;
  p->room.bSwept = 0;
  if (bPush) nRow = 1;
  if (pErr->rc != SQLITE_OK || (p->room.nLeft -= nRow) > 0) {
    p->room.pNew = 0;
    return;
  }
  nMost = p->room.nMost > 0 ? 0 : ROOM_ROWS * nRow;
  p->room.nMost += nMost;
  nLimit = roomLimit(p, &err);
  nOver = roomOver(p, nLimit, &err);
  nGrown = nOver - p->room.nOver;
  p->room.bWaits = bPush && nGrown > 0 && !p->room.bWaits;
  if (p->room.bWaits) bMore = 0;
  for (nRow = bPush ? 1 : nRow + 2;
       nOver > 0 && bMore && !p->room.bSwept && nRow > 0 && p->room.nMost > 0;
       nRow--) {
    nChange = sqlite3_total_changes(p->bx->db);
    p->room.bAgain = 0;
    bxQueryIntInner(p, zTry, &err, "t", p->zDb);
    bMore = err.rc == SQLITE_OK &&
            (p->room.bAgain || nChange != sqlite3_total_changes(p->bx->db));
    if (!bPush) nOver = roomOver(p, nLimit, &err);
  }
  assert(p->room.nMost >= 0); /* no more rows have gone than may */
  if (nMost > 0) {
    if (nMost - p->room.nMost > ROOM_FEW) p->room.bSwept = 1;
    p->room.nMost = 0;
  }
  p->room.pNew = 0;
  if (nGrown < 4096) nGrown = 4096; /* a page */
  if (err.rc == SQLITE_OK)
    roomStep(p, nOver, nLimit == 0 || !(bMore || p->room.bWaits) ? 0 : nGrown);
  if ((bAlone && !bxIsWriting(p->bx)) || bxErrMayIgnore(p, &err))
    bxErrClear(&err);
  bxErrMove(pErr, &err);
}

i64 bxFileLimitTrim(BxStmts *p, i64 nMost, int bRow, BxErr *pErr) {
  if (nMost <= 0 || pErr->rc != SQLITE_OK) return 0;
  p->room.nLeft = 0;
  p->room.pNew = 0;
  p->room.nMost = nMost;
  bxFileLimitTend(p, nMost / ROOM_LOOK, bRow, pErr);
  nMost -= p->room.nMost;
  p->room.nMost = 0;
  return nMost;
}

/* Adds rows of a domain from the oldest on. Returns the bytes of them. */
static i64 roomReach(BxStmts *p, const BxFileLimit *pRoom, i64 nWant, i64 *piAt,
    char **pzKey, BxErr *pErr) {
  const BxDue *pDue = pRoom->pDue;
  char *zSql = bxPrintf(pErr,
      "SELECT %s, %s, %s FROM main.%s %s WHERE %s AND %s ORDER BY %s, %s"
      " COLLATE BINARY",
      pDue->zAt, pDue->zKey, pRoom->zTakes, pDue->zTable, pRoom->zIndexed,
      pDue->zWhere, pDue->zFree, pDue->zAt, pDue->zKey);
  sqlite3_stmt *pStmt = bxPrepareMade(p, zSql, pErr);
  i64 nByte = 0;
  sqlite3_free(*pzKey);
  *pzKey = 0;
  while (nByte < nWant && bxStep(pStmt, pErr)) {
    *piAt = sqlite3_column_int64(pStmt, 0);
    sqlite3_free(*pzKey);
    *pzKey = bxColumnCopy(pStmt, 1, pErr);
    nByte += sqlite3_column_int64(pStmt, 2);
  }
  sqlite3_finalize(pStmt);
  return nByte;
}

int bxFileLimitReach(
    BxStmts *p, const BxDue *pDue, i64 *piAt, char **pzKey, BxErr *pErr) {
  i64 nLimit = roomLimit(p, pErr), nOver = roomOver(p, nLimit, pErr);
  i64 mHas = nOver > 0 ? roomDomains(p, pErr) : 0;
  i64 nBeyond = nOver > 0 ? roomBeyond(p, mHas, nLimit, pErr) : 0;
  const BxFileLimit *pRoom = 0;
  int i;
  *pzKey = 0;
  if (nOver > nBeyond) nOver = nBeyond;
  for (i = 0; i < p->bx->nDomain && (!pRoom || pRoom->pDue != pDue); i++) {
    pRoom = roomOf(p, mHas, i);
    if (pRoom == 0 || pRoom->pDue == 0 || pRoom->bDue) continue;
    nOver -= roomReach(p, pRoom, nOver, piAt, pzKey, pErr);
  }
  return *pzKey != 0;
}
