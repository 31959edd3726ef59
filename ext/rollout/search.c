/*
** search.c: what items say, as the tables rollout_facts and rollout_texts; and the
** full-text search over what users, assistants and tools said.
**
** rollout_search_install() runs sql/rollout_search.sql, which creates and fills
** the index rollout_fts. New items are put there when they are derived; what is
** redacted and deleted is taken out by two triggers, and what was redacted is read again
** with them. A query is a
** literal text of at least 3 characters, in upper or lower case. An item that
** forks share is found once: in the conversation that wrote it or, if that was
** deleted or has expired, in the oldest fork.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*---------------------------------------------------------------- facts ----*/

/* Of the item with this key or, if it is none, of all. */
static sqlite3_stmt *factRows(
    Bx *bx, const char *zSql, sqlite3_value *pKey, BxErr *pErr) {
  sqlite3_stmt *pRow = bxRolloutQuery(bx, zSql, pErr);
  i64 iFirst = 0, iLast = 0x7fffffffffffffff;
  if (pKey != 0 && sqlite3_value_type(pKey) == SQLITE_INTEGER) {
    iFirst = iLast = sqlite3_value_int64(pKey);
  }
  bxBind(pRow, pErr, "ii", iFirst, iLast);
  return pRow;
}

sqlite3_stmt *bxRolloutFacts(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zFacts[] =
      "SELECT * FROM (" ROLLOUT_FACTS ") WHERE id BETWEEN ?1 AND ?2";
  return factRows(bx, zFacts, apArg[0], pErr);
}

sqlite3_stmt *bxRolloutTexts(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zTexts[] =
      "SELECT * FROM (" ROLLOUT_FACTS ") WHERE id BETWEEN ?1 AND ?2 "
      "AND fact IN ('user', 'assistant')";
  return factRows(bx, zTexts, apArg[0], pErr);
}

/*--------------------------------------------------------------- search ----*/

extern const char bxSqlRolloutSearch[]; /* sql/rollout_search.sql */

static const char zSearchRemove[] =
    "UPDATE main.rollout__act SET search = 0;"
    "DROP TRIGGER IF EXISTS main.rollout_fts_update;"
    "DROP TRIGGER IF EXISTS main.rollout_fts_delete;"
    "DROP TABLE IF EXISTS main.rollout_fts;"
    "DROP TABLE IF EXISTS main.rollout__fts_due";

/* The first statement writes, so that it waits for other writers. */
static const char zLock[] = "UPDATE main.rollout__act SET id = id";

#define HAS_INDEX                                                              \
  "SELECT count(*) FROM main.sqlite_schema WHERE name = 'rollout_fts'"

/* The messages show whether FTS5 or only the tokenizer is missing. */
static void explainHost(BxErr *pErr) {
  BxErr said;
  if (!bxErrContains(pErr, "no such module") &&
      !bxErrContains(pErr, "no such tokenizer")) {
    bxRolloutExplain(pErr, "WriteError: Write failed: ");
    return;
  }
  said = bxErrTake(pErr);
  bxFail(pErr, said.rc,
      "SearchError: this SQLite %s has no FTS5 with the trigram tokenizer "
      "(%s); use an SQLite that has it; everything but the search works "
      "without it",
      sqlite3_libversion(), said.zMsg);
  bxErrClear(&said);
}

/* What users, assistants and tools said in stored items, as derive.c finds it in new
** ones. (Two readings may find the same text.) */
#define FACTS "WITH facts AS NOT MATERIALIZED (" ROLLOUT_FACTS ") "
#define PUT_TEXTS(items)                                                       \
  FACTS "INSERT OR REPLACE INTO main.rollout_fts(rowid, text) "                \
        "SELECT id, group_concat(text, char(10)) "                             \
        "FROM (SELECT DISTINCT x.id AS id, x.value AS text "                   \
        "FROM facts AS x WHERE x.fact IN ('user', 'assistant', 'tool') "       \
        "AND x.value <> '' AND x.id " items                                    \
        " AND NOT EXISTS (SELECT 1 FROM facts AS y WHERE y.id = x.id - 1 "     \
        "AND y.source <> x.source AND y.fact = x.fact "                        \
        "AND y.value = x.value)) GROUP BY id"

void bxRolloutSearchPut(RolloutDerive *p, BxErr *pErr) {
  static const char zPut[] =
      "INSERT OR REPLACE INTO main.rollout_fts(rowid, text) VALUES (?1, ?2)";
  static const char zAnyDue[] =
      "SELECT EXISTS (SELECT 1 FROM main.rollout__fts_due)";
  static const char zPutDue[] =
      PUT_TEXTS("IN (SELECT id FROM main.rollout__fts_due)");
  static const char zNotDue[] = "DELETE FROM main.rollout__fts_due";
  BxStmts *pHome = p->pHome;
  i64 i = 0;
  if (p->pRules == 0 || !p->pRules->bSearch) return;
  while (i < p->nText && pErr->rc == SQLITE_OK) {
    i64 iSequence = p->aText[i].iSequence;
    sqlite3_str *pOut = sqlite3_str_new(0);
    const char *zBefore = "";
    char *z;
    for (; i < p->nText && p->aText[i].iSequence == iSequence; i++) {
      if (p->aText[i].bRepeats) continue;
      sqlite3_str_appendf(pOut, "%s%s", zBefore, p->aText[i].z);
      zBefore = "\n";
    }
    z = bxStrFinish(pOut, pErr);
    if (z != 0) {
      bxStmtExec(pHome, zPut, pErr, "it", bxRolloutKey(p->no, iSequence), z);
    }
    sqlite3_free(z);
  }
  if (bxQueryInt(pHome, zAnyDue, pErr, "")) {
    bxStmtExec(pHome, zPutDue, pErr, "");
    bxStmtExec(pHome, zNotDue, pErr, "");
  }
}

void bxRolloutSearchInstall(BxCall *p) {
  static const char zFill[] = PUT_TEXTS("> 0");
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  sqlite3_stmt *pHold;
  if (pHome == 0) return;
  p->bx->nForeign++; /* rules that are kept are looked at again */
  bxExec(pHome, zLock, &p->err);
  pHold = bxGuardBegin(p->bx, &p->err);
  bxRolloutCatchUp(pHome, 0, &p->err);
  bxExec(pHome, bxSqlRolloutSearch, &p->err);
  bxStmtExec(pHome, zFill, &p->err, "");
  bxGuardEnd(p->bx, pHold, &p->err);
  explainHost(&p->err);
  bxReturnInt(p,
      bxQueryNumber(pHome, "SELECT count(*) FROM main.rollout_fts", &p->err));
}

/* The index keeps the parts of deleted texts, unless it is told not to, which
** FTS5 knows from SQLite 3.42 on; before, it is built anew afterwards. */
void bxRolloutErase(BxStmts *p, int bDone, BxErr *pErr) {
  int bSecure = sqlite3_libversion_number() >= 3042000;
  assert(bDone == 0 || bDone == 1);
  if (bDone) bxRolloutCatchUp(p, 0, pErr);
  if (bDone == bSecure || bxQueryNumber(p, HAS_INDEX, pErr) == 0) return;
  bxExec(p,
      bSecure ? "INSERT INTO main.rollout_fts(rollout_fts, rank)"
                " VALUES('secure-delete', 1)"
              : "INSERT INTO main.rollout_fts(rollout_fts) VALUES('rebuild')",
      pErr);
}

void bxRolloutSearchRemove(BxCall *p) {
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  i64 bThere;
  if (pHome == 0) return;
  if (p->pCtx == 0) {
    bxFail(&p->err, SQLITE_MISUSE,
        "MisuseError: a table cannot be dropped inside a statement that "
        "writes; call it as SELECT rollout_search_remove()");
  }
  bxExec(pHome, zLock, &p->err);
  p->bx->nForeign++;
  bThere = bxQueryNumber(pHome, HAS_INDEX, &p->err);
  bxExec(pHome, zSearchRemove, &p->err);
  explainHost(&p->err);
  bxReturnInt(p, bThere);
}

/* The characters before and after the beginning of a match. The marks around it
** are control characters, because messages do not contain them. */
#define BEFORE "48"
#define WHOLE "144"
#define MARKED_TEXT "highlight(rollout_fts, 0, char(1), char(2))"
/* The part of a text around its first match, on one line; an ellipsis stands for
** what is left out. */
#define BEGINS "max(1, instr(f.text, char(1)) - " BEFORE ")"
#define SNIPPET                                                                \
  "iif(" BEGINS " > 1, char(8230), '') || "                                    \
  "replace(replace(replace(replace(replace("                                   \
  "substr(f.text, " BEGINS ", " WHOLE "), char(1), ''), char(2), ''), "        \
  "char(13), ''), char(10), ' '), char(9), ' ') || "                           \
  "iif(length(f.text) >= " BEGINS " + " WHOLE ", char(8230), '') "

sqlite3_stmt *bxRolloutSearch(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  const char *z = bxText(apArg[0], "query", 10000, 0, pErr);
  i64 nRow = apArg[1] != 0 ? bxInt(apArg[1], "limit", 1, 1000000000, pErr) : 50;
  BxStmts *p = bxRolloutSchema(bx, pErr);
  sqlite3_stmt *pStmt;
  i64 nChar = 0;
  const char *zChar;
  for (zChar = z; zChar != 0 && *zChar; zChar++) {
    nChar += (*zChar & 0xc0) != 0x80;
  }
  if (z != 0 && nChar < 3) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: query must have at least 3 characters, got %Q; use a "
        "longer text",
        z);
  }
  if (p != 0 && bxQueryNumber(p, HAS_INDEX, pErr) == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "SearchError: the search is not installed; SELECT "
        "rollout_search_install() to create its index");
  }
  pStmt = bxPrepare(p,
      FACTS "SELECT h.id, f.sequence, f.timestamp, f.role, " SNIPPET "FROM ("
            "SELECT d.id >> 32 AS owner, d.id & 4294967295 AS sequence, "
            "d.timestamp AS timestamp, "
            "(SELECT fact FROM facts AS x WHERE x.id = d.id "
            "AND x.fact IN ('user', 'assistant', 'tool') "
            "ORDER BY instr(lower(x.value), lower(?1)) > 0 DESC LIMIT 1) "
            "AS role, " MARKED_TEXT " AS text, rank AS score "
            "FROM main.rollout_fts CROSS JOIN main.rollout__data AS d "
            "ON d.id = rollout_fts.rowid "
            "WHERE rollout_fts MATCH '\"' || replace(?1, '\"', '\"\"') "
            "|| '\"' "
            "ORDER BY rank) AS f JOIN main.rollout__heads AS h "
            "ON h.no = (SELECT min(s.rollout) FROM "
            "main.rollout__segments AS s JOIN main.rollout__heads AS live "
            "ON live.no = s.rollout "
            "WHERE s.owner = f.owner AND f.sequence BETWEEN s.first AND "
            "s.last AND (live.expires_at IS NULL OR "
            "live.expires_at >= ?3)) "
            "ORDER BY f.score, h.updated DESC, f.sequence LIMIT ?2",
      pErr);
  bxRolloutExplain(pErr, "SearchError: Search failed: ");
  bxBind(pStmt, pErr, "cii", z, nRow, bxNow());
  return pStmt;
}
