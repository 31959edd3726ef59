/*
** mask.c: masks secrets before a text is written.
**
** The setting payload.secrets says what a ring, the queue and the functions of the
** archive write of a body in which a rule of blackbox_secrets finds something.
** rollout.secrets says the same of items of conversations, without drop.
**
**   keep   the body as it came
**   mask   [masked: NAME] in the place of each secret
**   drop   {"dropped":"sha256:...","bytes":25012,"found":["OpenAI key"]}
**
** The rules are those of the schema that is written, or else of the schema that has
** the domain report. They are read again after any other change of the connection or
** the file. If no rule is enabled, nobody can tell what is a secret: every body is
** dropped.
**
** Most requests begin as the one before. So the last request of some agents is
** kept in memory, and only what is new in the next one is searched.
*/
#include "mask.h"
#include "schema.h"
#include "json.h"
#include "digest.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const char zMaskedValues[] = "SELECT ?1, ?2, ?3";

void bxMaskFree(Masking *p) {
  int i;
  for (i = 0; p->aPast != 0 && i < MASK_PAST; i++)
    bxSecretsForget(&p->aPast[i]);
  sqlite3_free(p->aPast);
  bxSecretsFree(&p->rules);
  memset(p, 0, sizeof(*p));
}

/* The last request of an agent; NULL without memory. */
static BxSecretsPast *pastOf(Masking *p, const char *zAgent) {
  sqlite3_uint64 h = bxHashOf(zAgent, (i64)strlen(zAgent));
  int i = 0;
  if (p->aPast == 0) {
    p->aPast = sqlite3_malloc64(MASK_PAST * sizeof(*p->aPast));
    if (p->aPast == 0) return 0;
    memset(p->aPast, 0, MASK_PAST * sizeof(*p->aPast));
  }
  while (i < MASK_PAST && p->ahPast[i] != h) i++;
  if (i == MASK_PAST) {
    i = p->iPast;
    p->iPast = (i + 1) % MASK_PAST;
    bxSecretsForget(&p->aPast[i]);
    p->ahPast[i] = h;
  }
  return &p->aPast[i];
}

/* Reads the rules, if they may have changed. Without any p->rules.n is 0. */
static void readRules(Masking *p, BxStmts *pOn, BxErr *pErr) {
  int nMore = p->nChange - sqlite3_total_changes(pOn->bx->db);
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pFrom = bxSchemaHasDomain(pOn->bx, pOn->zDb, "report", pErr)
                       ? bxSchema(pOn->bx, pOn->zDb, pErr)
                       : bxDomainSchema(pOn->bx, "report", &err);
  i64 iData = pFrom != 0 ? bxDataVersion(pFrom, pErr) : -1;
  if (pErr->rc == SQLITE_OK && p->bKeep && pFrom == p->pFrom &&
      iData == p->iData && (nMore == 0 || nMore == 1)) {
    bxErrClear(&err);
    return;
  }
  bxMaskFree(p);
  p->pFrom = pErr->rc == SQLITE_OK ? pFrom : 0;
  p->iData = iData;
  p->bKeep = sqlite3_get_autocommit(pOn->bx->db) ||
             pOn->bx->bAlone; /* else ROLLBACK may undo them */
  if (p->pFrom != 0) bxSecretsRead(&p->rules, pFrom, "keys", &err);
  if (err.rc == SQLITE_ERROR || err.rc == SQLITE_CONSTRAINT) bxErrClear(&err);
  if (err.rc != SQLITE_OK) bxMaskFree(p);
  bxErrMove(pErr, &err);
}

void bxMaskLooked(Masking *p, BxStmts *pOn) {
  p->nChange = sqlite3_total_changes(pOn->bx->db) + 1; /* see bxRingLooked() */
}

/* What drop writes in the place of n bytes, with the names of what was found. */
static char *droppedAs(
    const BxSecrets *p, const char *z, i64 n, i64 *pnOut, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  unsigned char aHash[BX_DIGEST];
  char zHex[2 * BX_DIGEST + 1];
  const char *zName;
  i64 i, nFound;
  int nName = 0;
  bxDigestTwo(z, (size_t)n, "", 0, aHash);
  bxHex(aHash, BX_DIGEST, zHex);
  sqlite3_str_appendf(
      pOut, "{\"dropped\":\"sha256:%s\",\"bytes\":%lld,\"found\":[", zHex, n);
  for (i = 0; (zName = bxSecretsCount(p, i, &nFound)) != 0; i++) {
    if (nFound == 0) continue;
    if (nName++ > 0) sqlite3_str_appendchar(pOut, 1, ',');
    bxJsonAppend(pOut, zName, (int)strlen(zName));
  }
  sqlite3_str_appendall(pOut, "]}");
  *pnOut = sqlite3_str_length(pOut);
  return bxStrFinish(pOut, pErr);
}

/* What is written in the place of a value, to sqlite3_free(), of *pnOut bytes; NULL: the
** value itself. */
static char *maskedOf(Masking *p, sqlite3_value *pVal, int bDrop,
    const char *zAgent, i64 *pnOut, BxErr *pErr) {
  int eType = pVal != 0 ? sqlite3_value_type(pVal) : SQLITE_NULL;
  BxSecretsPast *pPast = 0;
  char *zCopy = 0, *zOut = 0;
  const char *z;
  i64 n;
  if (eType != SQLITE_TEXT && eType != SQLITE_BLOB) return 0;
  if (eType == SQLITE_TEXT) {
    z = bxCheckMem((void *)(sqlite3_uint64)sqlite3_value_text(pVal), pErr);
    n = sqlite3_value_bytes(pVal);
  } else { /* with a terminator */
    n = sqlite3_value_bytes(pVal);
    zCopy = bxZalloc((size_t)n + 1, pErr);
    z = zCopy;
    if (n > 0 && zCopy != 0) memcpy(zCopy, sqlite3_value_blob(pVal), (size_t)n);
  }
  if (z != 0 && zAgent != 0 && !bDrop && n <= MASK_LONG)
    pPast = pastOf(p, zAgent);
  if (pPast != 0) {
    bxSecretsMaskOn(&p->rules, z, n, pPast, &zOut, pnOut, pErr);
  } else if (z != 0) {
    bxSecretsClear(&p->rules);
    bxSecretsMask(&p->rules, z, n, 1, &zOut, pnOut, pErr);
  }
  if (z != 0 && (p->rules.n == 0 || (bDrop && zOut != 0))) {
    sqlite3_free(zOut);
    zOut = droppedAs(&p->rules, z, n, pnOut, pErr);
  }
  sqlite3_free(zCopy);
  return zOut;
}

sqlite3_stmt *bxMask(Masking *p, BxStmts *pOn, int bDrop, int bSame,
    const char *zAgent, sqlite3_value **apVal, int n, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  i64 nOut = 0;
  int i, m = 0;
  assert(n <= 3);
  if (pErr->rc != SQLITE_OK) return 0;
  if (!bSame || p->pFrom == 0 || strcmp(p->pFrom->zDb, pOn->zDb) != 0) {
    readRules(p, pOn, pErr);
  }
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    char *z = maskedOf(p, apVal[i], bDrop, i == 0 ? zAgent : 0, &nOut, pErr);
    if (z == 0) continue;
    if (pStmt == 0) pStmt = bxStmtTake(pOn, zMaskedValues, pErr);
    m |= 1 << i;
    if (pStmt == 0) {
      sqlite3_free(z);
    } else if (sqlite3_value_type(apVal[i]) == SQLITE_TEXT || bDrop) {
      bxFailDb(pErr, pOn->bx->db,
          sqlite3_bind_text64(pStmt, i + 1, z, (sqlite3_uint64)nOut,
              sqlite3_free, SQLITE_UTF8));
    } else {
      bxFailDb(pErr, pOn->bx->db,
          sqlite3_bind_blob64(
              pStmt, i + 1, z, (sqlite3_uint64)nOut, sqlite3_free));
    }
  }
  if (pStmt == 0 || !bxStep(pStmt, pErr)) return pStmt;
  for (i = 0; i < n; i++) {
    if (m & 1 << i) apVal[i] = sqlite3_column_value(pStmt, i);
  }
  return pStmt;
}

MaskMode bxMaskMode(BxStmts *p, const char *zSetting, BxErr *pErr) {
  static const char zMode[] =
      "SELECT CASE value WHEN 'mask' THEN 1 WHEN 'drop' THEN 2 ELSE 0 END"
      " FROM main.blackbox_settings WHERE name = ?1";
  return (MaskMode)bxQueryInt(p, zMode, pErr, "t", zSetting);
}

char *bxMaskText(Masking *p, BxStmts *pOn, const char *zSetting, const char *z,
    i64 n, i64 *pnOut, BxErr *pErr) {
  char *zOut = 0;
  readRules(p, pOn, pErr);
  if (pErr->rc == SQLITE_OK && p->rules.n == 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "NotFoundError: %s is mask, and no rule of blackbox_secrets is "
        "enabled; install the domain report, or set %s to keep",
        zSetting, zSetting);
  }
  bxSecretsMask(&p->rules, z, n, 0, &zOut, pnOut, pErr);
  return zOut;
}

void bxMaskEnd(BxStmts *pOn, sqlite3_stmt *pStmt) {
  bxStmtGive(pOn, zMaskedValues, pStmt);
}
