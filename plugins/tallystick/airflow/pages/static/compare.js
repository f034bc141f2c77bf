/** The view that compares two commits: intervals, tables and the declaration. */

import { html } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { Card, Columns, First, Scrolling, ViewHeading } from "./elements.js";
import { count, counted, signed, span } from "./format.js";
import { intervalHref } from "./links.js";
import { Answered, useAnswer } from "./load.js";
import { DAG } from "./place.js";

const ROWS_MAX = 50;
const number = (text) => ({ text, number: true });

/** Shows what the commits after version `left` up to version `right` have changed. */
export function CompareView({ left, right }) {
  const answer = useAnswer(lakeUrl(DAG, "compare", { left, right }));
  return html`
    <${ViewHeading}>Version ${left} compared with version ${right}<//>
    <${Answered} answer=${answer} what="the comparison">
      ${(found) => html`
        <p class="note">${counted(found.commits, "commit")} after version ${found.left} up to version ${found.right}.
          <span> </span><a href="#commits">All commits</a></p>
        <${Intervals} intervals=${found.intervals} />
        <${Tables} tables=${found.tables} />
        <${Declaration} options=${found.declaration} />
      `}
    <//>
  `;
}

function Intervals({ intervals }) {
  const names = [
    "Interval", number("Records before"), number("Records after"), number("Difference"), number("Dead letters before"),
    number("Dead letters after"), number("Difference"), number("Commits"), "Declaration and job",
  ];
  return html`<${Card} level=${3} title=${counted(intervals.length, "interval")}>
    ${intervals.length === 0 && html`<p class="quiet">No interval was committed.</p>`}
    ${intervals.length > 0 && html`<${First} items=${intervals} what="intervals" max=${ROWS_MAX}>${(shown) => html`
      <${Scrolling} label="Intervals"><table>
        <${Columns} names=${names} />
        <tbody>${shown.map((one) => html`<${IntervalRow} key=${one.from} one=${one} />`)}</tbody>
      </table><//>`}<//>`}
  <//>`;
}

function IntervalRow({ one }) {
  const { before, after } = one;
  const cells = (name) => html`
    <td class="number">${before ? count(before[name]) : html`<span class="quiet">gap</span>`}</td>
    <td class="number">${count(after[name])}</td>
    <td class="number">${signed(after[name] - (before ? before[name] : 0))}</td>`;
  return html`<tr>
    <th scope="row"><a href=${intervalHref(one)}>${span(one.from, one.to)}</a></th>
    ${cells("records")}
    ${cells("dead_letters")}
    <td class="number">${count(one.commits)}</td>
    <td>${one.code_changed ? "changed" : html`<span class="quiet">${before ? "unchanged" : "new"}</span>`}</td>
  </tr>`;
}

function Tables({ tables }) {
  return html`<${Card} level=${3} title="Tables">
    ${tables.length === 0 && html`<p class="quiet">No table has changed.</p>`}
    ${tables.map((table) => html`<div key=${table.name} class="part">
      <h4>${table.name}</h4>
      <p>${counted(table.files_added, "file")} added, ${counted(table.files_dropped, "file")} dropped.</p>
      ${table.columns.length > 0 && html`<${ColumnTable} table=${table} />`}
      <${Partitioning} rules=${table.partition_by} />
    </div>`)}
  <//>`;
}

function ColumnTable({ table }) {
  return html`<${Scrolling} label=${`Columns of ${table.name}`}><table>
    <${Columns} names=${[number("Column id"), "Before", "After"]} />
    <tbody>${table.columns.map((column) => html`<tr key=${column.id}>
      <th scope="row" class="number">${column.id}</th>
      <td><${Side} value=${column.before} nothing="no such column" /></td>
      <td><${Side} value=${column.after} nothing="no such column" /></td>
    </tr>`)}</tbody>
  </table><//>`;
}

function Partitioning({ rules: [before, after] }) {
  const text = (rules) => (rules === null ? "no table" : rules.join(", ") || "none");
  if (text(before) === text(after)) return null;
  return html`<p>Partitioned by: <code>${text(before)}</code> before, <code>${text(after)}</code> after.</p>`;
}

function Declaration({ options }) {
  return html`<${Card} level=${3} title="Declaration">
    ${options === null && html`<p class="quiet">Not known: the plan of one of the two commits cannot be read.</p>`}
    ${options?.length === 0 && html`<p class="quiet">The declaration is unchanged.</p>`}
    ${options?.length > 0 && html`<${Scrolling} label="Changes of the declaration"><table>
      <${Columns} names=${["Value", "Before", "After"]} />
      <tbody>${options.map((one) => html`<tr key=${one.path}>
        <th scope="row"><code>${one.path}</code></th>
        <td><${Side} value=${one.before} nothing="no value" /></td>
        <td><${Side} value=${one.after} nothing="no value" /></td>
      </tr>`)}</tbody>
    </table><//>`}
  <//>`;
}

function Side({ value, nothing }) {
  if (value === null || value === undefined) return html`<span class="quiet">${nothing}</span>`;
  return html`<code class="wrapped">${typeof value === "string" ? value : JSON.stringify(value)}</code>`;
}
