/** The sandbox's time, as far as it was told. */

let offset = 0; // seconds that the sandbox's clock is ahead of this one
let stands = null; // where it stands still, else null

/** Takes over what the server says. */
export function setClock({ now, standing }) {
  if (standing !== undefined) stands = standing ? now : null;
  else if (stands !== null) stands = now;
  offset = now - Date.now() / 1000;
}

/** Unix seconds by the sandbox's clock. */
export const now = () => stands ?? Date.now() / 1000 + offset;
