/*
** format.c: the wire formats, which are rows: see sql/payload_detection.sql.
**
** The places of all formats become one tree of steps, so that a body is walked
** over once; and the keys on their ways are numbered, so that a reader passes
** over everything else.
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
    "arguments, result, is_error FROM main.payload_formats WHERE kind NOT IN "
    "('usage', 'error') UNION ALL "
    "SELECT 9, " BODIES_OF ", cache_in_input, reasoning_in_output, place, "
    "input, cache_write, cache_read, output, reasoning, cache_write_1h "
    "FROM main.payload_formats WHERE kind = 'usage'";

/*--------------------------------------------------------------- spots ----*/

typedef struct Compiler {
  Formats *p;
  const Format *pFormat;
  BxErr *pErr;
} Compiler;

static int newSpot(Compiler *p, int iName) {
  Formats *pOut = p->p;
  Spot *a =
      bxGrow(pOut->aSpot, pOut->nSpot, &pOut->nSpotAlloc, sizeof(*a), p->pErr);
  if (a == 0) return 0;
  pOut->aSpot = a;
  a += pOut->nSpot;
  memset(a, 0, sizeof(*a));
  a->iName = iName;
  a->iFormat = -1;
  return (int)pOut->nSpot++;
}

/* The step from a spot to a member; made if it is not there. 0 on error. */
static int memberSpot(Compiler *p, int iSpot, const char *z, int n) {
  int iName = bxWaysName(&p->p->ways, z, n, p->pErr);
  int i = p->p->aSpot[iSpot].iMember;
  while (i != 0 && p->p->aSpot[i].iName != iName) i = p->p->aSpot[i].iNext;
  if (i != 0 || p->pErr->rc != SQLITE_OK) return i;
  i = newSpot(p, iName);
  if (i == 0) return 0;
  p->p->aSpot[i].iNext = p->p->aSpot[iSpot].iMember;
  p->p->aSpot[iSpot].iMember = i;
  return i;
}

/* A condition that is one key and one text is tested faster. */
static void compileIf(Compiler *p, Spot *pSpot, const char *z, int n) {
  int nKey = (int)strcspn(z, "=.,]");
  pSpot->zIf = z;
  if (nKey == 0 || z[nKey] != '=' || memchr(z, ',', (size_t)n) != 0) return;
  pSpot->iIf = bxWaysName(&p->p->ways, z, nKey, p->pErr);
  pSpot->zIs = z + nKey + 1;
  pSpot->nIs = n - nKey - 1;
}

/* The step from a spot to its elements that fulfil the n bytes of z. */
static int elementSpot(Compiler *p, int iSpot, const char *z, int n) {
  int i = p->p->aSpot[iSpot].iElement;
  for (; i != 0; i = p->p->aSpot[i].iNext) {
    const char *zIf = p->p->aSpot[i].zIf;
    if (strncmp(zIf, z, (size_t)n) == 0 && (zIf[n] == ']' || zIf[n] == 0)) {
      return i;
    }
  }
  i = newSpot(p, 0);
  if (i == 0) return 0;
  compileIf(p, &p->p->aSpot[i], z, n);
  p->p->aSpot[i].iNext = p->p->aSpot[iSpot].iElement;
  p->p->aSpot[iSpot].iElement = i;
  return i;
}

static int inBrackets(const char *z) {
  return (int)strcspn(z, "]");
}

/* Adds the place of format number iFormat to the tree of steps. */
static void compilePlace(Compiler *p, int iFormat) {
  Format *pFormat = &p->p->a[iFormat];
  const char *z = pFormat->azPath[PATH_PLACE];
  int iSpot = (int)pFormat->eBody;
  int bList = pFormat->eKind != FORMAT_TOOL && pFormat->eKind != FORMAT_CHOICE;
  while (*z != 0 && p->pErr->rc == SQLITE_OK) {
    int n;
    if (*z == '.') z++;
    n = (int)strcspn(z, ".[");
    if (n > 0) iSpot = memberSpot(p, iSpot, z, n);
    z += n;
    if (p->pErr->rc != SQLITE_OK) return;
    if (bList) p->p->aSpot[iSpot].bList = 1;
    if (*z != '[') continue;
    n = inBrackets(z + 1);
    iSpot = elementSpot(p, iSpot, z + 1, n);
    z += n + 1;
    if (*z == ']') z++;
  }
  if (p->pErr->rc != SQLITE_OK) return;
  pFormat->iNext = p->p->aSpot[iSpot].iFormat;
  p->p->aSpot[iSpot].iFormat = iFormat;
}

/*---------------------------------------------------------------- ways ----*/

/* Conditions a=b,c.d=e in brackets: the keys are looked at. */
static void compileConditions(Compiler *p, int iWay, const char *z) {
  while (*z != 0 && *z != ']') {
    const char *zEnd = z + strcspn(z, "=,]");
    int i = iWay;
    while (z < zEnd) {
      int n = (int)strcspn(z, ".=,]");
      i = bxWaysAdd(&p->p->ways, i, z, n, p->pErr);
      z += n + (z[n] == '.');
    }
    if (i != 0) p->p->ways.a[i].bWhole = 1;
    z += strcspn(z, ",]");
    if (*z == ',') z++;
  }
}

/* The way that the path at z goes, up to a bar or its end. An array is no step
** of a way. */
static int compileWay(Compiler *p, int iWay, const char *z) {
  while (*z != 0 && *z != '|' && *z != '=' && p->pErr->rc == SQLITE_OK) {
    int n;
    if (*z == '.') z++;
    n = (int)strcspn(z, ".[|=");
    if (n > 0) iWay = bxWaysAdd(&p->p->ways, iWay, z, n, p->pErr);
    z += n;
    if (*z != '[') continue;
    compileConditions(p, iWay, z + 1);
    z += inBrackets(z);
    if (*z == ']') z++;
  }
  return p->pErr->rc == SQLITE_OK ? iWay : 0;
}

/* All of what a field leads to is looked at. */
static void compileField(Compiler *p, int iWay, const char *z) {
  int iRoot = p->p->aiRoot[p->pFormat->eBody], i;
  while (z != 0) {
    int bTop = z[0] == '$' && z[1] == '.';
    i = compileWay(p, bTop ? iRoot : iWay, bTop ? z + 2 : z);
    if (i != 0) p->p->ways.a[i].bWhole = 1;
    z = strchr(z, '|');
    if (z != 0) z++;
  }
}

/* What is looked at where one alternative of a place leads to. */
static void compileEnd(Compiler *p, int iWay) {
  FormatKind eKind = p->pFormat->eKind;
  int i;
  if (iWay == 0) return;
  if (eKind == FORMAT_MODEL || eKind == FORMAT_TOOL || eKind == FORMAT_CHOICE) {
    p->p->ways.a[iWay].bWhole = 1;
  } else if (eKind != FORMAT_CALL && eKind != FORMAT_RESULT &&
             eKind != FORMAT_USAGE) {
    compileField(p, iWay, "text");
  }
  for (i = PATH_PLACE + 1; i < N_PATH; i++) {
    compileField(p, iWay, p->pFormat->azPath[i]);
  }
}

static void compile(Formats *pOut, BxErr *pErr) {
  Compiler compiler = {pOut, 0, pErr};
  int i;
  for (i = 0; i < N_BODY; i++) newSpot(&compiler, 0);
  pOut->aiRoot[BODY_REQUEST] = bxWaysRoot(&pOut->ways, pErr);
  /* a response may be an event, or an array of events */
  pOut->aiRoot[BODY_RESPONSE] = bxWaysRoot(&pOut->ways, pErr);
  pOut->aiRoot[BODY_EVENT] = pOut->aiRoot[BODY_RESPONSE];
  for (i = 0; i < pOut->n && pErr->rc == SQLITE_OK; i++) {
    Format *pFormat = &pOut->a[i];
    const char *z = pFormat->azPath[PATH_PLACE];
    compiler.pFormat = pFormat;
    pFormat->bEither = strchr(z, '|') != 0 || strchr(z, '$') != 0;
    pOut->nEither += pFormat->bEither;
    if (!pFormat->bEither) compilePlace(&compiler, i);
    for (; z != 0; z = strchr(z, '|')) {
      if (*z == '|') z++;
      if (z[0] == '$' && z[1] == '.') z += 2;
      compileEnd(
          &compiler, compileWay(&compiler, pOut->aiRoot[pFormat->eBody], z));
    }
  }
}

/*---------------------------------------------------------------- rows ----*/

static void readFormat(Formats *pOut, sqlite3_stmt *pStmt, BxErr *pErr) {
  FormatKind eKind = (FormatKind)sqlite3_column_int(pStmt, 0);
  Format *a;
  int i;
  if (!(pOut->mKind >> eKind & 1)) return;
  a = bxAdd(&pOut->a, &pOut->n, &pOut->nAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->eKind = eKind;
  a->eBody = (FormatBody)sqlite3_column_int(pStmt, 1);
  a->bCacheIn = sqlite3_column_int(pStmt, 2);
  a->bReasoningIn = sqlite3_column_int(pStmt, 3);
  a->iNext = -1;
  for (i = 0; i < N_PATH; i++) {
    if (sqlite3_column_type(pStmt, 4 + i) == SQLITE_NULL) continue;
    a->azPath[i] = bxColumnCopy(pStmt, 4 + i, pErr);
  }
}

static void readErrorText(Formats *pOut, sqlite3_stmt *pStmt, BxErr *pErr) {
  ErrorText *a =
      bxGrow(pOut->aError, pOut->nError, &pOut->nErrorAlloc, sizeof(*a), pErr);
  const char *z;
  int n;
  if (a == 0) return;
  pOut->aError = a;
  a += pOut->nError;
  a->zHas = 0;
  a->z = bxColumnCopy(pStmt, 0, pErr);
  if (a->z == 0) return;
  pOut->nError++;
  z = a->z + strspn(a->z, "*");
  n = (int)strcspn(z, "*?[");
  if (z > a->z && n > 0) a->zHas = bxPrintf(pErr, "%.*s", n, z);
}

void bxFormatsRead(Formats *pOut, BxStmts *p, unsigned int mKind, BxErr *pErr) {
  static const char zErrors[] =
      "SELECT place FROM main.payload_formats WHERE kind = 'error'";
  sqlite3_stmt *pStmt;
  memset(pOut, 0, sizeof(*pOut));
  pOut->mKind = mKind;
  if (p == 0) return;
  pStmt = bxStmt(p, zFormats, pErr);
  while (bxRow(pStmt, pErr)) readFormat(pOut, pStmt, pErr);
  bxDone(pStmt, pErr);
  pStmt = bxStmt(p, zErrors, pErr);
  while (bxRow(pStmt, pErr)) readErrorText(pOut, pStmt, pErr);
  bxDone(pStmt, pErr);
  compile(pOut, pErr);
  pOut->pRoom = bxRoomNew(pErr);
}

void bxFormatsFree(Formats *p) {
  i64 i;
  int j;
  for (i = 0; i < p->n; i++) {
    for (j = 0; j < N_PATH; j++) sqlite3_free(p->a[i].azPath[j]);
  }
  for (i = 0; i < p->nError; i++) {
    sqlite3_free(p->aError[i].z);
    sqlite3_free(p->aError[i].zHas);
  }
  sqlite3_free(p->a);
  sqlite3_free(p->aSpot);
  sqlite3_free(p->aError);
  bxWaysFree(&p->ways);
  bxRoomFree(p->pRoom);
  memset(p, 0, sizeof(*p));
}
