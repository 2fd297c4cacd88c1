// What the page uses of CodeMirror 6, as one file.
export { Compartment, EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
export { Decoration, EditorView, drawSelection, highlightSpecialChars, keymap, placeholder }
  from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion }
  from "@codemirror/autocomplete";
export { SQLDialect, sql } from "@codemirror/lang-sql";
export { tags } from "@lezer/highlight";
