const { test } = require("node:test");
const assert = require("node:assert");
const { encode } = require("../src/encode.js");

test("text is encoded", () => assert.equal(encode("a"), "YQ=="));
