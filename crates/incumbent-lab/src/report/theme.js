// Light or dark, decided before the first paint: the reader's own choice, else the system's.

const theme = {
  key: "incumbent-report-theme",
  system: window.matchMedia("(prefers-color-scheme: dark)"),
  /** Told after every change; the page sets it once it has something to redraw. */
  changed() {},
  now: () => document.documentElement.dataset.theme,
  choose(name) {
    try {
      localStorage.setItem(theme.key, name);
    } catch {
      // Some browsers forbid storage to files: then it is chosen again next time.
    }
    theme.apply(name);
  },
  chosen() {
    try {
      return localStorage.getItem(theme.key);
    } catch {
      return null;
    }
  },
  apply(name) {
    document.documentElement.dataset.theme = name === "dark" ? "dark" : "light";
    theme.changed();
  },
  settle: () => theme.apply(theme.chosen() ?? (theme.system.matches ? "dark" : "light")),
};
theme.system.addEventListener("change", theme.settle);
theme.settle();
