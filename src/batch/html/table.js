(function () {
  "use strict";
  var table = document.getElementById("jobs");
  if (!table) { return; }
  var body = table.tBodies[0];
  var rows = Array.prototype.slice.call(body.rows);
  var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
  var search = document.getElementById("search");
  var state = document.getElementById("state");
  var shown = document.getElementById("shown");
  function filter() {
    var words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var wanted = state.value;
    var count = 0;
    rows.forEach(function (row, at) {
      var fits = (!wanted || row.getAttribute("data-s") === wanted) &&
        words.every(function (word) { return texts[at].indexOf(word) >= 0; });
      row.hidden = !fits;
      if (fits) { count += 1; }
    });
    shown.textContent = count + " of " + rows.length + " shown";
  }
  function sort(column, head) {
    var down = head.getAttribute("aria-sort") === "ascending";
    var keyed = Array.prototype.slice.call(body.rows).map(function (row) {
      var text = row.cells[column].textContent.trim();
      var number = text === "" ? NaN : Number(text);
      return { row: row, text: text, number: number };
    });
    keyed.sort(function (a, b) {
      var order = isNaN(a.number) || isNaN(b.number) ? a.text.localeCompare(b.text) : a.number - b.number;
      return down ? -order : order;
    });
    var heads = table.tHead.rows[0].cells;
    for (var at = 0; at < heads.length; at += 1) { heads[at].removeAttribute("aria-sort"); }
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    keyed.forEach(function (entry) { body.appendChild(entry.row); });
  }
  Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
    head.querySelector("button").addEventListener("click", function () { sort(column, head); });
  });
  search.addEventListener("input", filter);
  state.addEventListener("change", filter);
  filter();
})();
