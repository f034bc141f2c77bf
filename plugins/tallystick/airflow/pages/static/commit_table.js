/** The table of commits: one row each, and its intervals and tables below it when it is expanded. */

import { html, useState } from "./vendor/preact-htm.js";
import { Columns, Facts, Scrolling } from "./elements.js";
import { bytes, clock, count, counted, seconds, short, span } from "./format.js";
import { intervalHref, objectHref, RunLink } from "./links.js";

const INTERVALS_SHOWN = 2;
const number = (text) => ({ text, number: true });

/**
 * Shows commits, newest first. `chosen`: the versions whose boxes are checked, `onChoose(version)` is called when one
 * is changed; without it there are no boxes.
 */
export function CommitTable({ commits, chosen = [], onChoose = null }) {
  if (!commits.length) return html`<p class="quiet">Nothing is committed.</p>`;
  const names = [
    number("Version"), "Committed at", "Interval", "Run", number("Records"), number("Dead letters"), number("Rows"),
    number("Size"), number("Plan to commit"), { text: "Details", hidden: true },
  ];
  return html`<${Scrolling} label="Commits"><table class="commits">
    <${Columns} names=${onChoose ? ["Compare", ...names] : names} />
    ${commits.map((commit) => html`<${CommitRows} key=${commit.version} commit=${commit}
      chosen=${chosen.includes(commit.version)} onChoose=${onChoose} />`)}
  </table><//>`;
}

/** Return the sums over a commit's intervals; rows, bytes and seconds since the plan are null if they are not known. */
export function sumsOf(commit) {
  const sums = { records: 0, dead_letters: 0, offsets: 0, rows: 0, bytes: 0, files: 0, seconds: null };
  for (const { totals, tables, planned_at: plannedAt } of commit.intervals) {
    sums.records += totals.records;
    sums.dead_letters += totals.dead_letters;
    sums.offsets += totals.offsets;
    if (tables === null) sums.rows = sums.bytes = sums.files = null;
    for (const table of sums.rows === null ? [] : Object.values(tables)) {
      sums.rows += table.rows;
      sums.bytes += table.bytes;
      sums.files += table.files;
    }
    if (plannedAt !== null) {
      const length = (Date.parse(commit.committed_at) - Date.parse(plannedAt)) / 1000;
      sums.seconds = Math.max(sums.seconds ?? 0, length);
    }
  }
  return sums;
}

function CommitRows({ commit, chosen, onChoose }) {
  const [open, setOpen] = useState(false);
  const { version } = commit;
  const sums = sumsOf(commit);
  return html`<tbody id=${`commit-${version}`}>
    <tr class=${chosen ? "chosen" : ""}>
      ${onChoose && html`<td class="choice"><input type="checkbox" checked=${chosen}
        aria-label=${`Compare version ${version}`} onChange=${() => onChoose(version)} /></td>`}
      <th scope="row" class="number">${version}</th>
      <td class="time">${clock(commit.committed_at)}</td>
      <td>${commit.compacted.length > 0 && html`<span class="quiet">Compaction of ${commit.compacted.join(", ")}</span>`}
        <${Spans} intervals=${commit.intervals} /></td>
      <td><${Runs} intervals=${commit.intervals} /></td>
      <td class="number">${count(sums.records)}</td>
      <td class="number">${count(sums.dead_letters)}</td>
      <td class="number">${count(sums.rows)}</td>
      <td class="number">${bytes(sums.bytes)}</td>
      <td class="number">${seconds(sums.seconds)}</td>
      <td><button type="button" class="expand" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}
        aria-label=${`${open ? "Less" : "More"} about version ${version}`}>${open ? "Less" : "More"}</button></td>
    </tr>
    ${open && html`<tr class="details"><td colspan=${onChoose ? 11 : 10}><${Details} commit=${commit} /></td></tr>`}
  </tbody>`;
}

function Spans({ intervals }) {
  const more = intervals.length - INTERVALS_SHOWN;
  return html`<ul class="spans">
    ${intervals.slice(0, INTERVALS_SHOWN).map((one) => html`<li key=${one.from}>
      <a href=${intervalHref(one)}>${span(one.from, one.to)}</a>
      ${one.generation > 1 && html`<span class="quiet"> generation ${one.generation}</span>`}
    </li>`)}
    ${more > 0 && html`<li class="quiet">and ${counted(more, "more", "more")}</li>`}
  </ul>`;
}

function Runs({ intervals }) {
  const runs = new Map(intervals.map((one) => [`${one.dag} ${one.run}`, one]));
  return [...runs].map(([name, { dag, run, clear }]) => html`<${RunLink} key=${name} ...${{ dag, run, clear }} />`);
}

function Details({ commit }) {
  return html`<${Facts} pairs=${[
    ["Record", html`<a href=${objectHref(commit.record)}>${commit.record}</a>`],
    ["Written by", `tallystick ${commit.library}`],
  ]} />
  <table>
    <${Columns} names=${["Interval", number("Generation"), "Table", number("Files"), number("Rows"), number("Size"),
      "Declaration and job", "Objects"]} />
    <tbody>${commit.intervals.map((one) => html`<${IntervalRows} key=${one.from} one=${one} />`)}</tbody>
  </table>`;
}

function IntervalRows({ one }) {
  const tables = one.tables === null ? [["not known: its report was deleted", {}]] : Object.entries(one.tables);
  const rows = tables.length ? tables : [["no rows", {}]];
  return rows.map(([name, table], i) => html`<tr key=${name}>
    ${i === 0 && html`
      <th scope="rowgroup" rowspan=${rows.length}><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
      <td rowspan=${rows.length} class="number">${one.generation}</td>`}
    <td>${name}</td>
    <td class="number">${count(table.files)}</td>
    <td class="number">${count(table.rows)}</td>
    <td class="number">${bytes(table.bytes)}</td>
    ${i === 0 && html`
      <td rowspan=${rows.length}><code title=${one.fingerprint}>${short(one.fingerprint)}</code></td>
      <td rowspan=${rows.length}><a href=${objectHref(one.plan)}>plan</a>${one.report && html`, <a
        href=${objectHref(one.report)}>report</a>`}</td>`}
  </tr>`);
}
