/** The list of what needs a person, each with what can be done about it. */

import { html } from "./vendor/preact-htm.js";
import { usePage } from "./context.js";
import { Card, Code, Columns, First, Scrolling, shellText } from "./elements.js";
import { ago, count, counted, instant, share, span } from "./format.js";
import { deadLettersHref, intervalHref, RunLink } from "./links.js";

const ROWS_MAX = 10;

/** Shows the problems of the lake. `onShow(id)` emphasises a kind or a mark in the calendar. */
export function Problems({ now, onShow }) {
  const { status } = usePage();
  const found = [
    status.gaps.length > 0 && Gaps,
    status.grants.some((one) => one.stuck) && Stuck,
    status.pending.length > 0 && Pending,
    status.unregistered.length > 0 && Unregistered,
    status.stale.length > 0 && Stale,
    status.all_dead.length > 0 && AllDead,
    status.lost.length > 0 && Lost,
  ].filter(Boolean);
  // The details of several problems would move the calendar out of sight.
  const open = found.length === 1;
  const shown = (Kind) => html`<${Kind} key=${Kind.name} now=${now} open=${open} onShow=${onShow} />`;
  return html`<${Card} title="Needs attention">
    ${found.length === 0 && html`<p class="fine">Nothing needs attention.</p>`}
    ${found.length > 0 && html`<ul class="problems">${found.map(shown)}</ul>`}
    <${SomeDead} />
  <//>`;
}

function Problem({ title, text, actions, children, open }) {
  return html`<li class="problem">
    <div class="problem-head">
      <p><strong>${title}</strong> <span>${text}</span></p>
      <div class="actions">${actions}</div>
    </div>
    <details open=${open}><summary>Details</summary>${children}</details>
  </li>`;
}

function ShowButton({ id, onShow }) {
  return html`<button type="button" onClick=${() => onShow(id)}>Show in calendar</button>`;
}

function Gaps({ open, onShow }) {
  const { status, openTrigger } = usePage();
  const { gaps } = status;
  const whole = { mode: "process", from: gaps[0].from, to: gaps.at(-1).to };
  // Each of these is filled alone, because only such a run may accept a loss.
  const gone = gaps.some((gap) => gap.gone > 0);
  const fillAll = () => openTrigger(gaps.length === 1 ? gaps[0].conf : whole);
  return html`<${Problem} title=${counted(gaps.length, "gap")}
    text=${`${counted(sum(gaps, "offsets"), "offset")} in time that no interval covers.`}
    open=${open}
    actions=${[
      html`<${ShowButton} id="gap" onShow=${onShow} />`,
      (gaps.length === 1 || !gone) && html`<button type="button" class="primary" onClick=${fillAll}>
        ${gaps.length === 1 ? "Fill gap…" : "Fill all gaps…"}
      </button>`,
    ]}>
    <${First} items=${gaps} what="gaps" max=${ROWS_MAX}>${(shown) => html`<${GapTable} gaps=${shown} />`}<//>
  <//>`;
}

function GapTable({ gaps }) {
  const { openTrigger } = usePage();
  const names = [
    "Gap", { text: "Intervals", number: true }, { text: "Offsets", number: true }, "Command",
    { text: "Action", hidden: true },
  ];
  return html`<${Scrolling} label="Gaps"><table>
    <${Columns} names=${names} />
    <tbody>${gaps.map((gap) => html`<tr key=${gap.from}>
      <th scope="row"><a href=${intervalHref(gap)}>${span(gap.from, gap.to)}</a></th>
      <td class="number">${count(gap.intervals)}</td>
      <td class="number">
        ${count(gap.offsets)}${gap.gone > 0 && html`<span class="bad"> (${count(gap.gone)} lost)</span>`}
      </td>
      <td>${gap.command.length > 0 && html`<${Code} text=${shellText(gap.command)} />`}</td>
      <td><button type="button" onClick=${() => openTrigger(gap.conf)}
        aria-label=${`Fill gap ${span(gap.from, gap.to)}`}>Fill gap…</button></td>
    </tr>`)}</tbody>
  </table><//>`;
}

function Stuck({ now, open }) {
  const { status } = usePage();
  const stuck = status.grants.filter((one) => one.stuck);
  return html`<${Problem} title=${counted(stuck.length, "stuck grant")} open=${open}
    text="Planned a day ago or earlier, and not committed. Clear the run in Airflow, or release the interval.">
    <${First} items=${stuck} what="grants" max=${ROWS_MAX}>${(shown) => html`<${Scrolling} label="Stuck grants"><table>
      <${Columns} names=${["Interval", "Granted to run", "Planned", "Command that releases it"]} />
      <tbody>${shown.map((one) => html`<tr key=${one.from}>
        <th scope="row"><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
        <td><${RunLink} dag=${one.dag} run=${one.run} clear=${one.clear} /></td>
        <td class="time">${one.planned_at === null ? "plan not readable" : html`${instant(one.planned_at)}<br />
          <span class="quiet">${ago(one.planned_at, now)}</span>`}</td>
        <td><${Code} text=${shellText(one.release)} /></td>
      </tr>`)}</tbody>
    </table><//>`}<//>
  <//>`;
}

function Pending({ open, onShow }) {
  const { status } = usePage();
  const outputs = [...new Set(status.pending.map((one) => one.output))].sort();
  const rows = outputs.map((output) => {
    const pending = status.pending.filter((one) => one.output === output);
    return { output, pending, started: pending.filter((one) => one.in_progress).length };
  });
  return html`<${Problem} title=${counted(status.pending.length, "pending output")} open=${open}
    text="Intervals that an output lacks. Each run publishes all of them: clear task publish of the latest run."
    actions=${html`<${ShowButton} id="pending" onShow=${onShow} />`}>
    <${Scrolling} label="Pending outputs"><table>
      <${Columns} names=${["Output", "Target", { text: "Intervals pending", number: true },
        { text: "In progress", number: true }, "From the first to the last"]} />
      <tbody>${rows.map(({ output, pending, started }) => html`<tr key=${output}>
        <th scope="row">${output}</th>
        <td>${status.outputs[output]}</td>
        <td class="number">${count(pending.length)}</td>
        <td class="number">${count(started)}</td>
        <td>${span(pending[0].from, pending.at(-1).to)}</td>
      </tr>`)}</tbody>
    </table><//>
  <//>`;
}

function Unregistered({ open }) {
  const { status } = usePage();
  return html`<${Problem} title=${counted(status.unregistered.length, "pending registration")} open=${open}
    text="Catalogs that lack the last commit. Each run registers it: clear task publish of the latest run.">
    <${Scrolling} label="Pending registrations"><table>
      <${Columns} names=${["Registration", "Target", { text: "Has version", number: true },
        { text: "Last commit", number: true }]} />
      <tbody>${status.unregistered.map((one) => html`<tr key=${one.registration}>
        <th scope="row">${one.registration}</th>
        <td>${status.registrations[one.registration]}</td>
        <td class="number">${one.registered === null ? "none" : count(one.registered)}</td>
        <td class="number">${count(one.version)}</td>
      </tr>`)}</tbody>
    </table><//>
  <//>`;
}

function Stale({ open, onShow }) {
  const { status, openTrigger } = usePage();
  return html`<${Problem} title=${counted(status.stale.length, "stale interval")} open=${open}
    text="Rows of their lookback were replaced after they were read."
    actions=${[
      html`<${ShowButton} id="stale" onShow=${onShow} />`,
      html`<button type="button" class="primary" onClick=${() => openTrigger({ mode: "refresh" })}>
        Refresh stale intervals…
      </button>`,
    ]}>
    <${First} items=${status.stale} what="intervals" max=${ROWS_MAX}>${(shown) => html`
      <${Scrolling} label="Stale intervals"><table>
        <${Columns} names=${["Interval", "Changed since"]} />
        <tbody>${shown.map((one) => html`<tr key=${one.from}>
          <th scope="row"><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
          <td><a href=${intervalHref(one.changed)}>${span(one.changed.from, one.changed.to)}</a></td>
        </tr>`)}</tbody>
      </table><//>`}<//>
  <//>`;
}

function AllDead({ open, onShow }) {
  const { status } = usePage();
  const { all_dead: dead } = status;
  const subject = dead.length === 1 ? "1 interval has" : `${count(dead.length)} intervals have`;
  return html`<${Problem} title=${`${subject} only dead letters`} open=${open}
    text="No record was decoded. The declaration may not fit the records."
    actions=${[
      html`<${ShowButton} id="all_dead" onShow=${onShow} />`,
      html`<a class="button" href="#dead-letters">Dead letters</a>`,
    ]}>
    <${SpanList} spans=${dead} href=${deadLettersHref} />
  <//>`;
}

function Lost({ open, onShow }) {
  const { status } = usePage();
  const subject = status.lost.length === 1 ? "1 interval has" : `${count(status.lost.length)} intervals have`;
  return html`<${Problem} title=${`${subject} lost offsets`} open=${open}
    text=${`${counted(status.totals.lost, "offset")} that the topics no longer had; a run accepted the loss.`}
    actions=${html`<${ShowButton} id="lost" onShow=${onShow} />`}>
    <${SpanList} spans=${status.lost} href=${intervalHref} />
  <//>`;
}

function SpanList({ spans, href }) {
  return html`<${First} items=${spans} what="intervals" max=${ROWS_MAX}>${(shown) => html`<ul class="spans">
    ${shown.map((one) => html`<li key=${one.from}><a href=${href(one)}>${span(one.from, one.to)}</a></li>`)}
  </ul>`}<//>`;
}

/** Some dead letters are usual, and no problem by themselves. */
function SomeDead() {
  const { status } = usePage();
  const { dead_letters: dead, records } = status.totals;
  if (!dead) return null;
  return html`<p class="note"><a href="#dead-letters">${counted(dead, "dead letter")}</a>
    <span> (${share(dead, records + dead)} of all records).</span></p>`;
}

function sum(items, name) {
  return items.reduce((total, one) => total + one[name], 0);
}
