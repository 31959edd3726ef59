/*
** json.h: JSON looked at, written and cut, without SQLite's parser where that
** is slow.
*/
#ifndef BX_JSON_H
#define BX_JSON_H

#include "error.h"

/* SQL: whether SQLite takes a text for JSON. When memory runs out, json_valid()
** of SQLite before 3.45 says no instead of failing. So a no is asked again, of
** a text that has to be made first, which fails. */
#define BX_JSON_VALID(json)                                                    \
  "CASE WHEN json_valid(" json ") THEN 1 ELSE json_valid(" json " || ' ') END"

/* SQL: whether a JSON string stands for text with a NUL. (What SQLite makes of
** it may end before that.) */
#define BX_JSON_HAS_NUL(json)                                                  \
  "instr(replace(" json ", '\\\\', ''), '\\u0000') > 0"
/* SQL: the text that a JSON string stands for, with its NULs: three characters
** that Unicode gives no meaning take their place on the way. */
#define BX_JSON_TEXT(json)                                                     \
  "CASE WHEN instr(" json ", '\\u0000') THEN replace("                         \
  "replace(replace(" json ", '\\\\', '\\u005c'), '\\u0000',"                   \
  " '\\ufdd0\\ufdd1\\ufdd0') ->> '$', char(64976, 64977, 64976), char(0)) "    \
  "ELSE " json " ->> '$' END"

/* 1: json_valid() accepts these n bytes, behind which a NUL stands; 0: ask it.
*/
int bxSurelyJson(const char *z, i64 n);
/* Writes a text as a JSON string, without a NUL after it. Returns its end. */
char *bxPutJson(char *zOut, const char *z, int n);
#define BX_JSON_ROOM 6 /* bytes that it may write for one, and the quotes */
/* Whether these n bytes, behind which a NUL stands, are JSON. 0 for NULL. */
int bxIsJson(Bx *bx, const char *z, i64 n, BxErr *pErr);
/* The same for a text that this connection may read again: one that was found
** to be JSON before is recognised by its hash, many times faster. */
/* Tells it of a text that is known to be JSON. */
void bxSawJson(Bx *bx, const char *z, i64 n);
int bxIsJsonAgain(Bx *bx, const char *z, i64 n, BxErr *pErr);

/* What to do with a member: leave it out, go on inside it, cut a string to
** BX_CUT_CHARS characters, or nothing. */
typedef enum {
  BX_CUT_NOTHING,
  BX_CUT_ALL,
  BX_CUT_MEMBERS,
  BX_CUT_ELEMENTS,
  BX_CUT_TEXT
} BxHow;

#define BX_CUT_CHARS 100

/* The member of that name. zKind has the characters with which a value of the
** kind expected begins, NULL for any kind. A list ends with zKey NULL, and has
** at most 64. */
typedef struct BxCut {
  const char *zKey;
  BxHow eHow;
  const char *zKind;
  const struct BxCut *aInside; /* of its members, or of its elements' members */
} BxCut;

/* What came of it: BX_CUT_UNSURE where bxSurelyJson() says no; BX_CUT_ODD where
** a key has an escape, or one that a list names comes twice, so that what it
** stands for is in doubt; BX_CUT_STRANGE where a member is not of the kind that
** its list says, or an element of BX_CUT_ELEMENTS is no object. */
typedef enum {
  BX_CUT_UNSURE,
  BX_CUT_DONE,
  BX_CUT_STRANGE,
  BX_CUT_ODD
} BxCutResult;

/*
** Appends the value of those n bytes to pOut, cut as *pCut tells; a value that
** is not of the kind expected is left whole. Unless it returns BX_CUT_DONE or
** BX_CUT_STRANGE, what was appended is of no use.
*/
BxCutResult bxJsonCut(
    const char *z, i64 n, const BxCut *pCut, sqlite3_str *pOut);

#endif
