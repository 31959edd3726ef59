/*
** format.c: the wire formats, which are rows: see sql/payload_detection.sql.
*/
#include "exchange.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* In the order of FormatKind and FormatBody. */
#define KINDS                                                                  \
  "instr('call,    result,  user,    said,    message, prompt,  model,   "     \
  "tool,    choice,  ', kind || ',') / 9"
#define BODIES_OF "instr('request,  response, event,    ', body || ',') / 10"

static const char zFormats[] =
    "SELECT " KINDS ", " BODIES_OF ", 0, 0, place, part, call_id, tool, "
    "arguments, result, is_error FROM main.payload_formats UNION ALL "
    "SELECT 9, " BODIES_OF ", cache_in_input, reasoning_in_output, place, "
    "input, cache_write, cache_read, output, reasoning, NULL "
    "FROM main.payload_usage_formats";

/* The length of the first name of a place, or of its first condition. */
static int firstStep(const char *z) {
  if (z == 0 || strchr(z, '|') != 0 || strchr(z, '$') != 0) return 0;
  if (*z == '[') return (int)strcspn(z, "]") + (strchr(z, ']') != 0);
  return (int)strcspn(z, ".[");
}

static void readFormat(Formats *pOut, sqlite3_stmt *pStmt, BxErr *pErr) {
  Format *a = bxGrow(pOut->a, pOut->n, &pOut->nAlloc, sizeof(*a), pErr);
  int i;
  if (a == 0) return;
  pOut->a = a;
  a += pOut->n++;
  memset(a, 0, sizeof(*a));
  a->eKind = (FormatKind)sqlite3_column_int(pStmt, 0);
  a->eBody = (FormatBody)sqlite3_column_int(pStmt, 1);
  a->bCacheIn = sqlite3_column_int(pStmt, 2);
  a->bReasoningIn = sqlite3_column_int(pStmt, 3);
  for (i = 0; i < N_PATH; i++) {
    if (sqlite3_column_type(pStmt, 4 + i) == SQLITE_NULL) continue;
    a->azPath[i] = bxColumnCopy(pStmt, 4 + i, pErr);
  }
  a->nFirst = firstStep(a->azPath[PATH_PLACE]);
}

static void readErrorText(Formats *pOut, sqlite3_stmt *pStmt, BxErr *pErr) {
  char **az = bxGrow(
      pOut->azError, pOut->nError, &pOut->nErrorAlloc, sizeof(*az), pErr);
  if (az == 0) return;
  pOut->azError = az;
  az[pOut->nError] = bxColumnCopy(pStmt, 0, pErr);
  if (az[pOut->nError] != 0) pOut->nError++;
}

void bxFormatsRead(Formats *pOut, BxStmts *p, BxErr *pErr) {
  static const char zErrors[] = "SELECT pattern FROM main.payload_error_texts";
  sqlite3_stmt *pStmt;
  memset(pOut, 0, sizeof(*pOut));
  if (p == 0) return;
  pStmt = bxStmt(p, zFormats, pErr);
  while (bxRow(pStmt, pErr)) readFormat(pOut, pStmt, pErr);
  bxDone(pStmt, pErr);
  pStmt = bxStmt(p, zErrors, pErr);
  while (bxRow(pStmt, pErr)) readErrorText(pOut, pStmt, pErr);
  bxDone(pStmt, pErr);
}

void bxFormatsFree(Formats *p) {
  i64 i;
  int j;
  for (i = 0; i < p->n; i++) {
    for (j = 0; j < N_PATH; j++) sqlite3_free(p->a[i].azPath[j]);
  }
  for (i = 0; i < p->nError; i++) sqlite3_free(p->azError[i]);
  sqlite3_free(p->a);
  sqlite3_free(p->azError);
  memset(p, 0, sizeof(*p));
}
