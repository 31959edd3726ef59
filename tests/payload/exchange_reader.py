"""Reads exchanges with models in plain Python, one format at a time: what the module finds is
compared with it."""
import json


def events(text):
    """The JSON values of a recorded stream."""
    for line in text.splitlines():
        if line.startswith("data:"):
            line = line[5:]
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def parsed(arguments):
    """Arguments as the value that they are, or as their text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def one_of(value, *names):
    return next((value[name] for name in names if value.get(name) is not None), None)


def chat_message(message):
    for call in message.get("tool_calls") or []:
        what = call.get("function") or call.get("custom") or {}
        yield "call", call.get("id"), what.get("name"), parsed(one_of(what, "arguments", "input"))
    if message.get("function_call"):
        call = message["function_call"]
        yield "call", None, call["name"], parsed(call["arguments"])
    if message.get("role") == "tool":
        ids = message.get("tool_call_ids") or [None]
        yield "result", message.get("tool_call_id") or ids[0], None, None
    if message.get("role") == "function":
        yield "result", None, None, None


def block(part):
    """A part of a message of Anthropic, Bedrock or Gemini."""
    kind = part.get("type")
    if kind in ("tool_use", "server_tool_use"):
        yield "call", part["id"], part["name"], part["input"]
    elif kind in ("tool_result", "tool_search_tool_result", "web_search_tool_result"):
        yield "result", part["tool_use_id"], None, None
    elif "toolUse" in part:
        call = part["toolUse"]
        yield "call", call["toolUseId"], call["name"], call["input"]
    elif "toolResult" in part:
        yield "result", part["toolResult"]["toolUseId"], None, None
    elif one_of(part, "functionCall", "function_call"):
        call = one_of(part, "functionCall", "function_call")
        yield "call", call.get("id"), call["name"], call.get("args")
    elif one_of(part, "functionResponse", "function_response"):
        yield "result", one_of(part, "functionResponse", "function_response").get("id"), None, None


def item(value):
    """An item of the Responses format."""
    kind = value.get("type")
    if kind == "function_call":
        yield "call", value["call_id"], value["name"], parsed(value["arguments"])
    elif kind == "custom_tool_call":
        yield "call", value["call_id"], value["name"], parsed(value["input"])
    elif kind == "tool_search_call":
        yield "call", one_of(value, "call_id", "id"), kind, parsed(value["arguments"])
    elif kind in ("function_call_output", "custom_tool_call_output", "tool_search_output"):
        yield "result", one_of(value, "call_id", "id"), None, None


def parts(value):
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def request(body):
    if not isinstance(body, dict):
        return
    for message in parts(body.get("messages")):
        yield from chat_message(message)
        for part in parts(message.get("content")):
            yield from block(part)
    for value in parts(body.get("input")):
        yield from item(value)
    for content in parts(body.get("contents")):
        for part in parts(content.get("parts")):
            yield from block(part)


def whole(body):
    for choice in parts(body.get("choices")):
        yield from chat_message(choice.get("message") or {})
    for part in parts(body.get("content")):
        yield from block(part)
    if isinstance(body.get("output"), dict):
        for part in parts(body["output"]["message"]["content"]):
            yield from block(part)
    for value in parts(body.get("output")):
        yield from item(value)
    for candidate in parts(body.get("candidates")):
        for part in parts((candidate.get("content") or {}).get("parts")):
            yield from block(part)


def stream(text):
    calls, order, results = {}, [], []
    for event in events(text):
        kind = event.get("type")
        for choice in parts(event.get("choices")):
            for piece in (choice.get("delta") or {}).get("tool_calls") or []:
                call = calls.setdefault(piece["index"], [None, None, ""])
                if piece["index"] not in order:
                    order.append(piece["index"])
                call[0] = call[0] or piece.get("id")
                function = piece.get("function") or {}
                call[1] = call[1] or function.get("name")
                call[2] += function.get("arguments") or ""
        if kind == "content_block_start":
            found = list(block(event["content_block"]))
            if found and found[0][0] == "call":
                calls[event["index"]] = [found[0][1], found[0][2], ""]
                order.append(event["index"])
            elif found:
                results += found
        if kind == "content_block_delta" and event["delta"].get("type") == "input_json_delta":
            calls[event["index"]][2] += event["delta"]["partial_json"]
        if kind == "response.output_item.done":
            results += list(item(event["item"]))
        results += list(whole(event)) if "candidates" in event else []
    for index in order:
        call_id, tool, arguments = calls[index]
        results.append(("call", call_id, tool, parsed(arguments or "{}")))
    return results


def read(request_body, response_body):
    """All calls and results of an exchange, as (kind, id, tool, arguments)."""
    found = list(request(request_body))
    if isinstance(response_body, dict):
        found += whole(response_body)
    elif isinstance(response_body, str):
        found += stream(response_body)
    return found
