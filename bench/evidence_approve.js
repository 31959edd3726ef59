// evidence_approve.js FILE SECURE_DELETE [MODULE]: approves a recording and
// prints the seconds. In two plain tables, the way a program does it, with
// JSON.parse and JSON.stringify; with MODULE loaded, a buffer named rec by its
// own function.
const Database = require("better-sqlite3");

const keep = {
  cdp_semantic: (m) => ({ role: m.role, name: m.name }),
  cdp_power: (m) => ({
    text: m.text?.slice(0, 100),
    label: m.label,
    placeholder: m.placeholder,
  }),
  vision_ocr: (m) => ({ targetText: m.targetText }),
  coordinates: (m) => ({ x: m.x, y: m.y }),
  evidence_scoring: (m) => ({ endpoint: m.endpoint }),
};

function strategy(s) {
  const out = { type: s.type, confidence: s.confidence };
  if (s.selector) out.selector = s.selector;
  if (s.metadata && keep[s.type]) out.metadata = keep[s.type](s.metadata);
  return out;
}

function approve(action) {
  action.fallbackChain.strategies = action.fallbackChain.strategies.map(strategy);
  if (action.visionData) {
    const { ocrText, confidence } = action.visionData;
    action.visionData = { ocrText, confidence };
  }
  if (action.mouseData) {
    const { endpoint } = action.mouseData;
    const trail = [{ ...endpoint, timestamp: action.timestamp }];
    action.mouseData = { trail, endpoint, duration: 0 };
  }
  delete action.networkData;
  return action;
}

function approveTables(db) {
  const put = db.prepare("UPDATE a SET action = ? WHERE rid = ?");
  for (const row of db.prepare("SELECT rid, action FROM a").all()) {
    put.run(JSON.stringify(approve(JSON.parse(row.action))), row.rid);
  }
  db.prepare("DELETE FROM s").run();
}

const [, , file, secure, library] = process.argv;
const db = new Database(file);
db.pragma("journal_mode = WAL");
db.pragma("synchronous = NORMAL");
db.pragma(`secure_delete = ${secure}`);
if (library) db.loadExtension(library);
const start = process.hrtime.bigint();
if (library) db.prepare("SELECT evidence_prune_for_approval('rec')").get();
else db.transaction(approveTables)(db);
console.log(Number(process.hrtime.bigint() - start) / 1e9);
