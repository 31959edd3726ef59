/*
** import.h: an import that is running, for the files that read its lines, and a
** conversation of it.
*/
#ifndef BX_ROLLOUT_IMPORT_H
#define BX_ROLLOUT_IMPORT_H

#include "rollout.h"

/*--------------------------------------------------------- import_session.c ----*/

/* How new items are told from those that are stored. */
typedef enum {
  PART_NEW,      /* all are new */
  PART_BEGIN,    /* nothing was compared yet */
  PART_IN_ORDER, /* all were equal, in order */
  PART_BAG       /* those that are left are in a bag of hashes */
} ImportSessionMatch;

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

/* A stored item. */
typedef struct ImportStored {
  sqlite3_uint64 h;
  i64 id;
} ImportStored;

typedef struct ImportSession {
  RolloutWork work;
  char *zName, *zAgent; /* as the file names it; NULL: it does not */
  int bPiece;           /* its id came as an argument */
  int bWhole; /* its payloads are whole lines, with the times in them */
  ImportSessionMatch eMatch;
  sqlite3_stmt *pStored;
  ImportStored *aBag; /* by their hashes */
  i64 nBag, nBagAlloc;
  i64 iMatched; /* key of the last stored item that is in the file */
  char *zAfter; /* what follows it; nAfter is -1 for what an export writes */
  i64 nAfter;
  RolloutMap seen;    /* hashes of payloads */
  i64 iTime;          /* of the last item, or -1 */
  int bMade;          /* its session_meta is not in the file ... */
  i64 iFirst;         /* ... and has this time */
  RolloutSlice meta;  /* the payload of one that comes later */
  i64 nBad, nBadByte; /* damaged lines among its new items */
} ImportSession;

/* The id of a conversation that a file names, and of one of its agents. With
** bApart it is made, even if the name is a UUID. */
void bxImportSessionId(const char *zFormat, int bApart, const char *zName,
    const char *zAgent, char zId[37]);
/* A UUID made from three texts, of which the last two may be NULL. */
void bxImportSessionUuid(
    const char *z1, const char *z2, const char *z3, char zId[37]);
/* Finds it, once its id is known. */
void bxImportSessionOpen(
    ImportSession *p, BxStmts *pHome, i64 iNow, BxErr *pErr);
void bxImportSessionClose(ImportSession *p);
/* Opens a query of the stored items that follow the last one that is in the file.
** Returns whether there was none and one is needed. */
int bxImportSessionResume(ImportSession *p, BxStmts *pHome, BxErr *pErr);
void bxImportSessionPause(ImportSession *p);
/* Notes a payload. Returns whether the file had it before. */
int bxImportSessionSeen(ImportSession *p, RolloutSlice payload, BxErr *pErr);
/* The hash of an item; of a changed one without its payload. */
sqlite3_uint64 bxImportHash(const char *zType, i64 iTime, const char *z, i64 n);
/* Whether the item is stored already; *piTime is then its time. */
int bxImportSessionHas(
    ImportSession *p, const RolloutLine *pLine, i64 *piTime, BxErr *pErr);

/*-------------------------------------------------------- import.c ----*/

/* What an import tells. */
typedef struct ImportReport {
  i64 nLine, nItem, nNew, nBad, nListed, nId;
  i64 iBad; /* the first line that cannot be read, and why */
  const char *zBad;
  sqlite3_str *pBad, *pIds; /* the members of its arrays */
} ImportReport;

void bxImportReportBegin(ImportReport *p);
/* Returns the report as JSON, unless there is an error, and frees it. A format that
** is not known is NULL. */
void bxImportReportReturn(ImportReport *p, const char *zFormat, BxCall *pCall);
void bxImportReportFree(ImportReport *p);

/* Imports n bytes of lines that were made here. */
void bxRolloutImportMade(BxStmts *pHome, const RolloutFormat *pFormat,
    const char *z, i64 n, i64 iNow, ImportReport *pReport, BxErr *pErr);

/*---------------------------------------------------------- the import ----*/

/* A span of a line. */
typedef struct ImportSpan {
  int iNode, iList; /* its node, and that of the array in which it is */
  int iOuter;       /* the outermost item in which it is */
  int bItem;        /* it can be an item */
  char *zItem;      /* its payload; NULL: it is to be made again */
  i64 iEnd;         /* where it ends in the text that is read */
  ImportSession *pPart;
} ImportSpan;

/* What a path says. */
enum { BX_PATH_ID, BX_PATH_AGENT, BX_PATH_CWD, BX_PATH_NAMES };

/* What is stored of a conversation of whose files each is an item. */
typedef struct ImportKnown {
  char zId[37];
  i64 iLast;        /* its last item */
  RolloutMap items; /* keys by the hashes of items ... */
  RolloutMap files; /* ... and by those of what the newer file replaces */
  sqlite3_uint64 hItem, hFile; /* of the newest file */
} ImportKnown;

/* Queries that are open at most: to open one takes SQLite as long as others are. */
#define IMPORT_OPEN 8

typedef struct Import Import;
struct Import {
  BxStmts *pHome;
  const RolloutRules *pRules;
  const RolloutFormat *pFormat; /* NULL: not known */
  ImportSession **apPart;       /* in the order in which the file names them */
  i64 nPart, nPartAlloc;
  RolloutMap names; /* of those with names the number, from 1 on */
  ImportSession *apOpen[IMPORT_OPEN]; /* those with a query that is open */
  int iOpen;                          /* which of these is the oldest */
  ImportSession *pPart;               /* of the last item */
  ImportSession *pNamed; /* which the line names for all its items, or NULL */
  i64 iNow, iTime; /* the time of lines that have none before any that has */
  const char *z, *zEnd;
  const char *zDocument; /* the file is one value, which ends here; or NULL */
  sqlite3_str *pFrame;   /* what stands around its items; or NULL */
  int bFramed;           /* that has begun */
  char *zFrame;          /* the same, when it is whole ... */
  RolloutSlice frame;    /* ... or the file, if that is not UTF-8 */
  RolloutSlice runGap;   /* between the newest items ... */
  i64 iRun, nRun;        /* ... which are so many from this one on */
  i64 iCarrier;          /* the first one that is of the conversation itself */
  ImportKnown known;
  const char *zLineEnd; /* a copy of the line is read that ends here; or NULL */
  char *zValid;         /* a copy of the file, in UTF-8; or NULL ... */
  RolloutSlice raw;     /* ... and its own bytes */
  const char *zPath;    /* of the file, or NULL */
  char *azPath[BX_PATH_NAMES]; /* what its path says */
  i64 nSize, iWritten; /* the size of the file, and when it was written */
  const char *zTail;  /* the text follows what this conversation has; or NULL */
  int bAsked;         /* lines of no format are asked for */
  int bScan;          /* the format is looked for */
  char *zMade;        /* the payload of an item that was made, to be taken */
  RolloutSlice first; /* the first item of a list */
  int bProse;         /* it is text */
  int bStore;         /* its lines were made of the rows of a database */
  const char *zGap;   /* after the payload of the last item */
  int bTime;          /* iTime is in the file */
  int bLast;          /* there is a last item ... */
  int bLastNew;       /* ... and it is new */
  i64 nPending, nPendingByte; /* bad lines after the last item */
  i64 nHeld,
      nHeldByte; /* new items that are not written, and their own bytes */
  int eLater;    /* 1: a session_meta may come in the file; -1: none; 0: ask */
  ImportReport *pReport;
  RolloutJson json, made;  /* the line; the payload that its span becomes */
  RolloutJson *pJson;      /* where the payload is; NULL: in none of them */
  void (*xItem)(Import *); /* what to do with an item that is found */
  int iList, iOuter; /* the array in which it is, and the outermost item */
  ImportSpan *aSpan; /* the spans of the line */
  i64 nSpan, nSpanAlloc, nSpanByte; /* of those that have their payloads */
  RolloutMap
      traces; /* the piece, from 1 on, that is the conversation of a trace */
  RolloutMap
      calls; /* where the newest message of a call is in the file, from 1 on */
  char **azPiece; /* texts that were made; frames point into them */
  i64 nPiece, nPieceAlloc;
  int bClosed; /* what follows the last item on its line is not at zGap ... */
  RolloutSlice closed;  /* ... but this */
  char *zName, *zAgent; /* the first ones that the file names */
  BxErr *pErr;
};

/* Reads the text from p->z to p->zEnd. zId: of the conversation that it begins or
** continues, or "". zFormat may be NULL. */
void bxImportRead(Import *p, const char *zFormat, const char *zId);
/* A copy of n bytes in which U+FFFD stands for each one that is not UTF-8, to
** sqlite3_free(); *pnOut is its length. */
char *bxImportValid(const char *z, i64 n, i64 *pnOut, BxErr *pErr);
/* The error of a file of no format. */
void bxImportUnknown(const RolloutRules *pRules, BxErr *pErr);

/* The name of the format of a file; "unknown" if it has none. */
const char *bxImportFormatName(const Import *p);
#define IMPORT_LISTED 100 /* the most errors in a result */
/* The reason of an item above ROLLOUT_MAX_PAYLOAD. */
#define BX_IMPORT_TOO_LONG                                                     \
  "an item of more than 67108864 bytes; it is kept for the export"

/* Counts a line, or a part of it, that cannot be read. */
void bxImportBad(Import *p, const char *zReason, i64 nByte);
/* Why a line cannot be read. */
const char *bxImportWhyBad(const Import *p, const char *z, const char *zEnd);
/* Skips a byte order mark. */
const char *bxImportSkipMark(const char *z);
/* Where a line has its items, after the first dollar; NULL: it is one itself. */
const char *bxImportItems(const Import *p);
/* Divides what is between two payloads: the end of the line of the last item is
** kept with that item, the rest with the next one. */
RolloutSlice bxImportGap(Import *p, const char *zEnd, RolloutSlice *pAfter);
/* Stores what follows the last item. */
void bxImportEnd(Import *p, RolloutSlice after);
/* Takes an item of a part. In the file it is, or its payload is, from zFrom to
** zEnd. */
void bxImportItem(Import *p, ImportSession *pPart, const RolloutLine *pLine,
    const char *zFrom, const char *zEnd);
/* The same, of an item whose payload is zOwned. Returns that if it was not taken. */
char *bxImportMade(Import *p, ImportSession *pPart, RolloutLine *pLine,
    char *zOwned, const char *zFrom);
/* Reads the value at z, which must end on its line. Returns its end, or NULL. */
const char *bxImportValue(Import *p, const char *z, const char *zEnd);
/* Reads the first value of a line. Returns whether it has one. */
int bxImportFirst(Import *p, const char *z, const char *zEnd);
/* Skips white space up to the end of a line. (bxJsonSkipSpace() goes on after it, so
** that each of many blank lines would pass all that follow.) */
const char *bxImportSkipBlank(const char *z, const char *zEnd);
/* The end of the line at z. */
const char *bxImportLineEnd(const Import *p, const char *z);
/* Calls xItem for the items that are at places in a value, with | between them; []
** stands for each element. Returns their number. */
i64 bxImportInner(Import *p, int iNode, const char *zPaths);

/*--------------------------------------------------------- import_parts.c ----*/

/* A new part. Keeps or frees the names. */
ImportSession *bxImportPartAdd(Import *p, char *zName, char *zAgent);
/* The id of a part with these names. */
void bxImportPartId(
    const Import *p, const char *zName, const char *zAgent, char zId[37]);
/* Finds a part, once its id is known. */
void bxImportPartOpen(Import *p, ImportSession *pPart);
/* The part to which an item belongs. Frees the names. */
ImportSession *bxImportSession(Import *p, char *zName, char *zAgent);
/* Makes the stored items of a part ready to be compared with those of the file. */
void bxImportPartResume(Import *p, ImportSession *pPart);
/* Writes the items that wait, if they are many. None of them may change any more. */
void bxImportPartsFlush(Import *p);
/* Completes the parts, writes them, and adds those with items to the report. */
void bxImportPartsPut(Import *p);

/*--------------------------------------------------------- import_value.c ----*/

void bxImportKnownFree(ImportKnown *p);
/* Whether a file that is an item is stored already. */
int bxImportValueHas(
    Import *p, ImportSession *pPart, const RolloutLine *pLine, i64 iTime);
/* Notes the item that a part of the value is, after what stands before it. */
void bxImportValueItem(
    Import *p, ImportSession *pPart, int bNew, RolloutSlice gap);
/* Ends what stands around the items, before they are written. */
void bxImportValueEnd(Import *p);
/* Stores it, once these are stored. */
void bxImportValuePut(Import *p);

/*------------------------------------------------------- import_changes.c ----*/

/* If the lines of the file are changes of one value: makes that the file. */
void bxImportChanges(Import *p);

/*----------------------------------------------------------- import_dir.c ----*/

/* Whether a path, which may be NULL, ends as one of some patterns says, with | between
** them. az, if it is not NULL, gets what the path names, to sqlite3_free(). */
int bxImportPath(
    const char *zPatterns, const char *zPath, char **az, BxErr *pErr);
/* What the path names, where the file names nothing: a format may say it; otherwise a
** UUID at the end of the name of the file is its conversation, or else the path. */
void bxImportReadPath(Import *p);
/* Notes in rollout_sources what was read. */
void bxImportNoteSource(Import *p);
/* Why a file cannot be read: by its path, which may be NULL, and by how it begins, if
** pBegin is not NULL. To sqlite3_free(); NULL if it may be read. *pzFormat is the format
** that the path says, or NULL. */
char *bxImportClosed(const RolloutRules *pRules, const char *zPath,
    const RolloutSlice *pBegin, const char **pzFormat, BxErr *pErr);
/* Deletes what was kept of the file while no format knew it. */
void bxImportForgetUnknown(Import *p);

/* The name of the program whose databases have a format, for rollout_import_from(). */
const char *bxImportProgram(const char *zFormat);

/*---------------------------------------------------------- import_text.c ----*/

/* The format of a file of text, or NULL. */
const RolloutFormat *bxImportTextFormat(Import *p, const char *z);
/* Appends a member of a JSON object, which it begins; NULL is none. */
void bxImportMember(sqlite3_str *pOut, const char *zKey, const char *z);
/* Whether the file is to be read as text. */
int bxImportIsText(const Import *p);
/* Reads its lines, from z on. */
void bxImportText(Import *p, const char *z);

/*---------------------------------------------------------- import_spans.c ----*/

/* Notes which conversations the traces of a file name. */
void bxImportTraces(Import *p);
/* Reads the spans of the value from z to zNext, on a line that ends at zEnd. */
void bxImportSpans(
    Import *p, const char *z, const char *zNext, const char *zEnd);
/* The names of the span at p->json.iTop. Returns whether it has any. */
int bxImportSpanNames(Import *p, char **pzName, char **pzAgent);
/* Joins two texts, which stay until the import ends. */
RolloutSlice bxImportJoin(Import *p, RolloutSlice a, RolloutSlice b);
void bxImportSpansFree(Import *p);

#endif
