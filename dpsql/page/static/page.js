// The page: signing in, its three views, and how they work together.

import { Failure, get, post } from "./api.js";
import { budgets, gauge } from "./budget.js";
import { find, make, seen } from "./dom.js";
import { Editor } from "./editor.js";
import { Forecast } from "./forecast.js";
import { Ledger } from "./ledger.js";
import { results } from "./results.js";
import { tables } from "./tables.js";

const VIEWS = ["ask", "history", "curator"];
const COLOURS = ["auto", "light", "dark"];
let me = null, running = null;

const editor = new Editor(find("#editor"), { changed: () => forecast.changed(), run: () => run() });
const forecast = new Forecast({
  text: () => editor.text,
  point: (start, end) => editor.point(start, end),
});
const own = new Ledger(find("#history .ledger"), { again });
const all = new Ledger(find("#curator .ledger"), { everybody: true });

function again(text) {
  editor.text = text;
  location.hash = "#ask";
}

function complain(box, error) {
  if (error.name === "AbortError" || !me) return;
  const told = error instanceof Failure ? error.told : { message: `the page has a defect: ${error.message}` };
  const lines = [make("p", { class: "wrong" }, told.message)];
  if (told.detail) lines.push(make("pre", {}, told.detail));
  if (told.hint) lines.push(make("p", { class: "muted" }, told.hint));
  if (told.code) lines.push(make("p", { class: "muted small" }, told.code));
  box.replaceChildren(make("article", { class: "card result", role: "alert" }, lines));
}

// Signing in and out.

async function begin(who) {
  me = who;
  find("#user").textContent = seen(me.user);
  choose(me.catalog, me.catalogs);
  document.title = seen(`dpsql · ${me.catalog}`);
  find("#to-ask").hidden = find("#to-history").hidden = !me.asks;
  find("#to-curator").hidden = !me.curator;
  find("#whose").textContent = me.analyst
    ? "Your own requests, latest first. What you ask again is free."
    : "This catalog declares no analysts: these are the requests of all who use it.";
  find("#bar").hidden = false;
  show();
  if (!me.asks) return;
  try {
    await Promise.all([learn(), weigh()]);
  } catch (error) {
    complain(find("#results"), error);
  }
}

function choose(here, all) {
  const box = find("#catalogs"), others = all.length > 1;
  find("#catalog").textContent = others ? "" : seen(here);
  box.hidden = !others;
  box.replaceChildren(...all.map((each) => make("option", { value: each }, each)));
  box.value = here;
}

function end() {
  me = null;
  running?.abort();
  forecast.stop();
  editor.text = "";
  for (const each of [find("#results"), own.box, all.box, find(".budgets"), find(".tables")]) each.replaceChildren();
  find("#bar").hidden = find("#gauge").hidden = true;
  document.title = "dpsql";
  show();
}

async function enter(event) {
  event.preventDefault();
  const form = event.target, wrong = find(".wrong", form), button = find("button", form);
  const { name, password } = Object.fromEntries(new FormData(form));
  wrong.textContent = "";
  button.disabled = true;
  try {
    const who = await post("/api/enter", { name, password });
    form.reset();
    await begin(who);
  } catch (error) {
    wrong.textContent = seen(error.message);
    find("[name=password]", form).select();
  } finally {
    button.disabled = false;
  }
}

async function leave() {
  try {
    await post("/api/leave");
  } finally {
    end();
  }
}

// Views.

function wanted() {
  const named = location.hash.slice(1);
  const may = VIEWS.filter((each) => (each === "curator" ? me.curator : me.asks));
  return may.includes(named) ? named : may[0];
}

function show() {
  const view = me ? wanted() : "door";
  for (const each of [...VIEWS, "door"]) {
    find(`#${each}`).hidden = each !== view;
    find(`#to-${each}`)?.toggleAttribute("aria-current", each === view);
  }
  if (view === "door") find("[name=name]").focus();
  if (view === "ask") editor.focus();
  if (view === "history") look(find("#history .ledger"), async () => own.show(await get("/api/history"), "/api/history"));
  if (view === "curator") look(all.box, oversee);
}

async function look(box, work) {
  try {
    await work();
  } catch (error) {
    complain(box, error);
  }
}

async function oversee() {
  const found = await get("/api/curator");
  budgets(find(".budgets"), found);
  all.show(found, "/api/curator");
  all.filter(find("#filter").value);
}

async function learn() {
  const words = await get("/api/vocabulary");
  editor.learn(words);
  tables(find(".tables"), words, (name) => editor.insert(name));
}

async function weigh() {
  const budget = await get("/api/budget");
  gauge(find("#gauge"), budget);
  forecast.allow(Number(budget.remaining));
}

// Asking.

async function run() {
  if (running || !editor.text.trim()) return;
  const sql = editor.text, box = find("#results");
  running = new AbortController();
  find("#stop").hidden = false;
  find("#run").disabled = true;
  box.setAttribute("aria-busy", "true");
  forecast.stop();
  try {
    const found = await post("/api/run", { sql, epsilon: forecast.epsilon, price: forecast.price }, running.signal);
    box.replaceChildren(...results(found.results));
    if (/\b(create|drop)\b/i.test(sql)) await learn();
  } catch (error) {
    if (error.name === "AbortError") box.replaceChildren(make("p", { class: "muted" }, "Stopped. What was charged by then is stored, and free next time."));
    complain(box, error);
    if (error.told?.start !== undefined) editor.point(error.told.start, error.told.end);
  } finally {
    running = null;
    find("#stop").hidden = true;
    find("#run").disabled = false;
    box.removeAttribute("aria-busy");
  }
  if (me) await look(box, weigh);
}

// Colours.

function colour(step) {
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = COLOURS[(COLOURS.indexOf(now) + step) % COLOURS.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
  find("#theme").textContent = next[0].toUpperCase() + next.slice(1);
}

find("#enter").addEventListener("submit", enter);
find("#leave").addEventListener("click", leave);
find("#catalogs").addEventListener("change", (event) => location.assign(`/catalogs/${encodeURIComponent(event.target.value)}/`));
find("#run").addEventListener("click", run);
find("#stop").addEventListener("click", () => running?.abort());
find("#theme").addEventListener("click", () => colour(1));
find("#filter").addEventListener("input", (event) => all.filter(event.target.value));
window.addEventListener("hashchange", show);
window.addEventListener("signed-out", () => me && end());
colour(0);
if (/Mac/.test(navigator.platform)) find("#run kbd").textContent = "⌘ ↵";
if (matchMedia("(max-width: 860px)").matches) find("#tables").open = false;
get("/api/visit").then(begin, () => show());
