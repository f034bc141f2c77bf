/** The view of one object of the ledger, as indented JSON. */

import { html } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { usePage } from "./context.js";
import { Code, CopyButton, ViewHeading } from "./elements.js";
import { Answered, useAnswer } from "./load.js";
import { DAG } from "./place.js";

/** Shows the object with a key. */
export function ObjectView({ objectKey }) {
  const { status } = usePage();
  const answer = useAnswer(lakeUrl(DAG, "object", { key: objectKey }));
  return html`
    <${ViewHeading}>Object of the ledger<//>
    <div class="card">
      <p><${Code} text=${`${status.uri}/${objectKey}`} /></p>
      <${Answered} answer=${answer} what="the object">${(found) => html`<${Json} value=${found} />`}<//>
    </div>
  `;
}

function Json({ value }) {
  const text = JSON.stringify(value, null, 2);
  return html`<div class="actions"><${CopyButton} text=${text} label="Copy JSON" /></div>
    <pre class="json" tabindex="0">${text}</pre>`;
}
