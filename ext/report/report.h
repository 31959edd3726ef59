/*
** report.h: blackbox_report(), blackbox_report_lines() and blackbox_report_site():
** what happened, as one page, or as many.
**
** A report is made in three steps. A kind (kill_switch, agent ...) says in SQL what
** the facts, tables and items are (kind.c, page/report.sql). Then all items are read
** once, one at a time: what is to be masked is masked, and it is found which parts of
** their bodies are new (item.c, dedup.c). Then the text is written piece by piece, for
** which the bodies are read again (write.c). So there is never more than one item in
** memory, besides what is known of all items.
*/
#ifndef REPORT_H
#define REPORT_H

#include "../core/core.h"
#include "../core/secrets.h"
#include "../core/table.h"
#include "../core/digest.h"
#include "../core/json_tree.h"

#define REPORT_VERSION 1   /* of the JSON */
#define REPORT_TITLE 200   /* characters of the title of an item */
#define REPORT_BLOCK 65536 /* bytes that make a block full */
#define REPORT_ROWS 1000 /* most rows of a table, and of items without script */

/* How a value is shown; times and durations are milliseconds. */
typedef enum {
  REPORT_TEXT,
  REPORT_ID,
  REPORT_TIME,
  REPORT_BYTES,
  REPORT_COUNT,
  REPORT_MONEY,
  REPORT_DURATION
} ReportType;

typedef enum { REPORT_HTML, REPORT_MD, REPORT_JSON } ReportFormat;
typedef enum { REPORT_SHARED, REPORT_ALL, REPORT_NONE } ReportBodies;

/* Bytes of a block, as they are before they are deflated. */
typedef struct ReportPiece {
  int iBlock;
  int bFresh; /* they are in the block because of this piece */
  i64 iAt, n;
} ReportPiece;

/* A body, or another thing that an item has. */
typedef struct ReportPart {
  char zRole[12];
  const char *zType; /* a constant */
  i64 nByte;         /* after masking */
  sqlite3_uint64 h;  /* hash of these bytes */
  char *z;           /* these bytes, while the item is read */
  int eType;         /* of SQLite */
  int bMasked;
  i64 iPiece, nPiece;
  i64 iNew;  /* the first of its pieces that no earlier part has */
  i64 nHead; /* the bytes before it */
} ReportPart;

#define REPORT_PARTS 3

/* A text by its SHA-256, and where it was seen: a span of a body in a block, or a call
** in an item. */
typedef struct SeenPiece {
  unsigned char aHash[BX_DIGEST];
  int iBlock; /* -1: nowhere */
  i64 iAt, n; /* n is 0 for an empty entry */
} SeenPiece;
typedef struct SeenPieces {
  struct SeenPiece *a;
  i64 n, nAlloc; /* nAlloc is a power of 2 */
} SeenPieces;

typedef struct ReportFact {
  const char *zName;
  char *zValue;
  ReportType eType;
} ReportFact;

typedef struct ReportColumn {
  const char *zName, *zSmall; /* as a member of JSON */
  ReportType eType;
} ReportColumn;
#define REPORT_COLUMNS 9

typedef struct ReportTable {
  const char *zId, *zTitle;
  ReportColumn aColumn[REPORT_COLUMNS];
  int nColumn;
  char **azCell; /* row after row; NULL is no value */
  i64 nCell, nAlloc;
  char **azLink; /* of each row "kind:key" of another report, or NULL */
  i64 nLink, nLinkAlloc;
  i64 nLeft; /* rows that were left out */
} ReportTable;

#define REPORT_TABLES 12
/* The cells of the table of the verdict, as page/report.sql has them. */
enum { VERDICT_RULE, VERDICT_LEVEL, VERDICT_COUNT, VERDICT_THRESHOLD };
#define VERDICT_REASON 6

/* Numbers of tokens in this order, and what they cost. */
enum { USAGE_INPUT, USAGE_READ, USAGE_WRITE, USAGE_OUTPUT, USAGE_REASONING };
#define USAGE_NUMBERS 5
typedef struct ReportUsage {
  int bAny, bCost;
  int bRecorded; /* the output is told as it was recorded, and may be too low */
  i64 an[USAGE_NUMBERS];
  double rCost;
  const char *zSource; /* of the cost; a constant */
} ReportUsage;

typedef struct ReportItem {
  int iSource;
  char *zKey; /* by which the source finds it */
  char *zId, *zTitle, *zModel, *zStatus, *zType;
  char *zMark;
  const char *zKind;          /* a constant */
  i64 iTime, nSize;           /* -1: not known */
  i64 nInput, nOutput, iTurn; /* -1: not known */
  i64 iOrder;
  i64 nOwn; /* bytes that it brings, in this block */
  int iBlock;
  int iRepeat, bVerdict, bBodies, bMasked;
  char *zError;       /* how it failed; NULL: it did not */
  char *zSaid;        /* the first line of what the tool returned */
  const char *zRole;  /* user, assistant, call, result, or NULL; a constant */
  int bError, bQuiet; /* bookkeeping */
  int bAsked;         /* an exchange that brings a new message of the user */
  i64 iOther; /* the number of the result of a call, and the other way round */
  i64 nDuration;             /* milliseconds; -1: not known */
  sqlite3_uint64 hSame;      /* the same for calls that are equal; 0: none */
  sqlite3_uint64 hResult;    /* and for what they returned; 0: nothing yet */
  struct ReportItem *pFirst; /* of those */
  const char *zLeaf;         /* JSON, or NULL */
  int nPart;
  ReportPart aPart[REPORT_PARTS];
} ReportItem;

/* A query that finds the bodies of an item by its key, ?1: each named by its role. */
typedef struct ReportSource {
  const char *zKind; /* of its items; a constant */
  sqlite3_stmt *pBodies;
  int bProof; /* the items may have leaves */
} ReportSource;

#define REPORT_SOURCES 40

typedef struct ReportOptions {
  ReportFormat eFormat;
  ReportBodies eBodies;
  i64 nItem, nByte;
} ReportOptions;

typedef struct ReportRun ReportRun;
typedef struct ReportSite ReportSite; /* site.c */

typedef struct ReportKind {
  const char *zName, *zTitle;
  const char *zItems; /* the title of the items; NULL: it has none */
  /* Finds facts, tables and items. NotFoundError if there is nothing with this
  ** key. */
  void (*xFind)(ReportRun *p);
} ReportKind;

struct ReportRun {
  Bx *bx;
  BxErr err;
  BxStmts *pHome; /* of blackbox_secrets */
  const ReportKind *pKind;
  sqlite3_value *pKey; /* while the kind looks for it */
  char *zKey, *zShown; /* as it was given, and as it is shown */
  ReportOptions opt;
  sqlite3_stmt *apHold[4]; /* while they are open, nothing changes */
  const char *azHeld[4];   /* the schemas in which it does not */
  BxSecrets masks;
  SeenPieces spans, calls;
  sqlite3_stmt *pValues; /* SELECT ?1, ?2: values of the bodies that are read */
  sqlite3_stmt *pProof, *pRow; /* of a leaf */
  sqlite3_uint64 hPrompt;
  char *zAsked;  /* what the user asked first */
  char **azKept; /* texts that live as long as the report */
  i64 nKept, nKeptAlloc;
  i64 iMade;
  char *zTitle;
  ReportFact *aFact;
  i64 nFact, nFactAlloc;
  ReportUsage usage;
  ReportTable pins, masked, verdict;
  ReportTable aTable[REPORT_TABLES + 1];
  int nTable;
  ReportSource aSource[REPORT_SOURCES];
  int nSource;
  ReportItem *aItem;
  i64 nItem, nItemAlloc;
  ReportPiece *aPiece;
  i64 nPiece, nPieceAlloc;
  int nBlock;
  i64 nInBlock;       /* bytes of the block that is not full yet */
  const char *zProof; /* none, off, head; a constant */
  char *zHead;
  char *zBundle; /* what makes the bundle of proofs; NULL: there is none */
  i64 nLeftItems, nLeftBodies, nLeftBytes;
  const ReportSite *pSite; /* of which this is a page; may be NULL */
  /* where the output is */
  sqlite3_str *pOut;
  int ePhase;
  i64 iNext;
};

/* report.c */
void bxReportText(BxCall *p); /* blackbox_report() */
void bxReportMask(BxCall *p); /* blackbox_mask() */
ReportRun *bxReportOpen(Bx *bx, sqlite3_value *pKind, sqlite3_value *pKey,
    sqlite3_value *pOptions, BxErr *pErr);
/* Appends the next part of the text to p->pOut: whole lines. Returns 0 at the
** end, or on error. */
int bxReportNext(ReportRun *p);
void bxReportClose(ReportRun *p);
extern const BxRows bxReportLines; /* blackbox_report_lines() */

/* site.c */
void bxReportSite(BxCall *p); /* blackbox_report_site() */
/* The file to which a link leads. NULL if there is none. */
const char *bxReportHref(const ReportRun *p, const char *zLink);

/* kind.c */
extern const ReportKind bxReportKinds[];
/* The statements for the schema that has a domain, which does not change until the
** report ends. */
BxStmts *bxReportNeed(ReportRun *p, const char *zDomain);
/* Keeps a text from sqlite3_malloc() until the report ends, and returns it. */
char *bxReportKeep(ReportRun *p, char *zOwned);
char *bxReportPrintf(ReportRun *p, const char *zFormat, ...);
/* A text as it may be shown: masked, and in plain characters; with nMax only the first
** line, and at most so many of them. */
char *bxReportClean(ReportRun *p, const char *z, i64 n, int nMax);
/* Steps to the next row. 0 at the end, on error, or without a statement. */
int bxReportRow(ReportRun *p, sqlite3_stmt *pStmt);
/* A part of page/report.sql as a query with ?1, the key, ?2, the most items, and ?3, the
** kind, NULL without pFrom; and the first number that it returns. */
sqlite3_stmt *bxReportQuery(ReportRun *p, BxStmts *pFrom, const char *zPart);
i64 bxReportInt(ReportRun *p, BxStmts *pFrom, const char *zPart);
/* Adds as facts what it cost, and as a table what was masked. */
void bxReportSums(ReportRun *p);
void bxReportFreeModel(ReportRun *p);

/* item.c */
/* Reads all items once. */
void bxReportRead(ReportRun *p);
/* Reads the bodies of an item, each with a NUL after it; and forgets them. bFirst: makes
** its parts, and finds what is to be masked. Later they must be the same. */
void bxReportBodies(ReportRun *p, ReportItem *pItem, int bFirst);
void bxReportFreeBodies(ReportItem *pItem);
/* dedup.c: where a text was seen: noted if it is new. NULL on error. */
SeenPiece *bxReportSeen(SeenPieces *p, const char *z, i64 n, BxErr *pErr);
/* dedup.c: the pieces of a part that is read for the first time. */
void bxReportPieces(ReportRun *p, ReportItem *pItem, ReportPart *pPart);

/* inclusion_proof.c: what a browser needs to find the item in the proof. */
/* Whether proof_of() is about the log of pHome. */
int bxReportProves(ReportRun *p, BxStmts *pHome);
void bxReportProof(ReportRun *p, ReportItem *pItem);

void bxReportBase64(sqlite3_str *pOut, const unsigned char *a, i64 n);
void bxReportDeflate(sqlite3_str *pOut, const char *z, i64 n, BxErr *pErr);

/* write.c: appends the next part of the text. 0: there is no more. */
int bxReportWrite(ReportRun *p);

/* text.c */
const char *bxReportTypeName(ReportType eType);
/* Cuts to the first line, and to so many characters. */
void bxReportFirstLine(char *z, int nMax);
/* A copy in which nothing is left that is not UTF-8, a control character, or that
** changes the direction of the text. */
char *bxReportPlain(const char *z, i64 n, BxErr *pErr);
void bxReportJson(sqlite3_str *pOut, const char *z, i64 n);
/* Appends a text in which these stand for values. Nothing stands for NULL, and for a
** number below zero, if it is not JSON:
**   %s a text as it is       %h escaped for HTML   %m for Markdown
**   %j as JSON, null for NULL
**   %i a number, any         %n the same with commas
**   %b a number of bytes     %t a time, %T the same in HTML
**   %v a value of a ReportType, which follows it, in HTML; %w in Markdown;
**   %x in JSON
**   %k a name and a text, as a member of JSON; %K a name and a number */
void bxReportPut(sqlite3_str *pOut, const char *zFormat, ...);

#endif
