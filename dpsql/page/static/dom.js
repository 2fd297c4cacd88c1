// Elements from plain values. Text is text: nothing is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

// Controls, marks of direction, zero widths: text of the data neither moves nor hides what is beside it.
const UNSEEN = /(?![ \n\t])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu;

// A text of which everything is seen: what is not is written by its number.
export function seen(text) {
  return String(text).replace(UNSEEN, (each) => {
    const number = each.codePointAt(0).toString(16);
    return number.length > 4 ? `\\U${number.padStart(8, "0")}` : `\\u${number.padStart(4, "0")}`;
  });
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : name === "title" || name.startsWith("aria-") ? seen(value) : value);
  }
  const given = children.flat().filter((each) => each !== null && each !== undefined);
  element.append(...given.map((each) => (each instanceof Node ? each : seen(each))));
  return element;
}

export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function draw(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function find(selector, within = document) {
  return within.querySelector(selector);
}
