/*
** json.c: the report as JSON, which docs/report.md describes. It stands in the page,
** too: there the parts of items name pieces of blocks, and here they have their
** text.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/* A member that is omitted if there is no text. */
static void jsonKnown(sqlite3_str *pOut, const char *zBefore, const char *z) {
  if (z != 0) bxReportPut(pOut, "%s%j", zBefore, z);
}

/* The same for a number that is not negative. */
static void jsonNumber(sqlite3_str *pOut, const char *zBefore, i64 i) {
  if (i >= 0) bxReportPut(pOut, "%s%i", zBefore, i);
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
  int bNumber = z != 0 && eType >= REPORT_TIME && isJsonNumber(z);
  bxReportPut(pOut, bNumber ? "%s%s" : "%s%j", zBefore, z);
}

static void jsonTable(const ReportRun *p, const ReportTable *pTable) {
  int i;
  i64 iCell;
  bxReportPut(p->pOut, "{\"id\":%j,\"title\":%j", pTable->zId, pTable->zTitle);
  for (i = 0; i < pTable->nColumn; i++) {
    bxReportPut(
        p->pOut, "%s%j", i ? "," : ",\"columns\":[", pTable->aColumn[i].zName);
  }
  for (i = 0; i < pTable->nColumn; i++) {
    bxReportPut(p->pOut, "%s%j", i ? "," : "],\"types\":[",
        bxReportTypeName(pTable->aColumn[i].eType));
  }
  bxReportPut(p->pOut, "],\"leftOut\":%i,\"rows\":[", pTable->nLeft);
  for (iCell = 0; iCell < pTable->nCell; iCell++) {
    i = (int)(iCell % pTable->nColumn);
    jsonValue(p->pOut,
        i       ? ","
        : iCell ? "],["
                : "[",
        pTable->azCell[iCell], pTable->aColumn[i].eType);
  }
  bxReportPut(p->pOut, pTable->nCell ? "]]}" : "]}");
}

static void jsonVerdict(const ReportRun *p) {
  char *const *az = p->verdict.az;
  int bAny = 0;
  i64 i;
  if (!p->verdict.bAny) {
    bxReportPut(p->pOut, ",\n\"verdict\":null");
    return;
  }
  bxReportPut(p->pOut, ",\n\"verdict\":{\"rule\":%j,\"level\":%j",
      az[VERDICT_RULE], az[VERDICT_LEVEL]);
  jsonValue(p->pOut, ",\"count\":", az[VERDICT_COUNT], REPORT_COUNT);
  jsonValue(p->pOut, ",\"threshold\":", az[VERDICT_THRESHOLD], REPORT_COUNT);
  bxReportPut(p->pOut, ",\"tool\":%j", az[VERDICT_TOOL]);
  jsonValue(p->pOut, ",\"turn\":", az[VERDICT_TURN], REPORT_COUNT);
  bxReportPut(p->pOut, ",\"reason\":%j,\"action\":%j,\"items\":[",
      az[VERDICT_REASON], az[VERDICT_ACTION]);
  for (i = 0; i < p->nItem; i++) {
    if (!p->aItem[i].bVerdict) continue;
    bxReportPut(p->pOut, "%s%i", bAny ? "," : "", i + 1);
    bAny = 1;
  }
  bxReportPut(p->pOut, "]}");
}

void bxReportJsonHead(ReportRun *p) {
  /* Pins are objects, whose members are the columns in small letters. */
  static const char *const azPin[] = {"{\"time\":", ",\"what\":", ",\"actor\":",
      ",\"reason\":", ",\"status\":"};
  const ReportTable *pPins = &p->pins;
  const ReportUsage *pUsage = &p->usage;
  sqlite3_str *pOut = p->pOut;
  const char *zName;
  i64 n;
  int i, bAny = 0;
  bxReportPut(pOut,
      "{\"format\":\"blackbox.report\",\"version\":%i,\"module\":\"%s\","
      "\"kind\":\"%s\",\"key\":%j,\"title\":%j,\"made\":%i,\n\"facts\":[",
      (i64)REPORT_VERSION, BLACKBOX_VERSION, p->pKind->zName, p->zShown,
      p->zTitle, p->iMade);
  for (n = 0; n < p->nFact; n++) {
    const ReportFact *pFact = &p->aFact[n];
    bxReportPut(pOut, "%s{\"name\":%j", n ? "," : "", pFact->zName);
    jsonValue(pOut, ",\"value\":", pFact->zValue, pFact->eType);
    bxReportPut(pOut, ",\"type\":\"%s\"}", bxReportTypeName(pFact->eType));
  }
  bxReportPut(pOut, "]");
  jsonVerdict(p);
  if (pUsage->bAny) {
    bxReportPut(pOut,
        ",\n\"usage\":{\"input\":%i,\"cacheRead\":%i,\"cacheWrite\":%i,"
        "\"output\":%i,\"reasoning\":%i,\"outputSource\":%s",
        pUsage->nInput, pUsage->nCacheRead, pUsage->nCacheWrite,
        pUsage->nOutput, pUsage->nReasoning,
        pUsage->bRecorded ? "\"as recorded\"" : "null");
    if (pUsage->bCost) {
      sqlite3_str_appendf(pOut, ",\"cost\":%!.6f", pUsage->rCost);
    }
    bxReportPut(pOut, "%s,\"costSource\":%j}",
        pUsage->bCost ? "" : ",\"cost\":null",
        pUsage->bCost ? pUsage->zSource : 0);
  }
  bxReportPut(pOut, "%s,\n\"pins\":[", pUsage->bAny ? "" : ",\n\"usage\":null");
  for (n = 0; n < pPins->nCell; n++) {
    i = (int)(n % pPins->nColumn);
    if (n > 0 && i == 0) bxReportPut(pOut, ",");
    jsonValue(pOut, azPin[i], pPins->azCell[n], pPins->aColumn[i].eType);
    if (i == pPins->nColumn - 1) bxReportPut(pOut, "}");
  }
  bxReportPut(pOut, "],\n\"tables\":[");
  for (i = 0; i < p->nTable; i++) {
    if (i > 0) bxReportPut(pOut, ",\n");
    jsonTable(p, &p->aTable[i]);
  }
  bxReportPut(pOut,
      "],\n\"proof\":{\"state\":%j,\"head\":%j,\"bundle\":%j},\n\"masked\":[",
      p->zProof, p->zHead, p->zHead ? p->zBundle : 0);
  for (i = 0; (zName = bxMaskCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    bxReportPut(
        pOut, "%s{\"name\":%j,\"count\":%i}", bAny ? "," : "", zName, n);
    bAny = 1;
  }
  bxReportPut(pOut,
      "],\n\"leftOut\":{\"items\":%i,\"bodies\":%i,\"bytes\":%i},\n"
      "\"items\":[\n",
      p->nLeftItems, p->nLeftBodies, p->nLeftBytes);
}

/* The parts: their pieces or, with bText, their texts; of shared ones what is new. */
static void jsonParts(ReportRun *p, ReportItem *pItem, int bText) {
  ReportBodiesOf bodies;
  sqlite3_str *pOut = p->pOut;
  int bHas = pItem->bBodies && p->opt.eBodies != REPORT_NONE, i;
  i64 k;
  memset(&bodies, 0, sizeof(bodies));
  if (bText && bHas && pItem->nPart > 0) bxReportReadAgain(p, pItem, &bodies);
  bxReportPut(pOut, ",\"parts\":[");
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    const ReportPart *pPart = &pItem->aPart[i];
    bxReportPut(pOut, "%s{\"role\":%j,\"type\":%j,\"size\":%i", i ? "," : "",
        pPart->zRole, pPart->zType, pPart->nByte);
    if (!bHas) {
      bxReportPut(pOut, bText ? "}" : ",\"pieces\":[],\"new\":0}");
    } else if (bText) {
      i64 iFrom = p->opt.eBodies == REPORT_SHARED ? pPart->nHead : 0;
      i64 n = pPart->nByte - iFrom;
      const char *z = bodies.az[i] + iFrom;
      bxReportPut(pOut, ",\"from\":%i", iFrom);
      if (bxIsUtf8((const unsigned char *)z, (int)n)) {
        bxReportPut(pOut, ",\"text\":");
        bxReportJson(pOut, z, n);
      } else {
        bxReportPut(pOut, ",\"base64\":\"");
        bxReportBase64(pOut, (const unsigned char *)z, n);
        bxReportPut(pOut, "\"");
      }
      bxReportPut(pOut, "}");
    } else {
      bxReportPut(pOut, ",\"pieces\":[");
      for (k = 0; k < pPart->nPiece; k++) {
        const ReportPiece *pPiece = &p->aPiece[pPart->iPiece + k];
        sqlite3_str_appendf(pOut, "%s[%d,%lld,%lld]", k ? "," : "",
            pPiece->iBlock, pPiece->iAt, pPiece->n);
      }
      bxReportPut(pOut, "],\"new\":%i}", pPart->iNew);
    }
  }
  bxReportPut(pOut, "]");
  bxReportFreeBodies(&bodies);
}

void bxReportJsonItem(ReportRun *p, i64 iItem, int bText) {
  ReportItem *pItem = &p->aItem[iItem];
  sqlite3_str *pOut = p->pOut;
  bxReportPut(pOut, "%s{\"n\":%i,\"kind\":\"%s\"", iItem ? ",\n" : "",
      iItem + 1, pItem->zKind);
  jsonKnown(pOut, ",\"id\":", pItem->zId);
  jsonNumber(pOut, ",\"time\":", pItem->iTime);
  jsonKnown(pOut, ",\"title\":", pItem->zTitle ? pItem->zTitle : "");
  jsonKnown(pOut, ",\"type\":", pItem->zType);
  jsonKnown(pOut, ",\"model\":", pItem->zModel);
  jsonKnown(pOut, ",\"status\":", pItem->zStatus);
  jsonNumber(pOut, ",\"size\":", pItem->nSize);
  if (pItem->nInput >= 0) {
    bxReportPut(pOut, ",\"tokens\":{\"input\":%i,\"output\":%i}", pItem->nInput,
        pItem->nOutput);
  }
  jsonNumber(pOut, ",\"turn\":", pItem->iTurn);
  jsonKnown(pOut, ",\"mark\":", pItem->zMark);
  if (pItem->iRepeat > 0) jsonNumber(pOut, ",\"repeat\":", pItem->iRepeat);
  if (pItem->bVerdict) bxReportPut(pOut, ",\"verdict\":true");
  if (pItem->zLeaf != 0) bxReportPut(pOut, ",\"leaf\":%s", pItem->zLeaf);
  jsonParts(p, pItem, bText);
  bxReportPut(pOut, "}");
}

int bxReportJsonText(ReportRun *p) {
  if (p->iNext < 0) return 0;
  if (p->iNext == 0) bxReportJsonHead(p);
  if (p->iNext < p->nItem) bxReportJsonItem(p, p->iNext, 1);
  if (++p->iNext >= p->nItem) {
    bxReportPut(p->pOut, "\n]}");
    p->iNext = -1;
  }
  return 1;
}
