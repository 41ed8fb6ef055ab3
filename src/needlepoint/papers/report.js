// a click on a column's head sorts its table by it, a second click the other way round
document.querySelectorAll("th").forEach(function (head) {
  head.tabIndex = 0;
  function sort() {
    var body = head.closest("table").tBodies[0], column = head.cellIndex;
    var down = head.getAttribute("aria-sort") === "ascending";
    function key(row) { var cell = row.cells[column]; return cell.dataset.v === undefined ? cell.textContent : cell.dataset.v; }
    var rows = Array.from(body.rows).sort(function (a, b) {
      var x = key(a), y = key(b), p = parseFloat(x), q = parseFloat(y);
      var order = isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q;
      return down ? -order : order;
    });
    head.parentNode.querySelectorAll("th").forEach(function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.forEach(function (row) { body.appendChild(row); });
  }
  head.addEventListener("click", sort);
  head.addEventListener("keydown", function (event) { if (event.key === "Enter") sort(); });
});
