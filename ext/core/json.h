/*
** json.h: checks, writes and cuts JSON without SQLite's parser, where that is
** slow.
*/
#ifndef BX_JSON_H
#define BX_JSON_H

#include "error.h"

/* SQL: whether SQLite accepts a text as JSON. When memory runs out,
** json_valid() of SQLite before 3.45 returns 0 instead of failing. So the test
** is repeated with a text that SQLite must allocate first, and that allocation
** fails. */
#define BX_JSON_VALID(json)                                                    \
  "CASE WHEN json_valid(" json ") THEN 1 ELSE json_valid(" json " || ' ') END"

/* SQL: whether a JSON string represents text with a NUL. (SQLite may end the
** text before it.) */
#define BX_JSON_HAS_NUL(json)                                                  \
  "instr(replace(" json ", '\\\\', ''), '\\u0000') > 0"
/* SQL: the text that a JSON string represents, with its NULs. Meanwhile they
** are replaced by three characters to which Unicode assigns no meaning. */
#define BX_JSON_TEXT(json)                                                     \
  "CASE WHEN instr(" json ", '\\u0000') THEN replace("                         \
  "replace(replace(" json ", '\\\\', '\\u005c'), '\\u0000',"                   \
  " '\\ufdd0\\ufdd1\\ufdd0') ->> '$', char(64976, 64977, 64976), char(0)) "    \
  "ELSE " json " ->> '$' END"

/* 1: json_valid() accepts these n bytes, which a NUL follows. 0: ask
** json_valid(). */
int bxIsStrictJson(const char *z, i64 n);
/* The position after the token at z, or NULL if z is not at such a token. The
** terminator of the text stops them; it is at zEnd or behind. */
const char *bxJsonSkipSpace(const char *z);
const char *bxJsonSkipString(const char *z, const char *zEnd);
/* a string, number or word */
const char *bxJsonSkipScalar(const char *z, const char *zEnd);
/* A value with everything in it, nested at most 960 levels deep. */
const char *bxJsonSkipValue(const char *z, const char *zEnd);
/* Appends a text as a JSON string. */
void bxJsonAppend(sqlite3_str *pOut, const char *z, int n);
/* Writes a text as a JSON string, without a NUL after it. Returns its end. */
char *bxJsonWrite(char *zOut, const char *z, int n);
#define BX_JSON_ROOM 6 /* most bytes written for one byte, and the quotes */
/* Whether these n bytes, which a NUL follows, are JSON. 0 for NULL. */
int bxIsJson(Bx *bx, const char *z, i64 n, BxErr *pErr);
/* Notes the hash of a text that is known to be JSON. */
void bxJsonRemember(Bx *bx, const char *z, i64 n);
/* Whether the text is known to be JSON. It need not end with a NUL. */
int bxJsonIsKnown(Bx *bx, const char *z, i64 n);
/* bxIsJson() for a text that this connection may read again: a text that was
** found to be JSON before is recognised by its hash, many times faster. The
** last 256 hashes or fewer are kept, each in one of the four places that its
** first bits name. So the time of a lookup is that of the hash, whatever the texts
** are. */
int bxIsJsonCached(Bx *bx, const char *z, i64 n, BxErr *pErr);

/* What to do with a member: omit it, process its members, cut a string to
** BX_CUT_CHARS characters, or nothing. */
typedef enum {
  BX_CUT_NOTHING,
  BX_CUT_ALL,
  BX_CUT_MEMBERS,
  BX_CUT_ELEMENTS,
  BX_CUT_TEXT
} BxCutAction;

#define BX_CUT_CHARS 100

/* The member with that name. zKind has the characters with which a value of the
** expected kind begins; NULL means any kind. A list ends with zKey NULL, and
** has at most 64 entries. */
typedef struct BxCut {
  const char *zKey;
  BxCutAction eHow;
  const char *zKind;
  const struct BxCut
      *aInside; /* list for its members, or for the members of its elements */
} BxCut;

/* The result. BX_CUT_UNSURE: bxIsStrictJson() returns 0. BX_CUT_ODD: a key has an
** escape, or a key of a list occurs twice, so that the meaning is ambiguous.
** BX_CUT_STRANGE: a member is not of the kind in its list, or an element of
** BX_CUT_ELEMENTS is not an object. */
typedef enum {
  BX_CUT_UNSURE,
  BX_CUT_DONE,
  BX_CUT_STRANGE,
  BX_CUT_ODD
} BxCutResult;

/*
** Appends the value of those n bytes to pOut, cut as *pCut says. A value that
** is not of the expected kind is copied whole. Unless the result is BX_CUT_DONE
** or BX_CUT_STRANGE, the caller must discard what was appended.
*/
BxCutResult bxJsonCut(
    const char *z, i64 n, const BxCut *pCut, sqlite3_str *pOut);

#endif
