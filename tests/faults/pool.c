/*
** pool.c: keeps finalized statements for the next sqlite3_prepare of the same text.
**
** fuzz.c does the same few hundred statements in each run. To prepare them takes
** three quarters of its time, in SQLite, which is not what is tested. The linker puts
** these functions in place of SQLite's own (--wrap) in build/fuzz, and nowhere else.
** A pooled statement is reset, without bindings. SQLite prepares it again if the
** schema changes. A connection that is closed takes its statements along: the module
** opens one in memory for each virtual table that is made.
*/
#include <sqlite3.h>

#include <string.h>

#define MAX_POOL 2048 /* statements, each at the hash of its text; 130 KB each */

int __real_sqlite3_prepare_v3(sqlite3 *db, const char *z, int n, unsigned mFlag,
    sqlite3_stmt **ppStmt, const char **pzTail);
int __wrap_sqlite3_prepare_v3(sqlite3 *db, const char *z, int n, unsigned mFlag,
    sqlite3_stmt **ppStmt, const char **pzTail);
int __wrap_sqlite3_prepare_v2(sqlite3 *db, const char *z, int n,
    sqlite3_stmt **ppStmt, const char **pzTail);
int __real_sqlite3_finalize(sqlite3_stmt *pStmt);
int __wrap_sqlite3_finalize(sqlite3_stmt *pStmt);
int __real_sqlite3_close(sqlite3 *db);
int __wrap_sqlite3_close(sqlite3 *db);

static sqlite3_stmt *apPool[MAX_POOL];

__attribute__((no_sanitize("coverage"))) static sqlite3_stmt **place(
    const sqlite3 *db, const char *z) {
  unsigned h = (unsigned)((size_t)db >> 4);
  while (*z) h = (h ^ (unsigned char)*z++) * 16777619u;
  return &apPool[(h ^ h >> 15) % MAX_POOL];
}

int __wrap_sqlite3_prepare_v3(sqlite3 *db, const char *z, int n, unsigned mFlag,
    sqlite3_stmt **ppStmt, const char **pzTail) {
  sqlite3_stmt **pp = n < 0 ? place(db, z) : 0;
  if (pp == 0 || *pp == 0 || sqlite3_db_handle(*pp) != db ||
      strcmp(sqlite3_sql(*pp), z) != 0) {
    return __real_sqlite3_prepare_v3(db, z, n, mFlag, ppStmt, pzTail);
  }
  *ppStmt = *pp;
  *pp = 0;
  if (pzTail != 0) *pzTail = z + strlen(z);
  return SQLITE_OK;
}

int __wrap_sqlite3_prepare_v2(sqlite3 *db, const char *z, int n,
    sqlite3_stmt **ppStmt, const char **pzTail) {
  return __wrap_sqlite3_prepare_v3(db, z, n, 0, ppStmt, pzTail);
}

int __wrap_sqlite3_finalize(sqlite3_stmt *pStmt) {
  sqlite3_stmt **pp =
      pStmt ? place(sqlite3_db_handle(pStmt), sqlite3_sql(pStmt)) : 0;
  sqlite3_stmt *pOld = pp ? *pp : pStmt;
  int rc = pp ? sqlite3_reset(pStmt) : SQLITE_OK;
  if (pp == 0) return SQLITE_OK;
  sqlite3_clear_bindings(pStmt);
  *pp = pStmt;
  __real_sqlite3_finalize(pOld);
  return rc;
}

int __wrap_sqlite3_close(sqlite3 *db) {
  size_t i;
  for (i = 0; i < MAX_POOL; i++) {
    if (apPool[i] != 0 && sqlite3_db_handle(apPool[i]) == db) {
      __real_sqlite3_finalize(apPool[i]);
      apPool[i] = 0;
    }
  }
  return __real_sqlite3_close(db);
}
