/*
** export_text.c: the steps of a conversation as Markdown, to be read and shared. What
** was said is Markdown already. So that it cannot become more than that, a tag is shown
** as text, an image as a link is not, and code that it opens is closed. Thoughts, calls
** with their results, and what the program put in are folded. Edits are diffs.
*/
#include "export.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Whether a line begins a fence, or with n > 0 ends that of n characters c. Returns how
** many characters the fence has; 0: it is none. CommonMark, 4.5. */
static int isFence(const char *z, const char *zEnd, int n, char c) {
  int nSpace = (int)strspn(z, " "), nFence;
  char zOne[2] = {n > 0 ? c : z[nSpace], 0};
  z += nSpace;
  if (nSpace > 3 || z >= zEnd || (*zOne != '`' && *zOne != '~')) return 0;
  nFence = (int)strspn(z, zOne);
  if (nFence < 3 || nFence < n) return 0;
  for (z += nFence; z < zEnd; z++) {
    if (n > 0 ? *z != ' ' && *z != '\t' : *z == '|' || *z == *zOne) return 0;
  }
  return nFence;
}

/* Where the code ends, in its line, that n backticks before z begin; 0: they begin none.
** (The cells of a table end code as well.) */
static const char *codeEnd(const char *z, const char *zEnd, size_t n) {
  while (z < zEnd && *z != '|') {
    size_t nRun = strspn(z, "`");
    if (nRun == n) return z + n;
    z += nRun > 0 ? nRun : 1;
  }
  return 0;
}

/* Appends a text that is Markdown: < becomes an entity and ![ loses its meaning, but not
** in code. What is code only together with other lines is none: its marks are text. */
static void putSaid(sqlite3_str *pOut, const char *z) {
  int nFence = 0;
  char cFence = 0;
  while (*z != 0) {
    const char *zEnd = z + strcspn(z, "\r\n"), *zCode;
    int n = isFence(z, zEnd, nFence, cFence);
    if (n > 0 && nFence == 0) {
      z += strspn(z, " "); /* so that no item of a list has it */
      cFence = *z;
    }
    if (n > 0 || nFence > 0) {
      if (n > 0) nFence = nFence > 0 ? 0 : n;
      sqlite3_str_append(pOut, z, (int)(zEnd - z));
      z = zEnd;
    }
    while (z < zEnd) {
      size_t nRun = strspn(z, "`");
      if (nRun > 0 && (zCode = codeEnd(z + nRun, zEnd, nRun)) != 0) {
        sqlite3_str_append(pOut, z, (int)(zCode - z));
        z = zCode;
      } else if (nRun > 0 || strncmp(z, "~~~", 3) == 0) {
        for (nRun += nRun == 0 ? strspn(z, "~") : 0; nRun > 0; nRun--)
          sqlite3_str_appendf(pOut, "\\%c", *z++);
      } else if (*z == '\\' && z + 1 < zEnd) {
        sqlite3_str_append(pOut, z, 2);
        z += 2;
      } else {
        const char *zText = *z == '<' ? "&lt;" : "!\\";
        int bText = *z == '<' || (*z == '!' && z[1] == '[');
        sqlite3_str_append(
            pOut, bText ? zText : z, bText ? (int)strlen(zText) : 1);
        z++;
      }
    }
    if (*z != 0) sqlite3_str_append(pOut, z++, 1);
  }
  if (nFence > 0) {
    sqlite3_str_appendchar(pOut, 1, '\n');
    sqlite3_str_appendchar(pOut, nFence, cFence);
  }
  sqlite3_str_appendall(pOut, "\n\n");
}

/* A text on one line, in which nothing is markup: in Markdown, or (bHtml) in the tag of a
** summary, in which Markdown means nothing. */
static void putLine(sqlite3_str *pOut, const char *z, int nMax, int bHtml) {
  int n = 0;
  z += strspn(z, " \t\r\n");
  for (; *z != 0 && *z != '\n' && n < nMax; z++) {
    n += (*z & 0xc0) != 0x80;
    if (strchr("<>&", *z) != 0) {
      sqlite3_str_appendf(pOut, "&#%d;", *z);
    } else if (!bHtml && strchr("\\`*_[]#|!", *z) != 0) {
      sqlite3_str_appendf(pOut, "\\%c", *z);
    } else {
      sqlite3_str_append(pOut, z, 1);
    }
  }
  while ((*z & 0xc0) == 0x80) sqlite3_str_append(pOut, z++, 1);
  if (*z != 0) sqlite3_str_appendall(pOut, " ...");
}

/* A text as code, between fences that are longer than those in it. */
static void putFence(sqlite3_str *pOut, const char *zLanguage, const char *z) {
  const char *zAt = z;
  int nFence = 3;
  while ((zAt = strchr(zAt, '`')) != 0) {
    int n = (int)strspn(zAt, "`");
    if (n >= nFence) nFence = n + 1;
    zAt += n;
  }
  sqlite3_str_appendchar(pOut, nFence, '`');
  sqlite3_str_appendf(pOut, "%s\n%s%s", zLanguage, z,
      *z && z[strlen(z) - 1] != '\n' ? "\n" : "");
  sqlite3_str_appendchar(pOut, nFence, '`');
  sqlite3_str_appendall(pOut, "\n\n");
}

/* Appends n lines with a character before each. Returns what follows them. */
static const char *putLines(
    sqlite3_str *pOut, const char *z, i64 n, char cMark) {
  for (; n > 0; n--) {
    const char *zEnd = z + strcspn(z, "\n");
    sqlite3_str_appendf(pOut, "%c%.*s\n", cMark, (int)(zEnd - z), z);
    z = *zEnd ? zEnd + 1 : zEnd;
  }
  return z;
}

static i64 countLines(const char *z) {
  i64 n = *z != 0;
  for (; *z != 0; z++) n += *z == '\n' && z[1] != 0;
  return n;
}

/* How many lines two texts begin with alike, or with bEnd end with. */
static i64 sameLines(const char *zOld, const char *zNew, i64 nMax, int bEnd) {
  i64 i, n = 0, nOld = (i64)strlen(zOld), nNew = (i64)strlen(zNew), nAlike = 0;
  if (!bEnd) {
    for (i = 0; zOld[i] != 0 && zOld[i] == zNew[i]; i++) n += zOld[i] == '\n';
    return zOld[i] == 0 && zNew[i] == 0 ? nMax : n < nMax ? n : nMax;
  }
  for (i = 1; i <= nOld && i <= nNew && zOld[nOld - i] == zNew[nNew - i]; i++) {
    if (zOld[nOld - i] == '\n' && i > 1) nAlike++;
  }
  return nAlike < nMax ? nAlike : nMax;
}

/* A change as a diff: the lines that stay, go and come. */
static void putDiff(sqlite3_str *pOut, const char *zOld, const char *zNew) {
  i64 nOld = countLines(zOld), nNew = countLines(zNew);
  i64 nMost = nOld < nNew ? nOld : nNew;
  i64 nHead = sameLines(zOld, zNew, nMost, 0);
  i64 nTail = sameLines(zOld, zNew, nMost - nHead, 1);
  sqlite3_str *pDiff = sqlite3_str_new(0);
  char *z;
  assert(nHead + nTail <= nMost);
  zOld = putLines(pDiff, zOld, nHead, ' ');
  zNew = putLines(pDiff, zNew, 0, ' ');
  zOld = putLines(pDiff, zOld, nOld - nHead - nTail, '-');
  for (; nHead > 0; nHead--, nNew--) { /* they stand there already */
    zNew += strcspn(zNew, "\n");
    zNew += *zNew != 0;
  }
  putLines(pDiff, zNew, nNew - nTail, '+');
  putLines(pDiff, zOld, nTail, ' ');
  z = sqlite3_str_finish(pDiff);
  if (z != 0) putFence(pOut, "diff", z);
  sqlite3_free(z);
}

/*----------------------------------------------------------------- calls ----*/

/* The text of the first member that has one of these names, to sqlite3_free(). */
static char *memberText(Transcript *p, int iNode, const char *zNames) {
  const BxTree *pTree = &p->json.tree;
  int n, i;
  for (; *zNames != 0; zNames += n + (zNames[n] != 0)) {
    n = (int)strcspn(zNames, " ");
    i = BX_TREE_KIND(pTree, iNode) == '{'
            ? bxTreeMember(pTree, iNode, zNames, n)
            : -1;
    if (i >= 0 && BX_TREE_KIND(pTree, i) == '"') {
      char *z = bxTreeString(pTree, i, p->pErr);
      if (z != 0) return z;
    }
  }
  return 0;
}

#define OLD_NAMES "old_string oldText old_str oldString search"
#define NEW_NAMES "new_string newText new_str newString replace"

/* The edit that an object describes. Returns whether it does. */
static int putEdit(Transcript *p, int iNode) {
  char *zOld = memberText(p, iNode, OLD_NAMES);
  char *zNew = memberText(p, iNode, NEW_NAMES);
  int bEdit = zOld != 0 && zNew != 0;
  if (bEdit) putDiff(p->pOut, zOld, zNew);
  sqlite3_free(zOld);
  sqlite3_free(zNew);
  return bEdit;
}

/* Reads the arguments of a call into p->json. Returns whether they are an object. */
static int readArgs(Transcript *p, const ExportCall *pCall) {
  return pCall->zArgs != 0 && *pCall->zArgs != 0 && !pCall->bText &&
         bxTreeRead(&p->json.tree, pCall->zArgs, (i64)strlen(pCall->zArgs), 0,
             0, p->pErr) != 0;
}

static void putArguments(Transcript *p, const ExportCall *pCall) {
  const BxTree *pTree = &p->json.tree;
  const char *zArgs = pCall->zArgs ? pCall->zArgs : "";
  char *z = 0;
  int i, nEdit = 0;
  if (readArgs(p, pCall)) {
    int iList = bxTreeMember(pTree, 0, "edits", 5);
    nEdit = putEdit(p, 0);
    if (iList >= 0 && BX_TREE_KIND(pTree, iList) == '[') {
      for (i = iList + 1; i < pTree->a[iList].iNext; i = pTree->a[i].iNext) {
        nEdit += putEdit(p, i);
      }
    }
    z = nEdit ? 0 : memberText(p, 0, "command cmd script input patch");
  }
  if (z != 0) zArgs = z;
  if (nEdit == 0 && *zArgs != 0) {
    int bPatch = strstr(zArgs, "*** Begin Patch") != 0;
    int bJson = z == 0 && !pCall->bText;
    putFence(p->pOut, bPatch ? "diff" : bJson ? "json" : "", zArgs);
  }
  sqlite3_free(z);
}

static void putCall(Transcript *p, const ExportCall *pCall) {
  char *z = 0;
  sqlite3_str_appendall(p->pOut, "<details><summary>");
  putLine(p->pOut, pCall->zName ? pCall->zName : "", 80, 1);
  if (readArgs(p, pCall)) {
    z = memberText(p, 0,
        "file_path filePath path filename command cmd pattern query url "
        "description");
  }
  if (z != 0) {
    sqlite3_str_appendall(p->pOut, ": ");
    putLine(p->pOut, z, 80, 1);
  }
  sqlite3_free(z);
  sqlite3_str_appendall(p->pOut, pCall->bError         ? " (failed)"
                                 : pCall->zResult == 0 ? " (no result)"
                                                       : "");
  sqlite3_str_appendall(p->pOut, "</summary>\n\n");
  putArguments(p, pCall);
  if (pCall->zResult != 0) putFence(p->pOut, "", pCall->zResult);
  sqlite3_str_appendall(p->pOut, "</details>\n\n");
}

static void putFolded(Transcript *p, const char *zTitle, const char *z) {
  if (z == 0) return;
  sqlite3_str_appendf(p->pOut, "<details><summary>%s</summary>\n\n", zTitle);
  putFence(p->pOut, "", z);
  sqlite3_str_appendall(p->pOut, "</details>\n\n");
}

/*----------------------------------------------------------------- whole ----*/

static void putHead(Transcript *p) {
  static const char *const azName[] = {
      "Folder", "Branch", "Version", "Provider", "Model"};
  i64 i, nIn = 0, nOut = 0;
  double rCost = 0.0;
  sqlite3_str_appendall(p->pOut, "# ");
  putLine(p->pOut, p->az[EXPORT_TITLE] ? p->az[EXPORT_TITLE] : p->zId, 120, 0);
  sqlite3_str_appendall(p->pOut, "\n\n- Agent: ");
  putLine(p->pOut, p->az[EXPORT_FORMAT] ? p->az[EXPORT_FORMAT] : "", 80, 0);
  for (i = 0; i < 5; i++) {
    const char *z = p->az[EXPORT_CWD + i];
    if (z == 0 || *z == 0) continue;
    sqlite3_str_appendf(p->pOut, "\n- %s: ", azName[i]);
    putLine(p->pOut, z, 200, 0);
  }
  for (i = 0; i < p->nStep; i++) {
    const ExportStep *a = &p->aStep[i];
    nIn += a->nFresh + a->nWrite + a->nRead;
    nOut += a->nOutput;
    rCost += a->rCost;
  }
  if (nIn + nOut > 0) {
    sqlite3_str_appendf(
        p->pOut, "\n- Tokens: %,lld read, %,lld written", nIn, nOut);
  }
  if (rCost > 0.0) sqlite3_str_appendf(p->pOut, "\n- Cost: $%.4f", rCost);
  sqlite3_str_appendall(p->pOut, "\n\n");
}

void bxExportMarkdown(Transcript *p) {
  static const char *const azTitle[] = {"System", "User", "Agent"};
  i64 i, j;
  int eLast = -1;
  char *z;
  putHead(p);
  putFolded(p, "Prompt of the system", p->az[EXPORT_PROMPT]);
  for (i = 0; i < p->nStep && p->pErr->rc == SQLITE_OK; i++) {
    const ExportStep *a = &p->aStep[i];
    char zIso[25];
    bxIso(a->iTime, zIso);
    if (a->eSource == EXPORT_SYSTEM) {
      putFolded(p, "Put in by the program", a->text.z);
    } else if ((int)a->eSource != eLast || a->eSource == EXPORT_USER) {
      sqlite3_str_appendf(p->pOut, "## %s, %.10s %.5s\n\n", azTitle[a->eSource],
          zIso, zIso + 11);
      eLast = (int)a->eSource;
    }
    putFolded(p, "Thought", a->think.z);
    if (a->text.z != 0 && a->eSource != EXPORT_SYSTEM) {
      putSaid(p->pOut, a->text.z);
    }
    for (j = a->iCall; j < a->iCall + a->nCall; j++) putCall(p, &p->aCall[j]);
    putFolded(p, "Result", a->loose.z);
  }
  /* In Markdown, a NUL is U+FFFD. */
  for (z = sqlite3_str_value(p->pOut); z && (z = strstr(z, EXPORT_NUL));) {
    memcpy(z, "\xef\xbf\xbd", 3);
  }
}
