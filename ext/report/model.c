/*
** model.c: what a report says besides its items, and the list of its items.
**
** Every text that comes from the database goes through bxReportClean(): it is
** masked first, and cut afterwards, so that no half of a key is left.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

const ReportField bxReportVerdict[VERDICT_TEXTS] = {{"rule", 0, REPORT_TEXT},
    {"level", 0, REPORT_TEXT}, {"count", 0, REPORT_COUNT},
    {"threshold", 0, REPORT_COUNT}, {"tool", 0, REPORT_TEXT},
    {"turn", 0, REPORT_COUNT}, {"reason", 0, REPORT_TEXT},
    {"action", 0, REPORT_TEXT}};
const ReportField bxReportUsage[USAGE_NUMBERS] = {
    {"input", "Input tokens, not cached", REPORT_COUNT},
    {"cacheRead", "Input tokens, read from the cache", REPORT_COUNT},
    {"cacheWrite", "Input tokens, written to the cache", REPORT_COUNT},
    {"output", "Output tokens", REPORT_COUNT},
    {"reasoning", "Reasoning tokens", REPORT_COUNT},
};

int bxReportRow(ReportRun *p, sqlite3_stmt *pStmt) {
  return pStmt != 0 && bxStep(pStmt, &p->err);
}

void bxReportPin(ReportRun *p, BxStmts *pFrom) {
  int i;
  if (pFrom == 0 || strcmp(pFrom->zDb, "temp") == 0) return;
  for (i = 0; i < 4 && p->azHeld[i] != 0; i++) {
    if (strcmp(p->azHeld[i], pFrom->zDb) == 0) return;
  }
  if (i == 4) return;
  p->apHold[i] =
      bxPrepare(pFrom, "SELECT 1 FROM main.blackbox_domains", &p->err);
  bxReportRow(p, p->apHold[i]);
  p->azHeld[i] = pFrom->zDb;
}

BxStmts *bxReportNeed(ReportRun *p, const char *zDomain) {
  BxStmts *pHome = bxDomainSchema(p->bx, zDomain, &p->err);
  bxReportPin(p, pHome);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

BxStmts *bxReportDomain(ReportRun *p, const char *zDomain) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome =
      p->err.rc == SQLITE_OK ? bxDomainSchema(p->bx, zDomain, &err) : 0;
  if (bxErrIs(&err, "NotInstalledError")) bxErrClear(&err);
  bxErrMove(&p->err, &err);
  bxReportPin(p, pHome);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

char *bxReportClean(ReportRun *p, const char *z, i64 n) {
  char *zMasked, *zPlain;
  i64 nMasked;
  assert(n >= 0);
  if (z == 0 || p->err.rc != SQLITE_OK) return 0;
  if (!bxSecretsMask(&p->masks, z, n, 1, &zMasked, &nMasked, &p->err)) {
    return bxReportPlain(z, n, &p->err);
  }
  zPlain = bxReportPlain(zMasked, nMasked, &p->err);
  sqlite3_free(zMasked);
  return zPlain;
}

char *bxReportColumnText(ReportRun *p, sqlite3_stmt *pStmt, int i) {
  const char *z = bxColumnText(pStmt, i, &p->err);
  int n = sqlite3_column_bytes(pStmt, i);
  if (sqlite3_column_type(pStmt, i) != SQLITE_TEXT) { /* a number */
    return z ? bxPrintf(&p->err, "%s", z) : 0;
  }
  return bxReportClean(p, z, n);
}

sqlite3_stmt *bxReportQuery(ReportRun *p, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt;
  if (pFrom == 0 || p->err.rc != SQLITE_OK) return 0;
  pStmt = bxPrepare(pFrom, zSql, &p->err);
  if (pStmt != 0 && sqlite3_bind_parameter_count(pStmt) > 0) {
    bxBind(pStmt, &p->err, "t", p->zKey);
  }
  if (pStmt != 0 && sqlite3_bind_parameter_count(pStmt) > 1) {
    bxBind(pStmt, &p->err, "-i", p->opt.nItem);
  }
  return pStmt;
}

static ReportType typeNamed(const char *z, int n) {
  int e;
  assert(n > 0);
  for (e = REPORT_TEXT; e < REPORT_DURATION; e++) {
    const char *zName = bxReportTypeName((ReportType)e);
    if ((int)strlen(zName) == n && strncmp(z, zName, (size_t)n) == 0) break;
  }
  return (ReportType)e;
}

static void addReportText(
    char ***paz, i64 *pn, i64 *pnAlloc, char *zOwned, BxErr *pErr) {
  char **pz = bxArrayAdd(paz, pn, pnAlloc, sizeof(*pz), pErr);
  if (pz != 0) *pz = zOwned;
  if (pz == 0) sqlite3_free(zOwned);
}

static void addCell(ReportRun *p, ReportTable *pTable, char *zOwned) {
  addReportText(
      &pTable->azCell, &pTable->nCell, &pTable->nAlloc, zOwned, &p->err);
}

static void addFact(ReportRun *p, ReportType eType, char *zName, char *zValue) {
  assert(eType <= REPORT_DURATION);
  ReportFact *a =
      bxArrayAdd(&p->aFact, &p->nFact, &p->nFactAlloc, sizeof(*a), &p->err);
  if (a == 0) {
    sqlite3_free(zName);
    sqlite3_free(zValue);
    return;
  }
  a->eType = eType;
  a->zName = zName;
  a->zValue = zValue;
}

void bxReportSums(ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  ReportTable *pTable =
      bxReportNewTable(p, "masked", "Masked", "text:What|count:Times");
  const char *zName;
  i64 n;
  int i;
  for (i = 0; i < USAGE_NUMBERS; i++) {
    if (pUsage->an[i] <= 0) continue;
    addFact(p, REPORT_COUNT,
        bxPrintf(&p->err, "%s%s", bxReportUsage[i].zLabel,
            i == USAGE_OUTPUT && pUsage->bRecorded ? ", as recorded" : ""),
        bxPrintf(&p->err, "%lld", pUsage->an[i]));
  }
  if (pUsage->bCost) {
    addFact(p, REPORT_TEXT, bxPrintf(&p->err, "Cost"),
        bxPrintf(&p->err, "%.4f (%s)", pUsage->rCost, pUsage->zSource));
  }
  if (p->verdict.bAny) {
    addFact(p, REPORT_TEXT, bxPrintf(&p->err, "Rule"),
        bxPrintf(&p->err, "%s (%s), %s of %s", p->verdict.az[VERDICT_RULE],
            p->verdict.az[VERDICT_LEVEL], p->verdict.az[VERDICT_COUNT],
            p->verdict.az[VERDICT_THRESHOLD]));
  }
  if (p->zAsked != 0) {
    addFact(p, REPORT_TEXT, bxPrintf(&p->err, "Asked first"),
        bxPrintf(&p->err, "%s", p->zAsked));
  }
  for (i = 0; (zName = bxSecretsCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    addCell(p, pTable, bxPrintf(&p->err, "%s", zName));
    addCell(p, pTable, bxPrintf(&p->err, "%lld", n));
  }
}

void bxReportFacts(ReportRun *p, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pFrom, zSql);
  int i;
  if (!bxReportRow(p, pStmt)) {
    sqlite3_finalize(pStmt);
    return;
  }
  for (i = 0; i < sqlite3_column_count(pStmt); i++) {
    const char *zName = sqlite3_column_name(pStmt, i);
    int nType = zName ? (int)strcspn(zName, ":") : 0;
    if (sqlite3_column_type(pStmt, i) == SQLITE_NULL) continue;
    if (bxCheckMem((void *)(sqlite3_uint64)zName, &p->err) == 0) break;
    addFact(p, typeNamed(zName, nType),
        bxPrintf(&p->err, "%s", zName + nType + 1),
        bxReportColumnText(p, pStmt, i));
  }
  sqlite3_finalize(pStmt);
}

ReportTable *bxReportNewTable(
    ReportRun *p, const char *zId, const char *zTitle, const char *zColumns) {
  ReportTable *pTable = strcmp(zId, "pins") == 0 ? &p->pins : &p->masked;
  char *z;
  if (pTable != &p->pins && strcmp(zId, "masked") != 0) {
    assert(p->nTable < REPORT_TABLES);
    pTable = &p->aTable[p->nTable++];
  }
  memset(pTable, 0, sizeof(*pTable));
  pTable->zId = zId;
  pTable->zTitle = zTitle;
  z = pTable->zColumns = bxPrintf(&p->err, "%s", zColumns);
  while (z != 0 && *z != 0) {
    int nType = (int)strcspn(z, ":"), n = (int)strcspn(z, "|");
    ReportColumn *pColumn = &pTable->aColumn[pTable->nColumn++];
    assert(pTable->nColumn <= REPORT_COLUMNS);
    pColumn->eType = typeNamed(z, nType);
    pColumn->zName = z + nType + 1;
    z += n;
    if (*z != 0) *z++ = 0;
  }
  return pTable;
}

void bxReportTable(ReportRun *p, const char *zId, const char *zTitle,
    const char *zColumns, BxStmts *pFrom, const char *zSql) {
  bxReportRows(p, bxReportNewTable(p, zId, zTitle, zColumns), pFrom, zSql);
}

void bxReportTake(ReportRun *p, ReportTable *pTable, sqlite3_stmt *pStmt) {
  int i, n = pTable->nColumn;
  while (bxReportRow(p, pStmt)) {
    int nMore = sqlite3_column_count(pStmt) - n;
    assert(nMore == 0 || nMore == 1);
    if (pTable->nCell >= (i64)REPORT_ROWS * n) {
      pTable->nLeft++;
      continue;
    }
    for (i = 0; i < n; i++) {
      addCell(p, pTable, bxReportColumnText(p, pStmt, i));
    }
    addReportText(&pTable->azLink, &pTable->nLink, &pTable->nLinkAlloc,
        nMore ? bxColumnCopy(pStmt, n, &p->err) : 0, &p->err);
  }
  sqlite3_finalize(pStmt);
}

void bxReportRows(
    ReportRun *p, ReportTable *pTable, BxStmts *pFrom, const char *zSql) {
  bxReportTake(p, pTable, bxReportQuery(p, pFrom, zSql));
}

int bxReportSource(
    ReportRun *p, BxStmts *pFrom, const char *zKind, const char *zQuery) {
  ReportSource *pSource = &p->aSource[p->nSource];
  assert(p->nSource < REPORT_SOURCES);
  memset(pSource, 0, sizeof(*pSource));
  pSource->zKind = zKind;
  pSource->bExchange = strcmp(zKind, "exchange") == 0;
  if (pFrom != 0) pSource->pBodies = bxPrepare(pFrom, zQuery, &p->err);
  return p->nSource++;
}

static i64 listedNumber(sqlite3_stmt *pStmt, int i) {
  return sqlite3_column_type(pStmt, i) == SQLITE_NULL
             ? -1
             : sqlite3_column_int64(pStmt, i);
}

void bxReportItems(
    ReportRun *p, int iSource, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pFrom, zSql);
  i64 nBefore = p->nItem;
  assert(iSource >= 0 && iSource < p->nSource);
  while (bxReportRow(p, pStmt)) {
    ReportItem *a;
    if (p->nItem - nBefore >= p->opt.nItem) {
      p->nLeftItems++;
      continue;
    }
    a = bxArrayAdd(&p->aItem, &p->nItem, &p->nItemAlloc, sizeof(*a), &p->err);
    if (a == 0) break;
    a->iSource = iSource;
    a->zKind = p->aSource[iSource].zKind;
    a->iBlock = -1;
    a->nInput = a->nOutput = -1;
    a->iOrder = 1 - p->nItem;
    a->zKey = bxColumnCopy(pStmt, 0, &p->err);
    a->zId = bxReportColumnText(p, pStmt, 1);
    a->iTime = listedNumber(pStmt, 2);
    a->nSize = listedNumber(pStmt, 3);
    a->zStatus = bxReportColumnText(p, pStmt, 4);
    a->zMark = bxReportColumnText(p, pStmt, 5);
    a->iTurn = listedNumber(pStmt, 6);
    a->zTitle = bxReportColumnText(p, pStmt, 7);
    if (a->zTitle != 0) bxReportFirstLine(a->zTitle, REPORT_TITLE);
    a->zType = bxReportColumnText(p, pStmt, 8);
    a->nDuration = -1;
    if (sqlite3_column_count(pStmt) > 9) { /* of exchanges, by their meta */
      a->zError = bxReportColumnText(p, pStmt, 9);
      a->nDuration = listedNumber(pStmt, 10);
    }
  }
  sqlite3_finalize(pStmt);
}

static void freeItem(ReportItem *pItem) {
  sqlite3_free(pItem->zKey);
  sqlite3_free(pItem->zId);
  sqlite3_free(pItem->zTitle);
  sqlite3_free(pItem->zModel);
  sqlite3_free(pItem->zStatus);
  sqlite3_free(pItem->zMark);
  sqlite3_free(pItem->zType);
  sqlite3_free(pItem->zLeaf);
  sqlite3_free(pItem->zError);
  sqlite3_free(pItem->zSaid);
}

/* By time; of one source in its order. */
static int compareTimes(const void *pLeft, const void *pRight) {
  const ReportItem *p = pLeft, *q = pRight;
  if (p->iTime != q->iTime) return p->iTime < q->iTime ? -1 : 1;
  if (p->iSource != q->iSource) return p->iSource < q->iSource ? -1 : 1;
  return (p->iOrder > q->iOrder) - (p->iOrder < q->iOrder);
}

void bxReportBound(ReportRun *p) {
  i64 i, n = 1, nLeft = p->opt.nByte, nOver;
  assert(p->nItem <= p->nItemAlloc);
  if (p->err.rc != SQLITE_OK || p->nItem == 0) return;
  if (p->nSource > 1) {
    qsort(p->aItem, (size_t)p->nItem, sizeof(*p->aItem), compareTimes);
    /* An exchange in two places, such as a ring and the archive, is one item. */
    for (i = 1; i < p->nItem; i++) {
      const ReportItem *pLast = &p->aItem[n - 1], *pItem = &p->aItem[i];
      if (pLast->iSource != pItem->iSource && pLast->iTime == pItem->iTime &&
          pLast->zId != 0 && pItem->zId != 0 &&
          strcmp(pLast->zId, pItem->zId) == 0) {
        freeItem(&p->aItem[i]);
      } else {
        p->aItem[n++] = p->aItem[i];
      }
    }
    p->nItem = n;
  } else { /* the newest came first */
    for (i = 0; i < p->nItem / 2; i++) {
      ReportItem item = p->aItem[i];
      p->aItem[i] = p->aItem[p->nItem - 1 - i];
      p->aItem[p->nItem - 1 - i] = item;
    }
  }
  nOver = p->nItem - p->opt.nItem;
  if (nOver > 0) {
    for (i = 0; i < nOver; i++) freeItem(&p->aItem[i]);
    p->nItem -= nOver;
    p->nLeftItems += nOver;
    memmove(p->aItem, p->aItem + nOver, sizeof(*p->aItem) * (size_t)p->nItem);
  }
  for (i = p->nItem - 1; i >= 0; i--) {
    ReportItem *pItem = &p->aItem[i];
    n = pItem->nSize > 0 ? pItem->nSize : 0;
    nLeft -= n;
    pItem->bBodies = nLeft >= 0;
    if (nLeft < 0) {
      p->nLeftBodies++;
      p->nLeftBytes += n;
    }
  }
}

void bxReportNotFound(ReportRun *p, const char *zWhat, const char *zHow) {
  bxFail(&p->err, SQLITE_ERROR, "NotFoundError: there is no %s %Q; %s", zWhat,
      p->zKey, zHow);
}

static void freeTable(ReportTable *pTable) {
  i64 i;
  for (i = 0; i < pTable->nCell; i++) sqlite3_free(pTable->azCell[i]);
  for (i = 0; i < pTable->nLink; i++) sqlite3_free(pTable->azLink[i]);
  sqlite3_free(pTable->azCell);
  sqlite3_free(pTable->azLink);
  sqlite3_free(pTable->zColumns);
}

void bxReportFreeModel(ReportRun *p) {
  i64 i;
  for (i = 0; i < p->nFact; i++) {
    sqlite3_free(p->aFact[i].zName);
    sqlite3_free(p->aFact[i].zValue);
  }
  sqlite3_free(p->aFact);
  for (i = 0; i < VERDICT_TEXTS; i++) sqlite3_free(p->verdict.az[i]);
  freeTable(&p->pins);
  freeTable(&p->masked);
  for (i = 0; i < p->nTable; i++) freeTable(&p->aTable[i]);
  for (i = 0; i < p->nSource; i++) sqlite3_finalize(p->aSource[i].pBodies);
  for (i = 0; i < p->nItem; i++) freeItem(&p->aItem[i]);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aPiece);
  sqlite3_free(p->spans.a);
  sqlite3_free(p->calls.a);
  sqlite3_free(p->zAsked);
  sqlite3_finalize(p->pValues);
  sqlite3_finalize(p->pProof);
  sqlite3_finalize(p->pRow);
  for (i = 0; i < 4; i++) sqlite3_finalize(p->apHold[i]);
}
