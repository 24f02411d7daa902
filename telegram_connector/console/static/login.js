/** The door: the page's own token, and a name for the record. */

import { el } from "./parts/dom.js";
import { busy, failed, field } from "./shared.js";
import { login, session } from "./session.js";

/** Shows the form; `enter` is called once somebody is in. */
export function showLogin(place, enter) {
  const token = el("input", {
    id: "token",
    type: "password",
    autocomplete: "current-password",
    required: true,
  });
  const name = el("input", { id: "name", autocomplete: "username", maxlength: "40" });
  const go = el("button", { type: "submit" }, "Log in");
  const trouble = el("div", { "aria-live": "assertive" });
  const form = el(
    "form",
    { class: "card" },
    el("h1", {}, el("img", { src: "/ui/icon.svg", alt: "", width: "34", height: "34" }), " Telegram console"),
    field("Your name", name, "For the record of what is done."),
    field("Token", token, "The console's own, TG_CONSOLE_TOKEN; never the bot's."),
    trouble,
    go,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    busy(go, async () => {
      try {
        await login(token.value, name.value);
        if (!(await session()).who)
          throw new Error("The browser kept no cookie: this page must be reached over https.");
        place.replaceChildren();
        await enter();
      } catch (error) {
        trouble.replaceChildren(failed(error));
        token.select();
      }
    });
  });
  place.replaceChildren(form);
  place.hidden = false;
  token.focus();
}
