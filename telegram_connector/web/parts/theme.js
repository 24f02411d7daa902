// Light or dark: as the system has it, or as the switch says, which is remembered. No module, so that it is there
// before the page is seen; whatever has the attribute data-theme-switch is the switch.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function remembered() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // a browser that keeps nothing
    }
  }

  function set(theme) {
    root.dataset.theme = theme;
  }

  set(remembered() ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => set(remembered() ?? (dark.matches ? "dark" : "light")));
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-theme-switch]")) return;
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    set(theme);
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // It holds until the page is left.
    }
  });
})();
