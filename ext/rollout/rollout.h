/*
** rollout.h: what the files of the rollout domain share. The rules are in
** sql/rollout.sql. The C code checks arguments, writes with as few statements as
** possible, and adds values to the messages of the rules.
**
**   rollout__heads      a row for each conversation: its number (no), its counters
**   rollout__data       a row for each item; its key is no << 32 | sequence of the
**                       conversation that owns it
**   rollout__segments   which ranges of items, of which owners, a conversation shows:
**                       one row for its own, and one for each that a fork shares
**
**   append.c, import*.c -> batch.c -> rollout__data
**                                  -> derive.c, texts.c, usage.c: what follows from it
**   read.c, context.c, messages.c, export*.c <- the segments of a conversation
*/
#ifndef BX_ROLLOUT_H
#define BX_ROLLOUT_H

#include "../core/core.h"
#include "../core/file_limit.h"
#include "../core/mask.h"
#include "../core/digest.h"
#include "../core/json_path.h"

extern const char bxSqlRollout[]; /* sql/rollout.sql and those after it */

#define ROLLOUT_MAX_PAYLOAD 67108864 /* bytes; as in sql/rollout.sql */
#define ROLLOUT_LAST 4294967295      /* the highest possible sequence */
#define ROLLOUT_PAGE_MAX 100         /* most rows of a page, and of a scan */
#define ROLLOUT_MAX_TEXT 1000000000  /* most bytes of an argument */

/* SQL: the text of a payload of rollout__data, as in the view rollout__items. */
#define ROLLOUT_TEXT(payload)                                                  \
  "coalesce(" payload ", NULL, NULL, NULL, NULL, NULL, NULL)"
/* SQL: milliseconds as ISO 8601 text. */
#define ROLLOUT_ISO(ms)                                                        \
  "strftime('%Y-%m-%dT%H:%M:%fZ', " ms " / 1000.0, 'unixepoch')"
/* SQL: the items of conversation number ?1. Use it with ORDER BY s.rollout,
** s.first, d.id (which needs no sort), or with all three DESC. */
#define ROLLOUT_FROM_ITEMS                                                     \
  "FROM main.rollout__segments AS s CROSS JOIN main.rollout__items AS d "      \
  "ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "    \
  "WHERE s.rollout = ?1 "

/* clang-format off */
/* SQL: what items say, by the rows of blackbox_places: id, fact, source, value. A damaged
** payload says nothing. Numbers are not text, and neither are the tags that a recorder
** puts around an image, and what a model only thought. (derive.c reads the same rules.) */
#define ROLLOUT_FACTS                                                          \
  "SELECT d.id AS id, r.kind AS fact, r.source AS source, coalesce("           \
  "CASE json_type(d.payload, r.place) "                                        \
  "WHEN 'text' THEN d.payload ->> r.place "                                    \
  "WHEN 'array' THEN (SELECT group_concat(part.text, char(10)) FROM (SELECT "  \
  "CASE WHEN e.type <> 'object' THEN NULL "                                    \
  "WHEN e.value ->> 'thought' THEN NULL "                                      \
  "WHEN e.value ->> 'type' IN ('reasoning', 'thinking', 'think') THEN NULL "   \
  "ELSE CASE json_type(e.value, '$.' || coalesce(r.part, 'text')) "            \
  "WHEN 'text' THEN e.value ->> coalesce(r.part, 'text') "                     \
  "WHEN 'array' THEN (SELECT group_concat("                                    \
  "CASE f.type WHEN 'object' THEN f.value ->> 'text' END, char(10)) "          \
  "FROM json_each(e.value, '$.' || coalesce(r.part, 'text')) AS f) END END "   \
  "AS text FROM json_each(d.payload, r.place) AS e) AS part "                  \
  "WHERE NOT (substr(part.text, 1, 12) = '<image name=' "                      \
  "AND instr(part.text, '>') = length(part.text)) "                            \
  "AND part.text NOT IN ('<image>', '</image>')) END, "                        \
  "CASE json_type(d.payload, r.other) WHEN 'text' THEN d.payload ->> r.other " \
  "END) AS value FROM (SELECT id, type, CASE WHEN " BX_JSON_VALID("payload")   \
  " THEN payload END AS payload FROM main.rollout__items) AS d "               \
  "CROSS JOIN main.blackbox_places AS r "                                      \
  "ON r.type_key = lower(replace(d.type, '_', '')) "                           \
  "WHERE d.payload IS NOT NULL AND r.kind NOT IN ('line', 'start', "           \
  "'usage', 'call', 'result') "                                                \
  "AND json_valid(r.conditions) AND NOT EXISTS ("                              \
  "SELECT 1 FROM json_each(r.conditions) AS c WHERE CASE c.type "              \
  "WHEN 'text' THEN lower(replace(coalesce(d.payload ->> c.key, ''), '_', '')) " \
  "<> lower(replace(c.value, '_', '')) "                                       \
  "ELSE (c.type = 'true') = (coalesce(json_type(d.payload, c.key), 'null') "   \
  "IN ('null', 'false')) END) "
/* SQL: what lists show of each session_meta that is JSON. */
#define ROLLOUT_META                                                           \
  "(SELECT h.no AS no, "                                                       \
  "d.payload ->> 'source' AS source, d.payload ->> 'cwd' AS cwd, "             \
  "d.payload ->> 'originator' AS originator, "                                 \
  "coalesce(d.payload ->> 'cli_version', d.payload ->> 'cliVersion') "         \
  "AS cli_version, coalesce(d.payload ->> 'model_provider', "                  \
  "d.payload ->> 'modelProvider') AS model_provider, "                         \
  "coalesce(d.payload ->> 'forked_from_id', d.payload ->> 'forkedFromId') "    \
  "AS forked_from, coalesce(d.payload ->> '$.blackbox.format', 'codex') "      \
  "AS format, coalesce(d.payload ->> '$.blackbox.id', "                        \
  "CASE WHEN lower(coalesce(d.payload ->> 'id', d.payload ->> 'session_id')) " \
  "<> h.id THEN coalesce(d.payload ->> 'id', d.payload ->> 'session_id') END) " \
  "AS source_id, coalesce(d.payload ->> '$.blackbox.parent', "                 \
  "d.payload ->> 'parent_thread_id', "                                         \
  "CASE json_type(d.payload, '$.source') WHEN 'object' THEN "                  \
  "d.payload ->> '$.source.subagent.thread_spawn.parent_thread_id' END) "      \
  "AS parent, coalesce(d.payload ->> '$.blackbox.agent', "                     \
  "CASE json_type(d.payload, '$.source') WHEN 'object' THEN "                  \
  "d.payload ->> '$.source.subagent.thread_spawn.agent_nickname' END) "        \
  "AS agent, d.payload ->> '$.git.branch' AS branch "                          \
  "FROM main.rollout__heads AS h JOIN main.rollout__items AS d "                \
  "ON d.id = h.no << 32 AND " BX_JSON_VALID("d.payload") ")"
/* SQL: puts it into the row of rollout__about for conversation ?1, unless it is there.
** A cwd and a branch that are there are newer. */
#define ROLLOUT_PUT_META                                                       \
  "INSERT INTO main.rollout__about(no, source, cwd, originator, cli_version, " \
  "model_provider, forked_from, format, source_id, parent, agent, branch) "    \
  "SELECT * FROM " ROLLOUT_META " WHERE no = ?1 AND NOT EXISTS (SELECT 1 "     \
  "FROM main.rollout__about AS a WHERE a.no = ?1 AND a.format IS NOT NULL) "   \
  "ON CONFLICT (no) DO UPDATE SET (source, cwd, originator, cli_version, "     \
  "model_provider, forked_from, format, source_id, parent, agent, branch) = "  \
  "(excluded.source, coalesce(cwd, excluded.cwd), excluded.originator, "       \
  "excluded.cli_version, excluded.model_provider, excluded.forked_from, "      \
  "excluded.format, excluded.source_id, excluded.parent, excluded.agent, "     \
  "coalesce(branch, excluded.branch))"
/* SQL: what the first message of a user says, whose item has this key. */
#define ROLLOUT_PROMPT(key)                                                    \
  "(SELECT substr(value, 1, 200) FROM (" ROLLOUT_FACTS ") WHERE id = " key     \
  " AND fact IN ('user', 'goal'))"
/* clang-format on */

/*---------------------------------------------------------- head.c ----*/

/* The row of a conversation. */
typedef struct RolloutHead {
  i64 no;
  i64 iLast;   /* last sequence; -1 if there are no items */
  i64 iExpire; /* milliseconds; BX_MAX_TIME + 1 for never */
  i64 nTurn;
  i64 iUser;      /* sequence of the first user event, or -1 */
  i64 iUpdated;   /* time of its own newest item */
  i64 iBehind;    /* the first item that is not derived, or -1 */
  int bAnyBehind; /* there is one in some conversation */
  int bImported;  /* it was imported, or forked from one that was: no policy */
} RolloutHead;

/*
** Reads an id into zId, in lower case. Error: "InvalidIdError: ...".
*/
void bxRolloutId(sqlite3_value *pVal, char zId[37], BxErr *pErr);
/* Whether n bytes have the form of a UUID; writes it in lower case. */
int bxRolloutUuid(const char *z, int n, char zId[37]);
/* The statements of the schema that has the domain. */
BxStmts *bxRolloutSchema(Bx *bx, BxErr *pErr);
/*
** Finds a conversation. With bWrite this is the first write of the transaction.
** Returns 0 if there is none.
*/
int bxRolloutFind(
    BxStmts *p, int bWrite, const char *zId, RolloutHead *pHead, BxErr *pErr);
/* The key of an item. */
i64 bxRolloutKey(i64 no, i64 iSequence);
/* Set the errors RolloutNotFoundError, RolloutExistsError,
** RolloutExpiredError. */
void bxRolloutMissing(const char *zId, BxErr *pErr);
void bxRolloutExists(const char *zId, BxErr *pErr);
void bxRolloutExpired(const char *zId, i64 iExpire, BxErr *pErr);
/* Finds the conversation that argument 0 names. Returns its schema, or NULL
** with an error. */
BxStmts *bxRolloutNamed(BxCall *p, char zId[37], RolloutHead *pHead);
/* bxRolloutFind(), with an error if it does not exist or has expired at
** iNow. */
void bxRolloutOpen(BxStmts *p, int bWrite, const char *zId, i64 iNow,
    RolloutHead *pHead, BxErr *pErr);
/* A conversation that exists and has not expired; otherwise number 0, without
** items. */
RolloutHead bxRolloutLive(Bx *bx, sqlite3_value *pId, i64 iNow, BxErr *pErr);
/* Prepares a query of the caller on the schema of the domain. */
sqlite3_stmt *bxRolloutQuery(Bx *bx, const char *zSql, BxErr *pErr);
/* Completes an error: a message of SQLite gets the prefix, which begins with a
** name ("WriteError: Write failed: "). */
void bxRolloutExplain(BxErr *pErr, const char *zPrefix);

/* Whether it was shut down on this connection. */
int bxRolloutIsClosed(BxStmts *pHome, const char *zId);
/* Sets the error RolloutShutDownError if it was shut down. */
void bxRolloutRequireOpen(BxStmts *pHome, const char *zId, BxErr *pErr);
void bxRolloutSetClosed(
    BxStmts *pHome, const char *zId, int bShut, BxErr *pErr);

/* The message that began the last turn of a conversation. */
typedef struct RolloutLast {
  int eKnown; /* 1: it is known; 0: ask the database; -1: there is none */
  int bAsked; /* that has told it, and the review */
  int bEvent; /* its source */
  sqlite3_uint64 hText, hId; /* the hashes of its text, and of its id, or 0 */
  i64 iReview; /* where the newest review begins, or -1 if not known */
} RolloutLast;

/* What an append has left: the conversation, and its last turn; and the number of the
** newest text of all, or -1. */
typedef struct RolloutNewest {
  char zId[37];
  RolloutHead head;
  RolloutLast last;
  i64 iNewest;
  int bStays; /* the call was a transaction: nobody can roll it back */
} RolloutNewest;

/* What a connection keeps for this domain. */
typedef struct RolloutMemory {
  struct Shut *aShut;
  i64 nShut, nShutAlloc;
  struct RolloutRules *pRules;
  Masking masking;
  /* While sqlite3_total_changes() is still nIdle, nothing waits that an append does beside
  ** its record. This was read when nothing could be rolled back. (-1: ask.) */
  int nIdle;
  RolloutNewest newest; /* and this is so, if it is still the newest item */
  i64 nWaitByte; /* of the texts that wait for the index, as far as they are known */
} RolloutMemory;

RolloutMemory *bxRolloutMemory(Bx *bx, BxErr *pErr);
/* Puts what rollout.secrets makes of a text in its place, which a NUL follows. Returns it, for
** bxRolloutMaskEnd() after the write, or NULL: it stays. */
char *bxRolloutMask(BxStmts *pHome, const char **pz, i64 *pn, BxErr *pErr);
void bxRolloutMaskEnd(BxStmts *pHome, char *z);

/*--------------------------------------------------------- rules.c ----*/

/* A row of rollout_formats; its texts in this order. */
enum {
  ROLLOUT_FORMAT_NAME,
  ROLLOUT_FORMAT_ITEMS,
  ROLLOUT_FORMAT_TYPE,
  ROLLOUT_FORMAT_PAYLOAD,
  ROLLOUT_FORMAT_TIME,
  ROLLOUT_FORMAT_CONVERSATION,
  ROLLOUT_FORMAT_AGENT,
  ROLLOUT_FORMAT_TRACE,
  ROLLOUT_FORMAT_ITEM_ID,
  ROLLOUT_FORMAT_PATH,
  ROLLOUT_FORMAT_TEXTS
};

typedef struct RolloutFormat {
  char *az[ROLLOUT_FORMAT_TEXTS];
  int bOnce, bSpans, bApart;
  int bChanges; /* lines may be changes of one value */
  int bClosed;  /* files that cannot be read */
  int bStored;  /* of rows of a database */
  int bGiven;   /* not of a file: numbers are milliseconds */
  int bPath;    /* tried only for a path that is one of its own */
  BxTest mark, names, newest;
} RolloutFormat;

/* A row of rollout_attributes; its texts in this order. */
enum {
  ROLLOUT_ATTRIBUTE_FORMAT,
  ROLLOUT_ATTRIBUTE_OLD,
  ROLLOUT_ATTRIBUTE_NAME,
  ROLLOUT_ATTRIBUTE_ONLY,
  ROLLOUT_ATTRIBUTE_VALUE,
  ROLLOUT_ATTRIBUTE_TEXTS
};

typedef struct RolloutAttribute {
  char *az[ROLLOUT_ATTRIBUTE_TEXTS];
  i64 iRank;
  int bJson;
} RolloutAttribute;

#define ROLLOUT_ANSWERS 40 /* of the policy, which are kept */

typedef struct RolloutAnswer {
  char *zType, *zPayloadType;
  int bKeep;
} RolloutAnswer;

typedef struct RolloutRules {
  BxStmts *pHome;
  i64 iCall; /* the call that has asked for them last */
  i64 nSeen,
      iData; /* as of which change they are known: see bxRolloutRules() */
  int bSolid; /* no rollback can undo them, nor the answers of the policy: since a */
  i64 nSolid; /* call that began with nothing to roll back, nobody else changed */
  i64 iPlaces; /* anything */
  int bImport; /* those are among them that only an import needs */
  int bSearch; /* there is an index of the texts */
  int bMask;   /* rollout.secrets is mask */
  int bPack;   /* rollout.pack */
  int bIdle;   /* when the call began, nothing waited: see RolloutMemory */
  BxPlaces places;
  char aPreamble[256]; /* the bytes with which a preamble begins */
  RolloutFormat *aFormat;
  i64 nFormat, nFormatAlloc;
  sqlite3_uint64 hFormat;       /* tells whether they are the same */
  RolloutAttribute *aAttribute; /* of a format, the longest ones first */
  i64 nAttribute, nAttributeAlloc;
  RolloutAnswer aAnswer[ROLLOUT_ANSWERS];
  int nAnswer;
} RolloutRules;

/* The rules in force. They stay until the next call. NULL on error. Without
** bImport those that only an import needs may be missing, or old. */
const RolloutRules *bxRolloutRules(BxStmts *pHome, int bImport, BxErr *pErr);
void bxRolloutRulesFree(RolloutRules *p);
/* Whether the policy keeps items of these types. Call bxRolloutRules() first. A
** payload without a type has NULL, and no payload the empty string. */
int bxRolloutKeeps(
    BxStmts *pHome, const char *zType, const char *zPayloadType, BxErr *pErr);
/* A payload in which places are looked up. */
typedef struct RolloutJson {
  BxTree tree;
  int iTop; /* the node of the payload, at which places begin */
} RolloutJson;

/* The node at the first of some places that has a value, or -1. */
int bxRolloutPlace(const RolloutJson *p, const char *zPaths);
/* The format with a name; NULL if there is none. */
const RolloutFormat *bxRolloutFormatNamed(
    const RolloutRules *p, const char *zName);
/* Whether the conditions hold for a payload. */
int bxRolloutFits(const RolloutRules *pRules, BxTest test,
    const RolloutJson *pJson, BxErr *pErr);
/* The value that a place has, to sqlite3_free(), or NULL; and the path of it. */
char *bxRolloutValue(const BxPlace *pPlace, const RolloutJson *pJson,
    const char **pzPath, BxErr *pErr);
/* The text of a node, of whose parts zPart is the member; NULL if it has none. */
char *bxRolloutTextOf(
    const BxTree *p, int iNode, const char *zPart, BxErr *pErr);
int bxRolloutIsPreamble(const RolloutRules *p, const char *z);

#define ROLLOUT_MAX_NAME 100 /* bytes of a type; as in sql/rollout.sql */

/* Some bytes of a text; z is NULL if they are missing. */
typedef struct RolloutSlice {
  const char *z;
  i64 n;
} RolloutSlice;

/*---------------------------------------------------------- derive.c ----*/

/* A turn, a rollback or a compaction. */
typedef struct RolloutBoundary {
  i64 iSequence;
  i64 iFirst; /* of a turn its number; of a rollback where it begins; or -1 */
} RolloutBoundary;

/* The tokens of a call. */
typedef struct RolloutUsage {
  i64 iSequence, iTime;
  char *zCall;  /* without the family, if there are totals */
  char *zModel; /* NULL: that of the conversation until now */
  const BxPlace *pPlace;
  int bTotal, bCost;
  BxTokens tokens;
  double rCost;
} RolloutUsage;

/* A row of rollout__texts. */
typedef struct RolloutText {
  i64 n, iSequence, iTime;
  const char *zRole; /* NULL: no row, but what is known of a call */
  BxKind eKind;
  const BxPlace *pPlace; /* of what was said */
  char *z;               /* the text, until it is told ... */
  sqlite3_uint64 h;      /* ... and its hash; 0: none */
  char *zPlace, *zCall, *zTool, *zFile;
  int bRead; /* its text was given back */
  int bTold; /* no row: the item before it says the same, or is not new */
  int bEdits;
  int eError;   /* 1, 0 or, if it is not known, -1 */
  int iResult;  /* the result of a call, from 1 on; 0 for none */
  i64 nTook;    /* until then */
  int bWithout; /* a result whose call is not among these texts */
} RolloutText;

/* What items of a conversation say, in order. */
/* What the check counts of stored items: of those of the conversation itself the bytes
** and the newest time, and the keys of those that are no JSON. */
typedef struct RolloutTally {
  i64 nByte, iNewest;
  i64 *aBad, nBad, nBadAlloc;
} RolloutTally;

typedef struct RolloutDerive {
  BxStmts *pHome;
  const RolloutRules *pRules;
  BxErr *pErr;
  int bIdle;   /* nothing waits that TextsPut() and PackSome() do; or */
  int bBusy;   /* something waited */
  i64 iNewest; /* the number of the newest text, or -1 */
  i64 no;
  i64 nTurn, iUser;      /* as in RolloutHead, after these items */
  int bReviewed;         /* one of these items begins it */
  i64 iPrompt;           /* which became the first user message, or -1 */
  char *zPrompt;         /* how its text begins; may be NULL */
  char *azNew[BX_KINDS]; /* the title, cwd, model and branch */
  RolloutBoundary *aTurn, *aMark;
  i64 nTurnNew, nTurnAlloc, nMark, nMarkAlloc;
  RolloutLast last;
  int bHasPrompt;
  RolloutUsage *aUsage;
  i64 nUsage, nUsageAlloc;
  int bTexts; /* texts are wanted */
  RolloutText *aText;
  i64 nText, nTextAlloc, iTextFrom; /* the first item that was told, or -1 */
  int bBefore;   /* the texts of the item before it were asked for */
  i64 nTextByte; /* of those that were told */
  int bStored;   /* the items are in the database: this is the key of one */
  i64 iKey, iPromptKey;
  i64 nTurnOld, nMarkOld;              /* those that other conversations own */
  char zSpelled[ROLLOUT_MAX_NAME + 1]; /* the item's type as it is compared, */
  char zPayloadType[ROLLOUT_MAX_NAME + 1]; /* and those of its payload, or "" */
  char zRole[ROLLOUT_MAX_NAME + 1];
  const BxPlace **apFit; /* the places that are for it */
  i64 nFit, nFitAlloc;
  RolloutJson json;         /* for payloads that are read here */
  const RolloutJson *pJson; /* the payload of the item ... */
  i64 iTime;                /* ... and its time */
  RolloutTally *pTally;     /* NULL: nothing is counted */
} RolloutDerive;

/* p must be zeroed. */
void bxRolloutDeriveBegin(
    RolloutDerive *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr);
void bxRolloutDeriveEnd(RolloutDerive *p);
/* Reads the next item, which gets this sequence. pJson has the payload. */
void bxRolloutDeriveWrite(RolloutDerive *p, i64 iSequence, i64 iTime,
    const char *zType, const RolloutJson *pJson);
/* Reads stored items of conversation no, from one sequence to another. All are
** counted. */
void bxRolloutDeriveStored(
    RolloutDerive *p, i64 no, i64 iFirst, i64 iLast, BxErr *pErr);
/* Derives what the items say that plain SQL has written: all of one conversation,
** which may be NULL, and a bounded number of items of others. */
void bxRolloutCatchUp(BxStmts *pHome, RolloutHead *pHead, BxErr *pErr);
/* Reads what lists show of a conversation that was behind: what plain SQL has not
** read from its session_meta, and what a redaction took away. */
void bxRolloutPutAbout(BxStmts *pHome, i64 no, BxErr *pErr);
/* The same in memory, for a call that reads. p must be zeroed; end it as well. */
void bxRolloutDerivePending(
    RolloutDerive *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr);
/* The first place of a type, which z then has as types are compared; the others
** follow it, up to before *piEnd. */
i64 bxRolloutPlacesOf(const RolloutDerive *p, const char *zType,
    char z[ROLLOUT_MAX_NAME + 1], i64 *piEnd);

/* Reads what an item is, and finds the places that are for it. */
void bxRolloutReadItem(
    RolloutDerive *p, const char *zType, const RolloutJson *pJson);

/* texts.c: takes the texts of an item, and reads its parts. */
void bxRolloutTell(RolloutDerive *p, const char *zType,
    const RolloutJson *pJson, i64 iSequence, i64 iTime);
/* Gives them back, once nobody needs more than their hashes. */
void bxRolloutTextsTold(RolloutDerive *p);
/* Writes them, and those of items that were redacted. */
void bxRolloutTextsPut(RolloutDerive *p, BxErr *pErr);
void bxRolloutTextsFree(RolloutDerive *p);
/* The first item whose texts differ in the database, or -1. */
i64 bxRolloutTextsDiffer(RolloutDerive *p, i64 iLast, BxErr *pErr);
/* The text at a place of a payload, whose JSON is its strings, a line each, to
** sqlite3_free(), or NULL. */
char *bxRolloutSaid(BxTree *pTree, const char *z, i64 n, const char *zAt,
    const char *zPart, BxErr *pErr);
/* search.c: puts the texts that wait into the index, if they are many, after some of so
** many bytes up to number nLast. An index that is damaged is told in the log. */
void bxRolloutIndex(
    BxStmts *pHome, i64 nLast, i64 nText, i64 nByte, BxErr *pErr);
/* Makes the index anew, if there is one in which more is dead than alive. */
void bxRolloutSearchCleanup(BxStmts *pHome, BxErr *pErr);
/* Marks from i to n as JSON: [[sequence, first], ...]. */
char *bxRolloutMarks(const RolloutBoundary *a, i64 i, i64 n, BxErr *pErr);
/* Writes what was told, once the items are stored and counted. */
void bxRolloutDeriveItem(RolloutDerive *p, BxErr *pErr);

/* usage.c: reads the tokens that an item tells, whose payload is p->pJson. */
void bxRolloutDeriveUsage(
    RolloutDerive *p, const BxPlace *pPlace, i64 iSequence);
/* Writes them, once the items are stored. */
void bxRolloutUsagePut(RolloutDerive *p, BxErr *pErr);
/* The first item whose call is missing or wrong in the database, or -1. */
i64 bxRolloutUsageDiffers(RolloutDerive *p, BxErr *pErr);
void bxRolloutUsageFree(RolloutDerive *p);

/*---------------------------------------------------------- import_line.c ----*/

/* An item of a file, or of an append. */
typedef struct RolloutLine {
  char zType[ROLLOUT_MAX_NAME + 1];
  int bTyped; /* that is its type, and not 'unknown' */
  i64 iTime;  /* -1: it has none that can be read */
  int bWhole; /* the item is its own payload */
  int bUsual; /* what is before the payload is what an export writes ... */
  i64 nUsual; /* ... of this many bytes */
  int bMade;  /* the payload is not in the file */
  RolloutSlice payload;
} RolloutLine;

/* The text of a node. */
RolloutSlice bxRolloutSpanOf(const BxTree *p, int iNode);
/* Copies a string of 1 to 100 bytes without a NUL or half a surrogate pair. Returns
** its length, or 0 for anything else, also for no node. */
int bxRolloutWord(const BxTree *p, int iNode, char zWord[ROLLOUT_MAX_NAME + 1]);
/* Reads the item at pJson->iTop, which becomes the node of its payload. A format
** that is not known is NULL. */
void bxRolloutReadLine(BxStmts *pHome, const RolloutFormat *pFormat,
    RolloutJson *pJson, RolloutLine *p, BxErr *pErr);
/* Whether the item at pJson->iTop names its conversation, and maybe a sub-agent:
** texts to sqlite3_free(). */
int bxRolloutNames(const RolloutRules *pRules, const RolloutFormat *pFormat,
    RolloutJson *pJson, char **pzName, char **pzAgent, BxErr *pErr);
/* The trace, or the id, of that item: a text to sqlite3_free(), or NULL. */
char *bxRolloutNameAt(
    const RolloutFormat *pFormat, int eText, RolloutJson *pJson, BxErr *pErr);

/*---------------------------------------------------------- otel.c ----*/

/* The payload that a span of OpenTelemetry becomes, to sqlite3_free(). The span
** is node iSpan; iResource is the node that has what is said of its program, or
** -1. */
char *bxRolloutSpan(const RolloutRules *pRules, const RolloutFormat *pFormat,
    const BxTree *pTree, int iSpan, int iResource, BxErr *pErr);

/*--------------------------------------------------------- batch.c ----*/

/* A new item. Of before and after, which stand around the payload in a file, z is
** NULL for what an export writes anyway. */
typedef struct RolloutItem {
  i64 iTime;
  const char *zType; /* one of azName */
  RolloutSlice payload;
  char *zOwned; /* the memory that payload points into, or NULL */
  RolloutSlice before, after;
  int bQuiet; /* the payload itself is not in the file */
} RolloutItem;

/* Dropped items of one pair of types, of azName. */
typedef struct RolloutDrop {
  const char *zType, *zPayloadType;
  i64 nItem, nByte;
} RolloutDrop;

/* New items of one conversation, after head.iLast. If the number of the head is
** 0, the first item starts the conversation, and the tale is of the others. */
typedef struct RolloutWork {
  char zId[37];
  RolloutHead head;
  RolloutDerive tale;
  RolloutItem *aItem;
  i64 nItem, nItemAlloc;
  RolloutDrop *aDrop;
  i64 nDrop, nDropAlloc;
  char **azName; /* the types */
  i64 nName, nNameAlloc;
  i64 iTail; /* key of a stored item that gets this end, or -1 */
  RolloutSlice tail;
} RolloutWork;

/* Begins the work on a conversation, and ends it. p must be zeroed but for zId and
** head. */
void bxRolloutWorkBegin(RolloutWork *p, BxStmts *pHome, BxErr *pErr);
void bxRolloutWorkEnd(RolloutWork *p);
/* Adds an item; it may be changed until the next one is added. The payload must exist
** until the work ends. Without a payload, payload.z is NULL. zOwned, if it is not
** NULL, is freed then. NULL on error. */
RolloutItem *bxRolloutAdd(RolloutWork *p, i64 iTime, const char *zType,
    RolloutSlice payload, char *zOwned, BxErr *pErr);
/* Counts nItem items of these types, with nByte bytes together, as dropped. */
void bxRolloutDrop(RolloutWork *p, const char *zType, const char *zPayloadType,
    i64 nItem, i64 nByte, BxErr *pErr);
/* Writes the items, and what they say. */
void bxRolloutWorkPut(RolloutWork *p, BxStmts *pHome, i64 iNow, BxErr *pErr);

/*---------------------------------------------------------- own.c ----*/

/* Texts of a format, and of a conversation of it. */
enum {
  OWN_TYPE,
  OWN_TIME,
  OWN_ID,
  OWN_PARENT,
  OWN_SESSION,
  OWN_AGENT_AT,
  OWN_NAME,     /* as its lines name it */
  OWN_FORK,     /* a fork: its id, which an export has instead; or NULL */
  OWN_AGENT,    /* of a sub-agent, or NULL */
  OWN_MESSAGES, /* the types of messages, each between commas */
  OWN_TEXTS
};

/* The format of a conversation of which each item is a line. Zeroed at first. */
typedef struct RolloutOwn {
  int bOwn;   /* it has one */
  int bNames; /* each line names the conversation */
  char *az[OWN_TEXTS];
  RolloutFormat format; /* to read a line; its texts are among these */
  int bLast;
  char *zLast; /* the id of the newest item, if it is known */
} RolloutOwn;

int bxRolloutOwnRead(RolloutOwn *p, BxStmts *pHome, i64 no, BxErr *pErr);
void bxRolloutOwnFree(RolloutOwn *p);
/* The line in pJson, the next item of the work, with what a message of its format lacks,
** to sqlite3_free(); NULL if it lacks nothing, or on error. */
char *bxRolloutOwnComplete(RolloutOwn *p, BxStmts *pHome,
    const RolloutWork *pWork, const RolloutJson *pJson, i64 iNow, BxErr *pErr);
/* SQL: a text of item d, in which the name of the conversation is that of the fork that
** shows it; and whether an item that no file had is a line of the format. A name is
** behind its key, without a space or with one: it is that at the place in the payload,
** or else the one that lines had before the fork. */
#define ROLLOUT_OWN_OLD(key, place, space)                                     \
  "iif(" key " = '', '', " key " || " space "json_quote(coalesce(CASE "        \
  "WHEN " place                                                                \
  " IS NOT NULL AND " BX_JSON_VALID("d.payload") " THEN d.payload ->> " place  \
                                                 " END, ?6)))"
#define ROLLOUT_OWN_ONE(x, key, place)                                         \
  "replace(replace(" x                                                         \
  ", " ROLLOUT_OWN_OLD(key, place, "") ", " key " || ?7), " ROLLOUT_OWN_OLD(   \
      key, place, "' ' || ") ", " key " || ' ' || ?7)"
#define ROLLOUT_OWN_NAMED(x)                                                   \
  ROLLOUT_OWN_ONE(ROLLOUT_OWN_ONE(x, "?2", "?3"), "?4", "?5")
#define ROLLOUT_OWN_LINE                                                       \
  "(?8 IS NOT NULL AND d.before IS NULL AND CASE "                             \
  "WHEN " BX_JSON_VALID(                                                       \
      "d.payload") " THEN d.type IN (SELECT "                                  \
                   "d.payload ->> k.value FROM json_each(?8) AS k) END)"
/* Binds ?1, the number, and what these use: ?2 to ?7, and ?8 if it is there. */
void bxRolloutOwnBind(BxStmts *pHome, i64 no, sqlite3_stmt *pStmt, BxErr *pErr);

/*------------------------------------------------------- functions ----*/

/* manage.c */
void bxRolloutCreate(BxCall *p);
void bxRolloutResume(BxCall *p);
void bxRolloutArchive(BxCall *p);
void bxRolloutDelete(BxCall *p);
void bxRolloutCleanup(BxCall *p);
void bxRolloutFork(BxCall *p);
void bxRolloutRebuild(BxCall *p);
/* Computes the counters, turns, marks, usage and texts of conversation no anew. */
void bxRolloutRebuildOne(BxStmts *p, i64 no, BxErr *pErr);
/* pack.c */
void bxRolloutPack(BxCall *p);
void bxRolloutUnpack(BxCall *p);
/* Removes from the store what no item has any more. */
void bxRolloutSweep(BxStmts *p, BxErr *pErr);
/* Packs items of a conversation that were just written, if rollout.pack says so, and
** sweeps a little. */
void bxRolloutPackSome(RolloutDerive *p, i64 iFirst, i64 iLast, BxErr *pErr);
/* check.c */
void bxRolloutCheck(BxStmts *p, BxProblems *pOut);
/* flush.c */
void bxRolloutFlush(BxCall *p);
void bxRolloutShutdown(BxCall *p);
/* append.c */
void bxRolloutAppend(BxCall *p);
/* import.c */
void bxRolloutImport(BxCall *p);
/* import_dir.c */
void bxRolloutImportDir(BxCall *p);
/* import_sqlite.c */
void bxRolloutImportFrom(BxCall *p);
/* read.c */
void bxRolloutHistory(BxCall *p);
void bxRolloutPage(BxCall *p);
void bxRolloutExport(BxCall *p);
sqlite3_stmt *bxRolloutList(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutRange(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutDropped(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutLines(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* export.c: the conversation in the format of argument 1; NULL if that is its own, or
** on error. */
sqlite3_str *bxRolloutExportAs(
    BxCall *pCall, const RolloutHead *pHead, const char *zId);
/* usage.c: makes the sums of calls anew. */
void bxRolloutSumsPut(BxStmts *pHome, BxErr *pErr);
sqlite3_stmt *bxRolloutUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutUsageDays(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutUsageSums(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* search.c */
sqlite3_stmt *bxRolloutFacts(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* context.c */
sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutOrphans(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* messages.c: whether the format of a conversation has rows in rollout_histories,
** and its messages by these rows: all, those without orphans, or the orphans. */
typedef enum { ROLLOUT_ALL, ROLLOUT_COMPLETE, ROLLOUT_ORPHANS } RolloutMessages;
int bxRolloutHasMessages(BxStmts *p, i64 no, BxErr *pErr);
sqlite3_stmt *bxRolloutMessages(Bx *bx, BxStmts *p, const RolloutHead *pHead,
    RolloutMessages eWhat, BxErr *pErr);
sqlite3_stmt *bxRolloutTree(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* What rollout_search_install() makes. */
#define BX_ROLLOUT_SEARCH "rollout_fts"
void bxRolloutSearchCheck(BxStmts *p, BxProblems *pOut);
void bxRolloutSearchInstall(BxCall *p);
void bxRolloutSearchRemove(BxCall *p);
sqlite3_stmt *bxRolloutSearch(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

extern const char bxRolloutSession[];      /* BxDomain.zSession */
extern const BxBodies bxRolloutBodies;     /* pack.c */
extern const BxRecords bxRolloutRecords[]; /* manage.c */
extern const BxTexts bxRolloutTexts[];
extern const BxFileLimit bxRolloutFileLimit; /* manage.c */
extern const BxDue bxRolloutDue[];
/* Before and after an erasure: BxDomain.xErase. */
void bxRolloutErase(BxStmts *p, int bDone, BxErr *pErr);

#endif
