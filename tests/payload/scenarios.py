"""Agents that loop, and agents that work: what tools really print, as streams of calls.

A scenario is a function that returns exchanges: (request, response, timestamp in milliseconds)."""
import hashlib
import json
import random

LOOPS, INNOCENT = {}, {}
MISSED = {  # loops that the rules do not find
    "an edit that fails in other words, and a look"}  # each failure quotes another text


def loop(make):
    LOOPS[make.__name__.replace("_", " ")] = make


def innocent(make):
    INNOCENT[make.__name__.replace("_", " ")] = make


class Talk:
    """A conversation in the format of chat.completions, seen by the program that records it."""

    def __init__(self, user="Fix the failing tests.", gap=1500, system="You are a coding agent.", seed="t"):
        self.head = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        self.messages, self.exchanges, self.gap, self.at = list(self.head), [], gap, 0
        self.seed, self.n = seed, 0

    def push(self, response, request=None):
        body = {"model": "m", "messages": self.messages} if request is None else request
        self.exchanges.append((json.dumps(body), response, self.at))
        self.at += self.gap

    def call(self, *calls, text=None):
        """Calls of one answer: (tool, arguments, result) each."""
        said = {"role": "assistant", "content": text, "tool_calls": []}
        results = []
        for tool, arguments, result in calls:
            self.n += 1
            key = f"call_{self.seed}_{self.n}"
            said["tool_calls"].append({"id": key, "type": "function", "function": {
                "name": tool, "arguments": json.dumps(arguments)}})
            results.append({"role": "tool", "tool_call_id": key, "content": result})
        self.push(json.dumps({"choices": [{"message": said}]}))
        self.messages = self.messages + [said] + results
        return self

    def say(self, text, reply=None):
        said = {"role": "assistant", "content": text}
        self.push(json.dumps({"choices": [{"message": said}]}))
        self.messages = self.messages + [said] + ([{"role": "user", "content": reply}] if reply else [])
        return self

    def remind(self, text):
        self.messages = self.messages + [{"role": "user", "content": text}]
        return self

    def end(self):
        return self.say("done").exchanges


def stream(calls, **how):
    talk = Talk(**how)
    for call in calls:
        talk.call(*(call if isinstance(call, list) else [call]))
    return talk.end()


def times(n, make):
    return [make(i) for i in range(n)]


def word(i, n=8):
    """A word that stands for what differs, without a digit."""
    return "".join(chr(97 + b % 26) for b in hashlib.sha256(str(i).encode()).digest()[:n])


def drawn(i):
    return random.Random(i).getrandbits(128)


def uuid(i):
    h = f"{drawn(i):032x}"
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


SOURCE = "\n".join(f"    {i}\tdef {word(i)}(self, {word(i + 50)}):" for i in range(1, 40))
GREEN = "============================= test session starts =====\ncollected 14 items\n\n14 passed in {}s"


# ---- the same call, the same result

def _same(name, tool, arguments, result, **how):
    LOOPS[name] = lambda: stream(times(9, lambda i: (tool, arguments, result)), **how)


_same("an order that stays closed", "get_order", {"id": 1042}, '{"id":1042,"state":"closed"}')
_same("a file read again", "Read", {"file_path": "/repo/app/models.py"}, SOURCE)
_same("a folder listed again", "Bash", {"command": "ls -la src"}, "total 8\ndrwxr-xr-x 2 me me 4096 .\n-rw-r--r-- 1 me me 220 a.c")
_same("a search without a match", "Grep", {"pattern": "parseConfig", "path": "."}, "No matches found")
_same("a click without an effect", "browser_click", {"ref": "e42"}, "### Page state\n- Page URL: https://shop.example/cart\n- button \"Pay\" [ref=e42]")
_same("a query without rows", "sql", {"query": "SELECT * FROM orders WHERE state = 'open'"}, "(0 rows)")
_same("git status", "Bash", {"command": "git status --short"}, "")
_same("a weather report", "get_weather", {"city": "Oslo"}, '{"temp_c": 3, "sky": "rain"}')
_same("a list of things to do", "TodoWrite", {"todos": [{"content": "Fix it", "status": "in_progress"}]}, "Todos have been modified successfully.")
_same("an empty command", "execute_bash", {"command": ""}, "[no output]")
_same("a message that was sent", "send_message", {"to": "ops", "text": "Is the build green?"}, "sent")
_same("a test that stays red", "Bash", {"command": "go test ./..."}, "--- FAIL: TestPush (0.00s)\n    push_test.go:41: got 3, want 4\nFAIL\nexit status 1")


# ---- blocks of calls

def _block(n, length, **how):
    return stream(times(length, lambda i: (f"tool_{word(i % n, 4)}", {"step": word(i % n)}, f"state {word(i % n + 100)}")), **how)


for _n in (2, 3, 4, 5, 8, 10):
    LOOPS[f"a block of {_n} calls"] = lambda n=_n: _block(n, 6 * n)


@loop
def an_edit_and_its_undoing():
    edits = ["x = 1", "x = 2"]
    return stream(times(16, lambda i: ("Edit", {"file_path": "a.py", "old_string": edits[i % 2], "new_string": edits[(i + 1) % 2]},
                                       f"The file a.py has been updated.\n{edits[(i + 1) % 2]}")))


@loop
def a_test_and_a_look_in_turn():
    return stream(times(20, lambda i: [("Bash", {"command": "npm test"}, "1 failing\n  AssertionError: expected 3 to equal 4"),
                                       ("Read", {"file_path": "test/a.js"}, SOURCE)][i % 2]))


@loop
def parallel_calls_again_and_again():
    return stream(times(8, lambda i: [("Read", {"file_path": f"{word(k)}.py"}, SOURCE + word(k)) for k in range(3)]))


# ---- results that only seem to change

def _results(name, make, tool="Bash", arguments=None, n=12, **how):
    LOOPS[name] = lambda: stream(times(n, lambda i: (tool, arguments or {"command": "./check"}, make(i))), **how)


_results("a clock in the result", lambda i: f"[12:{i:02d}:07] worker idle, queue empty")
_results("a date in the result", lambda i: f"2026-01-{i + 1:02d}T08:00:00Z no new mail")
_results("a duration in the result", lambda i: GREEN.format(f"0.{i + 11}"), arguments={"command": "pytest -q"})
_results("microseconds", lambda i: f"PING 10.0.0.1: 1 packet, {101 + 37 * i}µs, no answer", n=12)
_results("a go test with a duration", lambda i: f"ok  \texample.com/app\t0.{i + 10}3s")
_results("a process id in the result", lambda i: f"server already running (pid {4100 + 7 * i})")
_results("a session id in the result", lambda i: f"session {uuid(i)} attached, no output")
_results("a request id in an error", lambda i: json.dumps({"error": {"type": "overloaded", "request_id": "req_" + uuid(i).replace("-", "")}}), tool="http_get", arguments={"url": "https://api.example/v1/items"})
_results("a commit hash in the result", lambda i: f"HEAD is now at {drawn(i) & 0xfffffff | 0xa0000000:07x} wip\nnothing to commit")
_results("a temporary folder", lambda i: f"wrote /tmp/tmp.{drawn(i) & 0xffffffff:08x}a1/out.txt: empty")
_results("an epoch in the result", lambda i: json.dumps({"now": 1764000000 + 37 * i, "jobs": []}), tool="list_jobs", arguments={})
_results("a header with the date", lambda i: f"HTTP/1.1 503 Service Unavailable\nDate: Tue, 24 Nov 2026 10:00:{i:02d} GMT\nRetry-After: 1", tool="fetch", arguments={"url": "https://x.example"})
_results("an address in a trace", lambda i: f"<Task object at 0x7f{drawn(i) & 0xffffffffff:010x}> is pending", tool="python", arguments={"code": "print(task)"})
_results("seconds since the start", lambda i: f"still nothing after {3 * i + 2} seconds", n=12)


# ---- arguments that only seem to change

def _arguments(name, tool, make, result, n=20, **how):
    LOOPS[name] = lambda: stream(times(n, lambda i: (tool, make(i), result)), **how)


_arguments("a nonce in the arguments", "fetch", lambda i: {"url": "https://x.example/feed", "nonce": uuid(i)}, "<rss></rss>")
_arguments("a time in the arguments", "list_events", lambda i: {"at": f"2026-01-31T10:{i:02d}:00Z"}, '{"events": []}')
_arguments("a counter in the arguments", "ask", lambda i: {"question": "Is it done?", "attempt": i + 1}, "no", n=20)
_arguments("a page number that is not heeded", "search", lambda i: {"query": "sqlite wal", "page": i + 1}, "10 results:\n" + "\n".join(f"{word(i)} {word(i + 9)} {word(i + 90)}" for i in range(40)))
_arguments("a limit that grows", "read_log", lambda i: {"limit": 100 * (i + 1)}, "2 lines\nstarted\nready")
_arguments("a random port", "Bash", lambda i: {"command": f"curl -s localhost:{20000 + 13 * i}/health"}, "curl: (7) Failed to connect", n=20)
_arguments("queries in other words", "web_search", lambda i: {"query": " ".join(word(i + k, 6) for k in range(4))}, "Results for your search\n" + "\n".join(f"- {word(k)} {word(k + 7)}: {word(k + 70, 12)} {word(k + 300, 12)}" for k in range(20)))
_arguments("one page by many addresses", "open_page", lambda i: {"url": f"https://docs.example/{word(i)}"}, "Log in to continue. " + "This page is for members. " * 20)


# ---- failures

def _failures(name, make, n=10, **how):
    LOOPS[name] = lambda: stream(times(n, make), **how)


_failures("an edit whose text is not there", lambda i: ("Edit", {"old_string": word(i), "new_string": "x"}, "Error: String to replace not found in file."))
_failures("a tool that times out", lambda i: ("query", {"sql": f"SELECT {word(i)} FROM t"}, "Error: timeout after 30000 ms"))
_failures("no permission", lambda i: ("Bash", {"command": f"cat secrets/{word(i)}"}, "Error: permission denied"))
_failures("a quota that is used up", lambda i: ("generate_image", {"prompt": word(i, 20)}, '{"error":{"code":429,"message":"quota exceeded"}}'))
_failures("arguments that are refused", lambda i: ("create_issue", {"title": word(i), "labels": [word(i)]}, "Error: invalid arguments: labels must be numbers"))
_failures("a server that is down", lambda i: ("http_get", {"url": f"https://api.example/{word(i)}"}, "Error: connect ECONNREFUSED 10.0.0.7:443"))
_failures("a patch that does not apply", lambda i: ("apply_patch", {"patch": f"--- {word(i)}\n+++ {word(i)}"}, "Error: patch does not apply"))
_failures("the same failure at another time", lambda i: ("deploy", {"env": word(i)}, f"Error: locked by another deploy since 10:{i:02d}:00"))


@loop
def one_request_tried_again():
    talk = Talk()
    talk.call(("Bash", {"command": "make"}, "ok"))
    for _ in range(10):
        talk.push(json.dumps({"error": {"type": "overloaded_error", "message": "Overloaded"}}))
    return talk.exchanges


@loop
def one_request_without_an_answer():
    talk = Talk()
    talk.call(("Bash", {"command": "make"}, "ok"))
    for _ in range(10):
        talk.push(None)
    return talk.exchanges


# ---- without calls

@loop
def a_monologue():
    talk = Talk()
    for _ in range(9):
        talk.say("I will now continue with the next step.", "Please continue.")
    return talk.end()


@loop
def a_monologue_with_numbers():
    talk = Talk()
    for i in range(16):
        talk.say(f"Attempt {i + 1}: let me try that again.", "Continue.")
    return talk.end()


@loop
def an_agent_of_thought_and_action():
    talk = Talk(system="Answer with Thought, Action and Action Input.")
    for i in range(10):
        talk.say(f"Thought: {word(i, 14)} {word(i + 40)} perhaps.\nAction: search\nAction Input: capital of Atlantis",
                 "Observation: no results")
    return talk.end()


@loop
def an_agent_of_XML():
    talk = Talk(system="Call tools as XML.")
    for i in range(10):
        talk.say(f"{word(i, 12)} {word(i + 3)}.\n<read_file>\n<path>src/main.ts</path>\n</read_file>", "[read_file] Result:\n" + SOURCE)
    return talk.end()


@loop
def two_answers_in_turn():
    talk = Talk()
    for i in range(16):
        talk.say(["Shall I use plan A?", "Shall I use plan B instead?"][i % 2], "Your choice.")
    return talk.end()


# ---- what hides a loop

@loop
def a_reminder_after_each_call():
    talk = Talk()
    for i in range(10):
        talk.call(("get_order", {"id": 7}, "closed"))
        talk.remind(f"<system-reminder>{word(i, 10)}: keep the list of things to do.</system-reminder>")
    return talk.end()


@loop
def a_user_who_says_go_on():
    talk = Talk()
    for i in range(5):
        talk.call(("Bash", {"command": "make test"}, "1 failed"))
        talk.call(("Bash", {"command": "make lint"}, "clean"))
        talk.say(f"I ran the tests. {word(i)}", "go on")
    return talk.end()


@loop
def a_window_of_the_last_messages():
    talk = Talk()
    for i in range(14):
        talk.call(("Bash", {"command": "make test"}, "1 failed"))
        talk.messages = talk.head[:1] + talk.messages[-8:]
    return talk.end()


@loop
def a_window_that_begins_with_the_user():
    talk = Talk()
    for i in range(14):
        talk.call(("Bash", {"command": "make test"}, "1 failed"))
        talk.messages = talk.head + talk.messages[-6:]
    return talk.end()


@loop
def a_summary_every_three_calls():
    talk = Talk()
    for i in range(15):
        talk.call(("Bash", {"command": "make test"}, "1 failed"))
        if i % 3 == 2:
            talk.messages = talk.head[:2] + [{"role": "assistant", "content": f"So far: {word(i, 20)}"}] + talk.messages[-2:]
    return talk.end()


@loop
def a_history_that_is_cut():
    talk = Talk()
    for i in range(16):
        talk.call(("Read", {"file_path": "a.c"}, SOURCE))
        if i % 5 == 4:
            talk.messages = talk.head + talk.messages[-4:]
    return talk.end()


def interleaved(talks):
    """What several conversations of one agent push, in the order of time."""
    each = [iter(talk) for talk in talks]
    out, at = [], 0
    while each:
        for one in list(each):
            row = next(one, None)
            if row is None:
                each.remove(one)
            else:
                at += 700
                out.append((row[0], row[1], at))
    return out


@loop
def a_loop_among_other_conversations():
    busy = [stream(times(15, lambda i, k=k: ("Read", {"file_path": word(100 * k + i)}, word(200 * k + i, 30))),
                   user=f"Task {word(k)}", seed=f"b{k}") for k in range(5)]
    return interleaved([stream(times(15, lambda i: ("get_order", {"id": 7}, "closed")), user="Mine", seed="m")] + busy)


@loop
def a_sub_agent_that_loops():
    main = Talk(seed="main")
    for i in range(8):
        main.call(("Task", {"prompt": word(i)}, f"report {word(i, 20)}"))
    sub = stream(times(12, lambda i: ("WebFetch", {"url": "https://x.example"}, "404 page not found")), user="Find the page.", seed="sub")
    return interleaved([main.end(), sub])


@loop
def a_loop_after_a_resume():
    talk = Talk()
    for i in range(20):
        talk.call(("Read", {"file_path": word(i)}, word(i + 70, 40)))
    talk.exchanges = []
    for i in range(10):
        talk.call(("Bash", {"command": "make"}, "make: Nothing to be done for 'all'."))
    return talk.end()


@loop
def thoughts_that_differ_beside_one_call():
    talk = Talk()
    for i in range(9):
        talk.call(("Grep", {"pattern": "deprecated"}, "No matches found"), text=f"{word(i, 20)} {word(i + 50, 12)}")
    return talk.end()


@loop
def a_loop_with_a_seldom_other_call():
    return stream(times(24, lambda i: ("Bash", {"command": "date"}, "Tue") if i % 8 == 7 else ("Bash", {"command": "make"}, "1 failed")))


@loop
def a_poll_without_an_end():
    return stream(times(30, lambda i: ("job_status", {"id": 9}, "queued")), gap=15000)


@loop
def a_wait_of_zero_seconds():
    return stream(times(20, lambda i: ("wait", {"ms": 0}, "nothing new")), gap=2000)


# ---- work

def _works(name, calls, **how):
    INNOCENT[name] = lambda: stream(calls() if callable(calls) else calls, **how)


def edit(i):
    return ("Edit", {"file_path": f"src/{word(i)}.py", "old_string": word(i + 20), "new_string": word(i + 40, 12)}, "The file has been updated successfully.")


def pairs(n, first, second):
    return [call for i in range(n) for call in (first(i), second(i))]


_works("edits with the same green test between", lambda: pairs(12, edit, lambda i: ("Bash", {"command": "make test"}, "All tests passed")))
_works("edits with a red test between", lambda: pairs(10, edit, lambda i: ("Bash", {"command": "go test ./..."}, f"--- FAIL: TestPush (0.0{i}s)\nFAIL")))
_works("a clean tree after each commit", lambda: [c for i in range(10) for c in (edit(i), ("Bash", {"command": f"git commit -am {word(i)}"}, f"[main {drawn(i) & 0xfffffff:07x}] {word(i)}\n 1 file changed"), ("Bash", {"command": "git status"}, "nothing to commit, working tree clean"))])
_works("page down with new content", lambda: times(14, lambda i: ("browser_scroll", {"direction": "down"}, f"- paragraph: {word(i, 20)} {word(i + 99, 20)}")))
_works("a log that grows", lambda: times(14, lambda i: ("Bash", {"command": "tail -3 app.log"}, f"10:00:{i:02d} handled {word(i, 10)}\n10:00:{i + 1:02d} handled {word(i + 1, 10)}")))
_works("items by number", lambda: times(12, lambda i: ("get_item", {"id": i}, json.dumps({"id": i, "name": word(i), "price": i * 7 + 3}))))
_works("a poll with per cent", lambda: times(20, lambda i: ("job", {"id": 4}, f"running: {5 * i} % done")))
_works("fewer failures each time", lambda: times(12, lambda i: ("Bash", {"command": "npm test"}, f"{12 - i} failing, {30 + i} passing")))
_works("files written one by one", lambda: times(15, lambda i: ("write_file", {"path": f"out/{word(i)}.txt", "content": word(i, 30)}, "ok")))
_works("rows inserted one by one", lambda: times(12, lambda i: ("insert", {"table": "t", "id": i + 1, "name": word(i)}, "1 row inserted")))
_works("rows deleted by number", lambda: times(10, lambda i: ("delete_row", {"id": i + 1}, "deleted")))
_works("messages to many people", lambda: times(12, lambda i: ("send_email", {"to": f"{word(i)}@example.com", "body": "The meeting is at noon."}, "sent")))
_works("notes that are saved", lambda: times(12, lambda i: ("memory_save", {"text": word(i, 25)}, "saved")))
_works("searches without a match", lambda: times(10, lambda i: ("Grep", {"pattern": word(i)}, "No matches found")))
_works("many files read", lambda: times(25, lambda i: ("Read", {"file_path": f"{word(i)}.go"}, SOURCE + word(i))))
_works("a build that is waited for", lambda: times(10, lambda i: ("ci_status", {"run": 5}, "in_progress")) + [("ci_status", {"run": 5}, "success")], gap=20000)
_works("a long test that runs", lambda: times(11, lambda i: ("write_stdin", {"session": 1, "chars": ""}, f"Process running with session ID 51234\nWall time: {10 * i}.0 seconds\nOutput:\n")), gap=12000)
_works("lint three times", lambda: [edit(1), *times(3, lambda i: ("Bash", {"command": "make lint"}, "clean"))])
_works("a flaky test tried three times", lambda: [*times(3, lambda i: ("Bash", {"command": "pytest tests/test_net.py"}, "1 failed: timeout")), edit(3), *times(3, lambda i: ("Bash", {"command": "pytest tests/test_net.py"}, "1 failed: timeout")), edit(4)])
_works("two files edited in turn", lambda: times(14, lambda i: ("Edit", {"file_path": "ab"[i % 2], "old_string": word(i), "new_string": word(i + 1)}, "updated")))
_works("a list of things to do that goes on", lambda: times(10, lambda i: ("TodoWrite", {"todos": [{"content": word(k), "status": "completed" if k < i else "pending"} for k in range(10)]}, "Todos have been modified successfully.")))
_works("a folder after each write", lambda: pairs(8, lambda i: ("write_file", {"path": word(i), "content": word(i)}, "ok"), lambda i: ("ls", {}, "\n".join(word(k) for k in range(i + 1)))))
_works("five failures, then a way out", lambda: [*times(5, lambda i: ("Bash", {"command": f"brew {word(i)}"}, "Error: command not found")), edit(1), edit(2)])
_works("three tries, then an answer", lambda: [*times(3, lambda i: ("fetch", {"url": "https://x.example"}, "Error: 503")), ("fetch", {"url": "https://x.example"}, "<html>hello</html>"), edit(9)])
_works("red, green, refactor", lambda: [c for i in range(8) for c in (("write_file", {"path": f"test_{word(i)}.py", "content": word(i, 20)}, "ok"), ("Bash", {"command": "pytest -q"}, f"1 failed: test_{word(i)}"), edit(i), ("Bash", {"command": "pytest -q"}, GREEN.format(f"0.1{i}")))])
_works("the state of containers", lambda: times(8, lambda i: ("Bash", {"command": "docker ps"}, f"CONTAINER   STATUS\nweb   Up {i + 1} minutes\n" + "db   Up\n" * (i % 4) + word(i))))
_works("a game against the clock", lambda: times(16, lambda i: ("move", {"to": f"{'abcdefgh'[i % 8]}{i % 7 + 1}"}, f"board {word(i, 30)}")))
_works("a number that is guessed", lambda: times(10, lambda i: ("guess", {"n": 2 ** i}, "too small" if i < 9 else "yes")))
_works("clicks and screenshots", lambda: pairs(9, lambda i: ("click", {"x": 10 * i, "y": 7 * i}, "clicked"), lambda i: ("screenshot", {}, f"[image {word(i, 20)}]")))
_works("names translated", lambda: times(12, lambda i: ("translate", {"text": word(i)}, word(i + 500))))
_works("a balance that is read between orders", lambda: pairs(8, lambda i: ("order", {"sku": word(i), "n": i + 1}, f"order {word(i, 5)} accepted"), lambda i: ("balance", {}, f"{1000 - 17 * i} EUR")))
_works("the same check after each deploy", lambda: pairs(8, lambda i: ("deploy", {"service": word(i)}, f"deployed {word(i)}"), lambda i: ("health", {}, '{"ok":true}')))
_works("a format after each edit", lambda: [c for i in range(9) for c in (edit(i), ("Bash", {"command": "gofmt -w ."}, ""), ("Bash", {"command": "git diff --stat"}, f" {i + 1} files changed"))])
_works("a sleep between looks", lambda: pairs(5, lambda i: ("sleep", {"s": 30}, "slept"), lambda i: ("Bash", {"command": "kubectl get pods"}, "web 0/1 Pending")), gap=16000)


@innocent
def a_user_who_asks_again():
    talk = Talk(user="What is in stock?", gap=20000)
    for i in range(5):
        talk.call(("stock", {}, "3 chairs")).say("3 chairs.", "And now?")
    return talk.end()


@innocent
def many_users_with_one_question():
    return interleaved([stream([("hours", {}, "9 to 5")], user=f"When do you open? {word(i)}", seed=f"u{i}") for i in range(12)])


@innocent
def sub_agents_that_read_one_file():
    return interleaved([stream([("Read", {"file_path": "README.md"}, SOURCE), edit(i)], user=f"Part {word(i)}", seed=f"s{i}") for i in range(8)])


@innocent
def a_heartbeat():
    talk = Talk(user="heartbeat", gap=60000)
    for i in range(8):
        talk.say("HEARTBEAT_OK", "heartbeat")
    return talk.end()


@innocent
def a_history_with_old_polls():
    talk = Talk()
    for i in range(12):
        talk.call(("job", {"id": 1}, "running"))
    talk.exchanges = []
    for i in range(6):
        talk.call(edit(i))
    return talk.end()


@innocent
def a_request_tried_three_times():
    talk = Talk()
    for _ in range(3):
        talk.push(json.dumps({"error": {"type": "overloaded_error"}}))
    for i in range(4):
        talk.call(edit(i))
    return talk.end()


@innocent
def small_talk():
    talk = Talk(user="Hello!")
    for text, reply in (("Hi! How can I help?", "Who are you?"), ("An assistant.", "Hello!"), ("Hi! How can I help?", "thanks"),
                        ("You are welcome.", "thanks"), ("You are welcome.", "bye")):
        talk.say(text, reply)
    return talk.end()


@innocent
def a_job_that_runs_every_hour():
    """It begins with the same words, and finds the same."""
    out = []
    for i in range(20):
        talk = Talk(user="Look for new mail.", seed=f"j{i}")
        talk.at = i * 3600000
        out += talk.call(("mail", {}, "no new mail")).end()
    return out


@innocent
def a_request_that_is_sent_every_minute():
    out = []
    for i in range(20):
        talk = Talk(user="Are you there?")
        talk.at = i * 60000
        out += talk.say("Yes.").exchanges
    return out


@innocent
def a_build_that_takes_a_quarter_of_an_hour():
    return stream(times(22, lambda i: ("ci_status", {"run": 5}, "in_progress")) + [("ci_status", {"run": 5}, "success")], gap=40000)


# ---- after the outputs of recorded sessions: Codex, Claude Code, a travel agency, browsers

def codex_output(i, output, code="exited with code 0", tokens=63):
    return (f"Chunk ID: {drawn(i) & 0xffffff:06x}\nWall time: {i % 3}.{1000 + 37 * i:04d} seconds\n"
            f"Process {code}\nOriginal token count: {tokens}\nOutput:\n{output}")


def rg(i, pattern, output, code="exited with code 0"):
    return ("exec_command", {"cmd": f"rg -n {pattern} src", "workdir": "/work", "yield_time_ms": 1000},
            codex_output(i, output, code))


def flights(day, origin="IAH"):
    return ("search_direct_flight", {"origin": origin, "destination": "SEA", "date": f"2024-05-{day:02d}"}, "[]")


def rebook(i):
    return ("update_reservation_flights", {"reservation_id": "HXDUBJ", "flights": [{"flight_number": f"HAT{word(i, 3)}"}]},
            "Error: gift card balance is not enough")


USER_RECORD = '{"name": {"first_name": "Mia", "last_name": "Li"}, "address": {"city": "Austin", "zip": "78750"}}'

LOOPS["a search whose output has another chunk id"] = lambda: stream(times(9, lambda i: rg(i, "usage", "1:# git-sync\n11:## Why")))
LOOPS["a process that prints nothing"] = lambda: stream(times(25, lambda i: (
    "write_stdin", {"session_id": 74366, "chars": "", "yield_time_ms": 1000},
    codex_output(i, "", "running with session ID 74366", 0))), gap=1300)
LOOPS["a gift card with too little on it"] = lambda: stream(times(9, rebook))
LOOPS["three days without a flight, again and again"] = lambda: stream(times(21, lambda i: flights(11 + i % 3)))
LOOPS["a record of a user"] = lambda: stream(times(7, lambda i: ("get_user_details", {"user_id": "mia_li_3668"}, USER_RECORD)))
LOOPS["a plan that stays as it is"] = lambda: stream(times(8, lambda i: (
    "update_plan", {"plan": [{"step": "Review the sections", "status": "in_progress"}]}, "Plan updated")))
LOOPS["a diff and a build in turn"] = lambda: stream(times(16, lambda i: [
    ("Bash", {"command": "git diff main.go"}, "diff --git a/main.go b/main.go\nindex 4a0a172..c4b018c 100644\n+version"),
    ("Bash", {"command": "go build ./..."}, "main.go:14:2: undefined: versioninfo")][i % 2]))
LOOPS["a search of tools"] = lambda: stream(times(7, lambda i: ("search_tools", {"queries": ["refunds"]}, "[]")))
LOOPS["an agent that is started again"] = lambda: stream(times(7, lambda i: (
    "Agent", {"description": "Explore the repository", "prompt": "Find the entry point."}, "I could not find it.")))
LOOPS["a question that is declined"] = lambda: stream(times(6, lambda i: (
    "AskUserQuestion", {"questions": [{"question": "Which option?"}]}, "User declined to answer questions")), gap=4000)
LOOPS["a skill that only starts"] = lambda: stream(times(7, lambda i: ("Skill", {"skill": "ship"}, "Launching skill: ship")))
LOOPS["an edit that fails in other words, and a look"] = lambda: stream(times(20, lambda i: [
    ("Read", {"file_path": "main.go"}, SOURCE),
    ("Edit", {"file_path": "main.go", "old_string": word(i, 20), "new_string": "x"},
     f"<tool_use_error>String to replace not found in file.\nString: {word(i, 20)}</tool_use_error>")][i % 2]))


@loop
def a_browser_that_scrolls_at_its_end():
    talk = Talk(system="Give Thought and Action.")
    for i in range(12):
        talk.say(f"Thought: {word(i, 14)} {word(i + 9)} below.\nAction: Scroll [WINDOW]; down", [
            {"type": "text", "text": "Observation: please analyze the attached screenshot."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
    return talk.end()


def gemini_talk(calls, keep=None):
    """A conversation without ids; keep: of how many contents the window is, behind the first."""
    first, contents, out = {"role": "user", "parts": [{"text": "Find the order."}]}, [], []
    for i, (tool, arguments, result) in enumerate(calls):
        said = {"role": "model", "parts": [{"functionCall": {"name": tool, "args": arguments}}]}
        sent = contents if keep is None else contents[-keep:]
        out.append((json.dumps({"contents": [first, *sent]}), json.dumps({"candidates": [{"content": said}]}), 1500 * i))
        contents = contents + [said, {"role": "user", "parts": [
            {"functionResponse": {"name": tool, "response": {"result": result}}}]}]
    return out


LOOPS["a window without ids"] = lambda: gemini_talk(times(20, lambda i: ("get_order", {"id": 7}, "closed")), 6)
INNOCENT["work in a window without ids"] = lambda: gemini_talk(
    times(20, lambda i: ("get_order", {"id": i}, word(i))), 6)
INNOCENT["polls in a window without ids"] = lambda: gemini_talk(
    times(20, lambda i: ("progress", {}, f"{5 * i} %")), 6)


@loop
def a_summary_in_place_of_all_every_three_calls():
    talk = Talk()
    for i in range(18):
        talk.call(("Bash", {"command": "make test"}, "1 failed"))
        if i % 3 == 2:
            talk.messages = talk.head[:1] + [{"role": "user", "content": f"Summary: {word(i, 20)}. Go on."}]
    return talk.end()


@innocent
def work_with_summaries_in_place_of_all():
    talk = Talk()
    for i in range(18):
        talk.call(edit(i))
        if i % 3 == 2:
            talk.call(("Bash", {"command": "make test"}, "All tests passed"))
            talk.messages = talk.head[:1] + [{"role": "user", "content": f"Summary: {word(i, 20)}. Go on."}]
    return talk.end()


@innocent
def users_who_ask_the_same_at_the_same_time():
    def asks(k):
        talk = Talk(user=f"I am {word(k)}. May I change my order?", seed=f"u{k}")
        talk.call(("get_policy", {}, "Orders may be changed within a day."))
        return talk.call(("get_policy", {}, "Orders may be changed within a day.")).end()
    rows = [asks(k) for k in range(12)]
    found = [rows[0][0], rows[0][1]]
    for k in range(1, 12):  # each begins while the call of the one before waits for its result
        found += [rows[k][0], rows[k - 1][2], rows[k][1]]
    return [(asked, said, 700 * i) for i, (asked, said, _) in enumerate(found)]


@innocent
def jobs_that_end_with_a_call():
    found = []
    for i in range(12):
        talk = Talk(user=f"Report {word(i)}", seed=f"j{i}")
        talk.call(("get_state", {}, "all is well")).call(("get_state", {}, "all is well"))
        found += talk.call(("finish", {"state": "well"}, "")).exchanges
    return [(asked, said, 1500 * i) for i, (asked, said, _) in enumerate(found)]


_works("ten days without a flight", lambda: times(10, lambda i: flights(11 + i)) + times(10, lambda i: flights(11 + i, "HOU")))
_works("thoughts between calls", lambda: pairs(
    12, lambda i: ("think", {"thought": f"{word(i, 20)} {word(i + 9)}"}, ""),
    lambda i: ("get_reservation_details", {"reservation_id": word(i, 6).upper()}, json.dumps({"user": word(i)}))))
_works("sums", lambda: times(14, lambda i: ("calculate", {"expression": f"{282 + 7 * i} - 130 + {i}"}, f"{152 + 8 * i}.0")))
_works("sums that come to nothing", lambda: times(7, lambda i: ("calculate", {"expression": f"{100 + i} - {100 + i}"}, "0.0")))
_works("plans that go on", lambda: [c for i in range(9) for c in (
    ("update_plan", {"plan": [{"step": word(k), "status": "completed" if k < i else "pending"} for k in range(9)]}, "Plan updated"),
    rg(i, word(i), f"{i}:{word(i)}"))])
_works("a file read by pieces", lambda: times(16, lambda i: (
    "Read", {"file_path": "main.go", "offset": 60 * i, "limit": 60}, "\n".join(f"{60 * i + k}\t{word(i + 7 * k)}" for k in range(30)))))
_works("searches that end with code 1", lambda: times(7, lambda i: rg(i, word(i), "", "exited with code 1")) + [edit(1)])
_works("files that are created", lambda: times(12, lambda i: (
    "Write", {"file_path": f"/home/ann/docs/{word(i)}.md", "content": word(i, 40)}, f"File created successfully at: /home/ann/docs/{word(i)}.md")))
_works("four cards, and the fourth pays", lambda: times(3, lambda i: (
    "book_reservation", {"payment_id": f"gift_card_{word(i, 7)}"}, f"Error: not enough balance in payment method gift_card_{word(i, 7)}"))
    + [("book_reservation", {"payment_id": "credit_card_x"}, '{"reservation_id": "HATHAV"}')])
_works("a push that prints how far it is", lambda: times(15, lambda i: (
    "write_stdin", {"session_id": 31508, "chars": ""}, codex_output(i, f"Writing objects: {6 * i} % ({60 * i}/1000)", "running with session ID 31508"))),
    gap=3000)
_works("questions with answers", lambda: times(6, lambda i: (
    "AskUserQuestion", {"questions": [{"question": word(i, 20)}]}, f'User has answered your questions: "{word(i, 20)}"="Option B"')), gap=30000)


@innocent
def a_browser_that_goes_from_page_to_page():
    talk = Talk(system="Give Thought and Action.")
    for i in range(14):
        talk.say(f"Thought: {word(i, 14)}.\nAction: {'Click' if i % 2 else 'Type'} [{3 * i + 2}]; {word(i)}", [
            {"type": "text", "text": "Observation: please analyze the attached screenshot."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{word(i, 30)}"}}])
    return talk.end()
