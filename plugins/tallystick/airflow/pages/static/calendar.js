/** The calendar: a list box with one tab stop whose intervals are drawn on a canvas, for the visible part only. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { lineOf, layoutOf, usualLength } from "./calendar_layout.js";
import { AXIS, fitted, paintCalendar, paletteOf } from "./calendar_paint.js";
import { spanAtKey, spanAtPoint } from "./calendar_moves.js";
import { described, describedLines } from "./describe.js";
import { useTheme } from "./theme.js";

const ROW_HEIGHTS = [[3, 34], [14, 26], [Infinity, 18]]; // Rows up to a number, and their height.
const LABELS = { days: 84, hours: 124 };
const DAY = 86_400_000;

// Kept while other views are shown, so that Back returns to the same place. `instant`: of the active span.
const place = { instant: null, top: null, focused: false };

/**
 * Shows the spans of a ledger that has at least one. `wanted`: kinds and marks to emphasise, `outlined`: spans to
 * outline, `onOpen(i)` is called when the user opens a span.
 */
export function Calendar({ ledger, wanted, outlined, onOpen }) {
  const box = useRef(null);
  const size = useSize(box);
  const theme = useTheme();
  const [active, setActive] = useActive(ledger, outlined);
  const [pointed, setPointed] = useState(null);
  const [focused, setFocused] = useState(false);
  const layout = useLayout(ledger);
  const rowHeight = ROW_HEIGHTS.find(([rows]) => layout.rows <= rows)[1];
  const labelWidth = layout.unit.longest < DAY ? LABELS.hours : LABELS.days;
  const scene = useRef({});
  const { palette } = scene.current;
  const hovered = pointed?.i ?? -1;
  scene.current = {
    ledger, layout, palette, wanted, outlined, active, hovered, focused, rowHeight, labelWidth, ...size,
  };
  useScrolling(box, scene, { layout, rowHeight, active, outlined });
  useDrawing(box, scene, theme);

  const open = (i) => {
    place.focused = !ledger.gapOf(i); // A gap is opened below the calendar, which stays.
    setActive(i);
    onOpen(i);
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape") setPointed(null);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(active);
      return;
    }
    const next = spanAtKey(event, scene.current);
    if (next === null) return;
    event.preventDefault();
    if (next >= 0) setActive(next);
  };
  const onClick = (event) => {
    const found = pointedAt(event, scene.current, box.current);
    if (found) open(found.i);
  };
  const text = described(ledger, active);
  const point = (event) => setPointed(pointedAt(event, scene.current, box.current));
  return html`
    <div class="calendar" role="listbox" tabindex="0" aria-label="Intervals by time" aria-describedby="calendar-keys"
      aria-activedescendant=${`interval-${active}`} ref=${box} onKeyDown=${onKeyDown}
      onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}
      onPointerMove=${point} onPointerLeave=${() => setPointed(null)}
      onClick=${onClick}>
      <div class="calendar-rows" style=${{ height: `${AXIS + layout.rows * rowHeight}px` }}>
        <canvas aria-hidden="true"></canvas>
      </div>
      <div role="option" class="visually-hidden" key=${active} id=${`interval-${active}`}
        aria-selected="true" aria-setsize=${ledger.size} aria-posinset=${active + 1}>${text}</div>
    </div>
    <p class="readout" aria-hidden="true">${text}</p>
    ${pointed && html`<${Tooltip} lines=${describedLines(ledger, pointed.i)} x=${pointed.x} y=${pointed.y} />`}
  `;
}

function useLayout(ledger) {
  return useMemo(() => {
    const { every_s: every, intervals } = ledger.status;
    const usual = usualLength(every, intervals.start, intervals.end);
    return layoutOf(ledger.starts[0], ledger.ends[ledger.size - 1], usual);
  }, [ledger]);
}

/** Keep the instant of the active span, because its index changes when intervals are added or merged. */
function useActive(ledger, outlined) {
  const [, redraw] = useState(0);
  if (place.instant === null && outlined?.size) place.instant = ledger.starts[Math.max(...outlined)];
  const kept = place.instant === null ? -1 : ledger.at(place.instant);
  const active = kept >= 0 ? kept : ledger.size - 1;
  const setActive = (i) => {
    place.instant = ledger.starts[i];
    redraw((n) => n + 1);
  };
  return [active, setActive];
}

function useSize(box) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => setSize({ width: box.current.clientWidth, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);
  return size;
}

/** Draw after each render, and on scroll once per frame. */
function useDrawing(box, scene, theme) {
  const palette = useMemo(() => ({ of: null }), [theme]);
  const draw = () => {
    const { width, height, ledger } = scene.current;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    if (palette.ratio !== ratio) Object.assign(palette, { ratio, of: paletteOf(box.current, ratio) });
    scene.current.palette = palette.of;
    const canvas = box.current.querySelector("canvas");
    canvas.style.height = `${height}px`;
    paintCalendar(fitted(canvas, width, height), scene.current, box.current.scrollTop);
    published(ledger.status.intervals.start.length);
  };
  useLayoutEffect(draw);
  useEffect(() => {
    let frame = 0;
    const later = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
      place.top = box.current.scrollTop;
    };
    const element = box.current;
    element.addEventListener("scroll", later, { passive: true });
    return () => {
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(frame);
    };
  }, [theme]);
}

/** Scroll to where the user was, to the outlined spans, and to the active span when it moves. */
function useScrolling(box, scene, { layout, rowHeight, active, outlined }) {
  const before = useRef(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (place.top !== null) element.scrollTop = place.top;
    else if (outlined?.size) {
      centre(element, scene.current, Math.max(...outlined));
      element.closest(".card").scrollIntoView({ block: "start" });
    }
    if (place.focused) element.focus({ preventScroll: true });
    place.focused = false;
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    const added = before.current && before.current.unit === layout.unit ? layout.last - before.current.last : 0;
    // New rows appear at the top; the rows that the user looks at must not move.
    if (added > 0 && element.scrollTop > 0) element.scrollTop += added * rowHeight;
    before.current = layout;
  }, [layout]);
  useLayoutEffect(() => {
    if (document.activeElement === box.current) reveal(box.current, scene.current, active);
  }, [active]);
}

function topOf({ ledger, layout, rowHeight }, i) {
  return lineOf(layout, layout.unit.row(ledger.ends[i] - 1)) * rowHeight;
}

function centre(element, scene, i) {
  element.scrollTop = topOf(scene, i) - (element.clientHeight - AXIS) / 2;
}

function reveal(element, scene, i) {
  const { rowHeight } = scene;
  const y = topOf(scene, i);
  const room = element.clientHeight - AXIS - rowHeight;
  if (y < element.scrollTop) element.scrollTop = y;
  else if (y > element.scrollTop + room) element.scrollTop = y - room;
}

function pointedAt(event, scene, element) {
  const frame = element.getBoundingClientRect();
  const x = event.clientX - frame.left - element.clientLeft;
  const y = event.clientY - frame.top - element.clientTop;
  const i = spanAtPoint(scene, x, y, element.scrollTop);
  return i < 0 ? null : { i, x: event.clientX, y: event.clientY };
}

function Tooltip({ lines, x, y }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const { offsetWidth: width, offsetHeight: height, style } = element.current;
    const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
    const top = y + 16 + height > innerHeight ? y - height - 10 : y + 16;
    style.left = `${Math.max(4, left)}px`;
    style.top = `${Math.max(4, top)}px`;
  });
  const [title, ...others] = lines;
  return html`<div class="tooltip" aria-hidden="true" ref=${element}>
    <strong>${title}</strong>${others.map((line) => html`<span>${line}</span>`)}
  </div>`;
}

/** Tests and users' tools wait for the first drawing. */
function published(intervals) {
  const { dataset } = document.documentElement;
  if (dataset.drawn === undefined && performance.getEntriesByName("tallystick-status").length) {
    performance.measure("tallystick-draw", "tallystick-status");
  }
  dataset.drawn = String(intervals);
}
