/** Elements that several views show: cards, figures, tables that scroll, commands to copy, errors. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { AirflowLink, loginHref } from "./links.js";

const COPIED_MS = 1_500;
const SHOWN_MAX = 20;

/** Shows a part of a view with its heading; `actions` are at the right of the heading. */
export function Card({ title, level = 2, actions, children, id }) {
  const Heading = `h${level}`;
  return html`<section class="card" id=${id}>
    <div class="card-head">
      <${Heading} class="card-title">${title}<//>
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>
    ${children}
  </section>`;
}

/** Shows a number with its name, and a note below it. */
export function Figure({ name, value, note, tone = "" }) {
  return html`<div class="figure ${tone}">
    <dt>${name}</dt>
    <dd><span class="figure-value">${value}</span><span class="figure-note">${note}</span></dd>
  </div>`;
}

/** Shows a table that scrolls sideways if there is not enough room; only then it is a tab stop, so that keys scroll. */
export function Scrolling({ label, children }) {
  const box = useRef(null);
  const [overflows, setOverflows] = useState(false);
  useLayoutEffect(() => {
    const measure = () => setOverflows(box.current.scrollWidth > box.current.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const stop = overflows ? { role: "region", "aria-label": label, tabindex: "0" } : {};
  return html`<div class="scrolling" ref=${box} ...${stop}>${children}</div>`;
}

/** Shows the headings of columns: text, or `{text, number, hidden}`; a hidden one is only for screen readers. */
export function Columns({ names }) {
  return html`<thead><tr>${names.map((name) => {
    const { text, number = false, hidden = false } = typeof name === "string" ? { text: name } : name;
    return html`<th scope="col" class=${number ? "number" : ""}>
      ${hidden ? html`<span class="visually-hidden">${text}</span>` : text}
    </th>`;
  })}</tr></thead>`;
}

/** Shows pairs of a name and a value; pairs without a value are left out. */
export function Facts({ pairs }) {
  const shown = pairs.filter(([, value]) => value != null && value !== false && value !== "");
  return html`<dl class="facts">
    ${shown.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** Shows the first items of a list, and a button that shows the others. `children` makes an element of each list. */
export function First({ items, what, max = SHOWN_MAX, children }) {
  const [all, setAll] = useState(false);
  const shown = all ? items : items.slice(0, max);
  return [
    children(shown),
    items.length > shown.length &&
      html`<button type="button" class="plain" onClick=${() => setAll(true)}>
        Show all ${items.length.toLocaleString("en-US")} ${what}
      </button>`,
  ];
}

/** Shows a button that copies text. */
export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState("");
  useEffect(() => {
    if (!done) return undefined;
    const timer = setTimeout(() => setDone(""), COPIED_MS);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async ({ currentTarget }) => {
    setDone((await copied(text, currentTarget)) ? "Copied" : "Not copied");
  };
  return html`<button type="button" class="copy" onClick=${copy} aria-label=${`${label}: ${text}`}>
    <span aria-hidden="true" class=${done ? "unseen" : ""}>${label}</span>
    <span role="status" class="copy-done">${done}</span>
  </button>`;
}

/** Shows a command or a key as code, with a button that copies it. */
export function Code({ text, label }) {
  return html`<span class="code"><code>${text}</code><${CopyButton} text=${text} label=${label} /></span>`;
}

/** Return a command as text for a shell. */
export function shellText(command) {
  return command
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`))
    .join(" ");
}

/** Shows an error with its hint. If the session has ended, it has a link to the login. */
export function ErrorBox({ error, title = "" }) {
  if (error.status === 401) {
    return html`<div class="box error" role="alert">
      ${title && html`<p><strong>${title}</strong> ${error.message}</p>`}
      <p>The session has ended: <${AirflowLink} href=${loginHref()}>log in again<//>.</p>
    </div>`;
  }
  return html`<div class="box error" role="alert">
    ${title && html`<p><strong>${title}</strong></p>`}
    <p><${Sentence} text=${error.message} /></p>
    ${error.hint && html`<p class="hint"><${Sentence} text=${error.hint} /></p>`}
  </div>`;
}

/** Shows text of a message or hint as a sentence. Commands in it are between backticks. */
export function Sentence({ text }) {
  const begun = /^[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return begun.split("`").map((part, n) => (n % 2 ? html`<code key=${n}>${part}</code>` : part));
}

/** Shows the heading of a view, and moves the focus there if the user came from another view. */
export function ViewHeading({ children }) {
  const heading = useRef(null);
  useEffect(() => {
    if (document.documentElement.dataset.moved) heading.current.focus({ preventScroll: true });
  }, []);
  return html`<h2 class="view-title" tabindex="-1" ref=${heading}>${children}</h2>`;
}

async function copied(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text, button);
  }
}

/** The clipboard's own interface needs HTTPS; many Airflow servers are reached by plain HTTP. */
function copiedBySelection(text, button) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  // Only what is in an open dialog can be selected.
  (button.closest("dialog") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  button.focus();
  return done;
}
