/*
** host.c: a program in C: host MODULE FILE SCENARIO...
**
** With -DSQLITE_CORE the module is linked in, and MODULE is not used.
*/
#include "../../../ext/blackbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *p = 0;
  int i, rc = sqlite3_prepare_v2(db, zSql, -1, &p, 0);
  if (rc == SQLITE_OK && sqlite3_bind_parameter_count(p) > 0) {
    sqlite3_bind_text(p, 1, "bound", -1, SQLITE_STATIC);
    sqlite3_bind_text(p, 2, "né€😀", -1, SQLITE_STATIC);
    sqlite3_bind_blob(p, 3, "\x00\xff", 2, SQLITE_STATIC);
    sqlite3_bind_int64(p, 5, 1760000000000);
  }
  while (rc == SQLITE_OK && sqlite3_step(p) == SQLITE_ROW) {
    for (i = 0; i < sqlite3_column_count(p); i++) {
      const char *z = (const char *)sqlite3_column_text(p, i);
      printf("%s%s", i ? "|" : "", z ? z : "");
    }
    putchar('\n');
  }
  if (rc != SQLITE_OK || sqlite3_finalize(p) != SQLITE_OK) {
    printf("error: %s\n", sqlite3_errmsg(db));
  }
}

static void runFile(sqlite3 *db, const char *zName) {
  static char aText[100000];
  FILE *pIn = fopen(zName, "rb");
  char *z, *zNext;
  if (pIn == 0) exit(1);
  aText[fread(aText, 1, sizeof(aText) - 1, pIn)] = 0;
  fclose(pIn);
  for (z = aText; z; z = zNext) {
    zNext = strstr(z, "\n\n");
    if (zNext) {
      *zNext = 0;
      zNext += 2;
    }
    if (strncmp(z, "--", 2) != 0) run(db, z);
  }
}

int main(int nArg, char **azArg) {
  sqlite3 *db;
  int i;
  if (nArg < 3 || sqlite3_open(azArg[2], &db) != SQLITE_OK) return 1;
#ifdef SQLITE_CORE
  if (sqlite3_blackbox_init(db, 0, 0) != SQLITE_OK) return 1;
#else
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, (int *)0);
  if (sqlite3_load_extension(db, azArg[1], 0, 0) != SQLITE_OK) return 1;
#endif
  puts(sqlite3_libversion());
  for (i = 3; i < nArg; i++) {
    runFile(db, azArg[i]);
  }
  return sqlite3_close(db) != SQLITE_OK;
}
