/*
** upgrade.c: upgrades a store of version 1.
**
** There the lists of the packs were in a table store_lists, with 16 bytes of the hash
** of each piece after its uses. store_uses has them without the hashes. As a module
** of version 1 finds no table store_lists, it does not take these lists for damaged
** ones: it refuses, because the version is newer. All this is done in the savepoint
** of blackbox_install().
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#define HASH_BYTES 16

/* Writes the list on which pStmt stands. */
static void moveList(
    BxStmts *p, sqlite3_stmt *pStmt, i64 *pnKept, BxErr *pErr) {
  List list = {sqlite3_column_int64(pStmt, 0), 0, 0, 0, 0, 0, 0};
  const void *z = sqlite3_column_blob(pStmt, 1);
  i64 n = sqlite3_column_bytes(pStmt, 1);
  if (z == 0 && n > 0) bxGot(0, pErr);
  bxListDecode(&list, z, n, HASH_BYTES, pErr);
  list.nStored = n;
  bxListWrite(p, &list, pnKept, pErr);
  bxListFree(&list);
}

/* A list that is damaged is moved as it is, so that blackbox_check() finds it. */
static void moveLists(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt =
      bxPrepare(p, "SELECT pack, list FROM main.store_lists", pErr);
  i64 nKept = 0;
  while (bxRow(pStmt, pErr)) {
    BxErr err = {SQLITE_OK, 0};
    moveList(p, pStmt, &nKept, &err);
    if (err.rc == SQLITE_CORRUPT_VTAB) {
      bxClear(&err);
      bxDo(p, "INSERT INTO main.store_uses(pack, list) VALUES(?1, ?2)", &err,
          "vv", sqlite3_column_value(pStmt, 0), sqlite3_column_value(pStmt, 1));
    }
    bxPass(pErr, &err);
  }
  sqlite3_finalize(pStmt);
  bxStoreCount(p, 0, 0, 0, 0, nKept, pErr);
}

/* Whether the schema has a store of version 1. */
static int isVersion1(BxStmts *p, BxErr *pErr) {
  return bxCarries(p->bx, p->zDb, "store", pErr) &&
         bxCanPrepare(p->bx,
             bxPrintf(pErr, "SELECT 1 FROM \"%w\".store_lists", p->zDb),
             pErr) &&
         bxAskOnce(p,
             "SELECT version FROM main.blackbox_domains WHERE domain = ?1",
             pErr, "t", "store") == 1;
}

void bxStoreUpgrade(BxStmts *p, BxErr *pErr) {
  char *zTable;
  if (!isVersion1(p, pErr)) return;
  zTable = bxStatementOf(
      bxSqlStore, "CREATE TABLE IF NOT EXISTS main.store_uses(", pErr);
  if (zTable != 0) bxExec(p, zTable, pErr);
  sqlite3_free(zTable);
  moveLists(p, pErr);
  bxExec(p, "DROP TABLE main.store_lists", pErr);
}
