// The report's page: sortable tables, figures, and the browsers of tokens and responses.
// Texts come from models and are not trusted: they only ever become text nodes, never HTML.
"use strict";
(() => {
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // ---- Tables ---------------------------------------------------------------------------------

  const valueOf = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const plain = text.replace(/,/g, "").replace("\u2212", "-");
    // Neither a date nor a name such as 20-Entropy.
    return /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?(?![\w.-])/.test(plain) ? parseFloat(plain) : text;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });

  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
        rows.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  // Words beside the shadow, since a shadow alone is easy to miss.
  function hintAtScrolling(region) {
    const hint = element("p", { className: "hint", hidden: true }, "Scroll the table sideways \u2192");
    region.before(hint);
    new ResizeObserver(() => {
      hint.hidden = region.scrollWidth <= region.clientWidth + 1;
    }).observe(region);
  }

  function addCopyButton(code) {
    const button = element("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        // Some browsers keep the clipboard from pages that were opened as files.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
    code.after(button);
  }

  // ---- Figures --------------------------------------------------------------------------------

  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value ?? "\u2013"));
  const MOST_CHARACTERS = 20_000, NARROWEST = 300, WIDEST = 460;
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

  const sized = (spec, columns, width) =>
    (spec.concat ? { ...spec, columns, concat: spec.concat.map((part) => ({ ...part, width })) } : spec);

  const unpacked = ({ names, rows }) => rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));

  // A figure in words, made when it is asked for.
  function values(datasets) {
    const details = element("details", {}, element("summary", {}, "Values"));
    details.addEventListener("toggle", () => {
      const lines = Object.values(datasets).flatMap(({ names, rows }) => ["", names, ...rows]);
      const text = lines.map((line) => [line].flat().map((one) => one ?? "").join("\t")).join("\n").trim();
      details.append(element("pre", { className: "values", tabIndex: 0 }, text.slice(0, MOST_CHARACTERS)));
    }, { once: true });
    return details;
  }

  function makeFigure(box) {
    const { datasets, ...rest } = data(`data-${box.dataset.figure}`);
    const original = { ...rest, datasets: Object.fromEntries(Object.entries(datasets).map(([name, rows]) => [name, unpacked(rows)])) };
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
    box.append(plot, values(datasets));

    return async () => {
      const room = plot.clientWidth;
      const columns = Math.max(1, Math.min(spec.columns ?? 1, Math.floor(room / NARROWEST)));
      let width = Math.min(WIDEST, room / columns - 70);
      // The width of the labels is known when they are drawn.
      for (let attempt = 0; attempt < 2; attempt += 1) {
        view?.finalize();
        ({ view } = await vegaEmbed(plot, sized(spec, columns, width), options));
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

  // ---- Browsers -------------------------------------------------------------------------------

  const PAGE = 10;
  const label = (text, control) => element("label", {}, text, control);
  const option = (value, text = value) => element("option", { value }, text);

  function makeBrowser(root, rows, { filters, sorts, card, what }) {
    const controls = element("form", { className: "controls" });
    const status = element("p", { className: "soft" });
    status.setAttribute("role", "status");
    const list = element("ol", { className: "cards" });
    const [back, next] = ["Previous", "Next"].map((text) => element("button", { type: "button" }, text));
    const pages = element("span", { className: "soft" });
    let page = 0, found = rows;
    const tests = filters.map(({ name, of, kind }) => {
      let control;
      if (kind === "text") control = element("input", { type: "search", size: 14 });
      else if (kind === "from" || kind === "to") control = element("input", { type: "number", min: 0 });
      else {
        const values = [...new Set(rows.map(of))].filter((value) => value !== "" && value != null).sort(compare);
        if (values.length < 2) return () => true;
        control = element("select", {}, option("", "all"), ...values.map((value) => option(String(value))));
      }
      controls.append(label(name, control));
      return (row) => {
        const wanted = control.value;
        if (wanted === "") return true;
        if (kind === "text") return of(row).toLowerCase().includes(wanted.toLowerCase());
        if (kind === "from") return of(row) >= Number(wanted);
        if (kind === "to") return of(row) <= Number(wanted);
        return String(of(row)) === wanted;
      };
    });
    const order = element("select", {}, ...sorts.map(({ name }, index) => option(index, name)));
    if (sorts.length > 1) controls.append(label("Order", order));

    function show() {
      const start = page * PAGE, last = Math.max(Math.ceil(found.length / PAGE), 1);
      list.replaceChildren(...found.slice(start, start + PAGE).map((row) => element("li", { className: "card" }, ...card(row))));
      list.start = start + 1;
      status.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${what}`;
      pages.textContent = `Page ${page + 1} of ${last}`;
      back.disabled = page === 0;
      next.disabled = page + 1 >= last;
    }
    function filter() {
      const by = sorts[Number(order.value)];
      found = rows.filter((row) => tests.every((test) => test(row)));
      if (by.of) found.sort((a, b) => (by.down ? -1 : 1) * compare(by.of(a), by.of(b)));
      page = 0;
      show();
    }
    const turn = (by) => () => {
      page += by;
      show();
      root.scrollIntoView({ block: "start" });
    };
    back.addEventListener("click", turn(-1));
    next.addEventListener("click", turn(1));
    controls.addEventListener("input", filter);
    controls.addEventListener("submit", (event) => event.preventDefault());
    root.replaceChildren(controls, status, list, element("div", { className: "pager" }, back, next, pages));
    filter();
  }

  const badge = (right, text) => element("span", { className: `badge ${right ? "right" : "wrong"}` }, text);
  const top = (...parts) => element("div", { className: "top" },
    ...parts.map((part) => (typeof part === "string" ? element("span", {}, part) : part)));
  const numbers = (pairs) =>
    element("dl", { className: "numbers" }, ...pairs.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const several = (rows, key) => new Set(rows.map((row) => row[key])).size > 1;

  function tokenBrowser(root) {
    const rows = data("tokens");
    const right = (row) => (row.reward > 0 ? "right" : "wrong");
    // Kinds are S2T's; what another method did with the token is in `kept`.
    const kinds = { silenced: "S2T would silence it", retained: "candidate that S2T retains", other: "no candidate" };
    const kind = (row) => (row.kind === "silenced" && !row.kept ? "silenced" : kinds[row.kind] + (row.kept ? "" : ", not in the loss"));
    makeBrowser(root, rows, {
      what: "tokens",
      filters: [
        { name: "Method", of: (row) => row.method },
        { name: "Size", of: (row) => row.size },
        { name: "Seed", of: (row) => row.seed },
        { name: "Kind", of: (row) => row.kind },
        { name: "Answer", of: right },
        { name: "Class", of: (row) => row.quadrant },
        { name: "Category", of: (row) => row.category },
        { name: "From step", of: (row) => row.step, kind: "from" },
        { name: "To step", of: (row) => row.step, kind: "to" },
        { name: "Token contains", of: (row) => row.token, kind: "text" },
      ],
      sorts: [
        { name: "silenced first", of: (row) => ["silenced", "retained", "other"].indexOf(row.kind) },
        { name: "largest gradient norm", of: (row) => row.gradient_norm ?? 0, down: true },
        { name: "lowest probability", of: (row) => row.probability },
        { name: "lowest entropy", of: (row) => row.entropy },
        { name: "highest entropy", of: (row) => row.entropy, down: true },
      ],
      card: (row) => [
        top(
          element("b", {}, row.method), `step ${row.step}, token ${row.position + 1} of ${row.length}`,
          ...(several(rows, "size") ? [row.size] : []), ...(several(rows, "seed") ? [`seed ${row.seed}`] : []),
          kind(row),
          badge(row.reward > 0, `${right(row)} answer`),
          ...[row.quadrant, row.category].filter(Boolean).map((text) => element("span", { className: "soft" }, text)),
        ),
        element("pre", {}, row.before ?? "", element("mark", {}, row.token), row.after ?? ""),
        numbers([
          ["p", short(row.probability)], ["H", short(row.entropy)], ["A", short(row.advantage)],
          ["ratio", short(row.ratio)], ["\u2016\u2207J\u2016", short(row.gradient_norm)],
          ...(row.top_tokens ? [["top five", row.top_tokens.map((token, i) => `${token} ${short(row.top_probabilities[i])}`).join(" \u00b7 ")]] : []),
        ]),
      ],
    });
  }

  function responseBrowser(root) {
    const rows = data("responses");
    makeBrowser(root, rows, {
      what: "responses",
      filters: [
        { name: "Method", of: (row) => row.method },
        { name: "Size", of: (row) => row.size },
        { name: "Seed", of: (row) => row.seed },
        { name: "Benchmark", of: (row) => row.benchmark },
        { name: "Decoding", of: (row) => row.decoding },
        { name: "Verdict", of: (row) => row.verdict },
        { name: "Counts as", of: (row) => (row.right ? "right" : "wrong") },
        { name: "Text contains", of: (row) => `${row.question}\n${row.response}`, kind: "text" },
      ],
      sorts: [{ name: "by problem", of: (row) => row.benchmark + String(row.problem).padStart(6, "0") }],
      card: (row) => [
        top(
          element("b", {}, row.method), `${row.benchmark}, problem ${row.problem + 1}, sample ${row.sample + 1}`,
          ...(several(rows, "size") ? [row.size] : []), ...(several(rows, "seed") && row.seed !== null ? [`seed ${row.seed}`] : []),
          element("span", { className: "soft" }, row.decoding), badge(row.right, row.verdict),
        ),
        element("pre", {}, row.question),
        element("pre", {}, row.response),
        numbers([
          ["reference", row.gold], ["answer", row.answer || "none"],
          ["tokens", short(row.tokens) + (row.truncated ? ", cut at the limit" : "")],
          ...(row.verifier === "not asked" ? [] : [["verifier", row.verifier]]),
        ]),
      ],
    });
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll(".scroll").forEach(hintAtScrolling);
  document.querySelectorAll("code.command").forEach(addCopyButton);
  makeFigures();
  const browsers = { tokens: tokenBrowser, responses: responseBrowser };
  document.querySelectorAll("[data-browser]").forEach((root) => browsers[root.dataset.browser](root));
})();
