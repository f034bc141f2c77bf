/** Where this page is: the address of its app, its DAG, the run that opened it, and Airflow's own address. */

const { base, dag } = document.querySelector('meta[name="tallystick"]').dataset;

/** The address of the app of the pages, without a slash at its end. */
export const BASE = base;

/** The DAG whose lake is shown; empty on the page of all lakes. */
export const DAG = dag;

/** The address of Airflow, without a slash at its end; empty if it is the root of the host. */
export const AIRFLOW = base.replace(/\/tallystick$/, "");

/** The run whose page in Airflow opened this one; empty if it was opened in another way. */
// A run id contains "+", which is a space in a query if it was not encoded. No run id contains a space.
export const RUN_ID = (new URLSearchParams(location.search).get("run_id") ?? "").replaceAll(" ", "+");

/** True if Airflow shows the page in a frame. */
export const FRAMED = window.parent !== window;
