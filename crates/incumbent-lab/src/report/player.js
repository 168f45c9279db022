// The player: a hand on the time of a recorded run.
//
// A *step* is one line of the log: something a node told, a fault, a message sent or heard. The *view* is the part of the run
// that the lanes show; while "follow" is on it goes where the steps are, close where they are dense.

/** How long a message takes if none has arrived from which to learn it. */
const FLIGHT_MS = 10;
/*
 * All that concerns the scale of time is counted in *flights*: what a message usually takes. So a machine room with half a
 * millisecond from node to node is shown like a continent with fifty.
 */
/** Closer than this there is nothing more to see. */
const VIEW_FLIGHTS_MIN = 1;
/** Closer than this, following would show one arrow and no story. */
const FOLLOW_FLIGHTS_MIN = 6;
/** Steps further apart than this do not belong to one scene. */
const CALM_FLIGHTS = 12;
/** In the speed "event by event" a flight takes this long, in ms of the spectator, within the bounds below. */
const BEAT_MS_PER_FLIGHT = 300;
/** A scene has at most this many steps on each side of the present one. */
const SCENE_STEPS_MAX = 12;
/** The time between two steps is stretched or squeezed into these bounds, in ms of the spectator. */
const BEAT_MS_MIN = 130;
const BEAT_MS_MAX = 900;

const player = {
  run: null, stage: null, t: 0, step: 0, playing: false, begun: false, held: 0, before: 0,
  view: { from: 0, to: 1 }, goal: null, width: 0, ink: {}, geometry: null,
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
  byId("upkeep").addEventListener("change", () => {
    drawBackground();
    show();
  });
  byId("zoom-in").addEventListener("click", () => zoom(player.t, 0.5));
  byId("zoom-out").addEventListener("click", () => zoom(player.t, 2));
  byId("zoom-all").addEventListener("click", lookAtAll);
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
  run.flight = Math.max(flights[Math.floor(flights.length / 2)] ?? FLIGHT_MS, 0.001);
  // A message that was lost is drawn as long on its way as others, and stops half-way.
  run.messages = recorded.messages.map((it) => ({ ...it, end_ms: it.arrived_ms ?? it.sent_ms + run.flight }));
  run.steps = stepsOf(run);
  Object.assign(player, { run, t: 0, step: 0, begun: false, held: 0, goal: null, stage: buildStage(run) });
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
    if (it.from_ms > 0 && !told.has(`${it.from_ms} ${it.node}`)) add(it.from_ms, 3, "told", it.node, `${belief(it)}, term ${it.term}`);
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
  followSteps();
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
  for (const id of ["verdict", "now"]) byId(id).setAttribute("aria-live", playing ? "off" : "polite");
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
  const length = () => clamp(((steps[step + 1].t - steps[step].t) / player.run.flight) * BEAT_MS_PER_FLIGHT, BEAT_MS_MIN, BEAT_MS_MAX);
  while (step + 1 < steps.length && held >= length()) {
    held -= length();
    step += 1;
  }
  const next = steps[step + 1];
  const t = next ? steps[step].t + (next.t - steps[step].t) * (held / length()) : steps[step].t;
  moveTo(t, step);
  player.held = held;
  followSteps();
}

// ---- the view ------------------------------------------------------------------------------------------------------

/** Looks at the run from `from` to `to`, kept within it. */
function look(from, to) {
  const all = player.run.duration_ms;
  const span = clamp(to - from, Math.min(VIEW_FLIGHTS_MIN * player.run.flight, all), all);
  const start = clamp(from, 0, all - span);
  player.view = { from: start, to: start + span };
  drawLanes();
  show();
}

/** The reader takes the view into their own hands. */
function lookByHand(from, to) {
  byId("follow").checked = false;
  player.goal = null;
  look(from, to);
}

const lookAtAll = () => lookByHand(0, player.run.duration_ms);

/** Zooms so that `t` stays where it is on the screen. */
function zoom(t, factor) {
  const { from, to } = player.view;
  const at = clamp(t, from, to);
  lookByHand(at - (at - from) * factor, at + (to - at) * factor);
}

/** A view that is less than the whole goes along with the time. */
function keepInSight() {
  const { from, to } = player.view;
  const edge = (to - from) * 0.1;
  const [low, high] = [from <= 0 ? from : from + edge, to >= player.run.duration_ms ? to : to - edge];
  if (player.goal !== null || (player.t >= low && player.t <= high)) return;
  const start = clamp(player.t - (to - from) * 0.3, 0, player.run.duration_ms - (to - from));
  player.view = { from: start, to: start + (to - from) };
  drawLanes();
}

/** Moves the view to where things happen, unless it already shows that well: a camera that never rests is a nuisance. */
function followSteps() {
  if (!byId("follow").checked) return;
  const { run, t } = player;
  const scene = sceneAt(player.step, t);
  const span = clamp((scene.to - scene.from) * 1.4, Math.min(FOLLOW_FLIGHTS_MIN * run.flight, run.duration_ms), run.duration_ms);
  const seen = player.goal ?? player.view;
  const width = seen.to - seen.from;
  const covered = seen.from <= Math.max(0, scene.from) && seen.to >= Math.min(run.duration_ms, scene.to);
  if (covered && width < span * 2.2) return;
  const middle = (scene.from + scene.to) / 2;
  const from = clamp(middle - span / 2, 0, run.duration_ms - span);
  const moving = player.goal !== null;
  player.goal = { from, to: from + span };
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) arrive();
  else if (!moving) requestAnimationFrame(glide);
}

/** The stretch of time to look at: the steps that hang together with the present one, or the calm on the way to the next. */
function sceneAt(step, t) {
  const { steps, flight } = player.run;
  const next = steps[step + 1];
  const calm = (at) => steps[at + 1].t - steps[at].t > CALM_FLIGHTS * flight;
  if (next && calm(step) && t > steps[step].t) return { from: steps[step].t, to: next.t };
  let [first, last] = [step, step];
  while (first > 0 && step - first < SCENE_STEPS_MAX && !calm(first - 1)) first -= 1;
  while (last < steps.length - 1 && last - step < SCENE_STEPS_MAX && !calm(last)) last += 1;
  // A step on its own is seen with the calm before it.
  if (first === last) return { from: steps[Math.max(0, first - 1)].t, to: steps[last].t + CALM_FLIGHTS * flight };
  return { from: steps[first].t, to: steps[last].t };
}

/** Brings the view a part of the way to its goal, frame by frame. */
function glide() {
  const { view, goal } = player;
  if (goal === null) return;
  const part = 0.16;
  const next = { from: view.from + (goal.from - view.from) * part, to: view.to + (goal.to - view.to) * part };
  const left = Math.abs(goal.from - next.from) + Math.abs(goal.to - next.to);
  if (left < (goal.to - goal.from) * 0.01) return arrive();
  look(next.from, next.to);
  requestAnimationFrame(glide);
}

function arrive() {
  const goal = player.goal;
  player.goal = null;
  look(goal.from, goal.to);
}

// ---- what changes with every frame -----------------------------------------------------------------------------------

function show() {
  if (player.width === 0) return;
  const { run, t, step } = player;
  const verdict = verdictAt(run, t);
  setText(byId("verdict"), verdict.text);
  byId("verdict").classList.toggle("danger", verdict.danger);
  setText(byId("clock"), stamp(t) + " ms");
  const scrubber = byId("scrubber");
  scrubber.value = t;
  scrubber.setAttribute("aria-valuetext", `${Math.round(t)} milliseconds. ${verdict.text}. ${run.steps[step].text}`);
  const present = run.steps[step];
  setText(byId("now"), (present.node === null ? "" : `Node ${present.node}: `) + present.text);
  showNodes(run, t);
  showLog();
  player.stage.update(t, visibleMessages());
  drawForeground();
}

/** A time with as many digits as tell one message from the next. */
const stamp = (t) => t.toFixed(player.run.flight < 2 ? 2 : 1);

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
  const [before, after] = player.geometry.narrow ? [2, 4] : [4, 5];
  const first = clamp(step - before, 0, Math.max(0, run.steps.length - before - after - 1));
  list.replaceChildren(...run.steps.slice(first, first + before + after + 1).map((it, offset) => {
    const at = first + offset;
    return make("li", { class: `${it.kind}${at > step ? " ahead" : ""}`, "aria-current": at === step ? "step" : null },
      make("button", { type: "button", onclick: () => {
        setPlaying(false);
        player.begun = true;
        moveTo(it.t, at);
        followSteps();
      } }, make("time", {}, stamp(it.t)), make("span", {}, it.node === null ? null : make("b", {}, String(it.node) + " "), it.text)));
  }));
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
    0: lookAtAll,
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
      lookByHand(from, from + span);
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
      lookByHand(player.view.from + by, player.view.to + by);
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
    make("div", {}, `term ${best.term} · sent at ${stamp(best.sent_ms)} ms`), make("div", {}, arrived));
}

function distance({ x1, y1, x2, y2 }, x, y) {
  const square = (x2 - x1) ** 2 + (y2 - y1) ** 2 || 1;
  const part = clamp(((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / square, 0, 1);
  return Math.hypot(x - x1 - part * (x2 - x1), y - y1 - part * (y2 - y1));
}
