/** The description of a span in words: for the tooltip, and for screen readers. */

import { count, counted, instant, share, span } from "./format.js";

const CLASSES = [
  ["aborted", "aborted"],
  ["control", "control"],
  ["absent", "absent"],
  ["lost", "lost"],
];
const COMMITTED = 0;
const GRANTED = 1;

/** Return the description of a span as lines; the first is the span itself. */
export function describedLines(ledger, i) {
  const title = span(ledger.starts[i], ledger.ends[i]);
  const gap = ledger.gapOf(i);
  return gap ? [title, ...ofGap(gap)] : [title, ...ofInterval(ledger, i)];
}

/** Return the description of a span as one text. */
export function described(ledger, i) {
  return describedLines(ledger, i).join(". ");
}

function ofGap(gap) {
  const size = gap.intervals === null ? "" : ` of ${counted(gap.intervals, "interval")}`;
  const lines = [`Gap${size}, ${counted(gap.offsets, "offset")}`];
  if (gap.gone) lines.push(`${counted(gap.gone, "offset")} belong to a closed topic and are lost`);
  return lines;
}

function ofInterval(ledger, i) {
  const start = ledger.starts[i];
  const { intervals } = ledger.status;
  const column = ledger.columns[i];
  const state = intervals.state[column];
  const grant = ledger.grants.get(start);
  const lines = [];
  if (state !== GRANTED) lines.push(...ofCommit(ledger, i));
  if (state !== COMMITTED && grant) lines.push(...ofGrant(grant));
  const stale = ledger.stale.get(start);
  if (stale) lines.push(`Stale: ${span(stale.changed.from, stale.changed.to)} has changed since`);
  const fewer = ledger.fewer.get(start);
  if (fewer) lines.push(`Fewer records than before: ${count(fewer.now)} of ${count(fewer.before)}`);
  for (const one of ledger.pending.get(start) ?? []) {
    lines.push(`Output ${one.output} pending${one.in_progress ? ", in progress" : ""}`);
  }
  return lines;
}

function ofCommit(ledger, i) {
  const { intervals } = ledger.status;
  const column = ledger.columns[i];
  const [records, dead] = [intervals.records[column], intervals.dead_letters[column]];
  const totals = [counted(records, "record")];
  if (dead) totals.push(`${counted(dead, "dead letter")} (${share(dead, records + dead)})`);
  for (const [name, word] of CLASSES) {
    if (intervals[name][column]) totals.push(`${count(intervals[name][column])} ${word}`);
  }
  return [
    `Committed, generation ${intervals.generation[column]}`,
    totals.join(", "),
    `Run ${ledger.runOf(i)[1]}`,
  ];
}

function ofGrant(grant) {
  const what = grant.replaces ? "Being replaced: granted" : "Granted";
  const lines = [`${what} to run ${grant.run}, generation ${grant.generation}`];
  lines.push(grant.planned_at === null ? "Its plan cannot be read" : `Planned ${instant(grant.planned_at)}`);
  if (grant.stuck) lines.push("Stuck: planned a day ago or earlier");
  return lines;
}
