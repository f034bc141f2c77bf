/** The legend of the calendar: the number of spans of each kind and mark; each entry is a switch of a filter. */

import { html, useLayoutEffect, useRef } from "./vendor/preact-htm.js";
import { fitted, paintCell, paletteOf } from "./calendar_paint.js";
import { count } from "./format.js";
import { KINDS, MARKS } from "./ledger.js";
import { useTheme } from "./theme.js";

const WIDTH = 18;
const HEIGHT = 16;

/** Shows the kinds and marks that exist. `wanted`: the pressed ones; `onToggle(id)` is called to change one. */
export function Legend({ ledger, wanted, onToggle }) {
  const theme = useTheme();
  const counts = ledger.counts();
  const entries = [
    ...KINDS.map(({ id, label }) => ({ id, label, kind: id, marks: 0 })),
    ...MARKS.map(({ id, label, bit }) => ({ id, label, kind: "committed1", marks: bit })),
  ];
  return html`<div class="legend" role="group" aria-label="Emphasise intervals">
    ${entries.filter(({ id }) => counts[id]).map(({ id, label, kind, marks }) => html`
      <button type="button" key=${id} aria-pressed=${wanted.has(id) ? "true" : "false"} onClick=${() => onToggle(id)}>
        <${Swatch} kind=${kind} marks=${marks} theme=${theme} />
        <span>${label}</span> <span class="legend-count">${count(counts[id])}</span>
      </button>`)}
  </div>`;
}

/** Drawn by the same code as the calendar, so that the two cannot differ. */
function Swatch({ kind, marks, theme }) {
  const canvas = useRef(null);
  useLayoutEffect(() => {
    const context = fitted(canvas.current, WIDTH, HEIGHT);
    const palette = paletteOf(canvas.current, window.devicePixelRatio || 1);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    paintCell(context, palette, kind, marks, { x: 0, y: 0, w: WIDTH, h: HEIGHT });
  }, [kind, marks, theme]);
  return html`<canvas class="swatch" aria-hidden="true" ref=${canvas}></canvas>`;
}
