/*
** ring_body.h: what ring_log.c, ring_scrub.c and ring_body.c have in common.
*/
#ifndef BX_RING_BODY_H
#define BX_RING_BODY_H

#include "payload.h"

#define CHUNK 3500     /* bytes of a log in a row */
#define PAGE_MOST 3930 /* so that a row of the agents fills a page */
#define HEADS 4
#define RUNS 12
#define DEPTH 64         /* records of a chain */
#define RECORDS_MOST 8   /* that a text in memory may be behind its head */
#define SHORT 100        /* bytes that a slot has itself */
#define SHARED_LEAST 256 /* bytes */
#define AGENTS_KEPT 64   /* agents whose heads are in memory */
#define AGENTS_KNOWN 256
#define KEPT_MOST (16 << 20) /* bytes of them */
#define CHUNKS_KEPT 16
#define KEPT_CHUNK(p, i) (&(p)->aChunk[(i) % CHUNKS_KEPT])
#define NAME_KNOWN 64 /* bytes of a name, with a terminator */
#define POSITION_MOST ((i64)1 << 56)
#define DIRTY_MOST 16

enum { BODY_BLOB, BODY_TEXT_AT, BODY_BLOB_AT };

/* A body that was put together, and its record. sum: that of a head. */
typedef struct BodyText {
  unsigned char *z;
  i64 nAlloc, n; /* n 0: none */
  i64 iAt, iParent, nShared;
  sqlite3_uint64 sum;
} BodyText;

typedef struct BodyHead {
  i64 iAt, n, iRoot, nDepth;
  sqlite3_uint64 hStart, sum;
} BodyHead;

/* How far a log is swept: see ring_scrub.c. What is not used is 0. */
typedef struct BodySweep {
  i64 iSeq; /* the next exchange to look at */
  i64 iAt;  /* what is before it is still to be looked at, and to be cleared */
  i64 iPlace; /* the same of the places */
  i64 nNeed;  /* used of these, one for each chain that goes on after iAt: */
  struct {
    i64 iAt, iRoot, n; /* a record, and how much its body is needed; 0: all */
  } aNeed[HEADS];
} BodySweep;

typedef struct BodyLog {
  i64 iNo;         /* the agent; 0: none is loaded */
  i64 iOpen;       /* number of the open chunk */
  i64 nOpen;       /* bytes of it */
  i64 nLive;       /* chunks before it that are there */
  i64 nPlace;      /* places for chunks */
  i64 nRun, nHead, /* used of these: */
      aRun[RUNS][2];
  BodyHead aHead[HEADS];
  BodySweep sweep;
  i64 nPage; /* bytes of its column page */
  i64 iPin;  /* a root that is being written */
  unsigned char aOpen[CHUNK];
} BodyLog;

typedef struct BodyRef {
  int eKind;
  i64 iAt, n, iRoot;
} BodyRef;

typedef struct BodyRecord {
  i64 iOwn, nOwn; /* where its bytes are, and how many */
  i64 iParent;    /* -1: none */
  i64 nShared;
} BodyRecord;

/* A chunk that is whole, in the place of its number. */
typedef struct BodyChunk {
  i64 iChunk; /* -1: none */
  unsigned char a[CHUNK];
} BodyChunk;

/* An agent and its log after its last push. */
typedef struct BodyKnown {
  int iKnown; /* see Ring */
  RingAgent agent;
  BodyLog log;
  char zAgent[NAME_KNOWN];
} BodyKnown;

struct RingBodies {
  BodyLog log;
  int nChange; /* of the connection, when the log was loaded */
  sqlite3_uint64 hPage;
  struct {
    i64 iNo;
    BodyText a[HEADS];
  } aKept[AGENTS_KEPT];
  i64 nKept;
  BodyKnown *apKnown[AGENTS_KNOWN]; /* in the place of the hash of the name */
  BodyText aRead[2]; /* the last request and response that were read */
  BodyChunk aChunk[CHUNKS_KEPT];
  i64 aDirty[DIRTY_MOST]; /* agents of which exchanges were deleted */
  int nDirty;
  unsigned char aPage[PAGE_MOST];
};

#define BODY_SLOTS                                                             \
  " FROM main.@_slots WHERE id BETWEEN ?1 << 29 AND (?1 << 29) + 536870911 "
/* What an agent's slots have in place of bodies, one after the other. */
#define BODY_REFS "SELECT request_body, response_body" BODY_SLOTS

/* ring_log.c: numbers. Returns where they end; NULL if there is none before zEnd, or it
** is above iMost. */
unsigned char *bxBodyPut(unsigned char *z, sqlite3_uint64 u);
const unsigned char *bxBodyGet(
    const unsigned char *z, const unsigned char *zEnd, i64 iMost, i64 *piOut);
sqlite3_uint64 bxBodyHash(const unsigned char *z, i64 n);
/* The end of the log. */
i64 bxBodyEnd(const BodyLog *p);
void bxBodyDamaged(Ring *p, BxErr *pErr);
RingBodies *bxBodyMemory(Ring *p, BxErr *pErr);
/* Loads the log of an agent, unless it is loaded. */
BodyLog *bxBodyLog(Ring *p, i64 iNo, BxErr *pErr);
/* Writes its page. */
void bxBodyStore(Ring *p, BxErr *pErr);
/* Reads those of chunks i to iTo into memory that are there and whole. */
void bxBodyLoad(Ring *p, i64 i, i64 iTo, BxErr *pErr);
unsigned char *bxBodyGetChunk(Ring *p, i64 iChunk, BxErr *pErr);
void bxBodyPutChunk(Ring *p, i64 iChunk, const unsigned char *z, BxErr *pErr);
/* Reads n bytes of the loaded log from position i on; a record; a reference. */
void bxBodyRead(Ring *p, i64 i, i64 n, unsigned char *zOut, BxErr *pErr);
void bxBodyRecord(Ring *p, i64 iAt, BodyRecord *pOut, BxErr *pErr);
int bxBodyRef(const void *pBlob, i64 n, BodyRef *pOut);
int bxBodyRefOf(sqlite3_stmt *pStmt, int i, BodyRef *pOut);
void bxBodyWrite(Ring *p, const unsigned char *z, i64 n, BxErr *pErr);
void bxBodyDropHead(BodyLog *p, i64 i);
/* ring_scrub.c: a record gets a child, which shares n bytes of its body. */
void bxBodyNeed(BodySweep *p, const BodyHead *pHead, i64 n);
/* The chunks before position iFirst are free. Their heads go. */
void bxBodyFreeBefore(BodyLog *p, i64 iFirst);

#endif
