// The parts of a run's page, in a report and in the dashboard. `data` is what run_data() in run_page.h describes.
"use strict";
(() => {
  const {element, clear, finite, count, number, percent, duration, facts, section, breakable, isShare, CurveGroup, Log} = Lockstep;

  const badge = state => element("span", {class: "state " + String(state).replace(/\W/g, "")}, String(state));

  // A chart for each metric over iterations, epochs or time, and the learning rate. Returns {update()}.
  function curves(host, log, file, choices = {}) {
    const charts = new Map(), group = new CurveGroup(host, () => update(), choices), parts = element("div", {class: "curves"});
    const make = (key, title, share) => {
      const part = element("div", {}, element("h3", {}, title));
      const chart = group.chart(part, {title, share, file: file + "-" + key});
      charts.set(key, {part, chart});
      if (charts.has("rate") && key !== "rate") parts.insertBefore(part, charts.get("rate").part); else parts.append(part);
    };
    host.append(parts);
    const titles = {loss: "Loss", accuracy: "Accuracy"};
    function update() {
      // The first lines of a run that goes on tell whether it classifies, and its metrics.
      for (const metric of log.metrics()) if (!charts.has(metric)) make(metric, titles[metric] || metric, isShare(metric));
      if (!charts.has("rate")) make("rate", "Learning rate", false);
      for (const [key, {chart}] of charts) {
        if (key === "rate") continue;
        const training = log[key] && (key === "loss" || key === "accuracy") ? log[key] : null, smoothed = group.choices.smoothing > 0;
        group.set(chart, [training && {name: "training, each iteration", color: 0, raw: smoothed, log, x: log.x, y: training},
          training && smoothed && {name: "training", color: 0, log, smooth: true, x: log.x, y: training},
          {name: "validation", color: 1, sparse: true, dots: log.validations.length < 200, log, ...log.validation(key)}].filter(Boolean), log.epochs);
      }
      const steps = {x: [], y: []};
      log.rate.forEach(([x, y], i) => { if (i > 0) { steps.x.push(x - .001); steps.y.push(log.rate[i - 1][1]); } steps.x.push(x); steps.y.push(y); });
      if (log.rate.length && log.last > steps.x.at(-1)) { steps.x.push(log.last); steps.y.push(log.rate.at(-1)[1]); }
      group.set(charts.get("rate").chart, [{name: "learning rate", color: 2, log, ...steps}], log.epochs);
    }
    update();
    return {update, group, get charts() { return group.charts; }, remove: () => group.remove()};
  }

  function options(host, tables) {
    const set = element("input", {type: "checkbox", on: {change: draw}}), holder = element("div", {class: "scroll"});
    host.append(element("div", {class: "tools"}, element("label", {}, set, "Only what was set")), holder);
    set.checked = tables.some(table => table.fields.some(field => field.set));
    function draw() {
      clear(holder).append(element("table", {class: "wide"}, element("thead", {}, element("tr", {}, ["Option", "Value", "Default"].map(name => element("th", {scope: "col"}, name)))),
        element("tbody", {}, tables.flatMap(table => table.fields.filter(f => f.set || !set.checked).map(field =>
          element("tr", {class: field.set && !set.checked ? "differs" : null}, element("td", {title: field.help}, breakable(table.name + "." + field.name)),
            element("td", {}, breakable(field.value), field.set ? element("span", {class: "hidden"}, " (set)") : null),
            element("td", {class: "quiet"}, breakable(field.default))))))));
    }
    draw();
  }

  function network(host, data, file) {
    const {layers, totals} = data;
    host.append(element("p", {class: "quiet"}, totals + (data.loss ? "; loss " + data.loss : "")), element("div", {class: "columns", style: {marginTop: 0}},
      element("div", {class: "scroll", tabindex: "0", "aria-label": "Layers"}, element("table", {class: "wide small"}, element("thead", {}, element("tr", {},
        ["Layer", "Type", "Options", "Inputs", "Output", "Parameters", "State"].map((name, i) => element("th", {scope: "col", class: i > 4 ? "number" : null}, name)))),
      element("tbody", {}, layers.map(layer => element("tr", {}, element("td", {}, breakable(layer.name)), element("td", {}, breakable(layer.type)), element("td", {class: "options"}, layer.options || ""), element("td", {}, breakable((layer.inputs || []).join(", "))),
        element("td", {}, layer.size), element("td", {class: "number"}, layer.parameters), element("td", {class: "number"}, layer.state)))))), drawn()));
    function drawn() { const part = element("div"); Lockstep.layerGraph(part, layers, file + "-network"); return part; }
  }

  const png = (base64, label) => /^[A-Za-z0-9+/=]+$/.test(base64 || "") ? element("img", {src: "data:image/png;base64," + base64, alt: label})
    : element("span", {class: "quiet"}, "(no picture)");

  function predictions(host, part, data, file) {
    if (data.kind === "classes") {
      section(host, `Worst-classified images (${part})`, node => {
        node.append(element("p", {class: "quiet"}, `${count(data.wrong)} of ${count(data.observations)} are wrong. The lowest score of the true class comes first.`),
          element("div", {class: "pictures"}, data.worst.map(one => element("figure", {}, png(one.image, one.name),
            element("figcaption", {}, element("span", {class: "wrong"}, `${one.predicted} ${percent(one.score, 1)}`), element("br"),
              element("span", {class: "right"}, `${one.true} ${percent(one.true_score, 1)}`), element("br"), element("span", {class: "quiet"}, one.name))))),
          element("p", {class: "small quiet"}, "First line: prediction and its score; second line: true class and its score."));
      });
    } else if (data.kind === "images") {
      section(host, `Input, target and output (${part})`, node => node.append(element("div", {class: "scroll"}, element("table", {class: "triples"},
        element("thead", {}, element("tr", {}, ["Input", "Target", "Output", "Name"].map(name => element("th", {scope: "col"}, name)))),
        element("tbody", {}, data.triples.map(one => element("tr", {}, element("td", {}, png(one.input, "input " + one.name)), element("td", {}, png(one.target, "target " + one.name)),
          element("td", {}, png(one.output, "output " + one.name)), element("td", {class: "quiet small"}, one.name))))))));
    } else if (data.pairs?.length) {
      section(host, `Predicted against true (${part})`, node => {
        const error = data.pairs.reduce((sum, [, t, p]) => sum + (p - t) ** 2, 0) / data.pairs.length;
        node.append(element("p", {class: "quiet"}, `Root mean squared error of these ${count(data.pairs.length)} values: ${number(Math.sqrt(error))}`));
        Lockstep.pointChart(node, data.pairs.map(([k, t, p]) => ({x: t, y: p, color: k, text: `true ${number(t)}, predicted ${number(p)}`})),
          {x: "true value", y: "predicted value", diagonal: true, file: `${file}-${part}-predicted`});
      });
    }
  }

  function profile(host, data, file) {
    const scale = 1000 / Math.max(1, data.iterations) / data.threads, accounts = data.accounts.map(a => ({...a, ms: a.seconds * scale}));
    const layer = name => name.replace(/: .*$/, ""), sums = new Map();
    for (const a of accounts) {
      const key = a.phase === "step" ? a.name : layer(a.name);
      const sum = sums.get(key) || {name: key, value: 0, kind: a.phase === "step" ? "step" : "layer"};
      sum.value += a.ms;
      sums.set(key, sum);
    }
    const rows = [...sums.values()].sort((a, b) => b.value - a.value).slice(0, 24), whole = accounts.reduce((sum, a) => sum + a.ms, 0);
    host.append(element("p", {class: "quiet"}, `Milliseconds of an iteration, forward and backward: ${number(whole)} ms in all, mean of ${count(data.iterations)} iterations with ${count(data.threads)} threads.`));
    Lockstep.bars(host, rows.map(row => ({...row, text: `${row.value.toFixed(3)} ms, ${percent(row.value / whole, 1)}`})), file + "-profile", "Time by layer");
  }

  const eventText = e => e.event === "notice" ? e.text : e.event === "worker joined" ? `worker ${e.worker} joined after iteration ${count(e.iteration)}: ${e.members} compute`
    : e.event === "worker left" ? `worker ${e.worker} left after iteration ${count(e.iteration)}: ${e.members} compute` : e.event === "worker lost" ? `worker ${e.worker} ${e.how} after iteration ${count(e.iteration)}: ${e.members} compute${finite(e.seconds) ? `, continued after ${Math.round(1000 * e.seconds)} ms` : ""}`
      : e.event ? `${e.event}${finite(e.iteration) ? " after iteration " + count(e.iteration) : ""}` : JSON.stringify(e);

  function workers(host, log, start, running) {
    const states = new Map(), times = new Map((log.workers || []).map(one => [one.worker, one]));
    for (const e of log.events) {
      if (!["worker joined", "worker left", "worker lost"].includes(e.event)) continue;
      const one = states.get(e.worker) || {worker: e.worker, host: e.host || "this machine", pid: e.pid, joined: null, lost: null, how: ""};
      if (e.event === "worker joined") one.joined = e.iteration; else { one.lost = e.iteration; one.how = e.event === "worker left" ? "left" : "lost: " + e.how; }
      states.set(e.worker, one);
    }
    if (start?.workers > 0) host.append(element("p", {class: "quiet"}, `${count(start.workers)} workers were asked for.`));
    if (states.size === 0) { host.append(element("p", {class: "quiet"}, "This process computes alone, or no worker was lost or joined.")); return; }
    host.append(element("div", {class: "scroll"}, Lockstep.sortedTable([{name: "Worker", number: true, value: w => w.worker}, {name: "Process", number: true, value: w => w.pid}, {name: "Host", value: w => w.host},
      {name: "State", value: w => w.lost !== null ? w.how : running ? "computes" : "ended"}, {name: "Joined after", number: true, value: w => w.joined ?? 0}, {name: "Gone after", number: true, value: w => w.lost},
      {name: "Shards", number: true, value: w => times.get(w.worker)?.shards ?? null}, {name: "A shard takes, ms", number: true, value: w => times.get(w.worker)?.shard_ms ?? null, cell: w => number(times.get(w.worker)?.shard_ms, 3)},
      {name: "An iteration takes, ms", number: true, value: w => times.get(w.worker)?.iteration_ms ?? null, cell: w => number(times.get(w.worker)?.iteration_ms, 3)}],
    [...states.values()], {caption: "Workers"}).table));
  }

  function headline(data, log) {
    const test = data.confusion?.test, right = test ? Lockstep.classScores(test).reduce((sum, s) => [sum[0] + s.right, sum[1] + s.observed], [0, 0]) : [0, 0];
    const best = log.classifies() ? "accuracy" : "loss";
    return facts([
      ["State", badge(data.state?.status || "–"), true], ["Iterations", count(log.last) + (data.start ? " of " + count(data.start.iterations) : "")],
      ["Epoch", log.epochs.length ? count(log.epochs.at(-1)[1]) : "–"],
      [`Best validation ${best}`, (isShare(best) ? percent : number)(log.best(best)?.value)],
      right[1] > 0 ? ["Test accuracy", percent(right[0] / right[1])] : ["", null],
      ["Images per second", log.seconds > 0 ? count(log.images / log.seconds) : "–"], ["Duration", duration(log.elapsed)],
      data.start ? ["Device", `${data.start.device}, ${count(data.start.threads)} threads` + (data.start.workers ? ` in each of ${count(data.start.workers)} workers` : ""), true] : ["", null],
      ["Digest", data.digest || null, true]]);
  }

  // Everything of a finished run below its headline. Returns what updates the curves.
  function parts(host, data, log, file, choices) {
    let updates = null;
    section(host, "Curves", node => { updates = curves(node, log, file, choices); }, {id: "curves"});
    for (const [part, confusion] of Object.entries(data.confusion || {})) {
      const pair = element("div", {class: "columns"});
      host.append(pair);
      section(pair, `Confusion (${part})`, node => Lockstep.confusionChart(node, confusion, `${file}-${part}-confusion`));
      section(pair, `Classes (${part})`, node => Lockstep.classTable(node, confusion));
    }
    for (const [part, found] of Object.entries(data.predictions || {})) predictions(host, part, found, file);
    if (data.profile) section(host, "Time by layer", node => profile(node, data.profile, file));
    if (data.network) section(host, "Network", node => network(node, data.network, file));
    if (data.options) section(host, "Options", node => options(node, data.options));
    if (log.events.length) section(host, "Log", node => node.append(element("pre", {class: "log", tabindex: "0"}, log.events.map(eventText).join("\n"))));
    return updates;
  }

  function report(data) {
    const name = String(data.name || "run"), log = new Log(data.start?.iterations_per_epoch).add(data.log), main = element("main");
    document.title = `${name} – Lockstep report`;
    document.body.append(element("header", {class: "top"}, element("div", {}, element("h1", {}, breakable(name)), element("span", {class: "quiet small"}, breakable(data.folder)), element("span", {class: "space"}), Lockstep.themeButton())), main);
    section(main, "Run", node => {
      node.append(headline(data, log), Lockstep.scoreTable(log, data.scores));
      if (data.state?.reason) node.append(element("p", {class: "message"}, data.state.reason));
      for (const note of data.notes || []) node.append(element("p", {class: "quiet small"}, note));
    });
    return parts(main, data, log, name);
  }

  Object.assign(Lockstep, {report, badge, curves, parts, headline, eventText, workers});
})();
