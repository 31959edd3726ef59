/*
** export.h: a conversation as steps, for the formats that others read. export.c reads
** it, export_text.c and export_json.c write it.
*/
#ifndef BX_ROLLOUT_EXPORT_H
#define BX_ROLLOUT_EXPORT_H

#include "rollout.h"

typedef enum { EXPORT_SYSTEM, EXPORT_USER, EXPORT_AGENT } ExportSource;

/* A call of a tool, and what it returned. */
typedef struct ExportCall {
  char *zId, *zName;
  char *zArgs;   /* a JSON object; or, with bText, a text */
  char *zResult; /* NULL: there is none */
  i64 iTime, iResult;
  i64 iText; /* its number in told */
  int bText, bError;
} ExportCall;

/* Paragraphs; z is NULL if there is none. */
typedef struct ExportText {
  char *z;
  i64 n, nAlloc;
} ExportText;

/* A result of which no call is known yet. */
typedef struct ExportEarly {
  char *z;
  i64 iText, iStep; /* its number in told, and of the step that it follows */
} ExportEarly;

/* What one said, with the calls that follow from it. */
typedef struct ExportStep {
  ExportSource eSource;
  i64 iSequence, iTime;
  ExportText text, think;
  ExportText loose; /* a result of which no call is known */
  char *zModel;
  i64 iCall, nCall;
  int bClosed; /* a result is there: the next call of the model is another step */
  int nUsage; /* calls of the model that told their tokens */
  i64 nFresh, nWrite, nRead, nOutput, nReasoning;
  int bCost;
  double rCost;
} ExportStep;

/* The texts about a conversation, in the order of the query. */
enum {
  EXPORT_FORMAT,
  EXPORT_TITLE,
  EXPORT_CWD,
  EXPORT_BRANCH,
  EXPORT_VERSION,
  EXPORT_PROVIDER,
  EXPORT_MODEL,
  EXPORT_PARENT,
  EXPORT_SOURCE,
  EXPORT_PROMPT, /* of the system */
  EXPORT_TEXTS
};

typedef struct Transcript {
  BxStmts *pHome;
  BxErr *pErr;
  RolloutDerive told;
  RolloutJson json;
  char zId[37];
  char *az[EXPORT_TEXTS];
  char *zTools;     /* a JSON array of what the model was offered; or NULL */
  char *zFlatTools; /* the same without "function", as a trace has them */
  char *zRequest;   /* the newest request of the archive; or NULL */
  ExportStep *aStep;
  i64 nStep, nStepAlloc;
  ExportCall *aCall;
  i64 nCall, nCallAlloc;
  ExportEarly *aEarly;
  i64 nEarly, nEarlyAlloc;
  i64 iSequence, iTime; /* of the item that is read */
  char *zPromptJson;    /* while a trace is written */
  sqlite3_str *pOut;
} Transcript;

/* Texts end with a NUL. So one in a text is U+FDD0 until it is written, which is no
** character that texts have: in JSON \u0000 is \ufdd0. */
#define EXPORT_NUL "\xef\xb7\x90"
#define EXPORT_NUL_JSON "\\ufdd0"
/* Puts one of them in the place of the other in a text that is JSON. */
void bxExportMarkNul(char *z, int bWrite);

/* Append the whole. */
void bxExportMarkdown(Transcript *p);
void bxExportAtif(Transcript *p);
void bxExportOtlp(Transcript *p);

#endif
