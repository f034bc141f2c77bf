/** The files of an interval: sums by table, and each file with its key. */

import { html } from "./vendor/preact-htm.js";
import { usePage } from "./context.js";
import { Code, Columns, First, Scrolling } from "./elements.js";
import { bytes, count, counted } from "./format.js";
import { objectHref } from "./links.js";

const FILES_SHOWN = 20;
const number = (text) => ({ text, number: true });

/** Shows the files that a report names. */
export function Files({ report }) {
  const tables = Object.entries(report.tables);
  if (!tables.length) return html`<p class="quiet">The interval has no rows, so it has no files.</p>`;
  return html`
    <${Scrolling} label="Files by table"><table>
      <${Columns} names=${["Table", number("Files"), number("Rows"), number("Size")]} />
      <tbody>${tables.map(([name, table]) => html`<tr key=${name}>
        <th scope="row">${name}</th>
        <td class="number">${count(table.files)}</td>
        <td class="number">${count(table.rows)}</td>
        <td class="number">${bytes(table.bytes)}</td>
      </tr>`)}</tbody>
    </table><//>
    <p class="note">Named by the <a href=${objectHref(report.key)}>report</a> of attempt <code>${report.attempt}</code>,
      written by tallystick ${report.library}.</p>
    <details><summary>${counted(report.files.length + report.files_left_out, "file")}</summary>
      <${First} items=${report.files} what="files" max=${FILES_SHOWN}>
        ${(shown) => html`<${FileTable} files=${shown} />`}
      <//>
      ${report.files_left_out > 0 && html`<p class="note">
        The report also has ${counted(report.files_left_out, "file")} that ${report.files_left_out === 1 ? "is" : "are"}
        <span> </span>not listed here.
      </p>`}
    </details>
  `;
}

function FileTable({ files }) {
  const { status } = usePage();
  return html`<${Scrolling} label="Files"><table>
    <${Columns} names=${["Table", number("Rows"), number("Size"), "Object"]} />
    <tbody>${files.map((file) => html`<tr key=${file.key}>
      <td>${file.table}</td>
      <td class="number">${count(file.rows)}</td>
      <td class="number">${bytes(file.bytes)}</td>
      <td><${Code} text=${`${status.uri}/${file.key}`} /></td>
    </tr>`)}</tbody>
  </table><//>`;
}
