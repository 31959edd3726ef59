/*
** option.c: the options of a report, a JSON object.
**
**   redact   a profile of report_masks, or an array of them; 'none' masks nothing
**   bodies   'shared' (each part once), 'all' (each item whole) or 'none'
**   format   'html', 'md' or 'json'
**   items    most items; the newest stay
**   bytes    most bytes of bodies; those of the newest items stay
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define OPTION_ITEMS 10000
#define OPTION_BYTES 100000000

/* The number of a word in a list that ends with NULL. */
static int wordOf(ReportRun *p, const char *zOption, const char *const *azWord,
    sqlite3_value *pVal) {
  const char *z = bxText(pVal, zOption, 100, 0, &p->err);
  char *zRule;
  int i;
  for (i = 0; z != 0 && azWord[i] != 0; i++) {
    if (strcmp(azWord[i], z) == 0) return i;
  }
  if (z == 0) return 0;
  zRule = bxPrintf(&p->err, "%s, %s or %s", azWord[0], azWord[1], azWord[2]);
  bxRefuseArg(&p->err, zOption, zRule, pVal);
  sqlite3_free(zRule);
  return 0;
}

static void readProfile(ReportRun *p, const char *z) {
  if (z != 0 && strcmp(z, "none") != 0) {
    bxMaskRead(&p->masks, p->pHome, z, &p->err);
  }
}

/* redact: a text, or an array of texts. */
static void readProfiles(ReportRun *p, sqlite3_value *pVal, int bArray) {
  char *zArray;
  sqlite3_stmt *pStmt;
  if (!bArray) {
    readProfile(p, bxText(pVal, "redact", 100, 0, &p->err));
    return;
  }
  zArray = bxPrintf(&p->err, "%s", (const char *)sqlite3_value_text(pVal));
  if (zArray == 0) return;
  pStmt = bxJsonRows(
      p->bx, "SELECT DISTINCT value FROM json_each(?1)", zArray, &p->err);
  while (bxReportRow(p, pStmt)) {
    readProfile(
        p, bxText(sqlite3_column_value(pStmt, 0), "redact", 100, 0, &p->err));
  }
  sqlite3_finalize(pStmt);
}

/* One member. Returns whether there is such an option. */
static int readOption(
    ReportRun *p, const char *zName, sqlite3_value *pVal, int bArray) {
  static const char *const azBodies[] = {"shared", "all", "none", 0};
  static const char *const azFormat[] = {"html", "md", "json", 0};
  if (strcmp(zName, "redact") == 0) {
    readProfiles(p, pVal, bArray);
  } else if (strcmp(zName, "bodies") == 0) {
    p->opt.eBodies = (ReportBodies)wordOf(p, zName, azBodies, pVal);
  } else if (strcmp(zName, "format") == 0) {
    p->opt.eFormat = (ReportFormat)wordOf(p, zName, azFormat, pVal);
  } else if (strcmp(zName, "items") == 0) {
    p->opt.nItem = bxInt(pVal, zName, 0, 1000000, &p->err);
  } else if (strcmp(zName, "bytes") == 0) {
    p->opt.nByte = bxInt(pVal, zName, 0, (i64)1 << 50, &p->err);
  } else {
    return 0;
  }
  return 1;
}

/* Opens the members of the object: key, value, whether it is an array, and whether
** the whole is an object. */
static sqlite3_stmt *openOptions(ReportRun *p, sqlite3_value *pOptions) {
  static const char zOptionMembers[] =
      "SELECT key, value, e.type = 'array', json_type(?1) = 'object'"
      " FROM (SELECT 1) LEFT JOIN json_each(?1) AS e";
  const char *z = bxText(pOptions, "options", 100000, 0, &p->err);
  char *zCopy;
  if (z == 0) return 0;
  if (!bxIsJson(p->bx, z, sqlite3_value_bytes(pOptions), &p->err)) {
    bxRefuseArg(&p->err, "options", "a JSON object", pOptions);
  }
  zCopy = bxPrintf(&p->err, "%s", z);
  return zCopy ? bxJsonRows(p->bx, zOptionMembers, zCopy, &p->err) : 0;
}

void bxReportOptions(ReportRun *p, sqlite3_value *pOptions) {
  sqlite3_stmt *pStmt = 0;
  int bRedact = 0;
  p->opt.nItem = OPTION_ITEMS;
  p->opt.nByte = OPTION_BYTES;
  if (pOptions != 0) pStmt = openOptions(p, pOptions);
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    if (!sqlite3_column_int(pStmt, 3)) {
      bxRefuseArg(&p->err, "options", "a JSON object", pOptions);
    }
    if (zName == 0 || p->err.rc != SQLITE_OK) continue;
    bRedact |= strcmp(zName, "redact") == 0;
    if (readOption(p, zName, sqlite3_column_value(pStmt, 1),
            sqlite3_column_int(pStmt, 2))) {
      continue;
    }
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: there is no option %Q; use redact, bodies, format, "
        "items or bytes",
        zName);
  }
  sqlite3_finalize(pStmt);
  if (!bRedact) readProfile(p, "keys");
}
