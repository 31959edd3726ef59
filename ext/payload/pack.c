/*
** pack.c: payload_pack() and payload_unpack() move bodies into the body store and
** back.
**
** payload uses the store by SQL names only: the function store_pack() replaces the
** bodies of the rows that it is given, through the view payload_bodies, and
** store_text() is the text of a reference. The first payload_pack() of a file gives
** the domain its larger form (sql/payload_pack.sql), in which rules and views know
** references. When the last row is unpacked, the domain gets its first form back.
**
** Bodies of pinned rows are packed, too: their leaves in the log are of the texts.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_MOST 1000000000 /* the largest limit of store_sweep() */
#define PACK_ROWS 1000        /* the default limits */
#define UNPACK_ROWS 100
#define FLUSH_ROWS 40    /* rows that a flush packs, when so many wait */
#define CLEANUP_ROWS 200 /* rows that a clean-up packs */

/*--------------------------------------------------------------- form ----*/

int bxPacks(BxStmts *p, BxErr *pErr) {
  return bxCanPrepare(p->bx,
      bxPrintf(pErr, "SELECT 1 FROM \"%w\".payload_swaps", p->zDb), pErr);
}

/* The view payload_rows with texts. It has the columns that the table has, and is
** one view without others in it, because without the module SQLite refuses an
** ALTER TABLE if a view in a view has an unknown function. */
static char *rowsSql(BxStmts *p, BxErr *pErr) {
  return bxAskText(p,
      "SELECT 'payload_rows AS SELECT ' || group_concat(CASE WHEN lower(name)"
      "  IN ('request_body', 'response_body') THEN printf("
      "  'store_text(\"%w\") AS \"%w\"', name, name)"
      "  ELSE printf('\"%w\"', name) END, ', ') || ', ' || ?2 ||"
      " ' AS created_ms FROM event_payloads'"
      " FROM pragma_table_info('event_payloads', ?1)",
      pErr, "tt", p->zDb, BX_DATE_MS("created_at"));
}

int bxPackIsWhole(BxStmts *p, BxErr *pErr) {
  char *zText;
  int bSame;
  if (!bxPacks(p, pErr)) return 1;
  zText = rowsSql(p, pErr);
  bSame = (int)bxAskOnce(p,
      "SELECT (SELECT sql FROM main.sqlite_schema WHERE name = 'payload_rows')"
      " IS 'CREATE VIEW ' || ?1"
      " AND EXISTS (SELECT 1 FROM main.store_users"
      "  WHERE bodies = 'payload_bodies')",
      pErr, "t", zText);
  sqlite3_free(zText);
  return bSame;
}

void bxPackMend(BxStmts *p, BxErr *pErr) {
  char *zText;
  if (!bxPacks(p, pErr) || bxPackIsWhole(p, pErr)) return;
  bxExec(p,
      "DROP VIEW IF EXISTS main.payload_rows;"
      "INSERT INTO main.store_users(bodies, texts)"
      " VALUES('payload_bodies', 'payload_texts') ON CONFLICT DO NOTHING",
      pErr);
  zText = rowsSql(p, pErr);
  if (zText != 0) {
    bxExecPlain(
        p->bx, bxPrintf(pErr, "CREATE VIEW \"%w\".%s", p->zDb, zText), pErr);
  }
  sqlite3_free(zText);
}

/* Gives the domain its larger form. */
static void enlarge(BxStmts *p, BxErr *pErr) {
  if (bxPacks(p, pErr) || pErr->rc != SQLITE_OK) return;
  if (!bxCarries(p->bx, p->zDb, "store", pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "NotInstalledError: schema %s has no body store; run SELECT "
        "blackbox_install(%Q, 'store')",
        p->zDb, p->zDb);
  }
  bxExec(p,
      "CREATE TABLE main.payload_swaps(pin INTEGER PRIMARY KEY,"
      " request_body BLOB, response_body BLOB);"
      "ALTER TABLE main.payload_volume ADD packed INTEGER NOT NULL DEFAULT 0;"
      "ALTER TABLE main.payload__sizes ADD packed INTEGER NOT NULL DEFAULT 0",
      pErr);
  bxInstallAgain(p, "payload", pErr);
}

/* Gives the domain its first form back. While the host reads, SQLite drops no
** table; then the form stays until the next call. */
static void reduce(BxStmts *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  bxExec(p, "DROP TABLE main.payload_swaps", &err);
  if ((err.rc & 0xff) == SQLITE_LOCKED) {
    bxClear(&err);
    return;
  }
  bxPass(pErr, &err);
  bxExec(p,
      "DELETE FROM main.store_users WHERE bodies = 'payload_bodies';"
      "DROP TRIGGER main.payload_copied_insert;"
      "DROP TRIGGER main.payload_copied_update;"
      "DROP TRIGGER main.payload_dropped_delete;"
      "DROP TRIGGER main.payload_dropped_update;"
      "DROP TRIGGER main.payload_dropped_insert;"
      "DROP TRIGGER main.payload_dropped_replace;"
      "DROP INDEX main.payload_unpacked_at;"
      "DROP INDEX main.payload_packed_request;"
      "DROP INDEX main.payload_packed_response;"
      "DROP TRIGGER main.payload_setting_update;" /* it reads payload_volume */
      "DROP VIEW main.payload_rows;"
      "DROP VIEW main.payload_bodies;"
      "DROP VIEW main.payload_texts;"
      "DROP VIEW main.payload_unpacked;"
      "DROP VIEW main.payload_occupied;"
      "DROP VIEW main.payload_lengths;"
      "DROP TABLE main.payload__sizes;"
      "DROP TABLE main.payload_volume",
      pErr);
  bxInstallAgain(p, "payload", pErr);
}

/*------------------------------------------------------------ packing ----*/

/* The ids of the rows to pack, as a JSON array, the oldest ones first, and in each
** batch one agent after the other. ?1: rows before this time, NULL: all; ?2: at
** most so many. */
#define UNPACKED "main.payload_unpacked AS u WHERE (?1 IS NULL OR u.at < ?1)"
static const char zUnpackedKeys[] =
    "SELECT json_group_array(id) FROM (SELECT id FROM (SELECT id, agent_id, at"
    "  FROM " UNPACKED " ORDER BY at LIMIT ?2) ORDER BY agent_id, at)";
static const char zMore[] = "SELECT EXISTS (SELECT 1 FROM " UNPACKED ")";

static void bindUntil(sqlite3_stmt *pStmt, const i64 *piUntil, BxErr *pErr) {
  if (piUntil != 0) bxBind(pStmt, pErr, "i", *piUntil);
}

static char *keysToPack(
    BxStmts *p, const i64 *piUntil, i64 nLimit, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, zUnpackedKeys, pErr);
  char *zAll = 0;
  bindUntil(pStmt, piUntil, pErr);
  bxBind(pStmt, pErr, "-i", nLimit);
  if (bxRow(pStmt, pErr)) zAll = bxColumnCopy(pStmt, 0, pErr);
  sqlite3_finalize(pStmt);
  return zAll;
}

/* Packs rows that are older than *piUntil, or any if that is NULL. Returns what
** store_pack() says, to sqlite3_free(). */
static char *packRows(BxStmts *p, const i64 *piUntil, i64 nLimit, BxErr *pErr) {
  static const char zPack[] = "SELECT store_pack('payload_bodies', ?1, ?2)";
  char *zSome, *zSaid = 0;
  bxLock(p, pErr);
  enlarge(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  zSome = keysToPack(p, piUntil, nLimit, pErr);
  if (zSome != 0) zSaid = bxCallInner(p, zPack, pErr, "tt", zSome, p->zDb);
  sqlite3_free(zSome);
  return zSaid;
}

void bxPayloadPack(BxCall *p) {
  static const char zResult[] =
      "SELECT json_object('rows', ?1 -> '$.rows', 'rawBytes',"
      " ?1 -> '$.rawBytes', 'keptBytes', ?1 -> '$.keptBytes', 'more',"
      " json(iif(?2, 'true', 'false')))";
  BxStmts *pHome = bxHome(p->bx, "payload", &p->err);
  i64 nLimit = PACK_ROWS, iUntil = 0;
  const i64 *piUntil = 0;
  char *zSaid, *zResultText = 0;
  bxRefuseInside(p);
  if (bxArg(p, 0)) {
    nLimit = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  if (bxArg(p, 1)) {
    iUntil = bxTime(bxArg(p, 2), "now", &p->err) -
             bxInt(p->aArg[1], "older_than_ms", 0, BX_MAX_TIME, &p->err);
    piUntil = &iUntil;
  }
  if (p->err.rc != SQLITE_OK) return;
  zSaid = packRows(pHome, piUntil, nLimit, &p->err);
  if (zSaid != 0) {
    sqlite3_stmt *pStmt = bxPrepare(pHome, zMore, &p->err);
    int bMore = 0;
    bindUntil(pStmt, piUntil, &p->err);
    if (bxRow(pStmt, &p->err)) bMore = sqlite3_column_int(pStmt, 0);
    sqlite3_finalize(pStmt);
    if (strstr(zSaid, "\"rows\":0,") != 0) bMore = 0;
    zResultText = bxAskText(pHome, zResult, &p->err, "ti", zSaid, (i64)bMore);
  }
  sqlite3_free(zSaid);
  if (zResultText != 0) bxReturnJson(p, zResultText);
}

void bxPackSome(BxStmts *p, int bCleanup, BxErr *pErr) {
  static const char zWaits[] =
      "SELECT EXISTS (SELECT 1 FROM main.payload_unpacked LIMIT 1 OFFSET ?1)";
  if (pErr->rc != SQLITE_OK || !bxSettingInt(p, "payload.pack", pErr)) return;
  if (!bCleanup && bxPacks(p, pErr) &&
      !bxAskOnce(p, zWaits, pErr, "i", (i64)FLUSH_ROWS - 1)) {
    return;
  }
  sqlite3_free(packRows(p, 0, bCleanup ? CLEANUP_ROWS : FLUSH_ROWS, pErr));
}

void bxPackSweep(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char zSweep[] = "SELECT store_sweep(?1, ?2)";
  if (!bxPacks(p, pErr)) return;
  if (nLimit > SWEEP_MOST) nLimit = SWEEP_MOST;
  sqlite3_free(bxCallInner(p, zSweep, pErr, "it", nLimit, p->zDb));
}

/*---------------------------------------------------------- unpacking ----*/

void bxUnpackRow(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.payload_bodies(\"key\", request_body, response_body)"
      " SELECT id, store_text(request_body), store_text(response_body)"
      " FROM main.event_payloads WHERE id = ?1";
  bxDo(p, zSql, pErr, "t", zId);
}

/* What payload_unpack() does. */
typedef struct Unpacking {
  BxStmts *p;
  i64 nRow;    /* rows that were unpacked */
  i64 nLeft;   /* rows that stay as they are */
  char *zLeft; /* their ids, a JSON array */
} Unpacking;

/* Adds an id to those that stay. */
static void leaveRow(Unpacking *u, const char *zId, BxErr *pErr) {
  char *z = bxAskText(
      u->p, "SELECT json_insert(?1, '$[#]', ?2)", pErr, "tt", u->zLeft, zId);
  u->nLeft++;
  if (z == 0) return;
  sqlite3_free(u->zLeft);
  u->zLeft = z;
}

/* Unpacks a row. One that is damaged stays, and so does one with a blob that only
** looks like a reference. */
static void unpackOne(Unpacking *u, const char *zId, BxErr *pErr) {
  static const char zStays[] =
      "SELECT EXISTS (SELECT 1 FROM main.payload_texts WHERE \"key\" = ?1)";
  BxErr err = {SQLITE_OK, 0};
  bxUnpackRow(u->p, zId, &err);
  if (err.rc == SQLITE_CORRUPT_VTAB ||
      (err.rc == SQLITE_OK && bxAsk(u->p, zStays, pErr, "t", zId))) {
    bxClear(&err);
    leaveRow(u, zId, pErr);
    return;
  }
  u->nRow += err.rc == SQLITE_OK;
  bxPass(pErr, &err);
}

/* The ids of at most so many packed rows, as a JSON array; NULL if there are none.
** Those that stay are always the first ones. (With GROUP BY instead of nullif(),
** SQLite 3.41.0 gives other values.) */
static char *packedIds(const Unpacking *u, i64 nLimit, BxErr *pErr) {
  static const char zSql[] =
      "SELECT nullif(json_group_array(\"key\"), '[]') FROM (SELECT DISTINCT"
      " \"key\" FROM main.payload_texts LIMIT ?1 OFFSET ?2)";
  return bxAskText(u->p, zSql, pErr, "ii", nLimit, u->nLeft);
}

/* Unpacks rows until there are so many, or no more. Returns whether there may be
** more. */
static int unpackSome(Unpacking *u, i64 nLimit, BxErr *pErr) {
  char *zIds = packedIds(u, nLimit, pErr);
  int bMore;
  while (zIds != 0 && u->nRow < nLimit) {
    sqlite3_stmt *pIds =
        bxPrepare(u->p, "SELECT value FROM json_each(?1)", pErr);
    bxBind(pIds, pErr, "t", zIds);
    while (bxRow(pIds, pErr)) {
      const char *zId = bxColumnText(pIds, 0, pErr);
      if (zId != 0) unpackOne(u, zId, pErr);
    }
    sqlite3_finalize(pIds);
    sqlite3_free(zIds);
    zIds = packedIds(u, u->nRow < nLimit ? nLimit - u->nRow : 1, pErr);
  }
  bMore = zIds != 0;
  sqlite3_free(zIds);
  return bMore;
}

void bxPayloadUnpack(BxCall *p) {
  Unpacking unpacking = {bxHome(p->bx, "payload", &p->err), 0, 0, 0};
  i64 nLimit = UNPACK_ROWS;
  int bMore = 0;
  bxRefuseInside(p);
  if (bxArg(p, 0)) {
    nLimit = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  unpacking.zLeft = bxPrintf(&p->err, "[]");
  bxLock(unpacking.p, &p->err);
  if (p->err.rc == SQLITE_OK && bxPacks(unpacking.p, &p->err)) {
    bMore = unpackSome(&unpacking, nLimit, &p->err);
    bxPackSweep(unpacking.p, SWEEP_MOST, &p->err);
    if (!bMore && p->err.rc == SQLITE_OK &&
        bxNumber(unpacking.p, "SELECT texts FROM main.store__state", &p->err) ==
            0) {
      reduce(unpacking.p, &p->err);
    }
  }
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(
        p, sqlite3_mprintf("{\"rows\":%lld,\"left\":%s,\"more\":%s}",
               unpacking.nRow, unpacking.zLeft, bMore ? "true" : "false"));
  }
  sqlite3_free(unpacking.zLeft);
}

/* Unpacks the rows of a query that returns ids, and finalizes it. */
static void unpackAll(BxStmts *p, sqlite3_stmt *pIds, BxErr *pErr) {
  while (bxRow(pIds, pErr)) {
    const char *zId = bxColumnText(pIds, 0, pErr);
    if (zId != 0) bxUnpackRow(p, zId, pErr);
  }
  sqlite3_finalize(pIds);
}

void bxUnpackLike(BxStmts *p, sqlite3_stmt *pExchanges, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id FROM main.event_payloads AS e WHERE event_id = ?2"
      " AND agent_id = ?1 AND size_bytes = ?3 AND purpose = 'archive'"
      " AND pinned = 0 AND EXISTS (SELECT 1 FROM main.payload_texts AS t"
      "  WHERE t.\"key\" = e.id) LIMIT 16";
  while (bxRow(pExchanges, pErr)) {
    sqlite3_stmt *pIds = bxPrepare(p, zSql, pErr);
    bxBind(pIds, pErr, "vvv", sqlite3_column_value(pExchanges, 0),
        sqlite3_column_value(pExchanges, 1),
        sqlite3_column_value(pExchanges, 2));
    unpackAll(p, pIds, pErr);
  }
  sqlite3_finalize(pExchanges);
}
