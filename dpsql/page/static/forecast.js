// The forecast: what an epsilon would buy, live, before anything is paid.

import { post } from "./api.js";
import { draw, find, make } from "./dom.js";
import { rough, short } from "./numbers.js";

const PAUSE = 250;
// What is not finished yet is not called wrong while it is being written.
const PATIENCE = 600;
const LEAST = 0.001;
const NOTHING_ASKED = ["E_PARSE", "E_STATEMENT"];

function tidy(value) {
  return String(+value.toPrecision(2));
}

export class Forecast {
  constructor({ text, point }) {
    Object.assign(this, { text, point });
    this.slide = find("#slide");
    this.field = find("#epsilon");
    this.most = 1;
    this.left = 1;
    this.field.value = "0.1";
    this.price = "";
    this.slide.addEventListener("input", () => {
      this.field.value = tidy(LEAST * (this.most / LEAST) ** (this.slide.value / 1000));
      this.changed();
    });
    this.field.addEventListener("input", () => this.changed());
  }

  get epsilon() {
    return this.field.value.trim();
  }

  // What one more request may cost at most, and what is left.
  allow(left) {
    this.left = Math.max(0, left);
    this.most = Math.max(2 * LEAST, this.left);
    this.changed();
  }

  // The price goes with the first key: what is shown is never that of another statement.
  changed() {
    this.stop();
    this.price = "";
    this.say([make("p", { class: "muted" }, "…")]);
    const value = Number(this.epsilon);
    if (value > 0) {
      const place = Math.log(value / LEAST) / Math.log(this.most / LEAST);
      this.slide.value = Math.round(1000 * Math.min(1, Math.max(0, place)));
      this.slide.setAttribute("aria-valuetext", `epsilon ${this.epsilon}`);
    }
    const share = this.left > 0 ? (100 * value) / this.left : 100;
    find("#share").textContent = value > 0 ? `${short(+share.toPrecision(2))} % of what is left` : "";
    this.timer = setTimeout(() => this.look(), PAUSE);
  }

  stop() {
    clearTimeout(this.timer);
    this.asked?.abort();
  }

  async look() {
    this.stop();
    const sql = this.text();
    this.point();
    if (!sql.trim()) return this.say([make("p", { class: "muted" }, "Write SQL to see what it would cost, and how exact it would be.")]);
    const asked = (this.asked = new AbortController());
    try {
      this.show(await post("/api/forecast", { sql, epsilon: this.epsilon }, asked.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      const told = error.told ?? { message: String(error.message), code: "" };
      this.timer = setTimeout(() => this.refuse(told), PATIENCE);
    }
  }

  say(nodes, curve = []) {
    find("#forecast").replaceChildren(...nodes);
    find("#curve").replaceChildren(...curve);
  }

  free() {
    this.price = "0";
    this.say([make("p", { class: "muted" }, "Nothing to forecast: this is free.")]);
  }

  refuse(told) {
    if (NOTHING_ASKED.includes(told.code) && /there is no SELECT/.test(told.message))
      return this.free();
    if (told.start !== undefined) this.point(told.start, told.end);
    this.say([
      make("p", { class: "wrong" }, told.message),
      told.hint ? make("p", { class: "muted small" }, told.hint) : null,
    ].filter(Boolean));
  }

  show(found) {
    this.price = found.price;
    const lines = found.lines.map(([label, text]) => make("tr", {}, make("th", {}, label), make("td", {}, text)));
    const details = make("details", {}, make("summary", {}, "How"), make("table", { class: "lines" }, make("tbody", {}, lines)));
    if (found.free)
      return this.say([make("p", { class: "figure free" }, "Free"), make("p", { class: "muted small" },
        found.entry === null ? "Nothing of the data is needed." : `Answered by entry ${found.entry} of the ledger.`), details]);
    const nodes = [];
    const errors = found.statements.flatMap((each) => each.stddev);
    if (!found.affordable)
      nodes.push(make("p", { class: "wrong" }, `Epsilon ${found.epsilon} is more than is left: ${found.remaining}.`));
    if (found.rmse !== null && !found.mixed)
      nodes.push(make("p", { class: "figure" }, make("span", { class: "pm" }, "± "), rough(found.rmse)),
        make("p", { class: "muted small" },
          found.case === "expected" ? "expected error of an answer" : `error of an answer ${found.case}`));
    else if (errors.length)
      nodes.push(make("ul", { class: "errors" }, errors.slice(0, 6).map((each) =>
        make("li", {}, make("b", {}, `± ${rough(each.mean)}`), " ", make("span", { class: "muted" }, each.column)))));
    this.say([...nodes, details], found.curve.length > 2 ? [this.curve(found)] : []);
  }

  // Cost against expected error, both on logarithmic scales.
  curve(found) {
    const [w, h, pad, foot] = [190, 98, 8, 32];
    const xs = found.curve.map((each) => Math.log(each[0]));
    const ys = found.curve.map((each) => Math.log(each[1]));
    const scale = (values, size) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return (value) => pad + ((value - low) / (high - low || 1)) * (size - 2 * pad);
    };
    const [x, y] = [scale(xs, w), scale(ys, h - foot)];
    const dots = xs.map((each, i) => [x(each), h - foot - y(ys[i])]);
    const here = found.curve.findIndex((each) => each[0] === Number(this.epsilon));
    const path = dots.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    return draw("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h },
      draw("path", { d: `${path}L${dots.at(-1)[0]} ${h - foot}L${dots[0][0]} ${h - foot}Z`, class: "area" }),
      draw("path", { d: path, class: "line" }),
      dots.map(([a, b]) => draw("circle", { cx: a, cy: b, r: 1.8, class: "step" })),
      here >= 0 ? draw("circle", { cx: dots[here][0], cy: dots[here][1], r: 5, class: "here" }) : null,
      [found.curve[0], found.curve.at(-1)].flatMap(([epsilon, error], i) => {
        const place = { x: i ? w - pad : pad, class: i ? "tick end" : "tick" };
        return [draw("text", { ...place, y: h - 18 }, `± ${rough(error)}`),
          draw("text", { ...place, y: h - 4 }, `ε ${short(epsilon)}`)];
      }));
  }
}
