/*
** item.c: reads the items of a report, one at a time.
**
** The first time, the bodies of each item are masked, and it is found which pieces
** of them are new, what they are about, and what they cost. The second time, when
** the text is written, they are masked again in the same way. So no more than one
** item is in memory. Statements that stay open keep what was read as it is.
*/
#include "report.h"
#include "../core/prices.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/* What is known of an exchange while it is read. */
typedef struct ReadExchange {
  ReportRun *p;
  ReportItem *pItem;
  int nCall;
  sqlite3_uint64 h;
  sqlite3_str *pCalls;
  char *zAnswer, *zPrompt;
} ReadExchange;

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
        bxSecretsMask(
            &p->masks, z, n, bFirst, &pOut->az[k], &pOut->an[k], &p->err)) {
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
    if (bxSecretsMask(&p->masks, z, n, 0, &zMasked, &n, &p->err)) z = zMasked;
    pItem->zTitle = bxReportPlain(z, n, &p->err);
    if (pItem->zTitle != 0) bxReportFirstLine(pItem->zTitle, REPORT_TITLE);
    sqlite3_free(zMasked);
  }
  sqlite3_free(zOwned);
}

/* The model and the tokens of an exchange, and its cost by blackbox_prices, if they
** have the model. */
static void readUsage(ReportRun *p, ReportItem *pItem, const BxSaid *pSaid) {
  BxTokens tokens = pSaid->tokens;
  i64 *const apToken[] = {&tokens.nInput, &tokens.nCacheRead,
      &tokens.nCacheWrite, &tokens.nOutput, &tokens.nReasoning,
      &tokens.nCacheWrite1h};
  BxStmts *pHome;
  double r;
  int i, bTold = 0;
  if (pSaid->zTool != 0) {
    pItem->zModel = bxReportClean(p, pSaid->zTool, pSaid->nTool);
    if (pItem->zModel != 0) bxReportFirstLine(pItem->zModel, 100);
  }
  for (i = 0; i < 5; i++) bTold |= *apToken[i] >= 0;
  if (!bTold) return;
  for (i = 0; i < 6; i++) *apToken[i] = *apToken[i] < 0 ? 0 : *apToken[i];
  p->usage.bAny = 1;
  for (i = 0; i < USAGE_NUMBERS; i++) p->usage.an[i] += *apToken[i];
  pItem->nInput = tokens.nInput + tokens.nCacheRead + tokens.nCacheWrite;
  pItem->nOutput = tokens.nOutput;
  pHome = bxReportNeed(p, "payload");
  if (pHome != 0 && pSaid->zTool != 0 &&
      bxCost(pHome, pSaid->zTool, pSaid->nTool, pItem->iTime, &tokens, &r,
          &p->err)) {
    p->usage.bCost = 1;
    p->usage.zSource = "blackbox_prices";
    p->usage.rCost += r;
  }
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
  int i;
  for (i = 0; i < 2; i++) {
    int iName = bxReportMember(
        p, 0, i == 0 ? "type eventType actionType subtype" : "role");
    if (iName < 0 || BX_TREE_KIND(p, iName) != '"') continue;
    if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ' ');
    appendNode(p, iName, pOut);
  }
}

/* Whether an item of a conversation says something: a message, by its types, and not
** what the program notes for itself. */
static void readRole(ReportItem *pItem, const char *zType, int bSaid) {
  static const char azSaid[7][10] = {"message", "user", "assistant", "warning",
      "error", "summary", "reasoning"};
  int i = 0;
  pItem->bError = strcmp(zType, "error") == 0;
  while (i < 7 && strstr(zType, azSaid[i]) == 0) i++;
  pItem->bQuiet = (!bSaid || i == 7) && pItem->zMark == 0;
  if (pItem->bQuiet) return;
  if (strstr(zType, "user") != 0) pItem->zRole = "user";
  if (strstr(zType, "assistant") != 0 || strstr(zType, "agent_") != 0) {
    pItem->zRole = "assistant";
  }
}

/* The title and the type of an item by what is in a body: its calls, or the first text
** in it that people would read: the first string, in the order of the text, whose key
** is on a list. */
static void readTitle(
    ReportRun *p, ReportItem *pItem, const ReportPart *pPart, const char *z) {
  i64 n = pPart->nByte;
  int bItem = strcmp(pItem->zKind, "item") == 0, nCall = 0;
  sqlite3_str *pText, *pType;
  BxTree tree;
  char *zText, *zType;
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
    nCall = bxReportReadCalls(p, pItem, &tree, pText);
    if (nCall == 0) appendSaid(&tree, pText);
    appendType(&tree, pType);
  }
  bxTreeFree(&tree);
  zText = bxStrFinish(pText, &p->err);
  zType = bxStrFinish(pType, &p->err);
  if (bItem && pItem->zRole == 0) {
    readRole(pItem, zType ? zType : "message", zText != 0);
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

static void readSaid(void *pArg, const BxSaid *pSaid) {
  ReadExchange *pRead = pArg;
  ReportRun *p = pRead->p;
  ReportItem *pItem = pRead->pItem;
  const char *zText = pSaid->zText ? pSaid->zText : "";
  int n = (int)(pSaid->nText < 1000 ? pSaid->nText : 1000);
  sqlite3_uint64 h;
  switch (pSaid->eKind) {
    case BX_SAID_RESULT:
      bxReportEnded(p, pItem, pSaid->zId, pSaid->nId, pSaid->zText,
          pSaid->nText, pSaid->bError);
      break;
    case BX_SAID_CALL:
      if (!pSaid->bResponse) break;
      bxReportSayCall(pRead->pCalls, pSaid->zTool, pSaid->nTool, pSaid->zText,
          pSaid->nText, &p->err);
      bxReportCalled(p, pItem, pSaid->zId, pSaid->nId);
      h = bxHashOf(pSaid->zTool ? pSaid->zTool : "", pSaid->nTool);
      pRead->h =
          bxHashMix(bxHashMix(pRead->h, h), bxHashOf(zText, pSaid->nText));
      pRead->nCall++;
      break;
    case BX_SAID_USAGE:
      readUsage(p, pItem, pSaid);
      if (n > 0) pRead->zAnswer = bxPrintf(&p->err, "%.*s", n, zText);
      break;
    case BX_SAID_PROMPT:
      h = n > 0 ? bxHashOf(zText, pSaid->nText) : 0;
      if (n > 0) pRead->zPrompt = bxPrintf(&p->err, "%.*s", n, zText);
      if (h == 0 || h == p->hPrompt) break;
      pItem->bAsked = 1;
      p->hPrompt = h;
      if (p->zAsked == 0) p->zAsked = bxReportClean(p, zText, pSaid->nText);
  }
}

/* What an exchange is about: what the model called, by which equal calls are found,
** too. If it called nothing, that is what it said, or what it was asked. */
static void readExchangeItem(
    ReportRun *p, ReportItem *pItem, const ReportBodiesOf *pBodies) {
  int ai[2] = {partNamed(pItem, "request"), partNamed(pItem, "response")}, i;
  ReadExchange read = {p, pItem, 0, 0, 0, 0, 0};
  const char *zAnswer = ai[1] < 0 ? 0 : pBodies->az[ai[1]];
  if (p->err.rc != SQLITE_OK) return;
  if (p->pValues == 0) {
    p->pValues = bxPrepareSql(p->bx->db, "SELECT ?1, ?2", &p->err);
  }
  if (p->pValues != 0) sqlite3_clear_bindings(p->pValues);
  for (i = 0; i < 2 && p->err.rc == SQLITE_OK; i++) {
    if (ai[i] < 0) continue;
    bxFailDb(&p->err, p->bx->db,
        sqlite3_bind_text64(p->pValues, i + 1, pBodies->az[ai[i]],
            (sqlite3_uint64)pBodies->an[ai[i]], SQLITE_STATIC, SQLITE_UTF8));
  }
  read.pCalls = sqlite3_str_new(0);
  if (bxReportRow(p, p->pValues)) {
    bxDomainOf(p->bx, "payload")
        ->xExchange(p->bx, sqlite3_column_value(p->pValues, 0),
            sqlite3_column_value(p->pValues, 1), readSaid, &read, &p->err);
  }
  bxReset(p->pValues, &p->err);
  if (read.nCall > 0) pItem->hSame = read.h;
  setTitle(p, pItem, bxStrFinish(read.pCalls, &p->err));
  setTitle(p, pItem, read.zAnswer);
  if (zAnswer != 0 && read.nCall == 0) bxReportFailed(p, pItem, zAnswer);
  if (zAnswer != 0 && pItem->zTitle == 0 && p->err.rc == SQLITE_OK) {
    readTitle(p, pItem, &pItem->aPart[ai[1]], zAnswer);
  }
  setTitle(p, pItem, read.zPrompt);
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
  p->nInBlock += pItem->nOwn;
  if (p->nInBlock >= REPORT_BLOCK) { /* the next item begins another */
    p->nBlock++;
    p->nInBlock = 0;
  }
  if (pSource->bExchange) readExchangeItem(p, pItem, &bodies);
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    if (pItem->zTitle == 0 || strcmp(pItem->zKind, "item") == 0) {
      readTitle(p, pItem, &pItem->aPart[i], bodies.az[i]);
    }
  }
  if (pItem->zTitle == 0 && pItem->zType != 0) {
    pItem->zTitle = bxPrintf(&p->err, "%s", pItem->zType);
  }
  if (pSource->bProof) bxReportProof(p, pItem, &bodies);
  bxReportFreeBodies(&bodies);
}

/* By what they do and what comes of it; those that do the same, in their order. */
static int compareSame(const void *pLeft, const void *pRight) {
  const ReportItem *p = *(ReportItem *const *)pLeft;
  const ReportItem *q = *(ReportItem *const *)pRight;
  if (p->hSame != q->hSame) return p->hSame < q->hSame ? -1 : 1;
  return (p > q) - (p < q);
}

/* Numbers the groups of equal items: 1 is the one whose first item comes first. As the
** rule no_progress sees it, these are calls with the same arguments and the same result;
** a call that has none yet is the same as any. */
static void numberRepeats(ReportRun *p) {
  ReportItem **ap = bxZalloc(sizeof(*ap) * (size_t)(p->nItem + 1), &p->err);
  i64 i, k;
  int nGroup = 0;
  assert(p->nItem >= 0);
  if (ap == 0) return;
  for (i = 0; i < p->nItem; i++) ap[i] = &p->aItem[i];
  qsort(ap, (size_t)p->nItem, sizeof(*ap), compareSame);
  for (i = 1; i < p->nItem; i++) {
    if (ap[i]->hSame == 0) continue;
    for (k = i - 1; k >= 0 && i - k < 8 && ap[k]->hSame == ap[i]->hSame; k--) {
      if (ap[i]->hResult != 0 && ap[k]->hResult != ap[i]->hResult) continue;
      if (ap[k]->pFirst == 0) ap[k]->pFirst = ap[k];
      ap[i]->pFirst = ap[k]->pFirst;
      break;
    }
  }
  for (i = 0; i < p->nItem; i++) {
    ReportItem *pItem = &p->aItem[i];
    if (pItem->pFirst == 0) continue;
    pItem->iRepeat = pItem->pFirst == pItem ? ++nGroup : pItem->pFirst->iRepeat;
  }
  sqlite3_free(ap);
}

/* A title says how it ended. */
static void finishItem(ReportRun *p, ReportItem *pItem) {
  char *zTitle = pItem->zTitle, *zError = pItem->zError;
  if (zError == 0) return;
  pItem->bError = 1;
  if (zTitle != 0) bxReportFirstLine(zTitle, REPORT_TITLE - 60);
  pItem->zTitle = zTitle == 0 || strstr(zError, zTitle) != 0
                      ? bxPrintf(&p->err, "%s", zError)
                      : bxPrintf(&p->err, "%s \xe2\x86\x92 %s", zTitle, zError);
  sqlite3_free(zTitle);
}

void bxReportRead(ReportRun *p) {
  i64 i;
  for (i = 0; i < p->nItem && p->err.rc == SQLITE_OK; i++) {
    if (p->aSource[p->aItem[i].iSource].pBodies != 0) {
      readReportItem(p, &p->aItem[i]);
    }
  }
  for (i = 0; i < p->nItem && p->err.rc == SQLITE_OK; i++) {
    finishItem(p, &p->aItem[i]);
  }
  if (p->err.rc == SQLITE_OK) numberRepeats(p);
}
