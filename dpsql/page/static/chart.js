// A chart of one noisy column: bars with whiskers, lying where labels are words, standing in time.

import { draw, make } from "./dom.js";
import { plain, short, spread, told } from "./numbers.js";

const MOST_LYING = 60;
const MOST_STANDING = 400;
const ORDERED = ["date", "timestamp", "time", "integer", "number"];

// Which columns can be drawn, by number; none where nothing noisy came back or there is too much.
export function drawable(result) {
  if (!result.rows.length || result.rows.length > MOST_STANDING) return [];
  return result.columns.map((each, i) => i).filter((i) => result.columns[i].noisy);
}

// The columns that name the rows: those before the first noisy one, else all without noise.
function keys(result) {
  const first = result.columns.findIndex((each) => each.noisy);
  const all = result.columns.map((_, i) => i).filter((i) => !result.columns[i].noisy);
  return first > 0 ? all.filter((i) => i < first) : all;
}

function nice(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(+at.toPrecision(12));
  return found;
}

function points(result, column) {
  const labels = keys(result);
  return result.rows.map((row, j) => {
    const error = result.stddev[column][j];
    const half = typeof error === "number" ? result.interval * error : 0;
    const label = labels.map((i) => plain(row[i]).replace(/ 00:00:00$/, "")).join(" · ");
    return { label, value: row[column], error, low: row[column] - half, high: row[column] + half };
  }).filter((each) => typeof each.value === "number");
}

function scale(data, from, to) {
  const low = Math.min(0, ...data.map((each) => each.low));
  const high = Math.max(0, ...data.map((each) => each.high));
  const size = high - low || 1;
  return { low, high, at: (value) => from + ((value - low) / size) * (to - from) };
}

function title(each) {
  const near = each.error === null ? "" : ` ± ${spread(each.error)}`;
  return draw("title", {}, `${each.label || "all"}: ${told(each.value, each.error)}${near}`);
}

function lying(data, width) {
  const room = Math.min(0.32 * width, 12 + 7.2 * Math.max(...data.map((each) => each.label.length)));
  const left = Math.max(16, room), right = width - 20, line = 26, top = 8;
  const height = top + line * data.length + 26;
  const x = scale(data, left, right);
  const ticks = nice(x.low, x.high, Math.max(3, Math.floor((right - left) / 110)));
  const fits = Math.floor(room / 7);
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Chart; the table has the same numbers" },
    ticks.map((each) => draw("g", {},
      draw("line", { x1: x.at(each), x2: x.at(each), y1: top, y2: height - 22, class: each ? "grid" : "axis" }),
      draw("text", { x: x.at(each), y: height - 6, class: "tick middle" }, short(each)))),
    data.map((each, i) => {
      const y = top + line * (i + 0.5);
      const [a, b] = [x.at(0), x.at(each.value)];
      const label = each.label.length > fits ? `${each.label.slice(0, Math.max(1, fits - 1))}…` : each.label;
      return draw("g", { class: "point" }, title(each),
        draw("rect", { x: 0, y: y - line / 2, width, height: line, class: "touch" }),
        draw("text", { x: left - 10, y: y + 4, class: "label end" }, label),
        draw("rect", { x: Math.min(a, b), y: y - 8, width: Math.max(1, Math.abs(b - a)), height: 16, rx: 3, class: "bar" }),
        whisker(x.at(each.low), x.at(each.high), y, true));
    }));
}

function whisker(a, b, c, lies) {
  const cap = 4.5;
  const d = lies
    ? `M${a} ${c}H${b}M${a} ${c - cap}V${c + cap}M${b} ${c - cap}V${c + cap}`
    : `M${c} ${a}V${b}M${c - cap} ${a}H${c + cap}M${c - cap} ${b}H${c + cap}`;
  return draw("path", { d, class: "whisker" });
}

function standing(data, width) {
  const left = 64, right = width - 12, top = 12, bottom = 250, height = 284;
  const y = scale(data, bottom, top);
  const step = (right - left) / data.length;
  const every = Math.max(1, Math.ceil((data.length * (16 + 6.4 * Math.max(...data.map((each) => each.label.length)))) / (right - left)));
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Chart; the table has the same numbers" },
    nice(y.low, y.high, 5).map((each) => draw("g", {},
      draw("line", { x1: left, x2: right, y1: y.at(each), y2: y.at(each), class: each ? "grid" : "axis" }),
      draw("text", { x: left - 8, y: y.at(each) + 4, class: "tick end" }, short(each)))),
    data.map((each, i) => {
      const x = left + step * (i + 0.5);
      const [a, b] = [y.at(0), y.at(each.value)];
      const thick = Math.max(1, Math.min(34, step * 0.66));
      return draw("g", { class: "point" }, title(each),
        draw("rect", { x: x - step / 2, y: top, width: step, height: bottom - top, class: "touch" }),
        draw("rect", { x: x - thick / 2, y: Math.min(a, b), width: thick, height: Math.max(1, Math.abs(b - a)), rx: Math.min(3, thick / 3), class: "bar" }),
        step > 5 ? whisker(y.at(each.high), y.at(each.low), x, false)
          : draw("path", { d: `M${x} ${y.at(each.high)}V${y.at(each.low)}`, class: "whisker" }),
        i % every ? null : draw("text", { x, y: height - 12, class: "tick middle" }, each.label));
    }));
}

export function chart(result, column) {
  const data = points(result, column);
  const labels = keys(result).map((i) => result.columns[i]);
  const stands = data.length > MOST_LYING ||
    (data.length > 8 && labels.length === 1 && ORDERED.includes(labels[0].type));
  const box = make("div", { class: "plot" });
  const redraw = () => {
    const width = Math.max(280, Math.floor(box.clientWidth));
    if (width !== box.drawn) box.replaceChildren((stands ? standing : lying)(data, (box.drawn = width)));
  };
  new ResizeObserver(redraw).observe(box);
  return box;
}
