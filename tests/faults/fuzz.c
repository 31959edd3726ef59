/*
** fuzz.c: unexpected input. It is the target of libFuzzer (make fuzz), and of
** replay.c, which the tests run.
**
** The first byte of an input selects what is done with the rest:
**   a  rollout_append()          i  rollout_import(), export, import again
**   s  evidence_slim()           r  an action: stored, approved, exported
**   e  payload_save_evidence()   l  the arguments of a row of blackbox_call
**   c  the arguments of CREATE VIRTUAL TABLE
**   d  bytes of a database are changed: three are the place, one is the value
** What must hold, in addition to what the sanitizers check: accepted input is
** JSON, output is JSON, an error has a message, and blackbox_check() reports
** nothing.
*/
#include "../../ext/blackbox.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID "'5973b6c0-94b8-487b-a530-2aeb6098ae0e'"
#define OTHER "'019d0000-1111-7222-8333-444455556666'"
#define MAX_CHANGES 8

int LLVMFuzzerTestOneInput(const uint8_t *aByte, size_t nByte);

extern const char bxSqlRolloutCheck[]; /* sql/rollout_check.sql */
static sqlite3 *db;
static unsigned char *aImage; /* of the database that 'd' changes */
static sqlite3_int64 nImage;

static const uint8_t *aInput;
static size_t nInput;

static void wrong(const char *zWhat, const char *zSql) {
  fprintf(stderr, "%s: %s\n  in: %s\n  for: %.*s\n", zWhat, sqlite3_errmsg(db),
      zSql, (int)nInput, (const char *)aInput);
  abort();
}

/* Runs one statement with the text as ?1. Returns its first value, to
** sqlite3_free(), or NULL if it failed or returned none. *prc is its code. */
static char *ask(const char *zSql, const char *zText, int nText, int *prc) {
  sqlite3_stmt *pStmt = 0;
  char *z = 0;
  *prc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  if (*prc == SQLITE_OK) {
    if (sqlite3_bind_parameter_count(pStmt) > 0) {
      sqlite3_bind_text(pStmt, 1, zText, nText, SQLITE_STATIC);
    }
    while (sqlite3_step(pStmt) == SQLITE_ROW) {
      const char *zVal = (const char *)sqlite3_column_text(pStmt, 0);
      if (z == 0 && zVal != 0) z = sqlite3_mprintf("%s", zVal);
    }
    *prc = sqlite3_finalize(pStmt);
  }
  if (*prc != SQLITE_OK && *sqlite3_errmsg(db) == 0) wrong("no words", zSql);
  return z;
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
  mustGiveJson("SELECT evidence_export_puppeteer('rec')");
  mustGiveJson("SELECT evidence_export_replay('rec')");
  mustGiveJson("SELECT evidence_prune_for_approval('rec')");
  mustGiveJson("SELECT action FROM rec");
  mustGiveJson("SELECT evidence_export('rec')");
}

static void saveEvidence(const char *z, int n) {
  static const char zSave[] = "SELECT payload_save_evidence('k', ?1)";
  int rc;
  char *zAgain;
  if (run(zSave, z, n) != SQLITE_OK) {
    mustBeNone("SELECT id FROM event_payloads");
    return;
  }
  if (!isJson(z, n)) wrong("took what is no JSON", z);
  mustBeNone("SELECT problem FROM blackbox_check");
  zAgain = ask(zSave, z, n, &rc);
  if (zAgain == 0 || strcmp(zAgain, "0") != 0) wrong("saved twice", z);
  sqlite3_free(zAgain);
}

static void callRow(const char *z, int n) {
  static const char *const az[] = {"cache_write", "payload_save_evidence",
      "rollout_append", "payload_cleanup", "blackbox_use"};
  size_t i;
  for (i = 0; i < sizeof(az) / sizeof(az[0]); i++) {
    char *zSql =
        sqlite3_mprintf("INSERT INTO blackbox_call VALUES(%Q, ?1)", az[i]);
    if (zSql == 0) return;
    if (run(zSql, z, n) == SQLITE_OK && !isJson(z, n)) {
      wrong("took what is no JSON", z);
    }
    sqlite3_free(zSql);
  }
}

static void create(const char *z, int n) {
  static const char *const az[] = {"evidence_buffer", "payload_ring"};
  int i;
  for (i = 0; i < 2; i++) {
    char *zSql = sqlite3_mprintf(
        "CREATE VIRTUAL TABLE temp.made USING %s(%.*s)", az[i], n, z);
    if (zSql == 0) return;
    if (run(zSql, 0, 0) == SQLITE_OK) run("DROP TABLE temp.made", 0, 0);
    sqlite3_free(zSql);
  }
}

/* Everything that reads, and some writes, on a changed database. */
static void useAll(void) {
  static const char *const az[] = {"SELECT * FROM blackbox_check",
      "SELECT rollout_history(" ID ")", "SELECT * FROM rollout_context(" ID ")",
      "SELECT * FROM rollout_range(" ID ")", "SELECT rollout_page(9)",
      "SELECT * FROM rollout_list(9)", "SELECT rollout_export(" ID ")",
      "SELECT rollout_fork(" ID ", 1)", "SELECT rollout_delete(" ID ")",
      "SELECT rollout_append(" ID
      ", '{\"type\":\"compacted\",\"payload\":{}}')",
      "SELECT * FROM rec", "SELECT * FROM evidence_stats",
      "SELECT evidence_export_replay('rec')",
      "INSERT INTO rec(id, action) VALUES('n', '{}')",
      "SELECT evidence_prune_for_approval('rec')", "SELECT * FROM ring",
      "INSERT INTO ring(agent_id, event_id, request_body) VALUES('a','e','q')",
      "SELECT payload_kill_switch('ring', 'a', 'k')",
      "SELECT * FROM cache_list()", "SELECT cache_stats()"};
  size_t i;
  for (i = 0; i < sizeof(az) / sizeof(az[0]); i++) run(az[i], 0, 0);
}

static void openDb(void) {
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) abort();
  if (sqlite3_blackbox_init(db, 0, 0) != SQLITE_OK) abort();
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 10000000);
}

static void damage(const uint8_t *a, size_t n) {
  sqlite3 *dbWhole = db;
  unsigned char *aCopy = sqlite3_malloc64((sqlite3_uint64)nImage);
  size_t i;
  if (aCopy == 0) return;
  memcpy(aCopy, aImage, (size_t)nImage);
  for (i = 0; i + 4 <= n && i < 4 * MAX_CHANGES; i += 4) {
    sqlite3_int64 iPlace = a[i] << 16 | a[i + 1] << 8 | a[i + 2];
    aCopy[iPlace % nImage] = a[i + 3];
  }
  openDb();
  sqlite3_deserialize(db, "main", aCopy, nImage, nImage,
      SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
  useAll();
  if (sqlite3_close(db) != SQLITE_OK) wrong("left open", "close");
  db = dbWhole;
}

static void begin(void) {
  openDb();
  must("SELECT blackbox_install('main', 'all')");
  must("CREATE VIRTUAL TABLE rec USING evidence_buffer");
  must("CREATE VIRTUAL TABLE ring USING payload_ring(window=2)");
  must("INSERT INTO blackbox_settings(name, value) VALUES('rollout.policy', "
       "'everything')");
  must("SELECT rollout_create(" ID ", NULL, 'permanent')");
  must("SELECT rollout_append(" ID ", '[{\"type\":\"event_msg\",\"payload\":"
       "{\"type\":\"user_message\",\"message\":\"hi\"}},{\"type\":"
       "\"compacted\",\"payload\":{\"replacement_history\":[{}]}}]')");
  must("INSERT INTO rec(id, timestamp, action, screenshot) VALUES('a', 1, "
       "'{\"fallbackChain\":{\"strategies\":[{\"type\":\"cdp_power\"}]}}', "
       "zeroblob(100))");
  must("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
       "('a', '1', 'q'), ('a', '2', 'q'), ('a', '3', 'q')");
  aImage = sqlite3_serialize(db, "main", &nImage, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *aByte, size_t nByte) {
  const char *z = (const char *)aByte + 1;
  int n = (int)nByte - 1;
  char *zText;
  if (nByte < 1 || nByte > 100000) return 0;
  aInput = aByte;
  nInput = nByte;
  if (db == 0) begin();
  zText = sqlite3_mprintf("%.*s", n, z); /* ends at a NUL, and with one */
  n = (int)strlen(zText);
  must("SAVEPOINT fuzz");
  switch (*aByte) {
    case 'a': append(zText, n); break;
    case 'i': import(zText, n); break;
    case 's': slim(zText, n); break;
    case 'r': store(zText, n); break;
    case 'e': saveEvidence(zText, n); break;
    case 'l': callRow(zText, n); break;
    case 'c': create(zText, n); break;
    case 'd': damage(aByte + 1, nByte - 1); break;
    default: break;
  }
  must("ROLLBACK TO fuzz");
  must("RELEASE fuzz");
  sqlite3_free(zText);
  return 0;
}
