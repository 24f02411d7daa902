/** Who is logged in, and requests that come with the secret which only this page can read. */

import { get as ask, send } from "./parts/api.js";

const CSRF = "X-Csrf-Token";

let csrf = "";
let gone = () => {};

/** Calls `work` when the session is over. */
export function onGone(work) {
  gone = work;
}

/** The session as the server has it. */
export async function session() {
  const found = await ask("/api/session");
  csrf = found.csrf ?? "";
  return found;
}

/** Opens a session. */
export async function login(token, name) {
  const found = await send("POST", "/api/login", { token, name });
  csrf = found.csrf;
  return found;
}

/** The answer to a question. */
export function get(path, params = {}) {
  return watched(() => ask(`/api/${path}`, params));
}

/** The answer to something that is to be done. */
export function post(path, body = {}) {
  const once = () => send("POST", `/api/${path}`, body, { [CSRF]: csrf });
  return watched(async () => {
    try {
      return await once();
    } catch (error) {
      // Another run of the server has another secret; nothing was done.
      if (error.kind !== "csrf") throw error;
      await session();
      return once();
    }
  });
}

async function watched(work) {
  try {
    return await work();
  } catch (error) {
    if (error.status === 401) gone();
    throw error;
  }
}
