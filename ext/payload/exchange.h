/*
** exchange.h: what an exchange says: tool calls, their results, texts, tokens.
**
** Formats are the rows of blackbox_places that tell where a body has these things
** (format.c). An Exchange is what they find in a request and its response, in the
** order of the text (exchange.c). Its texts point into the bodies where they have
** no escapes (texts.c), so the bodies must outlive it.
*/
#ifndef BX_EXCHANGE_H
#define BX_EXCHANGE_H

#include "../core/core.h"
#include "../core/digest.h"
#include "../core/json_path.h"

#define N_BODY 3
typedef struct Formats {
  unsigned mKind; /* the kinds that were read: bits 1 << eKind */
  BxPlaces places;
  BxTrie ways; /* the keys of all places, and of what is read there */
  int aiRoot[N_BODY];
  struct Room *pRoom; /* memory that is used again */
} Formats;

/* Kinds of formats: all, and those that tell the calls. */
#define FORMATS_ALL (~0u)
#define FORMATS_OF_CALLS                                                       \
  (1u << BX_KIND_CALL | 1u << BX_KIND_RESULT | 1u << BX_KIND_USER |            \
      1u << BX_KIND_ASSISTANT | 1u << BX_KIND_MESSAGE | 1u << BX_KIND_ERROR |  \
      1u << BX_KIND_USAGE)

/* The formats of these kinds in p's schema. On error *pOut has some of them; free
** it anyway. */
void bxFormatsRead(Formats *pOut, BxStmts *p, unsigned mKind, BxErr *pErr);
void bxFormatsFree(Formats *p);
/* exchange.c */
struct Room *bxScratchNew(BxErr *pErr);
void bxScratchFree(struct Room *p);

/* z is NULL for a value that is not there. It is a part of a body, or owned; no
** terminator follows. */
typedef struct Text {
  const char *z;
  i64 n;
  char *zOwn; /* NULL for a part of a body */
  i64 nAlloc; /* 0 if nothing was added to it */
} Text;

/* A tool call or a result. */
typedef struct Call {
  int bResult;   /* a result, not a call */
  int bResponse; /* found in the response */
  int iTurn;     /* how many messages of users stood before it */
  int iItem;     /* of a request: number of the message that it is in */
  int iError;    /* 1: an error; 0: none; -1: of a call */
  Text id, tool, part;
  Text arguments; /* see bxCallArguments() */
  int bWritten;   /* these are as the body has them */
  Text result;
} Call;

/* Makes the arguments canonical, where they are JSON. */
void bxCallArguments(Call *p, BxErr *pErr);
/* A hash of them, the same for the same canonical form. */
i64 bxCallHash(Call *p, const Formats *pFormats, BxErr *pErr);

typedef struct Exchange {
  Call *a;
  i64 n, nAlloc;
  int nTurn;    /* messages of users */
  int nUser;    /* the same, with those that were counted before */
  int bResumed; /* the request begins with all that was read before */
  i64 hFirst;   /* hash of the first text of a message; 0 for none */
  int nItem;    /* messages of the request */
  Text prompt;  /* the last of them, if formats of prompts were read */
  Text said;    /* by the model, in the response */
  Text reply;   /* by the user, in the last message that was not read before */
  int bRefused; /* and it tells of an error */
  Text model;
  Text tools; /* offered and demanded, as payload_tools() has it */
  BxTokens usage;
  char
      *azCopy[2]; /* the bodies, if they are not in the memory of the formats */
} Exchange;

/*
** Reads both bodies, each a text or blob; NULL is no body. What is no exchange
** leaves *pOut empty: only memory is an error. Free it in any case. The values
** are not used after that, and all arguments are canonical.
*/
void bxExchangeRead(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, BxErr *pErr);
void bxExchangeFree(Exchange *p);

/* How far a request was read. The last messages are not part of it, as programs
** change their marks in the next one. */
typedef struct Head {
  i64 iAt;   /* which request */
  int nByte; /* 0 for nothing */
  int iKey;  /* where the key of the list of messages is */
  int nItem; /* messages in these bytes */
} Head;
#define HEAD_BEFORE_END 4
/* How many bytes a request has in common with an earlier one. */
typedef struct Shared {
  i64 iAt;   /* its own name */
  i64 iFrom; /* that of the earlier one */
  i64 n;
  int nItem;  /* messages of the request before, */
  i64 hFirst; /* and the hash of its first texts */
} Shared;
/*
** The same for the next exchange of a conversation: messages that *pHead has are
** not read again, and if the request begins with them, nothing before number
** pShared->nItem. Else calls and results are read from that number on if it is the same
** conversation, and from the newest call on: what is before it is history. *pHead
** becomes that of this request. Users' messages are counted from number nItem on. The
** texts are in the memory of the formats: use them before others
** are read with these.
*/
void bxExchangeReadOn(Exchange *pOut, const Formats *pFormats,
    sqlite3_value *pRequest, sqlite3_value *pResponse, const Shared *pShared,
    Head *pHead, BxErr *pErr);

#endif
