/** The time line of commits as a picture: for each commit, or for commits close to each other, a bar at their time. */

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { sumsOf } from "./commit_table.js";
import { bytes, clock, count, counted } from "./format.js";

const HEIGHT = 150;
const PLOT = { left: 8, right: 8, top: 18, bottom: 22 };
const BAR = 7;
const DEAD_MIN = 2; // Few dead letters among many records must be visible.

/** Shows the time line. `onOpen(version)` is called with the latest commit of a bar. */
export function CommitChart({ commits, onOpen }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(box.current.clientWidth));
    observer.observe(box.current);
    setWidth(box.current.clientWidth);
    return () => observer.disconnect();
  }, []);
  return html`<div class="chart" ref=${box}>
    ${width > 0 && commits.length > 0 && html`<${Picture} commits=${commits} width=${width} onOpen=${onOpen} />`}
  </div>`;
}

/** Return the bars `{x, commits, records, dead_letters, rows, bytes}` of a plot; commits that would overlap are one. */
export function barsOf(commits, across) {
  const timed = commits.map((commit) => ({ commit, at: Date.parse(commit.committed_at) })).sort((a, b) => a.at - b.at);
  const first = timed[0].at;
  const length = timed.at(-1).at - first;
  const bars = [];
  for (const { commit, at } of timed) {
    const x = length ? ((at - first) / length) * (across - BAR) : (across - BAR) / 2;
    const before = bars.at(-1);
    if (before && x < before.x + BAR) add(before, commit);
    else bars.push(add({ x, commits: [], records: 0, dead_letters: 0, rows: 0, bytes: 0 }, commit));
  }
  return bars;
}

function add(bar, commit) {
  const sums = sumsOf(commit);
  bar.commits.push(commit);
  for (const name of ["records", "dead_letters", "rows", "bytes"]) bar[name] += sums[name] ?? 0;
  return bar;
}

function Picture({ commits, width, onOpen }) {
  const across = width - PLOT.left - PLOT.right;
  const down = HEIGHT - PLOT.top - PLOT.bottom;
  const bars = barsOf(commits, across);
  const highest = Math.max(1, ...bars.map((bar) => bar.records + bar.dead_letters));
  const floor = PLOT.top + down;
  const [newest, oldest] = [commits[0], commits.at(-1)];
  const [begin, end] = [clock(oldest.committed_at), clock(newest.committed_at)];
  const summary = `${counted(commits.length, "commit")} from ${begin} to ${end}; the table below lists them.`;
  const bar = (one) => html`<${Bar} key=${one.x} bar=${one} floor=${floor} scale=${down / highest} onOpen=${onOpen} />`;
  // The table below has the same numbers and can be reached by keyboard.
  return html`<svg width=${width} height=${HEIGHT} role="img" aria-label=${summary}>
    <line class="chart-line" x1="0" x2=${width} y1=${floor + 0.5} y2=${floor + 0.5} />
    <line class="chart-line faint" x1="0" x2=${width} y1=${PLOT.top - 0.5} y2=${PLOT.top - 0.5} />
    <text x="0" y=${PLOT.top - 6}>${count(highest)} records and dead letters</text>
    <text x="0" y=${HEIGHT - 6}>${begin}</text>
    ${begin !== end && html`<text x=${width} y=${HEIGHT - 6} text-anchor="end">${end}</text>`}
    ${bars.map(bar)}
  </svg>`;
}

function Bar({ bar, floor, scale, onOpen }) {
  const dead = bar.dead_letters ? Math.max(DEAD_MIN, bar.dead_letters * scale) : 0;
  const records = Math.max(1, (bar.records + bar.dead_letters) * scale - dead);
  const x = PLOT.left + bar.x;
  return html`<g class="bar" onClick=${() => onOpen(bar.commits.at(-1).version)}>
    <title>${titleOf(bar)}</title>
    <rect class="bar-room" x=${x} y=${PLOT.top} width=${BAR} height=${floor - PLOT.top} />
    <rect class="bar-records" x=${x} y=${floor - records} width=${BAR - 1} height=${records} />
    ${dead > 0 && html`<rect class="bar-dead" x=${x} y=${floor - records - dead} width=${BAR - 1} height=${dead} />`}
  </g>`;
}

function titleOf({ commits, records, dead_letters: dead, rows, bytes: size }) {
  const [oldest, newest] = [commits[0], commits.at(-1)];
  const versions = newest === oldest ? `Version ${newest.version}` : `Versions ${oldest.version} to ${newest.version}`;
  return [
    `${versions}, ${clock(newest.committed_at)}`,
    counted(records, "record"),
    counted(dead, "dead letter"),
    `${count(rows)} rows, ${bytes(size)}`,
  ].join("\n");
}
