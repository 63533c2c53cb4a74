// Runs before anything is drawn, so that the page does not flash in the other
// theme. Without a choice, the system's theme is used.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // storage is turned off: the system's theme is used
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
