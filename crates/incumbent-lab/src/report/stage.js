// The group at one moment: its nodes in a circle, what is on its way between them, and each node's own belief as a list.

const STAGE_SIZE = 280;
/** More nodes than this would be dots in a circle: the lanes show them better. */
const STAGE_NODES_MAX = 30;

/** With more messages than this on their way, names would cover them. */
const NAMED_PARCELS_MAX = 12;

/** Shapes that tell the roles apart without colour. Drawn in a box of 16 by 16. */
const ROLE_GLYPHS = {
  follower: "M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10zM8 5a3 3 0 1 1 0 6a3 3 0 1 1 0-6z",
  candidate: "M8 2l5 6-5 6-5-6zM8 5.2L5.6 8 8 10.8 10.4 8z",
  leader: "M2 13V4.5l3.5 3L8 3l2.5 4.5 3.5-3V13z",
  down: "M4 2.6L8 6.6 12 2.6 13.4 4 9.4 8 13.4 12 12 13.4 8 9.4 4 13.4 2.6 12 6.6 8 2.6 4z",
  paused: "M4 3h3v10H4zM9 3h3v10H9z",
};

const roleGlyph = (role) => shape("svg", { class: "glyph role-" + role, viewBox: "0 0 16 16", "aria-hidden": "true" },
  shape("path", { d: ROLE_GLYPHS[role] }));

/** What `node` is at `t`: the period that has begun last. */
function periodAt(run, node, t) {
  let found = null;
  for (const period of run.periods.get(node)) {
    if (period.from_ms > t) break;
    found = period;
  }
  return found;
}

const overlapAt = (run, t) => run.overlaps.find((it) => it.from_ms <= t && (t < it.to_ms || it.to_ms >= run.duration_ms));

/** Who holds office at `t`, in words, and whether that is one too many. */
function verdictAt(run, t) {
  const leaders = run.nodes.map((node) => periodAt(run, node, t)).filter((it) => it?.role === "leader" && t <= it.to_ms);
  const overlap = overlapAt(run, t);
  const word = (it) => `${it.node} (term ${it.term})`;
  if (overlap) {
    const two = leaders.filter((it) => overlap.nodes.includes(it.node));
    const names = (two.length > 0 ? two.map(word) : overlap.nodes.map(String));
    return { danger: true, text: `Two leaders: ${sentenceList(names).join("")}` };
  }
  if (leaders.length === 0) {
    const running = run.nodes.filter((node) => periodAt(run, node, t)?.role === "candidate");
    const contend = running.length === 0 ? "" : running.length > 6 ? `; ${running.length} contend` : `; ${sentenceList(running.map(String)).join("")} ${running.length === 1 ? "contends" : "contend"}`;
    return { danger: false, text: "Nobody leads" + contend };
  }
  if (leaders.length === 1) return { danger: false, text: `Node ${leaders[0].node} leads, term ${leaders[0].term}` };
  return { danger: false, text: `In office: ${sentenceList(leaders.map(word)).join("")}` };
}

/** The list of nodes: what each is, in which term, whom it follows. */
function showNodes(run, t) {
  const overlap = overlapAt(run, t);
  const list = byId("nodes");
  const periods = run.nodes.map((node) => periodAt(run, node, t));
  // Sixty times a second is often enough to look, and too often to build the same list again.
  if (list.shown && list.shown.run === run && list.shown.overlap === overlap && list.shown.periods.every((it, at) => it === periods[at])) return;
  list.shown = { run, overlap, periods };
  list.classList.toggle("many", run.nodes.length > 9);
  list.replaceChildren(...run.nodes.map((node, at) => {
    const period = periods[at];
    const role = period?.role ?? "down";
    const danger = role === "leader" && overlap?.nodes.includes(node);
    return make("li", { class: danger ? "danger" : "" }, roleGlyph(role), make("b", {}, String(node)),
      make("span", { class: "belief" }, belief(period)), make("span", { class: "term" }, period ? `term ${period.term}` : ""));
  }));
}

function belief(period) {
  if (!period) return "not there";
  switch (period.role) {
    case "leader": return "leads";
    case "candidate": return "contends";
    case "down": return "is down";
    case "paused": return "is paused";
    default: return period.leader === null || period.leader === undefined ? "waits for a leader" : `follows ${period.leader}`;
  }
}

/** The circle. Built once a run; `update(t)` moves what moves. */
function buildStage(run) {
  const svg = byId("stage");
  svg.replaceChildren();
  const count = run.nodes.length;
  svg.classList.toggle("absent", count > STAGE_NODES_MAX || count < 2);
  if (count > STAGE_NODES_MAX || count < 2) return { update() {} };
  svg.setAttribute("viewBox", `0 0 ${STAGE_SIZE} ${STAGE_SIZE}`);
  const middle = STAGE_SIZE / 2;
  const radius = clamp((2.1 * middle) / count, 8, 21);
  const reach = middle - radius - 16;
  const places = new Map(run.nodes.map((node, at) => {
    const angle = (2 * Math.PI * at) / count - Math.PI / 2;
    return [node, { x: middle + reach * Math.cos(angle), y: middle + reach * Math.sin(angle) }];
  }));
  const traffic = shape("g");
  const nodes = new Map(run.nodes.map((node) => {
    const { x, y } = places.get(node);
    const crown = shape("path", { class: "crown", d: ROLE_GLYPHS.leader, transform: `translate(${x - 8},${y - radius - 15})` });
    const group = shape("g", {}, crown,
      shape("circle", { class: "halo", cx: x, cy: y, r: radius + 4 }),
      shape("circle", { class: "body", cx: x, cy: y, r: radius }),
      shape("text", { x, y: y + radius * 0.32, "text-anchor": "middle", "font-size": Math.max(9, radius * 0.85) }, String(node)));
    return [node, group];
  }));
  const names = shape("g");
  svg.append(traffic, ...nodes.values(), names);

  /** A point between two nodes, measured from edge to edge. */
  function between(from, to, part) {
    const [a, b] = [places.get(from), places.get(to)];
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const edge = radius / length;
    const along = edge + part * (1 - 2 * edge);
    return { x: a.x + (b.x - a.x) * along, y: a.y + (b.y - a.y) * along };
  }

  function drawMessage(message, t) {
    const flight = message.end_ms - message.sent_ms || 1;
    const part = clamp((t - message.sent_ms) / flight, 0, 1);
    const lost = message.arrived_ms === null;
    const kind = "purpose-" + message.purpose + (lost ? " lost" : "");
    const [a, b] = [between(message.from, message.to, 0), between(message.from, message.to, lost ? 0.5 : 1)];
    const at = between(message.from, message.to, lost ? part * 0.5 : part);
    const parts = [];
    if (message.purpose !== "upkeep") parts.push(shape("line", { class: "path " + kind, x1: a.x, y1: a.y, x2: b.x, y2: b.y }));
    if (lost && part > 0.9) {
      parts.push(shape("path", { class: "cross " + kind, d: `M${at.x - 4},${at.y - 4}l8,8M${at.x + 4},${at.y - 4}l-8,8` }));
    } else {
      parts.push(shape("circle", { class: "parcel " + kind, cx: at.x, cy: at.y, r: message.purpose === "upkeep" ? 2 : 4 }));
    }
    return parts;
  }

  /** A name beside each message that needs one, none on top of another. */
  function nameMessages(loud, t) {
    const taken = [];
    return [...broadcasts(loud)].map(([message]) => {
      const part = clamp((t - message.sent_ms) / (message.end_ms - message.sent_ms || 1), 0, 1);
      const at = between(message.from, message.to, message.arrived_ms === null ? part * 0.5 : part);
      while (taken.some((it) => Math.abs(it.x - at.x) < 70 && Math.abs(it.y - at.y) < 13)) at.y += 13;
      taken.push(at);
      // Towards the middle of the stage, where there is room.
      const side = at.x > middle ? "end" : "start";
      return shape("text", { class: "parcel-name", x: at.x + (side === "end" ? -9 : 9), y: at.y + 4, "text-anchor": side }, message.name);
    });
  }

  return {
    update(t, messages) {
      const overlap = overlapAt(run, t);
      for (const [node, group] of nodes) {
        const role = periodAt(run, node, t)?.role ?? "down";
        const hit = run.faults.some((it) => it.from_ms <= t && t < it.to_ms && it.nodes.includes(node));
        const danger = role === "leader" && overlap?.nodes.includes(node);
        group.setAttribute("class", `member role-${role}${hit ? " hit" : ""}${danger ? " danger" : ""}`);
      }
      const flying = messages.filter((it) => it.sent_ms <= t && t <= it.end_ms);
      const loud = flying.filter((it) => it.purpose !== "upkeep");
      traffic.replaceChildren(...flying.flatMap((it) => drawMessage(it, t)));
      names.replaceChildren(...(loud.length <= NAMED_PARCELS_MAX ? nameMessages(loud, t) : []));
    },
  };
}
