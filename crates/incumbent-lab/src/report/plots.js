// Plots: how messages and time grow with the number of nodes, and how a measure is spread over the runs.

/** Which lines are shown; shared by all plots. */
const shown = { protocols: new Set(protocols), guards: new Set([true, false]) };

const isShown = (it) => shown.protocols.has(it.protocol) && shown.guards.has(it.guarded);

/** Toggles for protocols and guard. `changed` redraws. */
function showLegend(changed) {
  const guards = [true, false].filter((it) => report.results.some((row) => row.guarded === it));
  const toggle = (set, value, ...children) => make("button", {
    type: "button", "aria-pressed": String(set.has(value)),
    onclick: (event) => {
      // The last of its kind stays: an empty plot tells nothing.
      if (!set.delete(value)) set.add(value);
      else if (set.size === 0) set.add(value);
      event.currentTarget.setAttribute("aria-pressed", String(set.has(value)));
      changed();
    },
  }, ...children);
  const line = (guarded) => shape("svg", { class: "swatch", viewBox: "0 0 28 12", "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 27, y1: 6, y2: 6, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": guarded ? null : "5 4" }));
  byId("legend").replaceChildren(
    ...protocols.filter((it) => report.results.some((row) => row.protocol === it))
      .map((it) => toggle(shown.protocols, it, swatch(it, true), it)),
    make("span", { class: "gap" }),
    ...guards.map((it) => toggle(shown.guards, it, line(it), guardWord(it))));
}

/** A figure with a choice of measure and a logarithmic switch. `draw(svg, width, definition, logarithmic, head)` fills it;
 * `head.over` says over what, and `head.scale` is there unless a logarithmic scale makes no sense. */
function plot(figure, title, measures, logarithmic, draw) {
  const definitions = measures.map((name) => report.meta.glossary.find((it) => it.measure === name)).filter(Boolean);
  const choice = make("select", { "aria-label": title });
  const log = make("input", { type: "checkbox" });
  log.checked = logarithmic;
  const svg = shape("svg", { role: "img" });
  const meaning = make("p", { class: "caption" });
  const head = { over: make("span", { class: "over" }), scale: make("label", { class: "check" }, log, "log") };
  figure.replaceChildren(
    make("figcaption", {}, choice, head.over, head.scale), svg, meaning);
  let width = 0;
  const redraw = () => {
    if (width === 0) return;
    const has = definitions.filter((it) => report.results.some((row) => row.scenario === chosen.scenario && row.measures[it.measure]));
    const wanted = has.find((it) => it.measure === choice.value) ?? has[0];
    choice.replaceChildren(...has.map((it) => make("option", { value: it.measure }, it.label)));
    svg.replaceChildren();
    if (!wanted) return;
    choice.value = wanted.measure;
    meaning.textContent = wanted.meaning;
    head.over.textContent = title;
    head.scale.hidden = false;
    draw(svg, width, wanted, log.checked, head);
  };
  choice.addEventListener("change", redraw);
  log.addEventListener("change", redraw);
  onWidth(figure, (it) => {
    width = it;
    redraw();
  });
  return redraw;
}

// ---- over n --------------------------------------------------------------------------------------------------------

function drawGrowth(svg, width, definition, logarithmic, head) {
  const rows = report.results.filter((it) => it.scenario === chosen.scenario && isShown(it) && it.measures[definition.measure]);
  const sizes = [...new Set(rows.map((it) => it.nodes))].sort((a, b) => a - b);
  if (sizes.length < 2) {
    head.scale.hidden = true;
    head.over.textContent = `with ${sizes[0] ?? 0} nodes`;
    return drawOneSize(svg, width, definition, rows);
  }
  const write = formatOf(definition);
  const [left, right, top, bottom, height] = [56, 14, 12, 34, width < 420 ? 240 : 290];
  size(svg, width, height);
  const [low, high] = bounds(rows.map((it) => it.measures[definition.measure].p50), logarithmic);
  const y = scale(low, high, height - bottom, top, logarithmic, 5);
  const x = scale(sizes[0], sizes[sizes.length - 1], left + 10, width - right, true, 1);
  for (const tick of y.ticks) {
    svg.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y.at(tick), y2: y.at(tick) }),
      shape("text", { class: "tick", x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, write(tick)));
  }
  let free = -Infinity;
  for (const n of sizes) {
    svg.append(shape("line", { class: "grid", x1: x.at(n), x2: x.at(n), y1: height - bottom, y2: height - bottom + 4 }));
    // A label that would touch the one before it is left out.
    if (x.at(n) < free) continue;
    free = x.at(n) + 10 + 8 * String(n).length;
    svg.append(shape("text", { class: "tick", x: x.at(n), y: height - bottom + 18, "text-anchor": "middle" }, String(n)));
  }
  svg.append(shape("text", { class: "tick", x: width - right, y: height - 2, "text-anchor": "end" }, "nodes"));
  const series = seriesOf(rows);
  for (const line of series) drawLine(svg, line, definition, x, y);
  svg.setAttribute("aria-label", `${definition.label} over the number of nodes: ` + series.map((line) =>
    `${inWords(line[0])} from ${write(line[0].measures[definition.measure].p50)} to ${write(line[line.length - 1].measures[definition.measure].p50)}`).join("; "));
  const cursor = shape("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(cursor);
  follow(svg, (px, event) => {
    const n = px === null ? null : sizes.reduce((best, it) => (Math.abs(x.at(it) - px) < Math.abs(x.at(best) - px) ? it : best));
    cursor.setAttribute("visibility", n === null ? "hidden" : "visible");
    if (n === null) return tell();
    cursor.setAttribute("x1", x.at(n));
    cursor.setAttribute("x2", x.at(n));
    const there = rows.filter((it) => it.nodes === n).sort((a, b) => b.measures[definition.measure].p50 - a.measures[definition.measure].p50);
    tell(event.clientX, event.clientY, make("b", {}, `${n} nodes`), make("table", {}, ...there.map((it) => tipRow(it, definition))));
  });
}

function tipRow(row, definition) {
  const write = formatOf(definition);
  const spread = row.measures[definition.measure];
  return make("tr", {}, make("td", {}, swatch(row.protocol, row.guarded)), make("td", {}, row.protocol),
    make("td", { class: "figure" }, make("b", {}, write(spread.p50))), make("td", { class: "figure faint" }, write(spread.p99)));
}

/** The rows of each line, by size. */
function seriesOf(rows) {
  const lines = [];
  for (const protocol of protocols) for (const guarded of [true, false]) {
    const line = rows.filter((it) => it.protocol === protocol && it.guarded === guarded).sort((a, b) => a.nodes - b.nodes);
    if (line.length > 0) lines.push(line);
  }
  return lines;
}

function drawLine(svg, line, definition, x, y) {
  const colour = colourOf(line[0].protocol);
  const guarded = line[0].guarded;
  // A logarithmic axis has no zero: such a point lies on the lower edge.
  const at = (it) => y.at(Math.max(it.measures[definition.measure].p50, y.low));
  const path = line.map((it, index) => `${index === 0 ? "M" : "L"}${x.at(it.nodes)},${at(it)}`).join("");
  svg.append(shape("path", { class: "line", d: path, stroke: colour, "stroke-dasharray": guarded ? null : "6 4" }));
  for (const it of line) {
    svg.append(marker(it.protocol, x.at(it.nodes), at(it), 3.6, { fill: guarded ? colour : "var(--paper)", stroke: colour, "stroke-width": 1.6 }));
  }
}

/** One size alone makes no line: a bar each, from zero. */
function drawOneSize(svg, width, definition, rows) {
  const write = formatOf(definition);
  const series = seriesOf(rows).map((line) => line[0]);
  const [left, right, top, step] = [0, 84, 8, 38];
  const height = top + series.length * step + 8;
  size(svg, width, height);
  const high = Math.max(...series.map((it) => it.measures[definition.measure].p50), 0);
  const x = scale(0, high || 1, left, width - right, false, 4);
  series.forEach((it, index) => {
    const y = top + index * step;
    const value = it.measures[definition.measure].p50;
    svg.append(
      shape("text", { class: "label", x: left, y: y + 13 }, it.protocol + (it.guarded ? "" : " · guard off")),
      shape("rect", { x: left, y: y + 19, width: Math.max(1, x.at(value) - left), height: 8, rx: 2, fill: colourOf(it.protocol), opacity: it.guarded ? 1 : 0.5 }),
      shape("text", { class: "tick", x: x.at(value) + 8, y: y + 27 }, write(value)));
  });
  svg.setAttribute("aria-label", `${definition.label}: ` + series.map((it) => `${inWords(it)} ${write(it.measures[definition.measure].p50)}`).join("; "));
}

/** The range of an axis: from zero, or on a logarithmic axis from the least positive value. */
function bounds(values, logarithmic) {
  const positive = values.filter((it) => it > 0);
  const high = Math.max(...values, 0) * 1.05 || 1;
  return logarithmic && positive.length > 0 ? [Math.min(...positive) / 1.15, high * 1.1] : [0, high];
}

function size(svg, width, height) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
}

/** Calls `moved(x, event)` while a pointer is over `svg`, and `moved(null)` when it leaves. */
function follow(svg, moved) {
  svg.onpointermove = svg.onpointerdown = (event) => moved(event.clientX - svg.getBoundingClientRect().left, event);
  svg.onpointerleave = () => moved(null);
}

// ---- distributions -------------------------------------------------------------------------------------------------

function drawSpread(svg, width, definition, logarithmic) {
  const write = formatOf(definition);
  const rows = seriesOf(report.results.filter((it) => it.scenario === chosen.scenario && it.nodes === chosen.nodes && isShown(it)
    && (it.measures[definition.measure]?.samples ?? []).length > 0)).map((line) => line[0]);
  const narrow = width < 560;
  const [left, right, top, step] = [narrow ? 4 : 190, 16, 6, narrow ? 62 : 50];
  const height = top + Math.max(1, rows.length) * step + 34;
  size(svg, width, height);
  if (rows.length === 0) {
    svg.append(shape("text", { class: "label", x: 4, y: 30 }, "No distribution was kept for this choice."));
    return;
  }
  const values = rows.flatMap((it) => it.measures[definition.measure].samples);
  const positive = values.filter((it) => it > 0);
  const low = logarithmic && positive.length > 0 ? Math.min(...positive) / 1.1 : Math.min(...values) > 0.4 * Math.max(...values) ? Math.min(...values) * 0.95 : 0;
  const x = scale(low, Math.max(...values) * 1.04 || 1, left, width - right, logarithmic && positive.length > 0, Math.max(3, (width - left) / 110));
  for (const tick of x.ticks) {
    svg.append(shape("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: top, y2: height - 28 }),
      shape("text", { class: "tick", x: x.at(tick), y: height - 12, "text-anchor": tick === x.ticks[0] && narrow ? "start" : "middle" }, write(tick)));
  }
  rows.forEach((row, index) => drawRidge(svg, row, definition, x, [left, width - right], top + index * step, step, narrow));
  svg.setAttribute("aria-label", `${definition.label}, over the runs: ` + rows.map((it) => {
    const spread = it.measures[definition.measure];
    return `${inWords(it)} median ${write(spread.p50)}, 99th percentile ${write(spread.p99)}`;
  }).join("; "));
}

/** One row: a histogram on a base line, with the median and the 99th percentile marked. */
function drawRidge(svg, row, definition, x, [left, right], top, step, narrow) {
  const write = formatOf(definition);
  const spread = row.measures[definition.measure];
  const colour = colourOf(row.protocol);
  const base = top + step - 10;
  const room = narrow ? step - 32 : step - 16;
  const bins = new Array(clamp(Math.floor((right - left) / 12), 24, 64)).fill(0);
  for (const value of spread.samples) {
    const place = (x.at(Math.max(value, x.low)) - left) / (right - left);
    bins[clamp(Math.floor(place * bins.length), 0, bins.length - 1)] += 1;
  }
  const most = Math.max(...bins);
  const wide = (right - left) / bins.length;
  // Square root: a value that nearly all runs share must not flatten the rest to nothing.
  const bars = bins.map((count, at) => count === 0 ? "" :
    `M${left + at * wide},${base}v${-Math.max(2, Math.sqrt(count / most) * room)}h${wide - 1}V${base}z`).join("");
  const group = shape("g", {},
    shape("line", { class: "grid", x1: left, x2: right, y1: base + 0.5, y2: base + 0.5 }),
    shape("path", { d: bars, fill: row.guarded ? colour : "none", "fill-opacity": 0.75, stroke: colour, "stroke-width": row.guarded ? 0 : 1.2 }),
    shape("line", { class: "median", x1: x.at(Math.max(spread.p50, x.low)), x2: x.at(Math.max(spread.p50, x.low)), y1: base - room - 3, y2: base + 5 }),
    shape("line", { class: "tail", x1: x.at(Math.max(spread.p99, x.low)), x2: x.at(Math.max(spread.p99, x.low)), y1: base - 9, y2: base + 5 }));
  const name = row.protocol + (row.guarded ? "" : " · guard off");
  if (narrow) {
    group.append(shape("text", { class: "label", x: left, y: top + 13 }, name),
      shape("text", { class: "tick", x: right, y: top + 13, "text-anchor": "end" }, `${write(spread.p50)} · ${write(spread.p99)}`));
  } else {
    group.append(shape("text", { class: "label", x: 0, y: base - 14 }, name),
      shape("text", { class: "tick", x: 0, y: base + 2 }, `${write(spread.p50)} · p99 ${write(spread.p99)}`));
  }
  const hit = shape("rect", { x: left, y: top, width: right - left, height: step, fill: "transparent" });
  hit.addEventListener("pointermove", (event) => tell(event.clientX, event.clientY, make("b", {}, inWords(row)), make("table", {},
    ...[["least", spread.min], ["median", spread.p50], ["mean", spread.mean], ["p99", spread.p99], ["most", spread.max]]
      .map(([word, value]) => make("tr", {}, make("td", {}, word), make("td", { class: "figure" }, write(value)))))));
  hit.addEventListener("pointerleave", () => tell());
  group.append(hit);
  svg.append(group);
}
