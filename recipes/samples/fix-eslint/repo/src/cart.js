/** The sum of what lies in the cart, in cents. */
exports.total = (items) => {
  var sum = 0;
  for (const item of items) sum += item.cents * item.count;
  return sum;
};

/** Whether nothing lies in the cart. */
exports.isEmpty = (items) => items.length == 0;
