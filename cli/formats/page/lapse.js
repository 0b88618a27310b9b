(() => {
  const state = JSON.parse($("state").textContent);
  const SECONDS = [120, 60, 30, 15]; // in which the whole time is played
  const WIDTH = 1000, HEIGHT = 160; // units of a chart
  const labels = new Map(state.states.map((one) => [one[0], one]));
  const runs = state.runs;
  const total = Math.max(...runs.map((run) => run.step * (run.cost.length - 1)));
  const smallest = Math.min(...runs.map((run) => run.step));
  const sides = state.sides.map((index, side) => ({run: runs[index], name: side ? "right" : "left"}));
  let now = state.start, playing = false, before = null;

  const hours = (seconds) => seconds > 2 * 86400 ? duration(seconds)
    : [[seconds / 3600, "h"], [seconds % 3600 / 60, "min"]].map(([value, unit]) => [Math.floor(value), unit])
      .filter(([value]) => value).map((part) => part.join(" ")).join(" ") || "0 h";
  const frameAt = (run, time) => Math.min(run.cost.length - 1, Math.floor(time / run.step));
  const last = (values) => values[values.length - 1];
  const digits = Math.max(...runs.map((run) => last(run.cost))) < 100 ? 2 : 0;
  const amount = (value) => value.toLocaleString(undefined,
    {minimumFractionDigits: digits, maximumFractionDigits: digits});

  // Slots: a new node takes the first slot of its group that is free, so that no box ever moves.
  function slotsOf(run) {
    if (run.slots) return run.slots;
    const until = new Map(); // group -> for each slot, the frame from which it is free
    const first = (node) => node[2][0];
    run.slots = [...run.nodes].sort((a, b) => first(a) - first(b)).map((node) => {
      const [, group, changes] = node;
      if (!until.has(group)) until.set(group, []);
      const free = until.get(group), found = free.findIndex((frame) => frame <= first(node));
      const slot = found < 0 ? free.length : found;
      free[slot] = last(changes) === 0 ? changes[changes.length - 2] : Infinity;
      return {node, group, slot};
    });
    run.counts = new Map([...until].map(([group, free]) => [group, free.length]));
    return run.slots;
  }
  function valueAt(changes, frame) {
    let low = 0, high = changes.length / 2; // changes before `low` have happened
    while (low < high) {
      const middle = (low + high) >> 1;
      if (changes[2 * middle] <= frame) low = middle + 1;
      else high = middle;
    }
    return low ? changes[2 * low - 1] : 0;
  }

  function build() {
    const counts = new Map(); // both sides get the same slots, so that they are comparable
    for (const {run} of sides) {
      slotsOf(run);
      for (const [group, count] of run.counts) counts.set(group, Math.max(count, counts.get(group) || 0));
    }
    fill("runs", ...sides.map((side, index) => {
      const select = el("select", {"aria-label": `Variant on the ${side.name}`},
        ...runs.map((run, number) => el("option", {value: number}, run.name)));
      select.value = runs.indexOf(side.run);
      select.addEventListener("change", () => {
        side.run = runs[select.value];
        build();
        document.querySelectorAll("#runs select")[index].focus();
      });
      side.facts = el("dl", {class: "numbers"});
      side.groups = new Map([...counts].sort(([a], [b]) => a.localeCompare(b, "en", {numeric: true})).map(([group, count]) => {
        const boxes = Array.from({length: count}, () => el("span", {class: "gone"}));
        const list = el("div", {class: "boxes", role: "img"}, ...boxes);
        return [group, {boxes, list, shown: new Array(count).fill("")}];
      }));
      return el("section", {class: "run", "aria-label": `Cluster on the ${side.name}`},
        el("h3", null, select), side.facts,
        el("div", {class: "groups"},
          ...[...side.groups].map(([group, {list}]) => el("div", null, el("h4", null, group), list))));
    }));
    showOutcome();
    showCharts();
    show();
  }

  function showOutcome() {
    const [left, right] = sides.map((side) => side.run);
    const [a, b] = [last(left.cost), last(right.cost)];
    const percent = a ? Math.abs(100 * (b - a) / a).toFixed(1) : "0.0";
    const lines = left === right ? ["Choose two different variants to compare them."] : [
      `In ${hours(total)}, ${right.name} costs ${percent} % ${b <= a ? "less" : "more"} than ${left.name}.`,
      `Pods are Pending for ${duration(last(right.waited))} in total, instead of ${duration(last(left.waited))}. ` +
        `Pods evicted: ${last(right.evicted).toLocaleString()}, instead of ${last(left.evicted).toLocaleString()}.`,
    ];
    fill("outcome", ...paragraphs([...lines, ...state.notes]));
  }

  function show() {
    $("time").value = now / smallest;
    $("time").setAttribute("aria-valuetext", hours(now));
    fill("clock", `${hours(now)} of ${hours(total)}`);
    for (const line of document.querySelectorAll(".now")) {
      for (const end of ["x1", "x2"]) line.setAttribute(end, WIDTH * now / (total || 1));
    }
    for (const side of sides) showSide(side);
    document.body.dataset.nodes = String(sides[0].nodes); // for tests: the state is shown
  }
  function showSide(side) {
    const {run} = side, frame = frameAt(run, now);
    const there = new Map([...side.groups.keys()].map((group) => [group, []]));
    let marked = 0;
    side.nodes = 0;
    for (const {node, group, slot} of slotsOf(run)) {
      const value = valueAt(node[2], frame);
      if (!value) continue;
      there.get(group)[slot] = [node[0], value];
      side.nodes += 1;
      if (labels.get(Math.floor(value / (state.fills + 1)))[1].endsWith("no-schedule")) marked += 1;
    }
    for (const [group, found] of there) showGroup(group, side.groups.get(group), found);
    const hour = frame ? (run.cost[frame] - run.cost[frame - 1]) * 3600 / run.step : 0;
    side.facts.replaceChildren(...[
      ["Nodes", side.nodes.toLocaleString()],
      ["Marked", marked.toLocaleString()],
      ["Cost per h", frame ? amount(hour) : "–"],
      ["Total cost", amount(run.cost[frame])],
      ["Pending", run.pending[frame].toLocaleString()],
      ["Evicted", run.evicted[frame].toLocaleString()],
    ].map(([label, value]) => el("div", null, el("dt", null, label), el("dd", null, value))));
  }
  function showGroup(group, {boxes, list, shown}, found) {
    let count = 0;
    boxes.forEach((box, slot) => {
      const [name, value] = found[slot] || ["", 0];
      if (value) count += 1;
      const wanted = value ? `${value} ${name}` : "";
      if (shown[slot] === wanted) return;
      shown[slot] = wanted;
      const filled = value % (state.fills + 1);
      const [, key, sign, label] = labels.get((value - filled) / (state.fills + 1)) || [0, "gone", "", ""];
      box.className = value ? `${key} fill-${filled}` : key;
      box.textContent = sign;
      box.title = value ? `${name}: ${label}, ${filled ? `filled up to ${100 * filled / state.fills} %` : "empty"}` : "";
    });
    list.setAttribute("aria-label", `${group}: ${plural(count, "node")}`);
  }

  // Charts
  const CHARTS = [
    ["Cost of the nodes per hour", (run) => rates(run.cost, 3600 / run.step), amount],
    ["Pending pods", (run) => rates(run.waited, 1 / run.step),
      (value) => value.toLocaleString(undefined, {maximumFractionDigits: 1})],
  ];
  // Differences of sums: the mean of the time between two frames, so that short peaks count too.
  const rates = (sums, factor) => sums.slice(1).map((sum, index) => (sum - sums[index]) * factor);

  function showCharts() {
    fill("charts", ...CHARTS.map(([title, valuesOf, shown]) => {
      const lines = sides.map(({run}) => valuesOf(run));
      const most = Math.max(...lines.flat(), 0) || 1;
      const drawn = lines.map((values, side) => svg("polyline", {
        class: `line ${sides[side].name}`,
        points: values.map((value, index) => [
          (WIDTH * (index + 1) * sides[side].run.step / (total || 1)).toFixed(1),
          (HEIGHT * (1 - value / most)).toFixed(1)].join(",")).join(" "),
      }));
      const picture = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${title} over time, at most ${shown(most)}`}, ...drawn,
        svg("line", {class: "now", y1: 0, y2: HEIGHT}));
      return el("figure", null,
        el("figcaption", null, el("strong", null, title),
          ...sides.map((side) => el("span", {class: `key ${side.name}`}, side.run.name))),
        el("div", {class: "axis"}, el("span", null, shown(most))), picture,
        el("div", {class: "axis"}, el("span", null, "0"), el("span", null, hours(total))));
    }));
  }

  // Cost over Pending time: a letter for each variant, a dot for each combination of a sweep
  function tradeoff() {
    const names = state.points.filter((one) => !one.sweep).map((one) => one.name);
    const letter = (one) => String.fromCharCode(65 + names.indexOf(one.name));
    const root = (value) => Math.sqrt(value); // most variants wait for a short time
    const most = Math.max(...state.points.map((one) => root(one.waited))) || 1;
    const costs = state.points.map((one) => one.cost), least = Math.min(...costs);
    const range = Math.max(...costs) - least || 1;
    const x = (one) => 20 + (WIDTH - 40) * root(one.waited) / most;
    const y = (one) => 280 - 260 * (one.cost - least) / range;
    const best = state.points.filter((one) => one.best).sort((a, b) => a.waited - b.waited);
    const about = (one) => `${one.name}: cost ${amount(one.cost)}, Pending for ${duration(one.waited)} in total`;
    const marks = state.points.map((one) => one.sweep
      ? svg("circle", {cx: x(one), cy: y(one), r: 5}, svg("title", {}, about(one)))
      : svg("text", {x: x(one), y: y(one), class: one.best ? "best" : ""}, svg("title", {}, about(one)), letter(one)));
    return el("section", {"aria-labelledby": "tradeoff-title"},
      el("h2", {id: "tradeoff-title"}, "Cost and Pending time"),
      el("p", null, "Further down is cheaper; further left, pods are Pending for less time. The dashed line connects " +
        "the best variants: a variant that is better than one of them in cost or Pending time is worse in the other."),
      el("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "Chart of cost and Pending time"},
        svg("svg", {viewBox: `0 0 ${WIDTH} 300`, class: "tradeoff", role: "img",
          "aria-label": "Cost over Pending time; the list and the tables below have the values"},
        svg("polyline", {class: "line front", points: best.map((one) => `${x(one)},${y(one)}`).join(" ")}), ...marks)),
      el("ul", {class: "letters"}, ...state.points.filter((one) => !one.sweep).map((one) =>
        el("li", null, el("b", null, letter(one)), ` ${about(one)}${one.best ? " (on the line)" : ""}`))));
  }

  function showReport() {
    fill("title", state.title);
    fill("summary", state.summary);
    fill("legend", ...[...state.states.map(([, key, sign, label]) => [key, sign || "\u00a0", label]),
      ["kept full", "\u00a0", "full"], ["gone", "\u00a0", "does not exist now"]].map(([key, sign, label]) =>
      el("li", null, el("span", {class: key}, sign), label)));
    if (state.headline.length) {
      $("recommended").hidden = false;
      fill("headline", ...paragraphs(state.headline));
      $("file").hidden = !state.file.length;
      document.querySelector("#file pre").textContent = state.file.join("\n");
    }
    fill("report", state.points.length && tradeoff(), ...state.sections.map((one) => el("section", null,
      el("h2", null, one.title), ...paragraphs(one.text),
      one.table && table(one.title, one.table.headings, one.table.rows))));
  }

  // Playback
  function step(time) {
    if (!playing) return;
    if (before !== null) {
      now = Math.min(total, now + (time - before) / 1000 * total / $("speed").value);
      show();
    }
    before = time;
    if (now >= total) play(false);
    else requestAnimationFrame(step);
  }
  function play(on) {
    playing = on;
    before = null;
    $("play").textContent = on ? "❚❚ Pause" : "▶ Play";
    if (!on) return;
    if (now >= total) now = state.start;
    requestAnimationFrame(step);
  }
  function prepare() {
    $("time").max = total / smallest;
    fill("speed", ...SECONDS.map((seconds) => el("option", {value: seconds}, `${duration(total / seconds)} per second`)));
    $("speed").value = SECONDS[1];
    $("play").addEventListener("click", () => play(!playing));
    $("time").addEventListener("input", () => {
      now = $("time").value * smallest;
      show();
    });
  }

  showReport();
  prepare();
  build();
  play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
})();
