/** The commits of one interval, newest first, each with its difference to the one that it replaced. */

import { html } from "./vendor/preact-htm.js";
import { Columns, Scrolling } from "./elements.js";
import { clock, count, short, signed } from "./format.js";
import { objectHref, RunLink, viewHref } from "./links.js";

const number = (text) => ({ text, number: true });

/** Shows the commits of an interval; each of them has exactly this interval. */
export function History({ commits }) {
  const names = [
    number("Generation"), number("Version"), "Committed at", "Run", number("Records"), number("Difference"),
    number("Dead letters"), number("Difference"), "Declaration and job", "Objects",
    { text: "Comparison", hidden: true },
  ];
  const row = (commit, n) => html`<${Row} key=${commit.version} commit=${commit} before=${commits[n + 1]} />`;
  return html`<${Scrolling} label="Commits of the interval"><table>
    <${Columns} names=${names} />
    <tbody>${commits.map(row)}</tbody>
  </table><//>`;
}

function Row({ commit, before }) {
  const [one] = commit.intervals;
  const old = before?.intervals[0];
  const difference = (name) => (old ? signed(one.totals[name] - old.totals[name]) : "");
  return html`<tr>
    <th scope="row" class="number">${one.generation}</th>
    <td class="number">${commit.version}</td>
    <td class="time">${clock(commit.committed_at)}</td>
    <td><${RunLink} dag=${one.dag} run=${one.run} clear=${one.clear} /></td>
    <td class="number">${count(one.totals.records)}</td>
    <td class="number">${difference("records")}</td>
    <td class="number">${count(one.totals.dead_letters)}</td>
    <td class="number">${difference("dead_letters")}</td>
    <td><code title=${one.fingerprint}>${short(one.fingerprint)}</code>${old && old.fingerprint !== one.fingerprint &&
      html` <span class="quiet">changed</span>`}</td>
    <td><a href=${objectHref(commit.record)}>record</a>${one.report && html`, <a
      href=${objectHref(one.report)}>report</a>`}</td>
    <td>${before && html`<a href=${viewHref("compare", before.version, commit.version)}>Compare</a>`}</td>
  </tr>`;
}
