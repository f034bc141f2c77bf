/** The view of commits: a time line, and a table in which two commits are chosen to compare them. */

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { getJson, lakeUrl } from "./api.js";
import { CommitChart } from "./commit_chart.js";
import { CommitTable } from "./commit_table.js";
import { usePage } from "./context.js";
import { Card, ErrorBox, ViewHeading } from "./elements.js";
import { counted } from "./format.js";
import { viewHref } from "./links.js";
import { DAG } from "./place.js";

const PAGE = 50;

/** Shows the commits of the lake. */
export function Commits() {
  const { status } = usePage();
  const { commits, before, error, loading, older } = useCommits(status.version);
  const [chosen, setChosen] = useState([]);
  const choose = (version) => {
    setChosen(chosen.includes(version) ? chosen.filter((one) => one !== version) : [...chosen, version].slice(-2));
  };
  const show = (version) => {
    const row = document.getElementById(`commit-${version}`);
    row.scrollIntoView({ block: "center" });
    row.querySelector(".expand").focus({ preventScroll: true });
  };
  return html`
    <${ViewHeading}>Commits<//>
    <${Card} level=${3} title="By time of commit">
      <${CommitChart} commits=${commits} onOpen=${show} />
      <p class="keys">
        <span><span class="key key-records"></span>Records</span>
        <span><span class="key key-dead"></span>Dead letters</span>
      </p>
    <//>
    <${Card} level=${3} title=${commits.length ? `The latest ${counted(commits.length, "commit")}` : "Commits"}
      actions=${html`<${CompareLink} chosen=${chosen} />`}>
      ${loading && !commits.length
        ? html`<p class="quiet">Loading commits…</p>`
        : html`<${CommitTable} commits=${commits} chosen=${chosen} onChoose=${choose} />`}
      ${error && html`<${ErrorBox} error=${error} />`}
      ${before && html`<button type="button" onClick=${older} disabled=${loading}>
        ${loading ? "Loading…" : "Older commits"}
      </button>`}
    <//>
  `;
}

function CompareLink({ chosen }) {
  if (chosen.length < 2) return html`<span class="quiet">Choose two commits to compare them.</span>`;
  const [left, right] = [...chosen].sort((a, b) => a - b);
  return html`<a class="button primary" href=${viewHref("compare", left, right)}>Compare ${left} and ${right}</a>`;
}

/** Return the commits that were loaded, and a function that loads older ones. New commits are added at the top. */
function useCommits(version) {
  const [state, setState] = useState({ commits: [], before: null, error: null, loading: true });
  const load = async (before, signal) => {
    setState((old) => ({ ...old, loading: true, error: null }));
    try {
      const page = await getJson(lakeUrl(DAG, "commits", { limit: PAGE, before }), { signal });
      setState((old) => ({ ...joined(old, page, before), error: null, loading: false }));
    } catch (error) {
      if (!signal?.aborted) setState((old) => ({ ...old, error, loading: false }));
    }
  };
  useEffect(() => {
    const stop = new AbortController();
    load(null, stop.signal);
    return () => stop.abort();
  }, [version]);
  return { ...state, older: () => load(state.before) };
}

/** Join a page of commits to the loaded ones; if commits are missing between the two, only the newest page is kept. */
function joined(old, page, before) {
  if (before !== null) return { commits: [...old.commits, ...page.commits], before: page.before };
  const known = new Set(old.commits.map((one) => one.version));
  const added = page.commits.filter((one) => !known.has(one.version));
  if (!known.size || added.length === page.commits.length) return page;
  return { commits: [...added, ...old.commits], before: old.before };
}
