// The server of the Model Context Protocol (packages/python/blackbox/mcp.py) with the client of
// the protocol's own SDK.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { flight, land } from "./host.mjs";

const packages = join(import.meta.dirname, "../../packages/python");
const skip = existsSync(join(import.meta.dirname, "node_modules/@modelcontextprotocol/sdk")) ? false
  : "npm install --prefix build/packages @modelcontextprotocol/sdk";

test("the SDK's client connects, lists the five tools and calls each", { skip }, async () => {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const db = flight();
  db.prepare("INSERT INTO ring(agent_id, event_id, request_body) VALUES (?, ?, ?)")
    .run("support", "e1", "Where is my parcel? sk-ant-api03-AAAAAAAAAAAAAAAAAAAA");
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioClientTransport({
    command: process.env.PYTHON ?? "/usr/bin/python3", args: ["-m", "blackbox.mcp", db.path],
    env: { PYTHONPATH: packages } }));
  assert.equal(client.getServerVersion().name, "blackbox");
  const { tools } = await client.listTools();
  assert.equal(tools.length, 5);
  const asked = { recent_exchanges: { agent: "support" }, search: { text: "parcel" }, report: { key: "support" } };
  for (const { name } of tools) {
    const { content, isError } = await client.callTool({ name, arguments: asked[name] ?? {} });
    assert.equal(isError, false, content[0].text);
    assert.doesNotMatch(content[0].text, /AAAAAA/);
    if (name in asked) assert.match(content[0].text, /Where is my parcel/);
  }
  const refused = await client.callTool({ name: "search", arguments: { text: "x", limit: 1e9 } });
  assert.equal(refused.isError, true);
  await assert.rejects(client.callTool({ name: "write", arguments: {} }), /no tool/);
  await client.close();
  await land();
});
