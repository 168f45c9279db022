// Puts the page together: the choices at its head, the theme, and the parts that never change.

/** What the reader has chosen. */
const chosen = { scenario: null, nodes: null };

const scenarios = (() => {
  const measured = [...new Set(report.results.map((it) => it.scenario))];
  const noted = report.scenarios.map((it) => it.name).filter((it) => measured.includes(it));
  return [...noted, ...measured.filter((it) => !noted.includes(it))];
})();
const sizes = [...new Set(report.results.map((it) => it.nodes))].sort((a, b) => a - b);

function showMasthead() {
  const { meta } = report;
  byId("title").textContent = meta.title;
  byId("provenance").textContent = [meta.date, `version ${meta.version}`, `${meta.runs.toLocaleString("en-US")} runs each`, `seed ${meta.seed}`].filter((it) => it !== "").join("  ·  ");
  byId("command").textContent = meta.command;
  byId("pace").replaceChildren(...meta.pace.map((it) => make("div", {}, make("dt", {}, it.name), make("dd", {}, it.value))));
  byId("glossary").replaceChildren(...meta.glossary.map((it) => make("div", {}, make("dt", {}, it.label), make("dd", {}, it.meaning))),
    make("div", {}, make("dt", {}, "Guard"), make("dd", {}, "With the quorum guard on, a leader needs a majority behind it to take office and to stay in it. With the guard off it does not.")));
}

/** A group of radio buttons that look like chips. */
function chips(group, name, values, picked, choose) {
  for (const value of values) {
    const input = make("input", { type: "radio", name, value, onchange: () => choose(value) });
    input.checked = value === picked;
    group.append(make("label", {}, input, make("span", {}, String(value))));
  }
}

const sizesOf = (scenario) => [...new Set(report.results.filter((it) => it.scenario === scenario).map((it) => it.nodes))].sort((a, b) => a - b);

/** Only sizes that were measured can be chosen; if the present one was not, the next best is. */
function offerSizes() {
  const there = sizesOf(chosen.scenario);
  if (!there.includes(chosen.nodes)) chosen.nodes = there.includes(5) ? 5 : there[0];
  for (const input of byId("sizes").querySelectorAll("input")) {
    input.disabled = !there.includes(Number(input.value));
    input.checked = Number(input.value) === chosen.nodes;
  }
}

/** What the plots over the size can show of this scenario. */
function growthLead() {
  const there = sizesOf(chosen.scenario);
  if (there.length > 1) return `The same scenario in groups of ${there[0]} to ${there[there.length - 1]} nodes.`;
  const others = scenarios.filter((it) => sizesOf(it).length > 1);
  const elsewhere = others.length === 0 ? "" : ` Growth was measured in ${sentenceList(others).join("")}.`;
  return `This scenario was measured with ${there[0]} nodes only.${elsewhere}`;
}

function startComparison() {
  if (report.results.length === 0) {
    byId("comparison").hidden = true;
    return;
  }
  // The scenario that shows a danger is the one to see first.
  const split = report.results.find((it) => it.split_brain_runs > 0);
  chosen.scenario = split?.scenario ?? scenarios[0];
  chosen.nodes = sizes.includes(5) ? 5 : sizes[0];
  const redraws = [
    plot(byId("plot-cost"), "by group size", ["messages", "contest_messages", "bytes", "leader_changes"], true, drawGrowth),
    plot(byId("plot-time"), "by group size", ["failover_ms", "election_ms", "leaderless_ms", "split_brain_ms"], false, drawGrowth),
    plot(byId("plot-spread"), "over the runs", ["failover_ms", "election_ms", "leaderless_ms", "split_brain_ms", "messages", "contest_messages", "bytes"], false, drawSpread),
  ];
  const redraw = () => redraws.forEach((it) => it());
  const update = () => {
    const note = report.scenarios.find((it) => it.name === chosen.scenario)?.meaning ?? "";
    byId("scenario-meaning").textContent = note;
    byId("growth-lead").textContent = growthLead();
    offerSizes();
    showSummary(report.results.filter((it) => it.scenario === chosen.scenario && it.nodes === chosen.nodes));
    redraw();
  };
  chips(byId("scenarios"), "scenario", scenarios, chosen.scenario, (it) => {
    chosen.scenario = it;
    update();
  });
  chips(byId("sizes"), "nodes", sizes, chosen.nodes, (it) => {
    chosen.nodes = it;
    update();
  });
  showLegend(redraw);
  update();
}

// ---- theme ---------------------------------------------------------------------------------------------------------

function startTheme() {
  const button = byId("theme");
  const label = () => {
    const other = theme.now() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
  };
  button.addEventListener("click", () => theme.choose(theme.now() === "dark" ? "light" : "dark"));
  theme.changed = () => {
    label();
    readInk();
    if (player.run) show();
  };
  theme.changed();
}

showMasthead();
startComparison();
startPlayer();
startTheme();
