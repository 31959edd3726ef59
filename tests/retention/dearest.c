/* dearest.c: runs the statements of a file of jobs on another file, with the module, for
** callgrind: it counts the instructions of each call of measured().
**
**   dearest JOBS MODULE FILE
**
** JOBS is a database with a table jobs(at, sql, a, b, c, d, counts): the time that SQLite
** sees, in milliseconds since 1970, a statement, its parameters, and whether it counts. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 16, FIRST = 2, COUNTS = 6 };

static sqlite3_int64 now;

static int clock_of(sqlite3_vfs *pVfs, sqlite3_int64 *piNow) {
  (void)pVfs;
  *piNow = now + 210866760000000LL;
  return SQLITE_OK;
}

static void must(int ok, sqlite3 *db, const char *zWhat) {
  if (ok) return;
  fprintf(stderr, "dearest: %s: %s\n", zWhat, sqlite3_errmsg(db));
  exit(1);
}

static sqlite3_stmt *prepared(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *p = NULL;
  must(sqlite3_prepare_v2(db, zSql, -1, &p, NULL) == SQLITE_OK, db, zSql);
  return p;
}

static int run(sqlite3_stmt *p) {
  while (sqlite3_step(p) == SQLITE_ROW) continue;
  return sqlite3_reset(p);
}

__attribute__((noinline)) int measured(sqlite3_stmt *p) {
  return run(p);
}

int main(int nArg, char **az) {
  sqlite3 *jobs = NULL, *db = NULL;
  sqlite3_stmt *pJob, *apKept[KEPT] = {0};
  if (nArg != 4) return 2;
  must(sqlite3_open(az[1], &jobs) == SQLITE_OK, jobs, az[1]);
  must(sqlite3_open(az[3], &db) == SQLITE_OK, db, az[3]);
  sqlite3_enable_load_extension(db, 1);
  must(sqlite3_load_extension(db, az[2], NULL, NULL) == SQLITE_OK, db, az[2]);
  sqlite3_vfs_find(NULL)->xCurrentTimeInt64 = clock_of;
  pJob = prepared(
      jobs, "SELECT at, sql, a, b, c, d, counts FROM jobs ORDER BY rowid");
  while (sqlite3_step(pJob) == SQLITE_ROW) {
    const char *zSql = (const char *)sqlite3_column_text(pJob, 1);
    sqlite3_stmt *p;
    int i = 0;
    now = sqlite3_column_int64(pJob, 0);
    while (i < KEPT - 1 && apKept[i] && strcmp(sqlite3_sql(apKept[i]), zSql))
      i++;
    p = apKept[i] ? apKept[i] : (apKept[i] = prepared(db, zSql));
    for (i = 0; i < sqlite3_bind_parameter_count(p); i++)
      sqlite3_bind_value(p, i + 1, sqlite3_column_value(pJob, FIRST + i));
    i = sqlite3_column_int(pJob, COUNTS) ? measured(p) : run(p);
    must(i == SQLITE_OK, db, zSql);
  }
  exit(0); /* nothing is closed: that does not count */
}
