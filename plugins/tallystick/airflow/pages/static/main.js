/** Starts the page: all lakes, or the views of one lake with its status, which is polled. */

import { html, render, useEffect, useErrorBoundary, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { StatusPoll } from "./api.js";
import { Commits } from "./commits.js";
import { CompareView } from "./compare.js";
import { LakePage } from "./context.js";
import { DeadLettersView } from "./dead_letters.js";
import { ErrorBox, Sentence } from "./elements.js";
import { Followed } from "./follow.js";
import { counted } from "./format.js";
import { Head } from "./head.js";
import { IntervalView } from "./interval.js";
import { LagView } from "./lag.js";
import { LakesPage } from "./lakes.js";
import { Ledger } from "./ledger.js";
import { ObjectView } from "./object.js";
import { Overview } from "./overview.js";
import { BASE, DAG } from "./place.js";
import { useRoute } from "./route.js";
import { followTheme } from "./theme.js";
import { TriggerDialog } from "./trigger.js";

const VIEWS = {
  overview: { title: "", show: () => html`<${Overview} />` },
  interval: { title: "Interval", show: ({ from, to }) => html`<${IntervalView} from=${from} to=${to} />` },
  commits: { title: "Commits", show: () => html`<${Commits} />` },
  compare: { title: "Compare", show: ({ left, right }) => html`<${CompareView} left=${left} right=${right} />` },
  "dead-letters": { title: "Dead letters", show: ({ from, to }) => html`<${DeadLettersView} from=${from} to=${to} />` },
  lag: { title: "Lag", show: () => html`<${LagView} />` },
  object: { title: "Object", show: ({ objectKey }) => html`<${ObjectView} objectKey=${objectKey} />` },
  unknown: { title: "No such view", show: () => html`<p>There is no such view. <a href="#">Overview</a></p>` },
};

function LakeApp() {
  const route = useRoute();
  const [said, announce] = useState("");
  const [preset, openTrigger] = useState(null);
  const [followed, setFollowed] = useState(null);
  const { status, error, poll } = useStatus(announce);
  const ledger = useMemo(() => status && new Ledger(status), [status]);
  useTitle(route, status);
  const version = status?.version ?? 0;
  const triggered = (run) => {
    setFollowed({ run, version });
    poll.hurry(true);
    announce(`Run ${run} was triggered. The page shows when the lake changes.`);
  };
  return html`<${LakePage.Provider} value=${{ status, ledger, openTrigger, announce }}>
    ${!status && html`<${NoStatus} error=${error} onTrigger=${openTrigger} />`}
    ${status && html`<${Head} view=${route.view} />`}
    ${status && html`<${View} key=${route.hash} route=${route} />`}
    <div class="notices">
      ${status && error && html`<${ErrorBox} error=${error} title="The page may be out of date." />`}
      ${followed && html`<${Followed} key=${followed.run} followed=${followed} version=${version} announce=${announce}
        onEnd=${() => poll.hurry(false)} onClose=${() => setFollowed(null)} />`}
    </div>
    ${preset && html`<${TriggerDialog} preset=${preset} onTriggered=${triggered} onClose=${() => openTrigger(null)} />`}
    <div role="status" class="visually-hidden">${said}</div>
  <//>`;
}

function View({ route }) {
  const [failure] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    if (route.view !== "overview") window.scrollTo(0, 0);
  }, []);
  if (failure) {
    const error = { message: String(failure), hint: "Load the page again." };
    return html`<${ErrorBox} title="This view cannot be shown." error=${error} />`;
  }
  return VIEWS[route.view].show(route);
}

/** Shown as long as there is no status: it is loading, there is nothing yet, or an error. */
function NoStatus({ error, onTrigger }) {
  if (!error) return html`<p class="quiet">Loading the lake…</p>`;
  const head = html`<header class="page-head"><div class="title-row"><h1>${DAG}</h1>
    <div class="actions"><a class="button" href=${`${BASE}/`}>All lakes</a></div></div></header>`;
  if (error.kind !== "nothing_planned") return html`${head}<${ErrorBox} error=${error} />`;
  return html`${head}<section class="card empty">
    <h2 class="card-title">Nothing has been planned yet</h2>
    <p>The lake begins with the first run of the DAG.</p>
    <p class="hint"><${Sentence} text=${error.hint} /></p>
    <button type="button" class="primary" onClick=${() => onTrigger({})}>Trigger run…</button>
  </section>`;
}

function useStatus(announce) {
  const [answer, setAnswer] = useState({ status: null, error: null });
  const poll = useRef(null);
  const last = useRef(null);
  useEffect(() => {
    poll.current = new StatusPoll(DAG, (found) => {
      if (last.current && found.status !== last.current) announce(changeText(last.current, found.status));
      last.current = found.status;
      setAnswer(found);
    });
    poll.current.start();
    return () => poll.current.stop();
  }, []);
  return { ...answer, poll: poll.current };
}

function changeText(before, after) {
  const committed = ({ states }) => states.committed + states.replacing;
  return [
    `The lake has changed to version ${after.version}.`,
    `${counted(committed(after), "interval")} committed, before ${committed(before)}.`,
    `${counted(after.gaps.length, "gap")}.`,
  ].join(" ");
}

function useTitle({ view }, status) {
  const name = status?.pipeline ?? DAG;
  useEffect(() => {
    const { title } = VIEWS[view];
    document.title = title ? `${title} · ${name} · Lake` : `${name} · Lake`;
  }, [view, name]);
}

followTheme();
const page = document.getElementById("page");
page.replaceChildren();
render(html`<${DAG ? LakeApp : LakesPage} />`, page);
