/** The view of one interval: its state, its account, its files, its commits, and the runs that had it. */

import { html } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { Accounts } from "./account.js";
import { Reports, Tries } from "./attempts.js";
import { usePage } from "./context.js";
import { Card, Code, Columns, Facts, Scrolling, shellText, ViewHeading } from "./elements.js";
import { Files } from "./files.js";
import { clock, count, counted, instant, short, span } from "./format.js";
import { GapPanel } from "./gap.js";
import { History } from "./history.js";
import { deadLettersHref, intervalHref, objectHref, RunLink } from "./links.js";
import { Answered, useAnswer } from "./load.js";
import { DAG } from "./place.js";

/** Shows the interval, or the gap, from `from` to `to`. */
export function IntervalView({ from, to }) {
  const { status, ledger } = usePage();
  const i = ledger.find(from, to);
  const gap = i < 0 ? undefined : ledger.gapOf(i);
  const url = gap ? "" : lakeUrl(DAG, "interval", { from, to });
  const answer = useAnswer(url, status.version);
  return html`
    <div class="view-head">
      <${ViewHeading}>${gap ? "Gap" : "Interval"} ${span(from, to)}<//>
      <${Neighbours} i=${i} />
    </div>
    ${gap
      ? html`<${GapPanel} gap=${gap} />`
      : html`<${Answered} answer=${answer} what="the interval">
          ${(interval) => html`<${Interval} interval=${interval} />`}
        <//>`}
  `;
}

function Neighbours({ i }) {
  const { ledger } = usePage();
  if (i < 0) return null;
  const link = (n, text) => html`<a class="button" href=${intervalHref(ledger.spanOf(n))}>${text}</a>`;
  return html`<nav class="actions" aria-label="Neighbours">
    ${i > 0 && link(i - 1, "Earlier")}${i < ledger.size - 1 && link(i + 1, "Later")}
  </nav>`;
}

function Interval({ interval }) {
  const { committed, grant, report, history, attempts, outputs } = interval;
  return html`
    <${State} interval=${interval} />
    ${committed && html`<${Card} level=${3} title="Account"><${Accounts} accounts=${committed.accounts} /><//>`}
    ${report && html`<${Card} level=${3} title="Files"><${Files} report=${report} /><//>`}
    ${history.length > 0 && html`<${Card} level=${3} title="Commits"><${History} commits=${history} /><//>`}
    ${Object.keys(outputs).length > 0 && html`<${Outputs} outputs=${outputs} />`}
    ${committed?.lookback && html`<${Lookback} interval=${interval} />`}
    <${Card} level=${3} title="Attempts">
      <${Reports} attempts=${attempts} committed=${report?.key} />
      ${runsOf(committed, grant).map(([dag, run]) => html`<${Tries} key=${`${dag} ${run}`} dag=${dag} run=${run} />`)}
    <//>
  `;
}

function State({ interval }) {
  const { openTrigger, ledger } = usePage();
  const { from, to, committed, grant, generation, stale } = interval;
  const fewer = ledger.fewer.get(Date.parse(from));
  const dead = committed?.totals.dead_letters ?? 0;
  const replace = () => openTrigger({ mode: "replace", from, to });
  const replay = () => openTrigger({ mode: "dead_letters", from, to });
  const actions = [
    committed && html`<button type="button" onClick=${replace}>Replace…</button>`,
    dead > 0 && html`<button type="button" onClick=${replay}>Replay dead letters…</button>`,
  ];
  return html`<${Card} level=${3} title=${stateText(interval)} actions=${actions}>
    <${Facts} pairs=${[
      ["Committed by run", committed && html`<${RunLink} ...${committed} />`],
      ["Committed at", committed && clock(interval.history[0]?.committed_at)],
      ["Records", committed && count(committed.totals.records)],
      ["Dead letters", dead > 0 && html`<a href=${deadLettersHref(interval)}>${count(dead)}</a>`],
      ["Accepted by the run", committed?.accepted.join(", ")],
      ["Generations", count(generation)],
      ["Declaration and job", committed && html`<${Digest} digest=${committed.fingerprint} />`],
      ["Objects", committed && html`<a href=${objectHref(committed.plan)}>plan</a>, <a
        href=${objectHref(committed.record)}>record</a>`],
      ["Stale", stale && html`<a href=${intervalHref(stale)}>${span(stale.from, stale.to)}</a> has changed since`],
      ["Fewer records", fewer && `${count(fewer.now)}, before ${count(fewer.before)}`],
    ]} />
    ${grant && html`<${Grant} grant=${grant} interval=${interval} />`}
  <//>`;
}

function Digest({ digest }) {
  return html`<code title=${digest}>${short(digest)}</code>`;
}

function stateText({ committed, grant, stale }) {
  if (committed && grant) return `Committed, generation ${committed.generation}, and being replaced`;
  if (grant) return "Granted";
  if (!committed) return "Not committed";
  return `Committed, generation ${committed.generation}${stale ? ", stale" : ""}`;
}

function Grant({ grant, interval }) {
  const { ledger } = usePage();
  const open = ledger.grants.get(Date.parse(interval.from));
  const by = grant.staged_by;
  return html`<h4>${open?.stuck ? "Stuck grant" : "Grant"}</h4>
    <${Facts} pairs=${[
      ["Granted to run", html`<${RunLink} ...${grant} />`],
      ["Generation", count(grant.generation)],
      ["Planned at", grant.planned_at === null ? "the plan cannot be read" : clock(grant.planned_at)],
      ["Offsets", grant.offsets !== null && count(grant.offsets)],
      ["Being staged by run", by && html`<${RunLink} ...${by} />`],
      ["Attempt", by && html`<code>${by.attempt}</code> until ${clock(by.until)}`],
      ["Objects", html`<a href=${objectHref(grant.plan)}>plan</a>`],
      ["Command that releases it", open && html`<${Code} text=${shellText(open.release)} />`],
    ]} />`;
}

function Outputs({ outputs }) {
  const { status } = usePage();
  return html`<${Card} level=${3} title="Outputs"><${Scrolling} label="Outputs"><table>
    <${Columns} names=${["Output", "Target", "State"]} />
    <tbody>${Object.entries(outputs).map(([name, output]) => html`<tr key=${name}>
      <th scope="row">${name}</th>
      <td>${status.outputs[name] ?? "no longer declared"}</td>
      <td>${outputText(output)}</td>
    </tr>`)}</tbody>
  </table><//><//>`;
}

function outputText({ pending, in_progress: started, published }) {
  if (started) return "pending, in progress";
  if (pending) return "pending";
  return published ? "published" : "nothing published";
}

function Lookback({ interval }) {
  const { since, seen } = interval.committed.lookback;
  const records = seen.reduce((sum, one) => sum + one.records, 0);
  return html`<${Card} level=${3} title="Lookback">
    <p>The job also read rows since ${instant(since)}: ${counted(records, "record")} of
      <span> </span>${counted(seen.length, "interval")}.</p>
    <table>
      <${Columns} names=${["Interval", { text: "Records", number: true }]} />
      <tbody>${seen.map((one) => html`<tr key=${one.from}>
        <th scope="row"><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
        <td class="number">${count(one.records)}</td>
      </tr>`)}</tbody>
    </table>
  <//>`;
}

function runsOf(committed, grant) {
  const runs = [committed, grant, grant?.staged_by].filter(Boolean).map(({ dag, run }) => [dag, run]);
  return [...new Map(runs.map((one) => [one.join(" "), one])).values()];
}
