"use strict";
// Follows the controller's events, and replaces the content of the page when the state has
// changed. Without this script the page is complete; it only doesn't change by itself.
(() => {
  const status = document.getElementById("connection");
  const least = () => Number(document.querySelector("main").dataset.least) || 1000; // milliseconds between two updates
  let last = Date.now(), timer = 0, wanted = false, loading = false;

  const say = (state, text) => {
    if (status.dataset.state === state) return;
    status.dataset.state = state;
    status.textContent = text;
  };

  // In use: somebody is filling in a field, or has selected text to copy.
  const inUse = () => {
    const active = document.activeElement, selection = document.getSelection();
    return active && active.matches("main input, main select") || selection && !selection.isCollapsed;
  };

  const replace = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const main = document.querySelector("main"), fresh = next.querySelector("main");
    if (!fresh) return;
    const open = [...main.querySelectorAll("details[open][id]")].map((e) => e.id);
    const focus = document.activeElement && document.activeElement.id;
    const href = document.activeElement && document.activeElement.getAttribute("href");
    main.replaceWith(document.adoptNode(fresh));
    for (const part of ["age", "menu"]) {
      const from = next.getElementById(part), to = document.getElementById(part);
      if (from && to) to.replaceWith(document.adoptNode(from));
    }
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    const again = focus ? document.getElementById(focus) : href && document.querySelector(`main a[href="${CSS.escape(href)}"]`);
    again?.focus({ preventScroll: true });
    document.title = next.title;
  };

  const update = async () => {
    timer = 0;
    if (loading || document.hidden || inUse()) return; // asked again below
    wanted = false;
    loading = true;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok || answer.status === 404) replace(await answer.text());
    } catch {
      wanted = true; // the events say when the controller is back
    } finally {
      loading = false;
    }
  };

  const soon = () => {
    if (!wanted || timer) return;
    timer = setTimeout(update, Math.max(0, last + least() - Date.now()));
  };
  const changed = () => { wanted = true; soon(); };
  document.addEventListener("visibilitychange", soon);
  setInterval(soon, 2000);

  const events = new EventSource("/events");
  events.addEventListener("fleet", () => { say("live", "live"); changed(); });
  events.addEventListener("open", () => say("live", "live"));
  events.addEventListener("error", () => say("lost", "connection lost"));
})();
