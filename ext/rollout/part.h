/*
** part.h: a conversation of an import.
*/
#ifndef BX_ROLLOUT_PART_H
#define BX_ROLLOUT_PART_H

#include "rollout.h"

/* How new items are told from those that are stored. */
typedef enum {
  PART_NEW,      /* all are new */
  PART_BEGIN,    /* nothing was compared yet */
  PART_IN_ORDER, /* all were equal, in order */
  PART_BAG       /* those that are left are in a bag of hashes */
} RolloutPartMatch;

/* Numbers by hashes. Zeroed at first; free a. */
typedef struct RolloutMap {
  struct {
    sqlite3_uint64 h;
    i64 i;
  } * a;
  i64 n, nAlloc; /* a power of 2 */
} RolloutMap;

/* The number of a hash, which is 0 at first. NULL on error. */
i64 *bxMapAt(RolloutMap *p, sqlite3_uint64 h, BxErr *pErr);

typedef struct RolloutPart {
  RolloutWork work;
  char *zName, *zAgent; /* as the file names it; NULL: it does not */
  int bPiece;           /* its id came as an argument */
  int bWhole; /* its payloads are whole lines, with the times in them */
  RolloutPartMatch eMatch;
  sqlite3_stmt *pStored;
  RolloutMap bag; /* of each hash how many there are */
  i64 iMatched;   /* sequence of the last stored item that is in the file */
  char *zAfter;   /* what follows it; nAfter is -1 for what an export writes */
  i64 nAfter;
  RolloutMap seen;    /* hashes of payloads */
  i64 iTime;          /* of the last item, or -1 */
  int bMade;          /* its session_meta is not in the file ... */
  i64 iFirst;         /* ... and has this time */
  RolloutSpan meta;   /* the payload of one that comes later */
  i64 nBad, nBadByte; /* damaged lines among its new items */
} RolloutPart;

/* The id of a conversation that a file names, and of one of its agents. With
** bApart it is made, even if the name is a UUID. */
void bxPartId(const char *zFormat, int bApart, const char *zName,
    const char *zAgent, char zId[37]);
/* A UUID made from three texts, of which the last two may be NULL. */
void bxPartUuid(const char *z1, const char *z2, const char *z3, char zId[37]);
/* Finds it, once its id is known. */
void bxPartOpen(RolloutPart *p, BxStmts *pHome, i64 iNow, BxErr *pErr);
void bxPartClose(RolloutPart *p);
/* Notes a payload. Returns whether the file had it before. */
int bxPartSeen(RolloutPart *p, RolloutSpan payload, BxErr *pErr);
/* Whether the item is stored already; *piTime is then its time. */
int bxPartHas(
    RolloutPart *p, const RolloutLine *pLine, i64 *piTime, BxErr *pErr);

/*-------------------------------------------------------- import.c ----*/

/* What an import tells. */
typedef struct RolloutReport {
  i64 nLine, nItem, nNew, nBad, nId;
  sqlite3_str *pBad, *pIds; /* the members of its arrays */
} RolloutReport;

void bxReportBegin(RolloutReport *p);
/* Returns the report as JSON, unless there is an error, and frees it. */
void bxReportReturn(RolloutReport *p, const char *zFormat, BxCall *pCall);

/* Imports n bytes of lines that were made here. */
void bxRolloutImportMade(BxStmts *pHome, const RolloutFormat *pFormat,
    const char *z, i64 n, i64 iNow, RolloutReport *pReport, BxErr *pErr);

#endif
