// The tables of the catalog: what may be asked, all of it public.

import { make } from "./dom.js";

export function tables(box, words, insert) {
  box.replaceChildren(...words.tables.map((table, i) => {
    const unit = table.kind === "private" ? `protects each ${table.unit}` : table.kind;
    return make("details", { class: "table", open: i < 4 },
      make("summary", {}, make("b", {}, table.name), make("span", { class: "muted small" }, unit)),
      make("ul", {}, table.columns.map((column) => make("li", {},
        make("button", { type: "button", onclick: () => insert(column.name) }, column.name,
          make("span", { class: "muted small" }, column.type)),
        make("p", { class: "muted small about" }, column.about)))));
  }));
}
