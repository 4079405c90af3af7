/** Text as base64. */
exports.encode = (text) => new Buffer(text).toString("base64");
