/*
** archive_held.c: the digests of archive rows that a hold keeps.
**
** The guards stop ordinary statements. What is done behind them is found by digests
** in the log: rows of kind 'held', whose subject is event_payloads/<kind>:<key> and
** whose detail lists rows that the hold keeps:
**
**   {"upto":1043,"rows":[["<id>","<digest>"],...]}
**
** upto is the rowid of the last one. retention_hold() gives digests to what is there,
** up to some megabytes; each call that writes goes on from there, and so takes in what
** came later and what plain SQL holds. While the thing has been held without a gap,
** each digest of that time must be that of the row, however often it was taken.
**
** A digest is that of all columns. Packed bodies count as their texts. The salt of the
** row of the log is hashed as well, so that nobody confirms a guess of a body without
** it.
**
** A row that an UPDATE brings under a hold gets no digest: its rowid is lower.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LIST_MOST 1000 /* rows that a row of the log lists at most */
#define HELD_THINGS 16 /* things that are looked at in a call */
#define HELD_SALT 16   /* bytes */
#define HELD_BYTES 16  /* of a digest, that are kept */
#define DIGITS (2 * HELD_BYTES)

#define ARCHIVE_KINDS "('agent', 'event', 'kill_switch', 'evidence')"
#define LOGGED_HELD                                                            \
  " FROM main.blackbox__log AS l WHERE l.subject = 'event_payloads/' || ?1"    \
  " AND l.kind = 'held' AND l.domain = 'payload' AND l.n > ?2"

#define HELD_BODY(column)                                                      \
  " iif(typeof(e." column ") = 'blob', store_text(e." column "), e." column ")"
/* ?1: the salt. */
#define HELD_KEYS                                                              \
  "SELECT e.rowid, e.created_at, e.kill_switch_event_id, e.purpose, ?1, e.id," \
  " e.event_id, e.agent_id," HELD_BODY("request_body") ","
#define HELD_COLUMNS                                                           \
  HELD_KEYS HELD_BODY("response_body") ", e.meta, e.size_bytes"                \
                                       " FROM main.event_payloads AS e WHERE "

/* (An archive that was taken over may compare its columns in another way.) */
#define ROWS_OF(column)                                                        \
  HELD_COLUMNS "e." column " = ?2 AND e." column                               \
               " = ?2 COLLATE BINARY AND e.rowid > ?3 ORDER BY e.rowid"
static const struct HeldKind {
  const char *zKind, *zRows;
} aHeldKind[] = {
    {"agent", ROWS_OF("agent_id")},
    {"event", ROWS_OF("event_id")},
    {"kill_switch", ROWS_OF("kill_switch_event_id")},
    {"evidence", ROWS_OF("id")},
};

/* A thing that is held: <kind>:<key>. */
typedef struct HeldThing {
  BxStmts *p;
  const struct HeldKind *pKind;
  const char *zKey;
  char *zThing;
  i64 iSince; /* the step since which it has been held; 0: it is not */
  BxErr *pErr;
} HeldThing;

/* A gap is before a hold that no other covers: neither one that its owner has made
** longer or released later, nor one whose time was over. */
i64 bxHeldSince(BxStmts *p, const char *zThing, BxErr *pErr) {
  static const char zSince[] =
      "WITH step AS (SELECT n, kind AS act, at, detail ->> 'until' AS until,"
      "  lead(n) OVER (PARTITION BY detail ->> 'owner' ORDER BY n) AS next"
      "  FROM main.blackbox__log AS l"
      "  WHERE subject = ?1 AND domain = 'retention'"
      "  AND kind IN ('hold', 'release') AND json_valid(detail)"
      "  AND " BX_LOG_SIGNED(
          "l") ")"
               " SELECT max(n) FROM step AS h WHERE act = 'hold' AND NOT EXISTS"
               "  (SELECT 1 FROM step AS s WHERE s.act = 'hold' AND s.n < h.n"
               "   AND (s.next IS NULL OR s.next >= h.n)"
               "   AND (s.until IS NULL OR s.until >= h.at))";
  assert(zThing != 0 || pErr->rc != SQLITE_OK);
  return bxQueryInt(p, zSince, pErr, "t", zThing);
}

static HeldThing thingOf(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  HeldThing thing = {p, 0, zKey, 0, 0, pErr};
  size_t i;
  for (i = 0; i < sizeof(aHeldKind) / sizeof(aHeldKind[0]); i++) {
    if (zKind != 0 && strcmp(zKind, aHeldKind[i].zKind) == 0) {
      thing.pKind = &aHeldKind[i];
    }
  }
  if (thing.pKind == 0 || zKey == 0) return thing;
  thing.zThing = bxPrintf(pErr, "%s:%s", zKind, zKey);
  if (thing.zThing != 0) thing.iSince = bxHeldSince(p, thing.zThing, pErr);
  return thing;
}

static void heldDigest(sqlite3_stmt *pRow, char zOut[DIGITS + 1], BxErr *pErr) {
  unsigned char a[BX_DIGEST];
  assert(sqlite3_data_count(pRow) >= 11 || pErr->rc != SQLITE_OK);
  bxDigestRow(pRow, 1, 10, a, pErr); /* from the time to meta */
  bxHex(a, HELD_BYTES, zOut);
}

/*--------------------------------------------------------------- noting ----*/

/* After which row a thing's next ones are. (If VACUUM or a copy of the file has given
** rows lower numbers, it begins again.) */
static i64 notedUpTo(HeldThing *pThing, i64 *piAt) {
  static const char zLast[] =
      "SELECT l.at, CAST(substr(l.detail, 9) AS INTEGER)" LOGGED_HELD
      " ORDER BY l.at DESC, l.n DESC LIMIT 1";
  static const char zNewest[] = "SELECT max(rowid) FROM main.event_payloads";
  sqlite3_stmt *pStmt = bxStmt(pThing->p, zLast, pThing->pErr);
  i64 iUpTo = 0;
  bxBind(pStmt, pThing->pErr, "ti", pThing->zThing, pThing->iSince);
  if (bxStep(pStmt, pThing->pErr)) {
    *piAt = sqlite3_column_int64(pStmt, 0);
    iUpTo = sqlite3_column_int64(pStmt, 1);
  }
  bxReset(pStmt, pThing->pErr);
  if (iUpTo > 0 && iUpTo > bxQueryInt(pThing->p, zNewest, pThing->pErr, ""))
    return 0;
  return iUpTo;
}

static void appendHeld(sqlite3_str *pOut, sqlite3_stmt *pRow, BxErr *pErr) {
  char zDigest[DIGITS + 1];
  const char *zId = bxColumnText(pRow, 5, pErr);
  if (zId == 0) return;
  heldDigest(pRow, zDigest, pErr);
  sqlite3_str_appendall(pOut, sqlite3_str_length(pOut) > 0 ? ",[" : "[");
  bxJsonAppend(pOut, zId, sqlite3_column_bytes(pRow, 5));
  sqlite3_str_appendf(pOut, ",\"%s\"]", zDigest);
}

/* Lists the next rows of a thing. Returns their bytes, 0 if there were none. */
static i64 noteRows(HeldThing *pThing, i64 nMost) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, rows, bytes,"
      " detail, salt) VALUES(max(?1, ?2), 'payload', 'held',"
      " 'event_payloads/' || ?3, ?4, ?5,"
      " '{\"upto\":' || ?6 || ',\"rows\":[' || ?7 || ']}', ?8)";
  BxErr *pErr = pThing->pErr;
  i64 iAt = 0, iUpTo = notedUpTo(pThing, &iAt), nRow = 0, nByte = 0;
  unsigned char aSalt[HELD_SALT];
  sqlite3_str *pList = sqlite3_str_new(pThing->p->bx->db);
  sqlite3_stmt *pRow = bxStmt(pThing->p, pThing->pKind->zRows, pErr);
  char *zList;
  assert(pThing->pKind != 0 && nMost > 0);
  sqlite3_randomness(HELD_SALT, aSalt);
  bxBind(pRow, pErr, "xti", aSalt, (i64)HELD_SALT, pThing->zKey, iUpTo);
  while (nRow < LIST_MOST && nByte <= nMost && bxStep(pRow, pErr)) {
    appendHeld(pList, pRow, pErr);
    iUpTo = sqlite3_column_int64(pRow, 0);
    nByte += sqlite3_column_int64(pRow, 11);
    nRow++;
  }
  bxReset(pRow, pErr);
  zList = bxStrFinish(pList, pErr);
  if (nRow > 0 && zList != 0) {
    bxStmtExec(pThing->p, zLog, pErr, "iitiiitx", iAt, bxNow(), pThing->zThing,
        nRow, nByte, iUpTo, zList, aSalt, (i64)HELD_SALT);
  }
  sqlite3_free(zList);
  return nRow > 0 ? nByte + nRow * 100 : 0;
}

/* Returns how much of nMost is left. */
static i64 noteThing(
    BxStmts *p, const char *zKind, const char *zKey, i64 nMost, BxErr *pErr) {
  HeldThing thing = thingOf(p, zKind, zKey, pErr);
  i64 nByte = thing.iSince > 0;
  while (nByte > 0 && nMost > 0 && pErr->rc == SQLITE_OK) {
    nByte = noteRows(&thing, nMost);
    nMost -= nByte;
  }
  sqlite3_free(thing.zThing);
  return nMost;
}

/* Looks at the things whose holds are new in the log, and at some of the others. */
void bxPayloadNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr) {
  static const char zCount[] =
      "SELECT count(*) FROM (SELECT DISTINCT kind, \"key\""
      " FROM main.retention__in_force WHERE kind IN " ARCHIVE_KINDS ")";
  static const char zThings[] =
      "SELECT f.kind, f.\"key\" FROM main.blackbox__log AS l"
      " CROSS JOIN main.retention__holds AS f"
      "  ON f.kind = substr(l.subject, 1, instr(l.subject, ':') - 1)"
      "  AND f.\"key\" = substr(l.subject, instr(l.subject, ':') + 1)"
      " WHERE l.n > (SELECT size FROM main.blackbox__tree)"
      "  AND l.kind = 'hold' AND l.domain = 'retention'"
      "  AND f.kind IN " ARCHIVE_KINDS
      " UNION ALL SELECT * FROM (SELECT DISTINCT kind, \"key\""
      "  FROM main.retention__holds WHERE kind IN " ARCHIVE_KINDS
      "  ORDER BY kind, \"key\" LIMIT ?1 OFFSET ?2)";
  i64 n = bxQueryInt(p, zCount, pErr, "");
  sqlite3_uint64 iFirst = 0;
  sqlite3_stmt *pStmt;
  if (n == 0 || !bxSchemaHasDomain(p->bx, p->zDb, "payload", pErr)) return;
  if (n > HELD_THINGS) sqlite3_randomness(sizeof(iFirst), &iFirst);
  pStmt = bxStmt(p, zThings, pErr);
  bxBind(
      pStmt, pErr, "ii", (i64)HELD_THINGS, (i64)(iFirst % (sqlite3_uint64)n));
  while (nMost > 0 && bxStep(pStmt, pErr)) {
    const char *zKind = bxColumnText(pStmt, 0, pErr);
    nMost = noteThing(p, zKind, bxColumnText(pStmt, 1, pErr), nMost, pErr);
  }
  bxReset(pStmt, pErr);
}

/*------------------------------------------------------------- checking ----*/

static void checkThing(HeldThing *pThing, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg) {
  static const char zListed[] =
      "SELECT l.n, l.salt, j.value ->> 0, j.value ->> 1"
      " FROM (SELECT l.n AS n, l.salt AS salt,"
      "  CASE WHEN json_valid(l.detail) THEN l.detail END AS detail" LOGGED_HELD
      "  AND length(l.salt) > 0) AS l, json_each(l.detail, '$.rows') AS j";
  /* As it is, and if it is pinned (so that the leaf of its newest pin commits to all
  ** of it) as it was without its meta (1), or without its late response (2). */
  static const char zRow[] = HELD_KEYS " iif(column1 & 2, NULL," HELD_BODY(
      "response_body") "),"
                       " iif(column1 & 1, NULL, e.meta) FROM (VALUES (0), (1), "
                       "(2), (3))"
                       " CROSS JOIN main.event_payloads AS e WHERE e.id = ?2 "
                       "AND (column1 = 0 OR"
                       " EXISTS (SELECT 1 FROM main.payload__pins AS p WHERE "
                       "p.id = e.id"
                       "  AND (NOT column1 & 2 OR EXISTS (SELECT 1 FROM "
                       "main.blackbox__log AS l"
                       "   WHERE l.subject = p.id AND l.kind = 'complete'"
                       "   AND l.domain = 'payload' AND l.n < p.n))))";
  BxErr *pErr = pThing->pErr;
  sqlite3_stmt *pList = bxPrepare(pThing->p, zListed, pErr);
  sqlite3_stmt *pRow = bxPrepare(pThing->p, zRow, pErr);
  assert(pThing->iSince > 0 && iFrom >= 0);
  bxBind(pList, pErr, "ti", pThing->zThing,
      iFrom > pThing->iSince ? iFrom : pThing->iSince);
  while (bxStep(pList, pErr)) {
    const char *zDigest = bxColumnText(pList, 3, pErr);
    int bRow = 0, bSame = 0;
    bxBind(pRow, pErr, "vv", sqlite3_column_value(pList, 1),
        sqlite3_column_value(pList, 2));
    while (zDigest != 0 && !bSame && bxStep(pRow, pErr)) {
      char zIs[DIGITS + 1];
      heldDigest(pRow, zIs, pErr);
      bSame = strcmp(zIs, zDigest) == 0;
      bRow = 1;
    }
    bxReset(pRow, pErr);
    if (pErr->rc == SQLITE_OK && zDigest != 0 && !bSame) {
      xTell(pArg, sqlite3_column_int64(pList, 0),
          bxPrintf(pErr,
              "row %s of event_payloads %s, though a hold on %s keeps "
              "it: this row of the log has its digest",
              bxColumnText(pList, 2, pErr),
              bRow ? "was changed" : "was removed", pThing->zThing));
    }
  }
  sqlite3_finalize(pRow);
  sqlite3_finalize(pList);
}

void bxPayloadCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr) {
  static const char zThings[] =
      "SELECT DISTINCT kind, \"key\" FROM main.retention__holds"
      " WHERE kind IN " ARCHIVE_KINDS;
  sqlite3_stmt *pStmt = bxPrepare(p, zThings, pErr);
  while (bxStep(pStmt, pErr)) {
    const char *zKind = bxColumnText(pStmt, 0, pErr);
    HeldThing thing = thingOf(p, zKind, bxColumnText(pStmt, 1, pErr), pErr);
    if (thing.iSince > 0 && bxSchemaHasDomain(p->bx, p->zDb, "payload", pErr)) {
      checkThing(&thing, iFrom, xTell, pArg);
    }
    sqlite3_free(thing.zThing);
  }
  sqlite3_finalize(pStmt);
  if (bxSchemaHasDomain(p->bx, p->zDb, "payload", pErr)) {
    bxRingCheckHeld(p, iFrom, xTell, pArg, pErr);
  }
}
