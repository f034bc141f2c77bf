/** A gap: what is known of it, and how it is filled. */

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { usePage } from "./context.js";
import { Code, Facts, shellText } from "./elements.js";
import { count, counted, span } from "./format.js";

/** Shows one gap with the button that fills it. With `onClose` it is a panel with a title that can be closed. */
export function GapPanel({ gap, onClose = null }) {
  const { openTrigger } = usePage();
  const title = useRef(null);
  useEffect(() => {
    if (onClose) title.current.focus();
  }, [gap.from]);
  const onKeyDown = (event) => {
    if (event.key === "Escape" && onClose) onClose();
  };
  return html`<section class=${onClose ? "gap-panel" : "card"} aria-label="Gap" onKeyDown=${onKeyDown}>
    ${onClose && html`<h3 class="card-title" tabindex="-1" ref=${title}>Gap: ${span(gap.from, gap.to)}</h3>`}
    <p>${gapText(gap)}</p>
    <${Facts} pairs=${[
      ["Intervals of the schedule", gap.intervals === null ? "not whole ones" : count(gap.intervals)],
      ["Offsets", count(gap.offsets)],
      ["Lost offsets", gap.gone > 0 && count(gap.gone)],
    ]} />
    ${gap.command.length > 0 && html`<p><${Code} text=${shellText(gap.command)} label="Copy command" /></p>`}
    <div class="actions">
      <button type="button" class="primary" onClick=${() => openTrigger(gap.conf)}>Fill gap…</button>
      ${onClose && html`<button type="button" onClick=${onClose}>Close</button>`}
    </div>
  </section>`;
}

function gapText(gap) {
  if (!gap.gone) return "No interval covers this time. A run with these dates commits what the topics have of it.";
  return (
    `No interval covers this time. ${counted(gap.gone, "offset")} of it belong to a topic that was closed when ` +
    "another was adopted: they can only be committed as lost."
  );
}
