/*
** export_json.c: the steps of a conversation as ATIF, or as a trace of OpenTelemetry.
**
** ATIF: prompt_tokens are all that the model read, cached_tokens those of them from the
** cache. Whether a call failed is extra.is_error of its result, as ATIF has no place for
** it. extra of the whole has what else is known, and the raw request.
**
** OTLP: one trace, whose id is that of the conversation. The root is invoke_agent. Under
** it is a chat span for each step of the model, from the step before to its own time,
** and an execute_tool span for each call. gen_ai.input.messages of a chat span has what
** is new since the one before; messages are texts that are JSON.
*/
#include "export.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const char *const azSaidBy[] = {"system", "user", "agent"};

/*---------------------------------------------------------------- values ----*/

static void putText(sqlite3_str *pOut, const char *z) {
  const char *zNul = strstr(z ? z : "", EXPORT_NUL);
  char *zCopy = zNul ? sqlite3_mprintf("%s", z) : 0;
  int n = z ? (int)strlen(z) : 0;
  while (zCopy != 0 && zNul != 0) {
    int i = (int)(zNul - z), nMark = (int)strlen(EXPORT_NUL);
    zCopy[i] = 0;
    n -= nMark - 1;
    memmove(zCopy + i + 1, zCopy + i + nMark, (size_t)(n - i));
    z = zCopy;
    zNul = strstr(z + i + 1, EXPORT_NUL);
  }
  bxJsonAppend(pOut, zCopy ? zCopy : z ? z : "", n);
  sqlite3_free(zCopy);
}

/* A member with a text, and a comma before it; nothing for NULL. */
static void putMember(sqlite3_str *pOut, const char *zKey, const char *z) {
  if (z == 0) return;
  sqlite3_str_appendf(pOut, ",\"%s\":", zKey);
  putText(pOut, z);
}

/* The arguments of a call: an object, in which a text is the member input. */
static void putArgs(sqlite3_str *pOut, const ExportCall *pCall) {
  if (pCall->zArgs == 0 || *pCall->zArgs == 0) {
    sqlite3_str_appendall(pOut, "{}");
  } else if (pCall->bText) {
    sqlite3_str_appendall(pOut, "{\"input\":");
    putText(pOut, pCall->zArgs);
    sqlite3_str_appendall(pOut, "}");
  } else {
    char *z = sqlite3_mprintf("%s", pCall->zArgs);
    bxExportMarkNul(z, 1);
    sqlite3_str_appendall(pOut, z ? z : pCall->zArgs);
    sqlite3_free(z);
  }
}

static i64 inputOf(const ExportStep *p) {
  return p->nFresh + p->nWrite + p->nRead;
}

/*------------------------------------------------------------------ ATIF ----*/

static void putMetrics(sqlite3_str *pOut, const ExportStep *p) {
  sqlite3_str_appendf(pOut,
      ",\"metrics\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
      "\"cached_tokens\":%lld",
      inputOf(p), p->nOutput, p->nRead);
  if (p->bCost) sqlite3_str_appendf(pOut, ",\"cost_usd\":%!.15g", p->rCost);
  if (p->nWrite > 0 || p->nReasoning > 0) {
    sqlite3_str_appendf(pOut,
        ",\"extra\":{\"cache_write_tokens\":%lld,\"reasoning_tokens\":%lld}",
        p->nWrite, p->nReasoning);
  }
  sqlite3_str_appendf(pOut, "},\"llm_call_count\":%d", p->nUsage);
}

static void putResults(const Transcript *p, const ExportStep *pStep) {
  const char *zBefore = ",\"observation\":{\"results\":[";
  i64 i;
  for (i = pStep->iCall; i < pStep->iCall + pStep->nCall; i++) {
    const ExportCall *pCall = &p->aCall[i];
    if (pCall->zResult == 0) continue;
    sqlite3_str_appendf(p->pOut, "%s{\"source_call_id\":", zBefore);
    putText(p->pOut, pCall->zId);
    putMember(p->pOut, "content", pCall->zResult);
    if (pCall->bError) {
      sqlite3_str_appendall(p->pOut, ",\"extra\":{\"is_error\":true}");
    }
    sqlite3_str_appendall(p->pOut, "}");
    zBefore = ",";
  }
  if (pStep->loose.z != 0) {
    sqlite3_str_appendf(p->pOut, "%s{\"content\":", zBefore);
    putText(p->pOut, pStep->loose.z);
    sqlite3_str_appendall(p->pOut, "}");
    zBefore = ",";
  }
  if (*zBefore == ',' && zBefore[1] == 0) {
    sqlite3_str_appendall(p->pOut, "]}");
  }
}

/* The prompt of the system has the number of no item. */
static void putAtifStep(
    const Transcript *p, const ExportStep *pStep, i64 iStep) {
  sqlite3_str *pOut = p->pOut;
  char zIso[25];
  i64 i;
  assert(pStep->iCall + pStep->nCall <= p->nCall);
  bxIso(pStep->iTime, zIso);
  sqlite3_str_appendf(pOut, "%s{\"step_id\":%lld,\"timestamp\":\"%s\"",
      iStep > 1 ? "," : "", iStep, zIso);
  putMember(pOut, "source", azSaidBy[pStep->eSource]);
  if (pStep->eSource == EXPORT_AGENT) {
    putMember(pOut, "model_name", pStep->zModel);
  }
  putMember(pOut, "message", pStep->text.z ? pStep->text.z : "");
  putMember(pOut, "reasoning_content", pStep->think.z);
  for (i = pStep->iCall; i < pStep->iCall + pStep->nCall; i++) {
    sqlite3_str_appendall(pOut, i == pStep->iCall
                                    ? ",\"tool_calls\":[{\"tool_call_id\":"
                                    : ",{\"tool_call_id\":");
    putText(pOut, p->aCall[i].zId);
    putMember(pOut, "function_name", p->aCall[i].zName);
    sqlite3_str_appendall(pOut, ",\"arguments\":");
    putArgs(pOut, &p->aCall[i]);
    sqlite3_str_appendall(pOut, "}");
  }
  if (pStep->nCall > 0) sqlite3_str_appendall(pOut, "]");
  putResults(p, pStep);
  if (pStep->nUsage > 0) putMetrics(pOut, pStep);
  if (pStep->iSequence > 0) {
    sqlite3_str_appendf(
        pOut, ",\"extra\":{\"sequence\":%lld}", pStep->iSequence);
  }
  sqlite3_str_appendall(pOut, "}");
}

/* The raw request as JSON, if it is that; else as a text. */
static void putRequest(Transcript *p) {
  const char *zEnd = 0;
  i64 n = (i64)strlen(p->zRequest);
  zEnd = bxTreeRead(&p->json.tree, p->zRequest, n, 0, 0, p->pErr);
  sqlite3_str_appendall(p->pOut, ",\"raw_request\":");
  if (zEnd != 0 && *bxJsonSkipSpace(zEnd) == 0) {
    sqlite3_str_append(p->pOut, p->zRequest, (int)n);
  } else {
    putText(p->pOut, p->zRequest);
  }
}

static ExportStep sumOf(const Transcript *p) {
  ExportStep sum;
  i64 i;
  memset(&sum, 0, sizeof(sum));
  for (i = 0; i < p->nStep; i++) {
    const ExportStep *a = &p->aStep[i];
    sum.nUsage += a->nUsage;
    sum.nFresh += a->nFresh;
    sum.nWrite += a->nWrite;
    sum.nRead += a->nRead;
    sum.nOutput += a->nOutput;
    sum.nReasoning += a->nReasoning;
    sum.bCost |= a->bCost;
    sum.rCost += a->rCost;
  }
  return sum;
}

void bxExportAtif(Transcript *p) {
  static const char *const azExtra[] = {"title", "cwd", "branch"};
  sqlite3_str *pOut = p->pOut;
  ExportStep sum = sumOf(p), prompt;
  i64 i, n = 0;
  sqlite3_str_appendall(pOut, "{\"schema_version\":\"ATIF-v1.8\"");
  putMember(
      pOut, "session_id", p->az[EXPORT_SOURCE] ? p->az[EXPORT_SOURCE] : p->zId);
  putMember(pOut, "trajectory_id", p->zId);
  sqlite3_str_appendall(pOut, ",\"agent\":{\"name\":");
  putText(pOut, p->az[EXPORT_FORMAT]);
  putMember(pOut, "version",
      p->az[EXPORT_VERSION] ? p->az[EXPORT_VERSION] : "unknown");
  putMember(pOut, "model_name", p->az[EXPORT_MODEL]);
  if (p->zTools != 0) {
    sqlite3_str_appendf(pOut, ",\"tool_definitions\":%s", p->zTools);
  }
  sqlite3_str_appendall(pOut, "},\"steps\":[");
  if (p->az[EXPORT_PROMPT] != 0) {
    memset(&prompt, 0, sizeof(prompt));
    prompt.text.z = p->az[EXPORT_PROMPT];
    prompt.iTime = p->nStep > 0 ? p->aStep[0].iTime : 0;
    putAtifStep(p, &prompt, ++n);
  }
  for (i = 0; i < p->nStep; i++) putAtifStep(p, &p->aStep[i], ++n);
  sqlite3_str_appendf(pOut, "],\"final_metrics\":{\"total_steps\":%lld", n);
  if (sum.nUsage > 0) {
    sqlite3_str_appendf(pOut,
        ",\"total_prompt_tokens\":%lld,\"total_completion_tokens\":%lld,"
        "\"total_cached_tokens\":%lld",
        inputOf(&sum), sum.nOutput, sum.nRead);
  }
  if (sum.bCost) {
    sqlite3_str_appendf(pOut, ",\"total_cost_usd\":%!.15g", sum.rCost);
  }
  sqlite3_str_appendall(pOut, "},\"extra\":{\"exporter\":\"blackbox\"");
  for (i = 0; i < 3; i++) {
    putMember(pOut, azExtra[i], p->az[EXPORT_TITLE + i]);
  }
  putMember(pOut, "parent", p->az[EXPORT_PARENT]);
  if (p->zRequest != 0) putRequest(p);
  sqlite3_str_appendall(pOut, "}}\n");
}

/*------------------------------------------------------------------ OTLP ----*/

static void putAttribute(sqlite3_str *pOut, const char *zKey, const char *z) {
  if (z == 0) return;
  sqlite3_str_appendf(
      pOut, ",{\"key\":\"%s\",\"value\":{\"stringValue\":", zKey);
  putText(pOut, z);
  sqlite3_str_appendall(pOut, "}}");
}

static void putCount(sqlite3_str *pOut, const char *zKey, i64 n) {
  if (n <= 0) return;
  sqlite3_str_appendf(pOut,
      ",{\"key\":\"gen_ai.usage.%s\",\"value\":{\"intValue\":\"%lld\"}}", zKey,
      n);
}

/* An attribute whose text is JSON, which it takes from a buffer. */
static void putJson(Transcript *p, const char *zKey, sqlite3_str *pJson) {
  char *z = bxStrFinish(pJson, p->pErr);
  putAttribute(p->pOut, zKey, z);
  sqlite3_free(z);
}

/* Begins a span, whose number is part of its id; the first one is the root. */
static void beginSpan(Transcript *p, i64 iSpan, const char *zKind,
    const char *zOf, int eKind, i64 iFrom, i64 iTo) {
  char zTrace[33];
  char *zName =
      bxPrintf(p->pErr, "%s%s%s", zKind, zOf ? " " : "", zOf ? zOf : "");
  int i, n = 0;
  for (i = 0; i < 36; i++) {
    if (p->zId[i] != '-') zTrace[n++] = p->zId[i];
  }
  assert(n == 32 && iSpan > 0);
  zTrace[n] = 0;
  sqlite3_str_appendf(p->pOut, "%s{\"traceId\":\"%s\",\"spanId\":\"%s%08llx\"",
      iSpan > 1 ? "," : "", zTrace, zTrace + 24, iSpan);
  if (iSpan > 1) {
    sqlite3_str_appendf(
        p->pOut, ",\"parentSpanId\":\"%s%08x\"", zTrace + 24, 1);
  }
  putMember(p->pOut, "name", zName);
  sqlite3_free(zName);
  sqlite3_str_appendf(p->pOut,
      ",\"kind\":%d,\"startTimeUnixNano\":\"%lld000000\","
      "\"endTimeUnixNano\":\"%lld000000\",\"attributes\":["
      "{\"key\":\"gen_ai.operation.name\",\"value\":{\"stringValue\":\"%s\"}}",
      eKind, iFrom, iTo < iFrom ? iFrom : iTo, zKind);
  putAttribute(p->pOut, "gen_ai.conversation.id",
      p->az[EXPORT_SOURCE] ? p->az[EXPORT_SOURCE] : p->zId);
}

static void endSpan(Transcript *p, const char *zError) {
  putAttribute(p->pOut, "error.type", zError);
  sqlite3_str_appendall(p->pOut, "],\"status\":{");
  if (zError != 0) sqlite3_str_appendall(p->pOut, "\"code\":2");
  sqlite3_str_appendall(p->pOut, "}}");
}

/* Adds a message with one part, or a part to the last message of this role. */
static void putPart(sqlite3_str *pJson, const char **pzRole, const char *zRole,
    const char *zType, const char *zContent) {
  if (*pzRole == zRole) {
    sqlite3_str_appendall(pJson, ",");
  } else {
    sqlite3_str_appendf(
        pJson, "%s{\"role\":\"%s\",\"parts\":[", *pzRole ? "]}," : "[", zRole);
  }
  *pzRole = zRole;
  sqlite3_str_appendf(pJson, "{\"type\":\"%s\"", zType);
  putMember(pJson, "content", zContent);
}

static void endParts(sqlite3_str *pJson, const char *zRole, const char *zEnd) {
  if (zRole != 0) sqlite3_str_appendf(pJson, "]%s}]", zEnd);
}

static const char zUserRole[] = "user", zToolRole[] = "tool",
                  zSystemRole[] = "system", zModelRole[] = "assistant";

/* What is new to the model in a step, after the step before of the model. */
static void putInput(Transcript *p, i64 iStep) {
  sqlite3_str *pJson = sqlite3_str_new(0);
  const char *zRole = 0;
  i64 i, j = iStep;
  while (j > 0 && p->aStep[j - 1].eSource != EXPORT_AGENT) j--;
  if (j > 0) {
    const ExportStep *pBefore = &p->aStep[j - 1];
    for (i = pBefore->iCall; i < pBefore->iCall + pBefore->nCall; i++) {
      if (p->aCall[i].zResult == 0) continue;
      putPart(pJson, &zRole, zToolRole, "tool_call_response", 0);
      putMember(pJson, "id", p->aCall[i].zId);
      putMember(pJson, "response", p->aCall[i].zResult);
      sqlite3_str_appendall(pJson, "}");
    }
  }
  for (; j < iStep; j++) {
    const char *z =
        p->aStep[j].text.z ? p->aStep[j].text.z : p->aStep[j].loose.z;
    int bUser = p->aStep[j].eSource == EXPORT_USER;
    putPart(pJson, &zRole, bUser ? zUserRole : zSystemRole, "text", z ? z : "");
    sqlite3_str_appendall(pJson, "}");
  }
  endParts(pJson, zRole, "");
  putJson(p, "gen_ai.input.messages", pJson);
}

static void putOutput(Transcript *p, const ExportStep *pStep) {
  sqlite3_str *pJson = sqlite3_str_new(0);
  const char *zRole = 0;
  i64 i;
  if (pStep->think.z != 0) {
    putPart(pJson, &zRole, zModelRole, "reasoning", pStep->think.z);
    sqlite3_str_appendall(pJson, "}");
  }
  if (pStep->text.z != 0) {
    putPart(pJson, &zRole, zModelRole, "text", pStep->text.z);
    sqlite3_str_appendall(pJson, "}");
  }
  for (i = pStep->iCall; i < pStep->iCall + pStep->nCall; i++) {
    putPart(pJson, &zRole, zModelRole, "tool_call", 0);
    putMember(pJson, "id", p->aCall[i].zId);
    putMember(pJson, "name", p->aCall[i].zName);
    sqlite3_str_appendall(pJson, ",\"arguments\":");
    putArgs(pJson, &p->aCall[i]);
    sqlite3_str_appendall(pJson, "}");
  }
  endParts(pJson, zRole,
      pStep->nCall > 0 ? ",\"finish_reason\":\"tool_call\""
                       : ",\"finish_reason\":\"stop\"");
  putJson(p, "gen_ai.output.messages", pJson);
  sqlite3_str_appendf(p->pOut,
      ",{\"key\":\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":"
      "{\"values\":[{\"stringValue\":\"%s\"}]}}}",
      pStep->nCall > 0 ? "tool_call" : "stop");
}

/* Who has the model, by the names of the conventions. */
static const char *providerOf(const Transcript *p, const char *zModel) {
  static const char *const az[][2] = {{"claude", "anthropic"},
      {"gpt", "openai"}, {"o1", "openai"}, {"o3", "openai"}, {"o4", "openai"},
      {"codex", "openai"}, {"gemini", "gcp.gemini"}, {"grok", "x_ai"},
      {"deepseek", "deepseek"}, {"mistral", "mistral_ai"}};
  int i;
  for (i = 0; zModel != 0 && i < 10; i++) {
    if (strncmp(zModel, az[i][0], strlen(az[i][0])) == 0) return az[i][1];
  }
  return p->az[EXPORT_PROVIDER] ? p->az[EXPORT_PROVIDER] : p->az[EXPORT_FORMAT];
}

static void putSpans(Transcript *p) {
  i64 i, j, iFrom = p->nStep > 0 ? p->aStep[0].iTime : 0, n = 1;
  for (i = 0; i < p->nStep && p->pErr->rc == SQLITE_OK; i++) {
    const ExportStep *pStep = &p->aStep[i];
    const char *zModel = pStep->zModel ? pStep->zModel : p->az[EXPORT_MODEL];
    if (pStep->eSource != EXPORT_AGENT) {
      iFrom = pStep->iTime;
      continue;
    }
    beginSpan(p, ++n, "chat", zModel, 3, iFrom, pStep->iTime);
    putAttribute(p->pOut, "gen_ai.provider.name", providerOf(p, zModel));
    putAttribute(p->pOut, "gen_ai.request.model", zModel);
    putAttribute(p->pOut, "gen_ai.response.model", pStep->zModel);
    putInput(p, i);
    putOutput(p, pStep);
    putAttribute(
        p->pOut, "gen_ai.system_instructions", n > 2 ? 0 : p->zPromptJson);
    putAttribute(p->pOut, "gen_ai.tool.definitions", n > 2 ? 0 : p->zFlatTools);
    putCount(p->pOut, "input_tokens", inputOf(pStep));
    putCount(p->pOut, "output_tokens", pStep->nOutput);
    putCount(p->pOut, "cache_read.input_tokens", pStep->nRead);
    putCount(p->pOut, "cache_write.input_tokens", pStep->nWrite);
    putCount(p->pOut, "reasoning.output_tokens", pStep->nReasoning);
    endSpan(p, 0);
    iFrom = pStep->iTime;
    for (j = pStep->iCall; j < pStep->iCall + pStep->nCall; j++) {
      const ExportCall *pCall = &p->aCall[j];
      sqlite3_str *pArgs = sqlite3_str_new(0);
      beginSpan(p, ++n, "execute_tool", pCall->zName, 1, pCall->iTime,
          pCall->iResult);
      putAttribute(p->pOut, "gen_ai.tool.name", pCall->zName);
      putAttribute(p->pOut, "gen_ai.tool.call.id", pCall->zId);
      putArgs(pArgs, pCall);
      putJson(p, "gen_ai.tool.call.arguments", pArgs);
      putAttribute(p->pOut, "gen_ai.tool.call.result", pCall->zResult);
      endSpan(p, pCall->bError ? "tool_error" : 0);
      if (pCall->iResult > iFrom) iFrom = pCall->iResult;
    }
  }
}

void bxExportOtlp(Transcript *p) {
  sqlite3_str *pOut = p->pOut, *pPrompt = sqlite3_str_new(0);
  const char *zAgent = p->az[EXPORT_FORMAT], *zProvider;
  i64 i, iTo = 0;
  if (p->az[EXPORT_PROMPT] != 0) {
    sqlite3_str_appendall(pPrompt, "[{\"type\":\"text\"");
    putMember(pPrompt, "content", p->az[EXPORT_PROMPT]);
    sqlite3_str_appendall(pPrompt, "}]");
  }
  p->zPromptJson = bxStrFinish(pPrompt, p->pErr);
  for (i = 0; i < p->nStep; i++) {
    if (p->aStep[i].iTime > iTo) iTo = p->aStep[i].iTime;
  }
  for (i = 0; i < p->nCall; i++) {
    if (p->aCall[i].iResult > iTo) iTo = p->aCall[i].iResult;
  }
  zProvider = providerOf(p, p->az[EXPORT_MODEL]);
  sqlite3_str_appendall(pOut,
      "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
      "{\"key\":\"service.name\",\"value\":{\"stringValue\":");
  putText(pOut, zAgent);
  sqlite3_str_appendall(pOut,
      "}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"blackbox\"},\"spans\":[");
  beginSpan(p, 1, "invoke_agent", zAgent, 1,
      p->nStep > 0 ? p->aStep[0].iTime : 0, iTo);
  putAttribute(pOut, "gen_ai.agent.name", zAgent);
  putAttribute(pOut, "gen_ai.agent.version", p->az[EXPORT_VERSION]);
  putAttribute(pOut, "gen_ai.provider.name", zProvider);
  putAttribute(pOut, "gen_ai.request.model", p->az[EXPORT_MODEL]);
  endSpan(p, 0);
  putSpans(p);
  sqlite3_str_appendall(pOut, "]}]}]}\n");
  sqlite3_free(p->zPromptJson);
}
