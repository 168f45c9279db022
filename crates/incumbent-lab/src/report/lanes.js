// How a recorded run is drawn: lanes of roles, faults and overlaps as SVG, messages as arrows on a canvas.
//
// From back to front: heartbeats (a canvas, drawn anew with the view), lanes (SVG, with the view), the contest's messages,
// the veil over the future and the present (a canvas, with every frame). There may be thousands of arrows, a few dozen bars.

/** With more arrows than this in sight, names would cover them. */
const NAMED_ARROWS_MAX = 40;

const xOf = (t) => player.geometry.left + ((t - player.view.from) / (player.view.to - player.view.from)) * player.geometry.span;
const tOf = (x) => player.view.from + ((x - player.geometry.left) / player.geometry.span) * (player.view.to - player.view.from);
const laneOf = (node) => player.geometry.top + (player.run.nodes.indexOf(node) + 0.5) * player.geometry.lane;

const laneName = (node, narrow) => (narrow ? "" : "node ") + node;

/** Where things are on the screen, from the width of the track and the number of nodes. */
function measure() {
  const { run, width } = player;
  const narrow = width < 520;
  const left = 18 + 7.6 * Math.max(...run.nodes.map((node) => laneName(node, narrow).length));
  const strips = [run.faults.length > 0 ? 22 : 0, run.overlaps.length > 0 ? 22 : 0];
  const top = strips[0] + strips[1] + 6;
  const lane = clamp(Math.floor((narrow ? 320 : 480) / run.nodes.length), 11, 96);
  const bottom = top + lane * run.nodes.length;
  return { narrow, left, span: width - left - 8, top, lane, bottom, height: bottom + 26, bar: clamp(lane * 0.3, 4, 18), strips };
}

// ---- lanes ---------------------------------------------------------------------------------------------------------

function drawLanes() {
  if (player.width === 0) return;
  const g = (player.geometry = measure());
  const { run, view } = player;
  const svg = byId("lanes");
  size(svg, player.width, g.height);
  byId("track").style.height = g.height + "px";
  const overlapsView = (it) => it.to_ms >= view.from && it.from_ms <= view.to;
  /** A rectangle of time, cut to the view. */
  const block = (it, y, height, attributes) => {
    const x1 = Math.max(xOf(it.from_ms), g.left);
    const x2 = Math.min(xOf(it.to_ms), g.left + g.span);
    return shape("rect", { x: x1, y, width: Math.max(1.5, x2 - x1), height, ...attributes });
  };
  const parts = [
    shape("defs", {},
      shape("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        shape("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 })),
      shape("pattern", { id: "hatch-paused", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" },
        shape("line", { class: "hatch paused", x1: 0, x2: 0, y1: 0, y2: 5 }))),
  ];
  for (const it of run.faults.filter(overlapsView)) {
    const nodes = it.nodes.length > 0 ? it.nodes : run.nodes;
    for (const node of nodes) parts.push(block(it, laneOf(node) - g.lane / 2, g.lane, { class: "fault-shade" }),
      block(it, laneOf(node) - g.lane / 2, g.lane, { fill: "url(#hatch)" }));
    parts.push(block(it, 3, g.strips[0] - 5, { class: "fault-strip", rx: 2 }));
  }
  parts.push(...stripLabels(run.faults.filter(overlapsView), 3, g.strips[0] - 5, (it) => it.text, "fault-text"));
  for (const it of run.overlaps.filter(overlapsView)) {
    parts.push(block(it, g.top, g.bottom - g.top, { class: "overlap-shade" }),
      block(it, g.strips[0] + 3, g.strips[1] - 5, { class: "overlap-strip", rx: 2 }));
  }
  parts.push(...stripLabels(run.overlaps.filter(overlapsView), g.strips[0] + 3, g.strips[1] - 5,
    (it) => `two leaders · ${formatMs(it.to_ms - it.from_ms)}`, "overlap-text"));
  for (const node of run.nodes) parts.push(...laneParts(node, overlapsView, block));
  for (const tick of linearTicks(view.from, view.to, g.narrow ? 3 : 7)) {
    const half = axisTime(tick).length * 3.8;
    parts.push(shape("line", { class: "grid", x1: xOf(tick), x2: xOf(tick), y1: g.bottom, y2: g.bottom + 5 }),
      shape("text", { class: "tick", x: Math.min(xOf(tick), player.width - half), y: g.bottom + 19, "text-anchor": "middle" }, axisTime(tick)));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", `Timeline of ${run.title}: ${run.nodes.length} nodes, ${formatMs(run.duration_ms)}, ` +
    `${run.faults.length} faults, ${run.overlaps.length === 0 ? "never two leaders" : run.overlaps.length + " times two leaders"}.`);
  drawOverview();
  drawBackground();
}

/** One node's lane: its name, its line, its roles. */
function laneParts(node, overlapsView, block) {
  const { run } = player;
  const g = player.geometry;
  const y = laneOf(node);
  const parts = [shape("line", { class: "lane", x1: g.left, x2: g.left + g.span, y1: y, y2: y })];
  if (g.lane >= 13 || run.nodes.indexOf(node) % 2 === 0) {
    parts.push(shape("text", { class: "label", x: g.left - 8, y: y + 4, "text-anchor": "end" }, laneName(node, g.narrow)));
  }
  for (const it of run.periods.get(node).filter(overlapsView)) {
    const bar = block(it, y - g.bar / 2, g.bar, { class: "role role-" + it.role, rx: Math.min(3, g.bar / 2), fill: it.role === "paused" ? "url(#hatch-paused)" : null });
    parts.push(bar);
    for (const overlap of run.overlaps.filter((o) => it.role === "leader" && o.nodes.includes(node) && o.from_ms < it.to_ms && o.to_ms > it.from_ms && overlapsView(o))) {
      parts.push(block({ from_ms: Math.max(it.from_ms, overlap.from_ms), to_ms: Math.min(it.to_ms, overlap.to_ms) }, y - g.bar / 2, g.bar, { class: "role overlap-bar" }));
    }
    if (g.bar >= 13 && it.role !== "follower") {
      const room = Number(bar.getAttribute("width"));
      const absent = it.role === "down" || it.role === "paused";
      const words = (absent ? [it.role] : [`${it.role} · term ${it.term}`, it.role, `t${it.term}`]).find((text) => text.length * 6.1 + 8 < room);
      if (words) parts.push(shape("text", { class: `bar-text on-${it.role}`, x: Number(bar.getAttribute("x")) + 5, y: y + 3.8 }, words));
    }
  }
  return parts;
}

/** Labels in a strip of blocks: each has the room up to the next one. */
function stripLabels(items, y, height, textOf, kind) {
  const g = player.geometry;
  return items.flatMap((it, at) => {
    const x = Math.max(xOf(it.from_ms), g.left) + 5;
    const next = items[at + 1];
    const room = (next ? Math.max(xOf(next.from_ms), g.left) : g.left + g.span) - x - 4;
    const text = fitted(textOf(it), room);
    return text === "" ? [] : [shape("text", { class: "strip-text " + kind, x, y: y + height / 2 + 3.8 }, text, shape("title", {}, textOf(it)))];
  });
}

/** `text` cut to about `room` pixels, or nothing if even a word has no room. */
function fitted(text, room) {
  const letters = Math.floor(room / 6);
  if (text.length <= letters) return text;
  return letters < 6 ? "" : text.slice(0, letters - 1).trimEnd() + "…";
}

function axisTime(t) {
  const span = player.view.to - player.view.from;
  if (span > 2500) return `${Number((t / 1000).toFixed(2))} s`;
  return `${Number(t.toFixed(span < 20 ? 2 : span < 100 ? 1 : 0))} ms`;
}

/** The whole run in one strip, under the scrubber: who led, what went wrong, and what the view shows of it. */
function drawOverview() {
  const { run, view } = player;
  const svg = byId("overview");
  // Under the lanes, so that a moment stands at the same place in both while the whole run is in view.
  const width = player.geometry.span;
  svg.parentElement.style.marginLeft = player.geometry.left + "px";
  svg.parentElement.style.width = width + "px";
  size(svg, width, 24);
  const x = (t) => (t / run.duration_ms) * width;
  const block = (it, y, height, kind) => shape("rect", { class: kind, x: x(it.from_ms), y, width: Math.max(1.5, x(it.to_ms) - x(it.from_ms)), height });
  svg.replaceChildren(
    shape("rect", { class: "over-base", x: 0, y: 8, width, height: 8, rx: 4 }),
    ...run.roles.filter((it) => it.role === "leader").map((it) => block(it, 8, 8, "over-leader")),
    ...run.overlaps.map((it) => block(it, 8, 8, "over-overlap")),
    ...run.faults.map((it) => block(it, 19, 3, "over-fault")),
    shape("rect", { class: "over-view", x: x(view.from) + 0.5, y: 3.5, width: Math.max(4, x(view.to) - x(view.from) - 1), height: 17, rx: 3, visibility: view.to - view.from < run.duration_ms ? "visible" : "hidden" }));
}

// ---- arrows --------------------------------------------------------------------------------------------------------

/** The page's colours for the canvas, which knows no style sheet. Read again when the theme changes. */
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "muted", "faint", "accent", "guard", "danger"]) player.ink[name] = style.getPropertyValue("--" + name).trim();
}

/** A canvas as large as the track, empty, with its pen inside the plot. */
function blank(canvas) {
  const g = player.geometry;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(player.width * ratio), Math.round(g.height * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    [canvas.width, canvas.height] = [width, height];
    canvas.style.width = player.width + "px";
    canvas.style.height = g.height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, player.width, g.height);
  return pen;
}

function withinPlot(pen, draw) {
  const g = player.geometry;
  pen.save();
  pen.beginPath();
  pen.rect(g.left, 0, g.span + 8, g.bottom + 6);
  pen.clip();
  draw();
  pen.restore();
}

const inView = (message) => message.end_ms >= player.view.from && message.sent_ms <= player.view.to;

/** What changes with the view only. */
function drawBackground() {
  const pen = blank(byId("heartbeats"));
  withinPlot(pen, () => drawQuiet(pen, visibleMessages().filter((it) => it.purpose === "upkeep" && inView(it))));
}

/** What changes with every frame. */
function drawForeground() {
  const pen = blank(byId("arrows"));
  withinPlot(pen, () => {
    const loud = player.run.messages.filter((it) => it.purpose !== "upkeep" && inView(it));
    for (const it of loud) drawLoud(pen, it);
    if (loud.length <= NAMED_ARROWS_MAX) for (const group of broadcasts(loud)) nameArrow(pen, group);
    drawVeil(pen);
    if (!player.begun) return;
    for (const it of visibleMessages()) if (it.sent_ms <= player.t && player.t <= it.end_ms) drawInFlight(pen, it);
  });
  drawHead(pen);
}

/** The two ends of a message's arrow; a lost one ends half-way. */
function ends(message) {
  const edge = player.geometry.bar / 2;
  const [from, to] = [laneOf(message.from), laneOf(message.to)];
  // From the edge of one bar to the edge of the other: the bars keep their words.
  const [y1, y2] = from < to ? [from + edge, to - edge] : [from - edge, to + edge];
  const [x1, x2] = [xOf(message.sent_ms), xOf(message.end_ms)];
  if (message.arrived_ms !== null) return { x1, y1, x2, y2 };
  return { x1, y1, x2: (x1 + x2) / 2, y2: (y1 + y2) / 2 };
}

/** Heartbeats and other upkeep: all in one faint stroke. */
function drawQuiet(pen, messages) {
  pen.strokeStyle = player.ink.faint;
  pen.lineWidth = 1;
  pen.globalAlpha = messages.length > 600 ? 0.5 : 0.9;
  pen.beginPath();
  for (const it of messages) {
    const { x1, y1, x2, y2 } = ends(it);
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
  }
  pen.stroke();
  pen.strokeStyle = player.ink.muted;
  pen.beginPath();
  for (const it of messages) if (it.arrived_ms === null) cross(pen, ends(it), 2.5);
  pen.stroke();
  pen.globalAlpha = 1;
}

/** The contest itself: an arrow each. */
function drawLoud(pen, message) {
  const { x1, y1, x2, y2 } = ends(message);
  const lost = message.arrived_ms === null;
  pen.strokeStyle = pen.fillStyle = lost ? player.ink.muted : message.purpose === "guard" ? player.ink.guard : player.ink.ink;
  pen.lineWidth = 1.25;
  pen.setLineDash(lost ? [3, 3] : []);
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
  pen.setLineDash([]);
  const length = Math.hypot(x2 - x1, y2 - y1);
  pen.beginPath();
  if (lost) cross(pen, { x2, y2 }, 4);
  pen.stroke();
  if (!lost) arrowHead(pen, x1, y1, x2, y2, Math.min(7, length / 3));
}

function cross(pen, { x2, y2 }, s) {
  pen.moveTo(x2 - s, y2 - s);
  pen.lineTo(x2 + s, y2 + s);
  pen.moveTo(x2 + s, y2 - s);
  pen.lineTo(x2 - s, y2 + s);
}

function arrowHead(pen, x1, y1, x2, y2, s) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  pen.beginPath();
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - s * Math.cos(angle - 0.4), y2 - s * Math.sin(angle - 0.4));
  pen.lineTo(x2 - s * Math.cos(angle + 0.4), y2 - s * Math.sin(angle + 0.4));
  pen.fill();
}

/** The name of a message along its arrow, if there is room; one name for all that were sent at once. */
function nameArrow(pen, group) {
  pen.font = "11px system-ui, sans-serif";
  const name = group[0].name;
  const room = pen.measureText(name).width + 22;
  const spot = group.map(ends).find(({ x1, y1, x2, y2 }) => {
    // Writing that stands nearly upright is read by nobody.
    const steep = Math.abs(y2 - y1) > 2.4 * (x2 - x1);
    return !steep && Math.hypot(x2 - x1, y2 - y1) > room;
  });
  if (!spot) return;
  pen.save();
  pen.textAlign = "center";
  pen.translate((spot.x1 + spot.x2) / 2, (spot.y1 + spot.y2) / 2);
  pen.rotate(Math.atan2(spot.y2 - spot.y1, spot.x2 - spot.x1));
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  pen.strokeStyle = player.ink.paper;
  pen.strokeText(name, 0, -4);
  pen.fillStyle = player.ink.ink;
  pen.fillText(name, 0, -4);
  pen.restore();
}

/** What is still to come lies under a veil, once somebody has begun to watch. */
function drawVeil(pen) {
  if (!player.begun) return;
  const g = player.geometry;
  const x = clamp(xOf(player.t), g.left, g.left + g.span);
  pen.globalAlpha = 0.66;
  pen.fillStyle = player.ink.paper;
  pen.fillRect(x, 0, g.left + g.span + 8 - x, g.bottom);
  pen.globalAlpha = 1;
}

function drawInFlight(pen, message) {
  const { x1, y1, x2, y2 } = ends(message);
  const whole = message.end_ms - message.sent_ms || 1;
  const part = clamp((player.t - message.sent_ms) / whole, 0, 1);
  const quiet = message.purpose === "upkeep";
  pen.strokeStyle = pen.fillStyle = quiet ? player.ink.muted : player.ink.accent;
  pen.lineWidth = quiet ? 1 : 2;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x1 + (x2 - x1) * part, y1 + (y2 - y1) * part);
  pen.stroke();
  pen.beginPath();
  pen.arc(x1 + (x2 - x1) * part, y1 + (y2 - y1) * part, quiet ? 2 : 3.5, 0, 2 * Math.PI);
  pen.fill();
}

/** The present: a line over all lanes. */
function drawHead(pen) {
  const g = player.geometry;
  const x = xOf(player.t);
  if (x < g.left - 1 || x > g.left + g.span + 1) return;
  pen.strokeStyle = pen.fillStyle = player.ink.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, 2);
  pen.lineTo(x, g.bottom + 5);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x - 5, 0);
  pen.lineTo(x + 5, 0);
  pen.lineTo(x, 7);
  pen.fill();
}

