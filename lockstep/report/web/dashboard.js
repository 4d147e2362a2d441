// The dashboard: a table of runs, one run live, runs side by side.
"use strict";
(() => {
  const {element, clear, finite, count, number, percent, duration, section, facts, breakable, isShare, CurveGroup, Log, badge, remember, remembered, valueText} = Lockstep;
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

  function list() {
    if (sweeps.length) {
      section(main, "Sweeps", node => node.append(element("ul", {style: {margin: 0}}, sweeps.map(one => element("li", {}, element("a", {href: "#/sweep/" + one.id}, breakable(one.folder)))))));
    }
    const table = Lockstep.runTable(main, runs, {load, annotate: async (run, notes) => {
      await send("/api/notes?id=" + run.id, notes);
      takeRuns(await load("/api/runs"));
    }});
    let due = false;
    const watched = {};
    view = {watched, runs() {
      if (due) return;
      due = true;
      setTimeout(() => { due = false; if (view?.watched === watched) table.update(); }, table.filtered ? 2000 : 400);
    }};
    listen(watched);
  }

  // Choices about curves, kept for other runs.
  const curveChoices = () => ({of: remembered("curves", {}), changed: choices => remember("curves", choices)});

  async function run(id) {
    const data = await load("/api/run?id=" + id), log = new Log(data.start?.iterations_per_epoch).add(data.log), name = String(data.name || "run");
    const head = element("div"), bar = element("div"), progress = element("div", {class: "progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100}, bar);
    const stop = element("button", {type: "button", class: "stop", on: {click: async () => {
      stop.disabled = true;
      stop.textContent = "Stop is requested";
      try { await send("/api/stop?id=" + id); } catch (error) { say(error.message); stop.disabled = false; stop.textContent = "Stop"; }
    }}, title: "Ends the training after an iteration and leaves the current network"}, "Stop");
    const began = performance.now(), elapsedThen = log.elapsed;
    section(main, name, node => node.append(element("div", {class: "tools"}, element("span", {class: "quiet small"}, breakable(data.folder)), element("span", {class: "space"}),
      element("a", {href: "/report?id=" + id, target: "_blank", rel: "noopener"}, "Report"), stop), head, progress));
    const live = element("div"), workerBox = element("div"), events = element("pre", {class: "log", tabindex: "0"});
    main.append(live);
    let ended = data.state.status !== "running", charts = null;
    function fill() {
      const now = runs.get(id) || {}, status = now.status || data.state.status, total = data.start?.iterations || now.iterations;
      const running = status === "running", share = total ? log.last / total : NaN;
      const speed = log.recentIterations && running ? log.recentIterations : log.iterations / log.seconds;
      const elapsed = running ? Math.max(log.elapsed, elapsedThen + (performance.now() - began) / 1000) : log.elapsed;
      clear(head).append(facts([
        ["State", badge(status), true], ["Elapsed", duration(elapsed)], running ? ["Time left", total && speed > 0 ? duration((total - log.last) / speed) : "–"] : ["", null],
        ["Epoch", log.epochs.length ? count(log.epochs.at(-1)[1]) + (data.start?.iterations_per_epoch ? " of " + count(Math.ceil(total / data.start.iterations_per_epoch)) : "") : "–"],
        ["Iteration", count(log.last) + (total ? " of " + count(total) : "")], ["Learning rate", number(log.rate.at(-1)?.[1])],
        ["Loss", number(log.loss.at(-1))], log.classifies() ? ["Validation accuracy", percent(log.newest("accuracy")?.value)] : ["Validation loss", number(log.newest("loss")?.value)],
        ["Images per second", count(log.recent ?? log.images / log.seconds)],
        machine && running ? ["Processors", finite(machine.busy) ? percent(machine.busy, 0) + " busy" : "–"] : ["", null],
        machine && running ? ["Memory", percent(machine.memory, 0)] : ["", null],
        ...(machine && running ? gpus() : []).map((gpu, i) => [`GPU ${i}, ${gpu.name}`, gpuUse(gpu)])]));
      if (log.validations.length) head.append(Lockstep.scoreTable(log, now.scores ?? data.scores));
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
      charts = Lockstep.parts(live, data, log, name, curveChoices());
    } else {
      section(live, "Curves", node => { charts = Lockstep.curves(node, log, name, curveChoices()); }, {id: "curves"});
      section(live, "Log", node => node.append(events));
    }
    section(live, "Workers", node => node.append(workerBox, stepTimes(log)));
    if (!ended && data.network) section(live, "Network", node => node.append(element("p", {class: "quiet"}, data.network.totals)));
    fill();
    let due = false;
    const watched = {[id]: log};
    view = {watched, page: charts, logOf: log, runs: fill, machine: fill, log() {
      if (due) return;
      due = true;
      setTimeout(() => { due = false; if (view?.watched !== watched) return; charts?.update(); fill(); }, 300);
    }, remove: () => charts?.remove?.()};
    listen(watched);
  }
  function stepTimes(log) {
    return element("p", {class: "quiet small"}, log.iterations ? `An iteration takes ${number(1000 * log.seconds / log.iterations, 3)} ms, the mean of all.` : "");
  }

  // The shortest ends of the folders that tell runs apart.
  function shortNames(folders) {
    const parts = folders.map(folder => folder.split("/"));
    return parts.map((one, i) => {
      for (let n = 1; n < one.length; ++n) {
        const end = one.slice(-n).join("/");
        if (parts.every((other, k) => k === i || other.slice(-n).join("/") !== end)) return end;
      }
      return folders[i];
    });
  }

  async function compare(ids) {
    const logs = {}, chosen = ids.filter(id => runs.has(id)).slice(0, 16), all = await Promise.all(chosen.map(id => load("/api/log?id=" + id)));
    chosen.forEach((id, i) => { logs[id] = new Log(runs.get(id).iterations_per_epoch).add(all[i]); });
    const names = shortNames(chosen.map(id => runs.get(id).folder));
    // Without ids, the server compares all runs.
    const differing = chosen.length ? await load("/api/differences?ids=" + chosen.join(",")) : {names: [], set: [], values: {}, left_out: 0};
    const charts = new Map();
    let group = null, parts = null;
    section(main, "Runs side by side", node => {
      const one = (text, values, set) => element("tr", {class: set ? "differs" : null}, element("th", {scope: "row"}, breakable(text)), values.map(v => element("td", {}, v ?? "–")));
      const some = chosen.map(id => runs.get(id)), row = (title, metric, of) => one(title, some.map(run => valueText(metric, of(run))));
      if (ids.length > chosen.length) node.append(element("p", {class: "message"}, `${count(chosen.length)} of ${count(ids.length)} runs are shown: at most 16, and those that are still there.`));
      if (!chosen.length) { if (!ids.length) node.append(element("p", {class: "message"}, "No runs are chosen.")); return; }
      node.append(element("p", {class: "quiet small"}, differing.names.length ? "In what they differ, then their results. Marked: what a job file or a setting names." : "The runs have the same variables, options and network."),
        element("div", {class: "scroll"}, element("table", {class: "wide compared"}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}, ""),
          chosen.map((id, i) => element("th", {scope: "col", class: "name"}, element("i", {class: i >= 8 ? "swatch dashed" : "swatch", style: {color: `var(--c${i % 8})`}}), element("a", {href: "#/run/" + id}, breakable(names[i])))))),
        element("tbody", {}, differing.names.map((name, k) => one(name, chosen.map(id => differing.values[id]?.[k] ?? null), differing.set[k])),
          one("state", some.map(run => badge(run.status))), row("iteration", "", run => run.iteration), row("validation.loss", "loss", run => run.validation_loss), row("validation.loss.best", "loss", run => run.best_loss),
          some.some(run => finite(run.best_accuracy)) ? [row("validation.accuracy", "accuracy", run => run.validation_accuracy), row("validation.accuracy.best", "accuracy", run => run.best_accuracy)] : [],
          Lockstep.metricsOf(some).map(name => [row("validation." + name, name, run => run.metrics?.[name]), row(`validation.${name}.best`, name, run => run.best?.[name])]),
          Lockstep.testsOf(some).map(name => row(name, name, run => run.scores?.[name]))))));
      if (differing.left_out) node.append(element("p", {class: "quiet small"}, `They differ in ${count(differing.left_out)} further options.`));
    });
    section(main, "Curves", node => {
      group = new CurveGroup(node, () => update(), curveChoices());
      parts = element("div", {class: "curves"});
      node.append(parts);
    });
    const make = (key, title, part, metric) => {
      const box = element("div", {}, element("h3", {}, title));
      charts.set(key, {part, metric, chart: group.chart(box, {title, share: isShare(metric), file: "runs-" + key})});
      parts.append(box);
    };
    function update() {
      const metrics = new Set(Object.values(logs).flatMap(log => log.metrics()));
      for (const metric of metrics) {
        if (metric === "loss" || metric === "accuracy") if (!charts.has("training-" + metric)) make("training-" + metric, "Training " + metric, "training", metric);
        if (!charts.has(metric)) make(metric, "Validation " + metric, "validation", metric);
      }
      for (const {part, metric, chart} of charts.values()) {
        group.set(chart, chosen.map((id, i) => ({name: names[i], color: i, dash: i >= 8, log: logs[id],
          ...(part === "training" ? {smooth: true, x: logs[id].x, y: logs[id][metric]} : {sparse: true, dots: false, ...logs[id].validation(metric)})})));
      }
    }
    update();
    let due = false;
    view = {watched: logs, group, get charts() { return group.charts; }, log() { if (due) return; due = true; setTimeout(() => { due = false; if (view?.watched === logs) update(); }, 500); },
      remove: () => group.remove()};
    listen(logs);
  }

  async function sweep(id) {
    let data = await load("/api/sweep?id=" + id), made = null;
    const holder = element("div");
    const openRun = trial => { const run = [...runs.values()].find(one => one.folder === trial.folder); if (run) location.hash = "#/run/" + run.id; else say(`Trial ${trial.trial} has no run yet.`); };
    main.append(element("div", {class: "tools", style: {marginTop: "12px"}}, element("h1", {style: {fontSize: "18px", margin: 0}}, breakable(data.name)), element("span", {class: "quiet small"}, breakable(data.folder)),
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
    for (const node of [main, top]) node.classList.toggle("broad", !["run", "sweep", "compare"].includes(kind));  // the table has many columns
    try {
      takeRuns(await load("/api/runs"));
      if (mine !== turn) return;
      if (kind === "run") await run(ids);
      else if (kind === "sweep") await sweep(ids);
      else if (kind === "compare") await compare((ids || "").split(",").filter(Boolean));
      else list();
    } catch (error) {
      main.append(element("p", {class: "message", role: "alert"}, error.message), element("p", {}, element("a", {href: "#/"}, "All runs")));
    }
    Lockstep.view = view;
  }
  const top = element("header", {class: "top"}, element("div", {}, element("h1", {}, "Lockstep"), element("nav", {}, element("a", {href: "#/"}, "Runs")),
    element("span", {class: "space"}), use, Lockstep.themeButton()));
  document.body.append(top, main);
  addEventListener("hashchange", show);
  show();
})();
