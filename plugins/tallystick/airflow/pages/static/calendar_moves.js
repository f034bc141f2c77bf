/** Which span of the calendar a key or a pointer means. Pure functions of the calendar's scene. */

import { instantAt, movedBy, rowAt } from "./calendar_layout.js";
import { AXIS } from "./calendar_paint.js";

/** Return the span at a point of the calendar; -1 if there is none. */
export function spanAtPoint({ ledger, layout, rowHeight, labelWidth, width }, x, y, top) {
  if (y < AXIS || x < labelWidth) return -1;
  const line = Math.floor((y - AXIS + top) / rowHeight);
  if (line >= layout.rows) return -1;
  const instant = instantAt(layout, rowAt(layout, line), (x - labelWidth) / (width - labelWidth - 1));
  return instant === null ? -1 : ledger.at(instant);
}

/**
 * Return the span to which a key moves; -1 if there is none, null if the key is not one of these.
 *
 * Left and right: the span before and after. Up and down: the same place in the row above (later) and below. Home and
 * End: the first and the last span. Page Up and Page Down: a screen of rows. N: the next problem, Shift+N: the last.
 */
export function spanAtKey({ key, shiftKey, altKey, ctrlKey, metaKey }, scene) {
  if (altKey || ctrlKey || metaKey) return null;
  const { ledger, active, height, rowHeight } = scene;
  const last = ledger.size - 1;
  const page = Math.max(1, Math.floor((height - AXIS) / rowHeight) - 1);
  switch (key) {
    case "ArrowLeft": return Math.max(0, active - 1);
    case "ArrowRight": return Math.min(last, active + 1);
    case "ArrowUp": return inRow(scene, 1);
    case "ArrowDown": return inRow(scene, -1);
    case "PageUp": return inRow(scene, page);
    case "PageDown": return inRow(scene, -page);
    case "Home": return 0;
    case "End": return last;
    case "n":
    case "N": return ledger.nextProblem(active, shiftKey ? -1 : 1);
    default: return null;
  }
}

/** The span at the same place some rows later; a span that covers these rows is left by one. */
function inRow({ ledger, layout, active }, rows) {
  const instant = movedBy(layout, ledger.starts[active], rows);
  if (instant < ledger.starts[0]) return 0;
  const found = ledger.at(instant);
  if (found < 0) return ledger.size - 1;
  if (found !== active) return found;
  return Math.max(0, Math.min(ledger.size - 1, active + Math.sign(rows)));
}
