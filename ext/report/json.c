/*
** json.c: the report as JSON, which docs/report.md describes. It stands in the page,
** too: there the parts of items name pieces of blocks, and here they have their
** text.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

static void jsonText(sqlite3_str *pOut, const char *zBefore, const char *z) {
  sqlite3_str_appendall(pOut, zBefore);
  if (z == 0) {
    sqlite3_str_appendall(pOut, "null");
  } else {
    bxReportJson(pOut, z, (i64)strlen(z));
  }
}

/* The same for a member that is omitted if there is no text. */
static void jsonKnown(sqlite3_str *pOut, const char *zBefore, const char *z) {
  if (z != 0) jsonText(pOut, zBefore, z);
}

/* The same for a number that is not negative. */
static void jsonNumber(sqlite3_str *pOut, const char *zBefore, i64 i) {
  if (i >= 0) sqlite3_str_appendf(pOut, "%s%lld", zBefore, i);
}

/* Whether a text is a number that every reader of JSON has exactly. */
static int isJsonNumber(const char *z) {
  const char *zEnd = bxSkipScalar(z, z + strlen(z));
  if (strchr("-0123456789", *z) == 0 || *z == 0) return 0;
  return zEnd != 0 && *zEnd == 0 && strtod(z, 0) <= 9007199254740992.0 &&
         strtod(z, 0) >= -9007199254740992.0;
}

static void jsonValue(
    sqlite3_str *pOut, const char *zBefore, const char *z, ReportType eType) {
  if (z != 0 && eType >= REPORT_TIME && isJsonNumber(z)) {
    sqlite3_str_appendf(pOut, "%s%s", zBefore, z);
  } else {
    jsonText(pOut, zBefore, z);
  }
}

static void jsonFacts(const ReportRun *p) {
  i64 i;
  sqlite3_str_appendall(p->pOut, ",\n\"facts\":[");
  for (i = 0; i < p->nFact; i++) {
    const ReportFact *pFact = &p->aFact[i];
    jsonText(p->pOut, i ? ",{\"name\":" : "{\"name\":", pFact->zName);
    jsonValue(p->pOut, ",\"value\":", pFact->zValue, pFact->eType);
    sqlite3_str_appendf(
        p->pOut, ",\"type\":\"%s\"}", bxReportTypeName(pFact->eType));
  }
  sqlite3_str_appendall(p->pOut, "]");
}

static void jsonVerdict(const ReportRun *p) {
  const ReportVerdict *pVerdict = &p->verdict;
  int bAny = 0;
  i64 i;
  if (!pVerdict->bAny) {
    sqlite3_str_appendall(p->pOut, ",\n\"verdict\":null");
    return;
  }
  jsonText(p->pOut, ",\n\"verdict\":{\"rule\":", pVerdict->zRule);
  jsonText(p->pOut, ",\"level\":", pVerdict->zLevel);
  jsonValue(p->pOut, ",\"count\":", pVerdict->zCount, REPORT_COUNT);
  jsonValue(p->pOut, ",\"threshold\":", pVerdict->zThreshold, REPORT_COUNT);
  jsonText(p->pOut, ",\"tool\":", pVerdict->zTool);
  jsonValue(p->pOut, ",\"turn\":", pVerdict->zTurn, REPORT_COUNT);
  jsonText(p->pOut, ",\"reason\":", pVerdict->zReason);
  jsonText(p->pOut, ",\"action\":", pVerdict->zAction);
  sqlite3_str_appendall(p->pOut, ",\"items\":[");
  for (i = 0; i < p->nItem; i++) {
    if (!p->aItem[i].bVerdict) continue;
    sqlite3_str_appendf(p->pOut, "%s%lld", bAny ? "," : "", i + 1);
    bAny = 1;
  }
  sqlite3_str_appendall(p->pOut, "]}");
}

static void jsonUsage(const ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  if (!pUsage->bAny) {
    sqlite3_str_appendall(p->pOut, ",\n\"usage\":null");
    return;
  }
  sqlite3_str_appendf(p->pOut,
      ",\n\"usage\":{\"input\":%lld,\"cacheRead\":%lld,\"cacheWrite\":%lld,"
      "\"output\":%lld,\"reasoning\":%lld",
      pUsage->nInput, pUsage->nCacheRead, pUsage->nCacheWrite, pUsage->nOutput,
      pUsage->nReasoning);
  sqlite3_str_appendf(p->pOut, ",\"outputSource\":%s",
      pUsage->bRecorded ? "\"as recorded\"" : "null");
  if (pUsage->bCost) {
    sqlite3_str_appendf(p->pOut, ",\"cost\":%!.6f,\"costSource\":\"%s\"}",
        pUsage->rCost, pUsage->zSource);
  } else {
    sqlite3_str_appendall(p->pOut, ",\"cost\":null,\"costSource\":null}");
  }
}

/* Pins are objects, whose members are the columns in small letters. */
static void jsonPins(const ReportRun *p) {
  static const char *const azName[] = {"{\"time\":", ",\"what\":",
      ",\"actor\":", ",\"reason\":", ",\"status\":"};
  const ReportTable *pTable = &p->pins;
  i64 i;
  sqlite3_str_appendall(p->pOut, ",\n\"pins\":[");
  for (i = 0; i < pTable->nCell; i++) {
    int iColumn = (int)(i % pTable->nColumn);
    if (i > 0 && iColumn == 0) sqlite3_str_appendall(p->pOut, ",");
    jsonValue(p->pOut, azName[iColumn], pTable->azCell[i],
        pTable->aColumn[iColumn].eType);
    if (iColumn == pTable->nColumn - 1) sqlite3_str_appendall(p->pOut, "}");
  }
  sqlite3_str_appendall(p->pOut, "]");
}

static void jsonTable(const ReportRun *p, const ReportTable *pTable) {
  int i;
  i64 iCell;
  jsonText(p->pOut, "{\"id\":", pTable->zId);
  jsonText(p->pOut, ",\"title\":", pTable->zTitle);
  for (i = 0; i < pTable->nColumn; i++) {
    jsonText(p->pOut, i ? "," : ",\"columns\":[", pTable->aColumn[i].zName);
  }
  for (i = 0; i < pTable->nColumn; i++) {
    jsonText(p->pOut, i ? "," : "],\"types\":[",
        bxReportTypeName(pTable->aColumn[i].eType));
  }
  sqlite3_str_appendf(p->pOut, "],\"leftOut\":%lld,\"rows\":[", pTable->nLeft);
  for (iCell = 0; iCell < pTable->nCell; iCell++) {
    i = (int)(iCell % pTable->nColumn);
    jsonValue(p->pOut,
        i       ? ","
        : iCell ? "],["
                : "[",
        pTable->azCell[iCell], pTable->aColumn[i].eType);
  }
  sqlite3_str_appendall(p->pOut, pTable->nCell ? "]]}" : "]}");
}

static void jsonMasked(const ReportRun *p) {
  const char *zName;
  i64 n;
  int i, bAny = 0;
  sqlite3_str_appendall(p->pOut, ",\n\"masked\":[");
  for (i = 0; (zName = bxMaskCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    jsonText(p->pOut, bAny ? ",{\"name\":" : "{\"name\":", zName);
    sqlite3_str_appendf(p->pOut, ",\"count\":%lld}", n);
    bAny = 1;
  }
  sqlite3_str_appendall(p->pOut, "]");
}

void bxReportJsonHead(ReportRun *p) {
  int i;
  sqlite3_str_appendf(p->pOut,
      "{\"format\":\"blackbox.report\",\"version\":%d,\"module\":\"%s\","
      "\"kind\":\"%s\"",
      REPORT_VERSION, BLACKBOX_VERSION, p->pKind->zName);
  jsonText(p->pOut, ",\"key\":", p->zShown);
  jsonText(p->pOut, ",\"title\":", p->zTitle);
  sqlite3_str_appendf(p->pOut, ",\"made\":%lld", p->iMade);
  jsonFacts(p);
  jsonVerdict(p);
  jsonUsage(p);
  jsonPins(p);
  sqlite3_str_appendall(p->pOut, ",\n\"tables\":[");
  for (i = 0; i < p->nTable; i++) {
    if (i > 0) sqlite3_str_appendall(p->pOut, ",\n");
    jsonTable(p, &p->aTable[i]);
  }
  jsonText(p->pOut, "],\n\"proof\":{\"state\":", p->zProof);
  jsonText(p->pOut, ",\"head\":", p->zHead);
  sqlite3_str_appendall(p->pOut, "}");
  jsonMasked(p);
  sqlite3_str_appendf(p->pOut,
      ",\n\"leftOut\":{\"items\":%lld,\"bodies\":%lld,\"bytes\":%lld},\n"
      "\"items\":[\n",
      p->nLeftItems, p->nLeftBodies, p->nLeftBytes);
}

void bxReportJsonTail(ReportRun *p) {
  sqlite3_str_appendall(p->pOut, "]}");
}

/*----------------------------------------------------------------- items --*/

static void jsonPieces(const ReportRun *p, const ReportPart *pPart) {
  i64 i;
  sqlite3_str_appendall(p->pOut, ",\"pieces\":[");
  for (i = 0; i < pPart->nPiece; i++) {
    const ReportPiece *pPiece = &p->aPiece[pPart->iPiece + i];
    sqlite3_str_appendf(p->pOut, "%s[%d,%lld,%lld]", i ? "," : "",
        pPiece->iBlock, pPiece->iAt, pPiece->n);
  }
  sqlite3_str_appendf(p->pOut, "],\"new\":%lld}", pPart->iNew);
}

/* The text of a part; of shared ones, what is new. */
static void jsonContent(
    const ReportRun *p, const ReportPart *pPart, const char *z) {
  i64 iFrom = p->opt.eBodies == REPORT_SHARED ? pPart->nHead : 0;
  i64 n = pPart->nByte - iFrom;
  sqlite3_str_appendf(p->pOut, ",\"from\":%lld", iFrom);
  if (bxIsUtf8((const unsigned char *)z + iFrom, (int)n)) {
    sqlite3_str_appendall(p->pOut, ",\"text\":");
    bxReportJson(p->pOut, z + iFrom, n);
  } else {
    sqlite3_str_appendall(p->pOut, ",\"base64\":\"");
    bxReportBase64(p->pOut, (const unsigned char *)z + iFrom, n);
    sqlite3_str_appendall(p->pOut, "\"");
  }
  sqlite3_str_appendall(p->pOut, "}");
}

static void jsonParts(ReportRun *p, ReportItem *pItem, int bText) {
  ReportBodiesOf bodies;
  int bHas = pItem->bBodies && p->opt.eBodies != REPORT_NONE, i;
  memset(&bodies, 0, sizeof(bodies));
  if (bText && bHas && pItem->nPart > 0) bxReportReadAgain(p, pItem, &bodies);
  sqlite3_str_appendall(p->pOut, ",\"parts\":[");
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    const ReportPart *pPart = &pItem->aPart[i];
    jsonText(p->pOut, i ? ",{\"role\":" : "{\"role\":", pPart->zRole);
    jsonText(p->pOut, ",\"type\":", pPart->zType);
    sqlite3_str_appendf(p->pOut, ",\"size\":%lld", pPart->nByte);
    if (!bHas) {
      sqlite3_str_appendall(p->pOut, bText ? "}" : ",\"pieces\":[],\"new\":0}");
    } else if (bText) {
      jsonContent(p, pPart, bodies.az[i]);
    } else {
      jsonPieces(p, pPart);
    }
  }
  sqlite3_str_appendall(p->pOut, "]");
  bxReportFreeBodies(&bodies);
}

void bxReportJsonItem(ReportRun *p, i64 iItem, int bText) {
  ReportItem *pItem = &p->aItem[iItem];
  sqlite3_str_appendf(p->pOut, "%s{\"n\":%lld,\"kind\":\"%s\"",
      iItem ? ",\n" : "", iItem + 1, pItem->zKind);
  jsonKnown(p->pOut, ",\"id\":", pItem->zId);
  jsonNumber(p->pOut, ",\"time\":", pItem->iTime);
  jsonText(p->pOut, ",\"title\":", pItem->zTitle ? pItem->zTitle : "");
  jsonKnown(p->pOut, ",\"type\":", pItem->zType);
  jsonKnown(p->pOut, ",\"model\":", pItem->zModel);
  jsonKnown(p->pOut, ",\"status\":", pItem->zStatus);
  jsonNumber(p->pOut, ",\"size\":", pItem->nSize);
  if (pItem->nInput >= 0) {
    sqlite3_str_appendf(p->pOut, ",\"tokens\":{\"input\":%lld,\"output\":%lld}",
        pItem->nInput, pItem->nOutput);
  }
  jsonNumber(p->pOut, ",\"turn\":", pItem->iTurn);
  jsonKnown(p->pOut, ",\"mark\":", pItem->zMark);
  if (pItem->iRepeat > 0) jsonNumber(p->pOut, ",\"repeat\":", pItem->iRepeat);
  if (pItem->bVerdict) sqlite3_str_appendall(p->pOut, ",\"verdict\":true");
  if (pItem->zLeaf != 0) {
    sqlite3_str_appendf(p->pOut, ",\"leaf\":%s", pItem->zLeaf);
  }
  jsonParts(p, pItem, bText);
  sqlite3_str_appendall(p->pOut, "}");
}

int bxReportJsonText(ReportRun *p) {
  if (p->iNext < 0) return 0;
  if (p->iNext == 0) bxReportJsonHead(p);
  if (p->iNext < p->nItem) bxReportJsonItem(p, p->iNext, 1);
  if (++p->iNext >= p->nItem) {
    sqlite3_str_appendall(p->pOut, "\n");
    bxReportJsonTail(p);
    p->iNext = -1;
  }
  return 1;
}
