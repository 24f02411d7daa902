/** Asking the server that the page came from, in JSON. */

/** The answer to a GET. Throws an Error with the server's words. */
export function get(path, params = {}) {
  const query = new URLSearchParams(
    Object.entries(params).filter(([, value]) => value !== null && value !== undefined),
  );
  return ask(`${path}?${query}`, { method: "GET" });
}

/** The answer to a request with a body. Throws an Error with the server's words. */
export function send(verb, path, body = {}, more = {}) {
  const headers = { "Content-Type": "application/json", ...more };
  return ask(path, { method: verb, headers, body: JSON.stringify(body) });
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store" });
  } catch {
    throw new Error("the server does not answer");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) {
    const error = new Error(answer?.description ?? `the server says ${response.status}`);
    throw Object.assign(error, { status: response.status, kind: answer?.kind });
  }
  return answer;
}
