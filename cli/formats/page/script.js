(() => {
  const LOADS_MAX_MILLIS = 60000; // timeout of each request to `ebb page`
  const TARGETS_MAX = 3; // target nodes that the plan lists for a removable node
  const token = new URLSearchParams(location.search).get("token") || "";
  const map = nodeMap(open);
  let state = null, other = null, opened = "", banners = [], shown = -1;
  let heard = null; // Unix second of the last answer of the API server

  const dates = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "long"}); // with the time zone
  const moment = (seconds) => dates.format(seconds * 1000);
  const unbroken = (text) => text.replaceAll(" %", "\u00a0%");

  function showBanners() {
    const every = [...banners, ...(state ? state.banners : [])];
    const wanted = JSON.stringify(every);
    if ($("banners").dataset.shown === wanted) return; // screen readers announce each change
    $("banners").dataset.shown = wanted;
    fill("banners", ...paragraphs(every));
  }

  function showAge(stale) {
    const age = duration(Date.now() / 1000 - heard);
    if (heard !== null) fill("updated", `Data of ${moment(heard)}, ${age} ago`);
    if (stale !== undefined) document.body.classList.toggle("stale", stale);
  }

  function showHeadline() {
    const origin = new Map(state.origin);
    fill("origin", origin.get("cluster") || origin.get("source"));
    fill("updated", `As of ${moment(state.time)}`);
    showAge();
    fill("mode", `mode ${state.mode}`);
    const [first, ...others] = state.headline;
    fill("headline", ...paragraphs([unbroken(first)]));
    fill("more", ...prose(unbroken(others.join(" "))));
    fill("warnings",
      ...state.origin.map(([label, value]) => el("li", null, `${label}: ${value}`)),
      ...state.warnings.map((text) => el("li", null, ...prose(text))));
    const count = state.warnings.length;
    document.querySelector("#origins summary").textContent =
      count ? `Source, and ${plural(count, "warning")}` : "Source";
  }

  const addressOf = (name) => `${location.pathname}${location.search}#node=${encodeURIComponent(name)}`;
  const nodeLink = (name, text) => el("a", {href: addressOf(name)}, text || name);

  function showLeader() {
    const found = state.leader;
    if (found === null) {
      const why = state.origin.some(([label]) => label === "cluster")
        ? "No report of a leader, so limits are unknown: Ebb does not run here, or the report could not be read."
        : "A dump does not contain the decisions of Ebb.";
      fill("leader", el("p", {class: "muted"}, why));
      return;
    }
    const decisions = found.decisions.map((one) => el("li", null,
      el("time", {datetime: new Date(one.at * 1000).toISOString(), title: moment(one.at)}, age(state.time - one.at)),
      el("div", null, el("b", null, one.action), " ",
        one.node === null ? one.object : nodeLink(one.node, one.object), el("p", {class: "muted"}, ...prose(one.reason)))));
    const moves = found.moves.map((one) => [one.deployment, one.pod, nodeLink(one.node), moment(one.deadline)]);
    const zone = new Date(state.time * 1000).toLocaleTimeString(undefined, {timeZoneName: "short"}).split(" ").pop();
    const open = document.querySelector("#leader details[open]") !== null;
    fill("leader",
      moves.length && table("Surge moves", ["Surge move of", "Pod", "From node", "Deadline"], moves),
      decisions.length
        ? el("ol", {class: "decisions wide", tabindex: "0", role: "list", "aria-label": "Decisions, newest first"}, ...decisions)
        : el("p", {class: "muted"}, "The leader has decided nothing yet."),
      decisions.length && el("p", {class: "muted"}, `Ages as in kubectl. Times are in ${zone}.`),
      el("details", open ? {open: ""} : null, el("summary", null, "More from the leader"),
        facts([...found.savings, ...found.others])));
  }

  function showDay() {
    const day = state.samples;
    $("day-section").hidden = day.length < 2;
    if (day.length < 2) return;
    const from = day[0][0], to = day[day.length - 1][0];
    const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString(undefined, {timeStyle: "short"});
    const x = (at) => 100 * (at - from) / (to - from);
    fill("day", ...["Nodes", "Marked", "Removed", "Pods Pending"].map((label, place) => {
      const values = day.map((sample) => sample[place + 1]), now = values[values.length - 1];
      const low = place ? 0 : Math.min(...values), high = Math.max(...values), span = high - low || 1;
      const path = values.map((value, n) => `${n ? `H${x(day[n][0]).toFixed(2)}V` : "M0 "}${(29 - 28 * (value - low) / span).toFixed(2)}`);
      return el("figure", null,
        el("figcaption", null, `${label} `, el("b", null, now.toLocaleString()),
          el("span", {class: "muted"}, low === high ? "" : ` ${low.toLocaleString()} to ${high.toLocaleString()}`)),
        svg("svg", {viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img",
          "aria-label": `${label}: ${low} to ${high}, now ${now}`}, svg("path", {class: "line", d: path.join("")})),
        el("p", {class: "axis"}, el("span", null, clock(from)), el("span", null, clock(to))));
    }));
  }

  function firstOf(names) {
    const more = names.length - TARGETS_MAX;
    return names.slice(0, TARGETS_MAX).join(", ") + (more > 0 ? `, and ${grouped(more)} more` : "");
  }

  function showPlan() {
    const {nodes, more} = state.plan, text = JSON.stringify(state.plan);
    $("plan-section").hidden = !nodes.length;
    if ($("plan").dataset.shown === text) return;
    $("plan").dataset.shown = text;
    const rows = nodes.map((one) => [String(one.order), nodeLink(one.node), one.pool || "-", String(one.pods),
      one.by, firstOf(one.to) || "-"]);
    fill("plan",
      table("Removable nodes", ["Order", "Node", "Pool", "Pods", "Emptied by", "Would fit on"], rows),
      more && el("p", {class: "muted"}, `and ${plural(more, "more node")}`));
  }

  function showPending() {
    const pods = state.pending.pods.map((one) =>
      [one.pod, one.since === null ? "unknown" : age(state.time - one.since), one.requests, one.why]);
    $("pending-section").hidden = !pods.length;
    fill("pending",
      pods.length && table("Pods and why they wait", ["Pod", "Age", "Requests", "Why"], pods),
      state.pending.more && el("p", null, `and ${plural(state.pending.more, "more Pending pod")}`));
  }

  function showTiles(tiles) {
    fill("tiles", ...tiles.map(({label, now, after, about, bar}) => el("div", null,
      el("dt", null, label),
      el("dd", {class: "value"}, now, after === null ? "" : el("span", {class: "after"}, " \u2192 ", after)),
      bar && el("dd", {class: "meter"}, meter(bar)),
      el("dd", {class: "muted"}, unbroken(about)))));
  }
  function meter([now, after]) { // two bars, if the plan changes the share
    const bar = (share, y, name) => svg("rect", {class: name, x: 0, y, width: Math.min(100, share), height: 4});
    return svg("svg", {viewBox: "0 0 100 9", preserveAspectRatio: "none", "aria-hidden": "true"},
      bar(100, 0, "track"), bar(now, 0, "now-bar"),
      ...(now === after ? [] : [bar(100, 5, "track"), bar(after, 5, "after-bar")]));
  }

  function showReasons() {
    const text = JSON.stringify(state.reasons);
    $("why").hidden = !state.reasons.length;
    if ($("reasons").dataset.shown === text) return;
    $("reasons").dataset.shown = text;
    const most = Math.max(...state.reasons.map((one) => one.nodes));
    fill("reasons", ...state.reasons.map(({code, nodes, alone, amount}) => {
      const bar = (count, name) => svg("rect",
        {class: name, x: 0, y: 0, width: count && Math.max(1, 100 * count / most), height: 10});
      const button = el("button", {type: "button", "data-code": code, "aria-pressed": "false"},
        el("span", {class: "code"}, code),
        svg("svg", {viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true"},
          bar(nodes, "some"), bar(alone, "alone")),
        el("span", {class: "count"}, plural(nodes, "node")), el("span", {class: "amount muted"}, amount));
      button.addEventListener("click", () => map.keptBy(code));
      return button;
    }));
  }

  function showBars() {
    const devices = state.nodes.some((node) => node.device !== null);
    fill("bars", `Its bars show requests as a share of allocatable: CPU, memory${devices ? ", devices such as GPUs" : ""}.`);
  }

  async function load(path, options) {
    const separator = path.includes("?") ? "&" : "?";
    const response = await fetch(`${path}${separator}token=${encodeURIComponent(token)}`,
      {cache: "no-store", signal: AbortSignal.timeout(LOADS_MAX_MILLIS), ...options});
    if (!response.ok) throw new Error((await response.text()).slice(0, 500) || String(response.status));
    return response.json();
  }

  // The address names the opened node, so that it can be shared.
  function open(name) {
    history.replaceState(null, "", addressOf(name));
    showNode(name);
  }
  function followLink() {
    const name = new URLSearchParams(location.hash.slice(1)).get("node");
    if (name) showNode(name);
    else if ($("detail").open) $("detail").close();
  }

  async function showNode(name) {
    opened = name;
    fill("detail-title", name);
    $("link").href = addressOf(name);
    const dialog = $("detail");
    if (!dialog.open) {
      fill("detail-body", el("p", null, "Loading."));
      dialog.showModal();
    }
    try {
      const found = state.details ? Object.hasOwn(state.details, name) && state.details[name]
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
    const groups = found.groups.flatMap(({title, reasons}) => [el("h3", null, title),
      ...reasons.map((one) => el("div", {class: "reason"},
        el("p", null, el("strong", null, one.code), ...(one.messages.length === 1 ? prose(`: ${one.messages[0]}`) : [])),
        one.messages.length > 1 && el("ul", null, ...one.messages.map((text) => el("li", null, ...prose(text)))),
        el("p", {class: "muted"}, ...prose(one.meaning)),
        facts([["Fix", one.fix], ["Ends when", one.endsWhen],
          ...(one.until === null ? [] : [["Ends at", moment(one.until)]])])))]);
    const pods = found.pods.map((one) => [one.pod, one.requests,
      one.ends ? "ends with the node" : one.to ? nodeLink(one.to) : one.why ? `no node: ${one.why}` : "stays"]);
    const without = el("button", {type: "button"}, "What if this node were gone?");
    without.addEventListener("click", () => {
      const name = opened;
      $("detail").close();
      whatIf({without: name}, `${name} were gone`);
    });
    fill("detail-body",
      el("p", {class: "verdict"}, found.plan),
      ...(groups.length ? groups : [el("h3", null, "No reason against its removal")]),
      el("h3", null, "About the node"),
      facts([...found.facts, ["in this state for", since]]),
      found.leader.length && el("h3", null, "Known to the leader"),
      found.leader.length && facts(found.leader),
      el("h3", null, `Pods: ${found.pods.length + found.more}`),
      pods.length ? table("Pods of the node", ["Pod", "Requests", "Would fit on"], pods) : null,
      state.live && el("p", null, without),
      el("details", null, el("summary", null, "Labels and taints"),
        el("ul", null, ...[...found.taints.map((one) => `taint ${one}`), ...found.labels]
          .map((text) => el("li", null, text)))));
  }

  function show(next) {
    state = next;
    showHeadline();
    showLeader();
    showDay();
    showPlan();
    showPending();
    showTiles(state.tiles);
    showReasons();
    $("cluster").hidden = false;
    map.show(state, other);
    showBars();
    showBanners();
    if (state.live && $("detail").open) showNode(opened);
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
      heard = news.heard;
      showAge(news.stale);
      showBanners();
      if (news.version) refresh(news.version);
    };
    events.onerror = () => {
      banners = ["The connection to `ebb page` is lost, so this page may be out of date. It " +
        "reconnects by itself while the command runs."];
      showBanners();
      showAge(true);
      if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
    };
  }

  async function whatIf(given, title) {
    fill("what-if-answer", el("p", null, "Computing."));
    try {
      const found = await load("what-if", {method: "POST", body: JSON.stringify(given),
        headers: {"Content-Type": "application/json"}});
      other = new Set(found.removable);
      const back = el("button", {type: "button"}, "Back to the plan of now");
      back.addEventListener("click", () => {
        other = null;
        fill("what-if-answer");
        map.show(state, other);
      });
      const [sum, ...others] = found.lines.map(unbroken);
      fill("what-if-answer", el("p", null, el("b", null, `What if ${title}: `), ...prose(sum)),
        el("p", null, ...prose(others.join(" "))), el("p", null, back));
      map.show(state, other);
    } catch (fault) {
      fill("what-if-answer", el("p", null, `No answer: ${fault.message}`));
    }
    $("what-if-answer").scrollIntoView({block: "nearest"});
  }

  $("what-if-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = {}, changes = [];
    for (const name of ["cpu", "memory", "headroom"]) {
      const value = $(name).value.trim();
      if (value) given[name] = value;
      if (value) changes.push(`${$(name).labels[0].textContent} ${value}`);
    }
    whatIf(given, changes.join(", ") || "nothing changed");
  });
  $("detail").addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
  });
  window.addEventListener("hashchange", followLink);
  const first = JSON.parse($("state").textContent);
  if (first !== null) show(first);
  if (first !== null) followLink();
  if (first === null || first.live) {
    $("what-if").hidden = false;
    follow();
    setInterval(showAge, 1000);
  }
})();
