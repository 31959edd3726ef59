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

/* What is known of an item while it is read. */
typedef struct ReadItem {
  ReportRun *p;
  ReportItem *pItem;
  int nCall;
  sqlite3_str *pCalls;
  char *zAnswer, *zPrompt;
} ReadItem;

/*---------------------------------------------------------------- titles ----*/

/* What an item is called, and how it ended: Edit file.go, Bash make test -> exit 2.
** Tools may be those of any program: of their arguments only the names are known that
** members commonly have. The result of a call may come in a later item. */
#define SAID_BYTES 140 /* of one text in a title */

/* The iAt of a call; with CALL_BEFORE its iBlock is the item of the result. */
enum { CALL_OPEN, CALL_ENDED, CALL_BEFORE };

/* The first member that has one of these names, between which is a space; or -1. */
static int firstMember(const BxTree *p, int iNode, const char *zNames) {
  int i = -1, n;
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (; i < 0 && *zNames != 0; zNames += n + (zNames[n] != 0)) {
    n = (int)strcspn(zNames, " ");
    i = bxTreeMember(p, iNode, zNames, n);
  }
  return i;
}

/* The first line of a text that has something, without the rest of a long one. */
static void say(sqlite3_str *pOut, const char *z, i64 n) {
  const char *zEnd;
  i64 i, nAll;
  while (n > 0 && strchr(" \t\r\n", *z) != 0 && *z != 0) z++, n--;
  nAll = n;
  zEnd = memchr(z, '\n', (size_t)n);
  if (zEnd != 0) {
    for (i = zEnd - z; i < n && strchr(" \t\r\n", z[i]) != 0;) i++;
    n = zEnd - z;
    if (i == nAll) zEnd = 0; /* nothing follows */
  }
  if (n > SAID_BYTES) {
    for (n = SAID_BYTES; (z[n] & 0xc0) == 0x80;) n--;
    zEnd = z;
  }
  while (n > 0 && strchr(" \t\r", z[n - 1]) != 0) n--;
  sqlite3_str_append(pOut, z, (int)n);
  if (zEnd != 0) sqlite3_str_appendall(pOut, " \xe2\x80\xa6");
}

static void appendNode(const BxTree *p, int iNode, sqlite3_str *pOut) {
  if (BX_TREE_KIND(p, iNode) == '"') {
    bxTreeText(p, iNode, pOut);
  } else {
    sqlite3_str_append(pOut, p->z + p->a[iNode].iAt, p->a[iNode].nByte);
  }
}

static i64 lengthOf(const char *z) {
  return z ? (i64)strlen(z) : 0;
}

/* The text of a node, to sqlite3_free(); NULL if it is empty or there is none. */
static char *nodeText(const BxTree *p, int iNode, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  if (iNode >= 0) appendNode(p, iNode, pOut);
  return bxStrFinish(pOut, pErr);
}

static void sayNode(
    const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr) {
  char *z = nodeText(p, iNode, pErr),
       *zFile = z && *z == '/' ? strrchr(z, '/') : 0;
  if (zFile != 0 && zFile[1] != 0 && z[strcspn(z, " \n")] == 0) { /* a file */
    say(pOut, zFile + 1, (i64)strlen(zFile + 1));
  } else if (z != 0) {
    say(pOut, z, (i64)strlen(z));
  }
  sqlite3_free(z);
}

/* What people would say of arguments: a command, a file, or a few values. */
static void sayArguments(const BxTree *p, sqlite3_str *pOut, BxErr *pErr) {
  int i = BX_TREE_KIND(p, 0) == '{'
              ? firstMember(p, 0,
                    "command cmd script patch code pattern query q url skill "
                    "file_path filePath path filename notebook_path "
                    "description prompt")
              : 0,
      n;
  for (n = i + 1; i >= 0 && BX_TREE_KIND(p, i) == '[' && n < p->a[i].iNext;
       n = p->a[n].iNext) { /* the words of a command */
    if (n > i + 1) sqlite3_str_appendchar(pOut, 1, ' ');
    sayNode(p, n, pOut, pErr);
  }
  if (i >= 0 && BX_TREE_KIND(p, i) != '[') sayNode(p, i, pOut, pErr);
  for (n = 1; i < 0 && n < p->n && n < 40; n = p->a[n + 1].iNext) {
    if (n > 1) sqlite3_str_appendall(pOut, ", ");
    sayNode(p, n, pOut, pErr);
    sqlite3_str_appendchar(pOut, 1, '=');
    sayNode(p, n + 1, pOut, pErr);
  }
}

static char *saidText(const BxSaid *p, BxErr *pErr) {
  return bxPrintf(pErr, "%.*s", (int)p->nText, p->zText ? p->zText : "");
}

static void sayCall(sqlite3_str *pOut, const BxSaid *pSaid, BxErr *pErr) {
  char *zCopy = saidText(pSaid, pErr);
  const char *z = zCopy ? bxJsonSkipSpace(zCopy) : "";
  sqlite3_str *pArgs = sqlite3_str_new(0);
  BxTree tree = {0};
  if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendall(pOut, "; ");
  if (pSaid->zTool != 0) say(pOut, pSaid->zTool, pSaid->nTool);
  if ((*z == '{' || *z == '[') &&
      bxTreeRead(&tree, zCopy, (i64)strlen(zCopy), 0, 0, pErr) != 0) {
    sayArguments(&tree, pArgs, pErr);
  } else {
    say(pArgs, z, (i64)strlen(z));
  }
  if (sqlite3_str_length(pArgs) > 0) {
    sqlite3_str_appendf(pOut, " %s", sqlite3_str_value(pArgs));
  }
  sqlite3_free(sqlite3_str_finish(pArgs));
  bxTreeFree(&tree);
  sqlite3_free(zCopy);
}

/* What a program returned, if the result says so: -1 if it does not. */
static int exitCode(const char *z) {
  static const char azBefore[5][20] = {"exited with code ",
      "Exit code: ", "Exit code ", "\"exit_code\":", "\"exitCode\":"};
  int i;
  for (i = 0; i < 5; i++) {
    const char *zAt = strstr(z, azBefore[i]);
    if (zAt == 0 || zAt - z > (i < 3 ? 300 : 100000)) continue;
    zAt += strlen(azBefore[i]);
    zAt += strspn(zAt, " ");
    if (*zAt >= '0' && *zAt <= '9') return atoi(zAt);
  }
  return -1;
}

/* How a call ended, if it failed: "exit 2", or "error: " and what was said. NULL if it
** did not. *pzSaid: the first line that was said. */
static char *outcomeOf(const char *z, int bError, char **pzSaid, BxErr *pErr) {
  sqlite3_str *pLine = sqlite3_str_new(0);
  const char *zAt = bxJsonSkipSpace(z), *zOutput = strstr(z, "\nOutput:\n");
  int iExit = exitCode(z), i, k = -1;
  BxTree tree = {0};
  bError |= iExit > 0 ||
            (iExit < 0 && (sqlite3_strnicmp(zAt, "error", 5) == 0 ||
                              strncmp(zAt, "Traceback (most", 15) == 0 ||
                              strncmp(zAt, "<tool_use_error>", 16) == 0));
  if (iExit >= 0 && zOutput != 0 && zOutput - z < 400) zAt = zOutput + 9;
  if ((*zAt == '{' || *zAt == '[') && strlen(zAt) < 100000 &&
      bxTreeRead(&tree, zAt, (i64)strlen(zAt), 0, 0, pErr) != 0) {
    k = BX_TREE_KIND(&tree, 0) == '{' ? bxTreeMember(&tree, 0, "error", 5) : -1;
    bError |= k >= 0 &&
              (BX_TREE_KIND(&tree, k) == '{' || BX_TREE_KIND(&tree, k) == '"');
    for (i = 0, k = -1; i < tree.n && k < 0; i++) {
      k = firstMember(&tree, i, "error message text output stderr content");
      if (k >= 0 && BX_TREE_KIND(&tree, k) != '"') k = -1;
    }
    if (k >= 0) sayNode(&tree, k, pLine, pErr);
  }
  if (k < 0) say(pLine, zAt, (i64)strlen(zAt));
  bxTreeFree(&tree);
  z = *pzSaid = bxStrFinish(pLine, pErr);
  if (z == 0) z = "";
  if (iExit > 0) return bxPrintf(pErr, "exit %d", iExit);
  if (sqlite3_strnicmp(z, "error: ", 7) == 0) z += 7;
  return !bError ? 0 : bxPrintf(pErr, *z ? "error: %s" : "error", z);
}

/* What the JSON at z, an element of it or its response has as its error: "error: " and what
** it says. NULL if there is none. */
static char *failureIn(const char *z, i64 n, BxErr *pErr) {
  BxTree tree = {0};
  char *zError = 0, *zSaid;
  int i = 0, iOf, k;
  if (bxTreeRead(&tree, z, n, 0, 0, pErr) == 0) tree.n = 0;
  if (tree.n > 0 && BX_TREE_KIND(&tree, 0) == '[') i = 1;
  for (; i < tree.n && zError == 0; i = tree.a[i].iNext) {
    sqlite3_str *pSaid;
    iOf = firstMember(&tree, i, "response");
    if (iOf < 0 || BX_TREE_KIND(&tree, iOf) != '{') iOf = i;
    k = firstMember(&tree, iOf, "error");
    if (k < 0 || strchr("{\"", BX_TREE_KIND(&tree, k)) == 0) {
      k = firstMember(&tree, iOf, "type");
      if (k < 0 || !bxTreeIs(&tree, k, "error", 5)) continue;
      k = iOf;
    }
    if (BX_TREE_KIND(&tree, k) == '{') {
      k = firstMember(&tree, k, "message text type code");
    }
    pSaid = sqlite3_str_new(0);
    if (k >= 0) sayNode(&tree, k, pSaid, pErr);
    zSaid = bxStrFinish(pSaid, pErr);
    zError = bxPrintf(pErr, zSaid ? "error: %s" : "error", zSaid);
    sqlite3_free(zSaid);
  }
  bxTreeFree(&tree);
  return zError;
}

/* Notes what a provider answered in place of the model, or after some of it: the whole
** body, or one of its lines, is an error. What a model says of one is none. */
static void readFailure(ReportRun *p, ReportItem *pItem, const char *z) {
  const char *zLine = bxJsonSkipSpace(z), *zAt = zLine, *zNext;
  char *zError = 0;
  if (p->err.rc != SQLITE_OK || pItem->zError != 0) return;
  if (sqlite3_strnicmp(zLine, "error:", 6) == 0 ||
      sqlite3_strnicmp(zLine, "error code:", 11) == 0) {
    sqlite3_str *pSaid = sqlite3_str_new(0);
    say(pSaid, zLine, (i64)strlen(zLine));
    zError = bxStrFinish(pSaid, &p->err);
  } else if (strchr("{[", *zLine) != 0 && strstr(zLine, "\"error\"") != 0) {
    zError = failureIn(zLine, (i64)strlen(zLine), &p->err);
  }
  while (zError == 0 && (zAt = strstr(zAt, "\"error\"")) != 0) {
    while ((zNext = memchr(zLine, '\n', (size_t)(zAt - zLine))) != 0)
      zLine = zNext + 1;
    zNext = strchr(zAt, '\n');
    zAt = strncmp(zLine, "data:", 5) == 0 ? bxJsonSkipSpace(zLine + 5) : zLine;
    if (*zAt == '{') {
      zError = failureIn(zAt, zNext ? zNext - zAt : (i64)strlen(zAt), &p->err);
    }
    if (zNext == 0) break;
    zAt = zNext;
  }
  if (zError != 0) {
    pItem->zError = bxReportClean(p, zError, (i64)strlen(zError), 0);
  }
  sqlite3_free(zError);
}

/* Notes that the item calls, under this id. */
static void callBegins(ReportRun *p, ReportItem *pItem, const BxSaid *pSaid) {
  SeenPiece *pCall;
  pItem->zRole = "call";
  if (pSaid->zId == 0 || pSaid->nId == 0 || p->err.rc != SQLITE_OK) return;
  pCall = bxReportSeen(&p->calls, pSaid->zId, pSaid->nId, &p->err);
  if (pCall == 0) return;
  if (pCall->iAt == CALL_BEFORE) { /* files may have the result first */
    ReportItem *pResult = &p->aItem[pCall->iBlock];
    assert(pResult != pItem && pCall->iBlock < p->nItem);
    pItem->hResult = bxHashMix(pItem->hResult, pResult->hResult);
    pItem->zSaid = pResult->zSaid;
    if (pItem->zError == 0) pItem->zError = pResult->zError;
    if (pItem->zError == pResult->zError) pResult->zError = 0;
    pResult->zSaid = 0;
    pResult->iOther = pItem - p->aItem + 1;
    pItem->iOther = pResult - p->aItem + 1;
  }
  pCall->iAt = pCall->iAt == CALL_BEFORE ? CALL_ENDED : CALL_OPEN;
  pCall->iBlock = (int)(pItem - p->aItem);
}

/* Tells the call of this id how it ended, unless it is told already. */
static void callEnds(ReportRun *p, ReportItem *pItem, const BxSaid *pSaid) {
  SeenPiece *pCall = 0;
  ReportItem *pOf = pItem;
  char *zCopy, *zSaid = 0, *zError;
  if (pSaid->zId != 0 && pSaid->nId > 0) {
    pCall = bxReportSeen(&p->calls, pSaid->zId, pSaid->nId, &p->err);
  }
  if (pCall != 0 && pCall->iBlock >= 0) pOf = &p->aItem[pCall->iBlock];
  if (pCall == 0 || (pCall->iBlock < 0 && strcmp(pItem->zKind, "item") != 0)) {
    return; /* it belongs to what was before the report */
  }
  if (pCall->iBlock >= 0 && pCall->iAt != CALL_OPEN) return;
  pCall->iAt = pCall->iBlock < 0 ? CALL_BEFORE : CALL_ENDED;
  if (pCall->iBlock < 0) pCall->iBlock = (int)(pItem - p->aItem);
  zCopy = saidText(pSaid, &p->err);
  if (zCopy == 0) return;
  zError = outcomeOf(zCopy, pSaid->bError, &zSaid, &p->err);
  pOf->hResult =
      bxHashMix(pOf->hResult, bxHashOf(zCopy, (i64)strlen(zCopy)) | 1);
  sqlite3_free(zCopy);
  if (zError != 0 && pOf->zError == 0) {
    pOf->zError = bxReportClean(p, zError, (i64)strlen(zError), 0);
  }
  if (zSaid != 0 && (pOf->zSaid == 0 || zError != 0)) {
    pOf->zSaid = bxReportClean(p, zSaid, (i64)strlen(zSaid), 0);
  }
  sqlite3_free(zError);
  sqlite3_free(zSaid);
  if (pOf != pItem && strcmp(pItem->zKind, "item") == 0) {
    pItem->iOther = pOf - p->aItem + 1;
    pOf->iOther = pItem - p->aItem + 1;
  }
}

/*---------------------------------------------------------------- bodies ----*/

static const char *imageType(const char *z, i64 n) {
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

void bxReportFreeBodies(ReportItem *pItem) {
  int i;
  for (i = 0; i < REPORT_PARTS; i++) {
    sqlite3_free(pItem->aPart[i].z);
    pItem->aPart[i].z = 0;
  }
}

void bxReportBodies(ReportRun *p, ReportItem *pItem, int bFirst) {
  sqlite3_stmt *pStmt = p->aSource[pItem->iSource].pBodies;
  int i, k = 0, bSame = 1;
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
  for (i = 0; p->err.rc == SQLITE_OK && i < sqlite3_column_count(pStmt); i++) {
    ReportPart *pPart = &pItem->aPart[k];
    const char *zRole = sqlite3_column_name(pStmt, i), *z;
    i64 n;
    sqlite3_uint64 hash;
    int eType = sqlite3_column_type(pStmt, i), bMasked = 0;
    if (eType == SQLITE_NULL) continue;
    assert(k < REPORT_PARTS);
    z = sqlite3_column_blob(pStmt, i);
    n = sqlite3_column_bytes(pStmt, i);
    if (z == 0 && n > 0) bxCheckMem(0, &p->err);
    if (z != 0 && (bFirst || pItem->bMasked) && imageType(z, n) == 0) {
      bMasked = bxSecretsMask(&p->masks, z, n, bFirst, &pPart->z, &n, &p->err);
    }
    if (!bMasked) {
      pPart->z = bxZalloc((size_t)n + 1, &p->err);
      if (pPart->z == 0) break;
      if (n > 0) memcpy(pPart->z, z, (size_t)n);
    }
    if (p->err.rc != SQLITE_OK) break;
    hash = bxHashOf(pPart->z, n);
    if (bFirst) {
      sqlite3_snprintf(
          (int)sizeof(pPart->zRole), pPart->zRole, "%s", zRole ? zRole : "");
      pPart->nByte = n;
      pPart->h = hash;
      pPart->zType = typeOf(p, pPart->z, n);
      pPart->eType = eType;
      pPart->bMasked = bMasked;
      pItem->bMasked |= bMasked;
      pItem->nPart = k + 1;
    }
    bSame &= pPart->nByte == n && pPart->h == hash;
    k++;
  }
  if (k != pItem->nPart || !bSame) {
    bxFail(&p->err, SQLITE_ABORT,
        "ChangedError: item %Q of the report was changed while it was "
        "written; read a report to its end before you change what it is of",
        pItem->zKey);
  }
  bxReset(pStmt, &p->err);
}

/* A text of a body, which was masked, as a title. Frees it. */
static void setTitle(ReportRun *p, ReportItem *pItem, char *zOwned) {
  const char *z = zOwned ? zOwned + strspn(zOwned, " \t\r\n") : 0, *zOutput;
  char *zMasked = 0;
  i64 n;
  if (z != 0 && (zOutput = strstr(z, "\nOutput:\n")) != 0 &&
      (strncmp(z, "Command: ", 9) == 0 || strncmp(z, "Chunk ID: ", 10) == 0) &&
      zOutput[9 + strspn(zOutput + 9, " \t\r\n")] != 0) {
    z = zOutput + 9 + strspn(zOutput + 9, " \t\r\n"); /* a head of Codex */
  }
  n = z ? (i64)strlen(z) : 0;
  if (n > 0 && pItem->zTitle == 0) {
    /* an escape in the body may have hidden a key */
    if (bxSecretsMask(&p->masks, z, n, 0, &zMasked, &n, &p->err)) z = zMasked;
    pItem->zTitle = bxReportKeep(p, bxReportPlain(z, n, &p->err));
    if (pItem->zTitle != 0) bxReportFirstLine(pItem->zTitle, REPORT_TITLE);
    sqlite3_free(zMasked);
  }
  sqlite3_free(zOwned);
}

/* The model and the tokens of an exchange, and its cost by blackbox_prices, if they
** have the model. */
static void readUsage(ReportRun *p, ReportItem *pItem, const BxSaid *pSaid) {
  const BxTokens *pTold = &pSaid->tokens;
  const i64 an[USAGE_NUMBERS] = {pTold->nInput, pTold->nCacheRead,
      pTold->nCacheWrite, pTold->nOutput, pTold->nReasoning};
  i64 anKnown[USAGE_NUMBERS];
  BxStmts *pHome;
  double r;
  int i, bTold = 0;
  if (pSaid->zTool != 0) {
    pItem->zModel = bxReportClean(p, pSaid->zTool, pSaid->nTool, 100);
  }
  for (i = 0; i < USAGE_NUMBERS; i++) {
    bTold |= an[i] >= 0;
    anKnown[i] = an[i] < 0 ? 0 : an[i];
    p->usage.an[i] += anKnown[i];
  }
  if (!bTold) return;
  p->usage.bAny = 1;
  pItem->nInput =
      anKnown[USAGE_INPUT] + anKnown[USAGE_READ] + anKnown[USAGE_WRITE];
  pItem->nOutput = anKnown[USAGE_OUTPUT];
  pHome = bxReportNeed(p, "payload");
  if (pHome != 0 && pSaid->zTool != 0 &&
      bxCost(pHome, pSaid->zTool, pSaid->nTool, pItem->iTime, pTold, &r,
          &p->err)) {
    p->usage.bCost = 1;
    p->usage.zSource = "blackbox_prices";
    p->usage.rCost += r;
  }
}

/* Writes the first text whose key is on the list, and that has a character that can be
** seen. */
static void appendSaid(const BxTree *p, sqlite3_str *pOut, BxErr *pErr) {
  static const char zKeys[] =
      "|text|content|message|output|summary|command|title|description|url|"
      "targetText|value|error|result|";
  int i, bFound = 0;
  for (i = 0; i + 1 < p->n && !bFound && pErr->rc == SQLITE_OK; i++) {
    const BxNode *a = &p->a[i];
    char zKey[16], *z;
    if (BX_TREE_KIND(p, i) != '"' || BX_TREE_KIND(p, i + 1) != '"' ||
        *bxJsonSkipSpace(p->z + a->iAt + a->nByte) != ':' || a->nByte > 14) {
      continue;
    }
    sqlite3_snprintf(
        (int)sizeof(zKey), zKey, "|%.*s|", a->nByte - 2, p->z + a->iAt + 1);
    if (strstr(zKeys, zKey) == 0) continue;
    z = nodeText(p, i + 1, pErr);
    bFound = z != 0 && z[strspn(z, " \t\r\n")] != 0 && strcmp(z, "none") != 0;
    if (bFound) sqlite3_str_appendall(pOut, z);
    sqlite3_free(z);
  }
}

/* Writes what the item is called: the types and roles at the top. */
static void appendType(const BxTree *p, sqlite3_str *pOut) {
  int i;
  for (i = 0; i < 2; i++) {
    int iName = firstMember(
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

static void readSaid(void *pArg, const BxSaid *pSaid) {
  ReadItem *pRead = pArg;
  ReportRun *p = pRead->p;
  ReportItem *pItem = pRead->pItem;
  const char *zText = pSaid->zText ? pSaid->zText : "";
  int n = (int)(pSaid->nText < 1000 ? pSaid->nText : 1000);
  sqlite3_uint64 h;
  switch (pSaid->eKind) {
    case BX_SAID_RESULT: callEnds(p, pItem, pSaid); break;
    case BX_SAID_CALL:
      if (!pSaid->bResponse) break;
      sayCall(pRead->pCalls, pSaid, &p->err);
      callBegins(p, pItem, pSaid);
      h = bxHashOf(pSaid->zTool ? pSaid->zTool : "", pSaid->nTool);
      if (pRead->nCall == 0) pItem->hSame = 0;
      pItem->hSame =
          bxHashMix(bxHashMix(pItem->hSame, h), bxHashOf(zText, pSaid->nText));
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
      if (p->zAsked == 0) p->zAsked = bxReportClean(p, zText, pSaid->nText, 0);
  }
}

/* The calls and results in the body of an item. Returns how many calls. */
static int readCalls(ReadItem *pRead, const BxTree *p) {
  static const char zIds[] = "call_id callId callID toolCallId toolUseId id";
  BxErr *pErr = &pRead->p->err;
  int i, iIn, iTool, iText, iId, iFlag, iSkip = -1;
  for (i = 0; i < p->n; i++) {
    BxSaid said = {BX_SAID_CALL, 1, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0}};
    char *zTool, *zText, *zId;
    if (BX_TREE_KIND(p, i) != '{' || i == iSkip) continue;
    iIn = firstMember(p, i, "function functionCall function_call toolUse");
    if (iIn < 0 || BX_TREE_KIND(p, iIn) != '{') iIn = i;
    iTool = firstMember(p, iIn, "name toolName tool");
    iText = iTool < 0 ? -1 : firstMember(p, iIn, "arguments input args action");
    if (iText >= 0 && BX_TREE_KIND(p, iTool) == '"') {
      iSkip = iIn;
      iId = firstMember(p, i, zIds);
      if (iId < 0) iId = firstMember(p, iIn, zIds);
    } else { /* a result, whose call is another item */
      iTool = -1;
      iId = firstMember(
          p, i, "tool_use_id toolUseId tool_call_id toolCallId call_id");
      iText = firstMember(p, i, "output content result response");
      iFlag = firstMember(p, i, "is_error isError");
      if (iId < 0 || (iText < 0 && iFlag < 0)) continue;
      said.eKind = BX_SAID_RESULT;
      said.bError = iFlag >= 0 && BX_TREE_KIND(p, iFlag) == 't';
      iFlag = bxTreeMember(p, i, "status", 6);
      said.bError |= iFlag >= 0 && (bxTreeIs(p, iFlag, "error", 5) ||
                                       bxTreeIs(p, iFlag, "failed", 6));
    }
    said.zTool = zTool = nodeText(p, iTool, pErr);
    said.zText = zText = nodeText(p, iText, pErr);
    said.zId = zId = nodeText(p, iId, pErr);
    said.nTool = lengthOf(zTool);
    said.nText = lengthOf(zText);
    said.nId = lengthOf(zId);
    if (iTool < 0 || zTool != 0) readSaid(pRead, &said);
    if (iTool < 0) pRead->pItem->zRole = "result";
    sqlite3_free(zTool);
    sqlite3_free(zText);
    sqlite3_free(zId);
  }
  return pRead->nCall;
}

/* The title and the type of an item by what is in a body: its calls, or the first text
** in it that people would read: the first string, in the order of the text, whose key
** is on a list. */
static void readTitle(
    ReportRun *p, ReportItem *pItem, const ReportPart *pPart) {
  const char *z = pPart->z;
  i64 n = pPart->nByte;
  int bItem = strcmp(pItem->zKind, "item") == 0;
  ReadItem read = {p, pItem, 0, 0, 0, 0};
  sqlite3_str *pType;
  BxTree tree = {0};
  char *zText, *zType;
  if (strncmp(pPart->zType, "image/", 6) == 0) return;
  if (strcmp(pPart->zType, "application/json") != 0) {
    if (pItem->zTitle == 0) {
      setTitle(p, pItem, bxReportPlain(z, n < 1000 ? n : 1000, &p->err));
    }
    return;
  }
  read.pCalls = sqlite3_str_new(0);
  pType = sqlite3_str_new(0);
  if (bxTreeRead(&tree, z, n, 0, 0, &p->err) != 0) {
    if (readCalls(&read, &tree) == 0) appendSaid(&tree, read.pCalls, &p->err);
    appendType(&tree, pType);
  }
  bxTreeFree(&tree);
  zText = bxStrFinish(read.pCalls, &p->err);
  zType = bxStrFinish(pType, &p->err);
  if (bItem && pItem->zRole == 0) {
    readRole(pItem, zType ? zType : "message", zText != 0);
  }
  if (zType != 0 && pItem->zStatus == 0) {
    pItem->zStatus = bxReportClean(p, zType, (i64)strlen(zType), 100);
  }
  if (zText == 0 && zType != 0) {
    zText = zType;
    zType = 0;
  }
  setTitle(p, pItem, zText);
  sqlite3_free(zType);
}

/* What an exchange is about: what the model called, by which equal calls are found,
** too. If it called nothing, that is what it said, or what it was asked. */
static void readExchangeItem(ReportRun *p, ReportItem *pItem) {
  ReadItem read = {p, pItem, 0, sqlite3_str_new(0), 0, 0};
  const ReportPart none = {0}, *apPart[2] = {&none, &none};
  int i;
  for (i = 0; i < pItem->nPart; i++) {
    apPart[strcmp(pItem->aPart[i].zRole, "response") == 0] = &pItem->aPart[i];
  }
  if (p->pValues == 0) {
    p->pValues = bxPrepareSql(p->bx->db, "SELECT ?1, ?2", &p->err);
  }
  bxBind(p->pValues, &p->err, "bb", apPart[0]->z, apPart[0]->nByte,
      apPart[1]->z, apPart[1]->nByte);
  if (bxReportRow(p, p->pValues)) {
    bxDomainOf(p->bx, "payload")
        ->xExchange(p->bx, sqlite3_column_value(p->pValues, 0),
            sqlite3_column_value(p->pValues, 1), readSaid, &read, &p->err);
  }
  bxReset(p->pValues, &p->err);
  setTitle(p, pItem, bxStrFinish(read.pCalls, &p->err));
  setTitle(p, pItem, read.zAnswer);
  if (apPart[1]->z != 0 && read.nCall == 0) {
    readFailure(p, pItem, apPart[1]->z);
  }
  if (apPart[1]->z != 0 && pItem->zTitle == 0 && p->err.rc == SQLITE_OK) {
    readTitle(p, pItem, apPart[1]);
  }
  setTitle(p, pItem, read.zPrompt);
}

static void readReportItem(ReportRun *p, ReportItem *pItem) {
  const ReportSource *pSource = &p->aSource[pItem->iSource];
  int i;
  bxReportBodies(p, pItem, 1);
  pItem->iBlock = p->nBlock;
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    if (!pItem->bBodies || p->opt.eBodies == REPORT_NONE) continue;
    bxReportPieces(p, pItem, &pItem->aPart[i]);
  }
  p->nInBlock += pItem->nOwn;
  if (p->nInBlock >= REPORT_BLOCK) { /* the next item begins another */
    p->nBlock++;
    p->nInBlock = 0;
  }
  if (strcmp(pItem->zKind, "exchange") == 0 && p->err.rc == SQLITE_OK) {
    readExchangeItem(p, pItem);
  }
  for (i = 0; i < pItem->nPart && p->err.rc == SQLITE_OK; i++) {
    if (pItem->zTitle == 0 || strcmp(pItem->zKind, "item") == 0) {
      readTitle(p, pItem, &pItem->aPart[i]);
    }
  }
  if (pItem->zTitle == 0 && pItem->zType != 0) {
    pItem->zTitle = bxReportPrintf(p, "%s", pItem->zType);
  }
  if (pSource->bProof) bxReportProof(p, pItem);
  bxReportFreeBodies(pItem);
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
                      ? zError
                      : bxReportPrintf(p, "%s \xe2\x86\x92 %s", zTitle, zError);
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
