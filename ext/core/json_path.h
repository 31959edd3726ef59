/*
** json_path.h: where texts in JSON have what blackbox reads, as rows of blackbox_places
** (sql/core.sql).
*/
#ifndef BX_JSON_PATH_H
#define BX_JSON_PATH_H

#include "domain.h"
#include "json_tree.h"

/* The column kind. What one node of a body is comes in this order. */
typedef enum {
  BX_KIND_CALL,
  BX_KIND_RESULT,
  BX_KIND_USER,
  BX_KIND_ASSISTANT,
  BX_KIND_MESSAGE,
  BX_KIND_PROMPT,
  BX_KIND_MODEL,
  BX_KIND_OFFER,
  BX_KIND_CHOICE,
  BX_KIND_ERROR,
  BX_KIND_PREAMBLE,
  BX_KIND_LINE,
  BX_KIND_START,
  BX_KIND_GOAL,
  BX_KIND_REVIEW,
  BX_KIND_TITLE,
  BX_KIND_CWD,
  BX_KIND_BRANCH,
  BX_KIND_TOOL,
  BX_KIND_USAGE,
  BX_KINDS
} BxKind;

/* The column source. */
typedef enum {
  BX_SOURCE_REQUEST,
  BX_SOURCE_RESPONSE,
  BX_SOURCE_STREAM,
  BX_SOURCE_ITEM,
  BX_SOURCE_EVENT
} BxSource;

/* The texts of a row. */
enum {
  BX_PLACE_FORMAT,
  BX_PLACE_TYPE, /* as types are compared */
  BX_PLACE_AT,
  BX_PLACE_OTHER, /* of lines of text the type */
  BX_PLACE_PART,
  BX_PLACE_ID,
  BX_PLACE_TOOL,
  BX_PLACE_ARGUMENTS,
  BX_PLACE_RESULT,
  BX_PLACE_ERROR,
  BX_PLACE_ID_2,
  BX_PLACE_MODEL,
  BX_PLACE_COST,
  BX_PLACE_INPUT,
  BX_PLACE_CACHE_WRITE,
  BX_PLACE_CACHE_READ,
  BX_PLACE_OUTPUT,
  BX_PLACE_REASONING,
  BX_PLACE_CACHE_WRITE_1H,
  BX_PLACE_TEXTS
};

typedef struct BxCondition {
  char *zPath;
  char cPart;  /* what is there: t the payload's type, r its role; or 0 */
  char *zText; /* which must be there, as it is compared; or NULL */
  int bThere;  /* without a text: something must be there, or nothing */
  /* of a body: the rest of the path after the last [], which stands after so many
  ** steps, -1 if the place has no such []; and its key, if it has only one */
  const char *zRest;
  int nStep, iKey;
} BxCondition;

/* Some conditions, which must all hold. */
typedef struct BxTest {
  i64 i, n;
} BxTest;

typedef struct BxPlace {
  BxKind eKind;
  BxSource eSource;
  char *az[BX_PLACE_TEXTS]; /* NULL for none */
  int bCacheIn, bReasoningIn;
  BxTest test;
  unsigned mEach; /* of a body: after which steps its place has [] */
  int iNext; /* another place that ends there, from 1 on; 0 for none; of an item
                  ** the first one of another type */
} BxPlace;

/* Rows, in the order in which they are tried. Zeroed at first. */
typedef struct BxPlaces {
  BxPlace *a;
  i64 n, nAlloc;
  BxCondition *aCondition;
  i64 nCondition, nConditionAlloc;
} BxPlaces;

/* Adds those of items and text files (bItems), or of bodies, whose kinds are in
** mKind: bits 1 << eKind. Free *p in any case. */
void bxPlacesRead(
    BxPlaces *p, BxStmts *pHome, int bItems, unsigned mKind, BxErr *pErr);
void bxPlacesFree(BxPlaces *p);
/* Adds conditions: a JSON object of places and values. Those that are no object
** never hold; NULL always does. */
BxTest bxTestAdd(BxPlaces *p, const char *zJson, BxErr *pErr);
/* Whether they hold for the value at iTop. */
int bxTestHolds(
    const BxPlaces *p, BxTest test, const BxTree *pTree, int iTop, BxErr *pErr);
/* Whether one holds for the node that was found for it, or -1. */
int bxConditionHolds(
    const BxCondition *p, const BxTree *pTree, int iNode, BxErr *pErr);

/* The node of the first of some paths, with | between them, that has a value: from
** iTop on if it begins with $, or else from iHere on; -1 if there is none. It ends
** at a '='. NULL is nowhere. */
int bxPathFind(const BxTree *p, int iTop, int iHere, const char *zPaths);
/* The same, and where in zPaths that path begins. */
int bxPathFindAt(const BxTree *p, int iTop, int iHere, const char *zPaths,
    const char **pzAt);
/* What a string represents, to sqlite3_free(). */
char *bxTreeString(const BxTree *p, int iNode, BxErr *pErr);
/* Whether n bytes equal a name, in either spelling: some_name, SomeName. */
int bxNameEquals(const char *z, i64 n, const char *zName);
/* Writes a name as it is compared: in lower case, without '_'. */
void bxFoldName(char *z);
/* Whether two texts, each of which may be NULL, are the same. */
int bxSameText(const char *z1, const char *z2);

/* Reads the numbers at a node that a row of kind usage has found. Those
** that are not there stay as they were. */
void bxTokensRead(BxTokens *p, const BxPlace *pPlace, const BxTree *pTree,
    int iNode, BxErr *pErr);

#endif
