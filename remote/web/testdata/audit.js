// The basic checks of accessibility, in the page as it is rendered. The value is the list
// of what is wrong.
(() => {
  const wrong = [], add = (what, e) => wrong.push(what + (e ? ": " + e.outerHTML.slice(0, 120) : ""));
  const all = (s) => [...document.querySelectorAll(s)];
  const named = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join("") ||
    e.querySelector(":scope > caption, :scope > title")?.textContent || e.textContent || "").trim();

  if (document.documentElement.lang !== "en") add("no language");
  if (!document.title.trim()) add("no title");
  for (const landmark of ["main", "header", "nav", "footer"]) if (all(landmark).length !== 1) add("not one " + landmark);
  if (all("h1").length !== 1) add("not one h1");
  let level = 0;
  for (const h of all("h1, h2, h3, h4")) { const n = +h.tagName[1]; if (n > level + 1) add("a level of headings is left out", h); level = n; }
  const ids = new Set();
  for (const e of all("[id]")) { if (ids.has(e.id)) add("an id twice", e); ids.add(e.id); }
  for (const e of all("[aria-labelledby]")) for (const id of e.getAttribute("aria-labelledby").split(" ")) if (!document.getElementById(id)) add("aria-labelledby without its element", e);
  for (const e of all("img")) if (!e.hasAttribute("alt")) add("no alt", e);
  for (const e of all("input, select")) if (!e.labels.length) add("no label", e);
  for (const e of all("a[href], button, [role=img], [role=region], nav, section")) {
    const text = e.matches("[role=region], nav, section") ? e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") : named(e);
    if (!text) add("no name", e);
  }
  for (const e of all("th")) if (!["col", "row"].includes(e.scope)) add("no scope", e);
  for (const e of all("table")) {
    if (!e.caption && !e.closest("[role=region]")) add("a table without a name", e);
    const columns = e.tHead.rows[0].cells.length;
    for (const row of e.tBodies[0].rows) if (row.cells.length !== columns) { add("cells without a header", row); break; }
  }
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) add("an order of its own", e);
  for (const e of all("ul > *, ol > *")) if (e.tagName !== "LI") add("not an item of a list", e);
  for (const e of all("*")) {
    if (e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0) add("can't be scrolled with keys", e);
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) add("the page is wider than the screen: " + root.scrollWidth + " > " + root.clientWidth);

  // contrast: each text on what is behind it
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const cache = new Map();
  const rgba = (color) => {
    if (!cache.has(color)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
      cache.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return cache.get(color);
  };
  const over = (a, b) => { const k = a[3] / 255; return [0, 1, 2].map((i) => a[i] * k + b[i] * (1 - k)).concat(255); };
  const behind = (e) => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) { const c = rgba(getComputedStyle(p).backgroundColor); if (c[3]) layers.push(c); if (c[3] === 255) break; }
    return layers.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 255]);
  };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const seen = new Set(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest("svg, option, .hidden, .skip")) continue;
    const style = getComputedStyle(e), back = behind(e), front = over(rgba(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700;
    const key = front + "/" + back;
    if (ratio < (large ? 3 : 4.5) && !seen.has(key)) { seen.add(key); add("contrast " + ratio.toFixed(2), e); }
  }
  return wrong;
})()
