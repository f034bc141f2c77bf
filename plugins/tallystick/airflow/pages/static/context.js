/** What all views of a lake share: its status and ledger, the dialog that triggers a run, and the live region. */

import { createContext, useContext } from "./vendor/preact-htm.js";

/** `{status, ledger, openTrigger(preset), announce(text)}`. */
export const LakePage = createContext(null);

/** Return what all views of a lake share. */
export function usePage() {
  return useContext(LakePage);
}
