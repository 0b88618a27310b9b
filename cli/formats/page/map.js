// The nodes as boxes, by pool and zone, with their filters.
function nodeMap(open) {
  const MAP_HEIGHT = 420, SIDE_MIN = 9, SIDE_MEAN_MAX = 84, SIDE_MAX = 220, GAP = 3; // pixels
  const NAMED_SIDE = 58; // side of a box from which there is room for a name
  const NAMED_MAX = 400; // nodes; boxes of larger clusters have no room for names
  const TINY_SIDE = 20; // mean side of boxes that need a small letter
  const SIZES = 6; // classes of boxes for each doubling of the size
  const ROW_MIN = 25; // nodes of a pool that has rows of its own
  const BESIDE_MAX = 4; // zones of a pool without rows of its own
  const CHAR_WIDTH = 6.5, NAME_MARGIN = 27; // pixels of a name in a box, and beside it
  const boxes = new Map(); // node name -> its button
  const pools = new Map(); // pool -> its heading, and its nodes by zone
  const rules = new Map(); // size -> its style in the style sheet, and the side in it
  const chosen = new Set(); // states that the legend selects
  let state = null, labels = new Map(), laid = [], current = null, reason = "", other = null, filtered = false;
  let width = 0; // of the map; to read it again for each state would cost a layout

  const share = (value) => (value === null ? "unknown" : `${value} %`);
  const sizeOf = (node) => Math.max(0, Math.round(SIZES * Math.log2(Math.max(1, node.size))));
  function stateOf(node) { // in the other plan of a what-if, if one is shown
    if (!other || !["removable", "kept", "reserved"].includes(node.state)) return node.state;
    if (other.has(node.name)) return "removable";
    return node.state === "removable" ? "kept" : node.state;
  }

  function about(node, label) {
    const devices = node.device === null ? "" : `, devices ${share(node.device)}`;
    const where = [node.pool, node.zone, node.type].filter(Boolean).join(", ");
    const reasons = node.reasons.length ? `; kept by ${node.reasons.join(", ")}` : "";
    return `${node.name}: ${label}, CPU ${share(node.cpu)}, memory ${share(node.memory)}${devices}, ` +
      `${plural(node.pods, "pod")}${where && `; ${where}`}${reasons}`;
  }

  const equal = (a, b) => a === b ||
    (Array.isArray(a) && a.length === b.length && a.every((one, place) => one === b[place]));
  const same = (a, b) => Object.keys(a).every((name) => equal(a[name], b[name]));

  function update(node) {
    let box = boxes.get(node.name);
    const key = stateOf(node);
    if (box && box.key === key && same(node, box.node)) return;
    if (!box) {
      box = el("button", {type: "button", tabindex: "-1"});
      boxes.set(node.name, box);
    }
    box.node = node;
    box.key = key;
    const {sign, label} = labels.get(key);
    // Boxes of the same classes share one style. 5,000 inline styles would take 0.3 s.
    const tenths = (value) => Math.min(10, Math.ceil((value || 0) / 10));
    const device = node.device === null ? "" : ` three device-${tenths(node.device)}`;
    box.className = `${key} size-${sizeOf(node)} cpu-${tenths(node.cpu)} memory-${tenths(node.memory)}` +
      device + (key === node.state ? "" : " changed");
    if (box.firstElementChild) box.firstElementChild.textContent = sign;
    else if (box.textContent !== sign) box.textContent = sign;
    box.setAttribute("aria-label", about(node, label));
  }

  // The area of a box is the size of its node. All boxes together fill MAP_HEIGHT, if they can.
  function scale() {
    const sheet = document.styleSheets[0];
    if (!state || !state.nodes.length || !width) return;
    const area = (size) => 2 ** (size / SIZES);
    const sizes = state.nodes.map(sizeOf);
    const mean = sizes.reduce((sum, size) => sum + area(size), 0) / sizes.length;
    const room = Math.sqrt(width * MAP_HEIGHT / sizes.length) - GAP;
    const least = Math.sqrt(area(Math.min(...sizes)) / mean); // side of the smallest box, in mean sides
    const side = Math.max(SIDE_MIN + 2, Math.min(room, Math.max(SIDE_MEAN_MAX, NAMED_SIDE / least)));
    const named = new Set(); // sizes
    for (const size of new Set(sizes)) {
      if (!rules.has(size)) {
        const place = sheet.insertRule(`.size-${size} {}`, sheet.cssRules.length);
        rules.set(size, {style: sheet.cssRules[place].style, side: 0});
      }
      const own = Math.round(Math.min(SIDE_MAX, Math.max(SIDE_MIN, side * Math.sqrt(area(size) / mean))));
      const stretch = own < NAMED_SIDE ? 1 : 1.25; // names need more width than height
      if (own >= NAMED_SIDE) named.add(size);
      const rule = rules.get(size);
      if (rule.side === own) continue; // each change makes the browser compute all styles anew
      rule.side = own;
      rule.style.width = `${Math.round(own * stretch)}px`;
      rule.style.height = `${Math.round(own / stretch)}px`;
    }
    $("nodes").classList.toggle("tiny", side < TINY_SIDE);
    const few = sizes.length <= NAMED_MAX;
    for (const box of few ? boxes.values() : document.querySelectorAll("#nodes .named")) {
      box.classList.toggle("named", few && named.has(sizeOf(box.node)));
    }
  }

  // Leave out what the names of a group have in common, such as the domain or the pool.
  function shortNames(names, fitting) { // fitting: characters for which there is room
    const dot = names[0].indexOf("."), suffix = dot < 0 ? "" : names[0].slice(dot);
    const bare = names.every((name) => name.endsWith(suffix))
      ? names.map((name) => name.slice(0, name.length - suffix.length)) : names;
    let start = 0;
    if (names.length > 1 && bare.some((name) => name.length > fitting)) {
      for (let end = bare[0].indexOf("-") + 1; end > 0; end = bare[0].indexOf("-", end) + 1) {
        if (bare.every((name) => name.startsWith(bare[0].slice(0, end)) && name.length > end)) start = end;
      }
    }
    return bare.map((name) => name.slice(start));
  }

  function zoneOf(pool, zone, nodes) {
    const found = nodes.map((node) => boxes.get(node.name));
    if (state.nodes.length <= NAMED_MAX) {
      for (const box of found) {
        box.replaceChildren(el("span", null, labels.get(box.key).sign), el("span", {class: "name"}));
      }
    }
    const title = [pool && `pool ${pool}`, zone && `zone ${zone}`].filter(Boolean).join(", ");
    return el("div", {class: "zone"}, zone && el("h4", null, zone),
      el("div", {class: "boxes", role: "group", "aria-label": title || "all nodes"}, ...found));
  }

  function showNames() { // the width of the map decides how much of them fits
    if (!state || state.nodes.length > NAMED_MAX) return;
    for (const nodes of [...pools.values()].flatMap(({zones}) => [...zones.values()])) {
      const narrowest = Math.min(...nodes.map((node) => parseInt(rules.get(sizeOf(node)).style.width)));
      const names = shortNames(nodes.map((node) => node.name), Math.floor((narrowest - NAME_MARGIN) / CHAR_WIDTH));
      names.forEach((name, place) => boxes.get(nodes[place].name).lastChild.textContent = name);
    }
  }

  function poolOf(pool, known) {
    const nodes = [...known.zones.values()].flat();
    const title = pool || (pools.size > 1 ? "no pool" : "All nodes");
    const small = nodes.length < ROW_MIN && known.zones.size <= BESIDE_MAX;
    return el("section", {class: small ? "pool" : "pool row"},
      el("h3", null, title, " ", known.heading),
      el("div", {class: "zones"}, ...[...known.zones].map(([zone, of]) => zoneOf(pool, zone, of))));
  }

  // Show the nodes; boxes move only when nodes come and go.
  function lay() {
    const there = ({name, pool, zone}, place) => equal([name, pool, zone], laid[place]);
    if (state.nodes.length === laid.length && state.nodes.every(there)) return;
    laid = state.nodes.map(({name, pool, zone}) => [name, pool, zone]);
    const focused = document.activeElement, names = new Set(state.nodes.map((node) => node.name));
    for (const name of [...boxes.keys()]) if (!names.has(name)) boxes.delete(name);
    pools.clear();
    for (const node of state.nodes) {
      if (!pools.has(node.pool)) pools.set(node.pool, {heading: el("small"), zones: new Map()});
      const {zones} = pools.get(node.pool);
      if (!zones.has(node.zone)) zones.set(node.zone, []);
      zones.get(node.zone).push(node);
    }
    for (const {zones} of pools.values()) {
      for (const nodes of zones.values()) nodes.sort((a, b) => sizeOf(b) - sizeOf(a)); // else by name
    }
    fill("nodes", ...[...pools].map(([pool, known]) => poolOf(pool, known)));
    offer("pool", "All pools", [...pools.keys()], "no pool");
    offer("zone", "All zones", [...new Set(state.nodes.map((node) => node.zone))].sort(), "no zone");
    if (!current || !current.isConnected) choose(boxes.values().next().value || null);
    if (focused && focused.node && focused.isConnected) focused.focus();
  }

  // The value of an option is its place, because a pool or zone may have no name.
  function offer(id, every, names, none) {
    const select = $(id), text = JSON.stringify(names);
    if (select.dataset.names === text) return;
    const before = select.value === "" ? null : select.names[select.value];
    select.dataset.names = text;
    select.names = names;
    select.replaceChildren(el("option", {value: ""}, every),
      ...names.map((name, place) => el("option", {value: place}, name || none)));
    select.value = names.includes(before) ? names.indexOf(before) : "";
    select.parentElement.hidden = names.length < 2;
  }
  const selected = (id) => ($(id).value === "" ? null : $(id).names[$(id).value]);

  function showHeadings() {
    for (const known of pools.values()) known.nodes = known.removable = 0;
    const counts = new Map();
    for (const node of state.nodes) {
      const known = pools.get(node.pool), key = stateOf(node);
      known.nodes += 1;
      if (other ? other.has(node.name) : node.order !== null) known.removable += 1; // marked or not
      counts.set(key, (counts.get(key) || 0) + 1);
    }
    for (const {heading, nodes, removable} of pools.values()) {
      heading.textContent = plural(nodes, "node") + (removable ? `, ${grouped(removable)} removable` : "");
    }
    const found = state.states.filter((one) => counts.has(one.key)), text = JSON.stringify(found);
    if ($("legend").dataset.shown !== text) {
      $("legend").dataset.shown = text;
      fill("legend", ...found.map(legendOf));
    }
    for (const button of $("legend").children) {
      button.setAttribute("aria-pressed", chosen.has(button.dataset.key));
      button.lastChild.textContent = grouped(counts.get(button.dataset.key));
    }
  }
  function legendOf({key, sign, label}) {
    const button = el("button", {type: "button", "data-key": key},
      el("span", {class: key}, sign), `${label}${key === "removable" ? ", not marked" : ""} `, el("b"));
    button.addEventListener("click", () => {
      if (!chosen.delete(key)) chosen.add(key);
      button.setAttribute("aria-pressed", chosen.has(key));
      filter();
    });
    return button;
  }

  function tell(id, text) { // screen readers announce each change
    if ($(id).dataset.shown === text) return;
    $(id).dataset.shown = text;
    fill(id, ...prose(text));
  }

  function filter() {
    const text = $("filter").value.trim().toLowerCase();
    const [pool, zone, namespace] = ["pool", "zone", "namespace"].map(selected);
    const place = namespace === null ? -1 : state.namespaces.indexOf(namespace);
    const matches = (node) => (pool === null || node.pool === pool) && (zone === null || node.zone === zone) &&
      (!chosen.size || chosen.has(stateOf(node))) && (!reason || node.reasons.includes(reason)) &&
      (namespace === null || node.namespaces.includes(place)) &&
      (!text || [node.name, node.pool, node.zone, node.type].some((one) => one.toLowerCase().includes(text)));
    const active = pool !== null || zone !== null || namespace !== null || chosen.size || reason || text;
    if (!active && !filtered) return;
    filtered = Boolean(active);
    let count = 0;
    for (const group of document.querySelectorAll("#nodes .boxes")) {
      let some = 0;
      for (const box of group.children) {
        box.hidden = !matches(box.node);
        if (!box.hidden) some += 1;
      }
      group.parentElement.hidden = !some;
      count += some;
    }
    for (const section of document.querySelectorAll(".pool")) section.hidden = !section.querySelector(".zone:not([hidden])");
    const every = state.nodes.length;
    tell("count", !active ? "" : count ? `${grouped(count)} of ${plural(every, "node")}` : "No node matches.");
    $("all").hidden = !active;
    const first = document.querySelector("#nodes button:not([hidden])");
    if (current && current.closest("[hidden]") && first) choose(first);
  }

  function choose(box) {
    if (current) current.tabIndex = -1;
    current = box;
    if (current) current.tabIndex = 0;
  }

  function moveTo(event) {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const every = [...document.querySelectorAll(".pool:not([hidden]) .zone:not([hidden]) button:not([hidden])")];
    let place = every.indexOf(event.target);
    if (place < 0) return;
    if (event.key === "Home" || event.key === "End") place = event.key === "Home" ? 0 : every.length - 1;
    else if (!step) return;
    else if (event.key.endsWith("Left") || event.key.endsWith("Right")) place += step;
    else place = nextRow(every, place, step);
    event.preventDefault();
    const next = every[Math.max(0, Math.min(every.length - 1, place))];
    choose(next);
    next.focus();
  }
  // Groups stand side by side, so the next row is found by position.
  function nextRow(every, from, step) {
    const own = every[from].getBoundingClientRect();
    let best = from, distance = [Infinity, Infinity];
    every.forEach((box, place) => {
      const there = box.getBoundingClientRect();
      const rows = (there.top - own.top) * step, columns = Math.abs(there.left - own.left);
      const closer = rows < distance[0] - 1 || (rows < distance[0] + 1 && columns < distance[1]);
      if (rows > 2 && closer) {
        best = place;
        distance = [rows, columns];
      }
    });
    return best;
  }

  $("nodes").addEventListener("click", (event) => {
    const box = event.target.closest("button");
    if (box) {
      choose(box);
      open(box.node.name);
    }
  });
  $("nodes").addEventListener("keydown", moveTo);
  $("nodes").addEventListener("pointerover", (event) => {
    const box = event.target.closest("button");
    if (box) box.title = box.getAttribute("aria-label");
  });
  for (const id of ["filter", "pool", "zone", "namespace"]) $(id).addEventListener("input", filter);
  $("all").addEventListener("click", () => {
    for (const id of ["filter", "pool", "zone", "namespace"]) $(id).value = "";
    chosen.clear();
    showHeadings();
    keptBy("");
    $("filter").focus();
  });
  new ResizeObserver(() => {
    width = $("nodes").clientWidth;
    scale();
    showNames();
  }).observe($("nodes"));

  function keptBy(code) { // show only the nodes with this reason; all if it is empty
    reason = code;
    for (const button of document.querySelectorAll("#reasons button")) {
      button.setAttribute("aria-pressed", button.dataset.code === code);
    }
    const found = state.reasons.find((one) => one.code === code);
    tell("reason", found ? `${found.meaning} Fix: ${found.fix}.` : "");
    filter();
  }

  function show(next, removable) { // removable: names of nodes in the other plan of a what-if
    state = next;
    other = removable;
    labels = new Map(state.states.map((one) => [one.key, one]));
    for (const node of state.nodes) update(node);
    width = width || $("nodes").clientWidth;
    scale(); // before the boxes are in the document, so that they are laid out once
    lay();
    showNames();
    offer("namespace", "All namespaces", state.namespaces, "");
    showHeadings();
    if (!state.reasons.some((one) => one.code === reason)) reason = "";
    keptBy(reason);
  }
  return {show, keptBy: (code) => keptBy(code === reason ? "" : code)};
}
