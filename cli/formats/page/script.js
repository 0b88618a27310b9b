(() => {
  const SIDE_BY_SIDE_MAX = 24; // nodes of a group that shares its row with others
  const LOADS_MAX_MILLIS = 60000; // timeout of each request to `ebb page`
  const token = new URLSearchParams(location.search).get("token") || "";
  const boxes = new Map(); // node name -> its button
  let state = null, groups = "", current = null, opened = "", banners = [], shown = -1;

  const moment = (seconds) => new Date(seconds * 1000).toLocaleString();
  const ago = (seconds) => `${duration(state.time - seconds).match(/^\d+ \w+/)[0]} ago`;

  function showBanners() {
    const every = [...banners, ...(state ? state.banners : [])];
    const wanted = JSON.stringify(every);
    if ($("banners").dataset.shown === wanted) return; // screen readers announce each change
    $("banners").dataset.shown = wanted;
    fill("banners", ...paragraphs(every));
  }

  function showHeadline() {
    const origin = new Map(state.origin);
    fill("origin", origin.get("cluster") || origin.get("source"));
    fill("updated", state.live ? `Plan of ${moment(state.time)}` : `As of ${moment(state.time)}`);
    fill("headline", ...paragraphs(state.headline));
    fill("warnings",
      ...state.origin.map(([label, value]) => el("li", null, `${label}: ${value}`)),
      ...state.warnings.map((text) => el("li", null, ...prose(text))));
    const count = state.warnings.length;
    document.querySelector("#origins summary").textContent =
      count ? `Source, and ${count} warning${count === 1 ? "" : "s"}` : "Source";
  }

  function showLeader() {
    const found = state.leader;
    if (found === null) {
      const why = state.origin.some(([label]) => label === "cluster")
        ? "No report of a leader: Ebb does not run here, or its report could not be read."
        : "A dump does not contain the decisions of Ebb.";
      fill("leader", el("p", {class: "muted"}, why));
      return;
    }
    const decisions = found.decisions.map((one) => [ago(one.at), one.action, one.object, one.reason]);
    const moves = found.moves.map((one) =>
      [one.deployment, one.pod, one.node, moment(one.deadline)]);
    const others = el("details", null, el("summary", null, "More from the leader"), facts(found.others));
    fill("leader", facts(found.savings),
      decisions.length
        ? table("Decisions, newest first", ["When", "Action", "Object", "Reason"], decisions)
        : el("p", {class: "muted"}, "The leader has decided nothing yet."),
      moves.length &&
        table("Surge moves", ["Deployment", "Pod", "From node", "Deadline"], moves),
      others);
  }

  function showWaiting() {
    const pods = state.pending.pods.map((one) =>
      [one.pod, one.since === null ? "unknown" : duration(state.time - one.since), one.requests, one.why]);
    const waits = state.waits.map((one) => {
      const end = one.until === null ? "" : `, for ${duration(one.until - state.time)}`;
      return `${one.nodes} removable node${one.nodes === 1 ? "" : "s"} not marked yet: ${one.code}${end}`;
    });
    fill("waiting",
      ...paragraphs(waits),
      pods.length
        ? table("Pending pods", ["Pending pod", "For", "Requests", "Why"], pods)
        : el("p", {class: "muted"}, "No pod is Pending."),
      state.pending.more && el("p", null, `and ${state.pending.more} more Pending pods`));
  }

  const labels = () => new Map(state.states.map((one) => [one.key, one]));
  const share = (value) => (value === null ? "unknown" : `${value} %`);

  function showLegend() {
    const counts = new Map();
    for (const node of state.nodes) counts.set(node.state, (counts.get(node.state) || 0) + 1);
    fill("legend", ...state.states.filter((one) => counts.has(one.key)).map((one) =>
      el("li", null, el("span", {class: one.key}, one.sign), `${one.label}: ${counts.get(one.key)}`)));
  }

  function update(node, known) {
    let box = boxes.get(node.name);
    const text = JSON.stringify(node);
    if (box && box.shown === text) return box;
    if (!box) {
      box = el("button", {type: "button", tabindex: "-1"});
      box.name_ = node.name;
      boxes.set(node.name, box);
    }
    box.shown = text;
    const found = known.get(node.state);
    // Boxes of the same classes share one style. 5,000 inline styles would take 0.3 s.
    const tenths = (value) => Math.min(10, Math.ceil((value || 0) / 10));
    box.className = `${node.state} cpu-${tenths(node.cpu)} memory-${tenths(node.memory)}`;
    if (box.textContent !== found.sign) box.textContent = found.sign;
    const about = `${node.name}: ${found.label}, CPU ${share(node.cpu)}, ` +
      `memory ${share(node.memory)}, ${node.pods} pod${node.pods === 1 ? "" : "s"}`;
    box.setAttribute("aria-label", about);
    return box;
  }

  function showNodes() {
    const known = labels(), placed = new Map();
    for (const node of state.nodes) {
      const key = JSON.stringify([node.pool, node.zone]);
      if (!placed.has(key)) placed.set(key, []);
      placed.get(key).push(update(node, known));
    }
    const wanted = JSON.stringify([...placed].map(([key, found]) => [key, found.map((one) => one.name_)]));
    if (wanted === groups) return;
    groups = wanted;
    const focused = document.activeElement;
    fill("nodes", ...[...placed].map(([key, found]) => {
      const [pool, zone] = JSON.parse(key);
      const title = [pool && `Pool ${pool}`, zone && `${pool ? "zone" : "Zone"} ${zone}`]
        .filter(Boolean).join(", ") || "All nodes";
      return el("div", {class: found.length > SIDE_BY_SIDE_MAX ? "group large" : "group"},
        el("h3", null, title, " ", el("small", null, `${found.length} node${found.length === 1 ? "" : "s"}`)),
        el("ul", {class: "boxes"}, ...found.map((box) => el("li", null, box))));
    }));
    const names = new Set(state.nodes.map((one) => one.name));
    for (const name of [...boxes.keys()]) if (!names.has(name)) boxes.delete(name);
    if (!current || !boxes.has(current.name_)) choose(boxes.values().next().value || null);
    if (focused && focused.name_ && focused.isConnected) focused.focus();
    applyFilter();
  }

  function choose(box) {
    if (current) current.tabIndex = -1;
    current = box;
    if (current) current.tabIndex = 0;
  }

  function applyFilter() {
    const text = $("filter").value.trim().toLowerCase();
    for (const group of document.querySelectorAll(".group")) {
      let some = false;
      for (const item of group.querySelectorAll("li")) {
        item.hidden = !item.firstChild.name_.toLowerCase().includes(text);
        some = some || !item.hidden;
      }
      group.hidden = !some;
    }
    const first = document.querySelector(".group:not([hidden]) li:not([hidden]) button");
    if (current && current.closest("[hidden]") && first) choose(first);
  }

  function moveTo(event) {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const every = [...document.querySelectorAll(".group:not([hidden]) li:not([hidden]) button")];
    let place = every.indexOf(event.target);
    if (place < 0) return;
    if (event.key === "Home") place = 0;
    else if (event.key === "End") place = every.length - 1;
    else if (!step) return;
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") place += step;
    else place = inOtherRow(every, place, step);
    event.preventDefault();
    if (every[place]) {
      choose(every[place]);
      every[place].focus();
    }
  }
  // Groups may stand side by side, so the next row is found by position.
  function inOtherRow(every, from, step) {
    const own = every[from].getBoundingClientRect();
    let best = from, distance = [Infinity, Infinity];
    every.forEach((box, place) => {
      const other = box.getBoundingClientRect();
      const rows = (other.top - own.top) * step, columns = Math.abs(other.left - own.left);
      const closer = rows < distance[0] - 1 || (rows < distance[0] + 1 && columns < distance[1]);
      if (rows > 2 && closer) {
        best = place;
        distance = [rows, columns];
      }
    });
    return best;
  }

  async function load(path, options) {
    const separator = path.includes("?") ? "&" : "?";
    const response = await fetch(`${path}${separator}token=${encodeURIComponent(token)}`,
      {cache: "no-store", signal: AbortSignal.timeout(LOADS_MAX_MILLIS), ...options});
    if (!response.ok) throw new Error((await response.text()).slice(0, 500) || String(response.status));
    return response.json();
  }

  async function open(name) {
    opened = name;
    fill("detail-title", name);
    const dialog = $("detail");
    if (!dialog.open) {
      fill("detail-body", el("p", null, "Loading."));
      dialog.showModal();
    }
    try {
      const found = state.details ? state.details[name]
        : await load(`node?name=${encodeURIComponent(name)}`);
      if (opened === name) showDetail(found);
    } catch (fault) {
      if (opened === name) fill("detail-body", el("p", null, `Cannot load the node: ${fault.message}`));
    }
  }

  function showDetail(found) {
    if (!found) {
      fill("detail-body", el("p", null, "The node does not exist any more."));
      return;
    }
    const since = found.since === null
      ? "unknown: one reading of the cluster does not show it"
      : `${found.since.least ? "at least " : ""}${duration(state.time - found.since.at)}, ` +
        `since ${moment(found.since.at)}`;
    const reasons = found.reasons.map((one) => el("div", {class: "reason"},
      el("p", null, el("strong", null, one.code), ...prose(`: ${one.message}`)),
      el("p", {class: "muted"}, ...prose(one.meaning)),
      facts([["Fix", one.fix], ["Ends when", one.endsWhen],
        ...(one.until === null ? [] : [["Ends at", moment(one.until)]])])));
    const pods = found.pods.map((one) =>
      [one.pod, one.requests, one.ends ? "ends with the node" : one.to || "stays"]);
    fill("detail-body",
      el("p", null, found.plan),
      facts([...found.facts, ["in this state for", since]]),
      el("h3", null, reasons.length ? "Reasons" : "No reason against its removal"), ...reasons,
      el("h3", null, `Pods: ${found.pods.length + found.more}`),
      pods.length ? table("Pods of the node", ["Pod", "Requests", "In the plan"], pods) : null,
      el("h3", null, "Labels and taints"),
      el("ul", null, ...[...found.taints.map((one) => `taint ${one}`), ...found.labels]
        .map((text) => el("li", null, text))));
  }

  function show(next) {
    state = next;
    showHeadline();
    showLeader();
    showWaiting();
    showLegend();
    showNodes();
    showBanners();
    if (state.live && $("detail").open) open(opened);
    document.body.dataset.nodes = String(state.nodes.length); // for tests: the state is shown
  }

  // `ebb page` announces each version of the state; the page loads the newest one.
  let loading = false;
  async function refresh(version) {
    if (loading || version === shown) return;
    loading = true;
    try {
      show(await load("state"));
      shown = version;
    } catch (fault) {
      banners = [`The state could not be loaded: ${fault.message}`];
      showBanners();
    }
    loading = false;
  }
  function follow() {
    const events = new EventSource(`events?token=${encodeURIComponent(token)}`);
    events.onmessage = (event) => {
      const news = JSON.parse(event.data);
      banners = news.banners;
      showBanners();
      if (news.version) refresh(news.version);
    };
    events.onerror = () => {
      banners = ["The connection to `ebb page` is lost, so this page may be out of date. It " +
        "reconnects by itself while the command runs."];
      showBanners();
      if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
    };
  }

  async function whatIf(event) {
    event.preventDefault();
    const given = {};
    for (const name of ["cpu", "memory", "headroom", "without"]) {
      if ($(name).value.trim()) given[name] = $(name).value.trim();
    }
    fill("what-if-answer", el("p", null, "Computing."));
    try {
      const found = await load("what-if", {method: "POST", body: JSON.stringify(given),
        headers: {"Content-Type": "application/json"}});
      fill("what-if-answer", ...paragraphs(found.lines));
    } catch (fault) {
      fill("what-if-answer", el("p", null, `No answer: ${fault.message}`));
    }
  }

  $("nodes").addEventListener("click", (event) => {
    const box = event.target.closest("button");
    if (box) {
      choose(box);
      open(box.name_);
    }
  });
  $("nodes").addEventListener("keydown", moveTo);
  $("nodes").addEventListener("pointerover", (event) => {
    const box = event.target.closest("button");
    if (box) box.title = box.getAttribute("aria-label");
  });
  $("filter").addEventListener("input", applyFilter);
  $("what-if-form").addEventListener("submit", whatIf);
  const first = JSON.parse($("state").textContent);
  if (first !== null) show(first);
  if (first === null || first.live) {
    $("what-if").hidden = false;
    follow();
  }
})();
