/*
** fuzz.c: unexpected input. It is the target of libFuzzer (make fuzz), and of
** replay.c, which the tests run.
**
** The first byte of an input, or the variable TARGET, selects what is done with the
** rest:
**   a  rollout_append()          i  rollout_import(), export, import again
**   s  evidence_slim()           r  an action: stored, approved, exported
**   e  payload_save_evidence()   l  the arguments of a row of blackbox_call
**   c  the arguments of CREATE VIRTUAL TABLE
**   h  a head, a signed note, or the path of a tile
**   o  the bodies of an exchange: two JSON texts with a line feed between them
**   k  a blob of a ring is changed          p  one of the store is changed
**   t  one of the tree of the log is changed
**   d  bytes of the pages of a database are changed: three are the place, one is the
**      value
** Of k, p and t three bytes choose the blob and how it is changed. The pages of d are
** not those of the schema, so that the connection stays, and the schema in its memory.
** Dossiers and bundles are read by tools/verify.py: see fuzz.py.
**
** What must hold, in addition to what the sanitizers check: accepted input is
** JSON, output is JSON, an error has a message, and blackbox_check() reports
** nothing. The database is in memory, and each run is rolled back. Statements are
** kept.
*/
#include "../../ext/blackbox.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID "'5973b6c0-94b8-487b-a530-2aeb6098ae0e'"
#define OTHER "'019d0000-1111-7222-8333-444455556666'"
#define MAX_CHANGES 8
#define MAX_STMTS 400
#define MAX_BLOBS 200

int LLVMFuzzerTestOneInput(const uint8_t *aByte, size_t nByte);

extern const char bxSqlRolloutCheck[]; /* sql/rollout_check.sql */
extern const char bxSqlPayloadCheck[];
extern sqlite3_uint64 bxHashOf(const char *z, sqlite3_int64 n);
extern sqlite3_uint64 bxHashMix(sqlite3_uint64 h, sqlite3_uint64 w);
static sqlite3 *db;
static sqlite3 *dbWhole,
    *dbPages;                 /* in use, and the one whose pages are changed */
static sqlite3 *adbSmall[2];  /* for a buffer, and for a ring */
static unsigned char *aImage; /* of that */
static sqlite3_int64 nImage, nPage, iFirstPage;

/* Statements by their text, which is a constant. */
static struct {
  sqlite3 *db;
  const char *zSql;
  sqlite3_stmt *pStmt;
} aStmt[MAX_STMTS];
static int nStmt;

/* Blobs of the tables of rings, of the store, and of the tree. */
static struct Blob {
  char cTarget;
  const char *zTable, *zColumn;
  sqlite3_int64 iRow;
} aBlob[MAX_BLOBS];
static int nBlob;

static const uint8_t *aInput;
static size_t nInput;

static void wrong(const char *zWhat, const char *zSql) {
  fprintf(stderr, "%s: %s\n  in: %s\n  for: %.*s\n", zWhat, sqlite3_errmsg(db),
      zSql, (int)nInput, (const char *)aInput);
  abort();
}

/* Prepares what it has not prepared. NULL if it cannot. */
static sqlite3_stmt *kept(const char *zSql, int *prc) {
  int i;
  *prc = SQLITE_OK;
  for (i = 0; i < nStmt; i++) {
    if (aStmt[i].zSql == zSql && aStmt[i].db == db) return aStmt[i].pStmt;
  }
  if (nStmt == MAX_STMTS) abort();
  aStmt[nStmt].zSql = zSql;
  aStmt[nStmt].db = db;
  *prc = sqlite3_prepare_v3(
      db, zSql, -1, SQLITE_PREPARE_PERSISTENT, &aStmt[nStmt].pStmt, 0);
  return *prc == SQLITE_OK ? aStmt[nStmt++].pStmt : 0;
}

/* Runs one statement, a constant, with the text as ?1. Returns its first value, to
** sqlite3_free(), or NULL if it failed or returned none. *prc is its code. */
static char *ask(const char *zSql, const char *zText, int nText, int *prc) {
  sqlite3_stmt *pStmt = kept(zSql, prc);
  char *z = 0;
  if (pStmt != 0) {
    if (sqlite3_bind_parameter_count(pStmt) > 0) {
      sqlite3_bind_text(pStmt, 1, zText, nText, SQLITE_STATIC);
    }
    while (sqlite3_step(pStmt) == SQLITE_ROW) {
      const char *zVal = (const char *)sqlite3_column_text(pStmt, 0);
      if (z == 0 && zVal != 0) z = sqlite3_mprintf("%s", zVal);
    }
    *prc = sqlite3_reset(pStmt);
  }
  if (*prc != SQLITE_OK && *sqlite3_errmsg(db) == 0) wrong("no words", zSql);
  return z;
}

/* A statement that is made for this run. */
static int runOnce(const char *zSql, const char *zText, int nText) {
  sqlite3_stmt *pStmt = 0;
  int rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  if (rc == SQLITE_OK) {
    if (zText != 0) sqlite3_bind_text(pStmt, 1, zText, nText, SQLITE_STATIC);
    while (sqlite3_step(pStmt) == SQLITE_ROW) {
    }
    rc = sqlite3_finalize(pStmt);
  }
  if (rc != SQLITE_OK && *sqlite3_errmsg(db) == 0) wrong("no words", zSql);
  return rc;
}

static int run(const char *zSql, const char *zText, int nText) {
  int rc;
  sqlite3_free(ask(zSql, zText, nText, &rc));
  return rc;
}

static void must(const char *zSql) {
  if (run(zSql, 0, 0) != SQLITE_OK) wrong("failed", zSql);
}

static int isJson(const char *zText, int nText) {
  int rc;
  char *z = ask("SELECT json_valid(?1)", zText, nText, &rc);
  int bValid = z != 0 && *z == '1';
  sqlite3_free(z);
  return bValid;
}

/* A query whose value, if there is one, must be JSON. */
static void mustGiveJson(const char *zSql) {
  int rc;
  char *z = ask(zSql, 0, 0, &rc);
  if (z != 0 && !isJson(z, -1)) wrong("not JSON", zSql);
  sqlite3_free(z);
}

static void mustBeNone(const char *zSql) {
  int rc;
  char *z = ask(zSql, 0, 0, &rc);
  if (rc != SQLITE_OK || z != 0) wrong(z ? z : "failed", zSql);
}

/*----------------------------------------------------------- what is done --*/

static void append(const char *z, int n) {
  int rc = run("SELECT rollout_append(" ID ", ?1)", z, n);
  if (rc == SQLITE_OK && !isJson(z, n)) wrong("took what is no JSON", z);
  mustGiveJson("SELECT rollout_history(" ID ")");
  mustBeNone(bxSqlRolloutCheck);
}

static void import(const char *z, int n) {
  run("SELECT rollout_import(?1, " ID ")", z, n);
  mustGiveJson("SELECT rollout_history(" ID ")");
  mustGiveJson("SELECT rollout_export(" ID ", 'atif')");
  mustGiveJson("SELECT rollout_export(" ID ", 'otlp')");
  run("SELECT rollout_export(" ID ", 'markdown')", "", 0);
  must("SELECT rollout_import(rollout_export(" ID "), " OTHER ")");
  mustBeNone("SELECT a.sequence FROM rollout_items AS a, rollout_items AS b "
             "WHERE a.rollout = " ID " AND b.rollout = " OTHER
             " AND a.sequence = b.sequence AND (a.type <> b.type OR "
             "replace(a.payload, char(10), ' ') IS NOT b.payload)");
  mustBeNone(bxSqlRolloutCheck);
}

static void slim(const char *z, int n) {
  int rc;
  char *zSlim = ask("SELECT evidence_slim(?1)", z, n, &rc);
  char *zAgain;
  if (zSlim == 0 || (int)strlen(zSlim) != n || memcmp(z, zSlim, (size_t)n)) {
    if (!isJson(z, n)) wrong("cut what is no JSON", z);
  }
  if (zSlim == 0) return;
  if (isJson(z, n) && !isJson(zSlim, -1)) wrong("cut to what is no JSON", z);
  zAgain = ask("SELECT evidence_slim(?1)", zSlim, -1, &rc);
  if (zAgain == 0 || strcmp(zSlim, zAgain) != 0) wrong("cut twice", zSlim);
  sqlite3_free(zAgain);
  sqlite3_free(zSlim);
}

static void store(const char *z, int n) {
  int rc =
      run("INSERT INTO rec(id, timestamp, action) VALUES('f', 1, ?1)", z, n);
  if (rc == SQLITE_OK && !isJson(z, n)) wrong("stored what is no JSON", z);
  mustGiveJson("SELECT action FROM rec");
  switch (n % 16) { /* they take ten times as long as the rest */
    case 0: mustGiveJson("SELECT evidence_export_puppeteer('rec')"); break;
    case 1: mustGiveJson("SELECT evidence_export_replay('rec')"); break;
    case 2: mustGiveJson("SELECT evidence_prune_for_approval('rec')"); break;
    case 3: mustGiveJson("SELECT evidence_export('rec')"); break;
    default: break;
  }
}

static void saveEvidence(const char *z, int n) {
  static const char zSave[] = "SELECT payload_save_evidence('z', ?1)";
  int rc;
  char *zAgain;
  if (run(zSave, z, n) != SQLITE_OK) {
    mustBeNone(
        "SELECT id FROM event_payloads WHERE kill_switch_event_id = 'z'");
    return;
  }
  if (!isJson(z, n)) wrong("took what is no JSON", z);
  mustBeNone(bxSqlPayloadCheck);
  zAgain = ask(zSave, z, n, &rc);
  if (zAgain == 0 || strcmp(zAgain, "0") != 0) wrong("saved twice", z);
  sqlite3_free(zAgain);
}

static void callRow(const char *z, int n) {
  static const char *const az[] = {
#define OF(name) "INSERT INTO blackbox_call VALUES('" name "', ?1)"
      OF("cache_write"), OF("payload_save_evidence"), OF("rollout_append"),
      OF("payload_cleanup"), OF("blackbox_use")};
  size_t i;
  for (i = 0; i < sizeof(az) / sizeof(az[0]); i++) {
    if (run(az[i], z, n) == SQLITE_OK && !isJson(z, n)) {
      wrong("took what is no JSON", z);
    }
  }
}

/* A table that cannot be made makes SQLite read the whole schema again: so it is a small
** one. */
static void create(const char *z, int n) {
  static const char *const az[] = {"evidence_buffer", "payload_ring"};
  char *zSql = sqlite3_mprintf(
      "CREATE VIRTUAL TABLE temp.made USING %s(%.*s)", az[n % 2], n, z);
  if (zSql == 0) return;
  db = adbSmall[n % 2];
  run("BEGIN", 0, 0);
  if (runOnce(zSql, 0, 0) == SQLITE_OK) runOnce("DROP TABLE temp.made", 0, 0);
  run("ROLLBACK", 0, 0);
  db = dbWhole;
  sqlite3_free(zSql);
}

/* A third of them, by the length of the input: a run is short. */
static void runAll(const char *const *az, size_t n) {
  size_t i;
  for (i = nInput % 3; i < n; i += 3) run(az[i], 0, 0);
}
#define RUN_ALL(az) runAll(az, sizeof(az) / sizeof(az[0]))

static void head(const char *z, int n) {
  int rc = run("SELECT proof_of('head', ?1)", z, n);
  char *zFound = ask("SELECT problem FROM proof_verify(?1)", z, n, &rc);
  if (rc == SQLITE_OK && zFound == 0 &&
      run("SELECT proof_of('head', ?1)", z, n) != SQLITE_OK) {
    wrong("a true head has no proof", z);
  }
  sqlite3_free(zFound);
  run("SELECT proof_tile(?1)", z, n);
}

static void bodies(const char *z, int n) {
  static const char *const az[] = {
#define BOTH                                                                   \
  "substr(?1, 1, instr(?1 || char(10), char(10)) - 1),"                        \
  " substr(?1, instr(?1 || char(10), char(10)) + 1)"
      "SELECT count(*), total(n), max(length(arguments)), max(length(result))"
      " FROM payload_calls(" BOTH ")",
      "SELECT total(input), total(output) FROM payload_usage(" BOTH ")",
      "SELECT length(payload_prompt(?1))", "SELECT length(payload_tools(?1))",
      "INSERT INTO ring(agent_id, event_id, request_body, response_body)"
      " VALUES('b', 'e', " BOTH ")",
      "INSERT INTO ring(agent_id, event_id, request_body, response_body)"
      " VALUES('b', 'f', " BOTH ")"};
  size_t i;
  run(az[n % 4], z, n);
  for (i = 4; i < sizeof(az) / sizeof(az[0]); i++) run(az[i], z, n);
  mustBeNone("SELECT event_id FROM ring WHERE agent_id = 'b' AND event_id = "
             "'e' AND request_body || char(10) || response_body IS NOT"
             " (SELECT request_body || char(10) || response_body FROM ring"
             "  WHERE agent_id = 'b' AND event_id = 'f')");
}

/* What reads and writes a ring, the store, and the log. */
static const char *const azRing[] = {"SELECT * FROM ring",
    "INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'n', 'q')",
    "INSERT INTO ring(agent_id, event_id, response_body) VALUES('a', '2', 'r')",
    "DELETE FROM ring WHERE event_id = '3'",
    "SELECT payload_kill_switch('ring', 'a', 'x')", "SELECT * FROM ring"};
static const char *const azStore[] = {
    "SELECT max(length(request_body)) FROM payload_rows",
    "SELECT * FROM store_stats", "SELECT payload_pack()",
    "SELECT payload_unpack()", "DELETE FROM event_payloads WHERE pinned = 0",
    "SELECT retention_sweep(9, 4102444800000)"};
static const char *const azLog[] = {"SELECT problem FROM proof_verify",
    "SELECT problem FROM proof_verify((SELECT proof_tile('checkpoint')))",
    "SELECT path, data FROM proof_export", "SELECT proof_of('row', 2)",
    "SELECT line FROM proof_bundle('k')",
    "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE pinned",
    "SELECT proof_head()"};

static void useAll(void) {
  static const char *const az[] = {"SELECT rollout_history(" ID ")",
      "SELECT * FROM rollout_context(" ID ")",
      "SELECT * FROM rollout_range(" ID ")", "SELECT rollout_page(9)",
      "SELECT * FROM rollout_list(9)", "SELECT rollout_export(" ID ")",
      "SELECT rollout_export(" ID ", 'markdown')",
      "SELECT rollout_export(" ID ", 'atif')",
      "SELECT rollout_export(" ID ", 'otlp')",
      "SELECT rollout_fork(" ID ", 1)", "SELECT rollout_delete(" ID ")",
      "SELECT rollout_append(" ID
      ", '{\"type\":\"compacted\",\"payload\":{}}')",
      "SELECT * FROM rec", "SELECT * FROM evidence_stats",
      "SELECT evidence_export_replay('rec')",
      "INSERT INTO rec(id, action) VALUES('n', '{}')",
      "SELECT evidence_prune_for_approval('rec')", "SELECT * FROM cache_list()",
      "SELECT cache_stats()"};
  switch (nInput / 3 % 4) {
    case 0: RUN_ALL(azRing); break;
    case 1: RUN_ALL(azLog); break;
    default: RUN_ALL(az);
  }
}

/* Changes one blob of a ring, of the store or of the tree, and uses them. */
static void changeBlob(char cTarget, const uint8_t *a, size_t n) {
  static const char zRead[] = "SELECT \"%w\" FROM \"%w\" WHERE rowid = %lld";
  static const char zWrite[] =
      "UPDATE \"%w\" SET \"%w\" = ?1 WHERE rowid = %lld";
  sqlite3_stmt *pStmt = 0;
  const struct Blob *p = 0;
  unsigned char aNew[20000];
  sqlite3_uint64 h;
  size_t i, nNew, nSum;
  char *zSql;
  int iWhich;
  if (n < 3) return;
  for (i = 0, iWhich = a[0]; p == 0; i = (i + 1) % (size_t)nBlob) {
    if (aBlob[i].cTarget == cTarget && iWhich-- == 0) p = &aBlob[i];
  }
  zSql = sqlite3_mprintf(zRead, p->zColumn, p->zTable, p->iRow);
  if (sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) != SQLITE_OK ||
      sqlite3_step(pStmt) != SQLITE_ROW) {
    wrong("no such blob", zSql);
  }
  nNew = (size_t)sqlite3_column_bytes(pStmt, 0);
  if (nNew > 10000) nNew = 10000;
  if (nNew > 0) memcpy(aNew, sqlite3_column_blob(pStmt, 0), nNew);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  if (a[1] & 1) { /* all of it */
    nNew = n - 3 < 10000 ? n - 3 : 10000;
    memcpy(aNew, a + 3, nNew);
  }
  for (i = 3; !(a[1] & 1) && i + 3 <= n && nNew > 0; i += 3) {
    aNew[(size_t)(a[i] << 8 | a[i + 1]) % nNew] = a[i + 2];
  }
  if (a[1] & 2 && nNew > 0) nNew = (size_t)a[2] * nNew / 256;
  if (a[1] & 4 && nNew > 8) { /* with the hash of a page of a ring */
    for (nSum = nNew; nSum > 8 && aNew[nSum - 1] == 0; nSum--) {
    }
    h = bxHashOf((const char *)aNew + 8, (sqlite3_int64)nSum - 8);
    memcpy(aNew, &h, 8);
  }
  if (a[1] & 8 && nNew > 8) { /* or of a chunk */
    h = bxHashMix(bxHashOf((const char *)aNew, (sqlite3_int64)nNew - 8), a[2]);
    memcpy(aNew + nNew - 8, &h, 8);
  }
  zSql = sqlite3_mprintf(zWrite, p->zTable, p->zColumn, p->iRow);
  if (sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) != SQLITE_OK) {
    wrong("cannot write", zSql);
  }
  sqlite3_bind_blob(pStmt, 1, aNew, (int)nNew, SQLITE_STATIC);
  sqlite3_step(pStmt);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  if (cTarget == 'k') RUN_ALL(azRing);
  if (cTarget == 'p') RUN_ALL(azStore);
  if (cTarget == 't') RUN_ALL(azLog);
}

static void openDb(void) {
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) abort();
  if (sqlite3_blackbox_init(db, 0, 0) != SQLITE_OK) abort();
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 10000000);
}

/* The image is the memory of the database: what is in the cache of the connection is
** forgotten before and afterwards. */
static void damage(const uint8_t *a, size_t n) {
  unsigned char aBefore[MAX_CHANGES];
  sqlite3_int64 aiPlace[MAX_CHANGES];
  size_t i, nChange = 0;
  int iState;
  db = dbPages;
  sqlite3_db_release_memory(db);
  for (i = 0; i + 4 <= n && nChange < MAX_CHANGES; i += 4, nChange++) {
    sqlite3_int64 iPlace = a[i] << 16 | a[i + 1] << 8 | a[i + 2];
    iPlace = iFirstPage + iPlace % (nImage - iFirstPage);
    aiPlace[nChange] = iPlace;
    aBefore[nChange] = aImage[iPlace];
    aImage[iPlace] = a[i + 3];
  }
  run("BEGIN", 0, 0);
  useAll();
  run("ROLLBACK", 0, 0);
  while (nChange-- > 0) aImage[aiPlace[nChange]] = aBefore[nChange];
  sqlite3_db_release_memory(db);
  sqlite3_file_control(db, "main", SQLITE_FCNTL_RESET_CACHE, &iState);
  db = dbWhole;
}

/* The pages of the schema are the first ones after VACUUM. */
static void openPages(void) {
  sqlite3_stmt *pStmt = 0;
  sqlite3_int64 nSchema = 0;
  unsigned char *aCopy = sqlite3_serialize(db, "main", &nImage, 0);
  openDb();
  aImage = aCopy;
  if (aImage == 0 || sqlite3_deserialize(db, "main", aImage, nImage, nImage,
                         SQLITE_DESERIALIZE_FREEONCLOSE) != SQLITE_OK) {
    abort();
  }
  sqlite3_prepare_v2(db,
      "SELECT page_size, (SELECT total(length(sql) + length(name) +"
      " length(tbl_name) + 30) FROM sqlite_schema) FROM pragma_page_size",
      -1, &pStmt, 0);
  if (sqlite3_step(pStmt) != SQLITE_ROW) wrong("no size", "");
  nPage = sqlite3_column_int64(pStmt, 0);
  nSchema = sqlite3_column_int64(pStmt, 1);
  sqlite3_finalize(pStmt);
  iFirstPage = (nSchema * 5 / 4 / nPage + 4) * nPage;
  run("PRAGMA cache_spill = 0", 0, 0);
  dbPages = db;
  db = dbWhole;
}

static void findBlobs(char cTarget, const char *zTable, const char *zColumn) {
  char *zSql = sqlite3_mprintf("SELECT rowid FROM \"%w\" WHERE typeof(\"%w\") "
                               "= 'blob' ORDER BY rowid LIMIT 12",
      zTable, zColumn);
  sqlite3_stmt *pStmt = 0;
  int n = nBlob;
  if (sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) != SQLITE_OK) {
    wrong("no such table", zSql);
  }
  while (sqlite3_step(pStmt) == SQLITE_ROW && nBlob < MAX_BLOBS) {
    aBlob[nBlob].cTarget = cTarget;
    aBlob[nBlob].zTable = zTable;
    aBlob[nBlob].zColumn = zColumn;
    aBlob[nBlob++].iRow = sqlite3_column_int64(pStmt, 0);
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  if (n == nBlob) wrong("no blobs", zTable);
}

static void begin(void) {
  static char aPages[2400 * 4400];
  sqlite3_config(SQLITE_CONFIG_PAGECACHE, aPages, 4400, 2400);
  sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 1200, 500);
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
  openDb();
  dbWhole = db;
  must("SELECT blackbox_install('main', 'all')");
  must("CREATE VIRTUAL TABLE rec USING evidence_buffer");
  must("CREATE VIRTUAL TABLE ring USING payload_ring(window=4)");
  must("INSERT INTO blackbox_settings(name, value) VALUES('rollout.policy', "
       "'everything')");
  must("SELECT rollout_create(" ID ", NULL, 'permanent')");
  must("SELECT rollout_append(" ID ", '[{\"type\":\"event_msg\",\"payload\":"
       "{\"type\":\"user_message\",\"message\":\"hi\"}},{\"type\":"
       "\"compacted\",\"payload\":{\"replacement_history\":[{}]}}]')");
  must("INSERT INTO rec(id, timestamp, action, screenshot) VALUES('a', 1, "
       "'{\"fallbackChain\":{\"strategies\":[{\"type\":\"cdp_power\"}]}}', "
       "zeroblob(100))");
  must("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
       "purpose) SELECT 'p' || value, value, 'p', printf('%.*c', 300, 'x') || "
       "(SELECT group_concat(value * 7919 % 997) FROM (SELECT value FROM "
       "json_each('[1,2,3,4,5,6,7,8,9]'))) || value, 'archive' FROM "
       "json_each('[1,2,3,4]')");
  must(
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
      " INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
      "purpose) SELECT 'long', 'l', 'p', group_concat(hex(i * 7919)), 'archive'"
      " FROM n");
  must("SELECT payload_pack()");
  must("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)"
       " INSERT INTO ring(agent_id, event_id, request_body, response_body)"
       " SELECT 'a', i, printf('%.*c', i * 700, 'q') || i, 'r' || i FROM n");
  must("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
       "('s', '1', '{\"messages\":[]}')");
  must("SELECT payload_kill_switch('ring', 's', 'k')");
  must("SELECT proof_head()");
  findBlobs('k', "ring_agents", "page");
  findBlobs('k', "ring_slots", "request_body");
  findBlobs('k', "ring_texts", "body");
  findBlobs('p', "store__texts", "mark");
  findBlobs('p', "store__texts", "recipe");
  findBlobs('p', "store__packs", "data");
  findBlobs('t', "blackbox__tree", "frontier");
  findBlobs('t', "blackbox__leaves", "hash");
  findBlobs('t', "blackbox__log", "salt");
  must("VACUUM");
  openPages();
  openDb();
  adbSmall[0] = db;
  openDb();
  adbSmall[1] = db;
  must("SELECT blackbox_install('main', 'payload')");
  db = dbWhole;
  sqlite3_limit(dbWhole, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(dbPages, SQLITE_LIMIT_ATTACHED, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *aByte, size_t nByte) {
  const char *z = (const char *)aByte + 1;
  const char *zTarget = getenv("TARGET");
  int n = (int)nByte - 1;
  char *zText, cTarget;
  if (nByte < 1 || nByte > 100000) return 0;
  cTarget = zTarget != 0 ? *zTarget : (char)*aByte;
  aInput = aByte;
  nInput = nByte;
  if (db == 0) begin();
  zText = sqlite3_mprintf("%.*s", n, z); /* ends at a NUL, and with one */
  n = (int)strlen(zText);
  must("SAVEPOINT fuzz");
  switch (cTarget) {
    case 'a': append(zText, n); break;
    case 'i': import(zText, n); break;
    case 's': slim(zText, n); break;
    case 'r': store(zText, n); break;
    case 'e': saveEvidence(zText, n); break;
    case 'l': callRow(zText, n); break;
    case 'c': create(zText, n); break;
    case 'h': head(zText, n); break;
    case 'o': bodies(zText, n); break;
    case 'k':
    case 'p':
    case 't': changeBlob(cTarget, aByte + 1, nByte - 1); break;
    case 'd': damage(aByte + 1, nByte - 1); break;
    default: break;
  }
  must("ROLLBACK TO fuzz");
  must("RELEASE fuzz");
  sqlite3_free(zText);
  return 0;
}
