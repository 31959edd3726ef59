/*
** title.c: what an item is called, and how it ended: Edit file.go +12 -4, Bash make
** test -> exit 2.
**
** Tools may be those of any program: of their arguments only the names are known that
** members commonly have. The result of a call may come in a later item.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define SAID_BYTES 140 /* of one text in a title */

/* The iAt of a call; with CALL_BEFORE its iBlock is the item of the result. */
enum { CALL_OPEN, CALL_ENDED, CALL_BEFORE };

int bxReportMember(const BxTree *p, int iNode, const char *zNames) {
  int i = -1, n;
  assert(iNode >= 0 && iNode < p->n);
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (; i < 0 && *zNames != 0; zNames += n + (zNames[n] != 0)) {
    n = (int)strcspn(zNames, " ");
    i = bxTreeMember(p, iNode, zNames, n);
  }
  return i;
}

/* The first line of a text that has something, without the rest of a long one. */
void bxReportSay(sqlite3_str *pOut, const char *z, i64 n) {
  const char *zEnd;
  i64 i, nAll;
  while (n > 0 && strchr(" \t\r\n", *z) != 0 && *z != 0) z++, n--;
  nAll = n;
  assert(n >= 0);
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

/* The text of a node, to sqlite3_free(); NULL if it is empty. */
static char *nodeText(const BxTree *p, int iNode, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  if (iNode >= 0 && BX_TREE_KIND(p, iNode) == '"') {
    bxTreeText(p, iNode, pOut);
  } else if (iNode >= 0) {
    sqlite3_str_append(pOut, p->z + p->a[iNode].iAt, p->a[iNode].nByte);
  }
  return bxStrFinish(pOut, pErr);
}

static void sayNode(
    const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr) {
  char *z = nodeText(p, iNode, pErr),
       *zFile = z && *z == '/' ? strrchr(z, '/') : 0;
  if (zFile != 0 && zFile[1] != 0 && z[strcspn(z, " \n")] == 0) { /* a file */
    bxReportSay(pOut, zFile + 1, (i64)strlen(zFile + 1));
  } else if (z != 0) {
    bxReportSay(pOut, z, (i64)strlen(z));
  }
  sqlite3_free(z);
}

/* What people would say of arguments: a command, a file, or a few values. */
static void sayArguments(const BxTree *p, sqlite3_str *pOut, BxErr *pErr) {
  int i = BX_TREE_KIND(p, 0) == '{'
              ? bxReportMember(p, 0,
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

void bxReportSayCall(sqlite3_str *pOut, const char *zTool, i64 nTool,
    const char *zArgs, i64 nArgs, BxErr *pErr) {
  char *zCopy = bxPrintf(pErr, "%.*s", (int)nArgs, zArgs ? zArgs : "");
  const char *z = zCopy ? bxJsonSkipSpace(zCopy) : "";
  sqlite3_str *pArgs = sqlite3_str_new(0);
  BxTree tree;
  memset(&tree, 0, sizeof(tree));
  if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendall(pOut, "; ");
  bxReportSay(pOut, zTool ? zTool : "", zTool ? nTool : 0);
  if ((*z == '{' || *z == '[') &&
      bxTreeRead(&tree, zCopy, (i64)strlen(zCopy), 0, 0, pErr) != 0) {
    sayArguments(&tree, pArgs, pErr);
  } else {
    bxReportSay(pArgs, z, (i64)strlen(z));
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
  BxTree tree;
  memset(&tree, 0, sizeof(tree));
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
      k = bxReportMember(&tree, i, "error message text output stderr content");
      if (k >= 0 && BX_TREE_KIND(&tree, k) != '"') k = -1;
    }
    if (k >= 0) sayNode(&tree, k, pLine, pErr);
  }
  if (k < 0) bxReportSay(pLine, zAt, (i64)strlen(zAt));
  bxTreeFree(&tree);
  z = *pzSaid = bxStrFinish(pLine, pErr);
  if (z == 0) z = "";
  if (iExit > 0) return bxPrintf(pErr, "exit %d", iExit);
  if (sqlite3_strnicmp(z, "error: ", 7) == 0) z += 7;
  return !bError ? 0 : bxPrintf(pErr, *z ? "error: %s" : "error", z);
}

void bxReportFailed(ReportRun *p, ReportItem *pItem, const char *z) {
  const char *zAt = strstr(z, "event: error");
  char *zSaid = 0, *zError;
  if (p->err.rc != SQLITE_OK || pItem->zError != 0) return;
  if (zAt != 0) zAt = strstr(zAt, "{\"");
  zError = outcomeOf(zAt ? zAt : z, 0, &zSaid, &p->err);
  if (zError != 0) {
    pItem->zError = bxReportClean(p, zError, (i64)strlen(zError));
  }
  sqlite3_free(zError);
  sqlite3_free(zSaid);
}

void bxReportCalled(ReportRun *p, ReportItem *pItem, const char *zId, i64 nId) {
  SeenPiece *pCall;
  assert(pItem >= p->aItem && pItem < p->aItem + p->nItem);
  pItem->zRole = "call";
  if (zId == 0 || nId == 0 || p->err.rc != SQLITE_OK) return;
  pCall = bxReportSeen(&p->calls, zId, nId, &p->err);
  if (pCall == 0) return;
  if (pCall->iAt == CALL_BEFORE) { /* files may have the result first */
    ReportItem *pResult = &p->aItem[pCall->iBlock];
    assert(pResult != pItem && pCall->iBlock < p->nItem);
    pItem->hResult = bxHashMix(pItem->hResult, pResult->hResult);
    sqlite3_free(pItem->zSaid);
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

void bxReportEnded(ReportRun *p, ReportItem *pItem, const char *zId, i64 nId,
    const char *zResult, i64 nResult, int bError) {
  SeenPiece *pCall = 0;
  ReportItem *pOf = pItem;
  char *zCopy, *zSaid = 0, *zError;
  if (p->err.rc != SQLITE_OK) return;
  assert(pItem >= p->aItem && pItem < p->aItem + p->nItem);
  if (zId != 0 && nId > 0) pCall = bxReportSeen(&p->calls, zId, nId, &p->err);
  if (pCall != 0 && pCall->iBlock >= 0) pOf = &p->aItem[pCall->iBlock];
  if (pCall == 0 || (pCall->iBlock < 0 && strcmp(pItem->zKind, "item") != 0)) {
    return; /* it belongs to what was before the report */
  }
  if (pCall->iBlock >= 0 && pCall->iAt != CALL_OPEN) return;
  pCall->iAt = pCall->iBlock < 0 ? CALL_BEFORE : CALL_ENDED;
  if (pCall->iBlock < 0) pCall->iBlock = (int)(pItem - p->aItem);
  zCopy = bxPrintf(&p->err, "%.*s", (int)nResult, zResult ? zResult : "");
  if (zCopy == 0) return;
  zError = outcomeOf(zCopy, bError, &zSaid, &p->err);
  pOf->hResult =
      bxHashMix(pOf->hResult, bxHashOf(zCopy, (i64)strlen(zCopy)) | 1);
  sqlite3_free(zCopy);
  if (zError != 0 && pOf->zError == 0) {
    pOf->zError = bxReportClean(p, zError, (i64)strlen(zError));
  }
  if (zSaid != 0 && (pOf->zSaid == 0 || zError != 0)) {
    sqlite3_free(pOf->zSaid);
    pOf->zSaid = bxReportClean(p, zSaid, (i64)strlen(zSaid));
  }
  sqlite3_free(zError);
  sqlite3_free(zSaid);
  if (pOf != pItem && strcmp(pItem->zKind, "item") == 0) {
    pItem->iOther = pOf - p->aItem + 1;
    pOf->iOther = pItem - p->aItem + 1;
  }
}

/* A result of an item whose call is another one. */
static int readResult(
    ReportRun *p, ReportItem *pItem, const BxTree *pTree, int i) {
  int iId = bxReportMember(
          pTree, i, "tool_use_id toolUseId tool_call_id toolCallId call_id"),
      iFlag, bError, iValue;
  char *zId, *zValue;
  if (iId < 0) return 0;
  iValue = bxReportMember(pTree, i, "output content result response");
  iFlag = bxReportMember(pTree, i, "is_error isError");
  if (iValue < 0 && iFlag < 0) return 0;
  bError = iFlag >= 0 && BX_TREE_KIND(pTree, iFlag) == 't';
  iFlag = bxTreeMember(pTree, i, "status", 6);
  bError |= iFlag >= 0 && (bxTreeIs(pTree, iFlag, "error", 5) ||
                              bxTreeIs(pTree, iFlag, "failed", 6));
  zId = nodeText(pTree, iId, &p->err);
  zValue = nodeText(pTree, iValue, &p->err);
  bxReportEnded(p, pItem, zId, zId ? (i64)strlen(zId) : 0, zValue,
      zValue ? (i64)strlen(zValue) : 0, bError);
  sqlite3_free(zId);
  sqlite3_free(zValue);
  pItem->zRole = "result";
  return 1;
}

/* The calls and results in a body. */
int bxReportReadCalls(
    ReportRun *p, ReportItem *pItem, const BxTree *pTree, sqlite3_str *pOut) {
  static const char zIds[] = "call_id callId callID toolCallId toolUseId id";
  int i, iIn, iName, iArgs, iId, iSkip = -1, nCall = 0;
  sqlite3_uint64 h = 0;
  for (i = 0; i < pTree->n; i++) {
    char *zName, *zArgs, *zId;
    if (BX_TREE_KIND(pTree, i) != '{' || i == iSkip) continue;
    iIn =
        bxReportMember(pTree, i, "function functionCall function_call toolUse");
    if (iIn < 0 || BX_TREE_KIND(pTree, iIn) != '{') iIn = i;
    iName = bxReportMember(pTree, iIn, "name toolName tool");
    iArgs = iName < 0
                ? -1
                : bxReportMember(pTree, iIn, "arguments input args action");
    if (iArgs < 0 || BX_TREE_KIND(pTree, iName) != '"') {
      readResult(p, pItem, pTree, i);
      continue;
    }
    iSkip = iIn;
    iId = bxReportMember(pTree, i, zIds);
    if (iId < 0) iId = bxReportMember(pTree, iIn, zIds);
    zName = nodeText(pTree, iName, &p->err);
    zArgs = nodeText(pTree, iArgs, &p->err);
    zId = nodeText(pTree, iId, &p->err);
    if (zName != 0) {
      i64 nArgs = zArgs ? (i64)strlen(zArgs) : 0;
      bxReportSayCall(pOut, zName, (i64)strlen(zName), zArgs, nArgs, &p->err);
      bxReportCalled(p, pItem, zId, zId ? (i64)strlen(zId) : 0);
      h = bxHashMix(h, bxHashOf(zName, (i64)strlen(zName)));
      h = bxHashMix(h, bxHashOf(zArgs ? zArgs : "", nArgs));
      nCall++;
    }
    sqlite3_free(zName);
    sqlite3_free(zArgs);
    sqlite3_free(zId);
  }
  if (nCall > 0) pItem->hSame = h;
  return nCall;
}
