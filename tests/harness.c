/*
** harness.c: see harness.h.
**
** All kinds of faults use one counter: a countdown to the first event that
** fails. Allocations fail in SQLITE_CONFIG_MALLOC, writes in a VFS on top of
** the default one, and steps of the VM in the progress handler.
*/
#define _XOPEN_SOURCE 700
#include "harness.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int isFull(void) {
  const char *z = getenv("BLACKBOX_FULL");
  return z != 0 && *z != 0;
}

/*------------------------------------------------------------- databases --*/

static char zMessage[2000];

const char *message(void) {
  return zMessage;
}

void addModule(sqlite3 *db) {
  char *zErr = 0;
  int rc = sqlite3_blackbox_init(db, &zErr, 0);
  if (rc != SQLITE_OK) fail_msg("init: %d %s", rc, zErr ? zErr : "");
}

static sqlite3 *openPlain(const char *zFile, const char *zVfs) {
  sqlite3 *db = 0;
  int rc = sqlite3_open_v2(zFile ? zFile : ":memory:", &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, zVfs);
  assert_int_equal(rc, SQLITE_OK);
  sqlite3_extended_result_codes(db, 1);
  sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, (void *)0, 0, 0);
  return db;
}

static int stillTime(sqlite3_vfs *pVfs, i64 *piJulian) {
  (void)pVfs;
  *piJulian = 212635238430000; /* 2026-01-15 12:00:30 */
  return SQLITE_OK;
}

void stopClock(void) {
  static sqlite3_vfs vfs;
  vfs = *sqlite3_vfs_find(0);
  vfs.zName = "still";
  vfs.xCurrentTimeInt64 = stillTime;
  if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) abort();
}

sqlite3 *openDb(const char *zFile, const char *zVfs) {
  sqlite3 *db = openPlain(zFile, zVfs);
  addModule(db);
  return db;
}

sqlite3 *openCopy(const unsigned char *aByte, i64 nByte) {
  sqlite3 *db = openPlain(0, 0);
  unsigned char *aCopy = sqlite3_malloc64((sqlite3_uint64)nByte);
  assert_non_null(aCopy);
  memcpy(aCopy, aByte, (size_t)nByte);
  assert_int_equal(
      sqlite3_deserialize(db, "main", aCopy, nByte, nByte,
          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE),
      SQLITE_OK);
  addModule(db);
  return db;
}

static struct {
  int bArmed;
  FaultKind eKind;
  int iPoint, bSticky;
  int nSeen, nFailed;
  sqlite3 *db;
} fault;

/* Removes the duration of a call, which differs in each run. */
static void cutDuration(char *z) {
  static const char zName[] = "\"duration\":";
  char *zDigit = strstr(z, zName), *zEnd;
  if (zDigit == 0) return;
  zDigit += strlen(zName);
  zEnd = zDigit + strspn(zDigit, "0123456789.");
  memmove(zDigit, zEnd, strlen(zEnd) + 1);
}

/* Appends the row as text. Reading it must not be disturbed. */
static int appendRow(sqlite3_stmt *pStmt, char *zOut, int nOut, int n) {
  int bArmed = fault.bArmed, i, nCol = sqlite3_column_count(pStmt);
  fault.bArmed = 0;
  for (i = 0; i < nCol && n < nOut; i++) {
    const char *z = (const char *)sqlite3_column_text(pStmt, i);
    n += snprintf(zOut + n, (size_t)(nOut - n), "%s%s", z ? z : "NULL",
        i + 1 < nCol ? "|" : "\n");
  }
  cutDuration(zOut);
  fault.bArmed = bArmed;
  return (int)strlen(zOut);
}

int runOut(sqlite3 *db, const char *zSql, char *zOut, int nOut) {
  int rc = SQLITE_OK, n = 0;
  *zOut = 0;
  while (rc == SQLITE_OK && *zSql != 0) {
    sqlite3_stmt *pStmt = 0;
    rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, &zSql);
    while (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
      n = appendRow(pStmt, zOut, nOut, n);
    }
    if (pStmt != 0) rc = sqlite3_finalize(pStmt);
  }
  snprintf(zMessage, sizeof(zMessage), "%s", sqlite3_errmsg(db));
  return rc;
}

int run(sqlite3 *db, const char *zSql) {
  int rc = sqlite3_exec(db, zSql, 0, 0, 0);
  snprintf(zMessage, sizeof(zMessage), "%s", sqlite3_errmsg(db));
  return rc;
}

void must(sqlite3 *db, const char *zSql) {
  int rc = run(db, zSql);
  if (rc != SQLITE_OK) fail_msg("%d %s\n  in: %s", rc, zMessage, zSql);
}

static sqlite3_stmt *firstRow(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  if (sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) != SQLITE_OK ||
      sqlite3_step(pStmt) != SQLITE_ROW) {
    char zErr[1000];
    snprintf(zErr, sizeof(zErr), "%s", sqlite3_errmsg(db));
    sqlite3_finalize(pStmt);
    fail_msg("%s\n  in: %s", zErr, zSql);
  }
  return pStmt;
}

i64 number(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = firstRow(db, zSql);
  i64 iVal = sqlite3_column_int64(pStmt, 0);
  sqlite3_finalize(pStmt);
  return iVal;
}

char *text(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = firstRow(db, zSql);
  char *z = sqlite3_mprintf("%s", sqlite3_column_text(pStmt, 0));
  sqlite3_finalize(pStmt);
  return z;
}

/* Whether every run computes new values for this column. */
static int isFresh(const char *zTable, const char *zColumn) {
  if (strcmp(zColumn, "at") == 0 || strcmp(zColumn, "minute") == 0) return 1;
  if (strcmp(zTable, "evidence_owners") == 0) return zColumn[0] != 'b';
  if (strcmp(zColumn, "claim") == 0) return 1;
  if (strcmp(zColumn, "owner") == 0) {
    return strncmp(zTable, "evidence", 8) == 0 ||
           strcmp(zTable, "rec_state") == 0;
  }
  if (strcmp(zColumn, "places") == 0 || strcmp(zColumn, "digest") == 0 ||
      strcmp(zColumn, "salt") == 0)
    return 1;
  if (strcmp(zTable, "retention__in_force") == 0) {
    return strcmp(zColumn, "until") == 0;
  }
  if (strncmp(zTable, "blackbox__", 10) == 0) {
    return strcmp(zColumn, "detail") == 0 || strcmp(zColumn, "hash") == 0 ||
           strcmp(zColumn, "origin") == 0 || strcmp(zColumn, "secret") == 0 ||
           strcmp(zColumn, "fields") == 0 || strcmp(zColumn, "frontier") == 0;
  }
  if (strcmp(zTable, "store__packs") == 0 && strcmp(zColumn, "token") == 0) {
    return 1;
  }
  if (strcmp(zTable, "retention__clock") == 0) return 1;
  if (strcmp(zTable, "payload__pins") == 0) return 1;
  return (strcmp(zTable, "event_payloads") == 0 ||
             strcmp(zTable, "payload__waiting") == 0 ||
             strcmp(zTable, "payload__packed") == 0) &&
         strcmp(zColumn, "id") == 0;
}

/* The subject of a pin is the new id of its row, and the key of a reference may be. */
static const char *shown(const char *zTable, const char *zVal) {
  if (zVal == 0 || (strcmp(zTable, "blackbox__log") != 0 &&
                       strcmp(zTable, "payload__packed") != 0)) {
    return zVal;
  }
  return strlen(zVal) == 36 && zVal[8] == '-' ? "an id" : zVal;
}

/* Appends the rows of a query, a line each. */
static void appendRows(
    sqlite3_str *pOut, sqlite3 *db, const char *zTable, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  int i, rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  while (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
    sqlite3_str_appendf(pOut, "%s", zTable);
    for (i = 0; i < sqlite3_column_count(pStmt); i++) {
      if (isFresh(zTable, sqlite3_column_name(pStmt, i))) continue;
      sqlite3_str_appendf(pOut, "|%d %s", sqlite3_column_type(pStmt, i),
          shown(zTable, (const char *)sqlite3_column_text(pStmt, i)));
    }
    sqlite3_str_appendall(pOut, "\n");
  }
  rc = sqlite3_finalize(pStmt);
  if (rc != SQLITE_OK) fail_msg("%s\n  in: %s", sqlite3_errmsg(db), zSql);
}

static void appendSchema(sqlite3_str *pOut, sqlite3 *db, const char *zDb) {
  sqlite3_stmt *pStmt = 0;
  /* the names of a buffer's indexes end with eight random digits */
  char *zSql = sqlite3_mprintf(
      "SELECT CASE type WHEN 'index' THEN substr(name, 1, length(name) - 8) "
      "ELSE name END, CASE type WHEN 'index' THEN replace(sql, substr(name, "
      "-8), '') ELSE sql END FROM \"%w\".sqlite_schema WHERE sql IS NOT NULL "
      "ORDER BY type, 1",
      zDb);
  appendRows(pOut, db, zDb, zSql);
  sqlite3_free(zSql);
  zSql = sqlite3_mprintf(
      "SELECT name FROM \"%w\".sqlite_schema WHERE type = 'table' AND "
      "rootpage > 0 AND name NOT LIKE 'sqlite_%%' AND name NOT GLOB "
      "'*_fts_data' AND name NOT GLOB '*_fts_idx' ORDER BY name",
      zDb);
  assert_int_equal(sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0), SQLITE_OK);
  sqlite3_free(zSql);
  /* The segments of the full-text index depend on the statements that failed
  ** before: it is compared by the texts that have a word of these letters. */
  while (sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zTable = (const char *)sqlite3_column_text(pStmt, 0);
    /* When clean-up runs next is beside the record. */
    zSql = sqlite3_mprintf("SELECT %s FROM \"%w\".\"%w\"",
        strcmp(zTable, "payload__state") == 0
            ? "bytes, packed, share, kept_ms, since, cap"
            : "*",
        zDb, zTable);
    appendRows(pOut, db, zTable, zSql);
    sqlite3_free(zSql);
    if (strcmp(zTable, "rollout_fts_config") == 0) {
      zSql = sqlite3_mprintf(
          "SELECT rowid FROM \"%w\".rollout_fts('a* OR b* OR c* OR d* OR e* "
          "OR h* OR i* OR n* OR o* OR p* OR r* OR s* OR t* OR u* OR x*')",
          zDb);
      appendRows(pOut, db, "words", zSql);
      sqlite3_free(zSql);
    }
  }
  assert_int_equal(sqlite3_finalize(pStmt), SQLITE_OK);
}

char *contents(sqlite3 *db) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  sqlite3_stmt *pStmt = 0;
  assert_int_equal(sqlite3_prepare_v2(db,
                       "SELECT name FROM pragma_database_list", -1, &pStmt, 0),
      SQLITE_OK);
  while (sqlite3_step(pStmt) == SQLITE_ROW) {
    appendSchema(pOut, db, (const char *)sqlite3_column_text(pStmt, 0));
  }
  sqlite3_finalize(pStmt);
  /* as a user reads them, unless a failure has renamed a column of their table */
  if (number(db, "SELECT count(*) FROM temp.sqlite_schema WHERE "
                 "name = 'payload__waiting' AND sql LIKE '%theirs%'") == 0) {
    appendRows(pOut, db, "waiting", "SELECT * FROM payload_queue");
  }
  return sqlite3_str_finish(pOut);
}

void mustBeSame(const char *zWhere, const char *zIs, const char *zShould) {
  int i = 0, iLine = 0;
  if (strcmp(zIs, zShould) == 0) return;
  for (; zIs[i] != 0 && zIs[i] == zShould[i]; i++) {
    if (zIs[i] == '\n') iLine = i + 1;
  }
  fail_msg("%s\n--- is\n%.600s\n--- should be\n%.600s", zWhere, zIs + iLine,
      zShould + iLine);
}

char *problems(sqlite3 *db) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  char *z;
  appendRows(pOut, db, "problem",
      "SELECT * FROM blackbox_check WHERE problem NOT GLOB 'row *: has no leaf "
      "yet*' AND problem NOT GLOB '*: schema of * had been damaged *'");
  z = sqlite3_str_finish(pOut);
  return z ? z : sqlite3_mprintf("%s", "");
}

void closeDb(sqlite3 *db) {
  int rc = sqlite3_close(db);
  if (rc != SQLITE_OK) fail_msg("close: %d %s", rc, sqlite3_errmsg(db));
}

void copyFile(const char *zFrom, const char *zTo) {
  static char aByte[1 << 16];
  FILE *pIn = fopen(zFrom, "rb"), *pOut = fopen(zTo, "wb");
  size_t n;
  assert_true(pIn != 0 && pOut != 0);
  while ((n = fread(aByte, 1, sizeof(aByte), pIn)) > 0) {
    assert_int_equal(fwrite(aByte, 1, n, pOut), n);
  }
  fclose(pIn);
  assert_int_equal(fclose(pOut), 0);
}

/*------------------------------------------------------------ operations --*/

static int iPart = 0, nPart = 1;

static char zFolder[] = "/tmp/blackbox-XXXXXX";

static int removeOne(
    const char *zFile, const struct stat *p, int eType, struct FTW *pWalk) {
  (void)p;
  (void)eType;
  (void)pWalk;
  return remove(zFile);
}

static void removeFolder(void) {
  nftw(zFolder, removeOne, 10, FTW_DEPTH | FTW_PHYS);
}

void chooseOperations(int argc, char **argv) {
  if (mkdtemp(zFolder) == 0 || chdir(zFolder) != 0) abort();
  atexit(removeFolder);
  if (argc < 2) return;
  if (sscanf(argv[1], "%d/%d", &iPart, &nPart) != 2 || nPart < 1) {
    iPart = 0;
    nPart = 1;
    cmocka_set_test_filter(argv[1]);
  }
}

int isFirstPart(void) {
  return iPart == 0;
}

/* zName is NULL for all domains. */
static const struct {
  const char *zName;
  const Operation *aOperation;
} aDomain[] = {
    {0, aCoreOperation},
    {"payload", aPayloadOperation},
    {"rollout", aRolloutOperation},
    {"evidence", aEvidenceOperation},
    {"cache", aCacheOperation},
    {"retention,payload,rollout,evidence,cache", aRetentionOperation},
    {"report,retention,payload,rollout,evidence,cache", aRedactOperation},
    {"payload,retention", aProofOperation},
    {"payload,store", aStoreOperation},
    {"report,payload", aReportOperation},
    {"report,rollout,evidence,cache", aReportOtherOperation},
    {"report", aReportDatabaseOperation},
};
#define N_DOMAIN ((int)(sizeof(aDomain) / sizeof(aDomain[0])))

/* Operation number i of all, and its domain; NULL when there are no more. */
static const Operation *operation(int i, const char **pzDomain) {
  const Operation *p;
  int iDomain;
  for (iDomain = 0; iDomain < N_DOMAIN; iDomain++) {
    *pzDomain = aDomain[iDomain].zName;
    for (p = aDomain[iDomain].aOperation; p->zName != 0; p++) {
      if (i-- == 0) return p;
    }
  }
  return 0;
}

/* The parts are blocks, so that a process installs few domains. */
const Operation *chosenOperation(int i) {
  const char *zDomain;
  int nAll = 0;
  while (operation(nAll, &zDomain) != 0) nAll++;
  i += nAll * iPart / nPart;
  return i < nAll * (iPart + 1) / nPart ? operation(i, &zDomain) : 0;
}

const Operation *anyOperation(int i) {
  const char *zDomain;
  return operation(i, &zDomain);
}

int isPicked(int iCase, int iOperation, int nPick) {
  return isFull() || (iCase + iOperation) % nPick == 0;
}

static const char *domainOf(const Operation *pOp) {
  const char *zDomain = 0;
  int i = 0;
  while (operation(i, &zDomain) != pOp) i++;
  return zDomain;
}

/*---------------------------------------------------------------- faults --*/

/* Counts an event. Returns 1 if it must fail. */
static int event(FaultKind eKind) {
  int bFail;
  if (!fault.bArmed || fault.eKind != eKind) return 0;
  bFail = fault.nSeen == fault.iPoint ||
          (fault.bSticky && fault.nSeen > fault.iPoint);
  fault.nSeen++;
  fault.nFailed += bFail;
  return bFail;
}

static int onStep(void *p) {
  (void)p;
  if (event(FAULT_INTERRUPT)) sqlite3_interrupt(fault.db);
  return event(FAULT_STEP);
}

void faultArm(FaultKind eKind, int iPoint, int bSticky, sqlite3 *db) {
  memset(&fault, 0, sizeof(fault));
  fault.eKind = eKind;
  fault.iPoint = iPoint;
  fault.bSticky = bSticky;
  fault.db = db;
  if (eKind >= FAULT_STEP) sqlite3_progress_handler(db, 1, onStep, 0);
  fault.bArmed = 1;
}

int faultDisarm(int *pnSeen) {
  fault.bArmed = 0;
  if (fault.eKind >= FAULT_STEP) sqlite3_progress_handler(fault.db, 0, 0, 0);
  if (pnSeen != 0) *pnSeen = fault.nSeen;
  return fault.nFailed;
}

/*---------------------------------------------------------------- memory --*/

static sqlite3_mem_methods plainMemory;

static void *failingMalloc(int n) {
  return event(FAULT_MEMORY) ? 0 : plainMemory.xMalloc(n);
}

static void *failingRealloc(void *p, int n) {
  return event(FAULT_MEMORY) ? 0 : plainMemory.xRealloc(p, n);
}

void faultMemory(void) {
  sqlite3_mem_methods methods;
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &plainMemory);
  methods = plainMemory;
  methods.xMalloc = failingMalloc;
  methods.xRealloc = failingRealloc;
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK) abort();
}

/*------------------------------------------------------------------- VFS --*/

typedef struct File {
  sqlite3_file base;
  sqlite3_file *pReal; /* after this struct */
  int bJournal;        /* a statement journal */
} File;

#define REAL(p) (((File *)(p))->pReal)

static int fClose(sqlite3_file *p) {
  return REAL(p)->pMethods->xClose(REAL(p));
}
static int fRead(sqlite3_file *p, void *a, int n, sqlite3_int64 i) {
  if (event(FAULT_READ)) return SQLITE_IOERR_READ;
  return REAL(p)->pMethods->xRead(REAL(p), a, n, i);
}
static int fWrite(sqlite3_file *p, const void *a, int n, sqlite3_int64 i) {
  if (event(FAULT_WRITE)) return SQLITE_IOERR_WRITE;
  if (event(FAULT_FULL)) return SQLITE_FULL;
  if (((File *)p)->bJournal && event(FAULT_JOURNAL)) return SQLITE_FULL;
  return REAL(p)->pMethods->xWrite(REAL(p), a, n, i);
}
static int fTruncate(sqlite3_file *p, sqlite3_int64 n) {
  if (event(FAULT_WRITE)) return SQLITE_IOERR_TRUNCATE;
  return REAL(p)->pMethods->xTruncate(REAL(p), n);
}
static int fSync(sqlite3_file *p, int flags) {
  (void)p;
  (void)
      flags; /* power failures are not simulated, so nothing must reach the disk */
  if (event(FAULT_SYNC)) return SQLITE_IOERR_FSYNC;
  return event(FAULT_WRITE) ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}
static int fFileSize(sqlite3_file *p, sqlite3_int64 *pn) {
  return REAL(p)->pMethods->xFileSize(REAL(p), pn);
}
static int fLock(sqlite3_file *p, int e) {
  return REAL(p)->pMethods->xLock(REAL(p), e);
}
static int fUnlock(sqlite3_file *p, int e) {
  return REAL(p)->pMethods->xUnlock(REAL(p), e);
}
static int fCheckLock(sqlite3_file *p, int *pb) {
  return REAL(p)->pMethods->xCheckReservedLock(REAL(p), pb);
}
static int fControl(sqlite3_file *p, int op, void *pArg) {
  return REAL(p)->pMethods->xFileControl(REAL(p), op, pArg);
}
static int fSector(sqlite3_file *p) {
  return REAL(p)->pMethods->xSectorSize(REAL(p));
}
static int fDevice(sqlite3_file *p) {
  return REAL(p)->pMethods->xDeviceCharacteristics(REAL(p));
}
static int fShmMap(
    sqlite3_file *p, int iPage, int nByte, int b, void volatile **pp) {
  return REAL(p)->pMethods->xShmMap(REAL(p), iPage, nByte, b, pp);
}
static int fShmLock(sqlite3_file *p, int i, int n, int flags) {
  return REAL(p)->pMethods->xShmLock(REAL(p), i, n, flags);
}
static void fShmBarrier(sqlite3_file *p) {
  REAL(p)->pMethods->xShmBarrier(REAL(p));
}
static int fShmUnmap(sqlite3_file *p, int b) {
  return REAL(p)->pMethods->xShmUnmap(REAL(p), b);
}

static const sqlite3_io_methods fileMethods = {2, fClose, fRead, fWrite,
    fTruncate, fSync, fFileSize, fLock, fUnlock, fCheckLock, fControl, fSector,
    fDevice, fShmMap, fShmLock, fShmBarrier, fShmUnmap, 0, 0};

static sqlite3_vfs *pRealVfs;

static int vOpen(sqlite3_vfs *pVfs, const char *zName, sqlite3_file *pFile,
    int flags, int *pOut) {
  File *p = (File *)pFile;
  int rc;
  (void)pVfs;
  p->pReal = (sqlite3_file *)&p[1];
  p->bJournal = (flags & SQLITE_OPEN_SUBJOURNAL) != 0;
  rc = pRealVfs->xOpen(pRealVfs, zName, p->pReal, flags, pOut);
  p->base.pMethods = p->pReal->pMethods != 0 ? &fileMethods : 0;
  return rc;
}
static int vDelete(sqlite3_vfs *pVfs, const char *zName, int bSync) {
  (void)pVfs;
  if (event(FAULT_WRITE)) return SQLITE_IOERR_DELETE;
  return pRealVfs->xDelete(pRealVfs, zName, bSync);
}

void faultVfs(void) {
  static sqlite3_vfs vfs;
  pRealVfs = sqlite3_vfs_find(0);
  vfs = *pRealVfs;
  vfs.zName = "faulty";
  vfs.szOsFile += (int)sizeof(File);
  vfs.xOpen = vOpen;
  vfs.xDelete = vDelete;
  if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK) abort();
}

/*------------------------------------------------------------ operations --*/

static void pushFirst(sqlite3 *db) {
  must(db,
      "INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1);"
      "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);"
      "INSERT INTO ring(agent_id, event_id, request_body, response_body, "
      "  timestamp) VALUES"
      "  ('a','e1','q1','r1',1000),('a','e2','q2','r2',2000),"
      "  ('a','e3','q3',NULL,3000),('a','e4',x'00ff','r4',4000),"
      "  ('b','f1','q5','r5',5000);");
}

/* A database with a domain, or all if it is NULL, from which others are copied:
** an installation takes longer than most operations. */
static sqlite3 *installed(const char *zDomain) {
  static struct {
    const char *zDomain;
    sqlite3 *db;
  } aInstalled[20];
  char *zSql;
  int i = 0;
  while (aInstalled[i].db != 0 && aInstalled[i].zDomain != zDomain) i++;
  if (aInstalled[i].db != 0) return aInstalled[i].db;
  assert_true(i + 1 < (int)(sizeof(aInstalled) / sizeof(aInstalled[0])));
  aInstalled[i].zDomain = zDomain;
  aInstalled[i].db = openDb(0, 0);
  zSql = sqlite3_mprintf(
      "SELECT blackbox_install('main', %Q)", zDomain ? zDomain : "all");
  must(aInstalled[i].db, "CREATE TABLE app(x)");
  must(aInstalled[i].db, zSql);
  sqlite3_free(zSql);
  if (zDomain == 0 || strcmp(zDomain, "payload") == 0) {
    pushFirst(aInstalled[i].db);
  }
  return aInstalled[i].db;
}

void prepareDb(sqlite3 *db, const Operation *pOp) {
  sqlite3_backup *p =
      sqlite3_backup_init(db, "main", installed(domainOf(pOp)), "main");
  assert_non_null(p);
  assert_int_equal(sqlite3_backup_step(p, -1), SQLITE_DONE);
  assert_int_equal(sqlite3_backup_finish(p), SQLITE_OK);
  if (pOp->zSetup != 0) must(db, pOp->zSetup);
}
