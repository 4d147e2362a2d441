// The dashboard: a table of runs, one run live, runs side by side.
"use strict";
(() => {
  const {element, clear, finite, count, number, percent, duration, section, facts, CurveChart, smooth, smoothingSlider, Log, badge} = Lockstep;
  const runs = new Map();
  let sweeps = [], version = 0, machine = null, stream = null, view = null;
  const main = element("main"), use = element("span", {class: "quiet small"});

  async function load(path) {
    const answer = await fetch(path, {credentials: "same-origin"});
    const json = await answer.json();
    if (!answer.ok) throw new Error(json.error ? json.error + (json.hint ? `; ${json.hint}` : "") : `${path}: ${answer.status}`);
    return json;
  }
  async function send(path, body) {
    const answer = await fetch(path, {method: "POST", credentials: "same-origin", body: body === undefined ? "" : JSON.stringify(body)});
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error || `${path}: ${answer.status}`);
  }
  const say = text => { const line = element("p", {class: "message", role: "alert"}, text); main.prepend(line); setTimeout(() => line.remove(), 8000); };
  const remember = (key, value) => { try { localStorage.setItem("lockstep." + key, JSON.stringify(value)); } catch { /* no storage: forgotten */ } };
  const remembered = (key, otherwise) => { try { return JSON.parse(localStorage.getItem("lockstep." + key)) ?? otherwise; } catch { return otherwise; } };

  const gpus = () => finite(machine.gpus_silent) ? [] : machine.gpus || [];
  const silentGpus = () => finite(machine.gpus_silent) ? `GPUs have not answered for ${duration(machine.gpus_silent)}` : null;

  function takeRuns(list) { for (const run of list.runs) runs.set(run.id, run); version = list.version; sweeps = list.sweeps ?? sweeps; }

  // The one stream of this page: the list of runs, and the logs of `watched` ({id: log}).
  function listen(watched) {
    stream?.close();
    const open = () => {
      const watch = Object.entries(watched).map(([id, log]) => `${id}:${log.position}:${log.mark}`).join(",");
      stream = new EventSource(`/events?since=${version}&watch=${encodeURIComponent(watch)}`);
      stream.addEventListener("runs", event => { takeRuns(JSON.parse(event.data)); view?.runs?.(); });
      stream.addEventListener("log", event => { const {id, log} = JSON.parse(event.data); if (watched[id]) { watched[id].add(log); view?.log?.(id); } });
      stream.addEventListener("restart", () => show());
      stream.addEventListener("machine", event => {
        machine = JSON.parse(event.data);
        use.textContent = `${count(machine.processors)} processors ${finite(machine.busy) ? percent(machine.busy, 0) + " busy" : ""}, memory ${percent(machine.memory, 0)} of ${(machine.memory_bytes / 2 ** 30).toFixed(0)} GiB` + (silentGpus() ? "; " + silentGpus() : gpus().map((gpu, i) => `; GPU ${i} ${gpuUse(gpu)}`).join(""));
        view?.machine?.();
      });
      // The browser would repeat the old position, so a new connection is made with the present one.
      stream.onerror = () => { stream.close(); use.textContent = "not connected"; setTimeout(() => { if (view?.watched === watched) open(); }, 1500); };
    };
    open();
  }

  const gpuUse = gpu => `${finite(gpu.busy) ? percent(gpu.busy, 0) + " busy" : "–"}, memory ${finite(gpu.memory) ? percent(gpu.memory, 0) : "–"}${gpu.memory_bytes ? ` of ${(gpu.memory_bytes / 2 ** 30).toFixed(0)} GiB` : ""}`;

  const value = (run, key) => key.startsWith("options.") ? run.options?.[key.slice(8)] : run[key];
  const shown = (key, v) => /accuracy/.test(key) ? percent(v) : finite(v) ? number(v) : v === undefined || v === null ? "–" : String(v);

  function list() {
    const state = remembered("table", {filter: "", by: 6, down: true, options: false});
    const chosen = new Set(remembered("chosen", []));
    const info = element("span", {class: "quiet", "aria-live": "polite"}), holder = element("div", {class: "scroll", style: {maxHeight: "none"}});
    // The server reads the filter: it is the one of `lockstep runs list`, with its errors.
    let fitting = null, asked = 0, later = null;
    const wrong = element("p", {class: "message", role: "alert", hidden: true});
    const filter = element("input", {type: "search", value: state.filter, size: 38, placeholder: "validation.loss < 0.5 and tag = good", "aria-label": "Filter",
      title: "A condition as for lockstep runs list --where, such as: width = 8 and not state = failed, or name ~ digits",
      on: {input: () => { state.filter = filter.value; remember("table", state); ask(250); }}});
    function ask(wait) {
      clearTimeout(later);
      const mine = ++asked, text = state.filter.trim();
      const say = (ids, problem) => { fitting = ids; wrong.textContent = problem; wrong.hidden = !problem; draw(); };
      if (!text) return say(null, "");
      later = setTimeout(async () => {
        try {
          const {ids, error, hint} = await load("/api/filter?text=" + encodeURIComponent(text));
          if (mine === asked) say(ids ? new Set(ids) : fitting, error ? error + (hint ? "; " + hint : "") : "");
        } catch (error) { if (mine === asked) say(fitting, error.message); }
      }, wait);
    }
    const beside = element("button", {type: "button", class: "main", on: {click: () => { location.hash = "#/compare/" + [...chosen].join(","); }}}, "Side by side");
    const withOptions = element("input", {type: "checkbox", on: {change: () => { state.options = withOptions.checked; remember("table", state); draw(true); }}});
    withOptions.checked = state.options;
    if (sweeps.length) {
      section(main, "Sweeps", node => node.append(element("ul", {style: {margin: 0}}, sweeps.map(one => element("li", {}, element("a", {href: "#/sweep/" + one.id}, one.folder))))));
    }
    section(main, "Runs", node => node.append(element("div", {class: "tools"}, filter, element("label", {}, withOptions, "Options that differ"), beside, info), wrong, holder));
    const choose = run => {
      const box = element("input", {type: "checkbox", "aria-label": "Choose " + run.name, on: {change: () => {
        if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
        remember("chosen", [...chosen]);
        tell();
      }}});
      box.checked = chosen.has(run.id);
      return box;
    };
    const plain = (name, key, isNumber = true) => ({name, number: isNumber, value: run => value(run, key), cell: run => shown(key, value(run, key))});
    function columns() {
      const made = [
        {name: "Chosen", value: run => chosen.has(run.id) ? 0 : 1, cell: choose},
        {name: "Run", value: run => run.folder, cell: run => [element("a", {href: "#/run/" + run.id}, run.name || "run"), element("div", {class: "quiet small"}, run.folder), run.damage ? element("div", {class: "small", title: run.damage}, "The log cannot be read in full") : null]},
        {name: "State", value: run => run.status, cell: run => badge(run.status)},
        {name: "Progress", number: true, value: run => run.iterations ? (run.iteration || 0) / run.iterations : null,
          cell: run => run.iterations ? `${percent((run.iteration || 0) / run.iterations, 0)} of ${count(run.iterations)}` : count(run.iteration)},
        plain("Loss", "loss"), plain("Validation loss", "validation_loss"), plain("Best accuracy", "best_accuracy"), plain("Best loss", "best_loss"),
        {name: "Duration", number: true, value: run => run.elapsed, cell: run => duration(run.elapsed)},
        {name: "Recorded", value: run => run.time, cell: run => String(run.time || "–").replace("T", " ").replace("Z", "")},
        {name: "Tags and note", value: run => (run.tags || []).join(" ") + " " + (run.note || ""), cell: run => notes(run)}];
      if (state.options) {
        const names = new Map();
        for (const run of runs.values()) for (const [key, v] of Object.entries(run.options || {})) names.set(key, (names.get(key) || new Set()).add(v));
        for (const [key, values] of [...names].sort()) {
          const everywhere = [...runs.values()].every(run => key in (run.options || {}));
          if (values.size > 1 || !everywhere) made.push({name: key, value: run => run.options?.[key] ?? null});
        }
      }
      return made;
    }
    function notes(run) {
      return [(run.tags || []).map(tag => [element("span", {class: "state"}, tag), " "]), run.note || "", " ",
        element("button", {type: "button", class: "small", "aria-label": "Edit tags and note of " + run.name, on: {click: () => edit(run)}}, "Edit")];
    }
    async function edit(run) {
      const tags = prompt("Tags, separated by blanks", (run.tags || []).join(" "));
      if (tags === null) return;
      const note = prompt("Note", run.note || "");
      if (note === null) return;
      try {
        await send("/api/notes?id=" + run.id, {tags: tags.split(/\s+/).filter(Boolean), note});
        takeRuns(await load("/api/runs"));
        draw();
      } catch (error) { say(error.message); }
    }
    function tell(found) {
      if (found !== undefined) info.textContent = `${count(found)} of ${count(runs.size)} runs`;
      beside.disabled = chosen.size < 1;
      beside.textContent = `Side by side (${chosen.size})`;
    }
    let table = null;
    function draw(anew) {
      const rows = [...runs.values()].filter(run => !fitting || fitting.has(run.id));
      if (!table || anew) {
        table = Lockstep.sortedTable(columns(), rows, {caption: "Runs", by: state.by, down: state.down, most: 500,
          sorted: (by, down) => { state.by = by; state.down = down; remember("table", state); }, rowClass: run => chosen.has(run.id) ? "chosen" : null});
        clear(holder).append(table.table);
      } else {
        table.set(rows);
      }
      tell(rows.length);
    }
    ask(0);
    let due = false;
    const watched = {};
    view = {watched, runs() {
      if (due) return;
      due = true;
      const filtered = !!state.filter.trim();
      setTimeout(() => {
        due = false;
        if (view?.watched !== watched || holder.contains(document.activeElement)) return;
        if (filtered) ask(0); else draw();
      }, filtered ? 2000 : 400);
    }};
    listen(watched);
  }

  async function run(id) {
    const data = await load("/api/run?id=" + id), log = new Log().add(data.log), name = String(data.name || "run");
    const head = element("div"), bar = element("div"), progress = element("div", {class: "progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100}, bar);
    const stop = element("button", {type: "button", class: "stop", on: {click: async () => {
      stop.disabled = true;
      stop.textContent = "Stop is requested";
      try { await send("/api/stop?id=" + id); } catch (error) { say(error.message); stop.disabled = false; stop.textContent = "Stop"; }
    }}, title: "Ends the training after an iteration and leaves the current network"}, "Stop");
    const began = performance.now(), elapsedThen = log.elapsed;
    section(main, name, node => node.append(element("div", {class: "tools"}, element("span", {class: "quiet small"}, data.folder), element("span", {class: "space"}),
      element("a", {href: "/report?id=" + id, target: "_blank", rel: "noopener"}, "Report"), stop), head, progress));
    const live = element("div"), workerBox = element("div"), events = element("pre", {class: "log", tabindex: "0"});
    main.append(live);
    let ended = data.state.status !== "running", pieces = null;
    function fill() {
      const now = runs.get(id) || {}, status = now.status || data.state.status, total = data.start?.iterations || now.iterations;
      const running = status === "running", share = total ? log.last / total : NaN;
      const speed = log.recentIterations && running ? log.recentIterations : log.iterations / log.seconds;
      const elapsed = running ? Math.max(log.elapsed, elapsedThen + (performance.now() - began) / 1000) : log.elapsed;
      clear(head).append(facts([
        ["State", badge(status), true], ["Elapsed", duration(elapsed)], running ? ["Time left", total && speed > 0 ? duration((total - log.last) / speed) : "–"] : ["", null],
        ["Epoch", log.epochs.length ? count(log.epochs.at(-1)[1]) + (data.start?.iterations_per_epoch ? " of " + count(Math.ceil(total / data.start.iterations_per_epoch)) : "") : "–"],
        ["Iteration", count(log.last) + (total ? " of " + count(total) : "")], ["Learning rate", number(log.rate.at(-1)?.[1])],
        ["Loss", number(log.loss.at(-1))], log.classifies() ? ["Validation accuracy", percent(log.validations.at(-1)?.validation_accuracy)] : ["Validation loss", number(log.validations.at(-1)?.validation_loss)],
        ["Images per second", count(log.recent ?? log.images / log.seconds)],
        machine && running ? ["Processors", finite(machine.busy) ? percent(machine.busy, 0) + " busy" : "–"] : ["", null],
        machine && running ? ["Memory", percent(machine.memory, 0)] : ["", null],
        ...(machine && running ? gpus() : []).map((gpu, i) => [`GPU ${i}, ${gpu.name}`, gpuUse(gpu)])]));
      for (const text of [now.reason, now.damage, machine && running ? silentGpus() : null]) if (text) head.append(element("p", {class: "message"}, text));
      bar.style.width = finite(share) ? (100 * share).toFixed(1) + "%" : "0";
      progress.setAttribute("aria-valuenow", finite(share) ? Math.round(100 * share) : 0);
      stop.hidden = !running;
      events.textContent = log.events.map(Lockstep.eventText).join("\n") || "There are no events.";
      clear(workerBox);
      Lockstep.workers(workerBox, log, data.start, running);
      if (!running && !ended) { ended = true; setTimeout(() => { if (view?.watched === watched) show(); }, 1200); }  // confusion and predictions come at the end
    }
    if (ended) {
      pieces = Lockstep.parts(live, data, log, name);
    } else {
      section(live, "Curves", node => { pieces = Lockstep.curves(node, log, name); }, {id: "curves"});
      section(live, "Log", node => node.append(events));
    }
    section(live, "Workers", node => node.append(workerBox, stepTimes(log)));
    if (!ended && data.network) section(live, "Network", node => node.append(element("p", {class: "quiet"}, data.network.totals)));
    fill();
    let due = false;
    const watched = {[id]: log};
    view = {watched, page: pieces, logOf: log, runs: fill, machine: fill, log() {
      if (due) return;
      due = true;
      setTimeout(() => { due = false; if (view?.watched !== watched) return; pieces?.update(); fill(); }, 300);
    }, remove: () => pieces?.remove?.()};
    listen(watched);
  }
  function stepTimes(log) {
    return element("p", {class: "quiet small"}, log.iterations ? `An iteration takes ${number(1000 * log.seconds / log.iterations, 3)} ms, the mean of all.` : "");
  }

  async function compare(ids) {
    const logs = {}, chosen = ids.slice(0, 16), all = await Promise.all(chosen.map(id => load("/api/log?id=" + id)));
    chosen.forEach((id, i) => { logs[id] = new Log().add(all[i]); });
    const names = chosen.map(id => runs.get(id)?.folder.split("/").slice(-1)[0] || id);
    let weight = remembered("smoothing", .9);
    const charts = [];
    section(main, "Runs side by side", node => {
      node.append(element("div", {class: "tools"}, smoothingSlider(weight, v => { weight = v; remember("smoothing", v); update(); })));
      for (const [title, key, part, share] of [["Training loss", "loss", "training", false], ["Validation loss", "validation_loss", "validation", false],
        ["Training accuracy", "accuracy", "training", true], ["Validation accuracy", "validation_accuracy", "validation", true]]) {
        if (share && !Object.values(logs).some(log => log.classifies())) continue;
        const holder = element("div");
        node.append(element("h3", {}, title), holder);
        charts.push({key, part, chart: new CurveChart(holder, {title, share, file: "runs-" + key})});
      }
    });
    section(main, "What differs", node => {
      const keys = new Set(chosen.flatMap(id => Object.keys(runs.get(id)?.options || {})));
      const rows = [...keys].sort().map(key => [key, chosen.map(id => runs.get(id)?.options?.[key] ?? "default")]).filter(([, values]) => new Set(values).size > 1);
      const results = ["status", "iteration", "validation_loss", "validation_accuracy", "best_loss", "best_accuracy"].map(key => [key, chosen.map(id => shown(key, runs.get(id)?.[key]))]);
      node.append(element("div", {class: "scroll"}, element("table", {class: "wide"}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}, ""), names.map(name => element("th", {scope: "col"}, name)))),
        element("tbody", {}, [...rows, ...results].map(([key, values]) => element("tr", {}, element("th", {scope: "row"}, key), values.map(v => element("td", {}, v))))))));
    });
    function update() {
      for (const {key, part, chart} of charts) {
        chart.set(chosen.map((id, i) => ({name: names[i], colour: i, wide: false, dots: false, ...(part === "training" ? {x: logs[id].x, y: smooth(logs[id][key], weight)} : logs[id].validation(key))})), []);
      }
    }
    update();
    let due = false;
    view = {watched: logs, charts: charts.map(one => one.chart), log() { if (due) return; due = true; setTimeout(() => { due = false; if (view?.watched === logs) update(); }, 500); },
      remove: () => charts.forEach(({chart}) => chart.remove())};
    listen(logs);
  }

  async function sweep(id) {
    let data = await load("/api/sweep?id=" + id), made = null;
    const holder = element("div");
    const openRun = trial => { const run = [...runs.values()].find(one => one.folder === trial.folder); if (run) location.hash = "#/run/" + run.id; else say(`Trial ${trial.trial} has no run yet.`); };
    main.append(element("div", {class: "tools", style: {marginTop: "12px"}}, element("h1", {style: {fontSize: "18px", margin: 0}}, String(data.name)), element("span", {class: "quiet small"}, data.folder),
      element("span", {class: "space"}), element("a", {href: "/report?id=" + id, target: "_blank", rel: "noopener"}, "Report")), holder);
    const stopTrial = async (trial, button) => {
      button.disabled = true;
      button.textContent = "Stop is requested";
      try { await send(`/api/stop-trial?id=${id}&trial=${trial.trial}`); } catch (error) { say(error.message); button.disabled = false; button.textContent = "Stop"; }
    };
    const draw = () => { made?.remove(); clear(holder); made = Lockstep.sweepParts(holder, data, openRun, stopTrial); };
    draw();
    const watched = {};
    let due = false, seen = JSON.stringify(data.trials);
    view = {watched, sweep: () => made, remove: () => made?.remove(), runs() {
      if (due) return;
      due = true;
      setTimeout(async () => {
        due = false;
        if (view?.watched !== watched || made.inside() < data.trials.length) return;  // a brush stays as it is
        const next = await load("/api/sweep?id=" + id).catch(() => null);
        if (next && view?.watched === watched && JSON.stringify(next.trials) !== seen) { data = next; seen = JSON.stringify(next.trials); draw(); }
      }, 2000);
    }};
    listen(watched);
  }

  let turn = 0;
  async function show() {
    const mine = ++turn;
    stream?.close();
    view?.remove?.();
    view = null;
    Lockstep.hideTip();
    const [, kind, ids] = location.hash.split("/");
    clear(main);
    try {
      takeRuns(await load("/api/runs"));
      if (mine !== turn) return;
      if (kind === "run") await run(ids);
      else if (kind === "sweep") await sweep(ids);
      else if (kind === "compare") await compare(ids.split(","));
      else list();
    } catch (error) {
      main.append(element("p", {class: "message", role: "alert"}, error.message), element("p", {}, element("a", {href: "#/"}, "All runs")));
    }
    Lockstep.view = view;
  }
  document.body.append(element("header", {class: "top"}, element("div", {}, element("h1", {}, "Lockstep"), element("nav", {}, element("a", {href: "#/"}, "Runs")),
    element("span", {class: "space"}), use, Lockstep.themeButton())), main);
  addEventListener("hashchange", show);
  show();
})();
