/** The view of the lag: how far the lake is behind its topics, by topic and partition. */

import { html } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { usePage } from "./context.js";
import { Card, Columns, ErrorBox, Facts, Scrolling, ViewHeading } from "./elements.js";
import { clock, count, counted, seconds } from "./format.js";
import { Answered, useAnswer, useNow } from "./load.js";
import { DAG } from "./place.js";

const LAG_MS = 60_000;
const OPEN_MAX = 24;
const SOON = 0.8; // The share of the retention from which on uncommitted records are near their deletion.
const number = (text) => ({ text, number: true });

/** Shows the lag; it is read again every minute. */
export function LagView() {
  const { status } = usePage();
  const now = useNow(LAG_MS);
  const answer = useAnswer(lakeUrl(DAG, "lag"), `${status.version} ${Math.floor(now / LAG_MS)}`);
  return html`
    <${ViewHeading}>Lag<//>
    <${Answered} answer=${answer} what="the lag">${(lag) => html`<${Topics} lag=${lag} />`}<//>
  `;
}

function Topics({ lag }) {
  if (lag.error) {
    return html`<${ErrorBox} error=${lag.error} title=${`Connection ${lag.connection} to Kafka cannot be read.`} />`;
  }
  const partitions = lag.topics.reduce((sum, topic) => sum + topic.partitions.length, 0);
  return html`
    <p class="note">Read at ${clock(lag.at)} with connection <code>${lag.connection}</code>. The lag counts the offsets
      after the latest committed interval.</p>
    ${lag.topics.length === 0 && html`<div class="card"><p class="quiet">The lake has no open topic.</p></div>`}
    ${lag.topics.map((topic) => html`<${Topic} key=${topic.name} topic=${topic} open=${partitions <= OPEN_MAX} />`)}
  `;
}

function Topic({ topic, open }) {
  return html`<${Card} level=${3} title=${topic.name}>
    <${Facts} pairs=${[
      ["Lag", `${counted(topic.lag, "offset")}`],
      ["Oldest uncommitted record", topic.lag ? ageText(topic.age_s) : "none"],
      ["Retention", topic.kept_s === null ? "not limited by time, or not known" : seconds(topic.kept_s)],
      ["Committed up to", count(topic.read_to)],
      ["End of the topic", count(topic.end)],
      ["In the log before the ledger begins", topic.before > 0 && counted(topic.before, "offset")],
      ["In the log after the ledger ends", topic.after > 0 && counted(topic.after, "offset")],
    ]} />
    <${Warnings} topic=${topic} />
    <details open=${open}><summary>${counted(topic.partitions.length, "partition")}</summary>
      <${Partitions} topic=${topic} />
    </details>
  <//>`;
}

function Warnings({ topic: { gone, age_s: age, kept_s: kept } }) {
  const nearDeletion = !gone && age !== null && kept !== null && age > kept * SOON;
  return [
    gone > 0 && html`<div class="box error"><p>${counted(gone, "offset")} that are not committed are no longer in the
      topic. Their intervals can only be committed with accept_loss.</p></div>`,
    nearDeletion && html`<div class="box warning"><p>The oldest uncommitted record is nearly as old as the retention:
      it may be deleted before it is committed.</p></div>`,
  ];
}

function Partitions({ topic }) {
  const names = [
    number("Partition"), number("Lag"), { text: "Bar", hidden: true }, "Oldest uncommitted record", number("Gone"),
    number("Committed up to"), number("Start"), number("End"),
  ];
  const most = Math.max(1, ...topic.partitions.map((one) => one.lag));
  return html`<${Scrolling} label=${`Partitions of ${topic.name}`}><table>
    <${Columns} names=${names} />
    <tbody>${topic.partitions.map((one, partition) => html`<tr key=${partition}>
      <th scope="row" class="number">${partition}</th>
      <td class="number">${count(one.lag)}</td>
      <td class="bar-cell"><div class="account-bar">
        <${Part} name="lost" offsets=${one.gone} most=${most} />
        <${Part} name="lag" offsets=${one.lag - one.gone} most=${most} />
      </div></td>
      <td>${one.lag ? ageText(one.age_s) : "none"}</td>
      <td class="number ${one.gone ? "bad" : "zero"}">${count(one.gone)}</td>
      <td class="number">${count(one.read_to)}</td>
      <td class="number">${count(one.start)}</td>
      <td class="number">${count(one.end)}</td>
    </tr>`)}</tbody>
  </table><//>`;
}

function Part({ name, offsets, most }) {
  return offsets > 0 && html`<span class=${`class-${name}`} style=${{ width: `${(100 * offsets) / most}%` }}></span>`;
}

function ageText(age) {
  return age === null ? "age not known" : `${seconds(age)} ago`;
}
