/*
** html.c: the report as a page: the template of ext/report/page with the facts in
** plain HTML, which need no script, the JSON, and blocks of what items bring
** that is new.
**
** A mark of the template, alone on a line, is replaced. The policy of the page
** allows the style and the script that stand in it, by their hashes, and nothing
** else: no request leaves it.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* ext/report/page, made into C by the build. */
extern const char bxPageHtml[], bxPageCss[], bxPageJs[];

#define HTML_BATCH 65536 /* bytes that are enough for one step */

typedef enum { HTML_PAGE, HTML_ITEMS, HTML_BLOCKS } HtmlPhase;

static void htmlTable(const ReportRun *p, const ReportTable *pTable) {
  sqlite3_str *pOut = p->pOut;
  i64 i;
  int iColumn;
  assert(pTable->nColumn >= 0);
  if (pTable->nColumn == 0) return;
  bxReportPut(pOut, "<section%s id=\"%s\"><h2>%s</h2>\n",
      strcmp(pTable->zId, "pins") == 0 || strcmp(pTable->zId, "receipts") == 0
          ? ""
          : " class=\"table\"",
      pTable->zId, pTable->zTitle);
  if (pTable->nCell == 0) {
    bxReportPut(pOut, "<p>None.</p></section>\n");
    return;
  }
  bxReportPut(pOut, "%s<table><thead><tr>",
      strcmp(pTable->zId, "masked") != 0
          ? ""
          : "<p>In place of each stands its name in brackets. What is stored "
            "was not changed.</p>\n");
  for (i = 0; i < pTable->nColumn; i++) {
    const ReportColumn *pColumn = &pTable->aColumn[i];
    bxReportPut(pOut, "<th scope=\"col\"%s>%s</th>",
        pColumn->eType >= REPORT_BYTES ? " class=\"n\"" : "", pColumn->zName);
  }
  bxReportPut(pOut, "</tr></thead>\n<tbody>\n");
  for (i = 0; i < pTable->nCell; i++) {
    iColumn = (int)(i % pTable->nColumn);
    const char *zHref = 0;
    if (iColumn == 0) {
      i64 iRow = i / pTable->nColumn;
      bxReportPut(pOut, "<tr>");
      if (iRow < pTable->nLink) zHref = bxReportHref(p, pTable->azLink[iRow]);
    }
    bxReportPut(pOut, "<td%s>",
        pTable->aColumn[iColumn].eType >= REPORT_BYTES ? " class=\"n\"" : "");
    if (zHref != 0) bxReportPut(pOut, "<a href=\"%h\">", zHref);
    bxReportPut(pOut, "%v%s</td>", pTable->azCell[i],
        pTable->aColumn[iColumn].eType, zHref ? "</a>" : "");
    if (iColumn == pTable->nColumn - 1) bxReportPut(pOut, "</tr>\n");
  }
  bxReportPut(pOut, "</tbody></table>\n");
  if (pTable->nLeft > 0) {
    bxReportPut(pOut, "<p>%n more rows are not shown.</p>\n", pTable->nLeft);
  }
  bxReportPut(pOut, "</section>\n");
}

static void htmlHeader(const ReportRun *p) {
  const char *zReason = p->verdict.az[VERDICT_REASON];
  bxReportPut(p->pOut,
      "<header class=\"case\"><h1>%h</h1><p class=\"kind\">%s%s %h, a report "
      "of blackbox, made %T</p></header>\n",
      zReason ? zReason : p->zTitle,
      p->pSite && p->pKind->zItems ? "<a href=\"index.html\">Overview</a>: "
                                   : "",
      p->pKind->zTitle, p->zShown, p->iMade);
}

static void htmlFacts(const ReportRun *p) {
  i64 i;
  bxReportPut(p->pOut, "<section id=\"facts\"><h2>Facts</h2><dl>\n");
  for (i = 0; i < p->nFact; i++) {
    bxReportPut(p->pOut, "<div><dt>%h</dt><dd>%v</dd></div>\n",
        p->aFact[i].zName, p->aFact[i].zValue, p->aFact[i].eType);
  }
  bxReportPut(p->pOut, "</dl></section>\n");
}

/* Proof, what was masked, and what was left out. */
static void htmlEnd(const ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  bxReportPut(pOut, "<section id=\"proof\"><h2>Proof</h2>\n");
  if (p->zHead != 0) {
    bxReportPut(pOut,
        "<p>The items that have a leaf are in the log of this head. The page "
        "recomputes them on request.</p>\n<pre>%h</pre>\n",
        p->zHead);
    if (p->zBundle != 0) {
      bxReportPut(pOut,
          "<p>The lines of this query are one file, which is checked without "
          "the database:</p>\n<pre>%h\npython3 verify.py FILE</pre>\n",
          p->zBundle);
    }
    bxReportPut(pOut, "</section>\n");
  } else {
    bxReportPut(pOut, "<p>Not in a proof.</p></section>\n");
  }
  if (p->masked.nCell > 0) {
    htmlTable(p, &p->masked);
  } else {
    bxReportPut(pOut,
        "<section id=\"masked\"><h2>Masked</h2><p>%s</p></section>\n",
        p->masks.n > 0 ? "No known pattern was found. Pictures are not masked."
                       : "Nothing is masked in this report.");
  }
  if (p->nLeftItems == 0 && p->nLeftBodies == 0) return;
  bxReportPut(pOut,
      "<section id=\"left-out\"><h2>Left out</h2>\n<p>The bounds of this "
      "report leave out %n older items, and the bodies of %n items (%b)."
      "</p></section>\n",
      p->nLeftItems, p->nLeftBodies, p->nLeftBytes);
}

static void htmlItems(const ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  i64 i, nShown = 0;
  assert(p->nItem >= 0);
  if (p->pKind->zItems == 0) return;
  bxReportPut(pOut, "<section id=\"items\"><h2>%s (%n)</h2>\n",
      p->pKind->zItems, p->nItem);
  if (p->nItem == 0) {
    bxReportPut(pOut, "<p>None.</p></section>\n");
    return;
  }
  bxReportPut(pOut,
      "<table><thead><tr><th scope=\"col\" class=\"n\">No.</th>"
      "<th scope=\"col\">Time</th><th scope=\"col\">What</th>"
      "<th scope=\"col\">Model</th><th scope=\"col\">Status</th>"
      "<th scope=\"col\" class=\"n\">Tokens in, out</th>"
      "<th scope=\"col\" class=\"n\">Size</th></tr></thead>\n<tbody>\n");
  for (i = 0; i < p->nItem; i++) {
    const ReportItem *pItem = &p->aItem[i];
    if (i >= REPORT_ROWS && !pItem->bVerdict && !pItem->bError) continue;
    bxReportPut(pOut, "<tr id=\"e%i\" class=\"%s%s%s%s\">", i + 1,
        pItem->bVerdict ? "verdict " : "", pItem->iRepeat ? "repeat " : "",
        pItem->bError ? "bad " : "", pItem->bQuiet ? "quiet" : "");
    bxReportPut(pOut, "<td class=\"n\">%n</td><td>", i + 1);
    if (pItem->iTime >= 0) bxReportPut(pOut, "%T", pItem->iTime);
    bxReportPut(pOut, "</td><td>%h</td><td>%h</td><td>%h</td><td class=\"n\">",
        pItem->zTitle, pItem->zModel, pItem->zStatus);
    if (pItem->nInput >= 0) {
      bxReportPut(pOut, "%n, %n", pItem->nInput, pItem->nOutput);
    }
    bxReportPut(pOut, "</td><td class=\"n\">");
    if (pItem->nSize >= 0) bxReportPut(pOut, "%b", pItem->nSize);
    bxReportPut(pOut, "</td>");
    bxReportPut(pOut, "</tr>\n");
    nShown++;
  }
  bxReportPut(pOut, "</tbody></table>\n");
  if (p->nItem > nShown) {
    bxReportPut(pOut,
        "<p>And %n more, which the page shows with JavaScript.</p>\n",
        p->nItem - nShown);
  }
  bxReportPut(pOut, "</section>\n");
}

/* What stands in place of a mark of n characters. */
static void htmlMark(ReportRun *p, const char *zMark, int n) {
  sqlite3_str *pOut = p->pOut;
  int i;
  assert(n > 0);
  if (strncmp(zMark, "policy", (size_t)n) == 0) {
    bxReportPut(pOut,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
        "'none'; script-src '");
    bxReportSha256(pOut, bxPageJs, (i64)strlen(bxPageJs));
    bxReportPut(pOut, "'; style-src '");
    bxReportSha256(pOut, bxPageCss, (i64)strlen(bxPageCss));
    bxReportPut(pOut,
        "'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n");
  } else if (strncmp(zMark, "title", (size_t)n) == 0) {
    bxReportPut(pOut, "<title>%h</title>\n", p->zTitle);
  } else if (strncmp(zMark, "style", (size_t)n) == 0) {
    bxReportPut(pOut, "<style>%s</style>\n", bxPageCss);
  } else if (strncmp(zMark, "facts", (size_t)n) == 0) {
    htmlHeader(p);
    if (p->pKind->zItems != 0) { /* else what is wrong stands first */
      htmlFacts(p);
      htmlTable(p, &p->pins);
      htmlItems(p);
    }
    for (i = 0; i < p->nTable; i++) htmlTable(p, &p->aTable[i]);
    if (p->pKind->zItems == 0) {
      htmlTable(p, &p->pins);
      htmlFacts(p);
    }
    htmlEnd(p);
  } else if (strncmp(zMark, "data", (size_t)n) == 0) {
    bxReportPut(pOut, "<script type=\"application/json\" id=\"report\">");
    bxReportJsonHead(p);
    p->ePhase = HTML_ITEMS;
    p->iNext = 0;
  } else if (strncmp(zMark, "script", (size_t)n) == 0) {
    bxReportPut(pOut, "<script>%s</script>\n", bxPageJs);
  }
}

/* The template up to the next mark, and what stands in place of that. */
static int htmlPage(ReportRun *p) {
  const char *z = p->zTemplate;
  assert(p->zTemplate != 0);
  if (*z == 0) return 0;
  while (*z) {
    const char *zLine = z;
    int n = (int)strcspn(z, "\n");
    z += n + (z[n] != 0);
    if (n > 7 && strncmp(zLine, "<!--", 4) == 0 &&
        strncmp(zLine + n - 3, "-->", 3) == 0 &&
        strcspn(zLine, " ") >= (size_t)n) {
      htmlMark(p, zLine + 4, n - 7);
      break;
    }
    sqlite3_str_append(p->pOut, zLine, (int)(z - zLine));
  }
  p->zTemplate = z;
  return 1;
}

static int htmlBatch(ReportRun *p) {
  int nBefore = sqlite3_str_length(p->pOut);
  assert(p->iNext <= p->nItem);
  while (p->iNext < p->nItem && p->err.rc == SQLITE_OK &&
         sqlite3_str_length(p->pOut) - nBefore < HTML_BATCH) {
    bxReportJsonItem(p, p->iNext++, 0);
  }
  bxReportPut(p->pOut, "\n");
  if (p->iNext >= p->nItem) {
    bxReportPut(p->pOut, "]}</script>\n");
    p->ePhase = HTML_BLOCKS;
    p->iNext = 0;
  }
  return 1;
}

/* What the items of the next block bring: the fresh pieces of their parts. */
static int htmlBlock(ReportRun *p) {
  sqlite3_str *pAll = sqlite3_str_new(0);
  ReportBodiesOf bodies;
  char *zAll;
  int iPart, iBlock = -1;
  i64 i, iAt, n;
  assert(p->iNext <= p->nItem);
  for (; p->iNext < p->nItem && p->err.rc == SQLITE_OK; p->iNext++) {
    ReportItem *pItem = &p->aItem[p->iNext];
    if (pItem->nOwn == 0) continue;
    if (iBlock >= 0 && pItem->iBlock != iBlock) break;
    iBlock = pItem->iBlock;
    bxReportReadAgain(p, pItem, &bodies);
    for (iPart = 0; iPart < pItem->nPart && p->err.rc == SQLITE_OK; iPart++) {
      const ReportPart *pPart = &pItem->aPart[iPart];
      for (i = 0, iAt = 0; i < pPart->nPiece; i++) {
        const ReportPiece *pPiece = &p->aPiece[pPart->iPiece + i];
        assert(!pPiece->bFresh || pPiece->iBlock == iBlock);
        if (pPiece->bFresh) {
          sqlite3_str_append(pAll, bodies.az[iPart] + iAt, (int)pPiece->n);
        }
        iAt += pPiece->n;
      }
    }
    bxReportFreeBodies(&bodies);
  }
  n = sqlite3_str_length(pAll);
  zAll = bxStrFinish(pAll, &p->err);
  if (zAll != 0) {
    bxReportPut(p->pOut,
        "<script type=\"text/plain\" class=\"block\" id=\"b%i\">", (i64)iBlock);
    bxReportDeflate(p->pOut, zAll, n, &p->err);
    bxReportPut(p->pOut, "</script>\n");
  }
  sqlite3_free(zAll);
  if (iBlock < 0) p->ePhase = HTML_PAGE;
  return 1;
}

int bxReportHtml(ReportRun *p) {
  if (p->zTemplate == 0) p->zTemplate = bxPageHtml;
  switch (p->ePhase) {
    case HTML_ITEMS: return htmlBatch(p);
    case HTML_BLOCKS: return htmlBlock(p);
    default: return htmlPage(p);
  }
}
