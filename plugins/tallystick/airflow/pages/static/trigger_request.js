/** The request that triggers a run: its parameters, what is wrong with them, and its body. Pure functions. */

/** The modes of a run. `dateless`: what a run without dates does; null if it must have dates. */
export const MODES = [
  {
    id: "process",
    text: "Commits everything in the span that is not committed yet.",
    dateless: "Without dates: from the end of the ledger to now.",
  },
  { id: "replace", text: "Reads everything in the span again and replaces each interval whole.", dateless: null },
  {
    id: "refresh",
    text: "Replaces the intervals that are stale, because rows of their lookback have changed since.",
    dateless: "Without dates: all of them.",
  },
  {
    id: "dead_letters",
    text: "Replaces the intervals that contain dead letters, for example after the declaration was corrected.",
    dateless: "Without dates: all of them.",
  },
];

/** The switches of a run. `fewer`: it accepts that rows become fewer, which only some modes allow. */
export const SWITCHES = [
  {
    id: "force",
    label: "Recompute although nothing changed",
    text: "Replaces intervals of the run even if job and declaration are unchanged.",
  },
  {
    id: "take_over",
    label: "Take over",
    text: "Cancels the grants of other runs in the span. Their staged files are discarded.",
  },
  {
    id: "accept_loss",
    fewer: true,
    label: "Accept loss",
    text: "Commits although the topic has lost records of the span. The ledger records the loss permanently.",
  },
  {
    id: "accept_compaction",
    fewer: true,
    label: "Accept compaction",
    text: "Replaces although the topic was compacted and has fewer records than are committed.",
  },
  {
    id: "accept_dead_letters",
    fewer: true,
    label: "Accept dead letters",
    text: "Replaces although records that are rows now become dead letters.",
  },
];

const FEWER_MODES = new Set(["process", "replace"]);
const DATE = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)?)?$/;
const ZONE = /(Z|[+-]\d\d:\d\d)$/;

/** Return the values of the form: those of the preset, otherwise the defaults of a run. */
export function formOf(preset) {
  const switches = Object.fromEntries(SWITCHES.map(({ id }) => [id, preset[id] === true]));
  return { mode: preset.mode ?? "process", from: preset.from ?? "", to: preset.to ?? "", ...switches };
}

/** True if a switch is allowed with the mode of the form. */
export function allowed(form, { fewer }) {
  return !fewer || FEWER_MODES.has(form.mode);
}

/** Return the parameters of the run: all of them, as Airflow's own form sends them. */
export function confOf(form) {
  const switches = SWITCHES.map((one) => [one.id, form[one.id] && allowed(form, one)]);
  return {
    mode: form.mode,
    from: form.from.trim() || null,
    to: form.to.trim() || null,
    ...Object.fromEntries(switches),
  };
}

/** Return the body of the request, as Airflow's own form sends it. `now`: the logical date, in ms since 1970. */
export function bodyOf(form, now) {
  return {
    conf: confOf(form),
    data_interval_end: null,
    data_interval_start: null,
    logical_date: new Date(Math.floor(now / 1000) * 1000).toISOString(),
    partition_key: null,
  };
}

/** Return the first mistake in the form as a sentence, with the field that has it; null if there is none. */
export function mistakeOf(form) {
  const { mode, from, to } = confOf(form);
  for (const [field, value] of [["from", from], ["to", to]]) {
    if (value !== null && instantOf(value) === null) {
      return { field, text: `${value} is not a date: use for example 2013-01-04 or 2013-01-04T06:00:00Z.` };
    }
  }
  if ((from === null) !== (to === null)) {
    return { field: from === null ? "from" : "to", text: "Set both From and To, or neither." };
  }
  if (from === null) {
    const { dateless } = MODES.find((one) => one.id === mode);
    return dateless === null ? { field: "from", text: `Mode ${mode} needs From and To.` } : null;
  }
  return instantOf(from) < instantOf(to) ? null : { field: "to", text: "To must be later than From." };
}

/** Return the instant of a date as a run reads it: UTC if it has no offset; null if it is not a date. */
export function instantOf(text) {
  if (!DATE.test(text)) return null;
  const at = Date.parse(text.includes("T") && !ZONE.test(text) ? `${text}Z` : text);
  return Number.isNaN(at) ? null : at;
}
