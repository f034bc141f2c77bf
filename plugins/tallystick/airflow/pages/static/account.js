/** The account of an interval: what became of each offset, as a bar and as numbers per partition. */

import { html, useState } from "./vendor/preact-htm.js";
import { Columns, Scrolling } from "./elements.js";
import { count, share } from "./format.js";

/** The classes of offsets, in the order of the bar. */
const CLASSES = [
  { id: "records", label: "Records" },
  { id: "dead_letters", label: "Dead letters" },
  { id: "aborted", label: "Aborted" },
  { id: "control", label: "Control" },
  { id: "absent", label: "Absent" },
  { id: "lost", label: "Lost" },
];
const PARTITIONS_SHOWN_MAX = 20;
const number = (text) => ({ text, number: true });

/** Shows the account of each partition. If there are many, topics are shown first and can be expanded. */
export function Accounts({ accounts }) {
  const [opened, setOpened] = useState(new Set());
  if (!accounts.length) return html`<p class="quiet">The interval has no offsets.</p>`;
  const topics = byTopic(accounts);
  const folded = accounts.length > PARTITIONS_SHOWN_MAX;
  const toggle = (topic) => {
    const changed = new Set(opened);
    if (!changed.delete(topic)) changed.add(topic);
    setOpened(changed);
  };
  const partitions = [...topics.values()].flatMap((one) => one.partitions);
  const sums = [...topics.values()].map((one) => one.sum);
  const widest = folded ? maxOffsets(sums) : maxOffsets(partitions);
  return html`
    <${Key} />
    <${Scrolling} label="Account by partition"><table class="accounts">
      <${Columns} names=${["Topic", number("Partition"), "Offsets", ...CLASSES.map(({ label }) => number(label)),
        number("Sum"), "Shares"]} />
      ${[...topics].map(([topic, { partitions: rows, sum }]) => html`<tbody key=${topic}>
        ${folded && html`<${TopicRow} topic=${topic} sum=${sum} rows=${rows} widest=${widest}
          open=${opened.has(topic)} onToggle=${() => toggle(topic)} />`}
        ${(!folded || opened.has(topic)) && rows.map((one) => html`<${PartitionRow} key=${one.partition} account=${one}
          widest=${folded ? maxOffsets(rows) : widest} />`)}
      </tbody>`)}
    </table><//>
  `;
}

/** Shows one account as a bar whose length is its share of `widest` offsets. */
function AccountBar({ account, widest }) {
  const shown = CLASSES.filter(({ id }) => account[id] > 0);
  const text = shown.map(({ id, label }) => `${label}: ${share(account[id], account.offsets)}`).join(", ");
  return html`<div class="account-bar" title=${text}>
    ${shown.map(({ id }) => html`<span key=${id} class=${`class-${id}`}
      style=${{ width: `${(100 * account[id]) / widest}%` }}></span>`)}
  </div>`;
}

/** Shows the colours of the classes. */
function Key() {
  return html`<p class="keys" aria-hidden="true">
    ${CLASSES.map(({ id, label }) => html`<span key=${id}><span class=${`key class-${id}`}></span>${label}</span>`)}
  </p>`;
}

function TopicRow({ topic, sum, rows, widest, open, onToggle }) {
  return html`<tr class="sum">
    <th scope="rowgroup">
      <button type="button" class="expand" aria-expanded=${open ? "true" : "false"} onClick=${onToggle}>
        <span aria-hidden="true">${open ? "▾" : "▸"}</span> ${topic}
      </button>
    </th>
    <td class="number">all ${count(rows.length)}</td>
    <td></td>
    <${Numbers} account=${sum} />
    <td class="bar-cell"><${AccountBar} account=${sum} widest=${widest} /></td>
  </tr>`;
}

function PartitionRow({ account, widest }) {
  return html`<tr>
    <th scope="row">${account.topic}</th>
    <td class="number">${account.partition}</td>
    <td class="offsets">${count(account.start)} to ${count(account.end)}</td>
    <${Numbers} account=${account} />
    <td class="bar-cell"><${AccountBar} account=${account} widest=${widest} /></td>
  </tr>`;
}

function Numbers({ account }) {
  return [...CLASSES.map(({ id }) => id), "offsets"].map((id) => html`
    <td key=${id} class="number ${account[id] ? "" : "zero"}">${count(account[id])}</td>`);
}

function byTopic(accounts) {
  const topics = new Map();
  for (const account of accounts) {
    const topic = topics.get(account.topic) ?? { partitions: [], sum: { offsets: 0 } };
    topic.partitions.push(account);
    topic.sum.offsets += account.offsets;
    for (const { id } of CLASSES) topic.sum[id] = (topic.sum[id] ?? 0) + account[id];
    topics.set(account.topic, topic);
  }
  return topics;
}

function maxOffsets(accounts) {
  return Math.max(1, ...accounts.map((one) => one.offsets));
}
