// Budgets: what is left, as a bar and in words.

import { find, make } from "./dom.js";

export function gauge(box, budget) {
  find(".words", box).textContent = `ε ${budget.remaining} of ${budget.total} left`;
  find(".fill", box).style.width = `${Math.max(0, Math.min(100, 100 * budget.part))}%`;
  box.classList.toggle("low", budget.part < 0.15);
  box.setAttribute("aria-valuemax", budget.total);
  box.setAttribute("aria-valuenow", budget.remaining);
  box.setAttribute("aria-valuetext", `epsilon ${budget.remaining} of ${budget.total} left`);
  box.title = "The largest epsilon that one more request may cost";
  box.hidden = false;
}

function card(name, budget, facts) {
  const box = make("div", { class: "gauge", role: "meter", "aria-label": name, "aria-valuemin": "0" },
    make("span", { class: "words" }), make("span", { class: "track" }, make("span", { class: "fill" })));
  gauge(box, budget);
  return make("article", { class: "card budget" }, make("h2", {}, name), box, make("p", { class: "muted small" }, facts));
}

export function budgets(box, { whole, budgets: inner }) {
  const requests = (count) => `${count} request${count === 1 ? "" : "s"}`;
  box.replaceChildren(
    card("The whole catalog", whole, `${requests(whole.requests)}${whole.delta === "0" ? "" : `, delta ${whole.delta}`}`),
    ...inner.map((each) => card(each.kind === "analyst" ? each.name : `Table ${each.name}`, each,
      requests(each.requests) + (each.last ? `, last on ${each.last.slice(0, 10)}` : ""))));
}
