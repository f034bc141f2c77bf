/** Hooks for values that are not there at once: answers of the app, and the time. */

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { getJson } from "./api.js";
import { ErrorBox } from "./elements.js";

const KEPT_MAX = 40;
const kept = new Map();

/**
 * Return `{data, error}` of an address. It is asked again if `again` is another value; until the new answer is there,
 * the last one of the same address stays, also when the user comes back from another view, so that nothing moves.
 */
export function useAnswer(url, again = "") {
  const before = { url, data: kept.get(url) ?? null, error: null };
  const [answer, setAnswer] = useState(before);
  useEffect(() => {
    if (!url) return undefined;
    const stop = new AbortController();
    getJson(url, { signal: stop.signal }).then(
      (data) => {
        keep(url, data);
        setAnswer({ url, data, error: null });
      },
      (error) => {
        if (!stop.signal.aborted) setAnswer({ url, data: kept.get(url) ?? null, error });
      },
    );
    return () => stop.abort();
  }, [url, again]);
  return answer.url === url ? answer : before;
}

function keep(url, data) {
  kept.delete(url);
  kept.set(url, data);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
}

/** Return the time in milliseconds; it is updated every `every` milliseconds while the page is visible. */
export function useNow(every) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const tick = () => document.hidden || setNow(Date.now());
    const timer = setInterval(tick, every);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [every]);
  return now;
}

/** Shows what its child makes of the data of an answer; before that, that it is loading, or the error. */
export function Answered({ answer, what, children }) {
  if (answer.data) {
    return [answer.error && html`<${ErrorBox} error=${answer.error} />`, children(answer.data)];
  }
  if (answer.error) return html`<${ErrorBox} error=${answer.error} />`;
  return html`<p class="quiet">Loading ${what}…</p>`;
}
