// The loader, from ES modules and from CommonJS, and its error on a platform without a module.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { test } from "node:test";
import { getLoadablePath } from "sqlite-blackbox";
import { open, rows } from "./host.mjs";

const require = createRequire(import.meta.url);

test("the module is loaded, and works", () => {
  const db = open();
  assert.match(rows(db, "SELECT blackbox_install()")[0][0], /^main: core, payload/);
  assert.deepEqual(rows(db, "SELECT * FROM blackbox_check"), []);
});

test("CommonJS has the same loader", () => {
  const loader = require("sqlite-blackbox");
  assert.equal(loader.getLoadablePath(), getLoadablePath());
  assert.match(getLoadablePath(), /sqlite-blackbox-[a-z0-9]+-[a-z0-9]+.blackbox\.(so|dylib)$/);
});

test("load returns the connection", () => {
  const { load } = require("sqlite-blackbox");
  const db = { loadExtension(path) { this.path = path; } };
  assert.equal(load(db), db);
  assert.equal(db.path, getLoadablePath());
});

test("a platform without a module is named in the error", () => {
  const script = `
    Object.defineProperty(process, "arch", { value: "vax" });
    try { require("sqlite-blackbox").getLoadablePath(); } catch (e) { console.log(e.message); }`;
  const told = execFileSync(process.execPath, ["-e", script], { encoding: "utf8", cwd: import.meta.dirname });
  assert.match(told, /^LoadError: there is no module for \w+-vax: the package sqlite-blackbox-\w+-vax is not/);
});
