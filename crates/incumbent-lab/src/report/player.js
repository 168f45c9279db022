// The player: a recorded run as lanes of roles with messages between them, and a hand on the time.
//
// The lanes are SVG and change with the view; the arrows are a canvas, because there may be thousands, and change with
// every frame. A *step* is one line of the log: something a node told, a fault, a message sent or heard.

/** A message that was lost has no arrival: it is drawn as long on its way as others, and stops half-way. */
const LOST_FLIGHT_MS = 10;
const VIEW_MS_MIN = 4;
/** In the speed "event by event" the time between two steps is stretched or squeezed into these bounds, in ms of the spectator. */
const BEAT_MS_MIN = 130;
const BEAT_MS_MAX = 900;

const player = {
  run: null, stage: null, t: 0, step: 0, playing: false, begun: false, held: 0, before: 0,
  view: { from: 0, to: 1 }, width: 0, ink: {}, geometry: null,
};

function startPlayer() {
  const choice = byId("run");
  if (report.timelines.length === 0) {
    byId("replay").hidden = true;
    return;
  }
  choice.replaceChildren(...report.timelines.map((it, at) =>
    make("option", { value: at }, `${it.title}`)));
  choice.addEventListener("change", () => load(report.timelines[choice.value]));
  byId("role-key").replaceChildren(...["leader", "candidate", "follower", "paused", "down"].map((role) =>
    make("span", {}, roleGlyph(role), role)),
    make("span", { class: "danger-text" }, make("i", { class: "patch overlap" }), "two leaders"),
    make("span", {}, make("i", { class: "patch fault" }), "fault"));
  byId("play").addEventListener("click", () => setPlaying(!player.playing));
  byId("back").addEventListener("click", () => stepBy(-1));
  byId("forward").addEventListener("click", () => stepBy(1));
  byId("scrubber").addEventListener("input", (event) => seek(Number(event.target.value)));
  byId("upkeep").addEventListener("change", show);
  byId("zoom-in").addEventListener("click", () => zoom(player.t, 0.5));
  byId("zoom-out").addEventListener("click", () => zoom(player.t, 2));
  byId("zoom-all").addEventListener("click", () => look(0, player.run.duration_ms));
  byId("player").addEventListener("keydown", onKey);
  touchTrack(byId("track"));
  load(report.timelines[0]);
  onWidth(byId("track"), (width) => {
    player.width = width;
    readInk();
    look(player.view.from, player.view.to);
  });
}

// ---- a run ---------------------------------------------------------------------------------------------------------

function load(recorded) {
  setPlaying(false);
  const run = { ...recorded, periods: new Map(recorded.nodes.map((node) => [node, recorded.roles.filter((it) => it.node === node)])) };
  const flights = recorded.messages.filter((it) => it.arrived_ms !== null).map((it) => it.arrived_ms - it.sent_ms).sort((a, b) => a - b);
  const usual = flights[Math.floor(flights.length / 2)] ?? LOST_FLIGHT_MS;
  run.messages = recorded.messages.map((it) => ({ ...it, end_ms: it.arrived_ms ?? it.sent_ms + usual }));
  run.steps = stepsOf(run);
  Object.assign(player, { run, t: 0, step: 0, begun: false, held: 0, stage: buildStage(run) });
  byId("scrubber").max = run.duration_ms;
  byId("run-lead").textContent = `${run.protocol}, ${run.guarded ? "quorum guard on" : "quorum guard off"}, ${run.nodes.length} nodes, scenario ${run.scenario}.`;
  byId("run-notes").textContent = run.notes.join(" ");
  look(0, run.duration_ms);
  moveTo(0, 0);
}

/** The log of a run. What happens at one instant stands in the order of cause and effect. */
function stepsOf(run) {
  const steps = [];
  const add = (t, rank, kind, node, text) => steps.push({ t, rank, kind, node, text });
  add(0, 0, "mark", null, "The run begins");
  for (const it of run.faults) {
    add(it.from_ms, 2, "fault", null, it.text);
    if (it.to_ms < run.duration_ms) add(it.to_ms, 2, "fault", null, `Over: ${it.text}`);
  }
  for (const it of run.events) add(it.t_ms, 3, "told", it.node ?? null, it.text);
  const told = new Set(run.events.map((it) => `${it.t_ms} ${it.node}`));
  for (const it of run.roles) {
    // A change of role that a node has told of is in the log already.
    if (it.from_ms > 0 && !told.has(`${it.from_ms} ${it.node}`)) add(it.from_ms, 3, "told", it.node, `is ${it.role} in term ${it.term}`);
  }
  for (const it of run.overlaps) {
    add(it.from_ms, 4, "danger", null, `Two leaders: ${sentenceList(it.nodes.map(String)).join("")}`);
    if (it.to_ms < run.duration_ms) add(it.to_ms, 4, "mark", null, `One leader again, after ${formatMs(it.to_ms - it.from_ms)}`);
  }
  for (const group of broadcasts(run.messages.filter((it) => it.purpose !== "upkeep"))) {
    const lost = group.filter((it) => it.arrived_ms === null).length;
    const fate = lost === 0 ? "" : lost === group.length ? " (lost)" : ` (${lost} lost)`;
    add(group[0].sent_ms, 5, "sent", group[0].from, `${group[0].name} → ${shortList(group.map((it) => it.to))}${fate}`);
    for (const it of group) if (it.arrived_ms !== null) add(it.arrived_ms, 1, "heard", it.to, `hears ${it.name} from ${it.from}`);
  }
  add(run.duration_ms, 9, "mark", null, "The run ends");
  return steps.filter((it) => it.t <= run.duration_ms).sort((a, b) => a.t - b.t || a.rank - b.rank);
}

/** Messages of one name that one node sent at one instant. */
function broadcasts(messages) {
  const groups = new Map();
  for (const it of messages) {
    const key = `${it.sent_ms} ${it.from} ${it.name}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(it);
  }
  return groups.values();
}

const shortList = (nodes) => (nodes.length > 8 ? `${nodes.length} nodes` : nodes.join(", "));

// ---- time ----------------------------------------------------------------------------------------------------------

/** The last step at or before `t`. */
function stepAt(t) {
  const steps = player.run.steps;
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (steps[middle].t <= t) low = middle;
    else high = middle - 1;
  }
  return low;
}

function seek(t) {
  player.begun = true;
  const to = clamp(t, 0, player.run.duration_ms);
  moveTo(to, stepAt(to));
}

function stepBy(count) {
  setPlaying(false);
  player.begun = true;
  const steps = player.run.steps;
  // Between two steps, "back" first goes to the one that has passed.
  const within = count < 0 && player.t > steps[player.step].t ? 1 : 0;
  const step = clamp(player.step + count + within, 0, steps.length - 1);
  moveTo(steps[step].t, step);
}

/** The one place where the time changes. */
function moveTo(t, step) {
  player.t = t;
  player.step = step;
  player.held = 0;
  keepInSight();
  show();
}

function setPlaying(playing) {
  player.playing = playing;
  byId("player").classList.toggle("playing", playing);
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  // A screen reader follows steps, not a film.
  byId("verdict").setAttribute("aria-live", playing ? "off" : "polite");
  if (!playing) return;
  if (player.t >= player.run.duration_ms) moveTo(0, 0);
  player.begun = true;
  player.before = performance.now();
  requestAnimationFrame(frame);
}

function frame(now) {
  if (!player.playing) return;
  const passed = clamp(now - player.before, 0, 100);
  player.before = now;
  const speed = Number(byId("speed").value);
  if (speed > 0) {
    const t = Math.min(player.t + passed * speed, player.run.duration_ms);
    moveTo(t, stepAt(t));
  } else {
    beat(passed);
  }
  if (player.t >= player.run.duration_ms && player.step === player.run.steps.length - 1) setPlaying(false);
  else requestAnimationFrame(frame);
}

/** Event by event: each pair of steps gets a time in which it can be seen, however close they are. */
function beat(passed) {
  const steps = player.run.steps;
  let held = player.held + passed;
  let step = player.step;
  const length = () => clamp((steps[step + 1].t - steps[step].t) * 3, BEAT_MS_MIN, BEAT_MS_MAX);
  while (step + 1 < steps.length && held >= length()) {
    held -= length();
    step += 1;
  }
  const next = steps[step + 1];
  const t = next ? steps[step].t + (next.t - steps[step].t) * (held / length()) : steps[step].t;
  moveTo(t, step);
  player.held = held;
}

// ---- the view ------------------------------------------------------------------------------------------------------

/** Looks at the run from `from` to `to`, kept within it. */
function look(from, to) {
  const all = player.run.duration_ms;
  const span = clamp(to - from, Math.min(VIEW_MS_MIN, all), all);
  const start = clamp(from, 0, all - span);
  player.view = { from: start, to: start + span };
  drawLanes();
  show();
}

/** Zooms so that `t` stays where it is on the screen. */
function zoom(t, factor) {
  const { from, to } = player.view;
  const at = clamp(t, from, to);
  look(at - (at - from) * factor, at + (to - at) * factor);
}

/** A view that is less than the whole goes along with the time. */
function keepInSight() {
  const { from, to } = player.view;
  const edge = (to - from) * 0.12;
  if (player.t >= from + edge && player.t <= to - edge) return;
  if (from <= 0 && player.t < from + edge && player.t >= from) return;
  if (to >= player.run.duration_ms && player.t > to - edge && player.t <= to) return;
  const start = clamp(player.t - (to - from) * 0.3, 0, player.run.duration_ms - (to - from));
  if (start === from) return;
  player.view = { from: start, to: start + (to - from) };
  drawLanes();
}

const xOf = (t) => player.geometry.left + ((t - player.view.from) / (player.view.to - player.view.from)) * player.geometry.span;
const tOf = (x) => player.view.from + ((x - player.geometry.left) / player.geometry.span) * (player.view.to - player.view.from);
const laneOf = (node) => player.geometry.top + (player.run.nodes.indexOf(node) + 0.5) * player.geometry.lane;

/** Where things are on the screen, from the width of the track and the number of nodes. */
function measure() {
  const { run, width } = player;
  const narrow = width < 520;
  const left = narrow ? 26 : 58;
  const strips = [run.faults.length > 0 ? 22 : 0, run.overlaps.length > 0 ? 22 : 0];
  const top = strips[0] + strips[1] + 6;
  const lane = clamp(Math.floor((narrow ? 300 : 360) / run.nodes.length), 11, 62);
  const bottom = top + lane * run.nodes.length;
  return { narrow, left, span: width - left - 8, top, lane, bottom, height: bottom + 26, bar: clamp(lane * 0.3, 4, 17), strips };
}

// ---- lanes ---------------------------------------------------------------------------------------------------------

function drawLanes() {
  if (player.width === 0) return;
  const g = (player.geometry = measure());
  const { run, view } = player;
  const svg = byId("lanes");
  size(svg, player.width, g.height);
  byId("track").style.height = g.height + "px";
  const inView = (it) => it.to_ms >= view.from && it.from_ms <= view.to;
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
  for (const it of run.faults.filter(inView)) {
    const nodes = it.nodes.length > 0 ? it.nodes : run.nodes;
    for (const node of nodes) parts.push(block(it, laneOf(node) - g.lane / 2, g.lane, { class: "fault-shade" }),
      block(it, laneOf(node) - g.lane / 2, g.lane, { fill: "url(#hatch)" }));
    parts.push(block(it, 3, g.strips[0] - 5, { class: "fault-strip", rx: 2 }));
  }
  parts.push(...stripLabels(run.faults.filter(inView), 3, g.strips[0] - 5, (it) => it.text, "fault-text"));
  for (const it of run.overlaps.filter(inView)) {
    parts.push(block(it, g.top, g.bottom - g.top, { class: "overlap-shade" }),
      block(it, g.strips[0] + 3, g.strips[1] - 5, { class: "overlap-strip", rx: 2 }));
  }
  parts.push(...stripLabels(run.overlaps.filter(inView), g.strips[0] + 3, g.strips[1] - 5,
    (it) => `two leaders · ${formatMs(it.to_ms - it.from_ms)}`, "overlap-text"));
  for (const node of run.nodes) parts.push(...laneParts(node, inView, block));
  for (const tick of linearTicks(view.from, view.to, g.narrow ? 3 : 7)) {
    parts.push(shape("line", { class: "grid", x1: xOf(tick), x2: xOf(tick), y1: g.bottom, y2: g.bottom + 5 }),
      shape("text", { class: "tick", x: clamp(xOf(tick), g.left + 12, g.left + g.span - 18), y: g.bottom + 19, "text-anchor": "middle" }, axisTime(tick)));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", `Timeline of ${run.title}: ${run.nodes.length} nodes, ${formatMs(run.duration_ms)}, ` +
    `${run.faults.length} faults, ${run.overlaps.length === 0 ? "never two leaders" : run.overlaps.length + " times two leaders"}.`);
  drawOverview();
}

/** One node's lane: its name, its line, its roles. */
function laneParts(node, inView, block) {
  const { run } = player;
  const g = player.geometry;
  const y = laneOf(node);
  const parts = [shape("line", { class: "lane", x1: g.left, x2: g.left + g.span, y1: y, y2: y })];
  if (g.lane >= 13 || run.nodes.indexOf(node) % 2 === 0) {
    parts.push(shape("text", { class: "label", x: g.left - 8, y: y + 4, "text-anchor": "end" }, (g.narrow ? "" : "node ") + node));
  }
  for (const it of run.periods.get(node).filter(inView)) {
    const bar = block(it, y - g.bar / 2, g.bar, { class: "role role-" + it.role, rx: Math.min(3, g.bar / 2), fill: it.role === "paused" ? "url(#hatch-paused)" : null });
    parts.push(bar);
    for (const overlap of run.overlaps.filter((o) => it.role === "leader" && o.nodes.includes(node) && o.from_ms < it.to_ms && o.to_ms > it.from_ms && inView(o))) {
      parts.push(block({ from_ms: Math.max(it.from_ms, overlap.from_ms), to_ms: Math.min(it.to_ms, overlap.to_ms) }, y - g.bar / 2, g.bar, { class: "role overlap-bar" }));
    }
    if (g.bar >= 13 && it.role !== "follower") {
      const room = Number(bar.getAttribute("width"));
      const words = [`${it.role} · term ${it.term}`, it.role, `t${it.term}`].find((text) => text.length * 6.1 + 8 < room);
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
  const width = player.width;
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

// ---- what changes with every frame -----------------------------------------------------------------------------------

function show() {
  if (player.width === 0) return;
  const { run, t, step } = player;
  const verdict = verdictAt(run, t);
  setText(byId("verdict"), verdict.text);
  byId("verdict").classList.toggle("danger", verdict.danger);
  setText(byId("clock"), t.toFixed(1) + " ms");
  const scrubber = byId("scrubber");
  scrubber.value = t;
  scrubber.setAttribute("aria-valuetext", `${Math.round(t)} milliseconds. ${verdict.text}. ${run.steps[step].text}`);
  showNodes(run, t);
  showLog();
  player.stage.update(t, visibleMessages());
  drawArrows();
}

/** Writes only what changed, so that a screen reader is not told the same again. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const visibleMessages = () => (byId("upkeep").checked ? player.run.messages : player.run.messages.filter((it) => it.purpose !== "upkeep"));

/** The lines of the log around the present one. */
function showLog() {
  const { run, step } = player;
  const list = byId("log");
  if (list.dataset.step === String(step) && list.run === run) return;
  list.dataset.step = step;
  list.run = run;
  const [before, after] = player.geometry.narrow ? [2, 4] : [5, 6];
  const first = clamp(step - before, 0, Math.max(0, run.steps.length - before - after - 1));
  list.replaceChildren(...run.steps.slice(first, first + before + after + 1).map((it, offset) => {
    const at = first + offset;
    return make("li", { class: `${it.kind}${at > step ? " ahead" : ""}`, "aria-current": at === step ? "step" : null },
      make("button", { type: "button", onclick: () => {
        setPlaying(false);
        player.begun = true;
        moveTo(it.t, at);
      } }, make("time", {}, it.t.toFixed(1)), make("span", {}, it.node === null ? null : make("b", {}, String(it.node) + " "), it.text)));
  }));
}

// ---- arrows --------------------------------------------------------------------------------------------------------

/** The page's colours for the canvas, which knows no style sheet. Read again when the theme changes. */
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "muted", "faint", "accent", "guard", "danger"]) player.ink[name] = style.getPropertyValue("--" + name).trim();
}

function drawArrows() {
  const canvas = byId("arrows");
  const g = player.geometry;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(player.width * ratio) || canvas.height !== Math.round(g.height * ratio)) {
    canvas.width = Math.round(player.width * ratio);
    canvas.height = Math.round(g.height * ratio);
    canvas.style.width = player.width + "px";
    canvas.style.height = g.height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, player.width, g.height);
  pen.save();
  pen.beginPath();
  pen.rect(g.left, 0, g.span + 8, g.bottom + 6);
  pen.clip();
  const { from, to } = player.view;
  const messages = visibleMessages().filter((it) => it.end_ms >= from && it.sent_ms <= to);
  const loud = messages.filter((it) => it.purpose !== "upkeep");
  drawQuiet(pen, messages.filter((it) => it.purpose === "upkeep"));
  for (const it of loud) drawLoud(pen, it, loud.length);
  drawVeil(pen);
  for (const it of messages) if (player.begun && it.sent_ms <= player.t && player.t <= it.end_ms) drawInFlight(pen, it);
  pen.restore();
  drawHead(pen);
}

/** The two ends of a message's arrow; a lost one ends half-way. */
function ends(message) {
  const [y1, y2] = [laneOf(message.from), laneOf(message.to)];
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

/** The contest itself: an arrow each, with its name where there is room. */
function drawLoud(pen, message, crowd) {
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
  if (crowd <= 60 && Math.abs(x2 - x1) > message.name.length * 5.6 + 14) nameArrow(pen, message.name, x1, y1, x2, y2);
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

/** The message's name along its arrow, on a bit of paper. */
function nameArrow(pen, name, x1, y1, x2, y2) {
  pen.save();
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.translate(x1 + (x2 - x1) * 0.5, y1 + (y2 - y1) * 0.5);
  pen.rotate(Math.atan2(y2 - y1, x2 - x1));
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  pen.strokeStyle = player.ink.paper;
  pen.strokeText(name, 0, -4);
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

// ---- hands ---------------------------------------------------------------------------------------------------------

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  // On a button the space bar already means "press".
  const pressed = event.key === " " && (event.target.tagName === "BUTTON" || event.target.type === "checkbox");
  const many = event.shiftKey ? 10 : 1;
  const acts = {
    " ": () => setPlaying(!player.playing),
    ArrowRight: () => stepBy(many),
    ArrowLeft: () => stepBy(-many),
    Home: () => seek(0),
    End: () => seek(player.run.duration_ms),
    "+": () => zoom(player.t, 0.5),
    "=": () => zoom(player.t, 0.5),
    "-": () => zoom(player.t, 2),
    0: () => look(0, player.run.duration_ms),
  };
  if (pressed || !acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

/** One finger or the mouse moves the time, two fingers or the wheel move the view. */
function touchTrack(track) {
  const fingers = new Map();
  let pinch = null;
  const local = (event) => event.clientX - track.getBoundingClientRect().left;
  track.addEventListener("pointerdown", (event) => {
    track.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, local(event));
    pinch = null;
    byId("player").focus({ preventScroll: true });
    if (fingers.size === 1) {
      setPlaying(false);
      seek(tOf(local(event)));
      if (event.pointerType !== "mouse") hover(event);
    }
  });
  track.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return hover(event);
    fingers.set(event.pointerId, local(event));
    if (fingers.size === 1) {
      tell();
      return seek(tOf(local(event)));
    }
    const [a, b] = [...fingers.values()];
    const now = { middle: (a + b) / 2, apart: Math.max(20, Math.abs(a - b)) };
    if (pinch !== null) {
      const t = tOf(pinch.middle);
      const span = (player.view.to - player.view.from) * (pinch.apart / now.apart);
      const from = t - ((now.middle - player.geometry.left) / player.geometry.span) * span;
      look(from, from + span);
    }
    pinch = now;
  });
  const lift = (event) => {
    fingers.delete(event.pointerId);
    pinch = null;
  };
  track.addEventListener("pointerup", lift);
  track.addEventListener("pointercancel", lift);
  track.addEventListener("pointerleave", () => tell());
  track.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(tOf(local(event)), Math.exp(clamp(event.deltaY, -60, 60) / 90));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && player.view.to - player.view.from < player.run.duration_ms) {
      event.preventDefault();
      const by = (event.deltaX / player.geometry.span) * (player.view.to - player.view.from);
      look(player.view.from + by, player.view.to + by);
    }
  }, { passive: false });
}

/** Tells of the message under the pointer. */
function hover(event) {
  const box = byId("track").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let [best, near] = [null, 7];
  for (const it of visibleMessages()) {
    if (it.end_ms < player.view.from || it.sent_ms > player.view.to) continue;
    // A heartbeat gives way to a message of the contest beside it.
    const away = distance(ends(it), x, y) + (it.purpose === "upkeep" ? 2 : 0);
    if (away < near) [best, near] = [it, away];
  }
  if (best === null) return tell();
  const arrived = best.arrived_ms === null ? "lost on the way" : `${formatMs(best.arrived_ms - best.sent_ms)} on the way`;
  tell(event.clientX, event.clientY, make("b", {}, `${best.name}  ${best.from} → ${best.to}`),
    make("div", {}, `term ${best.term} · sent at ${best.sent_ms.toFixed(1)} ms`), make("div", {}, arrived));
}

function distance({ x1, y1, x2, y2 }, x, y) {
  const square = (x2 - x1) ** 2 + (y2 - y1) ** 2 || 1;
  const part = clamp(((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / square, 0, 1);
  return Math.hypot(x - x1 - part * (x2 - x1), y - y1 - part * (y2 - y1));
}
