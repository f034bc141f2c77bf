/** The view that the hash of the address names, so that Back works and links can be sent. */

import { useEffect, useState } from "./vendor/preact-htm.js";

const VIEWS = {
  "": () => ({ view: "overview" }),
  interval: ([from, to]) => (isInstant(from) && isInstant(to) ? { view: "interval", from, to } : null),
  commits: () => ({ view: "commits" }),
  compare: ([left, right]) => (isVersion(left) && isVersion(right) ? { view: "compare", left, right } : null),
  "dead-letters": ([from, to]) => {
    if (from === undefined) return { view: "dead-letters" };
    return isInstant(from) && isInstant(to) ? { view: "dead-letters", from, to } : null;
  },
  lag: () => ({ view: "lag" }),
  object: (parts) => (parts.length ? { view: "object", objectKey: parts.join("/") } : null),
};

/** Return the route of a hash; its view is "unknown" if the hash names none. */
export function routeOf(hash) {
  const [view, ...parts] = hash.replace(/^#/, "").split("/").map(decoded);
  const route = Object.hasOwn(VIEWS, view) ? VIEWS[view](parts) : null;
  return route ?? { view: "unknown" };
}

/** Return the current route, and follow the address. */
export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => {
      document.documentElement.dataset.moved = "yes";
      setHash(location.hash);
    };
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return { ...routeOf(hash), hash };
}

function isInstant(text) {
  return text !== undefined && !Number.isNaN(Date.parse(text));
}

function isVersion(text) {
  return /^\d+$/.test(text ?? "");
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
