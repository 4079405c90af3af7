#!/usr/bin/env node
// Starts the program of the package for this platform, with the same words, streams, signals and exit code.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `overnight-runner-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/overnight`);
} catch {
  console.error(`overnight: there is no ${name}: the platform is not supported, or optional dependencies were left out at the installation`);
  process.exit(8);
}
const words = process.argv.slice(2);
if (typeof process.execve === "function") {
  // The program takes the place of this process; nothing is left to pass on.
  process.removeAllListeners("warning");
  process.on("warning", () => {});
  process.execve(program, [program, ...words]);
}
// A terminal sends a signal to this process and to the program, which then gets it twice and takes it as one.
const child = spawn(program, words, { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`overnight: ${error.message}`);
  process.exit(8);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
