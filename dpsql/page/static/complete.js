// What the editor offers: declared values after a comparison, tables, columns, words of SQL.

import { seen } from "./dom.js";

const COMPARED = new RegExp(
  "(?<column>\"[^\"]+\"|[A-Za-z_]\\w*)\\s*" +
    "(?:<>|!=|<=|>=|=|<|>|(?:NOT\\s+)?LIKE\\b|(?:NOT\\s+)?IN\\s*\\((?:[^()']*(?:'[^']*')?)*?)\\s*" +
    "(?<start>'[^']*|[\\w-]*)$",
  "i",
);
const TABLES = /\b(?:FROM|JOIN|DESCRIBE)\s+(?:[\w."]+\s*,\s*)*"?(\w*)$/i;
const DOTTED = /(?:"([^"]+)"|(\w+))\.(\w*)$/;
const LOOKED = 2000;

function option(label, type, detail, boost = 0) {
  return { label, displayLabel: seen(label), type, detail, boost };
}

// A quote that was closed already, after the cursor, is not closed twice.
function put(view, { label }, from, to) {
  const end = label.endsWith("'") && view.state.sliceDoc(to, to + 1) === "'" ? to + 1 : to;
  view.dispatch({ changes: { from, to: end, insert: label }, selection: { anchor: from + label.length }, userEvent: "input.complete" });
}

function columns(table, boost = 0) {
  return table.columns.map((each) => option(each.name, "property", `${each.type}, ${table.name}`, boost));
}

// The table that a name stands for in the text: its own name, or an alias that follows it.
function meant(tables, name, text) {
  const wanted = name.toLowerCase();
  return tables.find((table) => {
    if (table.name.toLowerCase() === wanted) return true;
    const alias = new RegExp(`\\b${table.name}"?\\s+(?:AS\\s+)?${name}\\b`, "i");
    return alias.test(text);
  });
}

export function completer(words) {
  const { tables, views, keywords, starters, functions } = words;
  const byName = new Map();
  for (const table of tables)
    for (const column of table.columns) {
      const key = column.name.toLowerCase();
      if (!byName.has(key)) byName.set(key, column);
    }
  const names = [
    ...tables.map((each) => option(each.name, "class", each.kind)),
    ...views.map((each) => option(each, "class", "view")),
  ];

  return (context) => {
    const text = context.state.doc.toString();
    const before = text.slice(Math.max(0, context.pos - LOOKED), context.pos);
    const compared = COMPARED.exec(before);
    if (compared) {
      const column = byName.get(compared.groups.column.replaceAll('"', "").toLowerCase());
      if (column && column.values.length)
        return {
          from: context.pos - compared.groups.start.length,
          options: column.values.map((each, i) => ({ ...option(each, "constant", column.name, 99 - i), apply: put })),
          filter: true,
          validFor: /^(?:'[^']*|[\w-]*)$/,
        };
    }
    if ((before.split("'").length - 1) % 2) return null;
    const dotted = DOTTED.exec(before);
    if (dotted) {
      const table = meant(tables, dotted[1] ?? dotted[2], text);
      return table && { from: context.pos - dotted[3].length, options: columns(table), validFor: /^\w*$/ };
    }
    const listed = TABLES.exec(before);
    if (listed)
      return { from: context.pos - listed[1].length, options: names, validFor: /^\w*$/ };
    const typed = /\w*$/.exec(before)[0];
    if (!typed && !context.explicit) return null;
    const begins = /(?:^|;)\s*\w*$/.test(before);
    const options = begins
      ? starters.map((each) => option(each, "keyword"))
      : [
          ...tables.flatMap((each) => columns(each, new RegExp(`\\b${each.name}\\b`, "i").test(text) ? 2 : 0)),
          ...names,
          ...functions.map((each) => option(each, "function")),
          ...keywords.map((each) => option(each, "keyword", undefined, -1)),
        ];
    return { from: context.pos - typed.length, options, validFor: /^\w*$/ };
  };
}
