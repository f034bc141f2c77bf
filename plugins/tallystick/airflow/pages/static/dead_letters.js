/** The view of dead letters: their kinds and fields with counts, samples, and the intervals that contain them. */

import { html } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { usePage } from "./context.js";
import { Card, Columns, CopyButton, Facts, First, Scrolling, ViewHeading } from "./elements.js";
import { clock, count, counted, share, span } from "./format.js";
import { deadLettersHref, intervalHref } from "./links.js";
import { Answered, useAnswer } from "./load.js";
import { DAG } from "./place.js";

const SAMPLES = 3;
const number = (text) => ({ text, number: true });

/** Shows the dead letters of the lake, or those from `from` to `to`. */
export function DeadLettersView({ from = null, to = null }) {
  const { status, openTrigger } = usePage();
  const answer = useAnswer(lakeUrl(DAG, "dead-letters", { from, to, samples: SAMPLES }), status.version);
  const replay = () => openTrigger({ mode: "dead_letters", from: from ?? "", to: to ?? "" });
  return html`
    <div class="view-head">
      <${ViewHeading}>Dead letters${from && html`<span> from ${span(from, to)}</span>`}<//>
      <div class="actions">
        ${from && html`<a class="button" href="#dead-letters">All intervals</a>`}
        ${answer.data?.count > 0 && html`<button type="button" class="primary" onClick=${replay}>
          Replay dead letters…
        </button>`}
      </div>
    </div>
    <${Answered} answer=${answer} what="dead letters">${(found) => html`<${Kinds} found=${found} />`}<//>
  `;
}

function Kinds({ found }) {
  if (!found.count) {
    return html`<div class="card">
      <p class="fine">There are no dead letters among ${counted(found.records, "record")}.</p>
    </div>`;
  }
  return html`
    <${Card} level=${3} title=${counted(found.count, "dead letter")}>
      <p>${share(found.count, found.records)} of ${counted(found.records, "record")}. A record is a dead letter if it
        does not fit the declaration. After the declaration was corrected, replay them.</p>
      <${Scrolling} label="Kinds of dead letters"><table>
        <${Columns} names=${["Kind", "Field", number("Count"), number("Share"), number("Intervals"),
          "Part of all dead letters"]} />
        <tbody>${found.kinds.map((kind) => html`<tr key=${nameOf(kind)}>
          <th scope="row">${kind.kind}</th>
          <td>${kind.field ?? html`<span class="quiet">whole record</span>`}</td>
          <td class="number">${count(kind.count)}</td>
          <td class="number">${share(kind.count, found.count)}</td>
          <td class="number">${count(kind.intervals.length)}</td>
          <td class="bar-cell"><div class="account-bar"><span class="class-dead_letters"
            style=${{ width: `${(100 * kind.count) / found.count}%` }}></span></div></td>
        </tr>`)}</tbody>
      </table><//>
      ${!found.samples_shown && html`<p class="note">
        The records themselves are not shown: the server is set to show only counts.
      </p>`}
    <//>
    ${found.kinds.map((kind) => html`<${Kind} key=${nameOf(kind)} kind=${kind} />`)}
  `;
}

function Kind({ kind }) {
  const sample = (one) => html`<${Sample} key=${`${one.topic} ${one.partition} ${one.offset}`} sample=${one} />`;
  return html`<${Card} level=${3} title=${`${nameOf(kind)}: ${count(kind.count)}`}>
    ${kind.samples.length > 0 && html`<details open><summary>${counted(kind.samples.length, "sample")}</summary>
      ${kind.samples.map(sample)}
    </details>`}
    <details><summary>${counted(kind.intervals.length, "interval")}</summary>
      <${First} items=${kind.intervals} what="intervals">${(shown) => html`<${IntervalTable} intervals=${shown} />`}<//>
    </details>
  <//>`;
}

function Sample({ sample }) {
  return html`<div class="sample">
    <p><strong>${sample.reason}</strong></p>
    <${Facts} pairs=${[
      ["Topic", sample.topic],
      ["Partition", count(sample.partition)],
      ["Offset", count(sample.offset)],
      ["Time", clock(sample.at)],
      ["Interval", html`<a href=${intervalHref(sample)}>${span(sample.from, sample.to)}</a>`],
      ["Headers", sample.headers],
    ]} />
    <${Bytes} name="Key" bytes=${sample.key} />
    <${Bytes} name="Value" bytes=${sample.value} />
  </div>`;
}

function Bytes({ name, bytes }) {
  if (bytes === null) {
    return html`<p class="bytes"><span class="bytes-name">${name}</span> <span class="quiet">null</span></p>`;
  }
  const notes = [
    counted(bytes.bytes, "byte"),
    bytes.form === "base64" && "not UTF-8, in base64",
    sizeOf(bytes) < bytes.bytes && "only the beginning",
  ];
  return html`<div class="bytes">
    <span class="bytes-name">${name}</span> <span class="quiet">${notes.filter(Boolean).join(", ")}</span>
    <${CopyButton} text=${bytes.shown} label=${`Copy ${name.toLowerCase()}`} />
    <pre tabindex="0">${bytes.shown}</pre>
  </div>`;
}

/** The number of bytes that are shown; base64 has four characters for three of them. */
function sizeOf({ form, shown }) {
  return form === "text" ? new TextEncoder().encode(shown).length : shown.length * 0.75;
}

function IntervalTable({ intervals }) {
  const { openTrigger } = usePage();
  return html`<${Scrolling} label="Intervals with dead letters"><table>
    <${Columns} names=${["Interval", number("Dead letters"), { text: "Link", hidden: true },
      { text: "Action", hidden: true }]} />
    <tbody>${intervals.map((one) => html`<tr key=${one.from}>
      <th scope="row"><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
      <td class="number">${count(one.count)}</td>
      <td><a href=${deadLettersHref(one)}>Only these</a></td>
      <td><button type="button" onClick=${() => openTrigger({ mode: "dead_letters", from: one.from, to: one.to })}
        aria-label=${`Replay dead letters of ${span(one.from, one.to)}`}>Replay dead letters…</button></td>
    </tr>`)}</tbody>
  </table><//>`;
}

function nameOf({ kind, field }) {
  return field === null ? kind : `${kind}, field ${field}`;
}
