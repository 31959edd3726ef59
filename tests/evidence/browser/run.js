// run.js MODULE [CHROMIUM]: records a session by real events in Chromium into a
// database, approves it, exports it, and replays both exports in a fresh
// browser each. The page must end in the same state three times.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [, , module, chromium = "/usr/bin/chromium"] = process.argv;
const here = dirname(fileURLToPath(import.meta.url));
const load = createRequire(join(process.env.NODE_MODULES ?? here, "x.js"));
const puppeteer = load("puppeteer-core");
const replay = await import(load.resolve("@puppeteer/replay"));
const Database = load("better-sqlite3");

const read = (name) => readFileSync(join(here, name), "utf8");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const server = createServer((_, res) => {
  res.setHeader("content-type", "text/html");
  res.end(read("page.html"));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${server.address().port}/`;

// Runs act(page) in a browser of its own and returns the page's end state.
async function inBrowser(act) {
  const userDataDir = mkdtempSync(join(tmpdir(), "blackbox-"));
  const browser = await puppeteer.launch({
    executablePath: chromium, headless: true, userDataDir,
    defaultViewport: { width: 1000, height: 700 },
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
           "--disable-background-networking", "--disable-component-update",
           "--disable-sync"],
  });
  try {
    const page = (await browser.pages())[0] ?? (await browser.newPage());
    await act(page, browser);
    return await page.evaluate("endState()");
  } finally {
    await browser.close();
    rmSync(userDataDir, { recursive: true, force: true });
  }
}

// A person at the page. After each gesture its actions are in the database.
async function record(page, db) {
  const store = db.prepare("INSERT INTO rec(action) VALUES(?)");
  const shot = db.prepare("UPDATE rec SET screenshot = ? WHERE id = ?");
  const waiting = [];
  let stored = 0;
  await page.exposeFunction("capture", (action) => {
    store.run(JSON.stringify(action));
    waiting.push(action.id);
    stored++;
  });
  await page.evaluateOnNewDocument(read("recorder.js"));
  const step = async (gesture, actions = 1) => {
    const wanted = stored + actions;
    await gesture();
    for (let i = 0; stored < wanted && i < 250; i++) await pause(20);
    assert.equal(stored, wanted, `${gesture}: actions recorded`);
    const picture = await page.screenshot();
    while (waiting.length) shot.run(Buffer.from(picture), waiting.shift());
  };
  await step(() => page.goto(url));
  await step(() => page.click("#add"));
  await step(() => page.click("#add"));
  await step(() => page.click(".moving"));
  await step(() => page.click("#add"));
  await step(() => page.click("#double", { count: 2 }));
  await step(() => page.hover("#hover"));
  await step(async () => {
    await page.type("#name", "Ada \"L\" Ω");
    await page.click("h1");
  });
  await step(() => page.select("#size", "l"));
  await step(() => page.click("#gift"));
  await step(() => page.click("#news"));
  await step(() => page.click("#send"));
  await step(async () => {
    await page.click("#search");
    await page.keyboard.press("Enter");
  });
  await step(() => page.click("#note"));
  await step(() => page.click("h1"));
  await step(() => page.click("pierce/#inner"));
  await step(() => page.mouse.wheel({ deltaY: 700 }));
}

// The first of a step's selectors that the page knows.
async function find(page, step) {
  for (const selector of [step.selector, ...step.fallbacks]) {
    const found = await page.$(selector);
    if (found) return found;
  }
  throw new Error(`not found: ${JSON.stringify(step)}`);
}

// What a program makes of puppeteerSteps.
const run = {
  navigate: (page, step) => page.goto(step.value),
  click: async (page, step) => (await find(page, step)).click(),
  dblclick: async (page, step) => (await find(page, step)).click({ count: 2 }),
  hover: async (page, step) => (await find(page, step)).hover(),
  focus: async (page, step) => (await find(page, step)).focus(),
  blur: async (page, step) => (await find(page, step)).evaluate((el) => el.blur()),
  submit: async (page, step) => (await find(page, step)).evaluate((el) => el.requestSubmit()),
  type: async (page, step) => (await find(page, step)).type(step.value),
  select: async (page, step) => (await find(page, step)).select(step.value),
  check: async (page, step) => (await find(page, step)).click(),
  uncheck: async (page, step) => (await find(page, step)).click(),
  keydown: async (page, step) => (await find(page, step)).press(step.value),
  scroll: (page, step) => page.evaluate((v) => scrollTo(...v.split(",").map(Number)), step.value),
};

const folder = mkdtempSync(join(tmpdir(), "blackbox-"));
try {
  const db = new Database(join(folder, "session.db"));
  db.loadExtension(module);
  db.exec("CREATE VIRTUAL TABLE rec USING evidence_buffer");
  const select = (sql) => db.prepare(sql).pluck().get();

  const recorded = await inBrowser((page) => record(page, db));
  console.log("recorded", JSON.stringify(recorded));
  const kinds = db.prepare("SELECT DISTINCT action ->> 'eventType' FROM rec").pluck().all();
  assert.deepEqual(kinds.sort(), Object.keys(run).sort(), "every kind of event");
  assert.equal(select("SELECT count(screenshot) FROM rec"), 17);

  const done = JSON.parse(select("SELECT evidence_prune_for_approval('rec')"));
  console.log("approved", JSON.stringify(done));
  assert.equal(done.screenshotsRemoved, 17);
  assert.deepEqual(done.problems, []);
  assert.ok(done.afterSize < 250_000);

  const steps = JSON.parse(select("SELECT evidence_export_puppeteer('rec')")).puppeteerSteps;
  const played = await inBrowser(async (page) => {
    for (const step of steps) await run[step.action](page, step);
    await pause(300);
  });
  console.log("puppeteerSteps", JSON.stringify(played));
  assert.deepEqual(played, recorded);

  const flow = replay.parse(JSON.parse(select("SELECT evidence_export_replay('rec')")));
  const replayed = await inBrowser(async (page, browser) => {
    const extension = new replay.PuppeteerRunnerExtension(browser, page, { timeout: 10_000 });
    const runner = await replay.createRunner(flow, extension);
    assert.ok(await runner.run());
    await pause(300);
  });
  console.log("replay", JSON.stringify(replayed));
  assert.deepEqual(replayed, recorded);
  assert.deepEqual(db.prepare("SELECT * FROM blackbox_check").all(), []);
  db.close();
  console.log("the page ended in the same state three times");
} finally {
  rmSync(folder, { recursive: true, force: true });
  server.close();
}
