// A stand-in for ESLint in this sample: knows `eqeqeq` and `no-var`, and obeys `eslint-disable-line`, which is all the sample needs.
const fs = require("node:fs");
const path = require("node:path");

const rules = {
  eqeqeq: [/[^=!]==[^=]/, "Expected '===' and instead saw '=='"],
  "no-var": [/^\s*var\s/, "Unexpected var, use let or const instead"],
};
let found = 0;
for (const name of fs.readdirSync("src").sort()) {
  const file = path.join("src", name);
  fs.readFileSync(file, "utf8").split("\n").forEach((line, index) => {
    for (const [rule, [pattern, message]] of Object.entries(rules)) {
      if (pattern.test(line) && !line.includes("eslint-disable-line")) {
        console.log(`${file}:${index + 1}:1: error ${message} ${rule}`);
        found += 1;
      }
    }
  });
}
process.exit(found ? 1 : 0);
