/*
** loading.c: the module as a file, loaded by programs of every kind. This
** program is not linked with an SQLite library: it opens the libraries that it
** needs.
**
**   loading <module> <libsqlite3> <copy of libsqlite3> <copy of module>
*/
#include "../harness.h"
#include <sqlite3ext.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *zModule, *zLibrary, *zCopy, *zModuleCopy;

/* One SQLite library: the functions that are used here. */
typedef struct Library {
  void *pHandle;
  int (*open)(const char *, sqlite3 **);
  int (*close)(sqlite3 *);
  int (*config)(sqlite3 *, int, ...);
  int (*load)(sqlite3 *, const char *, const char *, char **);
  int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **),
      void *, char **);
  void (*release)(void *);
} Library;

static Library openLibrary(const char *zFile) {
  Library l;
  l.pHandle = dlopen(zFile, RTLD_NOW | RTLD_LOCAL);
  if (l.pHandle == 0) fail_msg("%s", dlerror());
#define FIND(field, name) *(void **)&l.field = dlsym(l.pHandle, name)
  FIND(open, "sqlite3_open");
  FIND(close, "sqlite3_close");
  FIND(config, "sqlite3_db_config");
  FIND(load, "sqlite3_load_extension");
  FIND(exec, "sqlite3_exec");
  FIND(release, "sqlite3_free");
  return l;
}

static sqlite3 *openWith(const Library *p) {
  sqlite3 *db = 0;
  assert_int_equal(p->open(":memory:", &db), SQLITE_OK);
  p->config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, (void *)0);
  return db;
}

static int onlyRow(void *pOut, int n, char **azVal, char **azName) {
  (void)azName;
  assert_int_equal(n, 1);
  snprintf((char *)pOut, 200, "%s", azVal[0] ? azVal[0] : "NULL");
  return 0;
}

static void answers(const Library *p, sqlite3 *db) {
  char zOut[200] = "";
  int rc = p->exec(db,
      "SELECT blackbox_install();"
      "CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=2);"
      "INSERT INTO ring(agent_id, event_id) VALUES('a','e'),('a','f')",
      0, 0, 0);
  assert_int_equal(rc, SQLITE_OK);
  rc = p->exec(
      db, "SELECT payload_kill_switch('ring','a','k')", onlyRow, zOut, 0);
  assert_int_equal(rc, SQLITE_OK);
  assert_string_equal(zOut, "2");
}

/* Two copies of the library load the same file. The second one is refused, loads
** a copy of the file, and both continue to work, whichever closes first. */
static void testTwoLibraries(void **ppState) {
  Library one = openLibrary(zLibrary), two = openLibrary(zCopy);
  sqlite3 *db1, *db2, *dbAgain;
  char *zErr = 0;
  int bFirst;
  (void)ppState;
  assert_true(one.open != two.open);
  for (bFirst = 0; bFirst < 2; bFirst++) {
    Library *pFirst = bFirst ? &one : &two, *pSecond = bFirst ? &two : &one;
    db1 = openWith(pFirst);
    db2 = openWith(pSecond);
    assert_int_equal(pFirst->load(db1, zModule, 0, &zErr), SQLITE_OK);
    assert_int_equal(pSecond->load(db2, zModule, 0, &zErr), SQLITE_ERROR);
    assert_non_null(zErr);
    if (strstr(zErr, "another copy of the SQLite library") == 0) {
      fail_msg("%s", zErr);
    }
    pSecond->release(zErr);
    answers(pFirst, db1);
    assert_int_equal(
        pSecond->exec(db2, "SELECT blackbox_version()", 0, 0, 0), SQLITE_ERROR);
    zErr = 0;
    pSecond->load(db2, zModuleCopy, 0, &zErr);
    if (zErr != 0) fail_msg("%s", zErr);
    answers(pSecond, db2);
    assert_int_equal(pSecond->close(db2), SQLITE_OK);
    dbAgain = openWith(pFirst);
    assert_int_equal(pFirst->load(dbAgain, zModule, 0, 0), SQLITE_OK);
    answers(pFirst, dbAgain);
    assert_int_equal(pFirst->close(dbAgain), SQLITE_OK);
    assert_int_equal(pFirst->close(db1), SQLITE_OK);
    /* after its last connection the library releases the file */
  }
}

/* The second load does nothing, also while a statement runs. */
static int loadInside(void *pArg, int n, char **azVal, char **azName) {
  void **ap = (void **)pArg;
  Library *p = (Library *)ap[0];
  char *zErr = 0;
  (void)n;
  (void)azVal;
  (void)azName;
  if (p->load((sqlite3 *)ap[1], zModule, 0, &zErr) != SQLITE_OK) {
    fail_msg("%s", zErr);
  }
  return 0;
}

static void testSecondLoad(void **ppState) {
  Library one = openLibrary(zLibrary);
  sqlite3 *db = openWith(&one);
  void *ap[2] = {&one, db};
  (void)ppState;
  assert_int_equal(one.load(db, zModule, 0, 0), SQLITE_OK);
  assert_int_equal(one.load(db, zModule, 0, 0), SQLITE_OK);
  assert_int_equal(
      one.exec(db, "SELECT 1 UNION SELECT 2", loadInside, ap, 0), SQLITE_OK);
  answers(&one, db);
  assert_int_equal(one.close(db), SQLITE_OK);
}

/* The first load too may come while a statement runs. */
static void testFirstLoadInside(void **ppState) {
  Library one = openLibrary(zLibrary);
  sqlite3 *db = openWith(&one);
  void *ap[2] = {&one, db};
  (void)ppState;
  assert_int_equal(one.exec(db, "SELECT 1", loadInside, ap, 0), SQLITE_OK);
  answers(&one, db);
  assert_int_equal(one.close(db), SQLITE_OK);
}

/*----------------------------------------------------------- old SQLite --*/

typedef int (*InitFunction)(sqlite3 *, char **, const sqlite3_api_routines *);

static char zOldMessage[200];
static int iOldVersion;

static int oldVersionNumber(void) {
  return iOldVersion;
}
static const char *oldVersion(void) {
  return "3.37.2";
}
static char *oldMprintf(const char *zFormat, ...) {
  va_list ap;
  va_start(ap, zFormat);
  vsnprintf(zOldMessage, sizeof(zOldMessage), zFormat, ap);
  va_end(ap);
  return zOldMessage;
}

/* A library that has nothing beyond what was there from the beginning: any
** other call would be a jump to nowhere. */
static void testOldSqlite(void **ppState) {
  void *pHandle = dlopen(zModule, RTLD_NOW | RTLD_LOCAL);
  sqlite3_api_routines api;
  InitFunction xInit;
  char *zErr = 0;
  (void)ppState;
  if (pHandle == 0) fail_msg("%s", dlerror());
  *(void **)&xInit = dlsym(pHandle, "sqlite3_blackbox_init");
  assert_non_null(*(void **)&xInit);
  memset(&api, 0, sizeof(api));
  api.libversion = oldVersion;
  api.libversion_number = oldVersionNumber;
  api.mprintf = oldMprintf;
  iOldVersion = 3037002;
  assert_int_equal(xInit((sqlite3 *)&api, &zErr, &api), SQLITE_ERROR);
  assert_string_equal(
      zErr, "blackbox needs SQLite 3.38.0 or later, this is 3.37.2");
  assert_int_equal(xInit((sqlite3 *)&api, 0, &api), SQLITE_ERROR);
  dlclose(pHandle);
}

int main(int argc, char **argv) {
  const struct CMUnitTest aTest[] = {
      cmocka_unit_test(testTwoLibraries),
      cmocka_unit_test(testSecondLoad),
      cmocka_unit_test(testFirstLoadInside),
      cmocka_unit_test(testOldSqlite),
  };
  if (argc != 5) return 2;
  zModule = argv[1];
  zLibrary = argv[2];
  zCopy = argv[3];
  zModuleCopy = argv[4];
  return cmocka_run_group_tests_name("loading", aTest, 0, 0);
}
