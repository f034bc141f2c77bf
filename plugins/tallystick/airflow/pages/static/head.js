/** The head of a lake's page: its name, its state in a line, and the links to its views. */

import { html } from "./vendor/preact-htm.js";
import { usePage } from "./context.js";
import { CopyButton } from "./elements.js";
import { ago, clock, instant } from "./format.js";
import { useNow } from "./load.js";
import { BASE } from "./place.js";

const TICK_MS = 30_000;
const LINKS = [
  { view: "overview", href: "#", text: "Overview" },
  { view: "commits", href: "#commits", text: "Commits" },
  { view: "dead-letters", href: "#dead-letters", text: "Dead letters" },
  { view: "lag", href: "#lag", text: "Lag" },
];
// The view in the links that a view without a link belongs to.
const PARTS = { interval: "overview", compare: "commits" };

/** Shows the head of the page; `view` is the current one. */
export function Head({ view }) {
  const { status, openTrigger } = usePage();
  const now = useNow(TICK_MS);
  const current = PARTS[view] ?? view;
  return html`<header class="page-head">
    <div class="title-row">
      <h1>${status.pipeline}</h1>
      <div class="actions">
        <${CopyButton} text=${location.href} label="Copy link" />
        <a class="button" href=${`${BASE}/`}>All lakes</a>
        <button type="button" onClick=${() => openTrigger({})}>Trigger run…</button>
      </div>
    </div>
    <p class="facts-line">
      <span><code>${status.uri}</code></span>
      <span>version ${status.version}</span>
      <span>last commit ${commitText(status.committed_at, now)}</span>
      ${status.from && html`<span>ledger from ${instant(status.from)} to ${instant(status.to)}</span>`}
      <span>all times are UTC</span>
    </p>
    <nav class="views" aria-label="Views">
      ${LINKS.map((link) => html`<a key=${link.view} href=${link.href}
        aria-current=${link.view === current ? "page" : undefined}>${link.text}</a>`)}
    </nav>
  </header>`;
}

function commitText(at, now) {
  return at === null ? "not known" : `${clock(at)} (${ago(at, now)})`;
}
