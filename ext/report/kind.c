/*
** kind.c: what a report says of a kill switch, an agent, a conversation (rollout), a
** recording (evidence), a session of the cache, and a database, as the queries of
** page/report.sql find it; and the list of its items.
**
** Every text that comes from the database goes through bxReportClean(): it is
** masked first, and cut afterwards, so that no half of a key is left.
*/
#include "report.h"
#include "../core/prices.h"
#include "../core/vtable.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

extern const char bxPageSql[]; /* made into C by the build */

char *bxReportKeep(ReportRun *p, char *zOwned) {
  char **pz = zOwned == 0 ? 0
                          : bxArrayAdd(&p->azKept, &p->nKept, &p->nKeptAlloc,
                                sizeof(*pz), &p->err);
  if (pz != 0) return *pz = zOwned;
  sqlite3_free(zOwned);
  return 0;
}

char *bxReportPrintf(ReportRun *p, const char *zFormat, ...) {
  va_list ap;
  char *z;
  if (p->err.rc != SQLITE_OK) return 0;
  va_start(ap, zFormat);
  z = bxCheckMem(sqlite3_vmprintf(zFormat, ap), &p->err);
  va_end(ap);
  return bxReportKeep(p, z);
}

int bxReportRow(ReportRun *p, sqlite3_stmt *pStmt) {
  return pStmt != 0 && bxStep(pStmt, &p->err);
}

static void pinHome(ReportRun *p, BxStmts *pFrom) {
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
  pinHome(p, pHome);
  return p->err.rc == SQLITE_OK ? pHome : 0;
}

/* The same; NULL if the domain is not installed. */
static BxStmts *reportHome(ReportRun *p, const char *zDomain) {
  BxStmts *pHome = p->err.rc == SQLITE_OK ? bxReportNeed(p, zDomain) : 0;
  if (pHome == 0 && bxErrIs(&p->err, "NotInstalledError")) bxErrClear(&p->err);
  return pHome;
}

char *bxReportClean(ReportRun *p, const char *z, i64 n, int nMax) {
  char *zMasked = 0, *zPlain;
  if (z == 0 || p->err.rc != SQLITE_OK) return 0;
  if (bxSecretsMask(&p->masks, z, n, 1, &zMasked, &n, &p->err)) z = zMasked;
  zPlain = bxReportKeep(p, bxReportPlain(z, n, &p->err));
  if (zPlain != 0 && nMax > 0) bxReportFirstLine(zPlain, nMax);
  sqlite3_free(zMasked);
  return zPlain;
}

static char *reportColumn(ReportRun *p, sqlite3_stmt *pStmt, int i) {
  const char *z = bxColumnText(pStmt, i, &p->err);
  if (sqlite3_column_type(pStmt, i) == SQLITE_TEXT) {
    return bxReportClean(p, z, sqlite3_column_bytes(pStmt, i), 0);
  }
  return z ? bxReportPrintf(p, "%s", z) : 0; /* a number */
}

/*--------------------------------------------------------------- queries ----*/

/* Appends a part. Returns where its title begins; NULL if there is no such part. */
static const char *appendPart(sqlite3_str *pOut, const char *zName, size_t n) {
  const char *z, *zTitle = 0;
  size_t nLine;
  int bIn = 0;
  for (z = bxPageSql; *z; z += nLine + 1) {
    nLine = strcspn(z, "\n");
    if (strncmp(z, "--: ", 4) == 0) {
      bIn = strncmp(z + 4, zName, n) == 0 && strchr(":\n", z[4 + n]) != 0;
      if (bIn) zTitle = z + 4 + n + 2;
    } else if (bIn && strncmp(z, "--+ price", 9) == 0) {
      sqlite3_str_appendall(pOut, BX_PRICE_OF_N);
    } else if (bIn && strncmp(z, "--+ model", 9) == 0) {
      sqlite3_str_appendall(pOut, BX_PROMPT ", " BX_MODEL_PARTS " ");
    } else if (bIn && strncmp(z, "--+ ", 4) == 0) {
      appendPart(pOut, z + 4, nLine - 4);
    } else if (bIn) {
      sqlite3_str_append(pOut, z, (int)nLine + 1);
    }
  }
  return zTitle;
}

static char *partSql(ReportRun *p, const char *zPart, const char **pzTitle) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *zTitle = appendPart(pOut, zPart, strlen(zPart));
  assert(zTitle != 0);
  if (pzTitle != 0) *pzTitle = zTitle;
  return bxReportKeep(p, bxStrFinish(pOut, &p->err));
}

sqlite3_stmt *bxReportQuery(ReportRun *p, BxStmts *pFrom, const char *zPart) {
  char *z = pFrom ? partSql(p, zPart, 0) : 0;
  sqlite3_stmt *pStmt = z ? bxPrepare(pFrom, z, &p->err) : 0;
  int n = pStmt ? sqlite3_bind_parameter_count(pStmt) : 0;
  static const char *const azTypes[] = {"", "t", "ti", "tit"};
  assert(n <= 3);
  if (n > 0) {
    bxBind(pStmt, &p->err, azTypes[n], p->zKey, p->opt.nItem, p->pKind->zName);
  }
  return pStmt;
}

i64 bxReportInt(ReportRun *p, BxStmts *pFrom, const char *zPart) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pFrom, zPart);
  i64 i = bxReportRow(p, pStmt) ? sqlite3_column_int64(pStmt, 0) : 0;
  sqlite3_finalize(pStmt);
  return i;
}

/* The type with which a name begins, before a colon. */
static ReportType typeNamed(const char *z) {
  size_t n = strcspn(z, ":");
  int e;
  for (e = REPORT_TEXT; e < REPORT_DURATION; e++) {
    const char *zName = bxReportTypeName((ReportType)e);
    if (strlen(zName) == n && strncmp(z, zName, n) == 0) break;
  }
  return (ReportType)e;
}

static void addCell(ReportRun *p, ReportTable *pTable, char *zKept) {
  char **pz = bxArrayAdd(
      &pTable->azCell, &pTable->nCell, &pTable->nAlloc, sizeof(*pz), &p->err);
  if (pz != 0) *pz = zKept;
}

/*----------------------------------------------------------------- facts ----*/

static void addFact(
    ReportRun *p, ReportType eType, const char *zName, char *zKept) {
  ReportFact *a =
      bxArrayAdd(&p->aFact, &p->nFact, &p->nFactAlloc, sizeof(*a), &p->err);
  if (a == 0) return;
  a->eType = eType;
  a->zName = bxReportPrintf(p, "%s", zName);
  a->zValue = zKept;
}

static void addFacts(ReportRun *p, BxStmts *pFrom, const char *zPart) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pFrom, zPart);
  int i, n = bxReportRow(p, pStmt) ? sqlite3_column_count(pStmt) : 0;
  for (i = 0; i < n; i++) {
    const char *zName = sqlite3_column_name(pStmt, i);
    if (sqlite3_column_type(pStmt, i) == SQLITE_NULL) continue;
    if (bxCheckMem((void *)(sqlite3_uint64)zName, &p->err) == 0) break;
    addFact(
        p, typeNamed(zName), strchr(zName, ':') + 1, reportColumn(p, pStmt, i));
  }
  sqlite3_finalize(pStmt);
}

void bxReportSums(ReportRun *p) {
  static const char *const azUsage[USAGE_NUMBERS] = {"Input tokens, not cached",
      "Input tokens, read from the cache", "Input tokens, written to the cache",
      "Output tokens", "Reasoning tokens"};
  const ReportUsage *pUsage = &p->usage;
  const char *zName;
  i64 n;
  int i;
  for (i = 0; i < USAGE_NUMBERS; i++) {
    if (pUsage->an[i] <= 0) continue;
    addFact(p, REPORT_COUNT,
        i == USAGE_OUTPUT && pUsage->bRecorded ? "Output tokens, as recorded"
                                               : azUsage[i],
        bxReportPrintf(p, "%lld", pUsage->an[i]));
  }
  if (pUsage->bCost) {
    addFact(p, REPORT_TEXT, "Cost",
        bxReportPrintf(p, "%.4f (%s)", pUsage->rCost, pUsage->zSource));
  }
  if (p->verdict.nCell > 0) {
    char **az = p->verdict.azCell;
    addFact(p, REPORT_TEXT, "Rule",
        bxReportPrintf(p, "%s (%s), %s of %s", az[VERDICT_RULE],
            az[VERDICT_LEVEL], az[VERDICT_COUNT], az[VERDICT_THRESHOLD]));
  }
  if (p->zAsked != 0) {
    addFact(p, REPORT_TEXT, "Asked first", p->zAsked);
  }
  p->masked.zId = "masked";
  p->masked.zTitle = "Masked";
  p->masked.nColumn = 2;
  p->masked.aColumn[0] = (ReportColumn){"What", "name", REPORT_TEXT};
  p->masked.aColumn[1] = (ReportColumn){"Times", "count", REPORT_COUNT};
  for (i = 0; (zName = bxSecretsCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    addCell(p, &p->masked, bxReportPrintf(p, "%s", zName));
    addCell(p, &p->masked, bxReportPrintf(p, "%lld", n));
  }
}

/*---------------------------------------------------------------- tables ----*/

static ReportTable *newTable(ReportRun *p, const char *zPart) {
  const char *zTitle = 0;
  char *z = partSql(p, zPart, &zTitle);
  const char *zId = strchr(zPart, '.');
  ReportTable *pTable;
  zId = zId ? zId + 1 : zPart;
  if (strcmp(zId, "holds") == 0) zId = "pins";
  pTable = strcmp(zId, "pins") == 0      ? &p->pins
           : strcmp(zId, "verdict") == 0 ? &p->verdict
                                         : p->aTable;
  while (pTable->zId != 0 && strcmp(pTable->zId, zId) != 0) pTable++;
  if (z == 0 || pTable->zId != 0) return pTable;
  if (pTable == &p->aTable[p->nTable]) p->nTable++;
  assert(p->nTable <= REPORT_TABLES);
  pTable->zId = zId;
  pTable->zTitle =
      bxReportPrintf(p, "%.*s", (int)strcspn(zTitle, "\n"), zTitle);
  while ((z = strstr(z, " AS '")) != 0) {
    ReportColumn *pColumn = &pTable->aColumn[pTable->nColumn++];
    assert(pTable->nColumn <= REPORT_COLUMNS);
    pColumn->eType = typeNamed(z += 5);
    pColumn->zName = z = strchr(z, ':') + 1;
    z[strcspn(z, "'")] = 0;
    pColumn->zSmall = bxReportPrintf(p, "%c%s", *z | 32, z + 1);
    z += strlen(z) + 1;
  }
  return pTable;
}

static void reportRows(ReportRun *p, ReportTable *pTable, sqlite3_stmt *pStmt) {
  int i, n = pTable->nColumn;
  while (bxReportRow(p, pStmt)) {
    char **pz;
    if (pTable->nCell >= (i64)REPORT_ROWS * n) {
      pTable->nLeft++;
      continue;
    }
    for (i = 0; i < n; i++) addCell(p, pTable, reportColumn(p, pStmt, i));
    pz = bxArrayAdd(&pTable->azLink, &pTable->nLink, &pTable->nLinkAlloc,
        sizeof(*pz), &p->err);
    if (pz != 0 && sqlite3_column_count(pStmt) > n) {
      *pz = bxReportKeep(p, bxColumnCopy(pStmt, n, &p->err));
    }
  }
  sqlite3_finalize(pStmt);
}

static ReportTable *reportTable(
    ReportRun *p, BxStmts *pFrom, const char *zPart) {
  ReportTable *pTable = newTable(p, zPart);
  reportRows(p, pTable, bxReportQuery(p, pFrom, zPart));
  return pTable;
}

/*----------------------------------------------------------------- items ----*/

static i64 listedNumber(sqlite3_stmt *pStmt, int i) {
  return sqlite3_column_type(pStmt, i) == SQLITE_NULL
             ? -1
             : sqlite3_column_int64(pStmt, i);
}

static ReportSource *addItems(ReportRun *p, BxStmts *pFrom, const char *zKind,
    const char *zBodies, const char *zItems) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pFrom, zItems);
  char *z = partSql(p, zBodies, 0);
  ReportSource *pSource = &p->aSource[p->nSource];
  i64 nBefore = p->nItem;
  assert(p->nSource < REPORT_SOURCES);
  pSource->zKind = zKind;
  if (z != 0) pSource->pBodies = bxPrepare(pFrom, z, &p->err);
  while (bxReportRow(p, pStmt)) {
    ReportItem *a;
    if (p->nItem - nBefore >= p->opt.nItem) {
      p->nLeftItems++;
      continue;
    }
    a = bxArrayAdd(&p->aItem, &p->nItem, &p->nItemAlloc, sizeof(*a), &p->err);
    if (a == 0) break;
    a->iSource = p->nSource;
    a->zKind = zKind;
    a->iBlock = -1;
    a->nInput = a->nOutput = a->nDuration = -1;
    a->iOrder = 1 - p->nItem;
    a->zKey = bxReportKeep(p, bxColumnCopy(pStmt, 0, &p->err));
    a->zId = reportColumn(p, pStmt, 1);
    a->iTime = listedNumber(pStmt, 2);
    a->nSize = listedNumber(pStmt, 3);
    a->zStatus = reportColumn(p, pStmt, 4);
    a->zMark = reportColumn(p, pStmt, 5);
    a->iTurn = listedNumber(pStmt, 6);
    a->zTitle = reportColumn(p, pStmt, 7);
    if (a->zTitle != 0) bxReportFirstLine(a->zTitle, REPORT_TITLE);
    a->zType = reportColumn(p, pStmt, 8);
    if (sqlite3_column_count(pStmt) > 9) { /* of exchanges, by their meta */
      a->zError = reportColumn(p, pStmt, 9);
      a->nDuration = listedNumber(pStmt, 10);
    }
  }
  sqlite3_finalize(pStmt);
  p->nSource++;
  return pSource;
}

/* By time; of one source in its order. */
static int compareTimes(const void *pLeft, const void *pRight) {
  const ReportItem *p = pLeft, *q = pRight;
  if (p->iTime != q->iTime) return p->iTime < q->iTime ? -1 : 1;
  if (p->iSource != q->iSource) return p->iSource < q->iSource ? -1 : 1;
  return (p->iOrder > q->iOrder) - (p->iOrder < q->iOrder);
}

static void boundItems(ReportRun *p) {
  i64 i, n = 1, nLeft = p->opt.nByte, nOver;
  if (p->err.rc != SQLITE_OK || p->nItem == 0) return;
  if (p->nSource > 1) {
    qsort(p->aItem, (size_t)p->nItem, sizeof(*p->aItem), compareTimes);
    /* An exchange in two places, such as a ring and the archive, is one item. */
    for (i = 1; i < p->nItem; i++) {
      const ReportItem *pLast = &p->aItem[n - 1], *pItem = &p->aItem[i];
      if (pLast->iSource == pItem->iSource || pLast->iTime != pItem->iTime ||
          pLast->zId == 0 || pItem->zId == 0 ||
          strcmp(pLast->zId, pItem->zId) != 0) {
        p->aItem[n++] = *pItem;
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

static void failNotFound(ReportRun *p, const char *zWhat, const char *zHow) {
  bxFail(&p->err, SQLITE_ERROR, "NotFoundError: there is no %s %Q; %s", zWhat,
      p->zKey, zHow);
}

static void freeTable(ReportTable *pTable) {
  sqlite3_free(pTable->azCell);
  sqlite3_free(pTable->azLink);
}

void bxReportFreeModel(ReportRun *p) {
  i64 i;
  for (i = 0; i < p->nKept; i++) sqlite3_free(p->azKept[i]);
  sqlite3_free(p->azKept);
  sqlite3_free(p->aFact);
  freeTable(&p->pins);
  freeTable(&p->masked);
  freeTable(&p->verdict);
  for (i = 0; i < p->nTable; i++) freeTable(&p->aTable[i]);
  for (i = 0; i < p->nSource; i++) sqlite3_finalize(p->aSource[i].pBodies);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aPiece);
  sqlite3_free(p->spans.a);
  sqlite3_free(p->calls.a);
  sqlite3_finalize(p->pValues);
  sqlite3_finalize(p->pProof);
  sqlite3_finalize(p->pRow);
  for (i = 0; i < 4; i++) sqlite3_finalize(p->apHold[i]);
}

/*----------------------------------------------------------------- kinds ----*/

/* Reads the verdict whose id a query returns, and marks the items that it names. */
static void readVerdict(ReportRun *p, BxStmts *pHome, const char *zPart) {
  sqlite3_stmt *pStmt;
  i64 i, iVerdict = bxReportInt(p, pHome, zPart);
  if (p->err.rc != SQLITE_OK || iVerdict == 0) return;
  pStmt = bxReportQuery(p, pHome, "verdict");
  bxBind(pStmt, &p->err, "i", iVerdict);
  reportRows(p, newTable(p, "verdict"), pStmt);
  pStmt = bxReportQuery(p, pHome, "verdict.items");
  bxBind(pStmt, &p->err, "i", iVerdict);
  while (bxReportRow(p, pStmt)) {
    const char *zKey = bxColumnText(pStmt, 0, &p->err);
    for (i = 0; zKey != 0 && i < p->nItem; i++) {
      if (strcmp(p->aItem[i].zKey, zKey) == 0) p->aItem[i].bVerdict = 1;
    }
  }
  sqlite3_finalize(pStmt);
}

static void reportKillSwitch(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "payload");
  if (pHome == 0) return;
  if (bxReportInt(p, pHome, "kill_switch.exists") == 0) {
    failNotFound(p, "kill switch",
        "SELECT DISTINCT kill_switch_event_id FROM event_payloads lists them");
  }
  addFacts(p, pHome, "kill_switch.facts");
  addFacts(p, pHome, "kill_switch.stop");
  addItems(p, pHome, "exchange", "archive.bodies", "kill_switch.items")
      ->bProof = bxReportProves(p, pHome);
  boundItems(p);
  readVerdict(p, pHome, "kill_switch.verdict");
  reportTable(p, pHome, "kill_switch.pins");
  if (reportHome(p, "retention") == pHome) {
    reportTable(p, pHome, "kill_switch.holds");
  }
  reportTable(p, pHome, "kill_switch.verdicts");
  reportTable(p, pHome, "receipts");
}

static void addVtabs(
    ReportRun *p, BxStmts *pFrom, const char *zModule, const char *zPart) {
  sqlite3_stmt *pStmt = pFrom ? bxVtabNames(pFrom, zModule, &p->err) : 0;
  ReportTable *pTable = newTable(p, zPart);
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    BxVtab *pVtab =
        zName ? bxVtabIn(p->bx, zModule, pFrom->zDb, zName, &p->err) : 0;
    if (pVtab == 0 || p->nSource == REPORT_SOURCES) continue;
    if (strcmp(zPart, "agent.rings") == 0) {
      addItems(p, &pVtab->stmts, "exchange", "ring.bodies", "ring.items");
    }
    reportRows(p, pTable, bxReportQuery(p, &pVtab->stmts, zPart));
  }
  sqlite3_finalize(pStmt);
}

static void reportAgent(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "payload");
  if (pHome == 0) return;
  addFacts(p, pHome, "agent.facts");
  addFacts(p, pHome, "agent.stop");
  addItems(p, pHome, "exchange", "archive.bodies", "agent.items")->bProof =
      bxReportProves(p, pHome);
  p->nLeftItems += bxReportInt(p, pHome, "agent.more");
  addVtabs(p, pHome, "payload_ring", "agent.rings");
  addVtabs(p, bxSchema(p->bx, "temp", &p->err), "payload_ring", "agent.rings");
  if (p->nItem == 0 && p->aTable[0].nCell == 0) {
    failNotFound(p, "agent",
        "SELECT DISTINCT agent_id FROM event_payloads lists those of the "
        "archive, and SELECT agent_id FROM ring_agents those of a ring");
  }
  boundItems(p);
  readVerdict(p, pHome, "agent.verdict");
  reportTable(p, pHome, "agent.pins");
  if (reportHome(p, "retention") == pHome) reportTable(p, pHome, "holds");
  reportTable(p, pHome, "agent.verdicts");
  reportTable(p, pHome, "receipts");
}

/* The tokens of all calls, and the model and the tokens of the items that tell them.
** Items are in order, and without gaps. */
static void readTaleUsage(ReportRun *p, BxStmts *pHome) {
  sqlite3_stmt *pStmt = bxReportQuery(p, pHome, "rollout.sums");
  ReportUsage *pUsage = &p->usage;
  i64 i;
  if (bxReportRow(p, pStmt) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    pUsage->bAny = 1;
    for (i = 0; i < USAGE_NUMBERS; i++) {
      pUsage->an[i] = sqlite3_column_int64(pStmt, (int)i);
    }
    pUsage->bCost = sqlite3_column_type(pStmt, 5) != SQLITE_NULL;
    pUsage->rCost = sqlite3_column_double(pStmt, 5);
    if (pUsage->bCost) {
      pUsage->zSource =
          sqlite3_column_int(pStmt, 6) ? "blackbox_prices" : "reported";
    }
    pUsage->bRecorded = sqlite3_column_int(pStmt, 7);
  }
  sqlite3_finalize(pStmt);
  pStmt = bxReportQuery(p, pHome, "rollout.calls");
  while (bxReportRow(p, pStmt)) {
    i = sqlite3_column_int64(pStmt, 0);
    if (p->nItem > 0) i -= strtoll(p->aItem[0].zKey, 0, 10);
    if (i < 0 || i >= p->nItem || p->aItem[i].nInput >= 0) continue;
    p->aItem[i].zModel = reportColumn(p, pStmt, 1);
    p->aItem[i].nInput = sqlite3_column_int64(pStmt, 2);
    p->aItem[i].nOutput = sqlite3_column_int64(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
}

static void reportRollout(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "rollout");
  if (pHome == 0) return;
  addFacts(p, pHome, "rollout.facts");
  if (p->nFact == 0) {
    failNotFound(
        p, "conversation", "SELECT id FROM rollouts lists the conversations");
  } else if (strcmp(p->aFact[0].zName, "Asked first") == 0) {
    p->zTitle = bxReportPrintf(p, "%s", p->aFact[0].zValue);
    if (p->zTitle != 0) bxReportFirstLine(p->zTitle, REPORT_TITLE);
  }
  addItems(p, pHome, "item", "rollout.bodies", "rollout.items");
  boundItems(p);
  readTaleUsage(p, pHome);
  if (reportHome(p, "retention") == pHome) reportTable(p, pHome, "holds");
  reportTable(p, pHome, "rollout.usage");
  reportTable(p, pHome, "rollout.related");
  reportTable(p, pHome, "rollout.dropped");
  reportTable(p, pHome, "rollout.receipts");
}

static void reportEvidence(ReportRun *p) {
  BxVtab *pBuffer = bxVtabFind(p->bx, "evidence_buffer", p->pKey, &p->err);
  BxStmts *pFrom = pBuffer ? &pBuffer->stmts : 0;
  if (pFrom == 0) return;
  addFacts(p, pFrom, "evidence.facts");
  addItems(p, pFrom, "action", "evidence.bodies", "evidence.items");
  boundItems(p);
  reportTable(p, reportHome(p, "retention"), "holds");
  reportTable(p, pFrom, "evidence.receipts");
}

static void reportSession(ReportRun *p) {
  BxStmts *pHome = bxReportNeed(p, "cache");
  if (pHome == 0) return;
  addFacts(p, pHome, "session.facts");
  if (p->nFact == 0) {
    failNotFound(p, "session of the cache",
        "SELECT session_id FROM cache_sessions lists them");
  }
  addItems(p, pHome, "result", "session.bodies", "session.items");
  boundItems(p);
  reportTable(p, reportHome(p, "retention"), "holds");
  reportTable(p, pHome, "receipts");
}

/*------------------------------------------------------------- databases ----*/

/* What is wrong, and then the agents, kill switches, recordings, conversations and
** sessions. A row that another report is of has a link. The pages of a site (site.c) are
** those of the links. */

/* The columns of the table of agents that their exchanges tell. */
enum { AGENT_ERRORS = 2, AGENT_TOKENS = 3, AGENT_COST = 4, AGENT_COLUMNS = 9 };

typedef struct AgentUses {
  sqlite3_stmt *ap[REPORT_SOURCES]; /* of the archive and of rings */
  int n;
  i64 nLeft; /* exchanges that may be read yet */
} AgentUses;

/* Adds up what the exchanges of an agent tell. */
static void readAgent(
    ReportRun *p, AgentUses *pUses, const char *zAgent, char **azCell) {
  i64 nTokens = 0, nErrors = 0, iLast = -1;
  const char *zFailed = 0; /* how the newest one did */
  double rCost = 0;
  int i, bCost = 0;
  for (i = 0; i < pUses->n && p->err.rc == SQLITE_OK; i++) {
    sqlite3_stmt *pStmt = pUses->ap[i];
    bxBind(pStmt, &p->err, "ti", zAgent, pUses->nLeft);
    if (bxReportRow(p, pStmt)) {
      pUses->nLeft -= sqlite3_column_int64(pStmt, 0);
      nErrors += sqlite3_column_int64(pStmt, 1);
      nTokens += sqlite3_column_int64(pStmt, 2);
      bCost |= sqlite3_column_type(pStmt, 3) != SQLITE_NULL;
      rCost += sqlite3_column_double(pStmt, 3);
      if (sqlite3_column_int64(pStmt, 0) > 0 &&
          sqlite3_column_int64(pStmt, 4) > iLast) {
        iLast = sqlite3_column_int64(pStmt, 4);
        zFailed = bxReportKeep(p, bxColumnCopy(pStmt, 5, &p->err));
      }
    }
    bxReset(pStmt, &p->err);
  }
  azCell[AGENT_ERRORS] = bxReportPrintf(p, "%lld", nErrors);
  azCell[AGENT_TOKENS] = bxReportPrintf(p, "%lld", nTokens);
  if (bCost) azCell[AGENT_COST] = bxReportPrintf(p, "%.4f", rCost);
  if (zFailed != 0) {
    sqlite3_stmt *pWrong =
        bxReportQuery(p, bxSchema(p->bx, "main", &p->err), "database.failed");
    bxBind(pWrong, &p->err, "tit", zAgent, iLast, zFailed);
    reportRows(p, &p->aTable[0], pWrong);
  }
}

/* Appends a part as it is for a schema and a table. */
static void appendExpanded(
    ReportRun *p, sqlite3_str *pSql, BxStmts *pFrom, const char *zPart) {
  const char *zSql = partSql(p, zPart, 0);
  char *z = zSql ? bxExpand(zSql, pFrom->zDb, pFrom->zTable) : 0;
  if (bxCheckMem(z, &p->err) != 0) sqlite3_str_appendall(pSql, z);
  sqlite3_free(z);
}

/* The agents of the archive and of the rings. */
static void addAgents(ReportRun *p, BxStmts *pFrom) {
  ReportTable *pTable = newTable(p, "database.agents");
  sqlite3_stmt *pNames = bxVtabNames(pFrom, "payload_ring", &p->err);
  sqlite3_str *pSql = sqlite3_str_new(0);
  AgentUses uses = {{0}, 0, p->opt.nItem};
  char *z;
  i64 i;
  appendExpanded(p, pSql, pFrom, "database.archived");
  uses.ap[uses.n++] = bxReportQuery(p, pFrom, "database.archive_usage");
  while (bxReportRow(p, pNames) && uses.n < REPORT_SOURCES) {
    const char *zName = bxColumnText(pNames, 0, &p->err);
    BxVtab *pRing =
        zName ? bxVtabIn(p->bx, "payload_ring", pFrom->zDb, zName, &p->err) : 0;
    if (pRing == 0) continue;
    appendExpanded(p, pSql, &pRing->stmts, "database.in_ring");
    uses.ap[uses.n++] = bxReportQuery(p, &pRing->stmts, "database.ring_usage");
  }
  sqlite3_finalize(pNames);
  appendExpanded(p, pSql, pFrom, "database.agents");
  z = bxStrFinish(pSql, &p->err);
  if (z != 0) reportRows(p, pTable, bxPrepareSql(p->bx->db, z, &p->err));
  sqlite3_free(z);
  for (i = 0; i < pTable->nLink && p->err.rc == SQLITE_OK; i++) {
    readAgent(p, &uses, strchr(pTable->azLink[i], ':') + 1,
        pTable->azCell + i * AGENT_COLUMNS);
  }
  for (i = 0; i < uses.n; i++) sqlite3_finalize(uses.ap[i]);
}

static void reportDatabase(ReportRun *p) {
  /* for each domain its table; those of virtual tables have the name of a module */
  static const struct {
    const char *zDomain, *zModule, *zPart;
  } a[] = {{"payload", 0, "database.switches"},
      {"evidence", "evidence_buffer", "database.recordings"},
      {"rollout", 0, "database.rollouts"}, {"cache", 0, "database.sessions"},
      {"core", "payload_ring", "database.rings"},
      {"retention", 0, "database.sizes"}, {"retention", 0, "holds"},
      {"core", 0, "database.domains"}, {"core", 0, "database.receipts"}};
  ReportTable *pWrong;
  BxStmts *pFrom;
  sqlite3_stmt *pStmt;
  size_t i;
  i64 n;
  bxRefuseOldFile(p->bx, p->zKey, &p->err);
  if (!bxSchemaHasDomain(p->bx, p->zKey, "core", &p->err)) {
    failNotFound(p, "schema with tables of blackbox named",
        "main is the name of the file that was opened; PRAGMA database_list "
        "lists the schemas");
    return;
  }
  pFrom = bxSchema(p->bx, p->zKey, &p->err);
  pinHome(p, pFrom);
  pWrong = newTable(p, "database.wrong");
  if (bxSchemaHasDomain(p->bx, p->zKey, "payload", &p->err)) {
    reportRows(p, pWrong, bxReportQuery(p, pFrom, "database.wrong"));
    addAgents(p, pFrom);
  }
  reportRows(p, pWrong, bxReportQuery(p, pFrom, "database.check"));
  n = pWrong->nCell / pWrong->nColumn + pWrong->nLeft;
  p->zTitle =
      n == 0   ? bxReportPrintf(p, "Nothing is wrong in %s", p->zShown)
      : n == 1 ? bxReportPrintf(p, "1 thing is wrong in %s", p->zShown)
               : bxReportPrintf(p, "%lld things are wrong in %s", n, p->zShown);
  for (i = 0; i < sizeof(a) / sizeof(*a); i++) {
    if (!bxSchemaHasDomain(p->bx, p->zKey, a[i].zDomain, &p->err) ||
        (strcmp(a[i].zPart, "database.sizes") == 0 &&
            reportHome(p, "retention") != pFrom)) {
      continue;
    }
    if (a[i].zModule != 0) addVtabs(p, pFrom, a[i].zModule, a[i].zPart);
    if (a[i].zModule == 0) reportTable(p, pFrom, a[i].zPart);
  }
  addFacts(p, pFrom, "database.facts");
  /* The head of the log, as it stands: nothing is taken in. */
  if (!bxReportProves(p, pFrom)) return;
  pStmt = bxReportQuery(p, pFrom, "database.head");
  if (bxReportRow(p, pStmt)) {
    p->zHead = bxReportKeep(p, bxColumnCopy(pStmt, 0, &p->err));
  }
  if (p->zHead != 0) p->zProof = "ok";
  sqlite3_finalize(pStmt);
}

const ReportKind bxReportKinds[] = {
    {"kill_switch", "Kill switch", "Exchanges", reportKillSwitch},
    {"agent", "Agent", "Exchanges", reportAgent},
    {"rollout", "Conversation", "Items", reportRollout},
    {"evidence", "Recording", "Actions", reportEvidence},
    {"session", "Cache session", "Results", reportSession},
    {"database", "Database", 0, reportDatabase},
    {0, 0, 0, 0},
};
