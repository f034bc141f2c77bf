/** The dialog that triggers a run by Airflow's REST API, with the session of the user. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { airflowUrl, getJson, postJson } from "./api.js";
import { CopyButton, ErrorBox } from "./elements.js";
import { RunLink } from "./links.js";
import { DAG } from "./place.js";
import { allowed, bodyOf, formOf, mistakeOf, MODES, SWITCHES } from "./trigger_request.js";

const URL_OF_RUNS = airflowUrl("dags", DAG, "dagRuns");

/** Shows the dialog, filled in from `preset`. `onTriggered(run)` is called with the id of the new run. */
export function TriggerDialog({ preset, onTriggered, onClose }) {
  const dialog = useRef(null);
  const [form, setForm] = useState(() => ({ ...formOf(preset), at: Date.now() }));
  const [sent, setSent] = useState({ state: "editing" });
  const paused = usePaused();
  useLayoutEffect(() => {
    dialog.current.showModal();
  }, []);
  const change = (changed) => {
    setForm({ ...form, ...changed, at: Date.now() });
    setSent({ state: "editing" });
  };
  const submit = async (event) => {
    event.preventDefault();
    if (mistakeOf(form) || sent.state === "sending") return;
    setSent({ state: "sending" });
    try {
      const { dag_run_id: run } = await postJson(URL_OF_RUNS, bodyOf(form, form.at));
      setSent({ state: "done", run });
      onTriggered(run);
    } catch (error) {
      setSent({ state: "editing", error });
    }
  };
  return html`<dialog class="trigger" aria-labelledby="trigger-title" ref=${dialog} onClose=${onClose}>
    <h2 id="trigger-title" class="card-title">Trigger a run of DAG ${DAG}</h2>
    ${sent.state === "done"
      ? html`<${Done} run=${sent.run} paused=${paused} dialog=${dialog} />`
      : html`<${Form} form=${form} change=${change} submit=${submit} sent=${sent} paused=${paused} dialog=${dialog} />`}
  </dialog>`;
}

function Form({ form, change, submit, sent, paused, dialog }) {
  const mistake = mistakeOf(form);
  const mode = MODES.find((one) => one.id === form.mode);
  return html`<form onSubmit=${submit} novalidate>
    ${paused && html`<${Paused} />`}
    <label class="field"><span>Mode</span>
      <select value=${form.mode} onChange=${(event) => change({ mode: event.target.value })}>
        ${MODES.map(({ id }) => html`<option key=${id} value=${id} selected=${id === form.mode}>${id}</option>`)}
      </select>
    </label>
    <p class="hint" id="mode-text">${mode.text} ${mode.dateless ?? ""}</p>
    <div class="dates">
      <${DateField} name="from" label="From, inclusive (UTC)" form=${form} change=${change} mistake=${mistake} />
      <${DateField} name="to" label="To, exclusive (UTC)" form=${form} change=${change} mistake=${mistake} />
    </div>
    <p class="mistake" id="mistake" role="status">${mistake ? mistake.text : "\u00a0"}</p>
    <${Switches} form=${form} change=${change} />
    <${Request} form=${form} />
    ${sent.error && html`<${Refused} error=${sent.error} />`}
    <div class="actions end">
      <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
      <button type="submit" class="primary" disabled=${mistake !== null || sent.state === "sending"}>
        ${sent.state === "sending" ? "Sending…" : "Trigger run"}
      </button>
    </div>
  </form>`;
}

function DateField({ name, label, form, change, mistake }) {
  const wrong = mistake?.field === name;
  return html`<label class="field"><span>${label}</span>
    <input type="text" name=${name} value=${form[name]} autocomplete="off" spellcheck="false"
      placeholder=${form.mode === "replace" ? "2013-01-04T06:00:00Z" : "empty"}
      aria-invalid=${wrong ? "true" : "false"} aria-describedby="mistake"
      onInput=${(event) => change({ [name]: event.target.value })} />
  </label>`;
}

function Switches({ form, change }) {
  const [open] = useState(() => SWITCHES.some(({ id }) => form[id]));
  return html`<details open=${open}>
    <summary>Only if intended</summary>
    <div class="switches">${SWITCHES.map((one) => {
      const possible = allowed(form, one);
      return html`<label class="switch ${possible ? "" : "off"}" key=${one.id}>
        <input type="checkbox" name=${one.id} checked=${form[one.id] && possible} disabled=${!possible}
          onChange=${(event) => change({ [one.id]: event.target.checked })} />
        <span><strong>${one.label}</strong> <code>${one.id}</code><br />
          <span class="quiet">${possible ? one.text : `Not with mode ${form.mode}.`}</span></span>
      </label>`;
    })}</div>
  </details>`;
}

function Request({ form }) {
  const body = JSON.stringify(bodyOf(form, form.at), null, 2);
  return html`<details>
    <summary>Request</summary>
    <pre class="request" tabindex="0">${`POST ${URL_OF_RUNS}\n\n${body}`}</pre>
    <${CopyButton} text=${body} label="Copy body" />
  </details>`;
}

function Refused({ error }) {
  const denied = error.status === 401 || error.status === 403;
  const title = denied ? "You may not trigger this DAG." : "The run was not triggered.";
  return html`<${ErrorBox} error=${error} title=${title} />`;
}

function Paused() {
  return html`<div class="box warning"><p>DAG ${DAG} is paused: the run waits until the DAG is unpaused.</p></div>`;
}

function Done({ run, paused, dialog }) {
  const close = useRef(null);
  useEffect(() => close.current.focus(), []);
  return html`<div>
    <p role="status">Run <${RunLink} dag=${DAG} run=${run} /> was triggered.</p>
    ${paused && html`<${Paused} />`}
    <p class="quiet">This page follows it and shows when the lake changes.</p>
    <div class="actions end">
      <button type="button" class="primary" ref=${close} onClick=${() => dialog.current.close()}>Close</button>
    </div>
  </div>`;
}

/** Return true if the DAG is paused; false if it is not, or if the user may not read that. */
function usePaused() {
  const [paused, setPaused] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    getJson(airflowUrl("dags", DAG), { signal: stop.signal }).then(
      (dag) => setPaused(dag.is_paused === true),
      () => {}, // The warning is an extra; without it the run can still be triggered.
    );
    return () => stop.abort();
  }, []);
  return paused;
}
