// The SQL editor: CodeMirror in a shadow root, where its styles are sheets and none is inline.

import {
  Compartment, Decoration, EditorState, EditorView, HighlightStyle, Prec, SQLDialect, StateEffect,
  StateField, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap,
  defaultKeymap, drawSelection, highlightSpecialChars, history, historyKeymap, keymap, placeholder,
  sql, syntaxHighlighting, tags,
} from "./codemirror.js";
import { completer } from "./complete.js";

const LOOK = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "transparent", fontSize: "15px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "9.5rem", maxHeight: "50vh" },
  ".cm-content": { padding: "14px 4px", caretColor: "var(--accent)" },
  ".cm-line": { padding: "0 14px" },
  ".cm-cursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  ".cm-placeholder": { color: "var(--faint)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground":
    { backgroundColor: "var(--select)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket":
    { backgroundColor: "var(--select)", outline: "none" },
  ".cm-wrong": {
    textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "4px", backgroundColor: "var(--bad-soft)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "8px",
    boxShadow: "var(--lift)", overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "14rem", fontSize: "13.5px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "4px 12px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", opacity: "0.6", fontStyle: "normal", marginLeft: "1.2em" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
});
const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);

const DIALECT = SQLDialect.define({
  keywords:
    "all and as asc begin between bounds by case create cross date desc describe distinct domain drop else end except " +
    "exists explain false filter first for from full group having in inner intersect interval into is join last left " +
    "like limit materialize not null nulls offset on options or order outer over partition qualify right run select " +
    "set show synthetic table then timestamp true union using values when where with within workload",
  operatorChars: "*+-%<>!=&|/",
});

const mark = StateEffect.define();
const marked = StateField.define({
  create: () => Decoration.none,
  update(value, change) {
    for (const effect of change.effects) if (effect.is(mark)) return effect.value;
    return change.docChanged ? Decoration.none : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export class Editor {
  constructor(host, { changed, run }) {
    const root = host.attachShadow({ mode: "open" });
    this.offered = new Compartment();
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => (run(), true) }])),
          history(), drawSelection(), highlightSpecialChars(), bracketMatching(), closeBrackets(),
          EditorView.lineWrapping, EditorState.allowMultipleSelections.of(false),
          sql({ dialect: DIALECT }),
          syntaxHighlighting(COLOURS), LOOK, marked, this.offered.of([]),
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
          placeholder("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"),
          EditorView.contentAttributes.of({ "aria-label": "SQL", spellcheck: "false" }),
          EditorView.updateListener.of((update) => update.docChanged && changed()),
        ],
      }),
    });
  }

  get text() {
    return this.view.state.doc.toString();
  }

  set text(value) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: value } });
  }

  insert(words) {
    this.view.dispatch(this.view.state.replaceSelection(words));
    this.focus();
  }

  focus() {
    this.view.focus();
  }

  learn(words) {
    const source = autocompletion({ override: [completer(words)], icons: false });
    this.view.dispatch({ effects: this.offered.reconfigure(source) });
  }

  // Underline what an error is about; nothing without a place.
  point(start, end) {
    const size = this.view.state.doc.length;
    const shown = start !== undefined && start < size;
    const to = Math.min(size, Math.max(end, start + 1));
    const found = shown
      ? Decoration.set([Decoration.mark({ class: "cm-wrong" }).range(start, to)])
      : Decoration.none;
    this.view.dispatch({ effects: mark.of(found) });
  }
}
