/*
** evidence.h: what the files of the evidence buffer share.
**
**   buffer.c    the virtual table's methods, and nothing else
**   schema.c    the shadow tables: made, renamed, dropped, checked
**   store.c     rows written and read, settings
**   overflow.c  the second tier of a buffer in temp
**   approve.c   what an approved action keeps, as SQL
**   act.c       the functions that prune, clear, flush and count
**   export.c    the recording as JSON: to save, to replay
**
** A row lies in one of three places: in the memory of a buffer in temp, in
** the overflow tables of a file (written there from temp), or in the file of
** a buffer that is no temporary one.
*/
#ifndef BX_EVIDENCE_H
#define BX_EVIDENCE_H

#include "../core/core.h"

#define EV_MODULE "evidence_buffer"
#define EV_COLUMNS                                                             \
  "id,timestamp,action,screenshot,size_bytes,pruned,pinned,storage,value"

#define EV_MEMORY 0
#define EV_OVERFLOW 1
#define EV_FILE 2

/* Bytes counted for a row beside its action and screenshot. */
#define EV_ROW_BYTES 100

typedef struct EvBuffer {
  BxVtab base;
  int bTemp;  /* in schema temp: memory first, overflow possible */
  int bDisk;  /* its schema has a file */
  int bKnown; /* its version was looked at */
} EvBuffer;

/* The one row of the state table. */
typedef struct EvState {
  i64 nMax;          /* max_size_bytes */
  i64 nFree;         /* screenshots that are not pinned */
  i64 nKeep;         /* how many of them may stay; -1: any number */
  double rThreshold; /* prune_threshold */
  i64 nBytes;        /* of all rows, both tiers */
  i64 nPinned;       /* of those, bytes of pinned rows */
  i64 nMemory;       /* of those, bytes in memory */
  i64 nAction;       /* rows */
  i64 nScreenshot;   /* rows with a screenshot */
  i64 nOverflow;     /* rows in the overflow */
  i64 iLast;         /* highest rid given */
  int bRated;        /* rows are rated by confidence */
  char *zOverflow;   /* schema of the overflow; NULL for none */
  char *zOwner;      /* key of this buffer's rows there */
  char *zClaim;      /* shows that they are still this buffer's */
} EvState;

/* The parameters of CREATE VIRTUAL TABLE; -1 and NULL where not given. */
typedef struct EvParam {
  char zMax[40], zThreshold[40], zPolicy[40], zShots[40];
  char zOverflow[200], zResume[100];
} EvParam;

/*---------------------------------------------------------- schema.c ----*/

void evCreate(EvBuffer *p, BxErr *pErr);
void evDrop(EvBuffer *p, BxErr *pErr);
void evRename(EvBuffer *p, const char *zNew, BxErr *pErr);
/* The tables are there. Reads nothing, as a read in a transaction must not come
** before the first write. */
void evExpectTables(EvBuffer *p, BxErr *pErr);
/* They are of a version that this module knows. */
void evExpectVersion(EvBuffer *p, i64 iVersion, BxErr *pErr);
int evIsShadow(const char *zSuffix);
void evCheck(BxVtab *p, BxProblems *pOut);

/*----------------------------------------------------------- store.c ----*/

/* Reads the state table's row, and sees that its version is one to know. */
void evLoadState(EvBuffer *p, EvState *pState, BxErr *pErr);
/* The second part alone, for readers; looks once. */
void evExpectKnown(EvBuffer *p, BxErr *pErr);
/* Frees the texts; the numbers stay. */
void evFreeState(EvState *pState);
/* Writes the first state row from the parameters. */
void evFirstState(EvBuffer *p, const EvParam *pParam, BxErr *pErr);
/* One setting, by name: "max_screenshots", 20. */
void evSet(EvBuffer *p, const char *zName, sqlite3_value *pVal, BxErr *pErr);

/* A row as a statement gives it. NULL: not given, or not changed. */
typedef struct EvRow {
  sqlite3_value *pId, *pTimestamp, *pAction, *pScreenshot, *pPinned;
  int bReplace;    /* an existing id is updated */
  int bHasPicture; /* pScreenshot was given, as NULL or a blob */
} EvRow;

/* Returns the rid of the new (or replaced) row. */
i64 evStore(EvBuffer *p, EvRow *pRow, BxErr *pErr);
void evChange(EvBuffer *p, i64 iRow, EvRow *pRow, BxErr *pErr);
void evDelete(EvBuffer *p, i64 iRow, BxErr *pErr);
/*
** Prepares zHere; with an overflow zBoth, where ?2 is the owner and "over."
** marks the overflow's schema.
*/
sqlite3_stmt *evPrepareTiers(
    EvBuffer *p, const char *zHere, const char *zBoth, BxErr *pErr);
/* Statements that read the action or the screenshot of row ?1. */
sqlite3_stmt *evReadAction(EvBuffer *p, BxErr *pErr);
sqlite3_stmt *evReadScreenshot(EvBuffer *p, BxErr *pErr);
/*
** All rows as a FROM term with columns rid, id, timestamp, pinned, pruned,
** place, action: both tiers. An action that is gone is NULL. Free the text with
** sqlite3_free().
*/
char *evActions(EvBuffer *p, BxErr *pErr);
/* One command of the buffer's own view: prune, hold, clear. */
void evDo(EvBuffer *p, const char *zVerb, const char *zRule, i64 nAmount,
    i64 iRow, BxErr *pErr);
/* Whether n bytes begin, after white space, as a JSON object does. */
int evIsObject(const char *z, int n);

/*-------------------------------------------------------- overflow.c ----*/

/* Prepares SQL in which "over." marks the overflow's schema. */
sqlite3_stmt *evPrepareOver(
    EvBuffer *p, const EvState *pState, const char *zTemplate, BxErr *pErr);
/* Prepares SQL made with evActions(). */
sqlite3_stmt *evPrepareActions(EvBuffer *p, const char *zSql, BxErr *pErr);
/* Sees that schema zDb can take rows, and registers an owner. */
void evOverflowOpen(
    EvBuffer *p, const char *zDb, const char *zResume, BxErr *pErr);
/* Moves the oldest rows from memory until it holds nGoal bytes or less. */
i64 evOverflowMove(EvBuffer *p, EvState *pState, i64 nGoal, BxErr *pErr);
/* Brings one row back into memory. */
void evOverflowBack(EvBuffer *p, EvState *pState, i64 iRow, BxErr *pErr);
/* Puts the buffer's name into the list of owners. */
void evOverflowRename(EvBuffer *p, BxErr *pErr);
/* Begins an act that writes there: the first write, which waits for others, and
** an error when the evidence belongs to another buffer by now. */
void evOverflowClaim(EvBuffer *p, EvState *pState, BxErr *pErr);
/* The error alone, for an act that is swept up afterwards: asked before
** anything changes, and none when the file cannot be read. */
void evOverflowOurs(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Removes over there what the buffer has let go. */
void evOverflowSweep(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Approves the actions over there. */
void evOverflowApprove(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Lets go of everything this buffer has there. */
void evOverflowDrop(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Rates overflowed rows that have no confidence yet. */
void evOverflowRate(EvBuffer *p, const EvState *pState, BxErr *pErr);

/*--------------------------------------------------------- approve.c ----*/

/* Highest confidence among an action's strategies; -1 when there is none.
** 'confidence-based' retention goes by it. A strategy that says nothing of its
** confidence has the weight of its type. */
#define EV_BEST(action)                                                        \
  "coalesce((SELECT max(CASE WHEN type <> 'object' THEN NULL WHEN "            \
  "json_type(value, '$.confidence') IN ('integer', 'real') THEN "              \
  "json_extract(value, '$.confidence') ELSE CASE json_extract(value, "         \
  "'$.type') WHEN 'cdp_semantic' THEN 0.95 WHEN 'cdp_power' THEN 0.9 "         \
  "WHEN 'dom_selector' THEN 0.85 WHEN 'evidence_scoring' THEN 0.8 "            \
  "WHEN 'css_selector' THEN 0.75 WHEN 'vision_ocr' THEN 0.7 "                  \
  "WHEN 'coordinates' THEN 0.6 END END) FROM json_each(" action                \
  " -> '$.fallbackChain.strategies')), -1)"
/* Whether an action, when it is JSON, is an object. */
#define EV_OBJECT(action)                                                      \
  "(" action " GLOB '{*' OR ltrim(" action                                     \
  ", ' ' || char(9, 10, 13)) GLOB '{*')"
/* evidence_slim(action): without its large parts. */
void evSlim(BxCall *pCall);
/* The SQL expression of what remains of column "action" when it is approved;
** zTime is the SQL of its row's time. Free it with sqlite3_free(). */
char *evApproved(const char *zTime, BxErr *pErr);
/* JSON array of what in these actions could not be understood. */
char *evProblems(EvBuffer *p, BxErr *pErr);

/*---------------------------------------------------- act.c, export.c ----*/

/* Finds the buffer that argument 0 names. */
EvBuffer *evFind(BxCall *pCall);
/* Approval of the stored rows; the JSON result, or NULL with bQuiet. */
char *evApprove(EvBuffer *p, i64 nKeep, int bQuiet, BxErr *pErr);

void evPruneForApproval(BxCall *pCall);
void evPrune(BxCall *pCall);
void evPruneScreenshots(BxCall *pCall);
void evNeedsPruning(BxCall *pCall);
void evStats(BxCall *pCall);
void evClear(BxCall *pCall);
void evFlush(BxCall *pCall);
sqlite3_stmt *evStatsTable(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

void evExport(BxCall *pCall);
void evExportPuppeteer(BxCall *pCall);
void evExportReplay(BxCall *pCall);

/*---------------------------------------------------------- buffer.c ----*/

int evRegister(Bx *bx);

#endif
