// The types of the loader for CommonJS.
import blackbox = require("sqlite-blackbox");

const path: string = blackbox.getLoadablePath();
const db: { loadExtension(path: string): void; name: string } = blackbox.load({ loadExtension() {}, name: path });
void db;
