// fetch.js: records each exchange with a model's HTTP API into a ring.
//
//   const client = new OpenAI({ fetch: recordFetch(db, { agent: "support" }) });
//
// Each chunk of a response is passed on when it arrives, and kept. The exchange is
// pushed when its response has ended, before the reader sees the end. A response that
// is cut off or cancelled is recorded as far as it was read; a request without a
// response, with NULL. The time of a row is that of its request. Headers are not
// recorded, since they have keys.
//
// Before a request is sent it is asked whether the agent is stopped (stop.js). Then nothing is
// sent, and the caller gets AgentStoppedError. With onStop "record" the request is sent, and
// recorded as what the agent did after its stop.
//
// Invariants: the caller gets the same bytes, status, headers and errors as without
// the recorder. An error of recording goes to onError, and never to the caller. Nothing waits
// for a lock: exchanges stay in memory until it is gone, and are pushed in their order. So do
// those that end while the host reads from an iterator of better-sqlite3.
//
// Limits: a response is kept in memory until it has ended. One that nobody reads or
// cancels, such as when the process dies, is not recorded. While the file is locked, the
// 1,000 newest exchanges are kept.
import { randomUUID } from "node:crypto";
import { isBusy, now, quoted, told, warn, withoutWaiting } from "./database.js";
import { throwIfStopped } from "./stop.js";
export { AgentStoppedError } from "./stop.js";

const WAITING = 1000; // exchanges at most
const AGAIN_MS = 20;

/** A fetch that records. */
export function recordFetch(
  db, { agent, ring = "ring", fetch = globalThis.fetch, onError = warn, onStop = "throw" },
) {
  if (onStop !== "throw" && onStop !== "record") {
    throw new RangeError(`ValidationError: onStop must be throw or record, got ${onStop}`);
  }
  const insert = db.prepare(
    `INSERT INTO ${quoted(ring)}(agent_id, event_id, request_body, response_body, timestamp)` +
      " VALUES(?, ?, ?, ?, ?)",
  );
  const write = writer(db, insert, onError);

  return async function recordingFetch(input, init) {
    const started = now();
    let who; // undefined if there is no telling
    told(onError, NOT_RECORDED, () => (who = typeof agent === "function" ? agent(input, init) : agent));
    if (onStop === "throw" && who !== undefined) throwIfStopped(db, who, { ring, onError });
    const request = watchRequest(input, init);
    const record = (response) => {
      const push = () => {
        if (who !== undefined) write([who, randomUUID(), kept(request.body), kept(response), started]);
      };
      if (request.ready) request.ready.then(push);
      else push();
    };

    let response;
    try {
      response = await fetch(request.input, request.init);
    } catch (error) {
      record(null);
      throw error;
    }
    if (response.body === null) {
      record(null);
      return response;
    }
    return withBody(response, watchBody(response.body, record));
  };
}

const NOT_RECORDED = "an exchange was not recorded";

/** A function that writes rows in their order, and those again that met a lock. */
function writer(db, insert, onError) {
  const rows = [];
  let timer;
  const write = () => {
    timer = clearTimeout(timer);
    for (; rows.length > 0; rows.shift()) {
      let isLocked = false;
      told(onError, NOT_RECORDED, () => {
        try {
          withoutWaiting(db, () => insert.run(...rows[0]));
        } catch (error) {
          isLocked = isBusy(error);
          if (!isLocked || rows.length > WAITING) throw error;
        }
      });
      if (isLocked && rows.length <= WAITING) {
        timer = setTimeout(write, AGAIN_MS);
        return;
      }
    }
  };
  return (row) => {
    rows.push(row);
    if (timer === undefined || rows.length > WAITING) write();
  };
}

/** The body of a request, and what to pass to fetch in its place. A body that must be read
 * first is null until the promise ready is done, which then becomes undefined. */
function watchRequest(input, init) {
  const watched = { input, init, body: null, ready: undefined };
  const body = init?.body ?? null;
  if (typeof body === "string") {
    watched.body = body;
    return watched;
  }
  let copy;
  if (body instanceof ReadableStream) {
    const [sent, read] = body.tee();
    watched.init = { ...init, body: sent };
    copy = new Response(read);
  } else if (body !== null) {
    copy = new Response(body);
  } else if (input instanceof Request && input.body !== null) {
    copy = input.clone();
  }
  watched.ready = copy
    ?.arrayBuffer()
    .then((bytes) => (watched.body = new Uint8Array(bytes)))
    .catch(() => {}) // fetch fails with the same error
    .then(() => (watched.ready = undefined));
  return watched;
}

/** A stream of the same chunks, which calls end(chunks) once. */
function watchBody(body, end) {
  const reader = body.getReader();
  let chunks = [];
  const finish = () => {
    if (chunks !== null) end(chunks);
    chunks = null;
  };
  reader.closed.catch(finish); // it was cut off, and perhaps nobody reads on
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await reader.read();
        if (done) {
          finish();
          controller.close();
        } else {
          chunks?.push(value.slice());
          controller.enqueue(value);
        }
      },
      cancel(reason) {
        finish();
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}

function withBody(response, body) {
  const { url, redirected, type } = response;
  const fields = { url: { value: url }, redirected: { value: redirected }, type: { value: type } };
  return Object.defineProperties(new Response(body, response), fields);
}

/** What the ring stores: text, or a blob if the bytes are not UTF-8. A character that is cut
 * off at the end becomes U+FFFD. */
function kept(body) {
  if (body === null || typeof body === "string") return body;
  const bytes = Array.isArray(body) ? Buffer.concat(body) : body;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return bytes;
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}
