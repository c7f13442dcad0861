// What the pages gain with JavaScript: keys, a copy button, the selection bar's
// count, the browser's time zone, and a word when live updates stop. Everything
// works without. No key sends, changes or discards anything.
(function () {
  "use strict";
  var doc = document;
  var one = function (selector, from) { return (from || doc).querySelector(selector); };
  var all = function (selector, from) { return Array.prototype.slice.call((from || doc).querySelectorAll(selector)); };

  // The zone in which the next page prints its times.
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) doc.cookie = "zone=" + encodeURIComponent(zone) + ";path=/;max-age=31536000;samesite=lax";

  // Copying.
  var copyable = function (root) {
    if (navigator.clipboard) all("[data-copy]", root).forEach(function (b) { b.hidden = false; });
  };
  var copy = function (button) {
    navigator.clipboard.writeText(button.dataset.copy).then(function () {
      var use = one("use", button);
      var was = use.getAttribute("href");
      use.setAttribute("href", was.replace(/#.*/, "#check"));
      setTimeout(function () { use.setAttribute("href", was); }, 1500);
    });
  };

  // Menus close on Escape and on a click elsewhere.
  var closeMenus = function (except) {
    all("details.menu[open]").forEach(function (m) { if (!except || !m.contains(except)) m.open = false; });
  };

  // The selection bar: shown while something is selected, with its count.
  var number = new Intl.NumberFormat("en");
  var sumOf = function (boxes, name) {
    return boxes.reduce(function (n, b) { return n + Number(b.dataset[name] || 0); }, 0);
  };
  var selection = function (form) {
    var bar = one(".selbar", form);
    if (!bar) return;
    var count = one("[data-count]", bar), head = one("[data-all]", form), everything = one("[data-matching]", form);
    var boxes = all("tbody input[type=checkbox]", form);
    var show = function () {
      var picked = boxes.filter(function (b) { return b.checked; });
      bar.hidden = picked.length === 0 && !(everything && everything.checked);
      var words = picked.length === 1 ? count.dataset.one : count.dataset.other;
      count.textContent = words.replace("{n}", number.format(picked.length)) +
        (count.dataset.safe ? " · " + count.dataset.safe.replace("{n}", number.format(sumOf(picked, "safe"))) : "");
      if (head) {
        head.checked = picked.length > 0 && picked.length === boxes.length;
        head.indeterminate = picked.length > 0 && !head.checked;
      }
    };
    if (head && boxes.length) {
      head.hidden = false;
      head.addEventListener("change", function () { boxes.forEach(function (b) { b.checked = head.checked; }); show(); });
    }
    form.addEventListener("change", show);
    show();
  };

  // Rows of a list: j and k move, x selects, Enter opens.
  var rows = function () { return all("[data-list] [data-row]").filter(function (r) { return r.offsetParent !== null; }); };
  var current = -1;
  var move = function (by) {
    var list = rows();
    if (!list.length) return;
    if (list[current]) list[current].classList.remove("at");
    current = Math.max(0, Math.min(list.length - 1, current + by));
    var row = list[current], link = one("[data-open]", row);
    row.classList.add("at");
    if (link) link.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  var pick = function () {
    var row = rows()[current], box = row && one("input[type=checkbox]", row);
    if (!box) return;
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  };

  var places = { o: "/", f: "/faults", l: "/letters", r: "/replays", c: "/consumers", x: "/outbox", b: "/reconciliations", p: "/compensations", k: "/checks", a: "/audit" };
  var awaiting = 0; // until when a second key after g counts
  var go = function (href) { if (href) location.assign(href); };
  var detail = function () { return one("[data-detail]"); };

  var keys = {
    "/": function () { var box = all("input[name=q]").filter(function (i) { return i.offsetParent !== null; })[0]; if (box) { box.focus(); box.select(); } },
    "?": function () { var d = one("#shortcuts"); if (d && !d.open) d.showModal(); },
    g: function () { awaiting = Date.now() + 1500; },
    j: function () { detail() ? go(detail().dataset.older) : move(1); },
    k: function () { detail() ? go(detail().dataset.newer) : move(-1); },
    x: pick,
    c: function () { var b = one("[data-copy]:not([hidden])"); if (b) copy(b); },
    Escape: function () {
      if (one("details.menu[open]")) closeMenus();
      else if (detail()) go(detail().dataset.back);
    },
  };

  doc.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    var typing = e.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (typing) {
      if (e.key === "Escape" && !e.target.closest("dialog")) e.target.blur();
      return;
    }
    if (awaiting > Date.now() && places[e.key]) { awaiting = 0; go(places[e.key]); e.preventDefault(); return; }
    if (!Object.prototype.hasOwnProperty.call(keys, e.key)) return;
    keys[e.key]();
    if (e.key !== "Escape") e.preventDefault();
  });

  doc.addEventListener("click", function (e) {
    var button = e.target.closest("[data-copy]");
    if (button) copy(button);
    closeMenus(e.target);
  });

  // Live progress: one announcement in ten seconds, and a word when it stops.
  var announced = 0, waiting = 0;
  var announce = function () {
    var place = one("[data-announce]"), now = one("[data-says]");
    if (!place || !now) return;
    var say = function () { announced = Date.now(); waiting = 0; place.textContent = one("[data-says]").dataset.says; };
    if (waiting) return;
    waiting = setTimeout(say, Math.max(0, announced + 10000 - Date.now()));
  };
  var stale = function (is) { all("[data-stale]").forEach(function (n) { n.hidden = !is; }); };
  doc.addEventListener("htmx:sseMessage", function () { stale(false); announce(); });
  doc.addEventListener("htmx:sseError", function () { stale(true); });
  doc.addEventListener("htmx:sseOpen", function () { stale(false); });
  doc.addEventListener("htmx:sseClose", function (e) {
    if (e.detail && e.detail.type === "message") location.reload(); // done: the page has other buttons now
  });
  doc.addEventListener("htmx:afterSwap", function (e) { copyable(e.target); });

  copyable(doc);
  all("form[data-select]").forEach(selection);
})();
