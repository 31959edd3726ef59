/*
** messages.c: the history of a conversation of another program than Codex, by
** the rows of rollout_histories; and rollout_tree(id): how its items follow one
** another.
**
** Items of Claude Code, pi and Qwen name the item that they follow. If a user
** goes back and says something else, the items are a tree, and only one branch
** goes on: the live one, which has the newest message. The results of calls that
** ran side by side are siblings, too, so that whole turns are live or not: an
** item is live if the message that began its turn is on the way from the newest
** message back to the first.
**
** Of several items with one id the newest counts.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* clang-format off */

/* Whether the conditions of a row hold for a payload. */
#define FITS(row, payload)                                                     \
  "NOT EXISTS (SELECT 1 FROM json_each(" row ".conditions) AS c WHERE CASE "   \
  "c.type WHEN 'text' THEN "                                                   \
  "lower(replace(coalesce(" payload " ->> c.key, ''), '_', '')) "              \
  "<> lower(replace(c.value, '_', '')) "                                       \
  "WHEN 'true' THEN coalesce(json_type(" payload ", c.key), 'null') "          \
  "IN ('null', 'false') "                                                      \
  "ELSE coalesce(json_type(" payload ", c.key), 'null') "                      \
  "NOT IN ('null', 'false') END)"

/* x: the items of conversation number ?1, with their ids. y: those that make a
** message, by the rows of format ?2. path: the ids from the newest message back.
** node: each id, the id of the item with which its turn begins, and a number for
** the order, in which it comes after the item that it follows. Of items with one id
** others follow the first, and none itself: so no walk is without end. live: what is on
** the live branch, and was not taken back. (With LIMIT -1, SQLite before 3.40, too,
** makes a table of a query, and does not repeat it for each row.) */
static const char zItemsPart[] =
    "WITH RECURSIVE f(id, up) AS MATERIALIZED ("
    "SELECT item_id, item_parent FROM main.rollout_formats "
    "WHERE format = ?2), x AS MATERIALIZED ("
    "SELECT d.id & 4294967295 AS sequence, d.timestamp AS timestamp, "
    "lower(replace(d.type, '_', '')) AS type_key, d.payload AS payload, "
    "d.payload ->> (SELECT id FROM f) AS key, "
    "d.payload ->> (SELECT up FROM f) AS up "
    "FROM main.rollout__segments AS s CROSS JOIN main.rollout__items AS d "
    "ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
    "WHERE s.rollout = ?1 AND " BX_JSON_VALID("d.payload") " LIMIT -1), "
    "y AS MATERIALIZED (SELECT x.sequence AS at, x.key AS its, m.* FROM x "
    "CROSS JOIN main.rollout_histories AS m ON m.format = ?2 "
    "AND m.type_key = x.type_key WHERE " FITS("m", "x.payload") " LIMIT -1), "
    "path(key, up) AS (SELECT * FROM (SELECT x.key, x.up FROM x "
    "WHERE x.key IS NOT NULL AND x.sequence IN (SELECT at FROM y) "
    "ORDER BY x.sequence DESC LIMIT 1) "
    "UNION SELECT x.key, x.up FROM path JOIN x ON x.key = path.up), "
    "turn(at) AS MATERIALIZED (SELECT t.id & 4294967295 "
    "FROM main.rollout__segments AS s JOIN main.rollout__marks AS t "
    "ON t.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
    "WHERE s.rollout = ?1 AND t.kind = 'turn' "
    "UNION SELECT value ->> 0 FROM json_each(?3)), "
    "same(first, newest) AS MATERIALIZED (SELECT min(sequence), "
    "max(sequence) FROM x WHERE key IS NOT NULL GROUP BY key), "
    "node(key, turn, at, place) AS (SELECT key, key, sequence, sequence FROM x "
    "WHERE key IS NOT NULL AND (up IS NULL OR up = key OR up NOT IN ("
    "SELECT key FROM x WHERE key IS NOT NULL)) UNION SELECT x.key, "
    "iif(x.sequence IN (SELECT at FROM turn), x.key, node.turn), x.sequence, "
    "max(x.sequence, node.place + 0.001) FROM node JOIN x ON x.up = node.key "
    "AND x.key IS NOT node.key WHERE node.at IN (SELECT first FROM same)), "
    "back(low, high) AS MATERIALIZED (SELECT (SELECT max(k.sequence) FROM x "
    "AS k WHERE k.key = x.payload ->> y.rewind AND k.sequence < x.sequence), "
    "x.sequence FROM y JOIN x ON x.sequence = y.at "
    "WHERE y.rewind IS NOT NULL), "
    "live(at) AS MATERIALIZED (SELECT sequence FROM x "
    "WHERE (key IS NULL OR sequence IN (SELECT newest FROM same)) "
    "AND NOT EXISTS (SELECT 1 FROM back WHERE sequence >= low "
    "AND sequence < high) AND ((SELECT up FROM f) IS NULL OR key IS NULL "
    "OR NOT EXISTS (SELECT 1 FROM path) "
    "OR key IN (SELECT key FROM node WHERE turn IN (SELECT key FROM path)))) ";

/* What stands for the content of a message: with calls and results, as parts. */
#define CONTENT                                                                \
  "CASE WHEN calls IS NULL AND results IS NULL AND (member <> 'parts' OR "     \
  "json_type(x.payload, content) = 'array') THEN x.payload -> content "        \
  "ELSE (SELECT json_group_array(json(value)) FROM ("                          \
  "SELECT json_object('text', x.payload ->> content) AS value "                \
  "WHERE json_type(x.payload, content) = 'text' UNION ALL "                    \
  "SELECT value FROM json_each(x.payload, content) WHERE type = 'object' "     \
  "AND json_type(x.payload, content) = 'array' UNION ALL "                     \
  "SELECT json_object('functionCall', json_object('id', value -> 'id', "       \
  "'name', value -> 'name', 'args', value -> 'args')) "                        \
  "FROM json_each(x.payload, calls) WHERE type = 'object' UNION ALL "          \
  "SELECT r.value FROM json_each(x.payload, results) AS c "                    \
  "CROSS JOIN json_each(c.value, '$.result') AS r WHERE c.type = 'object' "    \
  "AND r.type = 'object')) END"

/* kept: the live items that make a message. A summary comes before what it left.
** m: their messages. */
static const char zMessagesPart[] =
    ", cut(at, low) AS MATERIALIZED (SELECT y.at, "
    "coalesce((SELECT min(k.sequence) FROM x AS k "
    "WHERE k.key = x.payload ->> y.since), y.at) "
    "FROM y JOIN x ON x.sequence = y.at WHERE y.summary IS NOT NULL "
    "AND y.at IN (SELECT at FROM live) ORDER BY y.at DESC LIMIT 1), "
    "m AS MATERIALIZED (SELECT x.sequence AS sequence, y.part AS part, "
    "iif(y.summary IS NULL, coalesce((SELECT place FROM node "
    "WHERE at = x.sequence), x.sequence), -1) AS place, "
    "x.timestamp AS timestamp, iif(substr(y.role, 1, 2) = '$.', "
    "x.payload ->> y.role, y.role) AS role, "
    "CASE WHEN y.summary IS NOT NULL THEN json_object('role', y.role, "
    "y.member, x.payload ->> y.summary) "
    "WHEN y.whole IS NOT NULL THEN x.payload -> y.whole "
    "ELSE json_object('role', iif(substr(y.role, 1, 2) = '$.', "
    "x.payload ->> y.role, y.role), y.member, json(" CONTENT ")) END AS json, "
    "parts, call_type, call_id, result_type, result_id, "
    "x.payload ->> y.item_call AS item_call, "
    "x.payload ->> y.item_result AS item_result "
    "FROM y JOIN x ON x.sequence = y.at WHERE y.rewind IS NULL "
    "AND y.at IN (SELECT at FROM live) "
    "AND iif(y.summary IS NULL, y.at >= coalesce((SELECT low FROM cut), 0), "
    "y.at = (SELECT at FROM cut))) ";

/* k: the calls and results. o: those of them that stand alone. */
static const char zOrphansPart[] =
    ", e AS MATERIALIZED (SELECT m.place * 10 + m.part AS at, "
    "m.sequence AS sequence, m.part AS part, e.key AS i, e.value AS json, "
    "CASE WHEN coalesce(e.value ->> '$.type', '') IN (call_type, '') OR "
    "call_type = '' THEN e.value ->> call_id END AS call, "
    "CASE WHEN coalesce(e.value ->> '$.type', '') IN (result_type, '') OR "
    "result_type = '' THEN e.value ->> result_id END AS result "
    "FROM m CROSS JOIN json_each(m.json, m.parts) AS e "
    "WHERE m.parts IS NOT NULL AND e.type = 'object' "
    "AND json_type(m.json, m.parts) = 'array' UNION ALL "
    "SELECT m.place * 10 + m.part, m.sequence, m.part, -1, m.json, "
    "item_call, item_result FROM m), "
    "k AS MATERIALIZED (SELECT at, sequence, part, i, json, 'call' AS kind, "
    "call AS id FROM e WHERE call IS NOT NULL UNION ALL "
    "SELECT at, sequence, part, i, json, 'result', result FROM e "
    "WHERE result IS NOT NULL), "
    "n AS MATERIALIZED (SELECT kind, id, min(at) AS first, max(at) AS last "
    "FROM k GROUP BY kind, id), "
    "o AS MATERIALIZED (SELECT * FROM k WHERE NOT EXISTS (SELECT 1 FROM n "
    "WHERE n.id = k.id AND n.kind <> k.kind AND iif(k.kind = 'call', "
    "n.last > k.at, n.first < k.at))) ";

static const char zMessages[] =
    "SELECT sequence, timestamp, role, json FROM m "
             "ORDER BY place, part";
static const char zWhole[] =
    ", bad AS MATERIALIZED (SELECT sequence AS of, part AS number, "
    "min(i) < 0 AS whole, json_group_array(i) AS list FROM o GROUP BY 1, 2) "
    "SELECT sequence, timestamp, role, json FROM ("
    "SELECT place, part, sequence, timestamp, role, CASE "
    "WHEN bad.of IS NULL THEN json WHEN bad.whole OR parts IS NULL THEN NULL "
    "ELSE json_set(json, parts, json((SELECT "
    "json_group_array(json(e.value)) FROM json_each(m.json, m.parts) "
    "AS e WHERE e.type = 'object' "
    "AND e.key NOT IN (SELECT value FROM json_each(bad.list))))) END AS json, "
    "parts FROM m LEFT JOIN bad ON bad.of = m.sequence "
    "AND bad.number = m.part) WHERE json IS NOT NULL AND NOT ("
    "parts IS NOT NULL AND json_type(json, parts) IS 'array' "
    "AND json_array_length(json, parts) = 0) ORDER BY place, part";
static const char zAlone[] =
    "SELECT sequence, kind, id, coalesce(json ->> '$.type', ''), json "
            "FROM o ORDER BY at, i";
static const char zBranches[] =
    "SELECT x.sequence, x.key, x.up, (SELECT max(p.sequence) FROM x AS p "
          "WHERE p.key = x.up), x.sequence IN (SELECT at FROM live) FROM x "
          "WHERE x.key IS NOT NULL ORDER BY x.sequence";
/* clang-format on */

int bxRolloutHasMessages(BxStmts *p, i64 no, BxErr *pErr) {
  static const char zHas[] =
      "SELECT EXISTS (SELECT 1 FROM main.rollout_histories AS m "
      "JOIN main.rollout__about AS a ON a.format = m.format WHERE a.no = ?1)";
  return (int)bxQueryInt(p, zHas, pErr, "i", no);
}

/* The messages as one JSON array; and the same rows, out of that array (?1).
** SQLite has a limit for how deep subqueries are in one statement. */
static const char zPack[] =
    "SELECT json_group_array(json_array(sequence, place, part, timestamp, "
    "role, json, parts, call_type, call_id, result_type, result_id, "
    "item_call, item_result)) FROM m";
static const char zUnpack[] =
    "WITH m AS MATERIALIZED (SELECT value ->> 0 AS sequence, "
    "value ->> 1 AS place, value ->> 2 AS part, value ->> 3 AS timestamp, "
    "value ->> 4 AS role, value ->> 5 AS json, value ->> 6 AS parts, "
    "value ->> 7 AS call_type, value ->> 8 AS call_id, "
    "value ->> 9 AS result_type, value ->> 10 AS result_id, "
    "value ->> 11 AS item_call, value ->> 12 AS item_result "
    "FROM json_each(?1)) ";

/* The turns that are not derived yet, as bxRolloutMarks() lists them. */
static char *pendingTurns(BxStmts *p, const RolloutHead *pHead, BxErr *pErr) {
  RolloutDerive told;
  char *z;
  memset(&told, 0, sizeof(told));
  bxRolloutDerivePending(&told, p, pHead, pErr);
  z = bxRolloutMarks(told.aTurn, 0, told.nTurnNew, pErr);
  bxRolloutDeriveEnd(&told);
  return z;
}

/* Prepares a query on the items of a conversation, and binds its parameters. */
static sqlite3_stmt *openItems(Bx *bx, BxStmts *p, const RolloutHead *pHead,
    const char *zPart, const char *zSelect, BxErr *pErr) {
  static const char zFormat[] =
      "SELECT format FROM main.rollout__about WHERE no = ?1";
  char *zName = bxQueryText(p, zFormat, pErr, "i", pHead->no);
  char *zTurns = pendingTurns(p, pHead, pErr);
  char *zSql = bxPrintf(pErr, "%s%s%s", zItemsPart, zPart, zSelect);
  sqlite3_stmt *pStmt = zSql ? bxRolloutQuery(bx, zSql, pErr) : 0;
  assert(zPart != 0 && zSelect != 0);
  bxBind(pStmt, pErr, "icc", pHead->no, zName, zTurns);
  sqlite3_free(zTurns);
  sqlite3_free(zName);
  sqlite3_free(zSql);
  return pStmt;
}

sqlite3_stmt *bxRolloutMessages(Bx *bx, BxStmts *p, const RolloutHead *pHead,
    RolloutMessages eWhat, BxErr *pErr) {
  sqlite3_stmt *pPack, *pStmt;
  char *zPacked = 0, *zSql;
  if (eWhat == ROLLOUT_ALL) {
    return openItems(bx, p, pHead, zMessagesPart, zMessages, pErr);
  }
  pPack = openItems(bx, p, pHead, zMessagesPart, zPack, pErr);
  if (bxStep(pPack, pErr)) zPacked = bxColumnCopy(pPack, 0, pErr);
  sqlite3_finalize(pPack);
  zSql = bxPrintf(pErr, "%s%s%s", zUnpack, zOrphansPart,
      eWhat == ROLLOUT_COMPLETE ? zWhole : zAlone);
  pStmt = zSql ? bxRolloutQuery(bx, zSql, pErr) : 0;
  bxBind(pStmt, pErr, "c", zPacked);
  sqlite3_free(zPacked);
  sqlite3_free(zSql);
  return pStmt;
}

sqlite3_stmt *bxRolloutTree(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  RolloutHead head = bxRolloutLive(bx, apArg[0], bxNow(), pErr);
  BxStmts *p = bxRolloutSchema(bx, pErr);
  return p ? openItems(bx, p, &head, "", zBranches, pErr) : 0;
}
