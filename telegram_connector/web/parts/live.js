/**
 * Server-sent events that outlive the server: a stream that ends is asked for again from where it was. A page that
 * nobody sees lets go of it, since a browser has few connections for one server.
 */

const AGAIN_MS = 1000;

/**
 * @param {string} path
 * @param {string} after The id to go on from.
 * @param {Object<string, function(Object): void>} handlers By the event's kind.
 * @param {function(boolean): void} tell Told whether there is a connection, whenever that changes.
 */
export function live(path, after, handlers, tell) {
  let stream = null;
  let last = after;
  let timer = 0;

  function open() {
    clearTimeout(timer);
    if (document.hidden || stream) return;
    stream = new EventSource(`${path}?${new URLSearchParams({ after: last })}`);
    stream.addEventListener("open", () => tell(true));
    stream.addEventListener("error", () => {
      tell(false);
      // Without a connection the browser tries again by itself; after any other answer it gives up.
      if (stream?.readyState === EventSource.CLOSED) {
        close();
        timer = setTimeout(open, AGAIN_MS);
      }
    });
    for (const [kind, handle] of Object.entries(handlers)) {
      stream.addEventListener(kind, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        handle(JSON.parse(event.data));
      });
    }
  }

  function close() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}
