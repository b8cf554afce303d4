// The report's page: its figures, folds and wide tables.
// Texts come from models and are not trusted: they only ever become text nodes, never HTML.
"use strict";
(() => {
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));
  const rows = (columns) =>
    Object.values(columns)[0]?.map((_, i) => mapped(columns, (column) => column[i])) ?? [];

  function specification(id) {
    const found = JSON.parse(document.getElementById(id).textContent);
    return { ...found, datasets: mapped(found.datasets, rows) };
  }

  const MOST_CHARACTERS = 20_000, NARROWEST = 300, WIDEST = 460, LOW = 160;
  // The interpreter of expressions needs no `eval`, which the page's policy forbids.
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true };

  // Every part of a specification that draws something.
  const units = (spec) => (spec.mark ? [spec] : [spec.concat, spec.layer, spec.spec].flat().filter(Boolean).flatMap(units));

  // What the page adds to a specification: names that can be hidden, and points to touch on lines.
  function interactive(spec) {
    const found = structuredClone(spec);
    found.params = [...(found.params ?? []), { name: "hidden", value: [] }];
    found.config.legend.disable = true;
    for (const unit of units(found)) {
      unit.transform = [{ filter: "indexof(hidden, datum.group) < 0" }, ...(unit.transform ?? [])];
      const { type, point, strokeOpacity } = unit.mark;
      if (type === "line" && !point && strokeOpacity === undefined) unit.mark.point = { opacity: 0, size: 60 };
    }
    return found;
  }

  const sized = (spec, columns, size) =>
    (spec.concat ? { ...spec, columns, concat: spec.concat.map((part) => ({ ...part, ...size })) } : spec);

  // A figure in words, made when it is asked for.
  function values(datasets) {
    const details = element("details", {}, element("summary", {}, "Values"));
    details.addEventListener("toggle", () => {
      const text = Object.values(datasets).flatMap((rows) => {
        const names = [...new Set(rows.flatMap(Object.keys))];
        return ["", names.join("\t"), ...rows.map((row) => names.map((name) => row[name] ?? "").join("\t"))];
      }).join("\n").trim();
      details.append(element("pre", { className: "values", tabIndex: 0 }, text.slice(0, MOST_CHARACTERS)));
    }, { once: true });
    return details;
  }

  function makeFigure(box) {
    const original = specification(`data-${box.dataset.figure}`);
    const colours = units(original).map((unit) => unit.encoding?.color).find((one) => one?.field === "group")?.scale;
    const spec = colours ? interactive(original) : original;
    const keys = element("ul", { className: "keys" }), plot = element("div", { className: "plot" });
    const hidden = new Set();
    let view;
    keys.setAttribute("aria-label", "Show or hide");
    (colours?.domain ?? []).forEach((name, i) => {
      const button = element("button", { type: "button" }, name);
      button.setAttribute("aria-pressed", "true");
      button.style.setProperty("--colour", colours.range[i]);
      button.addEventListener("click", () => {
        if (!hidden.delete(name)) hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        view?.signal("hidden", [...hidden]).runAsync();
      });
      keys.append(element("li", {}, button));
    });
    if (keys.childElementCount > 1) box.append(keys);
    box.append(plot);
    (box.parentElement.querySelector("figcaption details") ?? box).append(values(original.datasets));

    return async () => {
      const room = plot.clientWidth;
      // Panels that are one below the other may stand beside each other.
      const most = spec.columns > 1 ? spec.columns : spec.concat?.length ?? 1;
      const columns = Math.max(1, Math.min(most, Math.floor(room / NARROWEST)));
      const height = box.closest(".leading") ? { height: LOW } : {};
      let width = Math.max(120, Math.min(WIDEST, room / columns - 70));
      // The width of the labels is known when they are drawn.
      for (let attempt = 0; attempt < 2; attempt += 1) {
        view?.finalize();
        ({ view } = await vegaEmbed(plot, sized(spec, columns, { width, ...height }), options));
        const excess = plot.querySelector("svg").getBoundingClientRect().width - room;
        if (excess <= 0) break;
        width = Math.max(120, width - excess / columns - 1);
      }
      if (hidden.size) view.signal("hidden", [...hidden]).runAsync();
      // What scrolls must be within the reach of the keyboard.
      if (plot.scrollWidth > plot.clientWidth) plot.tabIndex = 0;
      // Read out, the texts of an image are noise; the values are below it.
      plot.querySelector("svg").setAttribute("aria-hidden", "true");
    };
  }

  function makeFigures() {
    const drawing = new Map([...document.querySelectorAll("[data-figure]")].map((box) => [box, makeFigure(box)]));
    const drawn = new Set();
    const show = (box) => {
      drawn.add(box);
      return drawing.get(box)();
    };
    // All at once would take seconds.
    const watcher = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        show(target);
      }
    }, { rootMargin: "600px" });
    drawing.forEach((_, box) => watcher.observe(box));
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      drawn.forEach(show);
    });
    addEventListener("beforeprint", () => drawing.forEach((_, box) => drawn.has(box) || show(box)));
  }

  // What a link leads to may be folded.
  function unfold(hash) {
    let one = document.getElementById(decodeURIComponent(hash.slice(1)));
    while ((one = one?.parentElement.closest("details"))) one.open = true;
  }

  // Not at once: the words change the height of what is observed.
  const watcher = new ResizeObserver((entries) => requestAnimationFrame(() => entries.forEach(({ target }) => {
    target.classList.toggle("too-wide", target.scrollWidth > target.clientWidth);
  })));
  document.querySelectorAll(".scroll").forEach((one) => watcher.observe(one));
  document.addEventListener("click", ({ target }) => unfold(target.closest("a[href^='#']")?.hash ?? ""));
  addEventListener("hashchange", () => unfold(location.hash));
  unfold(location.hash);
  makeFigures();
})();
