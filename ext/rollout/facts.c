/*
** facts.c: the tables rollout_facts and rollout_texts: what items say.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

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
