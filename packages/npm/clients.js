// clients.js: makes clients tell a recorder what they send, by their transport: a fetch, a dispatcher
// of undici, or a client that has a fetch, as those of OpenAI and Anthropic, or that of Google.
//
// Each chunk of a response is passed on when it arrives, and kept, and the call ends when the response
// has ended. A response that is cut off or cancelled is recorded as far as it was read; a request
// without a response, with NULL. meta has method, url without its query, status, duration_ms and
// error. Headers are not recorded, since they have keys.
//
// Invariant: the caller gets the same bytes, status, headers and errors as without the recorder; or
// AgentStoppedError, and nothing is sent.
//
// Limits: a response is kept in memory until it has ended. A request whose body is a stream is
// recorded when the stream has been sent; from a dispatcher of undici, its row has NULL.
import { brotliDecompressSync, constants, gunzipSync, inflateSync } from "node:zlib";

const originals = new WeakMap(); // a function that records: the one in whose place it is

/** Makes a client use a function that begins a call. Returns the client, or a new fetch. */
export function watch(client, begin) {
  const wrapped = (owner, name, wrap) => {
    const kept = owner[name];
    const original = originals.get(kept) ?? kept;
    const recording = wrap(original);
    originals.set(recording, original);
    return (owner[name] = recording);
  };
  if (typeof client === "function") return wrapped({ client }, "client", (fetch) => recordingFetch(fetch, begin));
  if (typeof client?.apiClient?.apiCall === "function") {
    wrapped(client.apiClient, "apiCall", (apiCall) => recordingFetch(apiCall.bind(client.apiClient), begin)); // Google's
  } else if (typeof client?.fetch === "function") {
    const fetch = wrapped(client, "fetch", (fetch) => recordingFetch(fetch, begin));
    if (client._options) client._options.fetch = fetch; // of what withOptions() makes
  } else if (typeof client?.dispatch === "function") {
    wrapped(client, "dispatch", (dispatch) => recordingDispatch(dispatch.bind(client), begin));
  } else {
    throw new TypeError(
      "ValidationError: client must be a fetch, a dispatcher of undici, or a client with a fetch, as those of OpenAI, " +
        `Anthropic and Google, got ${client === null ? "null" : typeof client}`,
    );
  }
  return client;
}

function known(method, address) {
  try {
    const url = new URL(address);
    return { method, url: `${url.protocol}//${url.host}${url.pathname}` };
  } catch {
    return { method };
  }
}

/** What meta says of an error, or of none. */
export function failure(error) {
  if (error === undefined) return {};
  const told = `${error?.name ?? "Error"}: ${error?.message ?? error}`; // without query and user of a URL
  return { error: told.replace(/\?[^\s'")>]+/g, "").replace(/\/\/[^/\s]*@/g, "//").slice(0, 1000) };
}

// ------------------------------------------------------------------ fetch

function recordingFetch(fetch, begin) {
  return async function recordingFetch(input, init, ...rest) {
    const call = begin(known(init?.method ?? input?.method ?? "GET", input?.url ?? input), input, init);
    await call.ask();
    const request = await watchRequest(input, init);
    const written = request.sent?.then((bytes) => call.begin(bytes)); // a stream
    if (written === undefined) call.begin(request.body);
    const end = (...result) => (written === undefined ? call.end(...result) : written.then(() => call.end(...result)));

    let response;
    try {
      response = await fetch(request.input, request.init, ...rest);
    } catch (error) {
      end(null, failure(error));
      throw error;
    }
    const { status, body } = response;
    if (body === null) {
      end(null, { status });
      return response;
    }
    const chunks = [];
    const keep = (chunk) => void chunks.push(chunk.slice()); // the reader owns its chunk
    return withBody(response, watchStream(body, keep, (error) => end(chunks, { status, ...failure(error) })));
  };
}

/** The body of a request, and what to pass to fetch in its place; of a stream, sent is a promise of
 * the body. */
async function watchRequest(input, init) {
  const body = init?.body ?? null;
  if (body instanceof ReadableStream) {
    const [passed, read] = body.tee();
    const sent = new Response(read).arrayBuffer().then((bytes) => new Uint8Array(bytes), () => null);
    return { input, init: { ...init, body: passed }, sent };
  }
  if (body === null && !(input instanceof Request && input.body !== null)) return { input, init, body };
  if (typeof body === "string") return { input, init, body };
  try {
    const copy = body === null ? input.clone() : new Response(body);
    return { input, init, body: new Uint8Array(await copy.arrayBuffer()) };
  } catch {
    return { input, init, body: null }; // fetch fails with the same error
  }
}

/** A stream of the same chunks, which calls keep(chunk) for each, and end(error) once. */
export function watchStream(body, keep, end) {
  const reader = body.getReader();
  let hasEnded = false;
  const finish = (error) => {
    if (!hasEnded) end(error);
    hasEnded = true;
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
          if (!hasEnded) keep(value);
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

// ------------------------------------------------------------------ undici

/** What a dispatcher of undici does, with the handlers of its versions 5 to 7. */
function recordingDispatch(dispatch, begin) {
  return (options, handler) => {
    const call = begin(known(options.method, `${options.origin ?? ""}${options.path ?? ""}`), options);
    const { body } = options;
    call.ask().then(() => {
      const isKept = typeof body === "string" || body instanceof Uint8Array;
      call.begin(isKept ? body : null);
      dispatch(options, watchHandler(handler, call));
    }).catch((error) => {
      if (handler.onResponseError) handler.onResponseError(null, error);
      else handler.onError(error);
    });
    return true;
  };
}

function watchHandler(handler, call) {
  const chunks = [];
  let status;
  let encoding;
  const start = (code, headers) => {
    status = code;
    encoding = headerOf(headers, "content-encoding");
  };
  const end = (error) => {
    const length = chunks.length;
    call?.end(length > 0 || status !== undefined ? decoded(chunks, encoding) : null, { status, ...failure(error) });
    call = undefined;
  };
  const keep = (chunk) => void chunks.push(Buffer.from(chunk));
  const told = {
    onHeaders: start,
    onData: keep,
    onComplete: () => end(),
    onError: end,
    onResponseStart: (_, code, headers) => start(code, headers),
    onResponseData: (_, chunk) => keep(chunk),
    onResponseEnd: () => end(),
    onResponseError: (_, error) => end(error),
  };
  return new Proxy(handler, {
    get(target, name) {
      const method = target[name];
      if (typeof method !== "function") return method;
      return (...values) => {
        told[name]?.(...values);
        return method.apply(target, values);
      };
    },
  });
}

function headerOf(headers, name) {
  if (!Array.isArray(headers)) return headers?.[name];
  const at = headers.findIndex((value, i) => i % 2 === 0 && String(value).toLowerCase() === name);
  return at < 0 ? undefined : String(headers[at + 1]);
}

/** The body without its encoding, as fetch gives it. */
function decoded(chunks, encoding) {
  const raw = Buffer.concat(chunks);
  const decode = { gzip: gunzipSync, "x-gzip": gunzipSync, deflate: inflateSync, br: brotliDecompressSync }[encoding];
  const options = { finishFlush: encoding === "br" ? constants.BROTLI_OPERATION_FLUSH : constants.Z_SYNC_FLUSH };
  try {
    return decode === undefined ? raw : decode(raw, options); // also of what was cut off
  } catch {
    return raw;
  }
}
