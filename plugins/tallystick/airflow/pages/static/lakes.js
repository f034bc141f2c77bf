/** The page of all lakes: one row each, which loads its own summary. */

import { html, useEffect } from "./vendor/preact-htm.js";
import { lakesUrl, lakeUrl } from "./api.js";
import { Columns, Scrolling, Sentence } from "./elements.js";
import { ago, clock, count, instant } from "./format.js";
import { lakeHref } from "./links.js";
import { Answered, useAnswer, useNow } from "./load.js";

const REFRESH_MS = 60_000;
const PROBLEMS = [
  ["gaps", "gap", "gaps"],
  ["stuck", "stuck grant", "stuck grants"],
  ["pending", "pending output", "pending outputs"],
  ["stale", "stale interval", "stale intervals"],
  ["dead", "interval with only dead letters", "intervals with only dead letters"],
  ["lost", "interval with lost offsets", "intervals with lost offsets"],
];
const number = (text) => ({ text, number: true });

/** Shows the lakes of the DAGs that the user may read. */
export function LakesPage() {
  const now = useNow(REFRESH_MS);
  const answer = useAnswer(lakesUrl());
  useEffect(() => {
    document.title = "Lakes";
  }, []);
  return html`
    <header class="page-head"><h1>Lakes</h1><p class="quiet">All times are UTC.</p></header>
    <div class="card">
      <${Answered} answer=${answer} what="lakes">${(lakes) => html`<${Lakes} lakes=${lakes} now=${now} />`}<//>
    </div>
  `;
}

function Lakes({ lakes, now }) {
  if (!lakes.length) return html`<p class="quiet">There is no DAG with a lake that you may read.</p>`;
  return html`<${Scrolling} label="Lakes"><table class="lakes">
    <${Columns} names=${["Pipeline", "DAG", "Needs attention", "Committed to", "Last commit", number("Intervals"),
      number("Records"), number("Dead letters"), "Lake"]} />
    <tbody>${lakes.map((lake) => html`<${LakeRow} key=${lake.dag} lake=${lake} now=${now} />`)}</tbody>
  </table><//>`;
}

function LakeRow({ lake, now }) {
  const { data, error } = useAnswer(lakeUrl(lake.dag, "summary"), Math.floor(now / REFRESH_MS));
  return html`<tr>
    <th scope="row"><a href=${lakeHref(lake.dag)}>${lake.pipeline}</a></th>
    <td>${lake.dag}</td>
    ${data ? html`<${Summary} summary=${data} now=${now} />` : html`<${NoSummary} error=${error} />`}
    <td><code>${lake.uri}</code></td>
  </tr>`;
}

function Summary({ summary, now }) {
  const { problems, states, totals } = summary;
  return html`
    <td><${ProblemList} problems=${problems} /></td>
    <td class="time">${instant(summary.committed_to)}</td>
    <td class="time"><span title=${clock(summary.committed_at)}>${ago(summary.committed_at, now)}</span></td>
    <td class="number">${count(states.committed + states.replacing)}</td>
    <td class="number">${count(totals.records)}</td>
    <td class="number">${count(totals.dead_letters)}</td>`;
}

function ProblemList({ problems }) {
  const found = PROBLEMS.filter(([name]) => problems[name]);
  if (!found.length) return html`<span class="fine">Nothing</span>`;
  return html`<ul class="tags">${found.map(([name, one, many]) => html`<li key=${name} class="tag tag-${name}">
    ${count(problems[name])} ${problems[name] === 1 ? one : many}</li>`)}</ul>`;
}

function NoSummary({ error }) {
  if (!error) return html`<td colspan="6" class="quiet">Loading…</td>`;
  if (error.kind === "nothing_planned") return html`<td colspan="6" class="quiet">Nothing has been planned yet.</td>`;
  return html`<td colspan="6">
    <p class="bad"><${Sentence} text=${error.message} /></p>
    <p class="hint"><${Sentence} text=${error.hint} /></p>
  </td>`;
}
