/*
** item.c: reads the items of a report, one at a time.
**
** The first time, the bodies of each item are masked, and it is found which pieces
** of them are new, what they are about, and what they cost. The second time, when
** the text is written, they are masked again in the same way. So no more than one
** item is in memory. Statements that stay open keep what was read as it is.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/* The statement for a question, reset. */
static sqlite3_stmt *askAbout(ReportRun *p, ReportQuestion eAsk) {
  static const char *const azAsk[] = {
      ("SELECT model, input, cache_read, cache_write, output, reasoning, "
       "cache_write_1h FROM payload_usage(?1, ?2)"),
      ("SELECT tool, arguments FROM payload_calls(NULL, ?1) "
       "WHERE kind = 'call'"),
      "SELECT payload_prompt(?1)"};
  assert(eAsk >= 0 && (size_t)eAsk < sizeof(p->apAsk) / sizeof(p->apAsk[0]));
  if (p->err.rc != SQLITE_OK) return 0;
  if (p->apAsk[eAsk] == 0) {
    BxStmts *pHome = bxReportNeed(p, "payload");
    if (pHome != 0) p->apAsk[eAsk] = bxPrepare(pHome, azAsk[eAsk], &p->err);
  }
  return p->apAsk[eAsk];
}

static const char *imageType(const char *z, i64 n) {
  assert(n >= 0);
  static const struct {
    const char *zBegin, *zType;
    size_t n;
  } a[] = {{"\x89PNG\r\n\x1a\n", "image/png", 8},
      {"\xff\xd8\xff", "image/jpeg", 3}, {"GIF87a", "image/gif", 6},
      {"GIF89a", "image/gif", 6}};
  int i;
  for (i = 0; i < 4; i++) {
    if (n >= (i64)a[i].n && memcmp(z, a[i].zBegin, a[i].n) == 0) {
      return a[i].zType;
    }
  }
  if (n > 12 && memcmp(z, "RIFF", 4) == 0 && memcmp(z + 8, "WEBP", 4) == 0) {
    return "image/webp";
  }
  return 0;
}

/* What a body is, by what is in it. */
static const char *typeOf(ReportRun *p, const char *z, i64 n) {
  const char *zAt = bxJsonSkipSpace(z);
  const char *zImage = imageType(z, n);
  if (zImage != 0) return zImage;
  if (!bxIsUtf8((const unsigned char *)z, (int)n)) {
    return "application/octet-stream";
  }
  if ((*zAt == '{' || *zAt == '[') && bxIsJson(p->bx, z, n, &p->err)) {
    return "application/json";
  }
  if (strncmp(zAt, "data:", 5) == 0 || strncmp(zAt, "event:", 6) == 0) {
    return "text/event-stream";
  }
  return "text/plain";
}

void bxReportFreeBodies(ReportBodiesOf *p) {
  int i;
  for (i = 0; i < REPORT_PARTS; i++) sqlite3_free(p->az[i]);
  memset(p, 0, sizeof(*p));
}

/* Reads the bodies of an item, each with a NUL after it. bFirst: makes its parts, and
** finds what is to be masked. */
static void readItemBodies(
    ReportRun *p, ReportItem *pItem, ReportBodiesOf *pOut, int bFirst) {
  sqlite3_stmt *pStmt = p->aSource[pItem->iSource].pBodies;
  int i, k = 0;
  assert(pItem->iSource >= 0 && pItem->iSource < p->nSource);
  memset(pOut, 0, sizeof(*pOut));
  bxBind(pStmt, &p->err, "t", pItem->zKey);
  if (p->err.rc == SQLITE_OK && sqlite3_bind_parameter_count(pStmt) > 1) {
    bxBind(pStmt, &p->err, "-t", p->zKey);
  }
  if (!bxReportRow(p, pStmt)) {
    bxFail(&p->err, SQLITE_ABORT,
        "ChangedError: item %Q of the report is gone; read a report to its "
        "end before you change what it is of",
        pItem->zKey);
  }
  for (i = 0; p->err.rc == SQLITE_OK && i + 1 < sqlite3_column_count(pStmt);
       i += 2) {
    ReportPart *pPart = &pItem->aPart[k];
    const char *zRole = bxColumnText(pStmt, i, &p->err), *z;
    i64 n;
    if (sqlite3_column_type(pStmt, i + 1) == SQLITE_NULL) continue;
    assert(k < REPORT_PARTS);
    z = sqlite3_column_blob(pStmt, i + 1);
    n = sqlite3_column_bytes(pStmt, i + 1);
    pOut->aType[k] = (unsigned char)sqlite3_column_type(pStmt, i + 1);
    if (z == 0 && n > 0) bxCheckMem(0, &p->err);
    if (z != 0 && (bFirst || pItem->bMasked) && imageType(z, n) == 0 &&
        bxMask(&p->masks, z, n, bFirst, &pOut->az[k], &pOut->an[k], &p->err)) {
      pOut->abMasked[k] = 1;
    } else {
      pOut->az[k] = bxZalloc((size_t)n + 1, &p->err);
      if (pOut->az[k] == 0) break;
      if (n > 0) memcpy(pOut->az[k], z, (size_t)n);
      pOut->an[k] = n;
    }
    if (bFirst && p->err.rc == SQLITE_OK) {
      sqlite3_snprintf(
          (int)sizeof(pPart->zRole), pPart->zRole, "%s", zRole ? zRole : "");
      pPart->nByte = pOut->an[k];
      pPart->h = bxHashOf(pOut->az[k], pOut->an[k]);
      pPart->zType = typeOf(p, pOut->az[k], pOut->an[k]);
      pItem->bMasked |= pOut->abMasked[k];
      pItem->nPart = k + 1;
    }
    k++;
  }
  bxReset(pStmt, &p->err);
}

void bxReportReadAgain(ReportRun *p, ReportItem *pItem, ReportBodiesOf *pOut) {
  int i;
  assert(pItem->nPart >= 0 && pItem->nPart <= REPORT_PARTS);
  readItemBodies(p, pItem, pOut, 0);
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    const ReportPart *pPart = &pItem->aPart[i];
    if (pOut->az[i] == 0 || pOut->an[i] != pPart->nByte ||
        bxHashOf(pOut->az[i], pOut->an[i]) != pPart->h) {
      bxFail(&p->err, SQLITE_ABORT,
          "ChangedError: item %Q of the report was changed while it was "
          "written; read a report to its end before you change what it is of",
          pItem->zKey);
    }
  }
}

/* Binds a body as text; NULL if there is none. */
static void bindBody(ReportRun *p, sqlite3_stmt *pStmt, int i,
    const ReportBodiesOf *pBodies, int iPart) {
  int rc = SQLITE_OK;
  if (pStmt == 0 || p->err.rc != SQLITE_OK || iPart < 0) return;
  rc = sqlite3_bind_text64(pStmt, i, pBodies->az[iPart],
      (sqlite3_uint64)pBodies->an[iPart], SQLITE_STATIC, SQLITE_UTF8);
  bxFailDb(&p->err, p->bx->db, rc);
}

/* The number of the part with a role, or -1. */
static int partNamed(const ReportItem *pItem, const char *zRole) {
  int i;
  assert(pItem->nPart <= REPORT_PARTS);
  for (i = 0; i < pItem->nPart; i++) {
    if (strcmp(pItem->aPart[i].zRole, zRole) == 0) return i;
  }
  return -1;
}

/* A text of a body, which was masked, as a title. Frees it. */
static void setTitle(ReportRun *p, ReportItem *pItem, char *zOwned) {
  const char *z = zOwned ? zOwned + strspn(zOwned, " \t\r\n") : 0;
  char *zMasked = 0;
  i64 n = z ? (i64)strlen(z) : 0;
  if (n > 0 && pItem->zTitle == 0) {
    /* an escape in the body may have hidden a key */
    if (bxMask(&p->masks, z, n, 0, &zMasked, &n, &p->err)) z = zMasked;
    pItem->zTitle = bxReportPlain(z, n, &p->err);
    if (pItem->zTitle != 0) bxReportFirstLine(pItem->zTitle, REPORT_TITLE);
    sqlite3_free(zMasked);
  }
  sqlite3_free(zOwned);
}

/* The model and the tokens of an exchange, and its cost by blackbox_prices, if they
** have the model. */
static void readUsage(ReportRun *p, ReportItem *pItem,
    const ReportBodiesOf *pBodies, int iRequest, int iResponse) {
  sqlite3_stmt *pStmt = askAbout(p, ASK_USAGE);
  ReportUsage *pUsage = &p->usage;
  BxStmts *pHome;
  i64 a[6] = {0, 0, 0, 0, 0, 0};
  char *zModel = 0;
  double r;
  int i, bTold = 0;
  bindBody(p, pStmt, 1, pBodies, iRequest);
  bindBody(p, pStmt, 2, pBodies, iResponse);
  if (bxReportRow(p, pStmt)) {
    zModel = bxColumnCopy(pStmt, 0, &p->err);
    for (i = 0; i < 6; i++) {
      bTold |= sqlite3_column_type(pStmt, i + 1) != SQLITE_NULL;
      a[i] = sqlite3_column_int64(pStmt, i + 1);
    }
  }
  bxReset(pStmt, &p->err);
  if (zModel != 0) {
    pItem->zModel = bxReportClean(p, zModel, (i64)strlen(zModel));
    if (pItem->zModel != 0) bxReportFirstLine(pItem->zModel, 100);
  }
  if (bTold) {
    BxTokens tokens = {a[0], a[2], a[1], a[3], a[4], a[5]};
    pUsage->bAny = 1;
    for (i = 0; i < USAGE_NUMBERS; i++) pUsage->an[i] += a[i];
    pItem->nInput = a[0] + a[1] + a[2];
    pItem->nOutput = a[3];
    pHome = bxReportNeed(p, "payload");
    if (pHome != 0 && zModel != 0 &&
        bxCost(pHome, zModel, (i64)strlen(zModel), pItem->iTime, &tokens, &r,
            &p->err)) {
      pUsage->bCost = 1;
      pUsage->zSource = "blackbox_prices";
      pUsage->rCost += r;
    }
  }
  sqlite3_free(zModel);
}

/* The value of the first member whose key is on the list, or -1. */
static int memberOf(const BxTree *p, int iNode, const char *const *azName) {
  int i = -1;
  assert(iNode >= 0 && iNode < p->n);
  for (; i < 0 && *azName != 0; azName++) {
    i = bxTreeMember(p, iNode, *azName, (int)strlen(*azName));
  }
  return i;
}

static void appendNode(const BxTree *p, int iNode, sqlite3_str *pOut) {
  assert(iNode < p->n);
  if (iNode < 0) return;
  if (BX_TREE_KIND(p, iNode) == '"') {
    bxTreeText(p, iNode, pOut);
  } else {
    sqlite3_str_append(pOut, p->z + p->a[iNode].iAt, p->a[iNode].nByte);
  }
}

/* Writes the calls: names and arguments. Returns whether there is one. */
static int appendCalls(const BxTree *p, sqlite3_str *pOut) {
  static const char *const azName[] = {"name", "toolName", "tool", 0};
  static const char *const azArguments[] = {
      "arguments", "input", "args", "action", 0};
  int i, iName, iArguments, nCall = 0;
  for (i = 0; i < p->n; i++) {
    if (BX_TREE_KIND(p, i) != '{') continue;
    iName = memberOf(p, i, azName);
    if (iName < 0 || BX_TREE_KIND(p, iName) != '"') continue;
    iArguments = memberOf(p, i, azArguments);
    if (iArguments < 0) continue;
    if (nCall++ > 0) sqlite3_str_appendall(pOut, "; ");
    appendNode(p, iName, pOut);
    sqlite3_str_appendchar(pOut, 1, ' ');
    appendNode(p, iArguments, pOut);
  }
  return nCall > 0;
}

/* Writes the first text whose key is on the list, and that has a character that can be
** seen. */
static void appendSaid(const BxTree *p, sqlite3_str *pOut) {
  static const char *const azKey[] = {"text", "content", "message", "output",
      "summary", "command", "title", "description", "url", "targetText",
      "value", "error", "result", 0};
  int i, j, k, n, iFirst = -1;
  for (i = 0; i < p->n; i++) {
    if (BX_TREE_KIND(p, i) != '{') continue;
    for (j = i + 1; j < p->a[i].iNext; j = p->a[j + 1].iNext) {
      const char *z = p->z + p->a[j + 1].iAt + 1;
      if (iFirst >= 0 && j > iFirst) break;
      if (BX_TREE_KIND(p, j + 1) != '"') continue;
      for (k = 0; azKey[k] != 0; k++) {
        if (bxTreeIs(p, j, azKey[k], (int)strlen(azKey[k]))) break;
      }
      if (azKey[k] == 0) continue;
      n = p->a[j + 1].nByte - 2;
      for (k = 0; k < n; k++) {
        if (z[k] == '\\' && k + 1 < n && strchr("ntr", z[k + 1]) != 0) {
          k++;
        } else if (z[k] != ' ') {
          iFirst = j + 1;
          break;
        }
      }
    }
  }
  appendNode(p, iFirst, pOut);
}

/* Writes what the item is called: the types and roles at the top. */
static void appendType(const BxTree *p, sqlite3_str *pOut) {
  static const char *const aazName[][5] = {
      {"type", "eventType", "actionType", "subtype", 0}, {"role", 0}};
  int i;
  for (i = 0; i < 2; i++) {
    int iName = memberOf(p, 0, aazName[i]);
    if (iName < 0 || BX_TREE_KIND(p, iName) != '"') continue;
    if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ' ');
    appendNode(p, iName, pOut);
  }
}

/* The title and the type of an item by what is in a body: the first text in it that
** people would read. JSON may be of any program, so that nothing is known of it but the
** names that members commonly have. A call is a name beside arguments, and is compared
** with others. The text of other items is the first string, in the order of the text,
** whose key is on a list. */
static void readTitle(
    ReportRun *p, ReportItem *pItem, const ReportPart *pPart, const char *z) {
  i64 n = pPart->nByte;
  sqlite3_str *pText, *pType;
  BxTree tree;
  char *zText, *zType;
  int bCall = 0;
  if (strncmp(pPart->zType, "image/", 6) == 0) return;
  if (strcmp(pPart->zType, "application/json") != 0) {
    if (pItem->zTitle == 0) {
      setTitle(p, pItem, bxReportPlain(z, n < 1000 ? n : 1000, &p->err));
    }
    return;
  }
  memset(&tree, 0, sizeof(tree));
  pText = sqlite3_str_new(0);
  pType = sqlite3_str_new(0);
  if (bxTreeRead(&tree, z, n, 0, 0, &p->err) != 0) {
    bCall = appendCalls(&tree, pText);
    if (!bCall) appendSaid(&tree, pText);
    appendType(&tree, pType);
  }
  bxTreeFree(&tree);
  zText = bxStrFinish(pText, &p->err);
  zType = bxStrFinish(pType, &p->err);
  if (bCall && zText != 0 && pItem->hSame == 0) {
    pItem->hSame = bxHashOf(zText, (i64)strlen(zText));
  }
  if (zType != 0 && pItem->zStatus == 0) {
    pItem->zStatus = bxReportClean(p, zType, (i64)strlen(zType));
    if (pItem->zStatus != 0) bxReportFirstLine(pItem->zStatus, 100);
  }
  if (zText == 0 && zType != 0) {
    zText = zType;
    zType = 0;
  }
  setTitle(p, pItem, zText);
  sqlite3_free(zType);
}

/* What an exchange is about: what the model called in a response that is no JSON, but
** perhaps a stream, by which equal calls are found, too. If it called nothing, that is
** what it said, or what it was asked. */
static void readExchangeItem(
    ReportRun *p, ReportItem *pItem, const ReportBodiesOf *pBodies) {
  int iRequest = partNamed(pItem, "request");
  int iResponse = partNamed(pItem, "response");
  const ReportPart *pPart = &pItem->aPart[iResponse < 0 ? 0 : iResponse];
  sqlite3_stmt *pStmt;
  char *z = 0;
  readUsage(p, pItem, pBodies, iRequest, iResponse);
  if (iResponse >= 0 && p->err.rc == SQLITE_OK) {
    if (strcmp(pPart->zType, "application/json") != 0) {
      sqlite3_str *pOut = sqlite3_str_new(0);
      pStmt = askAbout(p, ASK_CALLS);
      bindBody(p, pStmt, 1, pBodies, iResponse);
      while (bxReportRow(p, pStmt)) {
        const char *zTool = bxColumnText(pStmt, 0, &p->err);
        const char *zCallText = bxColumnText(pStmt, 1, &p->err);
        sqlite3_str_appendf(pOut, "%s%s %s",
            sqlite3_str_length(pOut) ? "; " : "", zTool ? zTool : "",
            zCallText ? zCallText : "");
      }
      bxReset(pStmt, &p->err);
      z = bxStrFinish(pOut, &p->err);
      if (z != 0) pItem->hSame = bxHashOf(z, (i64)strlen(z));
      setTitle(p, pItem, z);
    }
    readTitle(p, pItem, pPart, pBodies->az[iResponse]);
    if (pItem->hSame == 0 && pPart->nByte > 0) pItem->hSame = pPart->h;
  }
  if (iRequest < 0 || pItem->zTitle != 0) return;
  pStmt = askAbout(p, ASK_PROMPT);
  bindBody(p, pStmt, 1, pBodies, iRequest);
  z = bxReportRow(p, pStmt) ? bxColumnCopy(pStmt, 0, &p->err) : 0;
  bxReset(pStmt, &p->err);
  setTitle(p, pItem, z);
}

static void readReportItem(ReportRun *p, ReportItem *pItem) {
  const ReportSource *pSource = &p->aSource[pItem->iSource];
  ReportBodiesOf bodies;
  int i;
  assert(p->nBlock >= 0);
  readItemBodies(p, pItem, &bodies, 1);
  pItem->iBlock = p->nBlock;
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    ReportPart *pPart = &pItem->aPart[i];
    if (!pItem->bBodies || p->opt.eBodies == REPORT_NONE) continue;
    bxReportPieces(p, pItem, pPart, bodies.az[i],
        strcmp(pPart->zType, "application/json") == 0);
  }
  if (pItem->nOwn == 0) pItem->iBlock = -1;
  p->nBlock += pItem->nOwn > 0;
  if (pSource->bExchange) readExchangeItem(p, pItem, &bodies);
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    if (pItem->zTitle == 0) {
      readTitle(p, pItem, &pItem->aPart[i], bodies.az[i]);
    }
  }
  if (pItem->zTitle == 0 && pItem->zType != 0) {
    pItem->zTitle = bxPrintf(&p->err, "%s", pItem->zType);
  }
  if (pSource->bProof) bxReportProof(p, pItem, &bodies);
  bxReportFreeBodies(&bodies);
}

/* By what they do; those that do the same, in their order. */
static int compareSame(const void *pLeft, const void *pRight) {
  const ReportItem *p = *(ReportItem *const *)pLeft;
  const ReportItem *q = *(ReportItem *const *)pRight;
  if (p->hSame != q->hSame) return p->hSame < q->hSame ? -1 : 1;
  return (p > q) - (p < q);
}

/* Numbers the groups of equal items: 1 is the one whose first item comes first. */
static void numberRepeats(ReportRun *p) {
  ReportItem **ap = bxZalloc(sizeof(*ap) * (size_t)(p->nItem + 1), &p->err);
  i64 i;
  int nGroup = 0;
  assert(p->nItem >= 0);
  if (ap == 0) return;
  for (i = 0; i < p->nItem; i++) ap[i] = &p->aItem[i];
  qsort(ap, (size_t)p->nItem, sizeof(*ap), compareSame);
  for (i = 1; i < p->nItem; i++) {
    ReportItem *pLast = ap[i - 1];
    if (ap[i]->hSame == 0 || ap[i]->hSame != pLast->hSame) continue;
    if (pLast->pFirst == 0) pLast->pFirst = pLast;
    ap[i]->pFirst = pLast->pFirst;
  }
  for (i = 0; i < p->nItem; i++) {
    ReportItem *pItem = &p->aItem[i];
    if (pItem->pFirst == 0) continue;
    pItem->iRepeat = pItem->pFirst == pItem ? ++nGroup : pItem->pFirst->iRepeat;
  }
  sqlite3_free(ap);
}

void bxReportRead(ReportRun *p) {
  i64 i;
  for (i = 0; i < p->nItem && p->err.rc == SQLITE_OK; i++) {
    if (p->aSource[p->aItem[i].iSource].pBodies != 0) {
      readReportItem(p, &p->aItem[i]);
    }
  }
  if (p->err.rc == SQLITE_OK) numberRepeats(p);
}
