/*
** html.c: the report as a page: the template of ext/report/page with the facts in
** plain HTML, which need no script, the JSON, and a block for each item that brings
** something new.
**
** A mark of the template, alone on a line, is replaced. The policy of the page
** allows the style and the script that stand in it, by their hashes, and nothing
** else: no request leaves it.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/* ext/report/page, made into C by the build. */
extern const char bxPageHtml[], bxPageCss[], bxPageJs[];

#define HTML_BATCH 65536 /* bytes that are enough for one step */

typedef enum { HTML_PAGE, HTML_ITEMS, HTML_BLOCKS } HtmlPhase;

/*---------------------------------------------------------------- values --*/

static void htmlTime(sqlite3_str *pOut, i64 iTime) {
  sqlite3_str_appendall(pOut, "<time datetime=\"");
  bxReportTime(pOut, iTime, 1);
  sqlite3_str_appendall(pOut, "\">");
  bxReportTime(pOut, iTime, 0);
  sqlite3_str_appendall(pOut, "</time>");
}

/* A value as people read it. */
static void htmlShown(sqlite3_str *pOut, const char *z, ReportType eType) {
  char *zEnd = 0;
  i64 i = z ? (i64)strtoll(z, &zEnd, 10) : 0;
  if (z == 0) return;
  if (*z == 0 || *zEnd != 0) eType = REPORT_TEXT; /* no whole number */
  switch (eType) {
    case REPORT_TIME: htmlTime(pOut, i); break;
    case REPORT_BYTES: bxReportSize(pOut, i); break;
    case REPORT_COUNT: sqlite3_str_appendf(pOut, "%,lld", i); break;
    case REPORT_DURATION: bxReportDuration(pOut, i); break;
    default: bxReportEscape(pOut, z);
  }
}

static void htmlCell(sqlite3_str *pOut, const char *z, ReportType eType) {
  const char *zClass = eType >= REPORT_BYTES ? " class=\"n\"" : "";
  sqlite3_str_appendf(pOut, "<td%s>", zClass);
  htmlShown(pOut, z, eType);
  sqlite3_str_appendall(pOut, "</td>");
}

/*---------------------------------------------------------------- tables --*/

static void htmlHeads(sqlite3_str *pOut, const ReportColumn *aColumn) {
  sqlite3_str_appendall(pOut, "<table><thead><tr>");
  for (; aColumn->zName != 0; aColumn++) {
    sqlite3_str_appendf(pOut, "<th scope=\"col\"%s>%s</th>",
        aColumn->eType >= REPORT_BYTES ? " class=\"n\"" : "", aColumn->zName);
  }
  sqlite3_str_appendall(pOut, "</tr></thead>\n<tbody>\n");
}

static void htmlTable(sqlite3_str *pOut, const ReportTable *pTable) {
  i64 i;
  if (pTable->aColumn == 0) return;
  if (strcmp(pTable->zId, "pins") == 0 ||
      strcmp(pTable->zId, "receipts") == 0) {
    sqlite3_str_appendf(pOut, "<section id=\"%s\">", pTable->zId);
  } else {
    sqlite3_str_appendf(
        pOut, "<section class=\"table\" id=\"%s\">", pTable->zId);
  }
  sqlite3_str_appendf(pOut, "<h2>%s</h2>\n", pTable->zTitle);
  if (pTable->nCell == 0) {
    sqlite3_str_appendall(pOut, "<p>None.</p></section>\n");
    return;
  }
  htmlHeads(pOut, pTable->aColumn);
  for (i = 0; i < pTable->nCell; i++) {
    int iColumn = (int)(i % pTable->nColumn);
    if (iColumn == 0) sqlite3_str_appendall(pOut, "<tr>");
    htmlCell(pOut, pTable->azCell[i], pTable->aColumn[iColumn].eType);
    if (iColumn == pTable->nColumn - 1) {
      sqlite3_str_appendall(pOut, "</tr>\n");
    }
  }
  sqlite3_str_appendall(pOut, "</tbody></table>\n");
  if (pTable->nLeft > 0) {
    sqlite3_str_appendf(
        pOut, "<p>%,lld more rows are not shown.</p>\n", pTable->nLeft);
  }
  sqlite3_str_appendall(pOut, "</section>\n");
}

/*----------------------------------------------------------------- facts --*/

/* The sentence of the verdict is what people look for first. */
static void htmlHeader(const ReportRun *p) {
  const char *zReason = p->verdict.bAny ? p->verdict.zReason : 0;
  sqlite3_str_appendall(p->pOut, "<header class=\"case\"><h1>");
  bxReportEscape(p->pOut, zReason ? zReason : p->zTitle);
  sqlite3_str_appendall(p->pOut, "</h1><p class=\"kind\">");
  if (zReason != 0) {
    bxReportEscape(p->pOut, p->zTitle);
    sqlite3_str_appendall(p->pOut, ", ");
  }
  sqlite3_str_appendall(p->pOut, "a report of blackbox, made ");
  htmlTime(p->pOut, p->iMade);
  sqlite3_str_appendall(p->pOut, "</p></header>\n");
}

static void htmlFact(const ReportRun *p, const char *zName, const char *zValue,
    ReportType eType) {
  if (zValue == 0) return;
  sqlite3_str_appendall(p->pOut, "<div><dt>");
  bxReportEscape(p->pOut, zName);
  sqlite3_str_appendall(p->pOut, "</dt><dd>");
  htmlShown(p->pOut, zValue, eType);
  sqlite3_str_appendall(p->pOut, "</dd></div>\n");
}

static void htmlCount(const ReportRun *p, const char *zName, i64 n) {
  if (n > 0) {
    sqlite3_str_appendf(
        p->pOut, "<div><dt>%s</dt><dd>%,lld</dd></div>\n", zName, n);
  }
}

static void htmlFacts(const ReportRun *p) {
  const ReportUsage *pUsage = &p->usage;
  i64 i;
  sqlite3_str_appendall(p->pOut, "<section id=\"facts\"><h2>Facts</h2><dl>\n");
  for (i = 0; i < p->nFact; i++) {
    htmlFact(p, p->aFact[i].zName, p->aFact[i].zValue, p->aFact[i].eType);
  }
  if (pUsage->bAny) {
    htmlCount(p, "Input tokens, not cached", pUsage->nInput);
    htmlCount(p, "Input tokens, read from the cache", pUsage->nCacheRead);
    htmlCount(p, "Input tokens, written to the cache", pUsage->nCacheWrite);
    htmlCount(p,
        pUsage->bRecorded ? "Output tokens, as recorded" : "Output tokens",
        pUsage->nOutput);
    htmlCount(p, "Reasoning tokens", pUsage->nReasoning);
  }
  if (pUsage->bCost) {
    sqlite3_str_appendf(p->pOut, "<div><dt>Cost</dt><dd>%.4f (%s)</dd></div>\n",
        pUsage->rCost, pUsage->zSource);
  }
  sqlite3_str_appendall(p->pOut, "</dl></section>\n");
}

static void htmlVerdict(const ReportRun *p) {
  const ReportVerdict *pVerdict = &p->verdict;
  int bAny = 0;
  i64 i;
  if (!pVerdict->bAny) return;
  sqlite3_str_appendall(p->pOut,
      "<section id=\"verdict\"><h2>Why it stopped</h2>\n"
      "<p class=\"reason\">");
  bxReportEscape(p->pOut, pVerdict->zReason ? pVerdict->zReason : "");
  sqlite3_str_appendall(p->pOut, "</p>\n<dl>");
  htmlFact(p, "Rule", pVerdict->zRule, REPORT_TEXT);
  htmlFact(p, "Level", pVerdict->zLevel, REPORT_TEXT);
  htmlFact(p, "Count", pVerdict->zCount, REPORT_COUNT);
  htmlFact(p, "Threshold", pVerdict->zThreshold, REPORT_COUNT);
  htmlFact(p, "Tool", pVerdict->zTool, REPORT_TEXT);
  htmlFact(p, "Turn", pVerdict->zTurn, REPORT_COUNT);
  htmlFact(p, "What was done", pVerdict->zAction, REPORT_TEXT);
  sqlite3_str_appendall(p->pOut, "</dl>\n");
  for (i = 0; i < p->nItem; i++) {
    if (!p->aItem[i].bVerdict) continue;
    sqlite3_str_appendf(p->pOut, "%s <a href=\"#e%lld\">#%lld</a>",
        bAny ? "" : "<p class=\"calls\">Calls", i + 1, i + 1);
    bAny = 1;
  }
  sqlite3_str_appendall(p->pOut, bAny ? "</p></section>\n" : "</section>\n");
}

static void htmlProof(const ReportRun *p) {
  sqlite3_str_appendall(p->pOut, "<section id=\"proof\"><h2>Proof</h2>\n");
  if (p->zHead != 0) {
    sqlite3_str_appendall(p->pOut,
        "<p>The items that have a leaf are in the log of this head. The page "
        "recomputes them on request.</p>\n<pre>");
    bxReportEscape(p->pOut, p->zHead);
    sqlite3_str_appendall(p->pOut, "</pre></section>\n");
  } else {
    sqlite3_str_appendall(p->pOut, "<p>Not in a proof.</p></section>\n");
  }
}

static void htmlMasked(const ReportRun *p) {
  const char *zName;
  i64 n;
  int i, bAny = 0;
  sqlite3_str_appendall(p->pOut, "<section id=\"masked\"><h2>Masked</h2>\n");
  for (i = 0; (zName = bxMaskCount(&p->masks, i, &n)) != 0; i++) {
    if (n == 0) continue;
    if (!bAny) {
      sqlite3_str_appendall(p->pOut,
          "<p>In place of each stands its name in brackets. What is stored was "
          "not changed.</p>\n<table><thead><tr><th scope=\"col\">What</th>"
          "<th scope=\"col\" class=\"n\">Times</th></tr></thead>\n<tbody>\n");
    }
    bAny = 1;
    sqlite3_str_appendall(p->pOut, "<tr><td>");
    bxReportEscape(p->pOut, zName);
    sqlite3_str_appendf(p->pOut, "</td><td class=\"n\">%,lld</td></tr>\n", n);
  }
  sqlite3_str_appendall(
      p->pOut, bAny ? "</tbody></table></section>\n"
               : p->masks.n > 0
                   ? "<p>Nothing had to be masked.</p></section>\n"
                   : "<p>Nothing is masked in this report.</p></section>\n");
}

static void htmlLeftOut(const ReportRun *p) {
  if (p->nLeftItems == 0 && p->nLeftBodies == 0) return;
  sqlite3_str_appendf(p->pOut,
      "<section id=\"left-out\"><h2>Left out</h2>\n<p>The bounds of this "
      "report "
      "leave out %,lld older items, and the bodies of %,lld items (",
      p->nLeftItems, p->nLeftBodies);
  bxReportSize(p->pOut, p->nLeftBytes);
  sqlite3_str_appendall(p->pOut, ").</p></section>\n");
}

/*----------------------------------------------------------------- items --*/

static const ReportColumn aItemColumn[] = {{"No.", REPORT_COUNT},
    {"Time", REPORT_TIME}, {"What", REPORT_TEXT}, {"Model", REPORT_TEXT},
    {"Status", REPORT_TEXT}, {"Tokens in", REPORT_COUNT},
    {"Tokens out", REPORT_COUNT}, {"Size", REPORT_BYTES}, {0, REPORT_TEXT}};

/* A cell of a number; empty if it is not known. */
static void htmlNumber(sqlite3_str *pOut, i64 i, ReportType eType) {
  char z[24];
  sqlite3_snprintf((int)sizeof(z), z, "%lld", i);
  htmlCell(pOut, i < 0 ? 0 : z, eType);
}

static void htmlItem(const ReportRun *p, i64 i) {
  const ReportItem *pItem = &p->aItem[i];
  const char *zClass = pItem->bVerdict
                           ? (pItem->iRepeat ? "verdict repeat" : "verdict")
                       : pItem->iRepeat ? "repeat"
                                        : "";
  sqlite3_str_appendf(p->pOut, "<tr id=\"e%lld\"%s%s%s>", i + 1,
      *zClass ? " class=\"" : "", zClass, *zClass ? "\"" : "");
  htmlNumber(p->pOut, i + 1, REPORT_COUNT);
  htmlNumber(p->pOut, pItem->iTime, REPORT_TIME);
  htmlCell(p->pOut, pItem->zTitle, REPORT_TEXT);
  htmlCell(p->pOut, pItem->zModel, REPORT_TEXT);
  htmlCell(p->pOut, pItem->zStatus, REPORT_TEXT);
  htmlNumber(p->pOut, pItem->nInput, REPORT_COUNT);
  htmlNumber(p->pOut, pItem->nOutput, REPORT_COUNT);
  htmlNumber(p->pOut, pItem->nSize, REPORT_BYTES);
  sqlite3_str_appendall(p->pOut, "</tr>\n");
}

static void htmlItems(const ReportRun *p) {
  i64 i, nShown = 0;
  if (p->pKind->zItems == 0) return;
  sqlite3_str_appendf(p->pOut, "<section id=\"items\"><h2>%s (%,lld)</h2>\n",
      p->pKind->zItems, p->nItem);
  if (p->nItem == 0) {
    sqlite3_str_appendall(p->pOut, "<p>None.</p></section>\n");
    return;
  }
  htmlHeads(p->pOut, aItemColumn);
  for (i = 0; i < p->nItem; i++) {
    if (i >= REPORT_ROWS && !p->aItem[i].bVerdict) continue;
    htmlItem(p, i);
    nShown++;
  }
  sqlite3_str_appendall(p->pOut, "</tbody></table>\n");
  if (p->nItem > nShown) {
    sqlite3_str_appendf(p->pOut,
        "<p>And %,lld more, which the page shows with JavaScript.</p>\n",
        p->nItem - nShown);
  }
  sqlite3_str_appendall(p->pOut, "</section>\n");
}

static void htmlStatic(const ReportRun *p) {
  int i;
  htmlHeader(p);
  htmlFacts(p);
  htmlVerdict(p);
  htmlTable(p->pOut, &p->pins);
  htmlItems(p);
  for (i = 0; i < p->nTable; i++) htmlTable(p->pOut, &p->aTable[i]);
  htmlProof(p);
  htmlMasked(p);
  htmlLeftOut(p);
}

/*------------------------------------------------------------------ page --*/

static void htmlPolicy(const ReportRun *p) {
  sqlite3_str_appendall(p->pOut,
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; script-src '");
  bxReportSha256(p->pOut, bxPageJs, (i64)strlen(bxPageJs));
  sqlite3_str_appendall(p->pOut, "'; style-src '");
  bxReportSha256(p->pOut, bxPageCss, (i64)strlen(bxPageCss));
  sqlite3_str_appendall(p->pOut,
      "'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n");
}

/* What stands in place of a mark of n characters. */
static void htmlMark(ReportRun *p, const char *zMark, int n) {
  if (strncmp(zMark, "policy", (size_t)n) == 0) {
    htmlPolicy(p);
  } else if (strncmp(zMark, "title", (size_t)n) == 0) {
    sqlite3_str_appendall(p->pOut, "<title>");
    bxReportEscape(p->pOut, p->zTitle);
    sqlite3_str_appendall(p->pOut, "</title>\n");
  } else if (strncmp(zMark, "style", (size_t)n) == 0) {
    sqlite3_str_appendf(p->pOut, "<style>%s</style>\n", bxPageCss);
  } else if (strncmp(zMark, "facts", (size_t)n) == 0) {
    htmlStatic(p);
  } else if (strncmp(zMark, "data", (size_t)n) == 0) {
    sqlite3_str_appendall(
        p->pOut, "<script type=\"application/json\" id=\"report\">");
    bxReportJsonHead(p);
    p->ePhase = HTML_ITEMS;
    p->iNext = 0;
  } else if (strncmp(zMark, "script", (size_t)n) == 0) {
    sqlite3_str_appendf(p->pOut, "<script>%s</script>\n", bxPageJs);
  }
}

/* The template up to the next mark, and what stands in place of that. */
static int htmlPage(ReportRun *p) {
  const char *z = p->zTemplate;
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
  while (p->iNext < p->nItem && p->err.rc == SQLITE_OK &&
         sqlite3_str_length(p->pOut) - nBefore < HTML_BATCH) {
    bxReportJsonItem(p, p->iNext++, 0);
  }
  sqlite3_str_appendall(p->pOut, "\n");
  if (p->iNext >= p->nItem) {
    bxReportJsonTail(p);
    sqlite3_str_appendall(p->pOut, "</script>\n");
    p->ePhase = HTML_BLOCKS;
    p->iNext = 0;
  }
  return 1;
}

/* What an item alone brings: the fresh pieces of its parts. To sqlite3_free(). */
static char *freshBytes(ReportRun *p, ReportItem *pItem) {
  ReportBodiesOf bodies;
  char *zAll = bxNew((size_t)pItem->nOwn + 1, &p->err), *z = zAll;
  int iPart;
  i64 i, iAt;
  bxReportReadAgain(p, pItem, &bodies);
  for (iPart = 0; iPart < pItem->nPart && p->err.rc == SQLITE_OK; iPart++) {
    const ReportPart *pPart = &pItem->aPart[iPart];
    for (i = 0, iAt = 0; i < pPart->nPiece; i++) {
      const ReportPiece *pPiece = &p->aPiece[pPart->iPiece + i];
      if (pPiece->bFresh) {
        memcpy(z, bodies.az[iPart] + iAt, (size_t)pPiece->n);
        z += pPiece->n;
      }
      iAt += pPiece->n;
    }
  }
  assert(p->err.rc != SQLITE_OK || z - zAll == pItem->nOwn);
  bxReportFreeBodies(&bodies);
  return zAll;
}

static int htmlBlock(ReportRun *p) {
  ReportItem *pItem;
  char *z;
  while (p->iNext < p->nItem && p->aItem[p->iNext].iBlock < 0) p->iNext++;
  if (p->iNext >= p->nItem) {
    p->ePhase = HTML_PAGE;
    return 1;
  }
  pItem = &p->aItem[p->iNext++];
  z = freshBytes(p, pItem);
  if (z != 0 && p->err.rc == SQLITE_OK) {
    sqlite3_str_appendf(p->pOut,
        "<script type=\"text/plain\" class=\"block\" id=\"b%d\">",
        pItem->iBlock);
    bxReportDeflate(p->pOut, z, pItem->nOwn, &p->err);
    sqlite3_str_appendall(p->pOut, "</script>\n");
  }
  sqlite3_free(z);
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
