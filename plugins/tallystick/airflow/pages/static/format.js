/** Text of numbers, times, lengths and sizes. All times are UTC, as milliseconds since 1970 or as ISO text. */

const GROUPED = new Intl.NumberFormat("en-US");
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;
const UNITS_OF_BYTES = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
const LENGTHS = [
  { s: 86_400, name: "days", one: "day" },
  { s: 3_600, name: "h", one: "h" },
  { s: 60, name: "min", one: "min" },
  { s: 1, name: "s", one: "s" },
];

/** Shown in place of a number that does not exist or is not known. */
const NONE = "–";

/** Return a number with separated thousands; a dash if it is null. */
export function count(number) {
  return number == null ? NONE : GROUPED.format(number);
}

/** Return a number with its noun: `1 gap`, `19 gaps`. */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Return a difference with its sign; 0 has none. */
export function signed(number) {
  if (number === 0) return "0";
  return number > 0 ? `+${count(number)}` : `−${count(-number)}`;
}

/** Return a share in per cent; a dash if the whole is 0. A share that is not 0 is never shown as 0. */
export function share(part, whole) {
  if (!whole) return NONE;
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.01) return "<0.01%";
  if (percent < 100 && percent > 99.99) return ">99.99%";
  const digits = percent === 0 || percent === 100 ? 0 : percent < 1 ? 2 : 1;
  return `${percent.toFixed(digits)}%`;
}

/** Return a size in binary units. */
export function bytes(number) {
  if (number == null) return NONE;
  let size = number;
  let unit = 0;
  while (size >= 1024 && unit < UNITS_OF_BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : 1;
  return `${unit === 0 ? count(size) : size.toFixed(digits)} ${UNITS_OF_BYTES[unit]}`;
}

/** Return the milliseconds since 1970 of ISO text or of milliseconds. */
export function msOf(at) {
  return typeof at === "number" ? at : Date.parse(at);
}

/** Return the ISO text of an instant, as in the answers of the app. */
export function iso(at) {
  return new Date(msOf(at)).toISOString();
}

/** Return the date of an instant. */
export function date(at) {
  return iso(at).slice(0, 10);
}

/** Return the time of day of an instant, with seconds and milliseconds only if they are not 0. */
function timeOfDay(at) {
  const ms = msOf(at);
  const text = iso(ms);
  if (ms % SECOND) return text.slice(11, 23);
  return ms % MINUTE ? text.slice(11, 19) : text.slice(11, 16);
}

/** Return an instant as date and time; a dash if it is null. */
export function instant(at) {
  return at == null ? NONE : `${date(at)} ${timeOfDay(at)}`;
}

/** Return an instant with seconds and without milliseconds, for times of clocks. */
export function clock(at) {
  return at == null ? NONE : iso(at).slice(0, 19).replace("T", " ");
}

/** Return a span: only dates if it begins and ends at midnight, and the date once if it is within a day. */
export function span(from, to) {
  const [start, end] = [msOf(from), msOf(to)];
  if (start % DAY === 0 && end % DAY === 0) return `${date(start)} to ${date(end)}`;
  if (date(start) === date(end)) return `${instant(start)} to ${timeOfDay(end)}`;
  return `${instant(start)} to ${instant(end)}`;
}

/** Return a length in its two largest units; a dash if it is null. */
export function seconds(length) {
  if (length == null) return NONE;
  if (length < 10) return `${Number(length.toFixed(1))} s`;
  let rest = Math.round(length);
  const parts = [];
  for (const unit of LENGTHS) {
    const number = Math.floor(rest / unit.s);
    rest -= number * unit.s;
    if (number) parts.push(`${count(number)} ${number === 1 ? unit.one : unit.name}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Return how long before `now` an instant was, in its largest unit. */
export function ago(at, now) {
  if (at == null) return NONE;
  const length = (now - msOf(at)) / SECOND;
  if (length < -60) return "in the future";
  if (length < 60) return "less than a minute ago";
  const unit = LENGTHS.find((one) => length >= one.s);
  const number = Math.floor(length / unit.s);
  return `${count(number)} ${number === 1 ? unit.one : unit.name} ago`;
}

/** Return the beginning of a digest or of an id. */
export function short(digest) {
  return digest.slice(0, 12);
}
