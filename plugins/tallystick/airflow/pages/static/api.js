/** Requests to the app of the pages and to Airflow's REST API, with the session of the browser. */

import { AIRFLOW, BASE } from "./place.js";

const POLL_MS = 10_000;
const FOLLOW_MS = 3_000;
const HURRY_MS = 600_000;
const ANSWER_MS = 60_000;
const JSON_TYPE = /[/+]json\b/;

/** An answer that is an error, or no answer. `status` is 0 if the server could not be reached. */
export class AnswerError extends Error {
  constructor({ status, kind = "", message, hint = "" }) {
    super(message);
    this.name = "AnswerError";
    this.status = status;
    this.kind = kind;
    this.hint = hint;
  }
}

/** Return the address of a route of the DAG's lake, with the parameters that are not null. */
export function lakeUrl(dag, route, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  return `${BASE}/api/dags/${encodeURIComponent(dag)}/${route}${query ? `?${query}` : ""}`;
}

/** Return the address of the list of lakes. */
export function lakesUrl() {
  return `${BASE}/api/lakes`;
}

/** Return the address of a resource of Airflow's REST API; each part of its path is encoded. */
export function airflowUrl(...parts) {
  return [`${AIRFLOW}/api/v2`, ...parts.map(encodeURIComponent)].join("/");
}

/** Return the JSON of an address; throws AnswerError. */
export async function getJson(url, { signal } = {}) {
  const response = await request(url, { signal });
  return readJson(response);
}

/** Send JSON by POST and return the JSON of the answer; throws AnswerError. */
export async function postJson(url, body) {
  const response = await request(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return readJson(response);
}

async function request(url, options) {
  try {
    return await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AnswerError({
      status: 0,
      message: "The server did not answer.",
      hint: "Check the connection to Airflow.",
    });
  }
}

async function readJson(response) {
  if (!JSON_TYPE.test(response.headers.get("Content-Type") ?? "")) {
    throw new AnswerError({
      status: response.ok ? 0 : response.status,
      message: `Expected JSON from ${new URL(response.url).pathname}, found status ${response.status} without JSON.`,
      hint: "Check the log of the API server, and any proxy before it.",
    });
  }
  const body = await response.json();
  if (!response.ok) throw errorOf(response, body);
  return body;
}

function errorOf(response, body) {
  const { kind, message, hint, detail } = body ?? {};
  return new AnswerError({
    status: response.status,
    kind,
    message: message ?? detailText(detail) ?? `Status ${response.status}.`,
    hint: hint ?? "",
  });
}

/** Airflow's detail is text, an object with a reason, or a list of values that are not valid. */
function detailText(detail) {
  if (detail == null) return undefined;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) {
    return detail.map((one) => [one.loc?.join("."), one.msg].filter(Boolean).join(": ")).join("; ");
  }
  return detail.message ?? detail.reason ?? JSON.stringify(detail);
}

/**
 * Polls the status of a lake while the page is visible, and calls `onAnswer({status, error})` when one of them changes.
 * The server answers 304 without a body if nothing was committed or planned since.
 */
export class StatusPoll {
  constructor(dag, onAnswer) {
    this.url = lakeUrl(dag, "status");
    this.onAnswer = onAnswer;
    this.etag = "";
    this.status = null;
    this.error = null;
    this.hurryUntil = 0;
    this.timer = 0;
    this.asking = false;
    this.stopped = false;
    this.awake = () => this.poll();
  }

  /** Ask now and then regularly. */
  start() {
    document.addEventListener("visibilitychange", this.awake);
    window.addEventListener("focus", this.awake);
    this.poll();
  }

  /** Stop asking. */
  stop() {
    document.removeEventListener("visibilitychange", this.awake);
    window.removeEventListener("focus", this.awake);
    clearTimeout(this.timer);
    this.stopped = true;
  }

  /** Ask more often for the next minutes, or no longer. */
  hurry(expected) {
    this.hurryUntil = expected ? Date.now() + HURRY_MS : 0;
    this.poll();
  }

  /** Ask once, and again after a while. A hidden page does not ask. */
  async poll() {
    if (this.asking || this.stopped || document.hidden) return;
    clearTimeout(this.timer);
    this.asking = true;
    try {
      await this.ask();
    } catch (error) {
      this.error = error;
      this.onAnswer({ status: this.status, error });
    } finally {
      this.asking = false;
      if (!this.stopped) this.timer = setTimeout(this.awake, this.pause());
    }
  }

  pause() {
    return Date.now() < this.hurryUntil ? FOLLOW_MS : POLL_MS;
  }

  async ask() {
    const headers = this.etag ? { "If-None-Match": this.etag } : {};
    const response = await request(this.url, { headers, signal: AbortSignal.timeout(ANSWER_MS) });
    if (response.status === 304) {
      if (this.error) this.onAnswer({ status: this.status, error: null });
      this.error = null;
      return;
    }
    const status = await readJson(response);
    performance.mark("tallystick-status");
    this.etag = response.headers.get("ETag") ?? "";
    this.status = status;
    this.error = null;
    this.onAnswer({ status, error: null });
  }
}
