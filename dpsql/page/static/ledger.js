// Entries of the ledger: an analyst's own, or everybody's for the curator.

import { get } from "./api.js";
import { make } from "./dom.js";

const ACTS = { created: "The ledger was created", policy: "The curator changed the budget", adopted: "The curator adopted the ledger" };

function when(at) {
  const found = new Date(at);
  return Number.isNaN(found.getTime()) ? at : found.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

function analyst(entry) {
  return entry.within.filter((each) => each.startsWith("analyst:")).map((each) => each.slice(8)).join(", ");
}

function line(entry, everybody, again) {
  const sql = entry.sql
    ? again
      ? make("button", { type: "button", class: "again", title: "Put it into the editor", onclick: () => again(entry.sql) }, entry.sql)
      : make("code", {}, entry.sql)
    : make("span", { class: "muted" }, ACTS[entry.kind] ?? entry.kind);
  const state = ["released", ""].includes(entry.state) ? "" : ` (${entry.state})`;
  return make("tr", { "data-text": `${analyst(entry)} ${entry.sql}`.toLowerCase() },
    make("td", { class: "number", title: entry.hash }, String(entry.seq)),
    make("td", { class: "when" }, when(entry.at)),
    everybody ? make("td", {}, analyst(entry)) : null,
    make("td", { class: "number" }, entry.epsilon),
    make("td", { class: "muted" }, entry.noise + state),
    make("td", { class: "text" }, sql));
}

export class Ledger {
  constructor(box, { everybody = false, again = null } = {}) {
    Object.assign(this, { box, everybody, again });
  }

  show({ entries, more }, path) {
    const titles = ["Entry", "Time", ...(this.everybody ? ["Analyst"] : []), "Epsilon", "Noise", "SQL"];
    this.body = make("tbody");
    this.path = path;
    const head = make("tr", {}, titles.map((each) => make("th", { scope: "col", class: ["Entry", "Epsilon"].includes(each) ? "number" : undefined }, each)));
    this.older = make("button", { type: "button", class: "quiet", onclick: () => this.grow() }, "Older");
    const empty = entries.length ? null : make("p", { class: "muted" }, "Nothing yet.");
    this.box.replaceChildren(...[make("div", { class: "scroll card", tabindex: "0", role: "region", "aria-label": "Entries of the ledger" },
      make("table", { class: "entries" }, make("thead", {}, head), this.body)), empty, this.older].filter(Boolean));
    this.add(entries, more);
  }

  add(entries, more) {
    this.body.append(...entries.map((each) => line(each, this.everybody, this.again)));
    this.last = entries.at(-1)?.seq;
    this.older.hidden = !more;
  }

  async grow() {
    const found = await get(`${this.path}?before=${this.last}`);
    this.add(found.entries, found.more);
  }

  filter(text) {
    for (const row of this.body?.rows ?? []) row.hidden = !row.dataset.text.includes(text.toLowerCase());
  }
}
