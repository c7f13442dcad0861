// Runs before the first paint. "auto" follows the system; without JavaScript
// it is light.
(function () {
  "use strict";
  var root = document.documentElement;
  if (root.dataset.theme !== "auto") return;
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var set = function () { root.dataset.bsTheme = dark.matches ? "dark" : "light"; };
  set();
  dark.addEventListener("change", set);
})();
