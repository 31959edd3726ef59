// run.js FOLDER [BROWSER]: opens the pages that pages.py wrote into FOLDER, from disk,
// and looks at what they show and do. Pictures of each are written beside them. The browser
// is Chromium, or Firefox, which cannot be told to print or to run without scripts.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { deflateRawSync, inflateRawSync } from "node:zlib";

const [, , folder, program = "/usr/bin/chromium"] = process.argv;
const isFirefox = /firefox/i.test(program);
const load = createRequire(join(process.env.NODE_MODULES ?? folder, "x.js"));
const puppeteer = load("puppeteer-core");
const axe = readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");
const pages = JSON.parse(readFileSync(join(folder, "pages.json"), "utf8"));

const userDataDir = mkdtempSync(join(tmpdir(), "blackbox-"));
const launch = (more) => puppeteer.launch({ executablePath: program, headless: true, ...more });
const firefox = (dark) => launch({  /* which has its colours when it starts */
  browser: "firefox", extraPrefsFirefox: { "layout.css.prefers-color-scheme.content-override": dark ? 0 : 1 } });
const light = isFirefox ? await firefox(false) : await launch({
  userDataDir,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const browsers = { light, dark: isFirefox ? await firefox(true) : light };

// What a page says that must not be said, and asks for that must not be asked for.
function watch(page, file) {
  const wrong = [];
  page.on("console", (m) => wrong.push(`${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => wrong.push(`error: ${e.message}`));
  page.on("request", (r) => {
    const own = r.url().split("#")[0] === pathToFileURL(file).href ||
      (file.includes("/site/") && r.url().startsWith(new URL(".", pathToFileURL(file)).href) && r.isNavigationRequest());
    if (!own && !/^(blob|data):/.test(r.url())) wrong.push(`request: ${r.url()}`);
  });
  return wrong;
}

const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 390, height: 844, isMobile: true, hasTouch: true };

// Opens a page and hands it to act(); nothing wrong may have happened when it ends.
async function open(name, act, { hash = "", size = WIDE, mode = "light", script = true } = {}) {
  if (isFirefox && !script) return undefined;
  const page = await browsers[mode].newPage();
  const file = join(folder, `${name}.html`);
  const wrong = watch(page, file);
  try {
    await page.setViewport(size);
    if (!isFirefox) {
      await page.setJavaScriptEnabled(script);
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: mode }]);
    }
    await page.evaluateOnNewDocument(() => {
      window.violations = [];
      addEventListener("securitypolicyviolation", (e) => window.violations.push(e.violatedDirective));
      window.copied = null;
      const clipboard = { writeText: async (text) => { window.copied = text; } };
      Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
    });
    await page.goto(pathToFileURL(file).href + hash);
    const result = await act(page);
    if (script) assert.deepEqual(await page.evaluate("window.violations"), [], `${name}: policy`);
    assert.deepEqual(wrong, [], `${name}: nothing is said, nothing is asked for`);
    return result;
  } finally {
    await page.close();
  }
}

const shown = (page) => page.waitForSelector(".item[data-done]");
const hits = (page) => page.$eval("#hits", (e) => e.title);
const text = (page, selector) => page.$eval(selector, (e) => e.textContent);
const current = (page) => page.$eval(".item.current", (e) => e.id);
const picture = (page, name) => page.screenshot({ path: join(folder, `${name}.png`) });

async function searchFor(page, what) {
  await page.keyboard.press("/");
  await page.keyboard.type(what);
  await page.waitForFunction(
    () => /^(none|[\d,]+ in [\d,]+)\s*$/.test(document.getElementById("hits").textContent), { timeout: 60_000 });
  return hits(page);
}

// Milliseconds until the first item is shown and the page answers to a key.
async function interactive(name) {
  return open(name, async (page) => {
    await shown(page);
    await page.keyboard.press("j");
    return page.evaluate(() => Math.round(performance.now()));
  });
}

async function noSeriousViolation(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => ["serious", "critical"].includes(v.impact));
  assert.deepEqual(serious.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`), [], `${name}: axe`);
}

const tests = {
  async "each kind opens from disk, without an error, a violation or a request"() {
    for (const { name, items } of pages) {
      await open(name, async (page) => {
        if (items) await shown(page);
        assert.ok(await page.$("header.case h1"), name);
        assert.equal(Boolean(await page.$(".app")), items > 0, name);
      });
    }
  },

  async "nothing serious is found by axe, by day and by night, and pictures are taken"() {
    for (const { name, items, picture: wanted } of pages) {
      if (!wanted) continue;
      for (const mode of ["light", "dark"]) {
        await open(name, async (page) => {
          if (items) await shown(page);
          await picture(page, `${name}-${mode}`);
          await noSeriousViolation(page, `${name}, ${mode}`);
          if (!items) return;
          await page.keyboard.press("j");
          await page.keyboard.press("j");
          await new Promise((done) => setTimeout(done, 300));
          await picture(page, `${name}-items-${mode}`);
          await noSeriousViolation(page, `${name}, items, ${mode}`);
        }, { mode });
      }
    }
  },

  async "a page is as wide as a telephone"() {
    for (const { name, items, picture: wanted } of pages) {
      if (!wanted) continue;
      await open(name, async (page) => {
        if (items) {
          await shown(page);
          await page.evaluate(() => document.querySelector(".app").scrollIntoView());
          await new Promise((done) => setTimeout(done, 200));
        }
        await picture(page, `${name}-390`);
        assert.ok(await page.evaluate("document.documentElement.scrollWidth") <= 390, `${name}: width`);
      }, { size: NARROW });
    }
  },

  async "the facts are readable without JavaScript, and what is left out is said"() {
    await open("kill_switch", async (page) => {
      await page.setJavaScriptEnabled(true);  /* for evaluate(); the page is loaded */
      const seen = await page.evaluate(() => document.body.innerText);
      for (const what of ["the same result", "no_progress", "Pins and holds", "Proof", "get_order"]) {
        assert.ok(seen.includes(what), what);
      }
      assert.ok(await page.evaluate(() => document.querySelectorAll("#items tbody tr").length >= 5));
    }, { script: false });
    await open("kill_switch", async (page) => {
      await page.setJavaScriptEnabled(true);
      assert.ok(await page.evaluate("document.documentElement.scrollWidth") <= 390, "width");
    }, { script: false, size: NARROW });
    await open("bodies", async (page) => {
      await shown(page);
      assert.equal(await text(page, "#i1 .body"), "The body is not in this page.");
      assert.match(await text(page, "#left-out"), /leave out 5 older items/);
    });
  },

  async "on paper stand the facts and the first lines"() {
    await open("kill_switch", async (page) => {
      await shown(page);
      await page.waitForFunction(() => document.querySelectorAll(".paper").length >= 99);
      await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
      if (isFirefox) return;
      await page.emulateMediaType("print");
      await picture(page, "kill_switch-print");
      const seen = await page.evaluate(() => document.body.innerText);
      assert.ok(seen.includes("the same result") && seen.includes("the order 1042 is not there"), seen);
      assert.equal(await page.$eval(".app", (e) => getComputedStyle(e).display), "none");
    });
  },

  async "only what is new in a request is open, and the head opens when asked"() {
    await open("kill_switch", async (page) => {
      await page.waitForSelector("#i4[data-done]");
      const own = await text(page, "#i4 .body");
      assert.ok(own.includes("step 4") && !own.includes("step 3"), own);
      assert.match(await text(page, "#i4 summary"), /earlier message/);
      await page.click("#i4 summary");
      await page.waitForSelector("#i4 .earlier");
      const all = await text(page, "#i4 .body");
      assert.ok(all.includes("step 3") && all.includes("step 2"), all);
    }, { hash: "#e4" });
  },

  async "a tool call stands beside its result"() {
    await open("kill_switch", async (page) => {
      await page.waitForSelector("#i48[data-done]");
      assert.match(await text(page, "#i48 .pair .side:first-child"), /get_order/);
      assert.match(await text(page, "#i48 .pair .result"), /the order 1042 is not there/);
    }, { hash: "#e48" });
  },

  async "the loop is marked, and the links of the verdict lead to it"() {
    await open("kill_switch", async (page) => {
      await shown(page);
      assert.ok(await page.$(".timeline circle.verdict"));
      const href = await page.$eval("#answer a", (a) => a.getAttribute("href"));
      await page.click("#answer a");
      const id = href.replace("#e", "i");
      await page.waitForSelector(`#${id}.current.verdict[data-done]`);
      assert.equal(await page.evaluate("location.hash"), href);
      assert.match(await text(page, `#${id} .badge.loop`), /^loop, 1 of /);
    });
  },

  async "the answer stands first, the page opens at the verdict, and keys lead to what is wrong"() {
    await open("kill_switch", async (page) => {
      await shown(page);
      const { y, lines } = await page.$eval("#answer", (e) => ({
        y: e.getBoundingClientRect().bottom, lines: [...e.querySelectorAll("dt")].map((dt) => dt.textContent) }));
      assert.ok(y < 900, `in the first window: ${y}`);
      assert.deepEqual(lines, ["What it did", "Why it was stopped", "When, and by whom", "What it cost", "What to do next"]);
      const first = await page.$eval("#answer a", (a) => a.getAttribute("href").slice(2));
      assert.equal(await text(page, ".list .current .number"), first);
      await page.keyboard.press("l");
      assert.equal(await current(page), `i${first}`);
      await page.keyboard.press("l");
      assert.equal(await current(page), `i${Number(first) + 1}`);
    });
    await open("errors", async (page) => {
      await shown(page);
      assert.match(await text(page, ".chip.errors"), /^Errors 4$/);
      await page.waitForFunction(() => [...document.querySelectorAll(".list .title")].some((e) => e.textContent.includes("+2")));
      const red = await page.$$eval(".list li.bad .title", (all) => all.map((e) => e.textContent));
      assert.deepEqual(red, ["Bash make test → exit 2", "Edit main.go +2 −1 → error: String to replace not found",
                             "ok → HTTP 503: overloaded", "error: Overloaded"]);
      await page.keyboard.press("e");
      assert.equal(await current(page), "i2");
      await page.keyboard.press("e");
      assert.equal(await current(page), "i3");
      await page.keyboard.down("Shift");
      await page.keyboard.press("E");
      await page.keyboard.up("Shift");
      assert.equal(await current(page), "i2");
      await page.click(".chip.errors");
      assert.equal(await page.$$eval(".list li", (all) => all.length), 4);
      await page.keyboard.press("m");
      assert.equal(await current(page), "i4");
    });
  },

  async "an edit is a diff, Markdown is elements with text, colours are classes, and Back works"() {
    await open("errors", async (page) => {
      await page.waitForSelector("#i3[data-done]");
      assert.deepEqual(await page.$$eval("#i3 .diff .more, #i3 .diff .less", (all) => all.map((e) => e.textContent.trim())),
                       ["-two", "+TWO", "+three"]);
      await page.evaluate(() => { location.hash = "#e4"; });
      await page.waitForSelector("#i4[data-done] strong");
      assert.equal(await text(page, "#i4 strong"), "bold");
      assert.equal(await text(page, "#i4 .heading"), "Title");
      assert.equal(await page.$("#i4 .body a"), null);
      assert.equal(await text(page, "#i4 .ansi1"), "red");
      await page.waitForFunction(() => document.querySelector("#i4 img.picture")?.naturalWidth === 8);
      await page.goBack();
      await page.waitForSelector("#i3.current");
      await page.$$eval(".chip", (all) => all.find((b) => b.textContent === "Files changed").click());
      await page.waitForSelector("dialog.files[open]");
      assert.match(await text(page, "dialog.files"), /1 file changed.*\/src\/main\.go \(1 edit\)/);
    }, { hash: "#e3" });
  },

  async "a link to an item opens the page there"() {
    await open("rollout", async (page) => {
      await page.waitForSelector("#i25.current[data-done]");
      const y = await page.$eval("#i25", (e) => e.getBoundingClientRect().top);
      assert.ok(y >= 0 && y < 400, `at ${y}`);
    }, { hash: "#e25" });
  },

  async "keys go from item to item, to the search, to the help, and back"() {
    await open("agent", async (page) => {
      await shown(page);
      for (const [key, where] of [["j", "i1"], ["j", "i2"], ["j", "i3"], ["k", "i2"]]) {
        await page.keyboard.press(key);
        assert.equal(await current(page), where, key);
      }
      await page.keyboard.press("Enter");
      await page.waitForSelector("#i2 .earlier");
      await page.keyboard.press("?");
      assert.ok(await page.$("dialog[open]"));
      await page.keyboard.press("Escape");
      assert.equal(await page.$("dialog[open]"), null);
    });
    await open("kill_switch", async (page) => {
      await shown(page);
      assert.equal(await searchFor(page, "step 7"), "1 match in 1 item");
      await page.keyboard.press("Enter");
      assert.equal(await current(page), "i7");
      await page.keyboard.press("Escape");
      assert.equal(await hits(page), "");
      assert.equal(await page.evaluate(() => document.activeElement.tagName), "BODY");
    });
  },

  async "the search counts what titles and bodies say, and marks it"() {
    await open("kill_switch", async (page) => {
      await shown(page);
      assert.equal(await searchFor(page, "is not there anywhere"), "0 matches in 0 items");
      await page.keyboard.press("Escape");
      assert.equal(await searchFor(page, "ORDER 1042 IS"), pages.find((p) => p.name === "kill_switch").matches);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => CSS.highlights.get("found")?.size > 0);
      assert.ok(await page.$$eval(".list li", (rows) => rows.length) < pages.find((p) => p.name === "kill_switch").items);
    });
  },

  async "an item is copied as JSON, and shown raw"() {
    await open("kill_switch", async (page) => {
      await page.waitForSelector("#i2[data-done]");
      await page.$$eval("#i2 .tiny", (all) => all.find((b) => b.textContent === "Copy JSON").click());
      await page.waitForFunction("window.copied");
      const copied = JSON.parse(await page.evaluate("window.copied"));
      assert.equal(copied.n, 2);
      assert.ok(copied.parts[0].body.messages.length >= 3);
      await page.$$eval("#i2 .tiny", (all) => all.find((b) => b.textContent === "Raw").click());
      await page.waitForSelector("#i2 .raw");
      assert.match(await text(page, "#i2 .raw"), /"tool_calls"/);
    }, { hash: "#e2" });
  },

  async "every wire format is a conversation"() {
    for (const { name, formats } of pages) {
      for (const [n, said] of Object.entries(formats ?? {})) {
        await open(name, async (page) => {
          await page.waitForSelector(`#i${n}[data-done]`);
          const body = await text(page, `#i${n} .body`);
          for (const what of said) assert.ok(body.includes(what), `${name} #${n} says ${what}: ${body}`);
          assert.equal(await page.$(`#i${n} .body .other`), null, `${name} #${n}: ${body}`);
        }, { hash: `#e${n}` });
      }
    }
  },

  async "recorded exchanges and conversations are read"() {
    for (const { name, items } of pages.filter((p) => p.name.startsWith("recorded-"))) {
      await open(name, async (page) => {
        for (let n = 1; n <= items; n += Math.ceil(items / 12)) {
          await page.evaluate((hash) => { location.hash = hash; }, `#e${n}`);
          await page.waitForSelector(`#i${n}[data-done]`);
          assert.doesNotMatch(await text(page, `#i${n} .body`), /cannot be (shown|inflated)/, `${name} #${n}`);
        }
      });
    }
  },

  async "screenshots stand in a film, actions beside their selectors"() {
    await open("evidence", async (page) => {
      await page.waitForSelector(".film .frame img");
      await page.waitForFunction(() => [...document.querySelectorAll("img.shot")].some((i) => i.naturalWidth > 0));
      assert.match(await text(page, ".strategies"), /Confidence/);
      await page.click(".film .frame:nth-child(3)");
      assert.equal(await current(page), "i3");
    });
  },

  async "a conversation has turns; a compaction, a fork and a rollback are said"() {
    await open("rollout", async (page) => {
      await shown(page);
      assert.match(await searchFor(page, "compacted summary"), /^[1-9]/);
      await page.keyboard.press("Enter");
      await page.waitForSelector(".edge.mark");
      assert.match(await text(page, ".edge.mark"), /Compacted/);
      assert.ok(await page.$(".edge.turn"));
    });
    await open("fork", async (page) => {
      await shown(page);
      for (const what of ["Forked from another conversation", "Rolled back"]) {
        await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
        await page.waitForFunction((t) => [...document.querySelectorAll(".edge.mark")].some((e) => e.textContent.includes(t)), {}, what);
      }
    });
  },

  async "a proof is verified, and a byte that was changed is found"() {
    const press = async (page) => {
      await page.click(".rest > summary");
      await page.click("#proof .verify");
      await page.waitForSelector("#proof p.verified, #proof p.altered");
      return text(page, "#proof [role=status]");
    };
    assert.match(await open("proof", press), /^[1-9]\d* verified, 0 redacted, 0 altered/);
    const source = readFileSync(join(folder, "proof.html"), "utf8");
    const changed = source.replace(/(id="b0">)([^<]*)/, (_, mark, block) => {
      const bytes = inflateRawSync(Buffer.from(block, "base64"));
      bytes[bytes.indexOf("order")] ^= 1;
      return mark + deflateRawSync(bytes).toString("base64");
    });
    assert.notEqual(changed, source);
    writeFileSync(join(folder, "altered.html"), changed);
    assert.match(await open("altered", press), /[1-9]\d* altered/);
    writeFileSync(join(folder, "altered.html"), source.replace(/("n":2,.*?"time":\d*)(\d)/, (_, a, b) => a + (9 - b)));
    assert.match(await open("altered", press), /, 1 altered.*#2/);
    assert.match(await open("masked", press), /[1-9]\d* redacted, 0 altered/);
    assert.match(await open("kill_switch", press), /^[1-9]\d* verified, 0 redacted, 0 altered/);
  },

  async "hostile text stays text"() {
    await open("hostile", async (page) => {
      await shown(page);
      for (let n = 1; n <= pages.find((p) => p.name === "hostile").items; n++) {
        await page.evaluate((hash) => { location.hash = hash; }, `#e${n}`);
        await page.waitForSelector(`#i${n}[data-done]`);
        assert.ok(!(await text(page, `#i${n} .body`)).includes("cannot be shown"), `item ${n}`);
        await page.$$eval(`#i${n} summary, #i${n} .more`, (all) => all.forEach((e) => e.click()));
      }
      const found = await page.evaluate(() => ({
        hacked: window.hacked ?? null,
        links: [...document.querySelectorAll("a")].filter((a) => !/^#e\d+$/.test(a.getAttribute("href"))).length,
        foreign: document.querySelectorAll("img:not(.picture):not(.shot), iframe, object, embed, form, base, link").length,
        scripts: [...document.scripts].filter((s) => !s.type).length,
        styled: document.querySelectorAll("[onerror], [onclick], [onload], [srcdoc]").length,
      }));
      assert.deepEqual(found, { hacked: null, links: 0, foreign: 0, scripts: 1, styled: 0 });
    });
    await open("hostile", async (page) => {
      await page.waitForSelector("#i1[data-done]");
      const body = await text(page, "#i1 .body");
      for (const what of ["</script><script>window.hacked=1</script>", "<img src=x onerror=", "javascript:window.hacked=1",
                          "‹U+202E›", "‹NUL›", "‹ESC›[31mred", "‹U+D800›", "hidden words",
                          "a‹U+00AD›b‹U+3164›c‹U+180E›d‹U+2800›e"]) {
        assert.ok(body.includes(what), `${what} in ${body.slice(0, 2000)}`);
      }
    }, { hash: "#e1" });
    await open("hostile", async (page) => {  /* a role may have the name of what every object has */
      await page.waitForSelector("#i8[data-done]");
      const body = await text(page, "#i8 .body");
      for (const role of ["constructor", "__proto__", "tostring"]) assert.ok(body.includes(`${role}said`), body);
      assert.ok(!body.includes("native code"));
      await page.click("#i6 .tools button:last-child");  /* what is too deep is copied as text */
      await page.waitForFunction(() => window.copied?.includes('"body": "{'));
    }, { hash: "#e8" });
  },

  async "a line of 10 MB is cut, and shown in steps"() {
    await open("hostile", async (page) => {
      await page.waitForSelector("#i2[data-done]");
      assert.ok((await text(page, "#i2")).length < 50_000);
      assert.match(await text(page, "#i2 .more"), /show 200 KB more of 10 MB/);
      await page.click("#i2 .more");
      assert.ok((await text(page, "#i2")).length > 200_000);
      await page.keyboard.press("j");
      assert.equal(await current(page), "i3");
    }, { hash: "#e2" });
  },

  async "the pages of a site lead to each other"() {
    await open("site/index", async (page) => {
      const follow = async (selector) => {
        await Promise.all([page.waitForNavigation(), page.click(selector)]);
        return text(page, "h1");
      };
      assert.equal(await text(page, "h1"), "Nothing is wrong in main");
      await noSeriousViolation(page, "site");
      assert.equal(await follow("#switches a"), "Kill switch case");
      await shown(page);
      assert.equal(await follow("header.case a"), "Nothing is wrong in main");
      assert.equal(await follow("#agents a"), "Agent support");
    });
  },

  async "50 exchanges are there in half a second, and 10,000 items in two"() {
    for (const [name, limit] of [["kill_switch", 500], ["large", 2000]]) {
      const times = [];
      for (let i = 0; i < 3; i++) times.push(await interactive(name));
      const best = Math.min(...times);
      const { items } = pages.find((p) => p.name === name);
      console.log(`  ${name}, ${items} items: interactive after ${best} ms (wanted: ${limit})`);
      assert.ok(best < 4 * limit, `${name}: ${times}`);  /* the machine may be busy */
    }
  },

  async "10,000 items scroll and are searched"() {
    await open("large", async (page) => {
      await shown(page);
      assert.ok(await page.$$eval(".item", (all) => all.length) < 60);
      await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight / 2));
      await page.waitForFunction(() => Number(document.querySelector(".item.current")?.id.slice(1)) > 3000);
      await page.waitForSelector(".item.current[data-done]");
      assert.ok(await page.$$eval(".item, .list li", (all) => all.length) < 120);
      const start = Date.now();
      assert.equal(await searchFor(page, "needle 7777"), "1 match in 1 item");
      console.log(`  a search of 10,000 items: ${Date.now() - start} ms with the keys (wanted: 500)`);
      assert.ok(Date.now() - start < 2000);
      await page.keyboard.press("Enter");
      assert.equal(await current(page), pages.find((p) => p.name === "large").needle);
    });
  },
};

let failed = 0;
const only = process.env.ONLY;
try {
  for (const [name, run] of Object.entries(tests)) {
    if (only && !name.includes(only)) continue;
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      failed++;
      console.log(`NOT OK ${name}\n${error.stack}`);
    }
  }
} finally {
  await light.close();
  if (isFirefox) await browsers.dark.close();
  rmSync(userDataDir, { recursive: true, force: true });
}
process.exitCode = failed ? 1 : 0;
