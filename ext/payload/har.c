/*
** har.c: payload_import_har(har[, agent_id]): the exchanges in an HTTP Archive (HAR 1.2),
** which a browser, a proxy or a debugger writes, as rows of the archive.
**
** Only requests with a body are exchanges. A body in base64 becomes text, if it is
** UTF-8. The method, the address (without its query, and a password), status, duration and
** headers go to meta. A header whose name or value looks as if it had a key is left out: what is not
** in the file cannot be given away with it.
**
** The event_id is "har-" and the hash of the entry, so that a file can be imported again.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* clang-format off */
#define HEADERS(of)                                                            \
  "(SELECT json_group_object(name, iif(name GLOB ':*' OR value GLOB '/*' "     \
  "OR value LIKE '%://%', substr(value, 1, instr(value || '?', '?') - 1), "    \
  "value)) FROM (SELECT "                                                      \
  "lower(h.value ->> '$.name') AS name, trim(h.value ->> '$.value') AS value " \
  "FROM json_each(e.value, '$." of ".headers') AS h WHERE h.type = 'object') " \
  "WHERE name IS NOT NULL AND value IS NOT NULL AND NOT EXISTS (SELECT 1 "     \
  "FROM json_each('[\"key\",\"token\",\"auth\",\"cookie\",\"secret\","         \
  "\"session\",\"sign\",\"credential\",\"passw\",\"jwt\",\"csrf\",\"xsrf\"," \
  "\"hmac\"]') AS w "                                                           \
  "WHERE instr(name, w.value)) AND NOT (lower(value) GLOB 'bearer *' "         \
  "OR lower(value) GLOB 'basic *' OR value GLOB 'sk-*' "                       \
  "OR value GLOB '*eyJ*.*' "                                                   \
  "OR value LIKE '%://%@%'))"
/* What comes after the scheme of an address, which may have none. */
#define REST                                                                   \
  "ltrim(substr(url, iif(instr(url, '://') = instr(url, '/') - 1, "            \
  "instr(url, '://') + 3, 1)), '/') AS rest "
/* meta of more than 64 KB would be refused: it has no headers. ?1: the archive. ?2: the agent; NULL: the host of the address is one. */
static const char zExchanges[] =
    "SELECT entry, coalesce(?2, nullif(substr(rest, 1, instr(rest || '/', '/') "
    "- 1), ''), 'har'), request, response, encoding, created, "
    "iif(length(CAST(full AS BLOB)) > 65536, "
    "json_remove(full, '$.request_headers', '$.response_headers'), full) "
    "FROM (SELECT e.value AS entry, " REST ", "
    "e.value ->> '$.request.postData.text' AS request, "
    "e.value ->> '$.response.content.text' AS response, "
    "e.value ->> '$.response.content.encoding' AS encoding, "
    "strftime('%Y-%m-%dT%H:%M:%fZ', e.value ->> '$.startedDateTime') AS created, "
    "json_object('method', e.value ->> '$.request.method', 'url', url, "
    "'status', e.value ->> '$.response.status', 'duration_ms', "
    "CAST(e.value ->> '$.time' AS INTEGER), "
    "'request_headers', json(" HEADERS("request") "), "
    "'response_headers', json(" HEADERS("response") ")) AS full "
    "FROM (SELECT value, type, replace(url, host, substr(host, "
    "length(rtrim(host, replace(host, '@', ''))) + 1)) AS url "
    "FROM (SELECT *, substr(rest, 1, instr(rest || '/', '/') - 1) AS host "
    "FROM (SELECT *, " REST
    "FROM (SELECT value, type, substr(url, 1, instr(replace(url, '#', '?') "
    "|| '?', '?') - 1) AS url "
    "FROM (SELECT value, type, coalesce(iif(type = 'object', "
    "value ->> '$.request.url', ''), '') AS url "
    "FROM json_each(?1, '$.log.entries')))))) AS e WHERE e.type = 'object')";
/* clang-format on */

/* Decodes base64. Returns the number of bytes; -1 if it is none. */
static i64 decodeBase64(const char *z, unsigned char *aOut) {
  unsigned nBit = 0, x = 0;
  i64 n = 0;
  for (; *z != 0 && *z != '='; z++) {
    const char *zAt;
    if (*z == '\n' || *z == '\r') continue;
    zAt = strchr(bxBase64Digits, *z);
    if (zAt == 0) return -1;
    x = (x << 6 | (unsigned)(zAt - bxBase64Digits)) & 0xffffff;
    nBit += 6;
    if (nBit >= 8) aOut[n++] = (unsigned char)(x >> (nBit -= 8));
  }
  assert(nBit < 8);
  return n;
}

/* The response, to sqlite3_free(): decoded, if it is base64 of a text. */
static char *harResponse(sqlite3_stmt *pRow, BxErr *pErr) {
  char *z = bxColumnCopy(pRow, 3, pErr);
  const char *zEncoding = bxColumnText(pRow, 4, pErr);
  unsigned char *a;
  i64 n;
  if (z == 0 || zEncoding == 0 || strcmp(zEncoding, "base64") != 0) return z;
  a = sqlite3_malloc64(strlen(z) + 1);
  if (a == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  n = a ? decodeBase64(z, a) : -1;
  if (n < 0 || memchr(a, 0, (size_t)n) != 0 || !bxIsUtf8(a, (int)n)) {
    sqlite3_free(a);
    return z;
  }
  a[n] = 0;
  sqlite3_free(z);
  return (char *)a;
}

/* Writes what payload.secrets makes of both bodies and of meta. Returns whether the entry is new. */
static int putHarEntry(
    BxStmts *pHome, sqlite3_stmt *pRow, MaskMode eMode, BxErr *pErr) {
  static const char zValue[] = "SELECT ?1";
  static const char zPut[] =
      "INSERT INTO main.event_payloads(event_id, agent_id, request_body, "
      "response_body, purpose, created_at, meta) SELECT ?1, ?2, ?3, ?4, "
      "'archive', coalesce(?5, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), ?6 "
      "WHERE NOT EXISTS (SELECT 1 FROM main.event_payloads WHERE event_id = "
      "?1)";
  unsigned char aDigest[BX_DIGEST];
  char zEvent[4 + 32 + 1] = "har-";
  const char *zEntry = bxColumnText(pRow, 0, pErr);
  char *zResponse = harResponse(pRow, pErr);
  const char *zAgent = bxColumnText(pRow, 1, pErr);
  sqlite3_int64 nBefore = sqlite3_total_changes(pHome->bx->db);
  sqlite3_stmt *pValue = bxStmt(pHome, zValue, pErr), *pMasked = 0;
  bxBind(pValue, pErr, "t", zResponse);
  if (bxStep(pValue, pErr) && zEntry != 0) {
    Masking *pMasking =
        &((Queue *)bxDomainData(pHome->bx, "payload")->p)->masking;
    sqlite3_value *apVal[] = {sqlite3_column_value(pRow, 2),
        sqlite3_column_value(pValue, 0), sqlite3_column_value(pRow, 6)};
    if (eMode != MASK_KEEP) {
      pMasked = bxMask(
          pMasking, pHome, eMode == MASK_DROP, 0, zAgent, apVal, 3, pErr);
    }
    bxDigestTwo(zEntry, strlen(zEntry), "", 0, aDigest);
    bxHex(aDigest, 16, zEvent + 4);
    bxStmtExec(pHome, zPut, pErr, "ttvvtv", zEvent, zAgent, apVal[0], apVal[1],
        bxColumnText(pRow, 5, pErr), apVal[2]);
    bxMaskEnd(pHome, pMasked);
    bxMaskLooked(pMasking, pHome);
  }
  bxReset(pValue, pErr);
  sqlite3_free(zResponse);
  return sqlite3_total_changes(pHome->bx->db) > nBefore;
}

void bxPayloadImportHar(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  const char *zAgent =
      bxArg(p, 1) ? bxText(p->aArg[1], "agent_id", 1024, 0, &p->err) : 0;
  const char *z = (const char *)sqlite3_value_text(p->aArg[0]);
  i64 nNew = 0, nKnown = 0, nLeft = 0;
  int n = sqlite3_value_bytes(p->aArg[0]);
  sqlite3_stmt *pRow;
  MaskMode eMode;
  if (p->err.rc != SQLITE_OK) return;
  if (z != 0 && strncmp(z, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
    z += 3;
    n -= 3;
  }
  if (z == 0 || !bxIsJson(p->bx, z, n, &p->err) ||
      !bxQueryInt(pHome, "SELECT json_type(?1, '$.log.entries') IS 'array'",
          &p->err, "t", z)) {
    bxRefuseArg(&p->err, "har",
        "an HTTP Archive: JSON with an array log.entries", p->aArg[0]);
    return;
  }
  bxLogBegin(pHome, &p->err);
  eMode = bxMaskMode(pHome, "payload.secrets", &p->err);
  pRow = bxStmtTake(pHome, zExchanges, &p->err);
  bxBind(pRow, &p->err, "tt", z, zAgent);
  while (bxStep(pRow, &p->err)) {
    if (sqlite3_column_type(pRow, 2) == SQLITE_NULL) {
      nLeft++;
    } else if (putHarEntry(pHome, pRow, eMode, &p->err)) {
      nNew++;
    } else {
      nKnown++;
    }
  }
  if (pRow != 0) bxStmtGive(pHome, zExchanges, pRow);
  bxReturnJson(
      p, sqlite3_mprintf("{\"rows\":%lld,\"known\":%lld,\"left\":%lld}", nNew,
             nKnown, nLeft));
}
