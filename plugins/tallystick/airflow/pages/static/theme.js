/** Light or dark: follows Airflow, which keeps the choice of the user in the local storage of the browser. */

import { useEffect, useState } from "./vendor/preact-htm.js";

const KEY = "theme";
const DARK = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

function wanted() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // A browser may refuse storage; then only its own setting counts.
  }
  if (chosen === "light" || chosen === "dark") return chosen;
  return DARK.matches ? "dark" : "light";
}

function apply() {
  const theme = wanted();
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener(theme);
}

/** Apply the theme, now and whenever the choice in Airflow or the setting of the system changes. */
export function followTheme() {
  window.addEventListener("storage", (event) => {
    if (event.key === KEY || event.key === null) apply();
  });
  DARK.addEventListener("change", apply);
  apply();
}

/** Return the theme, "light" or "dark", for what is drawn on a canvas. */
export function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  useEffect(() => {
    listeners.add(setTheme);
    return () => listeners.delete(setTheme);
  }, []);
  return theme;
}
