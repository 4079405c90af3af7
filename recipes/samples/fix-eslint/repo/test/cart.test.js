const { test } = require("node:test");
const assert = require("node:assert");
const { total, isEmpty } = require("../src/cart.js");

test("the sum counts each piece", () => assert.equal(total([{ cents: 250, count: 2 }, { cents: 99, count: 1 }]), 599));
test("an empty cart is empty", () => assert.ok(isEmpty([]) && !isEmpty([{ cents: 1, count: 1 }])));
