/** Follows a run that was triggered here, until it has ended or the lake has changed; shows that at the page's edge. */

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { airflowUrl, getJson } from "./api.js";
import { RunLink } from "./links.js";
import { DAG } from "./place.js";

const ASK_MS = 3_000;
const ASK_MAX_MS = 30_000;
const SLOWER = 1.2;
const ENDED = new Set(["success", "failed"]);

/**
 * Shows the state of a run. `followed`: `{run, version}` with the lake's version when it was triggered. `version`: the
 * current one. `onEnd` is called when there is nothing more to wait for.
 */
export function Followed({ followed, version, announce, onEnd, onClose }) {
  const { run } = followed;
  const state = useRunState(run);
  const changed = version !== followed.version;
  const ended = ENDED.has(state);
  useEffect(() => {
    if (!ended) return;
    announce(`Run ${run} has ended: ${state}.`);
    onEnd();
  }, [ended]);
  return html`<div class="notice">
    <p>Run <${RunLink} dag=${DAG} run=${run} />${state ? `: ${state}.` : "."}
      <span> ${lakeText({ changed, ended, version })}</span></p>
    <button type="button" class="plain" onClick=${onClose} aria-label="Close this notice">Close</button>
  </div>`;
}

function lakeText({ changed, ended, version }) {
  if (changed) return `The lake has changed to version ${version}.`;
  return ended ? "The lake is unchanged." : "Waiting for a change of the lake…";
}

/** Return the state of the run in Airflow; empty as long as it is not known. */
function useRunState(run) {
  const [state, setState] = useState("");
  useEffect(() => {
    let timer = 0;
    let stopped = false;
    let delay = ASK_MS;
    const ask = async () => {
      try {
        const found = await getJson(airflowUrl("dags", DAG, "dagRuns", run));
        if (stopped) return;
        setState(found.state);
        if (ENDED.has(found.state)) return;
      } catch {
        // A user may trigger runs without reading them; then only the lake is followed.
      }
      if (!stopped) timer = setTimeout(ask, delay);
      delay = Math.min(ASK_MAX_MS, delay * SLOWER); // A run may wait for hours.
    };
    ask();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [run]);
  return state;
}
