/** Addresses of views of this page and of pages of Airflow, and links that also work in a frame. */

import { html } from "./vendor/preact-htm.js";
import { iso } from "./format.js";
import { AIRFLOW, BASE, DAG, FRAMED } from "./place.js";

/** Return the hash of a view; each part is encoded, but characters of times stay readable. */
export function viewHref(view, ...parts) {
  const encoded = parts.map((part) => encodeURIComponent(part).replaceAll("%3A", ":"));
  return `#${[view, ...encoded].join("/")}`;
}

/** Return the hash of the view of an interval. */
export function intervalHref({ from, to }) {
  return viewHref("interval", iso(from), iso(to));
}

/** Return the hash of the view of the dead letters of a span. */
export function deadLettersHref({ from, to }) {
  return viewHref("dead-letters", iso(from), iso(to));
}

/** Return the hash of the view of an object of the ledger. */
export function objectHref(key) {
  return viewHref("object", ...key.split("/"));
}

/** Return the address of the page of a lake. */
export function lakeHref(dag) {
  return `${BASE}/dags/${encodeURIComponent(dag)}/`;
}

/** Return the address of a DAG run in Airflow. */
export function runHref(dag, run) {
  return `${AIRFLOW}/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`;
}

/** Return the address of a task of a run in Airflow; with a try, of its log. */
export function taskHref(dag, run, task, tryNumber = null) {
  const address = `${runHref(dag, run)}/tasks/${encodeURIComponent(task)}`;
  return tryNumber === null ? address : `${address}?try_number=${tryNumber}`;
}

/** Return the address at which a user logs in to Airflow and then returns to this page. */
export function loginHref() {
  return `${AIRFLOW}/api/v2/auth/login?next=${encodeURIComponent(addressAround())}`;
}

function addressAround() {
  try {
    return window.parent.location.href;
  } catch {
    return location.href; // The document around is of another host.
  }
}

/** Shows a link to a page of Airflow. In Airflow's frame it replaces the page around the frame. */
export function AirflowLink({ href, children, title }) {
  return html`<a href=${href} title=${title} onClick=${openAround} onAuxClick=${openAround}>${children}</a>`;
}

/** Shows the link to a run; the DAG is named if it is not the one of this page. */
export function RunLink({ dag, run, clear = 0 }) {
  const name = dag === DAG ? run : `${dag}: ${run}`;
  const cleared = clear > 0 && html` <span class="quiet">cleared ${clear}×</span>`;
  return html`<span class="run"><${AirflowLink} href=${runHref(dag, run)}>${name}<//>${cleared}</span>`;
}

/** The sandbox of the frame forbids links that leave it, so the link is followed in the document around it. */
function openAround(event) {
  const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1;
  if (!FRAMED || event.button > 1) return;
  let around;
  try {
    around = window.parent.document;
  } catch {
    return; // A document of another host: the browser decides.
  }
  event.preventDefault();
  const link = around.createElement("a");
  link.href = event.currentTarget.href;
  if (elsewhere) {
    link.target = "_blank";
    link.rel = "noopener";
  }
  around.body.append(link);
  link.click();
  link.remove();
}
