/*
** ring_body.c: where a payload_ring keeps its exchanges: bxRingFind(),
** bxRingAppend(), bxRingSlots() to read, and bxRingDrop() to remove. Nothing else
** of a ring writes into the table of slots.
**
** An exchange overwrites another one. SQLite overwrites a row in place if the new
** one has as many bytes. Otherwise it takes other pages for it before it frees
** those of the old one, which secure_delete then fills with zeros: twice as much
** is written. (To DELETE the old row first does not help, because SQLite takes the
** free pages that are nearest to others, and these are seldom those that were just
** freed.) So a row of more than half a page gets a column of zeros, pad, with which
** it fills its leaf and its overflow pages:
**
**   | leaf: page - 35 bytes | overflow: page - 4 | ... | overflow: page - 4 |
**
** and the next one gets as many pages, if it needs no more and not less than a
** quarter. Zeros over zeros are not written. With bodies whose sizes vary by half,
** a push writes 1.0 to 1.3 times what an INSERT into a plain table writes, in place
** of 1.7 to 1.9, and the file has 1.2 to 1.5 times the bytes of the bodies.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LEAF_USED 35    /* of a page, by what is not the row */
#define OVERFLOW_USED 4 /* by the number of the next page */
#define PAGES_KEPT 4    /* times as many pages as a row needs */

/*---------------------------------------------------------------- sizes ----*/

static i64 varintSize(i64 n) {
  i64 nByte = 1;
  while ((n >>= 7) > 0) nByte++;
  return nByte;
}

static i64 textSize(i64 nByte) {
  return varintSize(13 + 2 * nByte) + nByte;
}

/* Bytes in a record, with those of its type. */
static i64 intSize(i64 i) {
  static const int aBits[] = {7, 15, 23, 31, 47};
  static const int aSize[] = {2, 3, 4, 5, 7};
  int k;
  if (i == 0 || i == 1) return 1;
  for (k = 0; k < 5; k++) {
    i64 iMax = (i64)1 << aBits[k];
    if (i >= -iMax && i < iMax) return aSize[k];
  }
  return 9;
}

static i64 valueSize(sqlite3_value *p) {
  switch (sqlite3_value_type(p)) {
    case SQLITE_NULL: return 1;
    case SQLITE_INTEGER: return intSize(sqlite3_value_int64(p));
    case SQLITE_FLOAT: return 9;
    default: return textSize(sqlite3_value_bytes(p));
  }
}

/* The bytes of a page that SQLite uses. */
static i64 usableBytes(Ring *p, BxErr *pErr) {
  static const char zSize[] = "PRAGMA main.page_size";
  int nReserved = -1; /* asks */
  if (p->nUsable > 0) return p->nUsable;
  sqlite3_file_control(p->base.stmts.bx->db, p->base.stmts.zDb,
      SQLITE_FCNTL_RESERVE_BYTES, &nReserved);
  p->nUsable = bxNumber(&p->base.stmts, zSize, pErr);
  if (nReserved > 0) p->nUsable -= nReserved;
  return p->nUsable;
}

/* The zeros that the row of a push gets; -1: none. */
static i64 padOf(Ring *p, const RingAgent *pNext, const RingPush *pPush,
    const RingSlot *pOld, BxErr *pErr) {
  i64 nUsable = usableBytes(p, pErr);
  i64 nLeaf = nUsable - LEAF_USED, nOver = nUsable - OVERFLOW_USED;
  i64 nBody = valueSize(pPush->pMeta) + valueSize(pPush->pRequest) +
              valueSize(pPush->pResponse);
  /* the size of the header, and the type of the id */
  i64 nRow = 2 + intSize(pNext->nGiven) + intSize(pPush->iTime) +
             intSize(pPush->nByte) + textSize((i64)strlen(pPush->zAgent)) +
             textSize(sqlite3_value_bytes(pPush->pEvent)) + nBody;
  i64 nNeed, nPage, nOld = 0, nZero, n;
  if (pErr->rc != SQLITE_OK || nUsable < 512) return -1;
  if (nRow < nUsable / 2 && pOld->nPad < 0) return -1;
  nNeed = nRow + 6 <= nLeaf ? 1 : 1 + (nRow + 6 - nLeaf + nOver - 1) / nOver;
  if (pOld->nPad >= 0) { /* the nearest number: ids of events may differ */
    i64 nWas = pOld->nByte + pOld->nPad + nRow - pPush->nByte;
    nOld = nWas <= nLeaf ? 1 : 1 + (nWas - nLeaf + nOver / 2) / nOver;
  }
  nPage = nOld >= nNeed && nOld <= PAGES_KEPT * nNeed ? nOld : nNeed;
  if (nPage * nUsable >
      sqlite3_limit(p->base.stmts.bx->db, SQLITE_LIMIT_LENGTH, -1)) {
    return -1;
  }
  nZero = nLeaf + (nPage - 1) * nOver - nRow;
  for (n = 1; n <= 5; n++) {
    if (nZero >= n && varintSize(12 + 2 * (nZero - n)) == n) return nZero - n;
  }
  return -1;
}

/*---------------------------------------------------------------- slots ----*/

void bxRingReadSlot(sqlite3_stmt *pStmt, int i, RingSlot *pOut) {
  pOut->bThere = sqlite3_column_type(pStmt, i) != SQLITE_NULL;
  pOut->iSeq = sqlite3_column_int64(pStmt, i);
  pOut->nByte = sqlite3_column_int64(pStmt, i + 1);
  pOut->nPad = sqlite3_column_type(pStmt, i + 2) == SQLITE_NULL
                   ? -1
                   : sqlite3_column_int64(pStmt, i + 2);
  pOut->bOther = sqlite3_column_int(pStmt, i + 3);
}

void bxRingFind(
    Ring *p, i64 iSlot, const char *zAgent, RingSlot *pOut, BxErr *pErr) {
  static const char zSql[] =
      "SELECT " RING_SLOT("?2") " FROM main.@_slots AS s "
                                "WHERE id = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pOut, 0, sizeof(*pOut));
  pOut->iId = iSlot;
  pOut->nPad = -1;
  bxBind(pStmt, pErr, "it", iSlot, zAgent);
  if (bxRow(pStmt, pErr)) bxRingReadSlot(pStmt, 0, pOut);
  bxDone(pStmt, pErr);
}

static const char zInsert[] =
    "INSERT INTO main.@_slots(id, seq, timestamp, size_bytes, agent_id, "
    "event_id, meta, request_body, response_body, pad) "
    "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
static const char zRewrite[] =
    "UPDATE main.@_slots SET seq = ?2, timestamp = ?3, size_bytes = ?4, "
    "agent_id = ?5, event_id = ?6, meta = ?7, request_body = ?8, "
    "response_body = ?9, pad = ?10 WHERE id = ?1";

/* SQLite compares these sooner than a zeroblob, which it reads byte by byte. */
static const unsigned char aZero[8192];

const char *bxRingAppendSql(const RingSlot *pOld) {
  return pOld->bThere ? zRewrite : zInsert;
}

void bxRingAppend(Ring *p, sqlite3_stmt *pStmt, const RingAgent *pNext,
    const RingPush *pPush, const RingSlot *pOld, BxErr *pErr) {
  i64 nPad = padOf(p, pNext, pPush, pOld, pErr);
  bxBind(pStmt, pErr, "iiiitssss", pOld->iId, pNext->nGiven, pPush->iTime,
      pPush->nByte, pPush->zAgent, pPush->pEvent, pPush->pMeta, pPush->pRequest,
      pPush->pResponse);
  if (pErr->rc == SQLITE_OK && nPad >= (i64)sizeof(aZero)) {
    sqlite3_bind_zeroblob64(pStmt, 10, (sqlite3_uint64)nPad);
  } else if (pErr->rc == SQLITE_OK && nPad >= 0) {
    sqlite3_bind_blob(pStmt, 10, aZero, (int)nPad, SQLITE_STATIC);
  }
  bxRun(pStmt, pErr);
}

#define SLOTS_WHERE                                                            \
  " FROM main.@_slots WHERE id BETWEEN ?1 AND ?2 AND seq BETWEEN ?3 AND ?4 "   \
  "AND (?5 IS NULL OR event_id = ?5) ORDER BY id "
#define SLOTS_BODIES                                                           \
  "SELECT id, agent_id, event_id, request_body, response_body, timestamp, "    \
  "size_bytes, seq, meta" SLOTS_WHERE
#define SLOTS_HEADS                                                            \
  "SELECT id, agent_id, event_id, NULL, NULL, timestamp, size_bytes, "         \
  "seq, meta" SLOTS_WHERE

sqlite3_stmt *bxRingSlots(Ring *p, int bBodies, int bNewest, BxErr *pErr) {
  const char *zSql = bBodies
                         ? (bNewest ? SLOTS_BODIES "DESC" : SLOTS_BODIES "ASC")
                         : (bNewest ? SLOTS_HEADS "DESC" : SLOTS_HEADS "ASC");
  return bxPrepare(&p->base.stmts, zSql, pErr);
}

void bxRingDrop(Ring *p, i64 iSlot, BxErr *pErr) {
  static const char zSql[] = "DELETE FROM main.@_slots WHERE id = ?1";
  bxDo(&p->base.stmts, zSql, pErr, "i", iSlot);
}

void bxRingMove(Ring *p, const RingAgent *pAgent, i64 nWindow, BxErr *pErr) {
  static const char zTrim[] =
      "DELETE FROM main.@_slots WHERE id BETWEEN ?1 AND ?1 + 65535 "
      "AND " RING_BEYOND;
  static const char zMove[] =
      "UPDATE main.@_slots SET id = ?3 + seq % ?4 WHERE id BETWEEN ?1 AND ?2";
  static const char *const azSql[] = {zTrim, zMove};
  i64 iFirst = BX_RING_BASE(pAgent);
  sqlite3_stmt *apStmt[2];
  bxStmtSet(&p->base.stmts, azSql, 2, apStmt, pErr);
  bxDo(&p->base.stmts, zTrim, pErr, "ii", pAgent->iNo << 16,
      pAgent->nGiven - nWindow);
  bxDo(&p->base.stmts, zMove, pErr, "iiii", iFirst, iFirst + 10239,
      iFirst ^ 32768, nWindow);
}
