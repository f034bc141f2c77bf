/** Draws the visible part of the calendar, and single cells for its legend, in the colours of the style sheet. */

import { labelOf, lineOf, piecesOf, rowAt } from "./calendar_layout.js";
import { KINDS, MARK } from "./ledger.js";

/** The height of the axis above the rows, in CSS pixels. */
export const AXIS = 20;
const DIMMED = 0.15;
const MARK_SIZE = 7;
const HATCH = 6;
const TICK_ROOM = 36;
const COLOURS = [
  "panel", "line", "text", "muted", "focus",
  "committed1", "committed2", "committed3", "granted", "stuck", "gap", "gap-back", "stale", "stale-line",
  "all-dead", "all-dead-line", "mark-edge", "mark-pending", "mark-dead", "mark-lost",
];

const LOOKS = {
  committed1: (c, p, r) => filled(c, r, p.committed1),
  committed2: (c, p, r) => filled(c, r, p.committed2),
  committed3: (c, p, r) => filled(c, r, p.committed3),
  granted: (c, p, r) => outlined(c, r, p.granted, 2),
  replacing: (c, p, r) => {
    filled(c, r, p.committed1);
    outlined(c, r, p.granted, 3);
  },
  stuck: (c, p, r) => {
    outlined(c, r, p.stuck, 2);
    filled(c, inner(r), p.stuck);
  },
  stale: (c, p, r) => {
    filled(c, r, p.stale);
    lined(c, r, p["stale-line"]);
  },
  all_dead: (c, p, r) => {
    filled(c, r, p["all-dead"]);
    crossed(c, r, p["all-dead-line"]);
  },
  gap: (c, p, r) => {
    filled(c, r, p["gap-back"]);
    filled(c, r, p.hatch);
    outlined(c, r, p.gap, 1.5);
  },
};

/** Return the colours of the style sheet at an element, with the pattern of gaps, for a device pixel ratio. */
export function paletteOf(element, ratio) {
  const style = getComputedStyle(element);
  const palette = Object.fromEntries(
    COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
  palette.font = style.fontFamily;
  palette.hatch = hatch(palette.gap, ratio);
  return palette;
}

/** Give a canvas its size in CSS pixels, and return its context scaled to the device's pixels. */
export function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Draw one cell of a kind with marks (bits). */
export function paintCell(context, palette, kind, marks, rect) {
  LOOKS[kind](context, palette, rect);
  if (marks & MARK.lost) paintLost(context, palette, rect);
  if (marks & MARK.dead_letters && kind !== "all_dead") paintDead(context, palette, rect);
  if (marks & MARK.pending) paintPending(context, palette, rect);
}

/** Draw the part of the calendar that begins `top` pixels below its first row. */
export function paintCalendar(context, scene, top) {
  const { layout, palette, width, height, rowHeight } = scene;
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, width, height);
  const low = rowAt(layout, Math.min(layout.rows - 1, Math.floor((top + height - AXIS) / rowHeight)));
  const high = rowAt(layout, Math.max(0, Math.floor(top / rowHeight)));
  context.save();
  context.beginPath();
  context.rect(0, AXIS, width, height - AXIS);
  context.clip();
  for (let row = low; row <= high; row += 1) paintLabel(context, scene, row, top);
  paintSpans(context, scene, top, low, high);
  context.restore();
  paintAxis(context, scene, high, top);
}

/** Return the rectangle of a piece of a span. */
function rectOf(scene, { row, left, right }, top) {
  const { layout, width, rowHeight, labelWidth } = scene;
  const across = width - labelWidth - 1;
  const x = Math.round(labelWidth + left * across);
  const end = Math.round(labelWidth + right * across);
  const y = AXIS + lineOf(layout, row) * rowHeight - top + 1;
  return { x, y, w: Math.max(1, end - x - 1), h: rowHeight - 2 };
}

function paintSpans(context, scene, top, low, high) {
  const { ledger, layout, palette, wanted, outlined: marked } = scene;
  const end = layout.unit.start(high + 1);
  const rings = [];
  for (let i = ledger.firstAfter(layout.unit.start(low)); i < ledger.size; i += 1) {
    if (ledger.starts[i] >= end) break;
    context.globalAlpha = ledger.matches(i, wanted) ? 1 : DIMMED;
    const kind = KINDS[ledger.kinds[i]].id;
    const ring = ringOf(scene, i, marked);
    for (const piece of piecesOf(layout, ledger.starts[i], ledger.ends[i], low, high)) {
      const rect = rectOf(scene, piece, top);
      paintCell(context, palette, kind, ledger.marks[i], rect);
      if (ring) rings.push([rect, ring]);
    }
  }
  context.globalAlpha = 1;
  // Drawn last, because they reach into the cells around them.
  for (const [rect, { colour, line }] of rings) ringed(context, rect, colour, line, palette.panel);
}

function ringOf({ palette, active, hovered, focused }, i, marked) {
  if (i === active && focused) return { colour: palette.focus, line: 2.5 };
  if (i === hovered) return { colour: palette.text, line: 1.5 };
  if (marked?.has(i)) return { colour: palette.text, line: 2 };
  return null;
}

function paintLabel(context, scene, row, top) {
  const { layout, palette, rowHeight, labelWidth, width } = scene;
  const { text, heads } = labelOf(layout, row);
  const y = AXIS + lineOf(layout, row) * rowHeight - top;
  if (heads && row !== layout.last) {
    context.fillStyle = palette.line;
    context.fillRect(0, y - 1, width, 1);
  }
  context.font = `${heads ? "600 " : ""}11px ${palette.font}`;
  context.fillStyle = heads ? palette.text : palette.muted;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(text, labelWidth - 8, y + rowHeight / 2);
}

function paintAxis(context, scene, high, top) {
  const { layout, palette, width, labelWidth } = scene;
  const across = width - labelWidth - 1;
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = palette.line;
  context.fillRect(0, AXIS - 1, width, 1);
  context.font = `11px ${palette.font}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  let free = labelWidth;
  for (const { at, label } of layout.unit.ticks) {
    const x = labelWidth + at * across;
    context.fillStyle = palette.line;
    context.fillRect(Math.round(x), AXIS - 5, 1, 5);
    if (x < free) continue;
    context.fillStyle = palette.muted;
    context.fillText(label, x + 3, AXIS / 2 - 1);
    free = x + Math.max(TICK_ROOM, context.measureText(label).width + 8);
  }
  if (top <= 0 || labelOf(layout, high).heads) return;
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = palette.text;
  context.textAlign = "right";
  context.fillText(new Date(layout.unit.start(high)).toISOString().slice(0, 10), labelWidth - 8, AXIS / 2 - 1);
}

function filled(context, { x, y, w, h }, colour) {
  context.fillStyle = colour;
  context.fillRect(x, y, w, h);
}

function outlined(context, { x, y, w, h }, colour, line) {
  const thin = Math.min(line, w / 2, h / 2);
  context.strokeStyle = colour;
  context.lineWidth = thin;
  context.strokeRect(x + thin / 2, y + thin / 2, w - thin, h - thin);
}

/** A ring around a cell, with a line of the background inside, so that it is visible on any colour. */
function ringed(context, { x, y, w, h }, colour, line, back) {
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.strokeRect(x - line / 2, y - line / 2, w + line, h + line);
  if (w < 8) return;
  context.strokeStyle = back;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

function inner({ x, y, w, h }) {
  const side = Math.max(1, Math.min(w, h) / 3);
  return { x: x + (w - side) / 2, y: y + (h - side) / 2, w: side, h: side };
}

function lined(context, { x, y, w, h }, colour) {
  context.fillStyle = colour;
  for (let line = 3; line < h - 1; line += 4) context.fillRect(x, y + line, w, 1);
}

function crossed(context, { x, y, w, h }, colour) {
  const side = Math.min(w, h) - 4;
  if (side < 2) return;
  const [left, above] = [x + (w - side) / 2, y + (h - side) / 2];
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(left, above);
  context.lineTo(left + side, above + side);
  context.moveTo(left + side, above);
  context.lineTo(left, above + side);
  context.stroke();
}

/** A triangle in the corner at the upper right. */
function paintPending(context, palette, { x, y, w, h }) {
  const side = Math.min(MARK_SIZE + 1, w, h);
  context.fillStyle = palette["mark-pending"];
  context.strokeStyle = palette["mark-edge"];
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x + w - side, y);
  context.lineTo(x + w, y);
  context.lineTo(x + w, y + side);
  context.closePath();
  context.fill();
  if (w >= 8) context.stroke();
}

/** A square in the corner at the lower left. */
function paintDead(context, palette, { x, y, w, h }) {
  const side = Math.min(MARK_SIZE - 1, w, h / 2);
  filled(context, { x, y: y + h - side - 1, w: Math.min(w, side + 1), h: side + 1 }, palette["mark-edge"]);
  filled(context, { x, y: y + h - side, w: side, h: side }, palette["mark-dead"]);
}

/** A bar at the lower edge. */
function paintLost(context, palette, { x, y, w, h }) {
  filled(context, { x, y: y + h - 4, w, h: 4 }, palette["mark-edge"]);
  filled(context, { x, y: y + h - 3, w, h: 3 }, palette["mark-lost"]);
}

function hatch(colour, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(HATCH * ratio);
  const context = tile.getContext("2d");
  const side = tile.width;
  context.strokeStyle = colour;
  context.lineWidth = 1.4 * ratio;
  context.beginPath();
  for (const shift of [-side, 0, side]) {
    context.moveTo(shift - 1, side + 1);
    context.lineTo(shift + side + 1, -1);
  }
  context.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
