/*
** search.c: what items say, as the table rollout_facts; and the full-text search over
** the texts of rollout__texts: messages, calls of tools, and results.
**
** rollout_search_install() makes the index rollout_fts, of FTS5, and fills it. It has
** no copy of the texts, only their words, and rowid is n of rollout__texts. FTS5 writes a
** segment for each transaction, which takes longer than the words of one text: so the
** newest texts, those above the highest rowid of the index, wait until they are
** MOST_WAITING, or have MOST_BYTES, and are put into it together. Segments are merged a
** few pages at a time, so that no append takes much longer than others. A search puts those
** that wait into an index in memory. What is deleted or redacted stays in the index until
** it is made anew, and is not found, because its row is gone. It is made anew by the same
** call, by an erasure, and by rollout_cleanup_expired() when more texts are gone than are
** left.
**
** Words are split before FTS5 sees them: fooBar is "foo bar", and each Chinese,
** Japanese or Korean character is a word. What a user asks for is split in the same
** way and becomes a phrase, so that the tokenizer is one that every FTS5 has. The words
** that were split are whole in a second column, so that foobar finds fooBar: between
** the others they would stand in the way of phrases.
*/
#include "rollout.h"
#include "../core/log.h"
#include "../core/install.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Of the item with this key or, if it is none, of all. */
sqlite3_stmt *bxRolloutFacts(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zFacts[] =
      "SELECT * FROM (" ROLLOUT_FACTS ") WHERE id BETWEEN ?1 AND ?2";
  sqlite3_stmt *pRow = bxRolloutQuery(bx, zFacts, pErr);
  i64 iFirst = 0, iLast = 0x7fffffffffffffff;
  if (apArg[0] != 0 && sqlite3_value_type(apArg[0]) == SQLITE_INTEGER) {
    iFirst = iLast = sqlite3_value_int64(apArg[0]);
  }
  bxBind(pRow, pErr, "ii", iFirst, iLast);
  return pRow;
}

/*---------------------------------------------------------------- words ----*/

#define MOST_WORD 64 /* a longer run of letters and digits is no word */

/* The class of the character at z, of *pn bytes: a lower or upper case letter, a digit
** (0), another letter (x), one that is a word (c), or none (' '). */
static char classOf(const unsigned char *z, int *pn) {
  unsigned c = z[0];
  *pn = 1;
  if (c >= 'a' && c <= 'z') return 'a';
  if (c >= 'A' && c <= 'Z') return 'A';
  if (c >= '0' && c <= '9') return '0';
  if (c < 0x80) return ' ';
  if (c >= 0xf0 && z[1] && z[2] && z[3]) {
    *pn = 4;
    return c == 0xf0 && (z[1] & 0x3f) >= 0x20 ? 'c' : 'x'; /* from U+20000 */
  }
  if (c >= 0xe0 && z[1] && z[2]) {
    c = (c & 15) << 12 | (z[1] & 63u) << 6 | (z[2] & 63u);
    *pn = 3;
    return (c >= 0x2e80 && c <= 0x2fdf) || (c >= 0x3040 && c <= 0x9fff) ||
                   (c >= 0xac00 && c <= 0xd7af) ||
                   (c >= 0xf900 && c <= 0xfaff) || (c >= 0xff66 && c <= 0xff9f)
               ? 'c'
               : 'x';
  }
  if (z[1] != 0) *pn = 2;
  return 'x';
}

static void appendWord(sqlite3_str *pOut, const unsigned char *z, i64 n) {
  sqlite3_str_append(pOut, (const char *)z, (int)n);
  sqlite3_str_appendchar(pOut, 1, ' ');
}

/* Appends the words of n bytes, with spaces between them, and to pWhole those that
** are split into several, as they are. Between quotes none may have one, which is no
** part of a word. Returns how many there are, if each is counted whole. */
static i64 appendWords(
    sqlite3_str *pOut, sqlite3_str *pWhole, const char *zText, i64 nText) {
  const unsigned char *z = (const unsigned char *)zText, *zEnd = z + nText;
  const unsigned char *zEntire = z;
  i64 nWord = 0;
  char cLast = ' ';
  while (z < zEnd) {
    const unsigned char *zRun = z;
    int n = 1, bSplit = 0, bOther = 0;
    char c = ' ';
    while (z < zEnd && (c = classOf(z, &n)) != ' ' && c != 'c') {
      /* fooBar, sha256Sum, and the last capital of HTTPServer */
      bSplit =
          c == 'A' && z > zRun &&
          (cLast == 'a' || ((cLast == 'A' || cLast == '0') && z + 1 < zEnd &&
                               z[1] >= 'a' && z[1] <= 'z'));
      if (bSplit) break;
      bOther |= c == 'x';
      cLast = c;
      z += n;
    }
    if (z > zRun && (z - zRun <= MOST_WORD || bOther)) {
      appendWord(pOut, zRun, z - zRun);
      nWord += !bSplit;
    }
    cLast = ' ';
    if (bSplit) continue;
    if (zRun > zEntire && z > zRun && z - zEntire <= MOST_WORD) {
      appendWord(pWhole, zEntire, z - zEntire);
    }
    if (c == 'c' && z < zEnd) {
      appendWord(pOut, z, n);
      nWord++;
    }
    if (c == 'c' || c == ' ') z += n;
    zEntire = z;
  }
  return nWord;
}

/* (SQL) Texts, for wordsOf(). */
#define TEXTS                                                                  \
  "SELECT t.n, t.place, t.part, d.payload FROM main.rollout__texts AS t "      \
  "CROSS JOIN main.rollout__items AS d ON d.id = t.id WHERE "

/* The words of the text in a row, and those that are split as they are, to
** sqlite3_free(); NULL if it has none. */
static char *wordsOf(
    sqlite3_stmt *pText, BxTree *pTree, char **pzWhole, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0), *pWhole = sqlite3_str_new(0);
  const char *zAt = bxColumnText(pText, 1, pErr);
  const char *zPart = bxColumnText(pText, 2, pErr);
  const char *zPayload = bxColumnText(pText, 3, pErr);
  char *z = zAt != 0 && zPayload != 0
                ? bxRolloutSaid(pTree, zPayload, sqlite3_column_bytes(pText, 3),
                      zAt, zPart, pErr)
                : 0;
  if (z != 0) appendWords(pOut, pWhole, z, (i64)strlen(z));
  sqlite3_free(z);
  *pzWhole = bxStrFinish(pWhole, pErr);
  return bxStrFinish(pOut, pErr);
}

#define NUMBER_QUOTED(n) #n
#define NUMBER_TEXT(n) NUMBER_QUOTED(n) /* of a number that is a macro */

/* The texts that wait: (SQL) those above the highest rowid of the index. */
#define MOST_WAITING 8
#define MOST_BYTES 8192
/* Each batch begins with a step of merging the segments of others, of so many pages and
** one more for so many bytes of the append. */
#define MERGE_PAGES 3
#define MERGE_BYTES 4096
#define MANY_TEXTS 16
#define DONE "coalesce((SELECT max(id) FROM main.rollout_fts_docsize), 0)"
static const char zWaiting[] = TEXTS "t.n > " DONE;

/* Puts the words of texts into an index by a statement of it. Returns their number. */
static i64 putWords(sqlite3_stmt *pText, sqlite3_stmt *pPut, BxErr *pErr) {
  BxTree tree = {0};
  i64 nText = 0;
  while (bxStep(pText, pErr)) {
    char *zEntire, *zWords = wordsOf(pText, &tree, &zEntire, pErr);
    if (zWords != 0) {
      i64 n = sqlite3_column_int64(pText, 0);
      bxBind(pPut, pErr, "itt", n, zWords, zEntire);
      bxStmtRun(pPut, pErr);
      nText++;
    }
    sqlite3_free(zWords);
    sqlite3_free(zEntire);
  }
  bxTreeFree(&tree);
  return nText;
}

static const char zPutWords[] =
    "INSERT INTO main.rollout_fts(rowid, text, whole) "
    "VALUES (?1, ?2, ?3)";

void bxRolloutIndex(
    BxStmts *pHome, i64 nLast, i64 nText, i64 nByte, BxErr *pErr) {
  static const char zDamaged[] = "UPDATE main.rollout__act SET search = -1";
  static const char zWait[] = "SELECT ?1 - " DONE;
  static const char zMerge[] =
      "INSERT INTO main.rollout_fts(rollout_fts, rank) "
      "VALUES ('merge', ?1)";
  RolloutMemory *pMemory = bxRolloutMemory(pHome->bx, pErr);
  BxErr err = {SQLITE_OK, 0};
  i64 nWait;
  int nOthers = sqlite3_total_changes(pHome->bx->db) - pHome->bx->nOwn;
  if (pErr->rc != SQLITE_OK) return;
  assert(nText >= 0 && nByte >= 0);
  nWait = bxQueryInt(pHome, zWait, &err, "i", nLast);
  pMemory->nWaitByte = nWait > nText ? pMemory->nWaitByte + nByte : nByte;
  if (nWait <= nText) {
    bxStmtExec(pHome, zMerge, &err, "i", MERGE_PAGES + nByte / MERGE_BYTES);
  }
  if (nWait >= MOST_WAITING || pMemory->nWaitByte >= MOST_BYTES) {
    const char *const azSql[] = {zWaiting, zPutWords};
    sqlite3_stmt *apStmt[2];
    bxStmtSet(pHome, azSql, 2, apStmt, &err);
    putWords(apStmt[0], apStmt[1], &err);
    bxReset(apStmt[0], &err);
  }
  if (err.rc != SQLITE_OK && bxErrMayIgnore(pHome, &err)) {
    bxLogRefusal(pHome, "rollout", "rollout.search", err.zMsg, pErr);
    bxStmtExec(pHome, zDamaged, pErr, "");
    pHome->bx->nForeign++; /* rules that are kept are looked at again */
    bxErrClear(&err);
  }
  pHome->bx->nOwn = sqlite3_total_changes(pHome->bx->db) - nOthers;
  bxErrMove(pErr, &err);
}

/*---------------------------------------------------------------- queries ----*/

/* A query as FTS5 reads it. Words in a row are in parentheses, with AND between them:
** nothing is left to what FTS5 does between two words, or beside a parenthesis. */
typedef struct RolloutAsk RolloutAsk;
struct RolloutAsk {
  sqlite3_str *pOut;
  char *zFirst; /* the first word, to sqlite3_free() */
  int nWord;
  int nDeep;  /* open parentheses that are written, */
  int nAhead; /* and those that are not, because nothing was in them yet */
  int bRow;   /* something stands before, to which more is added */
};

#define MOST_WORDS                                                             \
  100 /* FTS5 reads what the index has of each, uninterrupted */
#define BESIDE_WORD " \t\r\n\"()"

/* The end of a word. A parenthesis is of the word if it is closed in it: parse(x). */
static const char *endOfWord(const char *z) {
  for (;;) {
    const char *zClose;
    z += strcspn(z, BESIDE_WORD);
    if (*z != '(') return z;
    zClose = z + 1 + strcspn(z + 1, BESIDE_WORD);
    if (*zClose != ')') return z;
    z = zClose + 1;
  }
}

/* The length of the AND, OR or NOT at z, or 0. */
static int operatorAt(const char *z) {
  int n = strncmp(z, "OR", 2) == 0                                 ? 2
          : strncmp(z, "AND", 3) == 0 || strncmp(z, "NOT", 3) == 0 ? 3
                                                                   : 0;
  return n > 0 && (z[n] == 0 || strchr(BESIDE_WORD, z[n]) != 0) ? n : 0;
}

/* Begins a word or a phrase, and the parentheses that wait. */
static void askBegin(RolloutAsk *p) {
  for (;;) {
    sqlite3_str_appendall(p->pOut, p->bRow ? "AND " : "(");
    p->bRow = 1;
    if (p->nAhead == 0) return;
    sqlite3_str_append(p->pOut, "(", 1);
    p->bRow = 0;
    p->nDeep++;
    p->nAhead--;
  }
}

static void askClose(RolloutAsk *p) {
  if (p->nAhead > 0) {
    p->nAhead--;
  } else if (p->nDeep > 0) {
    sqlite3_str_appendall(p->pOut, p->bRow ? ")) " : ") ");
    p->nDeep--;
    p->bRow = 1;
  }
}

/* Takes the words of n bytes as a phrase. A word that has parts, such as fooBar, is
** its parts in a row, or the whole. */
static void askWords(
    RolloutAsk *p, const char *z, i64 n, const char *zStar, BxErr *pErr) {
  sqlite3_str *pPart = sqlite3_str_new(0), *pWhole = sqlite3_str_new(0);
  i64 nWord = appendWords(pPart, pWhole, z, n);
  char *zPart = bxStrFinish(pPart, pErr), *zEntire = bxStrFinish(pWhole, pErr);
  p->nWord += (int)nWord;
  if (zPart != 0 && p->nWord <= MOST_WORDS) {
    askBegin(p);
    if (nWord > 1) {
      sqlite3_str_appendf(p->pOut, "text : \"%s\"%s", zPart, zStar);
    } else if (zEntire != 0) {
      sqlite3_str_appendf(p->pOut, "(text : \"%s\"%s OR \"%s\"%s)", zPart,
          zStar, zEntire, zStar);
    } else {
      sqlite3_str_appendf(p->pOut, "\"%s\"%s", zPart, zStar);
    }
    if (p->zFirst == 0) {
      p->zFirst = bxPrintf(pErr, "%.*s", (int)strcspn(zPart, " "), zPart);
    }
  }
  sqlite3_free(zPart);
  sqlite3_free(zEntire);
}

/* Reads a query. Parentheses that are not opened count for nothing, and those that are
** not closed are closed at the end. Returns it, to sqlite3_free(). */
static char *askFor(RolloutAsk *p, const char *z, BxErr *pErr) {
  p->pOut = sqlite3_str_new(0);
  while (*z != 0) {
    int bQuote = *z == '"', n = operatorAt(z);
    if (n > 0) {
      sqlite3_str_appendf(p->pOut, "%s %.*s ", p->bRow ? ")" : "", n, z);
      p->bRow = 0;
      z += n;
    } else if (strchr(BESIDE_WORD, *z) != 0 && !bQuote) {
      if (*z == '(') p->nAhead++;
      if (*z == ')') askClose(p);
      z++;
    } else {
      const char *zFrom = z + bQuote;
      const char *zEnd = bQuote ? zFrom + strcspn(zFrom, "\"") : endOfWord(z);
      z = zEnd + (bQuote && *zEnd == '"');
      askWords(p, zFrom, zEnd - zFrom,
          zEnd > zFrom && (zEnd[-1] == '*' || *z == '*') ? " * " : " ", pErr);
    }
  }
  p->nAhead = 0;
  while (p->nDeep > 0) askClose(p);
  if (p->bRow) sqlite3_str_append(p->pOut, ")", 1);
  return bxStrFinish(p->pOut, pErr);
}

/*--------------------------------------------------------------- install ----*/

extern const char bxSqlRolloutSearch[]; /* sql/rollout_search.sql */

static const char zSearchRemove[] = "UPDATE main.rollout__act SET search = 0;"
                                    "DROP TABLE IF EXISTS main.rollout_fts";

/* The first statement writes, so that it waits for other writers. */
static const char zLock[] = "UPDATE main.rollout__act SET id = id";

#define HAS_INDEX                                                              \
  "SELECT count(*) FROM main.sqlite_schema WHERE name = 'rollout_fts'"

/* A text could not be put into the index. */
#define IS_DAMAGED "SELECT search < 0 FROM main.rollout__act"

static const char zOpen[] = "SELECT 1 FROM main.rollout_fts";

/* Makes an index that is too damaged for FTS5 to open it one without words, so that it
** can be filled, or dropped. */
static void openIndex(BxStmts *pHome, BxErr *pErr) {
  static const char zEmptied[] =
      "CREATE TABLE IF NOT EXISTS main.rollout_fts_data(id INTEGER PRIMARY KEY,"
      " block BLOB);"
      "CREATE TABLE IF NOT EXISTS main.rollout_fts_idx(segid, term, pgno,"
      " PRIMARY KEY (segid, term)) WITHOUT ROWID;"
      "CREATE TABLE IF NOT EXISTS main.rollout_fts_docsize(id INTEGER PRIMARY "
      "KEY, sz BLOB);"
      "CREATE TABLE IF NOT EXISTS main.rollout_fts_config(k PRIMARY KEY, v)"
      " WITHOUT ROWID;"
      "REPLACE INTO main.rollout_fts_config VALUES ('version', 4);"
      "DELETE FROM main.rollout_fts_data; DELETE FROM main.rollout_fts_idx;"
      "INSERT INTO main.rollout_fts_data VALUES (1, x''), (10, zeroblob(7))";
  BxErr err = {SQLITE_OK, 0};
  if (bxQueryNumber(pHome, HAS_INDEX, pErr) <= 0) return;
  sqlite3_finalize(bxPrepare(pHome, zOpen, &err));
  if (err.rc == SQLITE_NOMEM || bxErrContains(&err, "no such module")) {
    bxErrMove(pErr, &err);
  } else if (err.rc != SQLITE_OK) {
    bxExec(pHome, zEmptied, pErr);
  }
  bxErrClear(&err);
}

/* The messages show that FTS5 is missing. */
static void explainHost(BxErr *pErr) {
  BxErr said;
  if (!bxErrContains(pErr, "no such module")) {
    bxRolloutExplain(pErr, "WriteError: Write failed: ");
    return;
  }
  said = bxErrTake(pErr);
  bxFail(pErr, said.rc,
      "SearchError: this SQLite %s has no FTS5 (%s); use an SQLite that has "
      "it; everything but the search works without it",
      sqlite3_libversion(), said.zMsg);
  bxErrClear(&said);
}

/* The highest number that a text has had. */
#define LAST "max(texts, coalesce((SELECT max(n) FROM main.rollout__texts), 0))"

static const char zEmpty[] =
    "INSERT INTO main.rollout_fts(rollout_fts) VALUES ('delete-all')";

/* Empties the index and fills it. Returns the number of texts. */
static i64 fill(BxStmts *pHome, BxErr *pErr) {
  static const char zGone[] = "UPDATE main.rollout__act SET search = 1 + " LAST
                              " - (SELECT count(*) FROM main.rollout__texts)";
  sqlite3_stmt *pRow, *pPut;
  i64 n;
  bxExec(pHome, zEmpty, pErr);
  bxExec(pHome, zGone, pErr);
  pRow = bxPrepare(pHome, zWaiting, pErr);
  pPut = bxPrepare(pHome, zPutWords, pErr);
  n = putWords(pRow, pPut, pErr);
  sqlite3_finalize(pRow);
  sqlite3_finalize(pPut);
  return n;
}

void bxRolloutSearchInstall(BxCall *p) {
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  sqlite3_stmt *pHold;
  i64 n;
  if (pHome == 0) return;
  p->bx->nForeign++; /* rules that are kept are looked at again */
  bxExec(pHome, zLock, &p->err);
  pHold = bxGuardBegin(p->bx, &p->err);
  bxRolloutCatchUp(pHome, 0, &p->err);
  openIndex(pHome, &p->err);
  bxExec(pHome, bxSqlRolloutSearch, &p->err);
  n = fill(pHome, &p->err);
  bxGuardEnd(p->bx, pHold, &p->err);
  explainHost(&p->err);
  bxReturnInt(p, n);
}

/* The index has the words of deleted texts, and sums the names of models. */
void bxRolloutErase(BxStmts *p, int bDone, BxErr *pErr) {
  assert(bDone == 0 || bDone == 1);
  if (!bDone) return;
  bxRolloutCatchUp(p, 0, pErr);
  bxRolloutSumsPut(p, pErr);
  if (bxQueryNumber(p, HAS_INDEX, pErr) == 0) return;
  fill(p, pErr);
}

void bxRolloutSearchCleanup(BxStmts *p, BxErr *pErr) {
  static const char zDead[] =
      "SELECT dead > 1000 AND dead > live FROM (SELECT " LAST
      " + 1 - search - live AS dead, live FROM main.rollout__act, "
      "(SELECT count(*) AS live FROM main.rollout__texts)) "
      "WHERE (" HAS_INDEX ")";
  BxErr err = {SQLITE_OK, 0};
  if (bxQueryNumber(p, zDead, pErr) <= 0) return;
  sqlite3_finalize(bxPrepare(p, zEmpty, &err));
  if (err.rc != SQLITE_ERROR) fill(p, pErr); /* else there is no FTS5 here */
  bxErrClear(&err);
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
  openIndex(pHome, &p->err);
  bxExec(pHome, zSearchRemove, &p->err);
  explainHost(&p->err);
  bxReturnInt(p, bThere);
}

/*---------------------------------------------------------------- search ----*/

/* The newest texts that a query finds, of which the best come first. */
#define CANDIDATES "1000"
/* The part of a text around the first word, on one line; an ellipsis stands for what
** is left out. */
#define BEFORE "48"
#define WHOLE "144"
/* (With LIMIT, a text is read, and the word looked for, once.) */
#define SNIPPET                                                                \
  "(SELECT iif(start > 1, char(8230), '') || replace(replace(replace("         \
  "substr(text, start, " WHOLE "), char(13), ''), char(10), ' '), "            \
  "char(9), ' ') || iif(length(text) >= start + " WHOLE ", char(8230), '') "   \
  "FROM (SELECT text, max(1, instr(lower(text), lower(?2)) - " BEFORE          \
  ") AS start FROM (SELECT text FROM main.rollout__said AS s "                 \
  "WHERE s.n = b.n LIMIT 1) LIMIT 1))"

/* The call of text t, or the one of which it is the result: mostly one of the texts
** just before it, so that the look goes back from there. */
#define CALL_OF_T                                                              \
  "CASE t.role WHEN 'call' THEN t.n WHEN 'tool' THEN coalesce((SELECT c.n "    \
  "FROM main.rollout__texts AS c WHERE c.result = t.n AND c.id "               \
  "BETWEEN t.id - 2000 AND t.id ORDER BY c.id DESC LIMIT 1), (SELECT c.n "     \
  "FROM main.rollout__texts AS c WHERE c.result = t.n AND c.id "               \
  "BETWEEN t.id + 1 AND t.id + 100 ORDER BY c.id LIMIT 1)) END"

static const char zSearch[] =
    "SELECT id, sequence, at, role, " SNIPPET ", score, tool, file FROM ("
    "SELECT f.*, h.id AS id, h.updated AS updated FROM ("
    "SELECT t.n AS n, t.id >> 32 AS owner, t.id & 4294967295 AS sequence, "
    "t.at AS at, t.role AS role, t.tool AS tool, t.file AS file, "
    "w.score AS score FROM (SELECT value ->> 0 AS n, value ->> 1 AS score "
    "FROM json_each(?11) UNION ALL SELECT * FROM (SELECT rowid, rank "
    "FROM main.rollout_fts WHERE rollout_fts MATCH ?1 "
    "ORDER BY rowid DESC LIMIT -1)) AS w "
    "CROSS JOIN main.rollout__texts AS t ON t.n = w.n "
    "WHERE (?5 IS NULL OR t.at >= ?5) AND (?6 IS NULL OR t.at <= ?6) "
    "AND (?7 IS NULL OR (SELECT a.cwd = rtrim(?7, '/') OR substr(a.cwd, 1, "
    "length(rtrim(?7, '/')) + 1) = rtrim(?7, '/') || '/' "
    "FROM main.rollout__about AS a WHERE a.no = t.id >> 32)) "
    "AND (?8 IS NULL OR t.role = ?8) "
    "AND (?9 IS NULL OR (SELECT c.tool FROM main.rollout__texts AS c "
    "WHERE c.n = " CALL_OF_T ") = ?9) "
    "AND (?10 IS NULL OR ?10 IN (SELECT c.file FROM main.rollout__texts AS k "
    "CROSS JOIN main.rollout__texts AS c ON c.id = k.id AND c.n >= k.n "
    "AND c.tool = k.tool WHERE k.n = " CALL_OF_T " "
    "AND (c.n = k.n OR c.role = 'file'))) "
    "AND NOT EXISTS (SELECT 1 FROM main.rollout__marks WHERE id = -t.id) "
    "LIMIT " CANDIDATES ") AS f "
    "JOIN main.rollout__heads AS h ON h.no = (SELECT min(s.rollout) "
    "FROM main.rollout__segments AS s JOIN main.rollout__heads AS live "
    "ON live.no = s.rollout WHERE s.owner = f.owner AND f.sequence "
    "BETWEEN s.first AND s.last AND (live.expires_at IS NULL OR "
    "live.expires_at >= ?4)) "
    "ORDER BY f.score, h.updated DESC, f.sequence LIMIT ?3) AS b";

/* The texts that wait and that a query finds, as [[n, score], ...], the newest first, to
** sqlite3_free(). They are ranked by the number of all texts and their mean length, as
** the index has counted them in its first block, once these are many. */
static char *waitingFor(BxStmts *p, const char *zAsk, BxErr *pErr) {
  static const char zCounts[] =
      "SELECT block FROM main.rollout_fts_data WHERE id = 1";
  static const char *const azOwn[] = {bxSqlRolloutSearch, zPutWords,
      "UPDATE rollout_fts_data SET block = ?1 WHERE id = 1",
      "SELECT json_group_array(json_array(rowid, rank)) FROM (SELECT rowid, "
      "rank FROM rollout_fts WHERE rollout_fts MATCH ?1 ORDER BY rowid DESC)"};
  sqlite3_stmt *pText = bxPrepare(p, zWaiting, pErr), *apOwn[4] = {0};
  sqlite3_stmt *pCounts = bxPrepare(p, zCounts, pErr);
  sqlite3 *db = 0;
  char *zFound = 0;
  int i;
  if (bxStep(pText, pErr)) {
    int rc = sqlite3_open_v2(
        ":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
    sqlite3_reset(pText);
    if (rc != SQLITE_OK) bxFail(pErr, rc, "%s", sqlite3_errstr(rc));
    for (i = 0; i < 4; i++) {
      apOwn[i] = bxPrepareSql(db, azOwn[i], pErr);
      if (i == 0) bxStmtRun(apOwn[i], pErr);
    }
    putWords(pText, apOwn[1], pErr);
    if (bxStep(pCounts, pErr)) {
      const unsigned char *a = sqlite3_column_blob(pCounts, 0);
      if (a != 0 && *a > MANY_TEXTS) { /* or the first byte of more */
        bxBind(apOwn[2], pErr, "v", sqlite3_column_value(pCounts, 0));
        bxStmtRun(apOwn[2], pErr);
      }
    }
    bxBind(apOwn[3], pErr, "t", zAsk);
    if (bxStep(apOwn[3], pErr)) zFound = bxColumnCopy(apOwn[3], 0, pErr);
    for (i = 0; i < 4; i++) sqlite3_finalize(apOwn[i]);
    sqlite3_close(db);
  }
  sqlite3_finalize(pText);
  sqlite3_finalize(pCounts);
  return zFound;
}

sqlite3_stmt *bxRolloutSearch(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zFinds[] =
      "SELECT count(*) FROM (SELECT 1 FROM main.rollout_fts "
      "WHERE rollout_fts MATCH ?1 LIMIT 1)";
  const char *z = bxText(apArg[0], "query", 10000, 0, pErr);
  i64 nRow = apArg[1] != 0 ? bxInt(apArg[1], "limit", 1, 1000000000, pErr) : 50;
  BxStmts *p = bxRolloutSchema(bx, pErr);
  RolloutAsk ask = {0};
  char *zAsk = z != 0 ? askFor(&ask, z, pErr) : 0;
  char *zWaits;
  sqlite3_stmt *pStmt;
  if (ask.nWord > MOST_WORDS) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: query must have at most %d words, got %d", MOST_WORDS,
        ask.nWord);
  }
  if (z != 0 && ask.zFirst == 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: query must have a word, got %Q; a word is of letters "
        "and digits, at most 64, and can end in *",
        z);
  }
  if (p != 0 && bxQueryNumber(p, HAS_INDEX, pErr) == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "SearchError: the search is not installed; SELECT "
        "rollout_search_install() to create its index");
  }
  if (p != 0 && bxQueryNumber(p, IS_DAMAGED, pErr) != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "SearchError: the index is damaged, and new texts are not in it; "
        "SELECT "
        "rollout_search_install() makes it anew");
  }
  /* what FTS5 does not understand is said here, and not at the first row */
  bxQueryInt(p, zFinds, pErr, "t", zAsk);
  zWaits = p ? waitingFor(p, zAsk, pErr) : 0;
  pStmt = bxPrepare(p, zSearch, pErr);
  bxRolloutExplain(pErr, "SearchError: Search failed: ");
  bxBind(pStmt, pErr, "cciivvvvvvc", zAsk, ask.zFirst, nRow, bxNow(), apArg[2],
      apArg[3], apArg[4], apArg[5], apArg[6], apArg[7], zWaits);
  sqlite3_free(zAsk);
  sqlite3_free(zWaits);
  sqlite3_free(ask.zFirst);
  return pStmt;
}

/*----------------------------------------------------------------- check ----*/

#define MEND "; SELECT rollout_search_install() makes the index anew"

/* Looks for words of texts: of those that the index does not know, of which zAsk is
** NULL, or of some of all ages. Returns whether all is well. */
static int lookFor(BxStmts *p, const char *zTexts, const char *zAsk,
    BxProblems *pOut, BxErr *pErr) {
  sqlite3_stmt *pRow = bxPrepare(p, zTexts, pErr);
  BxTree tree = {0};
  int bFound = 1;
  while (bFound && bxStep(pRow, pErr)) {
    i64 n = sqlite3_column_int64(pRow, 0);
    char *zEntire, *zWords = wordsOf(pRow, &tree, &zEntire, pErr);
    char *z = zWords, *zWord;
    /* the first word of which FTS5 has the same idea */
    while (z != 0 && *z != 0 && (*z & 0x80) != 0) {
      z += strcspn(z, " ");
      z += *z == ' ';
    }
    zWord = z != 0 && *z != 0
                ? bxPrintf(pErr, "\"%.*s\"", (int)strcspn(z, " "), z)
                : 0;
    if (zWord != 0) {
      bFound = zAsk != 0 && bxQueryInt(p, zAsk, pErr, "ti", zWord, n) > 0;
    }
    if (!bFound && pErr->rc == SQLITE_OK) {
      bxProblem(pOut, BX_ROLLOUT_SEARCH,
          "text %lld is not found by its word %s" MEND, n, zWord);
    }
    sqlite3_free(zWord);
    sqlite3_free(zWords);
    sqlite3_free(zEntire);
  }
  sqlite3_finalize(pRow);
  bxTreeFree(&tree);
  return bFound;
}

void bxRolloutSearchCheck(BxStmts *p, BxProblems *pOut) {
#define NOT_DUE                                                                \
  TEXTS "NOT EXISTS (SELECT 1 FROM main.rollout__marks WHERE id = -t.id) "
  static const char zOutside[] = NOT_DUE
      "AND t.n NOT IN (SELECT id FROM main.rollout_fts_docsize) AND t.n <= "
      "max(" DONE ", (SELECT max(n) FROM main.rollout__texts) - " NUMBER_TEXT(
          MOST_WAITING) ")";
  static const char zSome[] =
      NOT_DUE "AND t.n % (SELECT 1 + max(n) / 64 FROM main.rollout__texts) = 0 "
              "AND t.n <= " DONE;
  static const char zFinds[] =
      "SELECT count(*) FROM main.rollout_fts WHERE rollout_fts MATCH ?1 "
      "AND rowid = ?2";
  static const char zHas[] = "SELECT search FROM main.rollout__act";
  BxErr err = {SQLITE_OK, 0};
  i64 iHas = bxQueryNumber(p, zHas, &err);
  if (iHas < 0 && err.rc == SQLITE_OK) {
    bxProblem(pOut, BX_ROLLOUT_SEARCH, "a text could not be put into it" MEND);
  } else if (iHas > 0) {
    sqlite3_finalize(bxPrepare(p, zOpen, &err));
    if (bxErrContains(&err, "no such module")) {
      bxErrClear(&err);
    } else if (lookFor(p, zOutside, 0, pOut, &err)) {
      lookFor(p, zSome, zFinds, pOut, &err);
    }
  }
  bxProblemError(pOut, BX_ROLLOUT_SEARCH, &err);
}
