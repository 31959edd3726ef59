/*
** json.c: the report as JSON, which docs/report.md describes. It stands in the page,
** too: there the parts of items name pieces of blocks, and here they have their
** text.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* A member that is omitted if there is no text. */
static void jsonKnown(sqlite3_str *pOut, const char *zBefore, const char *z) {
  if (z != 0) bxReportPut(pOut, "%s%j", zBefore, z);
}

/* The same for a number that is not negative. */
static void jsonNumber(sqlite3_str *pOut, const char *zBefore, i64 i) {
  if (i >= 0) bxReportPut(pOut, "%s%i", zBefore, i);
}

static void jsonTable(const ReportRun *p, const ReportTable *pTable) {
  int i;
  i64 iCell;
  assert(pTable->nColumn >= 0 && pTable->nCell >= 0);
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

static void jsonVerdict(const ReportRun *p) {
  int bAny = 0;
  i64 i;
  if (!p->verdict.bAny) {
    bxReportPut(p->pOut, ",\n\"verdict\":null");
    return;
  }
  for (i = 0; i < VERDICT_TEXTS; i++) {
    bxReportPut(p->pOut, "%s\"%s\":%x", i ? "," : ",\n\"verdict\":{",
        bxReportVerdict[i].zName, p->verdict.az[i], bxReportVerdict[i].eType);
  }
  bxReportPut(p->pOut, ",\"items\":[");
  for (i = 0; i < p->nItem; i++) {
    if (!p->aItem[i].bVerdict) continue;
    bxReportPut(p->pOut, "%s%i", bAny ? "," : "", i + 1);
    bAny = 1;
  }
  bxReportPut(p->pOut, "]}");
}

static void jsonUsage(const ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  sqlite3_str *pOut = p->pOut;
  int i;
  if (!pUsage->bAny) {
    bxReportPut(pOut, ",\n\"usage\":null");
    return;
  }
  for (i = 0; i < USAGE_NUMBERS; i++) {
    bxReportPut(pOut, "%s\"%s\":%i", i ? "," : ",\n\"usage\":{",
        bxReportUsage[i].zName, pUsage->an[i]);
  }
  bxReportPut(
      pOut, ",\"outputSource\":%j", pUsage->bRecorded ? "as recorded" : 0);
  if (pUsage->bCost)
    sqlite3_str_appendf(pOut, ",\"cost\":%!.6f", pUsage->rCost);
  bxReportPut(pOut, "%s,\"costSource\":%j}",
      pUsage->bCost ? "" : ",\"cost\":null", pUsage->zSource);
}

void bxReportJsonHead(ReportRun *p) {
  /* Pins are objects, whose members are the columns in small letters. */
  static const char *const azPin[] = {
      "time", "what", "actor", "reason", "status"};
  const ReportTable *pPins = &p->pins;
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
    bxReportPut(pOut, "%s{\"name\":%j,\"value\":%x,\"type\":\"%s\"}",
        n ? "," : "", pFact->zName, pFact->zValue, pFact->eType,
        bxReportTypeName(pFact->eType));
  }
  bxReportPut(pOut, "]");
  jsonVerdict(p);
  jsonUsage(p);
  bxReportPut(pOut, ",\n\"pins\":[");
  for (n = 0; n < pPins->nCell; n++) {
    i = (int)(n % pPins->nColumn);
    bxReportPut(pOut, "%s\"%s\":%x%s",
        i   ? ","
        : n ? ",{"
            : "{",
        azPin[i], pPins->azCell[n], pPins->aColumn[i].eType,
        i == pPins->nColumn - 1 ? "}" : "");
  }
  bxReportPut(pOut, "],\n\"tables\":[");
  for (i = 0; i < p->nTable; i++) {
    if (i > 0) bxReportPut(pOut, ",\n");
    jsonTable(p, &p->aTable[i]);
  }
  bxReportPut(pOut,
      "],\n\"proof\":{\"state\":%j,\"head\":%j,\"bundle\":%j},\n\"masked\":[",
      p->zProof, p->zHead, p->zHead ? p->zBundle : 0);
  for (i = 0; (zName = bxSecretsCount(&p->masks, i, &n)) != 0; i++) {
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
  assert(pItem->nPart >= 0 && pItem->nPart <= REPORT_PARTS);
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
  assert(iItem >= 0 && iItem < p->nItem);
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
  jsonKnown(pOut,
      ",\"error\":", pItem->zError || !pItem->bError ? pItem->zError : "error");
  jsonKnown(pOut, ",\"role\":", pItem->zRole);
  if (pItem->bVerdict || pItem->bError)
    jsonKnown(pOut, ",\"said\":", pItem->zSaid);
  if (pItem->bQuiet) bxReportPut(pOut, ",\"quiet\":true");
  if (pItem->bAsked) bxReportPut(pOut, ",\"asked\":true");
  if (pItem->iOther > 0) jsonNumber(pOut, ",\"other\":", pItem->iOther);
  jsonNumber(pOut, ",\"duration\":", pItem->nDuration);
  if (pItem->iRepeat > 0) jsonNumber(pOut, ",\"repeat\":", pItem->iRepeat);
  if (pItem->bVerdict) bxReportPut(pOut, ",\"verdict\":true");
  if (pItem->zLeaf != 0) bxReportPut(pOut, ",\"leaf\":%s", pItem->zLeaf);
  jsonParts(p, pItem, bText);
  bxReportPut(pOut, "}");
}

int bxReportJsonText(ReportRun *p) {
  assert(p->iNext <= p->nItem);
  if (p->iNext < 0) return 0;
  if (p->iNext == 0) bxReportJsonHead(p);
  if (p->iNext < p->nItem) bxReportJsonItem(p, p->iNext, 1);
  if (++p->iNext >= p->nItem) {
    bxReportPut(p->pOut, "\n]}");
    p->iNext = -1;
  }
  return 1;
}
