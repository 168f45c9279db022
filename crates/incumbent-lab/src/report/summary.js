// The answer first: what one scenario shows, in sentences and as a table.

/** A summary of `rows`: the outcomes of one scenario at one size. */
function showSummary(rows) {
  byId("findings").replaceChildren(...findings(rows).map((it) => make("li", { class: it.class }, ...it.parts)));
  showMatrix(rows);
}

// ---- sentences -----------------------------------------------------------------------------------------------------

const strong = (text) => make("b", {}, text);

/** What the rows say, most important first. Every sentence is computed: none is true by habit. */
function findings(rows) {
  if (rows.length === 0) return [{ class: "calm", parts: ["Nothing was measured for this choice."] }];
  return [safety(rows), endings(rows), speed(rows), cost(rows)].filter((it) => it !== null);
}

const hadTwo = (row) => row.split_brain_runs > 0 || (row.measures.split_brain_ms?.max ?? 0) > 0;

function safety(rows) {
  const runs = rows.reduce((sum, row) => sum + row.runs, 0).toLocaleString("en-US");
  if (!rows.some(hadTwo)) {
    return { class: "calm", parts: [strong("Never two leaders at once"), `, in any of ${runs} runs.`] };
  }
  const parts = [];
  for (const guarded of [false, true]) {
    const side = rows.filter((row) => row.guarded === guarded);
    const split = side.filter(hadTwo).sort((a, b) => worst(b) - worst(a));
    if (side.length === 0) continue;
    if (parts.length > 0) parts.push(" ");
    if (split.length === 0) {
      parts.push(guarded ? "With the guard, " : "Without the guard, ", strong("never"), ", in any run.");
      continue;
    }
    const each = split.map((row) =>
      make("span", {}, strong(row.protocol), ` (${share(row.split_brain_runs, row.runs)}, up to ${formatMs(worst(row))})`));
    parts.push(guarded ? "Even with the quorum guard, " : "Without the quorum guard, ", ...sentenceList(each),
      " had ", make("b", { class: "danger-text" }, "two leaders at once"), ".");
  }
  return { class: "danger", parts };
}

const worst = (row) => row.measures.split_brain_ms?.max ?? 0;

function share(count, all) {
  if (count === all) return all === 1 ? "in its one run" : "in every run";
  return `in ${count.toLocaleString("en-US")} of ${all.toLocaleString("en-US")} runs`;
}

function endings(rows) {
  const without = rows.filter((row) => row.leaderless_runs > 0);
  if (without.length === 0) return null;
  const each = without.map((row) => make("span", {}, strong(inWords(row)), ` (${share(row.leaderless_runs, row.runs)})`));
  return { class: "warning", parts: ["Ended without a leader: ", ...sentenceList(each), "."] };
}

/** Whoever had two leaders is no bargain: the best are looked for among the others, if there are any. */
function worthy(rows) {
  const safe = rows.filter((row) => !hadTwo(row));
  return safe.length === 0 || safe.length === rows.length ? { rows, among: "" } : { rows: safe, among: " among the safe" };
}

function speed(all) {
  const { rows, among } = worthy(all);
  const measure = rows.some((row) => row.measures.failover_ms) ? "failover_ms" : "election_ms";
  const deed = measure === "failover_ms" ? "Fastest failover" : "Fastest election";
  return extremes(ranking(rows, measure), among, deed, "slowest", formatMs, "took about as long", "as long");
}

function cost(all) {
  const { rows, among } = worthy(all);
  return extremes(ranking(rows, "messages"), among, "Fewest messages", "most", formatCount, "sent about as many messages", "as many");
}

/** The first and the last of a ranking, in a sentence. */
function extremes(ranked, among, first, last, write, alike, measure) {
  if (ranked.length < 2) return null;
  const [low, high] = [ranked[0], ranked[ranked.length - 1]];
  if (high.value < low.value * 1.05) {
    return { class: "note", parts: [`${among === "" ? "All" : "All of the safe ones"} ${alike}: ${write(low.value)} in the median run.`] };
  }
  const times = low.value > 0 && high.value >= 1.5 * low.value ? `, ${digits(high.value / low.value)} times ${measure}` : "";
  return { class: "note", parts: [`${first}${among}: `, strong(inWords(low.row)), `, ${write(low.value)} in the median run; ${last}: `,
    strong(inWords(high.row)), `, ${write(high.value)}${times}.`] };
}

/** The rows that have `measure`, by their median. */
function ranking(rows, measure) {
  return rows.filter((row) => row.measures[measure]).map((row) => ({ row, value: row.measures[measure].p50 }))
    .sort((a, b) => a.value - b.value);
}

// ---- the table -----------------------------------------------------------------------------------------------------

/** What the table is sorted by: a measure's name, or null for safest first, then fastest. */
const order = { by: null, descending: false };

function showMatrix(rows) {
  const columns = report.meta.glossary.filter((it) => rows.some((row) => row.measures[it.measure]));
  if (order.by !== null && !columns.some((it) => it.measure === order.by)) order.by = null;
  const head = make("tr", {},
    make("th", { scope: "col", "aria-sort": order.by === null ? "ascending" : null },
      sortButton("Protocol", null, rows, "Safest first, then fastest")),
    ...columns.map((it) => make("th", { scope: "col", class: "figure", "aria-sort": sortState(it.measure) },
      sortButton(it.label, it.measure, rows, it.meaning))));
  const largest = Object.fromEntries(columns.map((it) => [it.measure, {
    p50: Math.max(...rows.map((row) => row.measures[it.measure]?.p50 ?? 0)),
    p99: Math.max(...rows.map((row) => row.measures[it.measure]?.p99 ?? 0)),
  }]));
  const body = sorted(rows).map((row) => make("tr", {}, rowHead(row), ...columns.map((it) => cell(row, it, largest[it.measure]))));
  byId("matrix").replaceChildren(
    make("caption", { class: "unseen" }, "Each protocol with the quorum guard on and off, and what was measured"),
    make("thead", {}, head), make("tbody", {}, ...body));
}

function rowHead(row) {
  return make("th", { scope: "row" },
    make("span", { class: "protocol" }, make("i", { class: "dot", style: `background:${colourOf(row.protocol)}` }), row.protocol),
    make("span", { class: row.guarded ? "guard" : "guard off" }, guardWord(row.guarded)));
}

function cell(row, definition, largest) {
  const spread = row.measures[definition.measure];
  if (!spread) return make("td", { class: "figure none" }, "–");
  const write = formatOf(definition);
  const dangerous = definition.measure.startsWith("split_brain") && spread.max > 0;
  // A danger that happened once in a thousand runs must not read as zero.
  const tail = dangerous && spread.p99 === 0 ? "max " + write(spread.max) : spread.p99 === spread.p50 ? "" : write(spread.p99);
  const all = Math.max(largest.p50, largest.p99) || 1;
  const bar = make("span", { class: "bar", "aria-hidden": "true" },
    make("i", { style: `width:${(100 * spread.p50) / all}%` }),
    spread.p99 > 0 ? make("b", { style: `left:${(100 * spread.p99) / all}%` }) : null);
  return make("td", {
    class: "figure" + (dangerous ? " danger" : ""),
    title: `${definition.label}: median ${write(spread.p50)}, 99th percentile ${write(spread.p99)}, mean ${write(spread.mean)}, least ${write(spread.min)}, most ${write(spread.max)}`,
  }, make("span", { class: "p50" }, write(spread.p50)), " ", make("span", { class: "p99" }, tail), bar);
}

function sortButton(label, measure, rows, meaning) {
  return make("button", { type: "button", title: meaning, onclick: () => {
    order.descending = order.by === measure && measure !== null ? !order.descending : false;
    order.by = measure;
    showMatrix(rows);
    // The table was built anew: the focus goes back to the head that was pressed.
    [...byId("matrix").querySelectorAll("thead button")].find((it) => it.textContent === label)?.focus();
  } }, label);
}

function sortState(measure) {
  if (order.by !== measure) return null;
  return order.descending ? "descending" : "ascending";
}

function sorted(rows) {
  const value = (row, measure, key) => row.measures[measure]?.[key] ?? Infinity;
  const time = rows.some((row) => row.measures.failover_ms) ? "failover_ms" : "election_ms";
  // Infinity - Infinity is no number: two absent values are equal.
  const less = (a, b) => (a === b ? 0 : a - b);
  return [...rows].sort((a, b) => {
    if (order.by !== null) {
      return (order.descending ? -1 : 1) * (less(value(a, order.by, "p50"), value(b, order.by, "p50")) || less(value(a, order.by, "p99"), value(b, order.by, "p99")));
    }
    return less(worst(a), worst(b)) || less(value(a, time, "p50"), value(b, time, "p50"));
  });
}
