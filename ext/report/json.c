/*
** json.c: the report as JSON, which docs/report.md describes. It stands in the page,
** too: there the parts of items name pieces of blocks, and here they have their
** text.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

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
    bxReportPut(p->pOut, "%s%x",
        i       ? ","
        : iCell ? "],["
                : "[",
        pTable->azCell[iCell], pTable->aColumn[i].eType);
  }
  bxReportPut(p->pOut, pTable->nCell ? "]]}" : "]}");
}

/* Rows as objects: the names of the columns in small letters. zLast ends each. */
static void jsonObjects(
    sqlite3_str *pOut, const ReportTable *pTable, const char *zLast) {
  int k, n = pTable->nColumn;
  i64 i;
  for (i = 0; i < pTable->nCell; i++) {
    const ReportColumn *pColumn = &pTable->aColumn[k = (int)(i % n)];
    bxReportPut(pOut, "%s\"%s\":%x%s",
        k   ? ","
        : i ? ",{"
            : "{",
        pColumn->zSmall, pTable->azCell[i], pColumn->eType,
        k == n - 1 ? zLast : "");
  }
}

static void jsonVerdict(const ReportRun *p) {
  const char *zBefore = "";
  i64 i;
  bxReportPut(p->pOut, ",\n\"verdict\":%s", p->verdict.nCell ? "" : "null");
  jsonObjects(p->pOut, &p->verdict, ",\"items\":[");
  for (i = 0; i < p->nItem && p->verdict.nCell > 0; i++) {
    if (!p->aItem[i].bVerdict) continue;
    bxReportPut(p->pOut, "%s%i", zBefore, i + 1);
    zBefore = ",";
  }
  if (p->verdict.nCell > 0) bxReportPut(p->pOut, "]}");
}

static void jsonUsage(ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  const i64 *an = pUsage->an;
  const char *zPaid =
      pUsage->bCost ? bxReportPrintf(p, "%!.6f", pUsage->rCost) : "null";
  if (!pUsage->bAny) {
    bxReportPut(p->pOut, ",\n\"usage\":null");
    return;
  }
  bxReportPut(p->pOut,
      ",\n\"usage\":{\"input\":%i,\"cacheRead\":%i,\"cacheWrite\":%i,"
      "\"output\":%i,\"reasoning\":%i,\"outputSource\":%j,\"cost\":%s,"
      "\"costSource\":%j}",
      an[USAGE_INPUT], an[USAGE_READ], an[USAGE_WRITE], an[USAGE_OUTPUT],
      an[USAGE_REASONING], pUsage->bRecorded ? "as recorded" : 0, zPaid,
      pUsage->zSource);
}

void bxReportJsonHead(ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  i64 n;
  int i;
  bxReportPut(pOut,
      "{\"format\":\"blackbox.report\",\"version\":%i,\"module\":\"%s\","
      "\"kind\":\"%s\",\"key\":%j,\"title\":%j,\"made\":%i,\n\"facts\":[",
      (i64)REPORT_VERSION, BLACKBOX_VERSION, p->pKind->zName, p->zShown,
      p->zTitle, p->iMade);
  for (n = 0; n < p->nFact; n++) {
    const ReportFact *pFact = &p->aFact[n];
    bxReportPut(pOut, "%s{\"name\":%j,\"value\":%x,\"type\":\"%s\"}",
        n ? "," : "", pFact->zName, pFact->zValue, pFact->eType,
        bxReportTypeName(pFact->eType));
  }
  bxReportPut(pOut, "]");
  jsonVerdict(p);
  jsonUsage(p);
  bxReportPut(pOut, ",\n\"pins\":[");
  jsonObjects(pOut, &p->pins, "}");
  bxReportPut(pOut, "],\n\"tables\":[");
  for (i = 0; i < p->nTable; i++) {
    if (i > 0) bxReportPut(pOut, ",\n");
    jsonTable(p, &p->aTable[i]);
  }
  bxReportPut(pOut,
      "],\n\"proof\":{\"state\":%j,\"head\":%j,\"bundle\":%j},\n\"masked\":[",
      p->zProof, p->zHead, p->zHead ? p->zBundle : 0);
  jsonObjects(pOut, &p->masked, "}");
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
  const char *zError = pItem->bError ? "error" : 0;
  bxReportPut(p->pOut, "%s{\"n\":%i,\"kind\":\"%s\"%k%K%k%k%k%k%K",
      iItem ? ",\n" : "", iItem + 1, pItem->zKind, "id", pItem->zId, "time",
      pItem->iTime, "title", pItem->zTitle ? pItem->zTitle : "", "type",
      pItem->zType, "model", pItem->zModel, "status", pItem->zStatus, "size",
      pItem->nSize);
  if (pItem->nInput >= 0) {
    bxReportPut(p->pOut, ",\"tokens\":{\"input\":%i,\"output\":%i}",
        pItem->nInput, pItem->nOutput);
  }
  bxReportPut(p->pOut, "%K%k%k%k%k%s%s%K%K%K%s", "turn", pItem->iTurn, "mark",
      pItem->zMark, "error", pItem->zError ? pItem->zError : zError, "role",
      pItem->zRole, "said", pItem->bVerdict || pItem->bError ? pItem->zSaid : 0,
      pItem->bQuiet ? ",\"quiet\":true" : "",
      pItem->bAsked ? ",\"asked\":true" : "", "other",
      pItem->iOther > 0 ? pItem->iOther : -1, "duration", pItem->nDuration,
      "repeat", pItem->iRepeat > 0 ? (i64)pItem->iRepeat : -1,
      pItem->bVerdict ? ",\"verdict\":true" : "");
  if (pItem->zLeaf != 0) bxReportPut(p->pOut, ",\"leaf\":%s", pItem->zLeaf);
  jsonParts(p, pItem, bText);
  bxReportPut(p->pOut, "}");
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
