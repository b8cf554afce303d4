// What scrolls can be scrolled by keyboard, and regions that a screen reader lists have names of their own.
document.addEventListener("DOMContentLoaded", () => setTimeout(() => {
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> img)")) region.tabIndex = 0;
  for (const dialog of document.querySelectorAll("[role=dialog]:not([aria-label])")) dialog.setAttribute("aria-label", "Search");
  document.querySelectorAll("nav.md-code__nav").forEach((bar, index) => bar.setAttribute("aria-label", `Code ${index + 1}`));
  for (const nav of document.querySelectorAll("nav[aria-labelledby]")) {
    if (document.getElementById(nav.getAttribute("aria-labelledby"))?.textContent.trim()) continue;
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", nav.querySelector(".md-nav__title").textContent.trim());
  }
}));
