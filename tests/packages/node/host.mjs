// host.mjs: a connection with the module, of better-sqlite3 or, if HOST says so, of
// node:sqlite; and a server on loopback that answers as the HTTP API of a model.
import { once } from "node:events";
import { createServer } from "node:http";
import { load } from "sqlite-blackbox";

const builtIn = process.env.HOST === "node:sqlite";
const host = builtIn ? await import("node:sqlite") : await import("better-sqlite3");

/** A connection without the module. */
export function bare(path) {
  return builtIn ? new host.DatabaseSync(path, { allowExtension: true }) : new host.default(path);
}

export function open(path = ":memory:") {
  return load(bare(path));
}

/** The rows of a SELECT, as arrays of values. */
export function rows(db, sql, ...values) {
  return db.prepare(sql).all(...values).map((row) => Object.values(row));
}

export const EVENTS = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];

/** A server whose answer to a path is a function (request body, response). */
export async function serve(answers) {
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    answers[new URL(request.url, "http://x").pathname.slice(1)](body, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: (path) => `http://127.0.0.1:${server.address().port}/${path}`,
    close: () => (server.closeAllConnections(), server.close()),
  };
}
