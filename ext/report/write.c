/*
** write.c: a report as a page, as Markdown and as JSON, which docs/report.md describes.
**
** A page has the facts in plain HTML, which need no script; the JSON, in which the parts
** of items name pieces of blocks, where else they have their text; and blocks of what
** items bring that is new.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*----------------------------------------------------------------- JSON ----*/

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

static void jsonHead(ReportRun *p) {
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
  sqlite3_str *pOut = p->pOut;
  int bHas = pItem->bBodies && p->opt.eBodies != REPORT_NONE, i;
  i64 k;
  if (bText && bHas && pItem->nPart > 0) bxReportBodies(p, pItem, 0);
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
      const char *z = pPart->z + iFrom;
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
  bxReportFreeBodies(pItem);
}

static void jsonItem(ReportRun *p, i64 iItem, int bText) {
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

static int writeJson(ReportRun *p) {
  if (p->iNext < 0) return 0;
  if (p->iNext == 0) jsonHead(p);
  if (p->iNext < p->nItem) jsonItem(p, p->iNext, 1);
  if (++p->iNext >= p->nItem) {
    bxReportPut(p->pOut, "\n]}");
    p->iNext = -1;
  }
  return 1;
}

/*----------------------------------------------------------------- HTML ----*/

/* ext/report/page, made into C by the build. */
extern const char bxPageCss[], bxPageJs[];

#define HTML_BATCH 65536 /* bytes that are enough for one step */

enum { HTML_HEAD, HTML_MAIN, HTML_DATA, HTML_ITEMS, HTML_BLOCKS, HTML_END };

static const char *reportHeading(const ReportRun *p) {
  const char *zReason =
      p->verdict.nCell ? p->verdict.azCell[VERDICT_REASON] : 0;
  return zReason ? zReason : p->zTitle;
}

static void htmlTable(const ReportRun *p, const ReportTable *pTable) {
  const ReportColumn *a = pTable->aColumn;
  sqlite3_str *pOut = p->pOut;
  int k, n = pTable->nColumn, bPlain;
  i64 i;
  if (pTable->zId == 0) return;
  bPlain =
      strcmp(pTable->zId, "pins") == 0 || strcmp(pTable->zId, "receipts") == 0;
  bxReportPut(pOut, "<section%s id=\"%s\"><h2>%s</h2>\n%s",
      bPlain ? "" : " class=\"table\"", pTable->zId, pTable->zTitle,
      pTable->nCell == 0 ? "<p>None.</p></section>\n"
      : strcmp(pTable->zId, "masked") == 0
          ? "<p>In place of each stands its "
            "name in brackets. What is stored was not changed.</p>\n"
          : "");
  if (pTable->nCell == 0) return;
  bxReportPut(pOut, "<table><thead><tr>");
  for (k = 0; k < n; k++) {
    bxReportPut(pOut, "<th scope=\"col\"%s>%s</th>",
        a[k].eType >= REPORT_BYTES ? " class=\"n\"" : "", a[k].zName);
  }
  bxReportPut(pOut, "</tr></thead>\n<tbody>\n");
  for (i = 0; i < pTable->nCell; i++) {
    const char *zHref = i % n == 0 && i / n < pTable->nLink
                            ? bxReportHref(p, pTable->azLink[i / n])
                            : 0;
    k = (int)(i % n);
    bxReportPut(pOut, "%s<td%s>%s%h%s%v%s</td>%s", k ? "" : "<tr>",
        a[k].eType >= REPORT_BYTES ? " class=\"n\"" : "",
        zHref ? "<a href=\"" : "", zHref, zHref ? "\">" : "", pTable->azCell[i],
        a[k].eType, zHref ? "</a>" : "", k == n - 1 ? "</tr>\n" : "");
  }
  bxReportPut(pOut, "</tbody></table>\n");
  if (pTable->nLeft > 0) {
    bxReportPut(pOut, "<p>%n more rows are not shown.</p>\n", pTable->nLeft);
  }
  bxReportPut(pOut, "</section>\n");
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
  if (p->zHead == 0) bxReportPut(pOut, "<p>Not in a proof.</p>");
  if (p->zHead != 0) {
    bxReportPut(pOut,
        "<p>The items that have a leaf are in the log of this head. The page "
        "recomputes them on request.</p>\n<pre>%h</pre>\n",
        p->zHead);
  }
  if (p->zHead != 0 && p->zBundle != 0) {
    bxReportPut(pOut,
        "<p>The lines of this query are one file, which is checked without "
        "the database:</p>\n<pre>%h\npython3 verify.py FILE</pre>\n",
        p->zBundle);
  }
  bxReportPut(pOut, "</section>\n");
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
    int bTold = pItem->nInput >= 0;
    if (i >= REPORT_ROWS && !pItem->bVerdict && !pItem->bError) continue;
    bxReportPut(pOut,
        "<tr id=\"e%i\" class=\"%s%s%s%s\"><td class=\"n\">%n</td><td>%T</td>"
        "<td>%h</td><td>%h</td><td>%h</td><td class=\"n\">%n%s%n</td>"
        "<td class=\"n\">%b</td></tr>\n",
        i + 1, pItem->bVerdict ? "verdict " : "",
        pItem->iRepeat ? "repeat " : "", pItem->bError ? "bad " : "",
        pItem->bQuiet ? "quiet" : "", i + 1, pItem->iTime, pItem->zTitle,
        pItem->zModel, pItem->zStatus, pItem->nInput, bTold ? ", " : "",
        bTold ? pItem->nOutput : -1, pItem->nSize);
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

static void putHash(sqlite3_str *pOut, const char *z) {
  unsigned char aHash[BX_DIGEST];
  bxDigestTwo(z, strlen(z), "", 0, aHash);
  bxReportPut(pOut, "'sha256-");
  bxReportBase64(pOut, aHash, BX_DIGEST);
}

/* The policy allows the style and the script that stand in the page, by their hashes,
** and nothing else: no request leaves it. */
static void htmlHead(const ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  bxReportPut(pOut,
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"generator\" content=\"blackbox\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; script-src ");
  putHash(pOut, bxPageJs);
  bxReportPut(pOut, "'; style-src ");
  putHash(pOut, bxPageCss);
  bxReportPut(pOut,
      "'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
      "dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>%h</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n",
      p->zTitle, bxPageCss);
}

static void htmlMain(const ReportRun *p) {
  int i, bItems = p->pKind->zItems != 0; /* else what is wrong stands first */
  bxReportPut(p->pOut,
      "<header class=\"case\"><h1>%h</h1><p class=\"kind\">%s%s %h, a report "
      "of blackbox, made %T</p></header>\n",
      reportHeading(p),
      p->pSite && bItems ? "<a href=\"index.html\">Overview</a>: " : "",
      p->pKind->zTitle, p->zShown, p->iMade);
  if (bItems) htmlFacts(p);
  if (bItems) htmlTable(p, &p->pins);
  if (bItems) htmlItems(p);
  for (i = 0; i < p->nTable; i++) htmlTable(p, &p->aTable[i]);
  if (!bItems) htmlTable(p, &p->pins);
  if (!bItems) htmlFacts(p);
  htmlEnd(p);
  bxReportPut(p->pOut, "</main>\n");
}

static void htmlBatch(ReportRun *p) {
  int nBefore = sqlite3_str_length(p->pOut);
  while (p->iNext < p->nItem && p->err.rc == SQLITE_OK &&
         sqlite3_str_length(p->pOut) - nBefore < HTML_BATCH) {
    jsonItem(p, p->iNext++, 0);
  }
  bxReportPut(p->pOut, "\n");
  if (p->iNext >= p->nItem) {
    bxReportPut(p->pOut, "]}</script>\n");
    p->ePhase = HTML_BLOCKS;
    p->iNext = 0;
  }
}

/* What the items of the next block bring: the fresh pieces of their parts. */
static void htmlBlock(ReportRun *p) {
  sqlite3_str *pAll = sqlite3_str_new(0);
  char *zAll;
  int iPart, iBlock = -1;
  i64 i, iAt, n;
  for (; p->iNext < p->nItem && p->err.rc == SQLITE_OK; p->iNext++) {
    ReportItem *pItem = &p->aItem[p->iNext];
    if (pItem->nOwn == 0) continue;
    if (iBlock >= 0 && pItem->iBlock != iBlock) break;
    iBlock = pItem->iBlock;
    bxReportBodies(p, pItem, 0);
    for (iPart = 0; iPart < pItem->nPart && p->err.rc == SQLITE_OK; iPart++) {
      const ReportPart *pPart = &pItem->aPart[iPart];
      for (i = 0, iAt = 0; i < pPart->nPiece; i++) {
        const ReportPiece *pPiece = &p->aPiece[pPart->iPiece + i];
        assert(!pPiece->bFresh || pPiece->iBlock == iBlock);
        if (pPiece->bFresh) {
          sqlite3_str_append(pAll, pPart->z + iAt, (int)pPiece->n);
        }
        iAt += pPiece->n;
      }
    }
    bxReportFreeBodies(pItem);
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
  if (iBlock < 0) p->ePhase = HTML_END;
}

static int writeHtml(ReportRun *p) {
  switch (p->ePhase) {
    case HTML_HEAD: htmlHead(p); break;
    case HTML_MAIN: htmlMain(p); break;
    case HTML_DATA:
      bxReportPut(p->pOut, "<script type=\"application/json\" id=\"report\">");
      jsonHead(p);
      p->iNext = 0;
      break;
    case HTML_ITEMS: htmlBatch(p); return 1;
    case HTML_BLOCKS: htmlBlock(p); return 1;
    case HTML_END:
      bxReportPut(p->pOut, "<script>%s</script>\n</body>\n</html>\n", bxPageJs);
      break;
    default: return 0;
  }
  p->ePhase++;
  return 1;
}

/*------------------------------------------------------------- Markdown ----*/

/* For a pull request or an issue: it has no bodies, and at most so many rows in each
** table, as sites refuse long texts. */
#define MD_ROWS 50

static void mdMore(sqlite3_str *pOut, i64 n) {
  if (n > 0) bxReportPut(pOut, "\nAnd %n more.\n", n);
}

static void mdTable(sqlite3_str *pOut, const ReportTable *pTable) {
  const ReportColumn *a = pTable->aColumn;
  int k, n = pTable->nColumn;
  i64 i, nMore = n ? pTable->nCell / n - MD_ROWS : 0;
  if (pTable->nCell == 0) return;
  bxReportPut(pOut, "\n## %s\n\n", pTable->zTitle);
  for (k = 0; k < n; k++) bxReportPut(pOut, "| %s ", a[k].zName);
  bxReportPut(pOut, "|\n");
  for (k = 0; k < n; k++) {
    bxReportPut(pOut, a[k].eType >= REPORT_BYTES ? "|---:" : "|---");
  }
  bxReportPut(pOut, "|\n");
  for (i = 0; i < pTable->nCell && i < MD_ROWS * n; i++) {
    bxReportPut(pOut, "| %w%s", pTable->azCell[i], a[i % n].eType,
        (i + 1) % n == 0 ? " |\n" : " ");
  }
  mdMore(pOut, pTable->nLeft + (nMore > 0 ? nMore : 0));
}

/* The newest items, and those that the verdict names. */
static void mdItems(const ReportRun *p) {
  i64 i, nLeft = 0;
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
    bxReportPut(p->pOut, "| %s%i | %t | %m | %m | %m | %b |\n",
        pItem->bVerdict ? "**verdict** " : "", i + 1, pItem->iTime,
        pItem->zTitle, pItem->zModel, pItem->zStatus, pItem->nSize);
  }
  mdMore(p->pOut, nLeft);
}

static int writeMarkdown(ReportRun *p) {
  sqlite3_str *pOut = p->pOut;
  i64 n;
  int i;
  if (p->iNext < 0) return 0;
  bxReportPut(pOut, "# %m\n", reportHeading(p));
  bxReportPut(
      pOut, "\n\n| %s | %m |\n|---|---|\n", p->pKind->zTitle, p->zShown);
  for (n = 0; n < p->nFact; n++) {
    if (strcmp(p->aFact[n].zName, p->pKind->zTitle) == 0) continue;
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

int bxReportWrite(ReportRun *p) {
  return p->opt.eFormat == REPORT_JSON ? writeJson(p)
         : p->opt.eFormat == REPORT_MD ? writeMarkdown(p)
                                       : writeHtml(p);
}
