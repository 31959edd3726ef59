/*
** site.c: blackbox_report_site(folder[, options]): the pages of a file, as files that
** are linked: the overview as index.html, and a page for each agent, kill switch,
** recording, conversation and session of its tables.
**
** A file is named by the kind, at most 40 characters of the key as it is shown, and 24
** digits of the SHA-256 of kind and key. It is written beside its place, and renamed.
** index.html comes last, and after it goes what it no longer leads to: so it never has a
** link to a file that is not there. An index.html of someone else stays: no page is written
** then. A page that would say the same as its file, but for
** the time at which it was made, is not written again.
**
** The report of the database stays open, so all pages are of one moment.
**
** Returns {"written": [names], "unchanged", "removed", "bytes"}.
*/
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* POSIX.1-2008 */
#endif
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SITE_INDEX "index.html"
#define SITE_MARK "<meta name=\"generator\" content=\"blackbox\">"
#define SITE_TEMP ".blackbox-"
#define SITE_HEX 24
#define SITE_SLUG 40
#define HEX_8 "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
#define HEX_24 HEX_8 HEX_8 HEX_8

typedef struct SitePage {
  char zHex[SITE_HEX + 1];
  const char *zLink, *zName; /* kept by the overview */
} SitePage;

struct ReportSite {
  BxCall *pCall;
  const char *zFolder;
  ReportRun *pOverview;
  i64 iMade;
  SitePage *a; /* by zHex */
  i64 n, nAlloc;
  sqlite3_str *pWritten;
  i64 nSame, nGone, nByte;
  BxErr *pErr;
};

/*----------------------------------------------------------------- names ----*/

static void hexOf(const char *zLink, char *zHex) {
  unsigned char aHash[BX_DIGEST];
  bxDigestTwo(zLink, strlen(zLink), "", 0, aHash);
  bxHex(aHash, SITE_HEX / 2, zHex);
  zHex[SITE_HEX] = 0;
}

static int comparePages(const void *pLeft, const void *pRight) {
  return memcmp(((const SitePage *)pLeft)->zHex,
      ((const SitePage *)pRight)->zHex, SITE_HEX);
}

static const SitePage *findPage(const ReportSite *p, const char *zHex) {
  SitePage page;
  memcpy(page.zHex, zHex, SITE_HEX);
  return p->n ? bsearch(&page, p->a, (size_t)p->n, sizeof(page), comparePages)
              : 0;
}

const char *bxReportHref(const ReportRun *p, const char *zLink) {
  char zHex[SITE_HEX + 1];
  const SitePage *pPage;
  if (p->pSite == 0 || zLink == 0) return 0;
  hexOf(zLink, zHex);
  pPage = findPage(p->pSite, zHex);
  return pPage ? pPage->zName : 0;
}

/* Adds the page of a link. Its name has of the key no more than is shown. */
static void addPage(ReportSite *p, const char *zLink) {
  SitePage *a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), p->pErr);
  const char *zKey = strchr(zLink, ':') + 1;
  char *zShown, zSlug[SITE_SLUG + 2] = "-";
  int i, n = 0;
  if (a == 0) return;
  hexOf(zLink, a->zHex);
  a->zLink = zLink;
  zShown = bxReportClean(p->pOverview, zKey, (i64)strlen(zKey), 0);
  for (i = 0; zShown != 0 && zShown[i] != 0 && n < SITE_SLUG; i++) {
    char c = zShown[i];
    if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9')) c = '-';
    if (c != '-' || zSlug[n] != '-') zSlug[++n] = c;
  }
  if (zSlug[n] == '-') n--;
  a->zName = bxReportPrintf(p->pOverview, "%.*s%.*s-%s.html",
      (int)(zKey - 1 - zLink), zLink, n + 1, zSlug, a->zHex);
}

/* Whether this is the name of a page, or of a file that was to become one. */
static int isSiteFile(const char *z) {
  static const char *const azBegin[] = {
      "agent-", "kill_switch-", "rollout-", "evidence-", "session-"};
  size_t i, n;
  if (sqlite3_strglob(SITE_TEMP HEX_24 ".tmp", z) == 0) return 1;
  if (sqlite3_strglob("*" HEX_24 ".html", z) != 0) return 0;
  for (i = 0; i < 5; i++) {
    if (strncmp(z, azBegin[i], strlen(azBegin[i])) != 0) continue;
    z += strlen(azBegin[i]);
    n = strlen(z) - SITE_HEX - 5; /* of the key */
    return n == 0 ||
           (n <= SITE_SLUG + 1 && z[n - 1] == '-' &&
               z[strspn(z, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '.');
  }
  return 0;
}

/*----------------------------------------------------------------- files ----*/

static void failPath(ReportSite *p, const char *zName) {
  bxFail(p->pErr, SQLITE_ERROR,
      "WriteError: %s of the site in %Q cannot be written: %s; give a folder "
      "in which files can be made",
      zName, p->zFolder, strerror(errno));
}

/* An index.html that is not empty must have the mark of a page (write.c). */
static void refuseForeign(ReportSite *p) {
  char *zPath = bxPrintf(p->pErr, "%s/" SITE_INDEX, p->zFolder);
  FILE *pFile = zPath ? fopen(zPath, "rb") : 0;
  char aHead[256] = "";
  if (pFile != 0) {
    size_t n = fread(aHead, 1, sizeof(aHead) - 1, pFile);
    if ((n > 0 || ferror(pFile)) && strstr(aHead, SITE_MARK) == 0) {
      bxFail(p->pErr, SQLITE_ERROR,
          "WriteError: the folder %Q has an " SITE_INDEX " that is not of "
          "a site of blackbox; give another folder, or remove the file",
          p->zFolder);
    }
    fclose(pFile);
  }
  sqlite3_free(zPath);
}

/* From the beginning, as a page that was made then. */
static void rewindPage(ReportRun *p, i64 iMade) {
  sqlite3_str_reset(p->pOut);
  p->ePhase = 0;
  p->iNext = 0;
  p->iMade = iMade;
}

/* When a file says that it was made; -1 if it does not. What was recorded has no such
** text, because a quote is an escape in it. */
static i64 pageMade(FILE *pFile) {
  static const char zMade[] = ",\"made\":";
  int c, n = 0;
  long long i = -1;
  while (zMade[n] != 0 && (c = getc(pFile)) != EOF) {
    n = c == zMade[n] ? n + 1 : c == zMade[0];
  }
  return zMade[n] == 0 && fscanf(pFile, "%13lld", &i) == 1 ? i : -1;
}

/* Whether a file is the page, but for the time. */
static int isWritten(ReportRun *pPage, const char *zPath) {
  FILE *pFile = fopen(zPath, "rb");
  char aRoom[4096];
  i64 iMade = pFile ? pageMade(pFile) : -1, i, n;
  int bSame = iMade >= 0 && fseek(pFile, 0, SEEK_SET) == 0;
  rewindPage(pPage, iMade);
  while (bSame && bxReportNext(pPage)) {
    const char *z = sqlite3_str_value(pPage->pOut);
    i64 nAll = sqlite3_str_length(pPage->pOut);
    for (i = 0; i < nAll && bSame; i += n) {
      n = nAll - i < (i64)sizeof(aRoom) ? nAll - i : (i64)sizeof(aRoom);
      bSame = fread(aRoom, 1, (size_t)n, pFile) == (size_t)n &&
              memcmp(aRoom, z + i, (size_t)n) == 0;
    }
    sqlite3_str_reset(pPage->pOut);
  }
  bSame = bSame && getc(pFile) == EOF;
  if (pFile != 0) fclose(pFile);
  return bSame;
}

/* Writes a page, unless it is there. */
static void putPage(ReportSite *p, ReportRun *pPage, const char *zName) {
  char *zPath = bxPrintf(p->pErr, "%s/%s", p->zFolder, zName), *zTemp = 0;
  sqlite3_uint64 a[2] = {0, 0};
  FILE *pFile = 0;
  int bOk = 0;
  if (zPath == 0) return;
  if (isWritten(pPage, zPath)) {
    p->nSame++;
    sqlite3_free(zPath);
    return;
  }
  sqlite3_randomness(SITE_HEX / 2, a);
  zTemp = bxPrintf(p->pErr, "%s/" SITE_TEMP "%016llx%08llx.tmp", p->zFolder,
      a[0], a[1] & 0xffffffff);
  rewindPage(pPage, p->iMade);
  if (zTemp != 0 && pPage->err.rc == SQLITE_OK) pFile = fopen(zTemp, "wbx");
  while (pFile != 0 && bxReportNext(pPage)) {
    size_t n = (size_t)sqlite3_str_length(pPage->pOut);
    if (n > 0 && fwrite(sqlite3_str_value(pPage->pOut), 1, n, pFile) != n) {
      break;
    }
    p->nByte += (i64)n;
    sqlite3_str_reset(pPage->pOut);
  }
  bxErrMove(p->pErr, &pPage->err);
  if (pFile != 0) {
    bOk = !ferror(pFile);
    bOk = fclose(pFile) == 0 && bOk && p->pErr->rc == SQLITE_OK &&
          rename(zTemp, zPath) == 0;
  }
  if (!bOk) failPath(p, zName);
  if (!bOk && pFile != 0) unlink(zTemp);
  sqlite3_str_appendf(p->pWritten, "%s\"%s\"",
      sqlite3_str_length(p->pWritten) ? "," : "", zName);
  sqlite3_free(zTemp);
  sqlite3_free(zPath);
}

/* Removes the pages that nothing leads to. */
static void sweepPages(ReportSite *p) {
  DIR *pDir = opendir(p->zFolder);
  const struct dirent *pEntry;
  while (
      pDir != 0 && p->pErr->rc == SQLITE_OK && (pEntry = readdir(pDir)) != 0) {
    const char *z = pEntry->d_name;
    const SitePage *pPage;
    char *zPath;
    if (!isSiteFile(z)) continue;
    pPage = findPage(p, strrchr(z, '.') - SITE_HEX);
    if (pPage != 0 && strcmp(pPage->zName, z) == 0) continue;
    zPath = bxPrintf(p->pErr, "%s/%s", p->zFolder, z);
    if (zPath != 0 && unlink(zPath) == 0) p->nGone++;
    sqlite3_free(zPath);
  }
  if (pDir != 0) closedir(pDir);
}

/*------------------------------------------------------------------ site ----*/

/* The pages to which the overview leads. Its first table, of what is wrong, only repeats
** links. */
static void findPages(ReportSite *p) {
  ReportRun *pOverview = p->pOverview;
  i64 i;
  int k;
  for (k = 1; k < pOverview->nTable; k++) {
    const ReportTable *pTable = &pOverview->aTable[k];
    for (i = 0; i < pTable->nLink && p->pErr->rc == SQLITE_OK; i++) {
      if (pTable->azLink[i] != 0) addPage(p, pTable->azLink[i]);
    }
  }
  bxErrMove(p->pErr, &pOverview->err);
  if (p->n > 0) qsort(p->a, (size_t)p->n, sizeof(*p->a), comparePages);
}

static void writeSite(ReportSite *p, BxStmts *pHome, sqlite3_value *pOptions) {
  Bx *bx = p->pCall->bx;
  sqlite3_stmt *pStmt = bxPrepareSql(bx->db,
      "SELECT 'database', ?1 UNION ALL SELECT substr(?2, 1, instr(?2, ':') - "
      "1),"
      " substr(?2, instr(?2, ':') + 1) WHERE ?2 IS NOT NULL",
      p->pErr);
  i64 i;
  bxBind(pStmt, p->pErr, "t", pHome->zDb);
  if (pStmt == 0 || !bxStep(pStmt, p->pErr)) {
    sqlite3_finalize(pStmt);
    return;
  }
  p->pOverview = bxReportOpen(bx, sqlite3_column_value(pStmt, 0),
      sqlite3_column_value(pStmt, 1), pOptions, p->pErr);
  if (p->pOverview != 0 && p->pOverview->opt.eFormat != REPORT_HTML) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "ValidationError: a site is HTML; omit the option format");
  }
  if (p->pErr->rc == SQLITE_OK) {
    p->iMade = p->pOverview->iMade;
    findPages(p);
  }
  if (p->pErr->rc == SQLITE_OK && mkdir(p->zFolder, 0777) != 0 &&
      errno != EEXIST) {
    failPath(p, SITE_INDEX);
  }
  refuseForeign(p);
  for (i = 0; i < p->n && p->pErr->rc == SQLITE_OK; i++) {
    ReportRun *pPage = 0;
    bxReset(pStmt, p->pErr);
    bxBind(pStmt, p->pErr, "tt", pHome->zDb, p->a[i].zLink);
    if (bxStep(pStmt, p->pErr) && bxStep(pStmt, p->pErr)) {
      pPage = bxReportOpen(bx, sqlite3_column_value(pStmt, 0),
          sqlite3_column_value(pStmt, 1), pOptions, p->pErr);
    }
    if (pPage == 0) continue;
    pPage->pSite = p;
    putPage(p, pPage, p->a[i].zName);
    bxErrMove(p->pErr, &pPage->err);
    bxReportClose(pPage);
  }
  sqlite3_finalize(pStmt);
  if (p->pErr->rc != SQLITE_OK) return;
  p->pOverview->pSite = p;
  putPage(p, p->pOverview, SITE_INDEX);
  bxErrMove(p->pErr, &p->pOverview->err);
  sweepPages(p);
}

/* Who may only read, such as a server of SQL, makes no files either. */
static void refuseReader(BxCall *p, BxStmts *pHome) {
  if (pHome == 0 ||
      (sqlite3_db_readonly(p->bx->db, pHome->zDb) != 1 &&
          !bxQueryIntOnce(pHome, "PRAGMA query_only", &p->err, ""))) {
    return;
  }
  bxFail(&p->err, SQLITE_READONLY,
      "MisuseError: blackbox_report_site() writes files, and this connection "
      "only reads; open the file for writing, or write what "
      "blackbox_report_lines() returns");
}

void bxReportSite(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  ReportSite site = {0};
  site.pCall = p;
  site.pErr = &p->err;
  site.zFolder = bxText(p->aArg[0], "folder", 4000, 0, &p->err);
  site.pWritten = sqlite3_str_new(p->bx->db);
  refuseReader(p, pHome);
  if (p->err.rc == SQLITE_OK && site.zFolder != 0) {
    writeSite(&site, pHome, bxArg(p, 1));
  }
  bxReportClose(site.pOverview);
  sqlite3_free(site.a);
  bxFail(&p->err, sqlite3_str_errcode(site.pWritten), "out of memory");
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p,
        bxPrintf(&p->err,
            "{\"written\":[%s],\"unchanged\":%lld,\"removed\":%lld,"
            "\"bytes\":%lld}",
            sqlite3_str_length(site.pWritten) ? sqlite3_str_value(site.pWritten)
                                              : "",
            site.nSame, site.nGone, site.nByte));
  }
  sqlite3_free(sqlite3_str_finish(site.pWritten));
}
