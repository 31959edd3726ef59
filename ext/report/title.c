/*
** title.c: what an item says, in one line: the first text in its JSON that people
** would read.
**
** An item may be of any program, so that nothing is known of it but the names that
** members commonly have. A call is a name beside arguments. The text of other items
** is the first string, in the order of the text, whose key is on a list.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The value of the first member whose key is on the list, or -1. */
static int memberOf(const BxTree *p, int iNode, const char *const *azName) {
  int i = -1;
  for (; i < 0 && *azName != 0; azName++) {
    i = bxTreeMember(p, iNode, *azName, (int)strlen(*azName));
  }
  return i;
}

static void appendNode(const BxTree *p, int iNode, sqlite3_str *pOut) {
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
  static const char *const azType[] = {
      "type", "eventType", "actionType", "subtype", 0};
  static const char *const azRole[] = {"role", 0};
  int iType = memberOf(p, 0, azType), iRole = memberOf(p, 0, azRole);
  if (iType >= 0 && BX_TREE_KIND(p, iType) == '"') appendNode(p, iType, pOut);
  if (iRole >= 0 && BX_TREE_KIND(p, iRole) == '"') {
    if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, ' ');
    appendNode(p, iRole, pOut);
  }
}

void bxReportTitle(ReportRun *p, const char *z, i64 n, ReportTitle *pOut) {
  sqlite3_str *pText = sqlite3_str_new(0), *pType = sqlite3_str_new(0);
  BxTree tree;
  memset(&tree, 0, sizeof(tree));
  memset(pOut, 0, sizeof(*pOut));
  if (bxTreeRead(&tree, z, n, 0, 0, &p->err) != 0) {
    pOut->bCall = appendCalls(&tree, pText);
    if (!pOut->bCall) appendSaid(&tree, pText);
    appendType(&tree, pType);
  }
  bxTreeFree(&tree);
  pOut->zText = bxFinish(pText, &p->err);
  pOut->zType = bxFinish(pType, &p->err);
}
