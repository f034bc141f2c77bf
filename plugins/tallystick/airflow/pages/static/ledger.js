/**
 * The intervals and gaps of a status as one list of spans by time, with what the calendar shows of each.
 *
 * Spans do not overlap, so that the start of a span names it.
 */

import { iso, msOf } from "./format.js";

/** What a span is, one kind each. The order is that of the legend. */
export const KINDS = [
  { id: "committed1", label: "Committed, generation 1" },
  { id: "committed2", label: "Generation 2" },
  { id: "committed3", label: "Generation 3 or later" },
  { id: "granted", label: "Granted" },
  { id: "replacing", label: "Replacing" },
  { id: "stuck", label: "Granted, stuck" },
  { id: "stale", label: "Stale" },
  { id: "all_dead", label: "All dead letters" },
  { id: "gap", label: "Gap" },
];

/** What a span may have besides; the bits of `marks`. */
export const MARKS = [
  { id: "dead_letters", bit: 1, label: "Dead letters" },
  { id: "pending", bit: 2, label: "Output pending" },
  { id: "lost", bit: 4, label: "Lost offsets" },
];

/** The number of each kind in the array `kinds`. */
const KIND = Object.fromEntries(KINDS.map(({ id }, number) => [id, number]));
/** The bit of each mark in the array `marks`. */
export const MARK = Object.fromEntries(MARKS.map(({ id, bit }) => [id, bit]));

const COMMITTED = 0;
const REPLACING = 2;
const PROBLEM_KINDS = new Set([KIND.gap, KIND.stuck, KIND.stale, KIND.all_dead]);
const PROBLEM_MARKS = MARK.pending | MARK.lost;

/** The spans of a status. All arrays have one value per span. */
export class Ledger {
  constructor(status) {
    this.status = status;
    this.pending = grouped(status.pending);
    this.grants = byStart(status.grants);
    this.stale = byStart(status.stale);
    this.fewer = byStart(status.fewer);
    const { columns, gaps } = merged(status);
    /** The index of each span's interval in the columns of the status; -1 for a gap. */
    this.columns = columns;
    /** The index of each span's gap in the status; -1 for an interval. */
    this.gaps = gaps;
    this.size = columns.length;
    this.starts = new Float64Array(this.size);
    this.ends = new Float64Array(this.size);
    this.kinds = new Uint8Array(this.size);
    this.marks = new Uint8Array(this.size);
    for (let i = 0; i < this.size; i += 1) this.fill(i);
  }

  fill(i) {
    const { intervals, gaps } = this.status;
    const column = this.columns[i];
    if (column < 0) {
      const gap = gaps[this.gaps[i]];
      this.starts[i] = msOf(gap.from);
      this.ends[i] = msOf(gap.to);
      this.kinds[i] = KIND.gap;
      return;
    }
    this.starts[i] = intervals.start[column];
    this.ends[i] = intervals.end[column];
    this.kinds[i] = this.kindOf(column);
    this.marks[i] =
      (intervals.dead_letters[column] ? MARK.dead_letters : 0) |
      (this.pending.has(intervals.start[column]) ? MARK.pending : 0) |
      (intervals.lost[column] ? MARK.lost : 0);
  }

  kindOf(column) {
    const { intervals } = this.status;
    const start = intervals.start[column];
    if (intervals.state[column] !== COMMITTED) {
      if (this.grants.get(start)?.stuck) return KIND.stuck;
      return intervals.state[column] === REPLACING ? KIND.replacing : KIND.granted;
    }
    if (intervals.dead_letters[column] && !intervals.records[column]) return KIND.all_dead;
    if (this.stale.has(start)) return KIND.stale;
    return KIND.committed1 + Math.min(intervals.generation[column], 3) - 1;
  }

  /** Return the first span that ends after an instant; `size` if there is none. */
  firstAfter(at) {
    let [low, high] = [0, this.size];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Return the span that contains an instant; -1 if there is none. */
  at(instant) {
    const i = this.firstAfter(instant);
    return i < this.size && this.starts[i] <= instant ? i : -1;
  }

  /** Return exactly this span; -1 if there is none. */
  find(from, to) {
    const i = this.at(msOf(from));
    return i >= 0 && this.starts[i] === msOf(from) && this.ends[i] === msOf(to) ? i : -1;
  }

  /** Return a span as `{from, to}`, as in the answers of the app. */
  spanOf(i) {
    return { from: iso(this.starts[i]), to: iso(this.ends[i]) };
  }

  /** Return the gap at a span; undefined for an interval. */
  gapOf(i) {
    return this.status.gaps[this.gaps[i]];
  }

  /** Return the DAG and the run of a span's commit, or of its grant if nothing is committed; undefined for a gap. */
  runOf(i) {
    const { intervals } = this.status;
    return intervals.runs[intervals.run[this.columns[i]]];
  }

  /** True if a person should look at the span. */
  isProblem(i) {
    return PROBLEM_KINDS.has(this.kinds[i]) || (this.marks[i] & PROBLEM_MARKS) !== 0;
  }

  /** Return the next problem after a span (step 1) or before it (step -1), past the end from the start; -1: none. */
  nextProblem(from, step) {
    for (let n = 1; n <= this.size; n += 1) {
      const i = (from + step * n + this.size * n) % this.size;
      if (this.isProblem(i)) return i;
    }
    return -1;
  }

  /** True if a span has one of these kinds or marks. An empty set has all spans. */
  matches(i, wanted) {
    if (!wanted.size || wanted.has(KINDS[this.kinds[i]].id)) return true;
    return MARKS.some(({ id, bit }) => this.marks[i] & bit && wanted.has(id));
  }

  /** Return the number of spans of each kind and with each mark, by id. */
  counts() {
    const found = Object.fromEntries([...KINDS, ...MARKS].map(({ id }) => [id, 0]));
    for (let i = 0; i < this.size; i += 1) {
      found[KINDS[this.kinds[i]].id] += 1;
      for (const { id, bit } of MARKS) if (this.marks[i] & bit) found[id] += 1;
    }
    return found;
  }

  /** Return the spans that a run has committed or is granted. */
  ofRun(dag, run) {
    const found = new Set();
    for (let i = 0; i < this.size; i += 1) {
      if (this.columns[i] < 0) continue;
      const grant = this.grants.get(this.starts[i]);
      const owner = this.runOf(i);
      const has = (owner[0] === dag && owner[1] === run) || (grant?.dag === dag && grant.run === run);
      if (has) found.add(i);
    }
    return found;
  }
}

function byStart(items) {
  return new Map(items.map((one) => [msOf(one.from), one]));
}

function grouped(items) {
  const found = new Map();
  for (const one of items) {
    const start = msOf(one.from);
    if (found.has(start)) found.get(start).push(one);
    else found.set(start, [one]);
  }
  return found;
}

/** Merge intervals and gaps by their starts; both are sorted already. */
function merged({ intervals, gaps }) {
  const size = intervals.start.length + gaps.length;
  const columns = new Int32Array(size).fill(-1);
  const gapNumbers = new Int32Array(size).fill(-1);
  let [column, gap] = [0, 0];
  for (let i = 0; i < size; i += 1) {
    const gapIsNext =
      gap < gaps.length &&
      (column === intervals.start.length || msOf(gaps[gap].from) < intervals.start[column]);
    if (gapIsNext) gapNumbers[i] = gap++;
    else columns[i] = column++;
  }
  return { columns, gaps: gapNumbers };
}
