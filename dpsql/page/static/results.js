// Results: a table with the error of every number, a chart with whiskers, and a file of all of it.

import { base } from "./api.js";
import { chart, drawable } from "./chart.js";
import { make } from "./dom.js";
import { plain, spread, told } from "./numbers.js";

const FIRST = 100;

function cell(result, row, j, i) {
  const errors = result.stddev[i], value = row[i];
  if (value === null) return make("td", { class: "null" }, "NULL");
  if (errors === null) return make("td", { class: typeof value === "number" ? "number" : undefined }, plain(value));
  const error = errors[j];
  return make("td", { class: typeof value === "number" ? "number" : undefined, title: error === null ? plain(value) : `${value} ± ${error === "NaN" ? spread(error) : error}` },
    told(value, error), error === null ? null : make("span", { class: "pm" }, ` ± ${spread(error)}`));
}

function table(result) {
  const body = make("tbody");
  const more = make("button", { type: "button", class: "quiet" });
  let shown = 0;
  const grow = (count) => {
    const next = result.rows.slice(shown, shown + count);
    body.append(...next.map((row, k) => make("tr", {}, row.map((_, i) => cell(result, row, shown + k, i)))));
    shown += next.length;
    more.hidden = shown >= result.rows.length;
    more.textContent = `Show more: ${shown.toLocaleString("en")} of ${result.count.toLocaleString("en")} rows`;
  };
  more.addEventListener("click", () => grow(10 * FIRST));
  const numeric = (i) => result.columns[i].noisy || result.rows.some((row) => typeof row[i] === "number");
  const head = result.columns.map((each, i) => make("th", { scope: "col", class: numeric(i) ? "number" : undefined }, each.name));
  grow(FIRST);
  const cut = result.count > result.rows.length
    ? make("p", { class: "muted small" }, `The first ${result.rows.length.toLocaleString("en")} of ${result.count.toLocaleString("en")} rows; the file has all.`) : null;
  return make("div", { class: "sheet" },
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" },
      make("table", {}, make("thead", {}, make("tr", {}, head)), body)), more, cut);
}

function charts(result, columns) {
  const box = make("div");
  const show = (i) => box.replaceChildren(chart(result, i));
  show(columns[0]);
  const pick = make("select", { "aria-label": "Column", onchange: (event) => show(Number(event.target.value)) },
    columns.map((i) => make("option", { value: i }, result.columns[i].name)));
  const legend = make("p", { class: "muted small" }, "Whiskers are 95 % intervals of the noise.");
  return make("div", {}, columns.length > 1 ? make("label", { class: "pick" }, "Column ", pick) : null, box, legend);
}

// Two views of one result, one at a time, under tabs that arrow keys move between.
function tabs(views) {
  const names = Object.keys(views);
  const panel = make("div", { role: "tabpanel", class: "panel" });
  const buttons = names.map((name) => make("button", { type: "button", role: "tab", onclick: () => show(name) }, name));
  const show = (name) => {
    buttons.forEach((each, i) => {
      each.setAttribute("aria-selected", String(names[i] === name));
      each.tabIndex = names[i] === name ? 0 : -1;
    });
    panel.replaceChildren(views[name]());
  };
  const list = make("div", { role: "tablist", class: "tabs" }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = (buttons.indexOf(event.target) + step + buttons.length) % buttons.length;
    show(names[at]);
    buttons[at].focus();
  });
  show(names[0]);
  return [list, panel];
}

function card(result, number, alone) {
  const tags = [];
  if (result.cost !== null)
    tags.push(make("span", { class: result.free ? "tag free" : "tag" }, result.free ? "free" : result.cost));
  if (result.entry !== null)
    tags.push(make("span", { class: "tag plain", title: `receipt ${result.head}` }, `entry ${result.entry}`));
  if (result.biased) tags.push(make("span", { class: "tag plain" }, "of a model: no standard errors"));
  const notes = result.notes.length
    ? make("ul", { class: "notes" }, result.notes.map((each) => make("li", {}, each))) : null;
  if (!result.columns.length)
    return make("article", { class: "card result" }, make("p", { class: "said" }, result.message ?? ""), make("div", { class: "tags" }, tags), notes);
  const found = drawable(result);
  const views = { Table: () => table(result) };
  if (found.length && result.count <= result.rows.length) views.Chart = () => charts(result, found);
  const [list, panel] = tabs(views);
  const save = make("a", { class: "save", href: `${base}/api/results/${number}.csv`, download: "" }, "Save CSV");
  const text = result.sql.split(/\s+/).join(" ");
  return make("article", { class: "card result" },
    alone ? null : make("p", { class: "sql" }, text.length > 140 ? `${text.slice(0, 140)}…` : text),
    make("div", { class: "head" }, list, make("div", { class: "tags" }, tags), save), panel, notes);
}

export function results(found) {
  return found.map((each, i) => card(each, i + 1, found.length === 1));
}
