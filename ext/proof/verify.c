/*
** verify.c: proof_verify([head]), and what blackbox_check() lists about the log.
**
** Leaves, rows of the log and folded ranges are read side by side, once, in their order:
**
**   row and leaf         the row is hashed again and compared with its leaf
**   leaf without row     the row must be folded
**   row without leaf     it waits for its leaf
**   neither              both must be folded; a node stands for them
**
** The tree is built again and compared with the nodes and the frontier. The folded
** leaves must be as many as the sums say.
**
** While a pin is in force, the row that it pins is a part of its leaf. When the pin has
** ended, the leaf cannot be computed again, and counts as it is. A pin is in force until
** the log unpins the same subject. Until then the domain must have it in its table of
** pins.
**
** With a head, the tree of the head must be the beginning of the log, and only the
** leaves after it are read.
*/
#include "proof.h"
#include "../core/install.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

#define NONE ((i64)1 << 62)

/* A statement whose first column is a number that grows. */
typedef struct Cursor {
  sqlite3_stmt *pStmt;
  i64 i; /* that number; NONE at the end */
} Cursor;

typedef struct Verify {
  BxStmts *p;
  BxLog log;
  Frontier tree; /* built again */
  int bBroken;   /* it is known to differ */
  i64 iFrom;     /* the first leaf that is read */
  Cursor leaves, rows, folded;
  Cursor *aPinned;   /* of each domain: the rows that are pinned */
  i64 iFoldEnd;      /* of the range that folded is on */
  i64 nKept;         /* rows that are no receipts, up to here */
  i64 nGone;         /* rows since then that were removed, and told */
  i64 iRepairs;      /* repairs are told from this time on */
  i64 iNewest;       /* time of a row so far, but not after the clock */
  sqlite3_str *pOut; /* JSON: [leaf, kind, key, problem], ... */
  i64 nProblem;
  i64 nPin; /* pins in force whose rows of the log were read */
  BxErr *pErr;
} Verify;

/*------------------------------------------------------------- problems ----*/

/* iLeaf: -1 if there is none. n: of the row of the log, 0 if it is about none. */
static void tellProblem(Verify *p, i64 iLeaf, i64 n, const char *zFormat, ...) {
  static const char zKind[] = "SELECT json_quote(coalesce(kind, 'removal')) "
                              "FROM main.blackbox__log WHERE n = ?1";
  char *zQuoted, *zWhat;
  va_list ap;
  if (p->pErr->rc != SQLITE_OK || p->nProblem++ >= BX_MAX_PROBLEMS) return;
  va_start(ap, zFormat);
  zWhat = bxCheckMem(sqlite3_vmprintf(zFormat, ap), p->pErr);
  va_end(ap);
  zQuoted = bxQueryText(p->p, zKind, p->pErr, "i", n);
  sqlite3_str_appendall(p->pOut, p->nProblem > 1 ? ",[" : "[[");
  sqlite3_str_appendf(p->pOut, iLeaf >= 0 ? "%lld," : "null,", iLeaf);
  sqlite3_str_appendf(p->pOut, "%s,", zQuoted ? zQuoted : "null");
  sqlite3_str_appendf(p->pOut, n != 0 ? "%lld," : "null,", n);
  if (zWhat != 0) bxJsonAppend(p->pOut, zWhat, (int)strlen(zWhat));
  sqlite3_str_appendchar(p->pOut, 1, ']');
  sqlite3_free(zQuoted);
  sqlite3_free(zWhat);
}

/*----------------------------------------------------------------- tree ----*/

static void step(Verify *p, Cursor *pCursor) {
  int bRow = pCursor->pStmt != 0 && bxStep(pCursor->pStmt, p->pErr);
  pCursor->i = bRow ? sqlite3_column_int64(pCursor->pStmt, 0) : NONE;
}

static void startCursor(
    Verify *p, Cursor *pCursor, const char *zSql, i64 iFrom) {
  pCursor->pStmt = bxPrepare(p->p, zSql, p->pErr);
  bxBind(pCursor->pStmt, p->pErr, "i", iFrom);
  step(p, pCursor);
}

/* The last leaf of the range that the cursor is on says how many rows up to it are no
** receipts: none of the range may be one. And it must be old. */
static void verifyRange(Verify *p) {
  static const char zLast[] =
      "SELECT last + 1, coalesce(salt, (SELECT secret FROM "
      "main.blackbox__tree)),"
      " actor, NULL, at, bytes, detail, domain, NULL, NULL, NULL, newest,"
      " oldest, reason, rows, subject FROM main.blackbox__folded"
      " WHERE first = ?1";
  BxErr err = {SQLITE_OK, 0};
  MerkleHash stored;
  BxLeaf leaf;
  i64 nKept = sqlite3_column_int64(p->folded.pStmt, 2);
  i64 nMore = nKept - p->nKept;
  sqlite3_stmt *pRow = bxStmt(p->p, zLast, p->pErr);
  p->log.tree.xGet(&p->log.tree, 0, p->iFoldEnd, &stored, &err);
  if (err.rc == SQLITE_CORRUPT_VTAB) bxErrClear(&err);
  bxErrMove(p->pErr, &err);
  bxBind(pRow, p->pErr, "i", p->folded.i);
  if (!bxStep(pRow, p->pErr)) return;
  bxLogLeaf(p->p, pRow, 0, &leaf, p->pErr);
  if (!bxLogIsLeaf(p->p, &leaf, &stored, p->pErr)) {
    tellProblem(p, p->iFoldEnd, 0,
        "is not what blackbox__folded has of the last leaf of its range");
  } else if (nMore < 0 || nMore > p->nGone) {
    tellProblem(p, p->iFoldEnd, 0,
        "of the leaves from %lld to this one, %lld were of rows that are "
        "no receipts: they were removed as if they were folded",
        p->folded.i, nMore);
  } else if (sqlite3_column_int64(pRow, BX_LOG_AT) > p->iRepairs) {
    tellProblem(p, p->iFoldEnd, 0,
        "was removed as if it were folded, and is not 30 days old");
  }
  bxReset(pRow, p->pErr);
  p->nKept = nKept;
  p->nGone = 0;
}

/* What is pinned is read in the order of the log: a look-up for each pin would read
** each page of its indexes many times. */
static void startPinned(Verify *p) {
  const Bx *bx = p->p->bx;
  int i;
  p->aPinned = bxZalloc((size_t)bx->nDomain * sizeof(Cursor), p->pErr);
  for (i = 0; p->aPinned != 0 && i < bx->nDomain; i++) {
    BxErr err = {SQLITE_OK, 0};
    Cursor *pAt = &p->aPinned[i];
    if (bx->aDomain[i].zAllLogged != 0) {
      pAt->pStmt = bxPrepare(p->p, bx->aDomain[i].zAllLogged, &err);
      bxBind(pAt->pStmt, &err, "i", p->iFrom);
    }
    bxErrMoveBut(p->pErr, &err, "no such table");
    step(p, pAt);
  }
}

/* Whether two statements have the same text there. */
static int isSame(sqlite3_stmt *p, int i, sqlite3_stmt *pOther, int iOther) {
  const void *a = sqlite3_column_text(p, i);
  const void *b = sqlite3_column_text(pOther, iOther);
  int n = sqlite3_column_bytes(p, i);
  return a != 0 && b != 0 && n == sqlite3_column_bytes(pOther, iOther) &&
         memcmp(a, b, (size_t)n) == 0;
}

/* Whether leaf i is in a folded range. */
static int isInFold(Verify *p, i64 i) {
  while (p->folded.i != NONE && p->iFoldEnd < i) {
    verifyRange(p);
    step(p, &p->folded);
    p->iFoldEnd = sqlite3_column_int64(p->folded.pStmt, 1);
  }
  return p->folded.i <= i && i <= p->iFoldEnd;
}

/* Compares a subtree with the one that is stored. */
static void compareNode(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash) {
  static const char zSame[] = "SELECT hash IS ?2 FROM main.blackbox__leaves"
                              " WHERE leaf = ?1";
  Verify *p = (Verify *)pArg;
  if (nHeight % BX_LOG_LEVEL != 0 || p->bBroken ||
      bxQueryInt(p->p, zSame, p->pErr, "ix", bxLogNodeKey(nHeight, iIndex),
          pHash->a, (i64)BX_DIGEST)) {
    return;
  }
  p->bBroken = 1;
  tellProblem(p, iIndex << nHeight, 0,
      "the leaves from this one to %lld do not have the hash that is "
      "stored for them: a leaf or the node was altered, exchanged or removed",
      ((iIndex + 1) << nHeight) - 1);
}

/* Leaf i is not there. If it is folded, adds the largest subtree without leaves that
** begins with it and is kept. Returns the leaf after what is missing. */
static i64 skipLeaves(Verify *p, i64 i) {
  int nHeight = BX_LOG_LEVEL;
  i64 iNext;
  assert(i >= p->iFrom && i < p->log.now.n && p->leaves.i > i);
  while (nHeight > 0 && i & (((i64)1 << nHeight) - 1)) nHeight--;
  for (; isInFold(p, i) && nHeight >= 0; nHeight--) {
    BxErr err = {SQLITE_OK, 0};
    MerkleHash hash;
    iNext = i + ((i64)1 << nHeight);
    if (iNext - 1 > p->iFoldEnd || iNext > p->leaves.i) continue;
    p->log.tree.xGet(&p->log.tree, nHeight, i >> nHeight, &hash, &err);
    if (err.rc == SQLITE_OK) {
      if (!p->bBroken) {
        bxFrontierAddTree(&p->tree, nHeight, &hash, compareNode, p);
      }
      return iNext;
    }
    if (err.rc == SQLITE_CORRUPT_VTAB) bxErrClear(&err);
    bxErrMove(p->pErr, &err);
  }
  iNext = p->leaves.i < p->log.now.n ? p->leaves.i : p->log.now.n;
  p->nGone += iNext - i;
  tellProblem(p, i, 0,
      iNext > i + 1 ? "the leaves from this one to %lld are missing"
                    : "the leaf is missing",
      iNext - 1);
  p->bBroken = 1;
  return iNext;
}

/*----------------------------------------------------------------- rows ----*/

typedef enum PinEnd { END_NONE, END_UNPIN, END_PIN, END_LATE } PinEnd;
/* What ends, by the log, the pin that the cursor is on: an unpin that names it, and
** who did it and why; or that the row got a late response, after which another pin has
** what it is now. */
static PinEnd endOfPin(Verify *p) {
  static const char zNext[] =
      "SELECT CASE WHEN kind = 'pin' THEN 2"
      "  WHEN detail IS NOT '{\"pin\":' || ?3 || '}' THEN 0"
      "  WHEN kind = 'unpin' THEN " BX_LOG_SIGNED(
          "l") "  ELSE 3 * EXISTS (SELECT 1 FROM main.blackbox__log AS p"
               "   WHERE p.subject = ?1 AND p.domain = ?2 AND p.n > l.n"
               "   AND p.kind = 'pin') END"
               " FROM main.blackbox__log AS l WHERE subject = ?1 AND domain = "
               "?2 AND n > ?3 AND kind IN ('pin', 'unpin', 'complete') ORDER "
               "BY n LIMIT 1";
  sqlite3_stmt *pRow = p->rows.pStmt;
  return (PinEnd)bxQueryInt(p->p, zNext, p->pErr, "vti",
      sqlite3_column_value(pRow, BX_LOG_SUBJECT),
      bxColumnText(pRow, BX_LOG_DOMAIN, p->pErr), p->rows.i);
}

/* Whether the row that the cursor of rows pinned is what it was then, but for the late
** response, and a meta if there was none. (If it is not pinned any more nobody knows.) */
static int isButLate(Verify *p, const MerkleHash *pStored) {
  const BxDomain *pDomain = bxLogPins(p->p, p->rows.pStmt, p->pErr);
  sqlite3_stmt *pRow = bxStmt(p->p, pDomain->zLate, p->pErr);
  int bSame = 0, bThere = 0;
  bxBind(pRow, p->pErr, "iv", p->rows.i,
      sqlite3_column_value(p->rows.pStmt, BX_LOG_SUBJECT));
  while (!bSame && bxStep(pRow, p->pErr)) {
    BxLeaf leaf;
    bxLogLeaf(p->p, p->rows.pStmt, pRow, &leaf, p->pErr);
    bSame = bxLogIsLeaf(p->p, &leaf, pStored, p->pErr);
    bThere = 1;
  }
  bxReset(pRow, p->pErr);
  return bSame || !bThere;
}

/* The statement that is on the row that the cursor of rows pins. NULL if none is: the
** leaf looks itself. */
static sqlite3_stmt *pinnedBy(Verify *p) {
  const BxDomain *pDomain = bxLogPins(p->p, p->rows.pStmt, p->pErr);
  Cursor *pAt;
  if (pDomain == 0) return 0;
  pAt = &p->aPinned[pDomain - p->p->bx->aDomain];
  while (pAt->i < p->rows.i) step(p, pAt);
  return pAt->i == p->rows.i &&
                 isSame(p->rows.pStmt, BX_LOG_SUBJECT, pAt->pStmt, 1)
             ? pAt->pStmt
             : 0;
}

#define REPAIR_DAYS 30 /* so long a repair is told */

/* A row that tells of a repair. Later the log has it, and nobody is warned. (One is as
** new as the rows before it: a trigger may have set its time back.) */
static void verifyRepair(Verify *p, i64 iLeaf) {
  sqlite3_stmt *pRow = p->rows.pStmt;
  const char *zKind = bxColumnText(pRow, BX_LOG_KIND, p->pErr);
  i64 iAt = sqlite3_column_int64(pRow, BX_LOG_AT);
  if (iAt > p->iNewest &&
      iAt <= p->iRepairs + REPAIR_DAYS * (i64)BX_MS_PER_DAY) {
    p->iNewest = iAt;
  }
  if (zKind == 0 || strcmp(zKind, "repair") != 0 || p->iNewest < p->iRepairs) {
    return;
  }
  tellProblem(p, iLeaf, p->rows.i,
      "%s had been damaged when this row was written, and the log went on "
      "after it: %s",
      bxColumnText(pRow, BX_LOG_SUBJECT, p->pErr),
      bxColumnText(pRow, BX_LOG_DETAIL, p->pErr));
}

/* The row that the cursor is on has this leaf. */
static void verifyRow(Verify *p, i64 iLeaf, const MerkleHash *pStored) {
  BxLeaf leaf;
  MerkleHash hash;
  PinEnd eEnd;
  i64 nKept = sqlite3_column_int64(p->leaves.pStmt, 2), nMore;
  int bSame;
  assert(p->leaves.i == iLeaf && p->rows.i == iLeaf + 1);
  bxLogLeaf(p->p, p->rows.pStmt, pinnedBy(p), &leaf, p->pErr);
  if (leaf.ePin == BX_NO_PIN) verifyRepair(p, iLeaf);
  if (p->pErr->rc != SQLITE_OK) return;
  hash = bxLogLeafHash(leaf.n, nKept, &leaf.fields);
  bSame = memcmp(hash.a, pStored->a, BX_DIGEST) == 0;
  nMore = nKept - p->nKept - leaf.bKept;
  if (bSame && (nMore < 0 || nMore > p->nGone)) {
    tellProblem(p, iLeaf, leaf.n,
        "does not count the rows before it that are no receipts: some were "
        "removed, or one of their leaves is another");
  }
  p->nKept = nKept;
  p->nGone = 0;
  switch (leaf.ePin) {
    case BX_PIN_UNKNOWN: break;
    case BX_PIN_ENDED:
      eEnd = endOfPin(p);
      if (eEnd == END_NONE) {
        tellProblem(p, iLeaf, leaf.n,
            "the row that it pins is missing, or not pinned any more, and no "
            "row of the log unpins it");
      } else if (eEnd == END_PIN) {
        tellProblem(p, iLeaf, leaf.n,
            "the pin was lost, and made anew: no row of the log unpins it");
      } else if (eEnd == END_LATE && !bSame && !isButLate(p, pStored)) {
        tellProblem(p, iLeaf, leaf.n,
            "was altered: the row that it pinned has more than a late response "
            "now");
      }
      break;
    case BX_PIN_HERE:
      p->nPin++;
      if (!bSame) {
        tellProblem(p, iLeaf, leaf.n,
            "was altered: the row that it pins, or this row of the log, is not "
            "what the leaf says");
      }
      break;
    default:
      if (!bSame) {
        tellProblem(p, iLeaf, leaf.n,
            "was altered: the row, its salt, or the leaf is another");
      }
  }
}

/* The rows and leaves before leaf i were passed over. */
static void reach(Verify *p, i64 i) {
  while (p->leaves.i < i) {
    tellProblem(p, p->leaves.i < 0 ? -1 : p->leaves.i, 0,
        "there is a leaf where none must be");
    step(p, &p->leaves);
  }
  while (p->rows.i <= i && p->rows.i != NONE) {
    if (isInFold(p, p->rows.i - 1)) {
      tellProblem(p, p->rows.i - 1, p->rows.i,
          "is there, though blackbox__folded says that it was folded");
    }
    step(p, &p->rows);
  }
}

static void verifyLeaves(Verify *p) {
  i64 i = p->iFrom;
  while (i < p->log.now.n && p->pErr->rc == SQLITE_OK) {
    MerkleHash hash;
    assert(p->bBroken || p->tree.n == i); /* all leaves before it are in it */
    reach(p, i);
    if (p->leaves.i != i) {
      i = skipLeaves(p, i);
      continue;
    }
    if (!bxLogReadHash(p->leaves.pStmt, 1, &hash)) {
      tellProblem(p, i, 0, "the leaf is damaged");
      p->bBroken = 1;
    }
    if (!p->bBroken) bxFrontierAdd(&p->tree, &hash, compareNode, p);
    if (p->rows.i == i + 1 && !isInFold(p, i)) {
      verifyRow(p, i, &hash);
      step(p, &p->rows);
    } else if (p->rows.i != i + 1 && !isInFold(p, i)) {
      tellProblem(
          p, i, i + 1, "was removed, and no sum of receipts stands for it");
      p->nGone++;
    }
    step(p, &p->leaves);
    i++;
  }
  reach(p, p->log.now.n);
  isInFold(p, p->log.now.n);
  if (p->leaves.i != NONE) {
    tellProblem(p, p->leaves.i, 0,
        "is beyond the size of the tree, which was set back, or was not "
        "written by the module");
  }
  if (!p->bBroken && memcmp(p->tree.a, p->log.now.a,
                         (size_t)p->log.now.nHash * BX_DIGEST) != 0) {
    tellProblem(p, p->log.now.n & ~(i64)(BX_LOG_TILE - 1), 0,
        "the leaves from this one on do not have the root that is stored: a "
        "leaf or the root was altered, or leaves were exchanged");
  }
}

/* What blackbox__erased has must be what rows of the log erased: else somebody blanked
** a field, and made its hash from the salt of the row. After these rows comes the record
** of the erasure, which says by whom and why. Of a row that has digests of what a hold
** keeps only the names of the exchange are erased. */
static const char zUnnamed[] =
    "SELECT DISTINCT e.n - 1, e.n FROM main.blackbox__erased AS e"
    " WHERE e.n > ?1 AND (NOT EXISTS"
    " (SELECT 1 FROM main.blackbox__log AS l WHERE l.subject = 'row:' || e.n"
    "  AND l.kind = 'erasure' AND l.domain = 'core' AND l.n > e.n"
    "  AND (e.hash IS NULL OR e.name IN ('actor', 'agent_id',"
    "   'detail', 'event_id', 'kill_switch_event_id', 'reason', 'subject')"
    "   AND instr(l.detail, json_quote(e.name)) > 0)"
    "  AND (SELECT " BX_LOG_SIGNED(
        "r") " FROM main.blackbox__log AS r WHERE r.n > l.n"
             "   AND r.kind = 'erasure' AND r.domain = 'retention' ORDER BY r.n"
             "   LIMIT 1)) OR EXISTS (SELECT 1 FROM main.blackbox__log AS h "
             "WHERE h.n = e.n  AND h.kind = 'held' AND e.hash IS NOT NULL  AND "
             "e.name NOT IN ('agent_id', 'event_id', 'subject')))";

/* The last row of a range must be a part of a sum. */
static const char zNoSum[] =
    "SELECT last, 0 FROM main.blackbox__folded AS f WHERE ?1 = 0 AND NOT "
    "EXISTS (SELECT 1"
    " FROM main.blackbox__log AS s WHERE s.kind IS NULL"
    "  AND s.subject = coalesce(f.subject, f.detail)"
    "  AND s.at = f.at / 86400000 * 86400000 + 86399999"
    "  AND coalesce(s.rows, 0) >= coalesce(f.rows, 0)"
    "  AND coalesce(s.bytes, 0) >= coalesce(f.bytes, 0))";

/* A query returns leaves, and numbers of rows or 0. ?1: rows after this one. */
static void tellEach(Verify *p, const char *zQuery, const char *zWhat) {
  sqlite3_stmt *pStmt = bxPrepare(p->p, zQuery, p->pErr);
  bxBind(pStmt, p->pErr, "i", p->iFrom);
  while (bxStep(pStmt, p->pErr)) {
    i64 i = sqlite3_column_int64(pStmt, 0);
    tellProblem(
        p, i < p->log.now.n ? i : -1, sqlite3_column_int64(pStmt, 1), zWhat);
  }
  sqlite3_finalize(pStmt);
}

/* What does not stand beside a leaf: nodes and sums. */
static void verifyRest(Verify *p) {
  static const char zNodes[] =
      "SELECT count(*) FROM main.blackbox__leaves WHERE leaf <= -(1 << 48)";
  static const char zFolded[] =
      "SELECT (SELECT total(last - first + 1) FROM main.blackbox__folded)"
      " - (SELECT total(detail ->> '$.leaves') FROM main.blackbox__log"
      "  WHERE kind IS NULL AND subject IS NOT NULL AND json_valid(detail))";
  i64 n = bxQueryInt(p->p, zNodes, p->pErr, ""), k;
  for (k = p->log.now.n >> BX_LOG_LEVEL; k > 0; k >>= BX_LOG_LEVEL) n -= k;
  if (n != 0) {
    tellProblem(
        p, -1, 0, "blackbox__leaves has more or fewer nodes than the tree");
  }
  n = bxQueryInt(p->p, zFolded, p->pErr, "");
  if (n != 0) {
    tellProblem(p, -1, 0,
        "blackbox__folded has %lld leaves %s than the sums of receipts "
        "stand for",
        n < 0 ? -n : n, n < 0 ? "less" : "more");
  }
  tellEach(p, zNoSum,
      "was folded, and the sum of its rule and day is not there, or less");
}

/* Rows of a query with the names of a domain and its table of pins. Each is a problem,
** or without zWhat a number of pins. Returns the sum of these. */
static i64 askPins(
    Verify *p, const BxDomain *pDomain, const char *zQuery, const char *zWhat) {
  BxErr err = {SQLITE_OK, 0};
  char *zSql = bxPrintf(p->pErr, zQuery, pDomain->zPins, pDomain->zName);
  assert(pDomain->zPins != 0);
  sqlite3_stmt *pStmt;
  i64 nSum = 0;
  if (zSql == 0) return 0;
  pStmt = bxPrepareMade(p->p, zSql, &err);
  bxBind(pStmt, &err, "i", p->iFrom);
  while (bxStep(pStmt, &err)) {
    i64 n = sqlite3_column_int64(pStmt, 0);
    nSum += n;
    if (zWhat == 0) continue;
    tellProblem(
        p, n > 0 && n <= p->log.now.n ? n - 1 : -1, n, zWhat, pDomain->zPins);
  }
  sqlite3_finalize(pStmt);
  bxErrMoveBut(p->pErr, &err, "no such table");
  return nSum;
}

/* The pins of the domains, as far as rows from iFrom on tell of them. If as many were
** met as there are, each is one of these rows. */
static void verifyPins(Verify *p) {
  static const char zCount[] =
      "SELECT count(*) FROM main.%s WHERE n > ?1 OR ?1 = 0";
  static const char zNoRow[] =
      "SELECT p.n FROM main.%s AS p WHERE (p.n > ?1 OR ?1 = 0) AND NOT EXISTS"
      " (SELECT 1 FROM main.blackbox__log AS l WHERE l.n = p.n AND"
      "  l.kind = 'pin' AND l.domain = '%s' AND l.subject = p.id)";
  static const char zEnded[] =
      "SELECT p.n FROM main.blackbox__log AS u CROSS JOIN main.%s AS p"
      " ON p.id = u.subject AND p.n < u.n"
      " WHERE u.n > ?1 AND u.kind = 'unpin' AND u.domain = '%s'";
  const BxDomain *pDomain = p->p->bx->aDomain;
  const BxDomain *pEnd = pDomain + p->p->bx->nDomain;
  i64 nPin = -p->nPin;
  assert(p->nPin >= 0);
  for (; pDomain < pEnd; pDomain++) {
    if (pDomain->zPins != 0) nPin += askPins(p, pDomain, zCount, 0);
  }
  for (pDomain = p->p->bx->aDomain; pDomain < pEnd; pDomain++) {
    if (pDomain->zPins == 0) continue;
    if (nPin != 0) {
      askPins(
          p, pDomain, zNoRow, "%s has a pin that is not this row of the log");
    }
    askPins(p, pDomain, zEnded,
        "the pin has ended by the log, and the row is still pinned: %s has it");
  }
}

static void tellHeldRow(void *pArg, i64 n, char *zOwned) {
  Verify *p = (Verify *)pArg;
  tellProblem(p, n <= p->log.now.n ? n - 1 : -1, n, "%s", zOwned);
  sqlite3_free(zOwned);
}

/* The rows that holds keep. */
static void verifyHeld(Verify *p) {
  int i;
  for (i = 0; i < p->p->bx->nDomain && p->pErr->rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &p->p->bx->aDomain[i];
    BxErr err = {SQLITE_OK, 0};
    if (pDomain->xCheckHeld == 0) continue;
    pDomain->xCheckHeld(p->p, p->iFrom, tellHeldRow, p, &err);
    bxErrMoveBut(p->pErr, &err, "no such table");
  }
}

/* What waits for its leaf. The receipt of a minute that is over waits until the
** next call that writes; that is no problem, and proof_pending counts it. */
static void verifyPending(Verify *p) {
  static const char zWaits[] =
      "SELECT count(*) FROM main.blackbox__log WHERE n > ?1";
  static const char zFirst[] =
      "SELECT n FROM main.blackbox__log WHERE n > ?1 ORDER BY n LIMIT 1";
  i64 n = bxQueryInt(p->p, zWaits, p->pErr, "i", p->log.now.n);
  i64 iFirst = bxQueryInt(p->p, zFirst, p->pErr, "i", p->log.now.n);
  if (n == 0) return;
  if (iFirst != p->log.now.n + 1) {
    tellProblem(p, -1, p->log.now.n + 1,
        "was removed or renumbered before it had a leaf");
  }
  tellProblem(p, -1, iFirst,
      "has no leaf yet; rows that wait: %lld, which were written without "
      "the module; SELECT proof_head() takes them in",
      n);
}

/*---------------------------------------------------------------- calls ----*/

/* What was found before an error of damaged data must not be lost: the error is
** one more problem then. */
static void tellError(Verify *p) {
  int rc = p->pErr->rc & 0xff;
  BxErr err;
  assert(p->nProblem >= 0);
  if (p->nProblem == 0 || (rc != SQLITE_ERROR && rc != SQLITE_CORRUPT)) return;
  err = bxErrTake(p->pErr);
  if (err.zMsg == 0) {
    bxErrMove(p->pErr, &err);
    return;
  }
  tellProblem(p, -1, 0, "%s", err.zMsg);
  bxErrClear(&err);
}

/* Reads all that is after leaf iFrom. */
static void verifyAfter(Verify *p, i64 iFrom) {
  assert(p->pErr->rc != SQLITE_OK || (iFrom >= 0 && iFrom <= p->log.now.n));
  p->iFrom = iFrom;
  p->nKept = bxLogKept(p->p, iFrom - 1, p->pErr);
  p->iFoldEnd = -1;
  p->iRepairs = bxNow() - REPAIR_DAYS * (i64)BX_MS_PER_DAY;
  bxMerkleFrontier(&p->log.tree, 0, iFrom, &p->tree, p->pErr);
  startCursor(p, &p->leaves,
      "SELECT leaf, hash, kept FROM main.blackbox__leaves"
      " WHERE leaf >= ?1 ORDER BY leaf",
      iFrom);
  startCursor(p, &p->rows,
      "SELECT " BX_LOG_COLUMNS " FROM main.blackbox__log WHERE n > ?1"
      " ORDER BY n",
      iFrom);
  startCursor(p, &p->folded,
      "SELECT first, last, kept FROM main.blackbox__folded"
      " WHERE last >= ?1 ORDER BY first",
      iFrom);
  if (p->folded.i != NONE) {
    p->iFoldEnd = sqlite3_column_int64(p->folded.pStmt, 1);
  }
  startPinned(p);
  verifyLeaves(p);
  if (iFrom == 0) verifyRest(p);
  tellEach(p, zUnnamed,
      "blackbox__erased has fields of it, and no row of the log says that "
      "they were erased");
  verifyPins(p);
  verifyHeld(p);
  verifyPending(p);
}

/* Verifies the log, from the leaf after pHead on if that is given. Returns the
** problems as JSON, to sqlite3_free(). */
static char *verify(BxStmts *pHome, const ProofHead *pHead, BxErr *pErr) {
  Verify run;
  sqlite3_stmt *pHold; /* so that all that is read is of one moment */
  char *zDiffers = 0;
  int i;
  memset(&run, 0, sizeof(run));
  run.p = pHome;
  run.pErr = pErr;
  run.pOut = sqlite3_str_new(pHome->bx->db);
  pHold = bxPrepare(pHome, "SELECT one FROM main.blackbox__tree", pErr);
  bxStep(pHold, pErr);
  bxLogOpen(&run.log, pHome, pErr);
  if (pHead != 0 && pErr->rc == SQLITE_OK) {
    zDiffers = bxProofHeadDiffers(&run.log, pHead, pErr);
  }
  if (zDiffers != 0) { /* it is not known which leaves are new */
    tellProblem(&run, -1, 0, "%s", zDiffers);
  } else if (pErr->rc == SQLITE_OK) {
    verifyAfter(&run, pHead != 0 ? pHead->n : 0);
  }
  sqlite3_free(zDiffers);
  sqlite3_finalize(run.leaves.pStmt);
  sqlite3_finalize(run.rows.pStmt);
  sqlite3_finalize(run.folded.pStmt);
  for (i = 0; run.aPinned != 0 && i < pHome->bx->nDomain; i++) {
    sqlite3_finalize(run.aPinned[i].pStmt);
  }
  sqlite3_free(run.aPinned);
  sqlite3_finalize(pHold);
  tellError(&run);
  if (run.nProblem > BX_MAX_PROBLEMS) {
    sqlite3_str_appendf(run.pOut, ",[null,null,null,\"and %lld more\"]",
        run.nProblem - BX_MAX_PROBLEMS);
  }
  sqlite3_str_appendall(run.pOut, run.nProblem > 0 ? "]" : "[]");
  return bxStrFinish(run.pOut, pErr);
}

sqlite3_stmt *bxProofVerify(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  ProofHead head;
  BxStmts *pHome = bxDomainSchema(bx, "core", pErr);
  if (apArg[0] != 0) bxProofHeadRead(apArg[0], &head, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3"
      " FROM json_each(?1)",
      verify(pHome, apArg[0] != 0 ? &head : 0, pErr), pErr);
}

void bxProofCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  char *zProblems = verify(p, 0, &err);
  sqlite3_stmt *pRows = bxJsonRows(p->bx,
      "SELECT ltrim(ltrim(coalesce('leaf ' || (value ->> 0), '') ||"
      " coalesce(' row ' || (value ->> 2), '')) || ': ', ': ') ||"
      " (value ->> 3) FROM json_each(?1)",
      zProblems, &err);
  while (bxStep(pRows, &err)) {
    const char *zLine = bxColumnText(pRows, 0, &err);
    if (zLine != 0) bxProblem(pOut, "blackbox__log", "%s", zLine);
  }
  sqlite3_finalize(pRows);
  bxProblemError(pOut, "blackbox__log", &err);
}
