/** The tries of an interval's runs in Airflow, and the reports that attempts have written to the lake. */

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { airflowUrl, getJson } from "./api.js";
import { Columns, Scrolling } from "./elements.js";
import { clock, seconds } from "./format.js";
import { AirflowLink, objectHref, RunLink, taskHref } from "./links.js";

const number = (text) => ({ text, number: true });

/** Shows the reports of attempts; `committed` is the key of the one that was committed. */
export function Reports({ attempts, committed }) {
  if (!attempts.length) return html`<p class="quiet">No attempt has a report in the lake.</p>`;
  return html`<${Scrolling} label="Reports of attempts"><table>
    <${Columns} names=${["Attempt", "Began at", "Committed", "Object"]} />
    <tbody>${attempts.map((one) => html`<tr key=${one.report}>
      <th scope="row"><code>${one.attempt}</code></th>
      <td class="time">${clock(one.began_at)}</td>
      <td>${one.report === committed ? "yes" : "no"}</td>
      <td><a href=${objectHref(one.report)}>report</a></td>
    </tr>`)}</tbody>
  </table><//>`;
}

/** Shows the tries of the tasks of one run, as Airflow has them. */
export function Tries({ dag, run }) {
  const { tries, failed } = useTries(dag, run);
  return html`<div class="tries">
    <p>Run <${RunLink} dag=${dag} run=${run} /></p>
    ${failed && html`<p class="quiet">Not readable in Airflow.</p>`}
    ${!failed && !tries && html`<p class="quiet">Loading tries…</p>`}
    ${tries && html`<${TryTable} dag=${dag} run=${run} tries=${tries} />`}
  </div>`;
}

function TryTable({ dag, run, tries }) {
  if (!tries.length) return html`<p class="quiet">No task has begun.</p>`;
  return html`<${Scrolling} label=${`Tries of run ${run}`}><table>
    <${Columns} names=${["Task", number("Try"), "State", "Started at", number("Duration"), "Log"]} />
    <tbody>${tries.map((one) => html`<tr key=${`${one.task_id} ${one.try_number}`}>
      <th scope="row"><${AirflowLink} href=${taskHref(dag, run, one.task_id)}>${one.task_id}<//></th>
      <td class="number">${one.try_number}</td>
      <td class=${one.state === "failed" ? "bad" : ""}>${(one.state ?? "none").replaceAll("_", " ")}</td>
      <td class="time">${clock(one.start_date)}</td>
      <td class="number">${seconds(one.duration)}</td>
      <td><${AirflowLink} href=${taskHref(dag, run, one.task_id, one.try_number)}>log<//></td>
    </tr>`)}</tbody>
  </table><//>`;
}

function useTries(dag, run) {
  const [found, setFound] = useState({ tries: null, failed: false });
  useEffect(() => {
    const stop = new AbortController();
    setFound({ tries: null, failed: false });
    triesOf(dag, run, stop.signal).then(
      (tries) => setFound({ tries, failed: false }),
      () => stop.signal.aborted || setFound({ tries: null, failed: true }),
    );
    return () => stop.abort();
  }, [dag, run]);
  return found;
}

async function triesOf(dag, run, signal) {
  const instances = airflowUrl("dags", dag, "dagRuns", run, "taskInstances");
  const { task_instances: tasks } = await getJson(instances, { signal });
  const begun = tasks.filter((task) => task.try_number > 0);
  const tries = await Promise.all(
    begun.map((task) => getJson(`${instances}/${encodeURIComponent(task.task_id)}/tries`, { signal })),
  );
  return tries.flatMap((one) => one.task_instances);
}
