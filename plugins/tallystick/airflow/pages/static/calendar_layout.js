/**
 * The layout of the calendar: which span of time a row is, and where an interval is in its rows. Pure functions.
 *
 * A row is numbered by its time, so that no list of rows is needed: the row after row 7 is row 8. Within a row, x is
 * the time since the row's start as a share of the longest row, so that days are below each other in months of any
 * length. The newest row is at the top.
 */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MONDAY = 4 * DAY; // 1970-01-05
const INTERVALS_PER_ROW = 28;
const ROWS_MAX = 100_000;
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** The spans of time that a row may be; `longest`: its length in milliseconds, or that of the longest of them. */
export const UNITS = [
  fixed("minute", MINUTE, ticksBy(15_000, 4, (n) => `:${two(n * 15)}`)),
  fixed("ten minutes", 10 * MINUTE, ticksBy(2 * MINUTE, 5, (n) => `+${n * 2} min`)),
  fixed("hour", HOUR, ticksBy(10 * MINUTE, 6, (n) => `:${two(n * 10)}`)),
  fixed("two hours", 2 * HOUR, ticksBy(30 * MINUTE, 4, (n) => `+${n * 30} min`)),
  fixed("six hours", 6 * HOUR, ticksBy(HOUR, 6, (n) => `+${n} h`)),
  fixed("twelve hours", 12 * HOUR, ticksBy(2 * HOUR, 6, (n) => `+${n * 2} h`)),
  fixed("day", DAY, ticksBy(3 * HOUR, 8, (n) => `${two(n * 3)}:00`)),
  fixed("week", 7 * DAY, ticksBy(DAY, 7, (n) => WEEKDAYS[n]), MONDAY),
  ofMonths("month", 1, 31 * DAY, ticksOfDays()),
  ofMonths("year", 12, 366 * DAY, ticksBy(30.5 * DAY, 12, (n) => MONTHS[n])),
  ofMonths("decade", 120, 3_653 * DAY, ticksBy(365.25 * DAY, 10, (n) => `+${n}`)),
];

/** Return the layout of a time from `from` to `to` whose intervals have about the length `every`, in milliseconds. */
export function layoutOf(from, to, every) {
  const best = [...UNITS].sort((a, b) => distance(a, every) - distance(b, every))[0];
  const candidates = UNITS.slice(UNITS.indexOf(best));
  const unit = candidates.find((one) => rowsOf(one, from, to) <= ROWS_MAX) ?? UNITS.at(-1);
  const first = unit.row(from);
  return { unit, first, last: first + rowsOf(unit, from, to) - 1, rows: rowsOf(unit, from, to) };
}

/** Return the usual length of an interval: the schedule's, otherwise the median; a day if there is no interval. */
export function usualLength(every, starts, ends) {
  if (every) return every * 1000;
  const lengths = Float64Array.from(starts, (start, i) => ends[i] - start).sort();
  return lengths.length ? lengths[lengths.length >> 1] : DAY;
}

/** Return the line of a row, from 0 at the top. */
export function lineOf(layout, row) {
  return layout.last - row;
}

/** Return the row at a line. */
export function rowAt(layout, line) {
  return layout.last - line;
}

/** Return the pieces `{row, left, right}` of a span in the rows `low` to `high`; left and right are shares of a row. */
export function piecesOf({ unit }, start, end, low = -Infinity, high = Infinity) {
  const pieces = [];
  const lastRow = Math.min(high, unit.row(end - 1));
  for (let row = Math.max(low, unit.row(start)); row <= lastRow; row += 1) {
    const rowStart = unit.start(row);
    const rowEnd = unit.start(row + 1);
    pieces.push({
      row,
      left: (Math.max(start, rowStart) - rowStart) / unit.longest,
      right: (Math.min(end, rowEnd) - rowStart) / unit.longest,
    });
  }
  return pieces;
}

/** Return the instant at a share of a row; null behind the end of a row that is shorter than others. */
export function instantAt({ unit }, row, share) {
  const instant = unit.start(row) + share * unit.longest;
  return share >= 0 && instant < unit.start(row + 1) ? instant : null;
}

/** Return the instant that has the same place in another row, or the last of that row if it is shorter. */
export function movedBy({ unit }, instant, rows) {
  const row = unit.row(instant);
  const moved = unit.start(row + rows) + (instant - unit.start(row));
  return Math.min(moved, unit.start(row + rows + 1) - 1);
}

/** Return the label of a row; `heads`: it is the first from the top of a longer time, such as a month of days. */
export function labelOf(layout, row) {
  const { unit } = layout;
  const heads = row === layout.last || groupOf(unit, row) !== groupOf(unit, row + 1);
  return { text: rowText(unit, row, heads), heads };
}

/** Return what a row belongs to: the date of hours, the month of days, the year of months. */
function groupOf(unit, row) {
  const text = isoOf(unit, row);
  if (unit.longest < DAY) return text.slice(0, 10);
  if (unit.longest < 31 * DAY) return text.slice(0, 7);
  return unit.name === "month" ? text.slice(0, 4) : text.slice(0, 3);
}

function rowText(unit, row, heads) {
  const text = isoOf(unit, row);
  if (unit.longest < DAY) return heads ? `${text.slice(0, 10)} ${text.slice(11, 16)}` : text.slice(11, 16);
  if (unit.longest < 31 * DAY) return heads ? text.slice(0, 10) : text.slice(5, 10);
  return unit.name === "month" ? text.slice(0, 7) : text.slice(0, 4);
}

function isoOf(unit, row) {
  return new Date(unit.start(row)).toISOString();
}

function rowsOf(unit, from, to) {
  return Math.max(1, unit.row(to - 1) - unit.row(from) + 1);
}

function distance(unit, every) {
  return Math.abs(Math.log(unit.longest / every / INTERVALS_PER_ROW));
}

function fixed(name, longest, ticks, origin = 0) {
  return {
    name,
    longest,
    ticks: ticks(longest),
    row: (at) => Math.floor((at - origin) / longest),
    start: (row) => row * longest + origin,
  };
}

function ofMonths(name, months, longest, ticks) {
  const monthOf = (at) => {
    const when = new Date(at);
    return when.getUTCFullYear() * 12 + when.getUTCMonth();
  };
  return {
    name,
    longest,
    ticks: ticks(longest),
    row: (at) => Math.floor(monthOf(at) / months),
    start: (row) => Date.UTC(Math.floor((row * months) / 12), (row * months) % 12),
  };
}

function ticksBy(step, number, label) {
  return (longest) =>
    Array.from({ length: number }, (_, n) => ({ at: (n * step) / longest, label: label(n) }));
}

function ticksOfDays() {
  return (longest) => [1, 5, 10, 15, 20, 25, 30].map((day) => ({
    at: ((day - 1) * DAY) / longest,
    label: String(day),
  }));
}

function two(number) {
  return String(number).padStart(2, "0");
}
