/** The icons, drawn in 24 by 24; hidden from readers of screens, since what they are on has a name. */

const PATHS = {
  again: "M20 12a8 8 0 1 1-2.4-5.7M20 3v5h-5",
  back: "M15 5l-7 7 7 7",
  bolt: "M13 3L5 14h6l-1 7 8-11h-6z",
  bug: "M8 9a4 4 0 0 1 8 0M7 9h10v6a5 5 0 0 1-10 0zM12 9v11M3 13h4M17 13h4M4 20l3.5-2.5M20 20l-3.5-2.5M5 7l2.5 2M19 7l-2.5 2",
  check: "M4 12.5l5 5L20 6.5",
  clock: "M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18M12 7v5l3.5 2",
  close: "M6 6l12 12M18 6L6 18",
  cut: "M4 12h4M16 12h4M10 8l-1.5-3M14 16l1.5 3M14 8l1.5-3M10 16l-1.5 3",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 10l5 5 5-5M5 20h14",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 9.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 0 0 0-5.6",
  gauge: "M4 18a9 9 0 1 1 16 0M12 14l4-5",
  info: "M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18M12 11v5.5M12 7.5v.5",
  keys: "M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 15h8",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M8 12h10",
  list: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  mail: "M3 6h18v12H3zM3 7l9 7 9-7",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  question:
    "M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18M9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M12 16.8v.2",
  reply: "M10 6L4 12l6 6M4 12h9a7 7 0 0 1 7 7",
  search: "M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14M16 16l5 5",
  send: "M4 12L20 5l-5 15-3.5-6.5z",
  silent: "M6 16V11a6 6 0 0 1 9-5.2M18 10v6l1.5 2H8M10.5 20.5h3M4 4l16 16",
  text: "M4 6h16M4 12h16M4 18h10",
  trash: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13",
  warning: "M12 4L2.5 20h19zM12 10v4.5M12 17v.5",
};

const SVG = "http://www.w3.org/2000/svg";

/** An icon by its name. */
export function icon(name) {
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("viewBox", "0 0 24 24");
  drawn.setAttribute("class", "icon");
  drawn.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  drawn.append(path);
  return drawn;
}
