/*
** reader.h: what the files have in common that read an exchange.
*/
#ifndef BX_READER_H
#define BX_READER_H

#include "exchange.h"

typedef struct Hit {
  const BxPlace *pPlace;
  int iNode;
  int iItem; /* node of the message that it is in */
} Hit;

#define PLACE_STEPS 32 /* the most members of a place */

/* What a reader leaves to the next one. */
typedef struct Room {
  BxTree tree, part;
  Hit *aHit;
  i64 nHitAlloc;
  char *azText[2]; /* a request and a response, or what of them is read */
  i64 anText[2];
} Room;

typedef struct Reader {
  Exchange *pOut;
  const Formats *pFormats;
  BxErr *pErr;
  BxTree tree;
  BxSource eBody;
  Hit *aHit;
  i64 nHit, nHitAlloc;
  i64 iFirst;          /* the first call of this response */
  int iList;           /* the array of messages, -1 for none */
  int iElement, iItem; /* its element that was reached, and the number of it */
  int nSeen;   /* messages of users before this one were counted before */
  int nOld;    /* first elements of the list that are not looked at */
  int iRecent; /* node of the first message whose calls and results are read */
  int bReply;  /* what users say is read */
  /* the node after so many steps, or its element; 0 is where places begin */
  int aAt[PLACE_STEPS];
} Reader;

/* texts.c */
void bxTextFree(Text *pText);
/* Frees what was there. */
void bxTextSet(Text *pText, Text value);
/* Takes a text that was put together. */
Text bxTextTake(sqlite3_str *pStr, BxErr *pErr);
/* Appends a text to another one. */
void bxTextAppend(Text *pText, Text more, BxErr *pErr);
/* The value as text: a string is what it represents. */
Text bxTextValue(const BxTree *p, int iNode, BxErr *pErr);
/* The texts of a message: its text, or those of its parts. Counts them, and the
** parts without; *piFirst is the first one, or -1. */
int bxTextCount(const BxTree *p, int iNode, int *piFirst, int *pnOther);
/* The same on lines of their own. */
Text bxTextMessage(const BxTree *p, int iNode, int *pnOther, BxErr *pErr);
/* The result of a call. Parts that have no text stay JSON. */
Text bxTextResult(const BxTree *p, int iNode, BxErr *pErr);

/* format.c */
/* Finds all places in the value, in the order of the text. */
void bxFormatsFind(Reader *p, BxSource eBody, int iRoot);

#endif
