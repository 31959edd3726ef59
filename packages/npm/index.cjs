// Finds the module in the package of this platform, and loads it.
"use strict";

const SUFFIX = { linux: "so", darwin: "dylib" };

/** The path of the module for this platform. */
function getLoadablePath() {
  const { platform, arch } = process;
  const name = `sqlite-blackbox-${platform}-${arch}`;
  try {
    return require.resolve(`${name}/blackbox.${SUFFIX[platform]}`);
  } catch (cause) {
    throw new Error(
      `LoadError: there is no module for ${platform}-${arch}: the package ${name} is not installed; ` +
        "install it without --omit=optional, or build the module and call db.loadExtension(path)",
      { cause },
    );
  }
}

/** Loads the module into a connection, and returns the connection. */
function load(db) {
  db.loadExtension(getLoadablePath());
  return db;
}

/** Opens a file as a flight recorder: see recorder.js. */
function open(path, options) {
  return require("./recorder.js").open(path, options);
}

exports.getLoadablePath = getLoadablePath;
exports.load = load;
exports.open = open;
