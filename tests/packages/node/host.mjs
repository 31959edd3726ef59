// host.mjs: a connection with the module, of better-sqlite3 or, if HOST says so, of
// node:sqlite; and a server on loopback that answers as the HTTP API of a model.
import { once } from "node:events";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { load, open as openFlight } from "sqlite-blackbox";

const builtIn = process.env.HOST === "node:sqlite";
const host = builtIn ? await import("node:sqlite") : await import("better-sqlite3");

/** A connection without the module. */
export function bare(path) {
  return builtIn ? new host.DatabaseSync(path, { allowExtension: true }) : new host.default(path);
}

export function open(path = ":memory:") {
  return load(bare(path));
}

export const driver = builtIn ? "node:sqlite" : "better-sqlite3";
const folder = mkdtempSync(join(tmpdir(), "flight-"));
const flights = [];
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** The path of a new file. */
export function newPath() {
  return join(folder, `${flights.length}-${Math.random()}.db`);
}

/** A flight recorder of a new file, or of one that is there. */
export function flight(path = newPath(), options = {}) {
  flights.push(openFlight(path, { driver, ...options }));
  return Object.assign(flights.at(-1), { path });
}

/** Ends the workers of all flight recorders. */
export async function land() {
  for (const db of flights) await db.recorder.close(0);
}

/** The rows of a SELECT, as arrays of values. */
export function rows(db, sql, ...values) {
  return db.prepare(sql).all(...values).map((row) => Object.values(row));
}

/** An answer of EVENTS, of which step() lets the next one go. */
export function stepped() {
  let next;
  return {
    step: () => next(),
    async send(_, response) {
      for (const event of EVENTS) {
        response.write(event);
        await new Promise((resolve) => (next = resolve));
      }
      response.end();
    },
  };
}

export const EVENTS = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];

/** A server whose answer to a path is a function (request body, response). */
export async function serve(answers) {
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const answer = answers[new URL(request.url, "http://x").pathname.slice(1)];
    if (answer) answer(body, response);
    else response.writeHead(404).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: (path) => `http://127.0.0.1:${server.address().port}/${path}`,
    close: () => (server.closeAllConnections(), server.close()),
  };
}
