"use strict";
// Tables: sorting by a click or a key on a heading, filtering, saving what is shown.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column], text = cell.dataset.v ?? cell.textContent.replaceAll(",", "");
    return text === "" || Number.isNaN(Number(text)) ? null : Number(text);
  };
  const compare = (column, numeric, down) => (a, b) => {
    if (!numeric) return (down ? -1 : 1) * a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", {numeric: true});
    const x = value(a, column), y = value(b, column);
    if (x === null || y === null) return (x === null) - (y === null);  // without a number: last, both ways
    return down ? y - x : x - y;
  };
  const sort = (table, heading) => {
    const down = heading.getAttribute("aria-sort") === "ascending", column = heading.cellIndex;
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0], numeric = heading.classList.contains("number");
    body.append(...[...body.rows].sort(compare(column, numeric, down)));
  };
  for (const table of document.querySelectorAll("table.sortable"))
    for (const heading of table.tHead.rows[0].cells) heading.firstElementChild.addEventListener("click", () => sort(table, heading));

  const filter = (input) => {
    const table = document.getElementById("table-" + input.dataset.table);
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    document.querySelector(`.shown[data-table=${input.dataset.table}]`).textContent = `${shown} of ${table.tBodies[0].rows.length} lines`;
  };
  for (const input of document.querySelectorAll(".filter")) input.addEventListener("input", () => filter(input));

  const records = (table) => {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const numeric = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("number"));
    const lines = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    return [names, lines.map((row) => [...row.cells].map((cell, i) => (numeric[i] ? value(row, i) : null) ?? (cell.textContent === "\u2013" ? null : cell.textContent)))];
  };
  // A text that begins like a formula gets a quote before it, so that a spreadsheet does not run it.
  const quoted = (item) => item === null ? "" : typeof item === "number" ? String(item) : '"' + (/^[=+\-@]/.test(item) ? "'" + item : item).replaceAll('"', '""') + '"';
  const saved = (table, form) => {
    const [names, lines] = records(table);
    if (form === "json") return JSON.stringify(lines.map((line) => Object.fromEntries(names.map((name, i) => [name, line[i]]))), null, 1) + "\n";
    return [names, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
  };
  for (const button of document.querySelectorAll(".save")) button.addEventListener("click", () => {
    const text = saved(document.getElementById("table-" + button.dataset.table), button.dataset.form);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text]));
    link.download = `${button.dataset.table}.${button.dataset.form}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
