/*
** defensive.c: part of the SQLite libraries that versions.py builds. If
** BLACKBOX_DEFENSIVE is 1, it puts every connection into defensive mode, as
** several hosts do.
*/
#include <sqlite3.h>

#include <stdlib.h>
#include <string.h>

struct sqlite3_api_routines;

static int makeDefensive(
    sqlite3 *db, char **pzErr, const struct sqlite3_api_routines *pApi) {
  (void)pzErr;
  (void)pApi;
  return sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)0);
}

/* Called when the library starts (-DSQLITE_EXTRA_INIT=defensiveStart). */
int defensiveStart(const char *zUnused);
int defensiveStart(const char *zUnused) {
  const char *z = getenv("BLACKBOX_DEFENSIVE");
  (void)zUnused;
  if (z == 0 || strcmp(z, "1") != 0) return SQLITE_OK;
  return sqlite3_auto_extension((void (*)(void))makeDefensive);
}
