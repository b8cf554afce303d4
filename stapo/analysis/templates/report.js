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
      if (head.dataset.unsorted !== undefined) return;
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

  const palettes = data("palettes");
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const palette = () => palettes[dark.matches ? "dark" : "light"];
  const colour = (index) => palette()[index % palette().length];
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", topojsonURL: "data:,",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], scrollZoom: false,
  };
  const figures = [], MOST_VALUES = 500;
  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value ?? "\u2013"));
  // Undoes the escapes for Plotly.
  const plain = (value) => (typeof value === "string" ? value.replaceAll("%&#123;", "%{").replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">").replaceAll("&amp;", "&") : short(value));

  // Plotly has no setting for whole numbers on an axis: its ticks would stand at 2.5.
  function wholeStep(from, to) {
    const rough = Math.max(Math.abs(to - from) / 6, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough && step >= 1);
  }

  function coloured(trace) {
    const own = colour(trace.meta.colour);
    const found = { ...trace, showlegend: false };
    if (trace.type === "bar") return { ...found, marker: { color: own } };
    if (trace.fill) return { ...found, fillcolor: own, opacity: 0.18 };
    found.line = { ...trace.line, color: own };
    found.marker = { ...trace.marker, color: own };
    return found;
  }

  function themed(layout) {
    const ink = style("--ink"), grid = style("--grid"), page = style("--page");
    const found = {
      ...layout, autosize: true, margin: { l: 62, r: layout.yaxis2 ? 60 : 14, t: layout.annotations.length ? 24 : 12, b: 48 }, showlegend: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
      hoverlabel: { bgcolor: page, bordercolor: ink, font: { color: ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: ink },
      shapes: layout.shapes.map((shape) => ({ ...shape, line: { ...shape.line, color: style("--soft") } })),
    };
    for (const name of ["xaxis", "yaxis", "yaxis2"]) {
      if (!layout[name]) continue;
      const lines = { gridcolor: grid, zerolinecolor: grid, linecolor: style("--soft"), automargin: true };
      found[name] = { ...lines, ...layout[name], title: { ...layout[name].title, standoff: 8 } };
    }
    return found;
  }

  // Of logarithmic axes, the range is of exponents: a tick for each power of ten, or for 1, 2 and 5.
  const powerStep = (from, to) => (Math.abs(to - from) > 2 ? 1 : Math.abs(to - from) > 0.5 ? "D2" : null);

  function keepTicks(plot, layout) {
    const changes = {};
    for (const name of ["xaxis", "yaxis"]) {
      const { tickformat, type } = layout[name];
      const { range } = plot.layout[name];
      // Without a range, the figure is being drawn again, and this comes once more after it.
      if (!range || (tickformat !== ",d" && type !== "log")) continue;
      const step = (type === "log" ? powerStep : wholeStep)(...range);
      if ((plot.layout[name].dtick ?? null) === step) continue;
      changes[`${name}.dtick`] = step;
      // Between powers of ten Plotly shows the first digit alone.
      if (type === "log") changes[`${name}.tickformat`] = step === "D2" ? "~g" : "";
    }
    if (Object.keys(changes).length) Plotly.relayout(plot, changes);
  }

  // A figure in words, made when it is asked for.
  function values(spec) {
    const details = element("details", {}, element("summary", {}, "Values as a table"));
    const line = (kind, cells) => element("tr", {}, ...cells.map((text) => element(kind, {}, text)));
    const rows = () => spec.panels.flatMap(({ title, data: traces }) =>
      traces.filter((trace) => !trace.fill && trace.hoverinfo !== "skip").flatMap((trace) =>
        trace.x.map((x, i) => [title, plain(trace.name), short(trace.meta.seed), ...[x, trace.y[i]].map(plain)])));
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      const found = rows(), shown = found.slice(0, MOST_VALUES);
      const table = element("table", {},
        element("caption", {}, `The first ${shown.length} of ${found.length} values.`),
        element("thead", {}, line("th", ["Panel", "Series", "Seed", "x", "y"])),
        element("tbody", {}, ...shown.map((cells) => line("td", cells))));
      const region = element("div", { className: "scroll values", tabIndex: 0 }, table);
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", "Values of the figure");
      details.append(region);
    });
    return details;
  }

  function makeFigure(box) {
    const spec = data(`data-${box.dataset.figure}`);
    const image = box.querySelector("img");
    const hidden = new Set();
    let chosen = { size: "", seed: "" }, drawn = false;
    const panels = element("div", { className: "panels" });
    const parts = spec.panels.map((panel) => {
      const plot = element("div", { className: "plot" });
      plot.setAttribute("role", "group");
      plot.setAttribute("aria-label", [image.alt, panel.title].filter(Boolean).join(": "));
      const part = element("div", { className: "panel" }, plot);
      if (panel.title) part.prepend(element("h4", {}, panel.title));
      panels.append(part);
      return { panel, plot, part };
    });
    const keys = element("ul", { className: "keys" });
    keys.setAttribute("aria-label", "Show or hide");
    for (const [index, name] of spec.groups) {
      const button = element("button", { type: "button" }, name);
      button.setAttribute("aria-pressed", "true");
      button.dataset.colour = index;
      button.addEventListener("click", () => {
        if (!hidden.delete(index)) hidden.add(index);
        button.setAttribute("aria-pressed", String(!hidden.has(index)));
        draw();
      });
      keys.append(element("li", {}, button));
    }
    const isShown = ({ meta }) =>
      !hidden.has(meta.colour) && (!chosen.seed || meta.seed === null || String(meta.seed) === chosen.seed);

    function arrange() {
      for (const { panel, part } of parts) part.hidden = chosen.size && panel.size && panel.size !== chosen.size;
      const seen = parts.filter(({ part }) => !part.hidden).length;
      panels.style.setProperty("--columns", Math.min(spec.columns, seen) || 1);
      keys.querySelectorAll("button").forEach((key) => key.style.setProperty("--colour", colour(Number(key.dataset.colour))));
    }

    function draw() {
      arrange();
      if (!drawn) return;
      for (const { panel, plot, part } of parts) {
        if (part.hidden) continue;
        const traces = panel.data.map((trace) => ({ ...coloured(trace), visible: isShown(trace) }));
        Plotly.react(plot, traces, themed(panel.layout), config).then(() => {
          // Read out, the texts of an image are noise; the values are below it.
          plot.querySelectorAll(".main-svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
          keepTicks(plot, panel.layout);
          if (plot.dataset.listens) return;
          plot.dataset.listens = "yes";
          plot.on("plotly_relayout", () => keepTicks(plot, panel.layout));
        });
      }
    }
    // All boxes have their size from the start, so that nothing moves when a figure is drawn.
    image.hidden = true;
    if (spec.groups.length > 1) box.append(keys);
    box.append(panels, values(spec));
    arrange();
    const show = () => {
      drawn = true;
      draw();
    };
    figures.push({ box, draw, show, choose: (found) => { chosen = found; draw(); } });
  }

  function makeFigures() {
    if (!globalThis.Plotly) return;  // The static images stay.
    document.querySelectorAll("[data-figure]").forEach(makeFigure);
    // All at once would take seconds.
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        figures.find(({ box }) => box === entry.target).show();
        watcher.unobserve(entry.target);
      }
    }, { rootMargin: "600px" });
    figures.forEach(({ box }) => watcher.observe(box));
    dark.addEventListener("change", () => figures.forEach(({ draw }) => draw()));
    addEventListener("beforeprint", () => figures.forEach(({ show }) => show()));
    const selects = [...document.querySelectorAll("select[data-choice]")];
    const choose = () => {
      const chosen = Object.fromEntries(selects.map((one) => [one.dataset.choice, one.value]));
      figures.forEach((figure) => figure.choose({ size: "", seed: "", ...chosen }));
    };
    selects.forEach((one) => one.addEventListener("change", choose));
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
