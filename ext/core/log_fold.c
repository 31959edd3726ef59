/*
** log_fold.c: receipts older than 30 days become one for each day and rule.
**
** A step begins at row blackbox__tree.fold, and looks at up to 512 rows, or at as many
** as the caller asks for. For each rule and day that it finds it adds up the receipts,
** writes one row with the sums at the end of the log, and deletes the receipts. From
** then on their leaves are in a range of blackbox__folded. The next step for that day
** folds the sum of this one, too.
**
**   the log   1 2 3 [4 ......... 1443] 1444  ...  90000
**                     folded                      the sum: {"day": .., "leaves": 1440}
**
** A receipt has its rule in detail, and no subject. A sum has the rule as its subject,
** by which the next step finds it. "leaves" is how many leaves a sum stands for; all
** sums together stand for the leaves of blackbox__folded. Each range has what its last
** leaf is made of: kept, and the digest of its fields. kept must be what it was before
** the range; otherwise a row in it was no receipt (log_leaf.c).
**
** When few others are left of 256 leaves that have a node, the leaves of folded rows
** are deleted. What the others need of them stays as nodes (log_tree.c). A write that
** carries a small step along does this in steps of their own: half a tile at most.
**
** A step that fails is passed over. So is a step with a row that is not what its leaf
** says: its receipts stay.
**
** A row has its leaf before it is folded. Only receipts are folded. The last row of the
** log stays, as the sums come after it: its number must not be used again.
*/
#include "core.h"
#include "log.h"
SQLITE_EXTENSION_INIT3

#define DAYS 30
#define STEP 512
#define HALF_TILE (BX_LOG_TILE / 2)
#define NEEDED 17 /* rows and heads with which the leaves of a tile stay */

typedef struct Fold {
  BxLog *pLog;
  i64 iFirst, iEnd; /* the range of leaves that grows */
  int bSmall;
  BxErr *pErr;
} Fold;

/* What leaves of a tile need of a half of it, from iFirst on. */
typedef struct Needed {
  BxStmts *p;
  i64 iFirst, aLeaf[NEEDED];
  int n, bSmall;
  BxErr *pErr;
} Needed;

/* Keeps a hash if it is beside the way from the root to such a leaf, or that of the
** leaf; and with a small step that of the half, as the other one goes later.
** (FrontierNode) */
static void keepNode(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash) {
  static const char zKeep[] =
      "INSERT OR IGNORE INTO main.blackbox__leaves(leaf, hash) VALUES(?1, ?2)";
  const Needed *p = pArg;
  int i = 0;
  iIndex += p->iFirst >> nHeight;
  int bHalf = p->bSmall && nHeight == BX_LOG_LEVEL - 1;
  while (i < p->n && !bHalf && iIndex != (p->aLeaf[i] >> nHeight ^ 1) &&
         (nHeight > 0 || iIndex != p->aLeaf[i])) {
    i++;
  }
  if (i == p->n && !bHalf) return;
  bxStmtExec(p->p, zKeep, p->pErr, "ix", bxLogNodeKey(nHeight, iIndex),
      pHash->a, (i64)BX_DIGEST);
}

/* Keeps what is needed of half a tile whose leaves are all there: each node is hashed
** once. Returns 0 if one is damaged: then they stay. */
static int keepNeeded(Needed *p) {
  static const char zHalf[] =
      "SELECT hash FROM main.blackbox__leaves"
      " WHERE leaf BETWEEN ?1 AND ?1 + 127 ORDER BY leaf";
  sqlite3_stmt *pStmt = bxStmt(p->p, zHalf, p->pErr);
  Frontier half = {0, 0, {{{0}}}};
  MerkleHash hash;
  bxBind(pStmt, p->pErr, "i", p->iFirst);
  while (bxStep(pStmt, p->pErr) && bxLogReadHash(pStmt, 0, &hash)) {
    keepNode(p, 0, half.n, &hash);
    bxFrontierAdd(&half, &hash, keepNode, p);
  }
  bxReset(pStmt, p->pErr);
  return half.n == HALF_TILE;
}

/* Deletes the leaves of a tile, if few rows of it are left. What these rows need of the
** tile stays, and what the heads need that end there. A small step does one half of it,
** and then returns 1. */
static int dropTile(Fold *p, i64 iTile) {
  static const char zNeeded[] =
      "SELECT n - 1 FROM main.blackbox__log WHERE n > ?1 AND n <= ?1 + 256"
      " UNION SELECT -leaf FROM main.blackbox__leaves"
      " WHERE leaf > -?1 - 256 AND leaf < -?1"
      " UNION SELECT last FROM (SELECT last FROM main.blackbox__folded"
      "  WHERE first < ?1 + 256 ORDER BY first DESC LIMIT 17)"
      " WHERE last >= ?1 AND last < ?1 + 256";
  static const char zLeaves[] = "SELECT count(*) FROM main.blackbox__leaves"
                                " WHERE leaf >= ?1 AND leaf < ?1 + 128";
  static const char zDrop[] =
      "DELETE FROM main.blackbox__leaves WHERE leaf >= ?1 AND leaf < ?1 + 128"
      " AND NOT EXISTS (SELECT 1 FROM main.blackbox__log WHERE n = leaf + 1)";
  BxStmts *pStmts = p->pLog->p;
  Needed needed = {pStmts, iTile, {0}, 0, p->bSmall, p->pErr};
  sqlite3_stmt *pStmt;
  int bDone = 0;
  assert(iTile >= 0 && iTile % BX_LOG_TILE == 0);
  pStmt = bxStmt(pStmts, zNeeded, p->pErr);
  bxBind(pStmt, p->pErr, "i", iTile);
  while (needed.n < NEEDED && bxStep(pStmt, p->pErr)) {
    needed.aLeaf[needed.n++] = sqlite3_column_int64(pStmt, 0);
  }
  bxReset(pStmt, p->pErr);
  if (needed.n == NEEDED) return 0;
  for (; !bDone && needed.iFirst < iTile + BX_LOG_TILE;
       needed.iFirst += HALF_TILE) {
    int bWhole =
        bxQueryInt(pStmts, zLeaves, p->pErr, "i", needed.iFirst) == HALF_TILE;
    if ((p->bSmall && !bWhole) || (bWhole && !keepNeeded(&needed))) continue;
    bxStmtExec(pStmts, zDrop, p->pErr, "i", needed.iFirst);
    bDone = p->bSmall;
  }
  return bDone;
}

/* Deletes the rows of the range, adds it to those that are folded, and joins it with
** its neighbours. The last row stays there. */
static void foldRange(Fold *p) {
  static const char zBefore[] =
      "SELECT first + 1 FROM main.blackbox__folded WHERE first ="
      " (SELECT max(first) FROM main.blackbox__folded WHERE first < ?1)"
      " AND last = ?1 - 1";
  static const char zDelete[] =
      "DELETE FROM main.blackbox__folded WHERE first = ?1";
  static const char zAfter[] =
      "UPDATE main.blackbox__folded SET first = ?1 WHERE first = ?2";
  static const char zInsert[] =
      "INSERT INTO main.blackbox__folded SELECT ?1, ?2 - 1, ?3, at, domain,"
      " subject, actor, reason, rows, bytes, oldest, newest, detail, salt"
      " FROM main.blackbox__log WHERE n = ?2";
  static const char zRows[] =
      "DELETE FROM main.blackbox__log WHERE n > ?1 AND n <= ?2";
  BxStmts *pStmts = p->pLog->p;
  i64 iFirst = p->iFirst, i;
  assert(p->iFirst <= p->iEnd);
  if (p->iEnd == iFirst) return;
  i = bxQueryInt(pStmts, zBefore, p->pErr, "i", iFirst);
  if (i > 0) iFirst = i - 1;
  bxStmtExec(pStmts, zDelete, p->pErr, "i", iFirst);
  bxStmtExec(pStmts, zAfter, p->pErr, "ii", iFirst, p->iEnd);
  if (sqlite3_changes(pStmts->bx->db) == 0) {
    bxStmtExec(pStmts, zInsert, p->pErr, "iii", iFirst, p->iEnd,
        bxLogKept(pStmts, p->iEnd - 1, p->pErr));
  }
  bxStmtExec(pStmts, zRows, p->pErr, "ii", p->iFirst, p->iEnd);
  if (p->bSmall) return;
  for (i = p->iFirst - p->iFirst % BX_LOG_TILE;
       i < p->iEnd && i + BX_LOG_TILE <= p->pLog->now.n; i += BX_LOG_TILE) {
    dropTile(p, i);
  }
}

static const char zNumbers[] = "SELECT value FROM json_each(?1)";

/* Whether rows are what their leaves say. One that was altered must not go. */
static int areLeaves(Fold *p, const char *zRows) {
  BxLog *pLog = p->pLog;
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zNumbers, p->pErr);
  int bSame = 1;
  bxBind(pStmt, p->pErr, "t", zRows);
  while (bSame && bxStep(pStmt, p->pErr)) {
    i64 n = sqlite3_column_int64(pStmt, 0);
    BxLeaf leaf;
    MerkleHash hash;
    pLog->tree.xGet(&pLog->tree, 0, n - 1, &hash, p->pErr);
    bSame = bxLogLeafOf(pLog->p, n, &leaf, 0, p->pErr) &&
            bxLogIsLeaf(pLog->p, &leaf, &hash, p->pErr);
  }
  bxReset(pStmt, p->pErr);
  return bSame;
}

/* Folds the receipts among the rows from iFrom to iTo. One that is alone stays. */
static void foldRows(Fold *p, i64 iFrom, i64 iTo, i64 iBefore) {
  static const char zChoose[] =
      "WITH old AS (SELECT n, coalesce(domain, substr(detail, 1,"
      "   instr(detail, '.') - 1)) AS domain, detail AS rule, actor, reason,"
      "  at / 86400000 AS day FROM main.blackbox__log WHERE n BETWEEN ?1 AND ?2"
      "  AND kind IS NULL AND at >= 0 AND at < ?3 AND subject IS NULL AND"
      "  coalesce(agent_id, event_id, kill_switch_event_id) IS NULL),"
      " same AS (SELECT * FROM old UNION ALL SELECT l.n, l.domain, l.subject,"
      "  l.actor, l.reason, k.day FROM (SELECT DISTINCT rule, day FROM old) AS "
      "k  CROSS JOIN main.blackbox__log AS l ON l.subject = k.rule  AND l.at = "
      "k.day * 86400000 + 86399999 AND l.kind IS NULL  AND "
      "json_valid(l.detail)) SELECT json_group_array(n) FROM (SELECT n, "
      "count(*) OVER (PARTITION BY  domain, rule, actor, reason, day) AS count "
      "FROM same ORDER BY n) WHERE count > 1";
  static const char zSums[] =
      "INSERT INTO main.blackbox__log(at, domain, subject, actor, reason,"
      " rows, bytes, oldest, newest, detail, salt)"
      " SELECT at / 86400000 * 86400000 + 86399999,"
      "  coalesce(domain, substr(detail, 1, instr(detail, '.') - 1)) AS domain,"
      "  coalesce(subject, detail) AS rule, actor, reason, sum(rows),"
      "  sum(bytes), at / 86400000 * 86400000 + 86399999 - min(at - oldest),"
      "  max(at - oldest + newest) - min(at - oldest), json_object("
      "   'day', date(min(at) / 1000, 'unixepoch'), 'leaves', sum(iif(subject"
      "   IS NULL, 1, 1 + coalesce(detail ->> '$.leaves', 0)))), NULL"
      " FROM json_each(?1) CROSS JOIN main.blackbox__log ON n = value"
      " GROUP BY at / 86400000, 2, 3, actor, reason ORDER BY at";
  static const char zLast[] = "SELECT max(n) FROM main.blackbox__log";
  static const char zForget[] = "DELETE FROM main.blackbox__log WHERE n > ?1";
  BxStmts *pStmts = p->pLog->p;
  i64 iLast = bxQueryInt(pStmts, zLast, p->pErr, "");
  sqlite3_stmt *pStmt;
  char *zRows;
  assert(iFrom <= iTo && iTo <= p->pLog->now.n); /* they have leaves */
  if (p->pErr->rc != SQLITE_OK) return;          /* iLast is not known */
  zRows =
      bxQueryTextHow(pStmts, zChoose, 0, p->pErr, "iii", iFrom, iTo, iBefore);
  if (areLeaves(p, zRows)) {
    bxStmtExec(pStmts, zSums, p->pErr, "t", zRows);
    pStmt = bxStmt(pStmts, zNumbers, p->pErr);
    p->iFirst = p->iEnd = 0;
    bxBind(pStmt, p->pErr, "t", zRows);
    while (bxStep(pStmt, p->pErr)) {
      i64 iLeaf = sqlite3_column_int64(pStmt, 0) - 1;
      if (iLeaf != p->iEnd) {
        foldRange(p);
        p->iFirst = iLeaf;
      }
      p->iEnd = iLeaf + 1;
    }
    bxReset(pStmt, p->pErr);
    foldRange(p);
  }
  sqlite3_free(zRows);
  if (p->pErr->rc != SQLITE_OK) {
    BxErr err = {SQLITE_OK, 0};
    bxStmtExec(pStmts, zForget, &err, "i", iLast);
    bxErrClear(&err);
  }
}

int bxLogFold(BxLog *pLog, i64 nMost, BxErr *pErr) {
  static const char zFirst[] =
      "SELECT kind IS NOT NULL OR at < ?2 OR at > ?3 FROM main.blackbox__log"
      " WHERE n >= ?1 ORDER BY n LIMIT 1";
  static const char zYoung[] = /* a step ends before one that is not yet old */
      "SELECT min(n) FROM main.blackbox__log WHERE n BETWEEN ?1 AND ?2"
      " AND kind IS NULL AND at BETWEEN ?3 AND ?4";
  BxErr err = {SQLITE_OK, 0};
  Fold fold = {pLog, 0, 0, nMost < BX_LOG_FEW + 2, &err};
  i64 iNow = bxNow(), iBefore = iNow - DAYS * (i64)BX_MS_PER_DAY, iTo, iYoung,
      iTile;
  iBefore -= iBefore % BX_MS_PER_DAY;
  if (!bxQueryInt(pLog->p, zFirst, pErr, "iii", pLog->iFold, iBefore, iNow) ||
      !bxTrustedTime(pLog->p, 0, pErr)) {
    return 0;
  }
  iTo = pLog->iFold + (nMost < STEP ? nMost : STEP) - 1;
  if (iTo > pLog->now.n) iTo = pLog->now.n;
  iYoung = bxQueryInt(
      pLog->p, zYoung, &err, "iiii", pLog->iFold, iTo, iBefore, iNow);
  if (iYoung > 0) iTo = iYoung - 1;
  if (err.rc != SQLITE_OK || iTo < pLog->iFold) {
    bxErrMove(pErr, &err);
    return 0;
  }
  iTile = pLog->iFold - 1 - (pLog->iFold - 1) % BX_LOG_TILE - BX_LOG_TILE;
  if (iTile < 0 || !dropTile(&fold, iTile)) {
    foldRows(&fold, pLog->iFold, iTo, iBefore);
    pLog->iFold = iTo + 1;
  }
  bxErrBeside(pLog->p, pErr, &err);
  return 1;
}
