// What all parts of the page share: making elements, writing figures, scales, colours, the tooltip.
// Text gets into the page only through `textContent`: nothing that was measured can become markup.

const report = JSON.parse(document.getElementById("report").textContent);
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is a string becomes text. `on…` attributes are listeners. */
function make(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function shape(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// ---- figures -------------------------------------------------------------------------------------------------------

/** Enough digits to compare, no more: 0.42, 4.2, 231, 12,400. */
function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1) return value.toFixed(2);
  if (size < 10) return String(Number(value.toFixed(1)));
  return Math.round(value).toLocaleString("en-US");
}

// A number and its unit stay on one line: the space between them does not break.

function formatMs(value) {
  if (value === 0) return "0";
  if (value < 1000) return digits(value) + "\u00a0ms";
  if (value < 10000) return (value / 1000).toFixed(2) + "\u00a0s";
  if (value < 100000) return (value / 1000).toFixed(1) + "\u00a0s";
  return digits(value / 1000) + "\u00a0s";
}

function formatCount(value) {
  if (value < 100000) return digits(value);
  if (value < 1e6) return Math.round(value / 1000) + "\u00a0k";
  return digits(value / 1e6) + "\u00a0M";
}

function formatBytes(value) {
  if (value < 1000) return digits(value) + (value === 0 ? "" : "\u00a0B");
  if (value < 1e6) return digits(value / 1000) + "\u00a0kB";
  return digits(value / 1e6) + "\u00a0MB";
}

/** How a value of `definition` is written. */
function formatOf(definition) {
  return { ms: formatMs, count: formatCount, bytes: formatBytes }[definition.unit];
}

/** `one, two and three`, as nodes: each part may be text or an element. */
function sentenceList(parts) {
  return parts.flatMap((part, at) => (at === 0 ? [part] : [at === parts.length - 1 ? " and " : ", ", part]));
}

// ---- protocols and their looks -------------------------------------------------------------------------------------

/** The protocols in the order of the results: the order decides colour and marker, so it must not depend on a choice. */
const protocols = [...new Set(report.results.map((it) => it.protocol).concat(report.timelines.map((it) => it.protocol)))];
const COLOURS = 6;

const colourOf = (protocol) => `var(--line-${protocols.indexOf(protocol) % COLOURS})`;
const guardWord = (guarded) => (guarded ? "guard on" : "guard off");
const inWords = (it) => (it.guarded ? it.protocol + " with guard" : it.protocol + " without guard");

/** A marker of its own for each protocol, so that colour is never the only difference. */
function marker(protocol, x, y, size, attributes) {
  const s = size;
  const paths = [
    `M${-s},0a${s},${s} 0 1,0 ${2 * s},0a${s},${s} 0 1,0 ${-2 * s},0z`,
    `M${-s},${-s}H${s}V${s}H${-s}z`,
    `M0,${-1.3 * s}L${1.25 * s},${s}H${-1.25 * s}z`,
    `M0,${-1.4 * s}L${1.4 * s},0L0,${1.4 * s}L${-1.4 * s},0z`,
    `M0,${1.3 * s}L${1.25 * s},${-s}H${-1.25 * s}z`,
    `M${-0.4 * s},${-1.3 * s}h${0.8 * s}v${0.9 * s}h${0.9 * s}v${0.8 * s}h${-0.9 * s}v${0.9 * s}h${-0.8 * s}v${-0.9 * s}h${-0.9 * s}v${-0.8 * s}h${0.9 * s}z`,
  ];
  return shape("path", { d: paths[protocols.indexOf(protocol) % paths.length], transform: `translate(${x},${y})`, ...attributes });
}

/** A short piece of a line as it looks in the plots. */
function swatch(protocol, guarded) {
  const colour = colourOf(protocol);
  return shape("svg", { class: "swatch", viewBox: "0 0 28 12", "aria-hidden": "true" },
    shape("line", { x1: 1, x2: 27, y1: 6, y2: 6, stroke: colour, "stroke-width": 2, "stroke-dasharray": guarded ? null : "5 4" }),
    marker(protocol, 14, 6, 3.5, { fill: guarded ? colour : "var(--paper)", stroke: colour, "stroke-width": 1.5 }));
}

// ---- scales --------------------------------------------------------------------------------------------------------

/** A scale from [low, high] to [from, to] with ticks at round values; logarithmic if asked for and possible. */
function scale(low, high, from, to, logarithmic, room) {
  if (logarithmic && low > 0) {
    if (low === high) [low, high] = [low / 2, high * 2];
    const [a, b] = [Math.log(low), Math.log(high)];
    const at = (value) => from + ((Math.log(value) - a) / (b - a)) * (to - from);
    return { at, ticks: logTicks(low, high, room), low, high, logarithmic: true };
  }
  if (low === high) high = low + 1;
  const at = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { at, ticks: linearTicks(low, high, room), low, high, logarithmic: false };
}

/** The coarsest steps that leave at least `room / 2` ticks: powers of ten, else with halves, else 1-2-5. */
function logTicks(low, high, room) {
  const within = (steps) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const step of steps) found.push(step * 10 ** power);
    return found.filter((it) => it >= low * 0.999 && it <= high * 1.001);
  };
  const choices = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]].map(within);
  return choices.find((it) => it.length >= Math.max(2, room / 2)) ?? choices[choices.length - 1];
}

function linearTicks(low, high, room) {
  const rough = (high - low) / Math.max(1, room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + step * 1e-9; tick++) ticks.push(tick * step);
  return ticks;
}

// ---- small things --------------------------------------------------------------------------------------------------

/** Shows `children` near a point of the window; without children the tooltip goes away. */
function tell(x, y, ...children) {
  const tip = byId("tip");
  tip.hidden = children.length === 0;
  if (tip.hidden) return;
  tip.replaceChildren(...children);
  const box = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth - 8;
  // Beside the pointer where there is room, on its other side where there is not.
  let left = x + 14;
  if (left + box.width > room) left = Math.max(8, x - 14 - box.width);
  let top = y + 14;
  if (top + box.height > window.innerHeight - 8) top = Math.max(8, y - 14 - box.height);
  tip.style.left = Math.min(left, Math.max(8, room - box.width)) + "px";
  tip.style.top = top + "px";
}

/** Calls `redraw` soon, and again whenever the width of `element` changes. */
function onWidth(element, redraw) {
  let known = -1;
  new ResizeObserver(() => {
    const width = Math.floor(element.getBoundingClientRect().width);
    if (width === known || width === 0) return;
    known = width;
    // In the next frame: what is drawn changes heights, and an observer that causes what it observes is an error.
    requestAnimationFrame(() => redraw(width));
  }).observe(element);
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
