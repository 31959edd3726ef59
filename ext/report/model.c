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

int bxReportRow(ReportRun *p, sqlite3_stmt *pStmt) {
  return pStmt != 0 && bxRow(pStmt, &p->err);
}

void bxReportHold(ReportRun *p, BxStmts *pFrom) {
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
  BxStmts *pHome = bxHome(p->bx, zDomain, &p->err);
  bxReportHold(p, pHome);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

BxStmts *bxReportDomain(ReportRun *p, const char *zDomain) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome = p->err.rc == SQLITE_OK ? bxHome(p->bx, zDomain, &err) : 0;
  if (bxIs(&err, "NotInstalledError")) bxClear(&err);
  bxPass(&p->err, &err);
  bxReportHold(p, pHome);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

char *bxReportClean(ReportRun *p, const char *z, i64 n) {
  char *zMasked, *zPlain;
  i64 nMasked;
  if (z == 0 || p->err.rc != SQLITE_OK) return 0;
  if (!bxMask(&p->masks, z, n, 1, &zMasked, &nMasked, &p->err)) {
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

sqlite3_stmt *bxReportAsk(ReportRun *p, BxStmts *pFrom, const char *zSql) {
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
  for (e = REPORT_TEXT; e < REPORT_DURATION; e++) {
    const char *zName = bxReportTypeName((ReportType)e);
    if ((int)strlen(zName) == n && strncmp(z, zName, (size_t)n) == 0) break;
  }
  return (ReportType)e;
}

void bxReportFacts(ReportRun *p, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pFrom, zSql);
  int i;
  if (!bxReportRow(p, pStmt)) {
    sqlite3_finalize(pStmt);
    return;
  }
  for (i = 0; i < sqlite3_column_count(pStmt); i++) {
    const char *zName = sqlite3_column_name(pStmt, i);
    int nType = zName ? (int)strcspn(zName, ":") : 0;
    ReportFact *a;
    if (sqlite3_column_type(pStmt, i) == SQLITE_NULL) continue;
    if (bxGot((void *)(sqlite3_uint64)zName, &p->err) == 0) break;
    a = bxGrow(p->aFact, p->nFact, &p->nFactAlloc, sizeof(*a), &p->err);
    if (a == 0) break;
    p->aFact = a;
    a += p->nFact++;
    a->eType = typeNamed(zName, nType);
    a->zName = bxPrintf(&p->err, "%s", zName + nType + 1);
    a->zValue = bxReportColumnText(p, pStmt, i);
  }
  sqlite3_finalize(pStmt);
}

/*--------------------------------------------------------------- tables ----*/

static void setTable(ReportTable *pTable, const char *zId, const char *zTitle,
    const ReportColumn *aColumn) {
  memset(pTable, 0, sizeof(*pTable));
  pTable->zId = zId;
  pTable->zTitle = zTitle;
  pTable->aColumn = aColumn;
  while (aColumn[pTable->nColumn].zName != 0) pTable->nColumn++;
}

ReportTable *bxReportNewTable(ReportRun *p, const char *zId, const char *zTitle,
    const ReportColumn *aColumn) {
  ReportTable *pTable = &p->pins;
  if (strcmp(zId, "pins") != 0) {
    assert(p->nTable < REPORT_TABLES);
    pTable = &p->aTable[p->nTable++];
  }
  setTable(pTable, zId, zTitle, aColumn);
  return pTable;
}

void bxReportRows(
    ReportRun *p, ReportTable *pTable, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pFrom, zSql);
  int i;
  while (bxReportRow(p, pStmt)) {
    assert(sqlite3_column_count(pStmt) == pTable->nColumn);
    if (pTable->nCell >= (i64)REPORT_ROWS * pTable->nColumn) {
      pTable->nLeft++;
      continue;
    }
    for (i = 0; i < pTable->nColumn; i++) {
      char **az = bxGrow(
          pTable->azCell, pTable->nCell, &pTable->nAlloc, sizeof(*az), &p->err);
      if (az == 0) break;
      pTable->azCell = az;
      az[pTable->nCell++] = bxReportColumnText(p, pStmt, i);
    }
  }
  sqlite3_finalize(pStmt);
}

/*---------------------------------------------------------------- items ----*/

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

/* The mark with this name. */
static const char *markNamed(const char *z) {
  static const char *const az[] = {"compaction", "rollback", "fork", "error"};
  int i;
  for (i = 0; z != 0 && i < 4; i++) {
    if (strcmp(az[i], z) == 0) return az[i];
  }
  return 0;
}

static i64 listedNumber(sqlite3_stmt *pStmt, int i) {
  return sqlite3_column_type(pStmt, i) == SQLITE_NULL
             ? -1
             : sqlite3_column_int64(pStmt, i);
}

static void readListed(ReportRun *p, sqlite3_stmt *pStmt, ReportItem *pItem) {
  pItem->zKey = bxColumnCopy(pStmt, 0, &p->err);
  pItem->zId = bxReportColumnText(p, pStmt, 1);
  pItem->iTime = listedNumber(pStmt, 2);
  pItem->nSize = listedNumber(pStmt, 3);
  pItem->zStatus = bxReportColumnText(p, pStmt, 4);
  pItem->zMark = markNamed(bxColumnText(pStmt, 5, &p->err));
  pItem->iTurn = listedNumber(pStmt, 6);
  pItem->zTitle = bxReportColumnText(p, pStmt, 7);
  if (pItem->zTitle != 0) bxReportFirstLine(pItem->zTitle, REPORT_TITLE);
  pItem->zType = bxReportColumnText(p, pStmt, 8);
}

void bxReportItems(
    ReportRun *p, int iSource, BxStmts *pFrom, const char *zSql) {
  sqlite3_stmt *pStmt = bxReportAsk(p, pFrom, zSql);
  i64 nBefore = p->nItem;
  while (bxReportRow(p, pStmt)) {
    ReportItem *a;
    if (p->nItem - nBefore >= p->opt.nItem) {
      p->nLeftItems++;
      continue;
    }
    a = bxGrow(p->aItem, p->nItem, &p->nItemAlloc, sizeof(*a), &p->err);
    if (a == 0) break;
    p->aItem = a;
    a += p->nItem;
    memset(a, 0, sizeof(*a));
    a->iSource = iSource;
    a->zKind = p->aSource[iSource].zKind;
    a->iBlock = -1;
    a->nInput = a->nOutput = -1;
    a->iOrder = -p->nItem++;
    readListed(p, pStmt, a);
  }
  sqlite3_finalize(pStmt);
}

static void freeItem(ReportItem *pItem) {
  sqlite3_free(pItem->zKey);
  sqlite3_free(pItem->zId);
  sqlite3_free(pItem->zTitle);
  sqlite3_free(pItem->zModel);
  sqlite3_free(pItem->zStatus);
  sqlite3_free(pItem->zType);
  sqlite3_free(pItem->zLeaf);
}

/* By time; of one source in its order. */
static int compareTimes(const void *pLeft, const void *pRight) {
  const ReportItem *p = pLeft, *q = pRight;
  if (p->iTime != q->iTime) return p->iTime < q->iTime ? -1 : 1;
  if (p->iSource != q->iSource) return p->iSource < q->iSource ? -1 : 1;
  return (p->iOrder > q->iOrder) - (p->iOrder < q->iOrder);
}

static int compareOrder(const void *pLeft, const void *pRight) {
  const ReportItem *p = pLeft, *q = pRight;
  return (p->iOrder > q->iOrder) - (p->iOrder < q->iOrder);
}

/* An exchange that is in two places, such as a ring and the archive, is one item. */
static void dropTwins(ReportRun *p) {
  i64 i, n = 1;
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
}

void bxReportBound(ReportRun *p) {
  i64 i, nLeft = p->opt.nByte, nOver;
  if (p->err.rc != SQLITE_OK || p->nItem == 0) return;
  qsort(p->aItem, (size_t)p->nItem, sizeof(*p->aItem),
      p->nSource > 1 ? compareTimes : compareOrder);
  if (p->nSource > 1) dropTwins(p);
  nOver = p->nItem - p->opt.nItem;
  if (nOver > 0) {
    for (i = 0; i < nOver; i++) freeItem(&p->aItem[i]);
    p->nItem -= nOver;
    p->nLeftItems += nOver;
    memmove(p->aItem, p->aItem + nOver, sizeof(*p->aItem) * (size_t)p->nItem);
  }
  for (i = p->nItem - 1; i >= 0; i--) {
    ReportItem *pItem = &p->aItem[i];
    i64 n = pItem->nSize > 0 ? pItem->nSize : 0;
    nLeft -= n;
    pItem->bBodies = nLeft >= 0;
    if (nLeft < 0) {
      p->nLeftBodies++;
      p->nLeftBytes += n;
    }
  }
}

/*------------------------------------------------------------- the rest ----*/

void bxReportNotFound(ReportRun *p, const char *zWhat, const char *zHow) {
  bxFail(&p->err, SQLITE_ERROR, "NotFoundError: there is no %s %Q; %s", zWhat,
      p->zKey, zHow);
}

static void freeTable(ReportTable *pTable) {
  i64 i;
  for (i = 0; i < pTable->nCell; i++) sqlite3_free(pTable->azCell[i]);
  sqlite3_free(pTable->azCell);
}

static void freeVerdict(ReportVerdict *p) {
  sqlite3_free(p->zRule);
  sqlite3_free(p->zLevel);
  sqlite3_free(p->zTool);
  sqlite3_free(p->zTurn);
  sqlite3_free(p->zReason);
  sqlite3_free(p->zAction);
  sqlite3_free(p->zCount);
  sqlite3_free(p->zThreshold);
}

void bxReportFreeModel(ReportRun *p) {
  i64 i;
  for (i = 0; i < p->nFact; i++) {
    sqlite3_free(p->aFact[i].zName);
    sqlite3_free(p->aFact[i].zValue);
  }
  sqlite3_free(p->aFact);
  freeVerdict(&p->verdict);
  freeTable(&p->pins);
  for (i = 0; i < p->nTable; i++) freeTable(&p->aTable[i]);
  for (i = 0; i < p->nSource; i++) sqlite3_finalize(p->aSource[i].pBodies);
  for (i = 0; i < p->nItem; i++) freeItem(&p->aItem[i]);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aPiece);
  sqlite3_free(p->spans.a);
  for (i = 0; i < REPORT_ASKS; i++) sqlite3_finalize(p->apAsk[i]);
  for (i = 0; i < 4; i++) sqlite3_finalize(p->apHold[i]);
}
