/** The overview of a lake: figures, what needs a person, the calendar, and the latest commits. */

import { html, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { lakeUrl } from "./api.js";
import { Calendar } from "./calendar.js";
import { CommitTable } from "./commit_table.js";
import { usePage } from "./context.js";
import { Card, Figure } from "./elements.js";
import { count, counted, seconds, share } from "./format.js";
import { GapPanel } from "./gap.js";
import { Legend } from "./legend.js";
import { intervalHref } from "./links.js";
import { Answered, useAnswer, useNow } from "./load.js";
import { DAG, RUN_ID } from "./place.js";
import { Problems } from "./problems.js";

const LATEST = 10;
const LAG_MS = 60_000;

// Kept while other views are shown, so that Back returns to the same place.
let scrolledTo = null;

/** Shows the overview. */
export function Overview() {
  const now = useNow(LAG_MS);
  const calendar = useRef(null);
  const [wanted, setWanted] = useState(new Set());
  useLayoutEffect(() => {
    if (scrolledTo !== null) window.scrollTo(0, scrolledTo);
    const leave = () => {
      scrolledTo = window.scrollY;
    };
    window.addEventListener("hashchange", leave);
    return () => window.removeEventListener("hashchange", leave);
  }, []);
  const show = (id) => {
    setWanted(new Set([id]));
    calendar.current.scrollIntoView({ block: "start" });
    calendar.current.querySelector(".calendar").focus({ preventScroll: true });
  };
  return html`
    <${Figures} now=${now} />
    <${Problems} now=${now} onShow=${show} />
    <div ref=${calendar}><${Intervals} wanted=${wanted} setWanted=${setWanted} /></div>
    <${LatestCommits} />
  `;
}

function Figures({ now }) {
  const { status } = usePage();
  const { totals, states, gaps, grants, pending, topics } = status;
  const stuck = grants.filter((one) => one.stuck).length;
  const committed = states.committed + states.replacing;
  const partitions = Object.values(topics).reduce((sum, one) => sum + one.partitions, 0);
  const { dead_letters: dead } = totals;
  return html`<dl class="figures">
    <${Figure} name="Committed" value=${count(committed)}
      note=${states.replacing ? `${count(states.replacing)} being replaced` : "intervals"} />
    <${Figure} name="Granted" value=${count(states.granted + states.replacing)} tone=${stuck ? "warn" : ""}
      note=${stuck ? `${count(stuck)} stuck` : "intervals"} />
    <${Figure} name="Gaps" value=${count(gaps.length)} tone=${gaps.length ? "bad" : ""}
      note=${gaps.length ? counted(gaps.reduce((sum, gap) => sum + gap.offsets, 0), "offset") : "none"} />
    <${Figure} name="Records" value=${count(totals.records)}
      note=${`${counted(Object.keys(topics).length, "topic")}, ${counted(partitions, "partition")}`} />
    <${Figure} name="Dead letters" value=${count(dead)} note=${share(dead, totals.records + dead)} />
    <${LagFigure} now=${now} />
    ${Object.keys(status.outputs).length > 0 && html`<${Figure} name="Outputs pending" value=${count(pending.length)}
      tone=${pending.length ? "warn" : ""} note=${counted(Object.keys(status.outputs).length, "output")} />`}
  </dl>`;
}

function LagFigure({ now }) {
  const { status } = usePage();
  const { data, error } = useAnswer(lakeUrl(DAG, "lag"), `${status.version} ${Math.floor(now / LAG_MS)}`);
  const name = html`<a href="#lag">Lag</a>`;
  if (!data) return html`<${Figure} name=${name} value="…" note=${error ? "not readable" : "loading"} />`;
  if (data.error) return html`<${Figure} name=${name} value="–" note="Kafka cannot be read" tone="warn" />`;
  const lag = data.topics.reduce((sum, topic) => sum + topic.lag, 0);
  const gone = data.topics.reduce((sum, topic) => sum + topic.gone, 0);
  const ages = data.topics.map((topic) => topic.age_s).filter((age) => age !== null);
  const age = ages.length ? `oldest ${seconds(Math.max(...ages))}` : "age not known";
  return html`<${Figure} name=${name} value=${count(lag)} tone=${gone ? "bad" : ""}
    note=${gone ? `${counted(gone, "offset")} gone` : lag ? age : "none"} />`;
}

function Intervals({ wanted, setWanted }) {
  const { ledger } = usePage();
  const [opened, setOpened] = useState(null);
  const outlined = useMemo(() => (RUN_ID ? ledger.ofRun(DAG, RUN_ID) : null), [ledger]);
  const toggle = (id) => {
    const changed = new Set(wanted);
    if (!changed.delete(id)) changed.add(id);
    setWanted(changed);
  };
  const open = (i) => {
    if (ledger.gapOf(i)) setOpened(ledger.starts[i]);
    else location.hash = intervalHref(ledger.spanOf(i));
  };
  const gap = opened === null ? null : ledger.gapOf(ledger.at(opened));
  const close = () => {
    setOpened(null);
    document.querySelector(".calendar")?.focus();
  };
  if (!ledger.size) return html`<${Card} title="Intervals"><p class="quiet">The ledger has no intervals.</p><//>`;
  const showAll = () => setWanted(new Set());
  const all = html`<button type="button" disabled=${!wanted.size} onClick=${showAll}>Show all</button>`;
  return html`<${Card} title="Intervals" actions=${all}>
    ${RUN_ID && html`<p class="note">${runText(outlined.size)}</p>`}
    <${Legend} ledger=${ledger} wanted=${wanted} onToggle=${toggle} />
    <${Calendar} ledger=${ledger} wanted=${wanted} outlined=${outlined} onOpen=${open} />
    <p id="calendar-keys" class="quiet keys">
      Newest first. Arrow keys move, Enter opens an interval, N goes to the next one that needs attention.
    </p>
    ${gap && html`<${GapPanel} gap=${gap} onClose=${close} />`}
  <//>`;
}

function runText(found) {
  if (!found) return `Run ${RUN_ID} has no interval in this ledger.`;
  return `${counted(found, "interval")} of run ${RUN_ID} ${found === 1 ? "is" : "are"} outlined.`;
}

function LatestCommits() {
  const { status } = usePage();
  const answer = useAnswer(lakeUrl(DAG, "commits", { limit: LATEST }), status.version);
  return html`<${Card} title="Latest commits" actions=${html`<a href="#commits">All commits</a>`}>
    <${Answered} answer=${answer} what="commits">
      ${({ commits }) => html`<${CommitTable} commits=${commits} />`}
    <//>
  <//>`;
}
