/*
** markdown.c: the report as Markdown, for a pull request or an issue. It has no
** bodies. Sites refuse long texts, so that there are at most MD_ROWS rows in each
** table.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#define MD_ROWS 50

static void mdMore(sqlite3_str *pOut, i64 n) {
  if (n > 0) bxReportPut(pOut, "\nAnd %n more.\n", n);
}

static void mdTable(sqlite3_str *pOut, const ReportTable *pTable) {
  i64 i, nRow;
  int iColumn;
  assert(pTable->nCell == 0 ||
         pTable->nCell % pTable->nColumn == 0); /* rows are whole */
  if (pTable->nCell == 0) return;
  nRow = pTable->nCell / pTable->nColumn;
  bxReportPut(pOut, "\n## %s\n\n", pTable->zTitle);
  for (i = 0; i < pTable->nColumn; i++) {
    bxReportPut(pOut, "| %s ", pTable->aColumn[i].zName);
  }
  bxReportPut(pOut, "|\n");
  for (i = 0; i < pTable->nColumn; i++) {
    bxReportPut(
        pOut, pTable->aColumn[i].eType >= REPORT_BYTES ? "|---:" : "|---");
  }
  bxReportPut(pOut, "|\n");
  for (i = 0; i < pTable->nCell && i < MD_ROWS * (i64)pTable->nColumn; i++) {
    iColumn = (int)(i % pTable->nColumn);
    bxReportPut(pOut, "| %w%s", pTable->azCell[i],
        pTable->aColumn[iColumn].eType,
        iColumn == pTable->nColumn - 1 ? " |\n" : " ");
  }
  mdMore(pOut, pTable->nLeft + (nRow > MD_ROWS ? nRow - MD_ROWS : 0));
}

/* The newest items, and those that the verdict names. */
static void mdItems(const ReportRun *p) {
  i64 i, nLeft = 0;
  assert(p->nItem >= 0);
  if (p->nItem == 0) return;
  bxReportPut(p->pOut,
      "\n## %s (%n)\n\n| No. | Time | What | Model | Status | Size |\n"
      "|---:|---|---|---|---|---:|\n",
      p->pKind->zItems, p->nItem);
  for (i = 0; i < p->nItem; i++) {
    const ReportItem *pItem = &p->aItem[i];
    if (pItem->bQuiet) continue;
    if (i < p->nItem - MD_ROWS && !pItem->bVerdict && !pItem->bError) {
      nLeft++;
      continue;
    }
    bxReportPut(
        p->pOut, "| %s%i | ", pItem->bVerdict ? "**verdict** " : "", i + 1);
    if (pItem->iTime >= 0) bxReportPut(p->pOut, "%t", pItem->iTime);
    bxReportPut(p->pOut, " | %m | %m | %m | ", pItem->zTitle, pItem->zModel,
        pItem->zStatus);
    if (pItem->nSize >= 0) bxReportPut(p->pOut, "%b", pItem->nSize);
    bxReportPut(p->pOut, " |\n");
  }
  mdMore(p->pOut, nLeft);
}

int bxReportMarkdown(ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  i64 n;
  int i;
  if (p->iNext < 0) return 0;
  bxReportPut(pOut, "# %m\n",
      p->verdict.az[VERDICT_REASON] ? p->verdict.az[VERDICT_REASON]
                                    : p->zTitle);
  bxReportPut(
      pOut, "\n\n| %s | %m |\n|---|---|\n", p->pKind->zTitle, p->zShown);
  for (n = 0; n < p->nFact; n++) {
    bxReportPut(pOut, "| %s | %w |\n", p->aFact[n].zName, p->aFact[n].zValue,
        p->aFact[n].eType);
  }
  mdTable(pOut, &p->pins);
  mdItems(p);
  for (i = 0; i < p->nTable; i++) mdTable(pOut, &p->aTable[i]);
  bxReportPut(pOut, "\n## Proof\n\n%s%s%s", p->zHead ? "```text\n" : "",
      p->zHead ? p->zHead : "Not in a proof.\n", p->zHead ? "```\n" : "");
  if (p->zHead != 0 && p->zBundle != 0) {
    bxReportPut(pOut,
        "\nThe lines of this query are one file, which `python3 verify.py "
        "FILE` "
        "checks without the database: %m\n",
        p->zBundle);
  }
  mdTable(pOut, &p->masked);
  if (p->nLeftItems > 0) {
    bxReportPut(pOut,
        "\n## Left out\n\nThe bounds of this report leave out %n older "
        "items.\n",
        p->nLeftItems);
  }
  p->iNext = -1;
  return 1;
}
