/*
** markdown.c: the report as Markdown, for a pull request or an issue. It has no
** bodies.
**
** A value is escaped, so that it cannot become markup, a link or a mention of a
** person. Sites refuse long texts, so that there are at most MD_ROWS rows in each
** table.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define MD_ROWS 50
#define MD_CHARS 200 /* of a value */

/* Appends a text on one line, with every character escaped that means something.
** (An entity stands for @ and the dot of links, as no backslash does.) */
static void mdText(sqlite3_str *pOut, const char *z) {
  int n = 0;
  for (; *z && n < MD_CHARS; z++) {
    unsigned char c = (unsigned char)*z;
    n += (c & 0xc0) != 0x80;
    if (strchr("\n\r\t", c) != 0) {
      sqlite3_str_appendchar(pOut, 1, ' ');
    } else if (strchr("&<>@:#\"'|", c) != 0) {
      sqlite3_str_appendf(pOut, "&#%d;", c);
    } else if (strchr("\\`*_{}[]()+-.!~=$^", c) != 0) {
      sqlite3_str_appendf(pOut, "\\%c", c);
    } else {
      sqlite3_str_append(pOut, z, 1);
    }
  }
  while ((*z & 0xc0) == 0x80) sqlite3_str_append(pOut, z++, 1);
  if (*z) sqlite3_str_appendall(pOut, " ...");
}

static void mdValue(sqlite3_str *pOut, const char *z, ReportType eType) {
  char *zEnd = 0;
  i64 i = z ? (i64)strtoll(z, &zEnd, 10) : 0;
  if (z == 0) return;
  if (*z == 0 || *zEnd != 0) eType = REPORT_TEXT;
  switch (eType) {
    case REPORT_TIME: bxReportTime(pOut, i, 0); break;
    case REPORT_BYTES: bxReportSize(pOut, i); break;
    case REPORT_COUNT: sqlite3_str_appendf(pOut, "%,lld", i); break;
    case REPORT_DURATION: bxReportDuration(pOut, i); break;
    default: mdText(pOut, z);
  }
}

static void mdHeads(sqlite3_str *pOut, const ReportColumn *aColumn) {
  const ReportColumn *pColumn;
  for (pColumn = aColumn; pColumn->zName != 0; pColumn++) {
    sqlite3_str_appendf(pOut, "| %s ", pColumn->zName);
  }
  sqlite3_str_appendall(pOut, "|\n");
  for (pColumn = aColumn; pColumn->zName != 0; pColumn++) {
    sqlite3_str_appendall(
        pOut, pColumn->eType >= REPORT_BYTES ? "|---:" : "|---");
  }
  sqlite3_str_appendall(pOut, "|\n");
}

static void mdMore(sqlite3_str *pOut, i64 n) {
  if (n > 0) sqlite3_str_appendf(pOut, "\nAnd %,lld more.\n", n);
}

static void mdTable(sqlite3_str *pOut, const ReportTable *pTable) {
  i64 i, nRow;
  if (pTable->nCell == 0) return;
  nRow = pTable->nCell / pTable->nColumn;
  sqlite3_str_appendf(pOut, "\n## %s\n\n", pTable->zTitle);
  mdHeads(pOut, pTable->aColumn);
  for (i = 0; i < pTable->nCell && i < MD_ROWS * (i64)pTable->nColumn; i++) {
    int iColumn = (int)(i % pTable->nColumn);
    sqlite3_str_appendall(pOut, "| ");
    mdValue(pOut, pTable->azCell[i], pTable->aColumn[iColumn].eType);
    sqlite3_str_appendall(pOut, iColumn == pTable->nColumn - 1 ? " |\n" : " ");
  }
  mdMore(pOut, pTable->nLeft + (nRow > MD_ROWS ? nRow - MD_ROWS : 0));
}

static void mdFacts(const ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  i64 i;
  sqlite3_str_appendall(p->pOut, "# ");
  mdText(p->pOut, p->zTitle);
  sqlite3_str_appendall(p->pOut, "\n\n| | |\n|---|---|\n");
  for (i = 0; i < p->nFact; i++) {
    sqlite3_str_appendf(p->pOut, "| %s | ", p->aFact[i].zName);
    mdValue(p->pOut, p->aFact[i].zValue, p->aFact[i].eType);
    sqlite3_str_appendall(p->pOut, " |\n");
  }
  if (pUsage->bAny) {
    sqlite3_str_appendf(p->pOut,
        "| Tokens | %,lld input, %,lld from the cache, %,lld into it, %,lld "
        "output%s |\n",
        pUsage->nInput, pUsage->nCacheRead, pUsage->nCacheWrite,
        pUsage->nOutput, pUsage->bRecorded ? ", as recorded" : "");
  }
  if (pUsage->bCost) {
    sqlite3_str_appendf(
        p->pOut, "| Cost | %.4f (%s) |\n", pUsage->rCost, pUsage->zSource);
  }
}

static void mdVerdict(const ReportRun *p) {
  const ReportVerdict *pVerdict = &p->verdict;
  if (!pVerdict->bAny) return;
  sqlite3_str_appendall(p->pOut, "\n## Why it stopped\n\n");
  mdText(p->pOut, pVerdict->zReason ? pVerdict->zReason : "");
  sqlite3_str_appendall(p->pOut, "\n\nRule ");
  mdText(p->pOut, pVerdict->zRule ? pVerdict->zRule : "");
  sqlite3_str_appendall(p->pOut, ", level ");
  mdText(p->pOut, pVerdict->zLevel ? pVerdict->zLevel : "");
  sqlite3_str_appendall(p->pOut, ": ");
  mdValue(p->pOut, pVerdict->zCount, REPORT_COUNT);
  sqlite3_str_appendall(p->pOut, " of ");
  mdValue(p->pOut, pVerdict->zThreshold, REPORT_COUNT);
  sqlite3_str_appendall(p->pOut, ".\n");
}

static const ReportColumn aMdItem[] = {{"No.", REPORT_COUNT},
    {"Time", REPORT_TIME}, {"What", REPORT_TEXT}, {"Model", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {"Size", REPORT_BYTES}, {0, REPORT_TEXT}};

static void mdItem(const ReportRun *p, i64 i) {
  const ReportItem *pItem = &p->aItem[i];
  sqlite3_str_appendf(
      p->pOut, "| %s%lld | ", pItem->bVerdict ? "**verdict** " : "", i + 1);
  if (pItem->iTime >= 0) bxReportTime(p->pOut, pItem->iTime, 0);
  sqlite3_str_appendall(p->pOut, " | ");
  mdValue(p->pOut, pItem->zTitle, REPORT_TEXT);
  sqlite3_str_appendall(p->pOut, " | ");
  mdValue(p->pOut, pItem->zModel, REPORT_TEXT);
  sqlite3_str_appendall(p->pOut, " | ");
  mdValue(p->pOut, pItem->zStatus, REPORT_TEXT);
  sqlite3_str_appendall(p->pOut, " | ");
  if (pItem->nSize >= 0) bxReportSize(p->pOut, pItem->nSize);
  sqlite3_str_appendall(p->pOut, " |\n");
}

/* The newest items, and those that the verdict names. */
static void mdItems(const ReportRun *p) {
  i64 i, nLeft = 0;
  if (p->nItem == 0) return;
  sqlite3_str_appendf(
      p->pOut, "\n## %s (%,lld)\n\n", p->pKind->zItems, p->nItem);
  mdHeads(p->pOut, aMdItem);
  for (i = 0; i < p->nItem; i++) {
    if (i < p->nItem - MD_ROWS && !p->aItem[i].bVerdict) {
      nLeft++;
    } else {
      mdItem(p, i);
    }
  }
  mdMore(p->pOut, nLeft);
}

static void mdEnd(const ReportRun *p) {
  const char *zName;
  i64 n;
  int i, bAny = 0;
  sqlite3_str_appendall(p->pOut, "\n## Proof\n\n");
  if (p->zHead != 0) {
    sqlite3_str_appendall(p->pOut, "```text\n");
    sqlite3_str_appendall(p->pOut, p->zHead);
    sqlite3_str_appendall(p->pOut, "```\n");
  } else {
    sqlite3_str_appendall(p->pOut, "Not in a proof.\n");
  }
  for (i = 0; (zName = bxMaskCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    sqlite3_str_appendall(p->pOut, bAny ? ", " : "\n## Masked\n\n");
    mdText(p->pOut, zName);
    sqlite3_str_appendf(p->pOut, " (%,lld)", n);
    bAny = 1;
  }
  if (bAny) sqlite3_str_appendall(p->pOut, "\n");
  if (p->nLeftItems > 0) {
    sqlite3_str_appendf(p->pOut,
        "\n## Left out\n\nThe bounds of this report leave out %,lld older "
        "items.\n",
        p->nLeftItems);
  }
}

int bxReportMarkdown(ReportRun *p) {
  int i;
  if (p->iNext < 0) return 0;
  mdFacts(p);
  mdVerdict(p);
  mdTable(p->pOut, &p->pins);
  mdItems(p);
  for (i = 0; i < p->nTable; i++) mdTable(p->pOut, &p->aTable[i]);
  mdEnd(p);
  p->iNext = -1;
  return 1;
}
