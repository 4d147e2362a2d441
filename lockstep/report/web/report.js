// The parts of a run's page, in a report and in the dashboard. `data` is what run_data() in run_page.h describes.
"use strict";
(() => {
  const {element, clear, finite, count, number, percent, duration, facts, section, CurveChart, smooth, smoothingSlider} = Lockstep;

  // The columns of a log, with room to grow.
  class Log {
    constructor() { this.x = []; this.loss = []; this.accuracy = []; this.rate = []; this.epochs = []; this.validations = []; this.events = []; this.elapsed = 0; this.seconds = 0; this.images = 0; this.iterations = 0; this.last = 0; this.position = 0; this.mark = ""; }
    add(piece) {
      const x = Array.isArray(piece.x) ? piece.x : piece.loss.map((_, i) => piece.x + i);
      for (let i = 0; i < x.length; ++i) {
        this.x.push(x[i]);
        this.loss.push(piece.loss[i]);
        this.accuracy.push(piece.accuracy.length ? piece.accuracy[i] : null);
      }
      for (const key of ["rate", "epochs", "validations", "events"]) for (const one of piece[key]) {
        // A stream that begins later tells the present rate and epoch again.
        if ((key === "rate" || key === "epochs") && this[key].at(-1)?.[1] === one[1]) continue;
        this[key].push(one);
      }
      this.elapsed = piece.elapsed ?? this.elapsed;
      this.seconds += piece.seconds; this.images += piece.images; this.iterations += piece.iterations;
      this.recent = piece.seconds > 0 ? piece.images / piece.seconds : this.recent;
      this.recentIterations = piece.seconds > 0 ? piece.iterations / piece.seconds : this.recentIterations;
      this.last = piece.last || this.last;
      this.workers = piece.workers ?? this.workers;
      this.position = piece.position;
      this.mark = piece.mark || "";
      return this;
    }
    classifies() { return this.accuracy.some(finite) || this.validations.some(v => finite(v.validation_accuracy)); }
    best(key) { const values = this.validations.map(v => v[key]).filter(finite); return values.length ? (/loss/.test(key) ? Math.min : Math.max)(...values) : NaN; }
    validation(key) { return {x: this.validations.filter(v => finite(v[key])).map(v => v.iteration), y: this.validations.filter(v => finite(v[key])).map(v => v[key])}; }
  }

  const badge = state => element("span", {class: "state " + String(state).replace(/\W/g, "")}, String(state));

  // Loss and accuracy over iterations, and the learning rate. Returns {update()}.
  function curves(host, log, file) {
    let weight = .9;
    const charts = [], make = (title, share, key, parent) => {
      const chart = new CurveChart(parent, {title, share, file: file + "-" + key});
      charts.push({chart, key});
    };
    host.append(element("div", {class: "tools"}, smoothingSlider(weight, value => { weight = value; update(); })));
    const loss = element("div"), accuracy = element("div");
    host.append(element("h3", {}, "Loss"), loss);
    make("Loss", false, "loss", loss);
    if (log.classifies() || log.x.length === 0) { host.append(element("h3", {}, "Accuracy"), accuracy); make("Accuracy", true, "accuracy", accuracy); }
    const rate = element("div");
    host.append(element("h3", {}, "Learning rate"), rate);
    const rateChart = new CurveChart(rate, {title: "Learning rate", file: file + "-rate"});
    rateChart.box.style.height = "150px";
    function update() {
      for (const {chart, key} of charts) {
        chart.set([{name: "training, each iteration", colour: 0, raw: weight > 0, x: log.x, y: log[key]},
          weight > 0 ? {name: "training", colour: 0, x: log.x, y: smooth(log[key], weight)} : null,
          {name: "validation", colour: 1, dots: log.validations.length < 200, ...log.validation("validation_" + key)}].filter(Boolean), log.epochs);
      }
      const steps = {x: [], y: []};
      log.rate.forEach(([x, y], i) => { if (i > 0) { steps.x.push(x - .001); steps.y.push(log.rate[i - 1][1]); } steps.x.push(x); steps.y.push(y); });
      if (log.rate.length && log.last > steps.x.at(-1)) { steps.x.push(log.last); steps.y.push(log.rate.at(-1)[1]); }
      rateChart.set([{name: "learning rate", colour: 2, ...steps}], log.epochs);
    }
    update();
    return {update, charts: charts.map(one => one.chart).concat(rateChart), remove: () => { for (const {chart} of charts) chart.remove(); rateChart.remove(); }};
  }

  function options(host, tables) {
    const differing = element("input", {type: "checkbox", on: {change: draw}}), holder = element("div", {class: "scroll"});
    host.append(element("div", {class: "tools"}, element("label", {}, differing, "Only what differs from the defaults")), holder);
    const all = tables.reduce((sum, t) => sum + t.fields.filter(f => f.differs).length, 0);
    differing.checked = all > 0;
    function draw() {
      clear(holder).append(element("table", {class: "wide"}, element("thead", {}, element("tr", {}, ["Option", "Value", "Default"].map(name => element("th", {scope: "col"}, name)))),
        element("tbody", {}, tables.flatMap(table => table.fields.filter(f => f.differs || !differing.checked).map(field =>
          element("tr", {class: field.differs ? "differs" : null}, element("td", {title: field.help}, table.name + "." + field.name),
            element("td", {}, field.value, field.differs ? element("span", {class: "hidden"}, " (differs from the default)") : null),
            element("td", {class: "quiet"}, field.default)))))));
    }
    draw();
  }

  function network(host, data, file) {
    const {layers, totals} = data;
    host.append(element("p", {class: "quiet"}, totals + (data.loss ? "; loss " + data.loss : "")), element("div", {class: "columns", style: {marginTop: 0}},
      element("div", {class: "scroll", tabindex: "0", "aria-label": "Layers"}, element("table", {class: "wide small"}, element("thead", {}, element("tr", {},
        ["Layer", "Type", "Inputs", "Output", "Parameters", "State"].map((name, i) => element("th", {scope: "col", class: i > 3 ? "number" : null}, name)))),
      element("tbody", {}, layers.map(layer => element("tr", {}, element("td", {}, layer.name), element("td", {}, layer.type), element("td", {}, (layer.inputs || []).join(", ")),
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
        Lockstep.pointChart(node, data.pairs.map(([k, t, p]) => ({x: t, y: p, colour: k, text: `true ${number(t)}, predicted ${number(p)}`})),
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
    const best = log.classifies() ? "validation_accuracy" : "validation_loss";
    return facts([
      ["State", badge(data.state?.status || "–"), true], ["Iterations", count(log.last) + (data.start ? " of " + count(data.start.iterations) : "")],
      ["Epoch", log.epochs.length ? count(log.epochs.at(-1)[1]) : "–"],
      log.classifies() ? ["Best validation accuracy", percent(log.best(best))] : ["Best validation loss", number(log.best("validation_loss"))],
      ["Last validation loss", number(log.validations.at(-1)?.validation_loss)],
      right[1] > 0 ? ["Test accuracy", percent(right[0] / right[1])] : ["", null],
      ["Images per second", log.seconds > 0 ? count(log.images / log.seconds) : "–"], ["Duration", duration(log.elapsed)],
      data.start ? ["Device", `${data.start.device}, ${count(data.start.threads)} threads` + (data.start.workers ? ` in each of ${count(data.start.workers)} workers` : ""), true] : ["", null],
      ["Digest", data.digest || null, true]]);
  }

  // Everything of a finished run below its headline. Returns what updates the curves.
  function parts(host, data, log, file) {
    let updates = null;
    section(host, "Curves", node => { updates = curves(node, log, file); }, {id: "curves"});
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
    const name = String(data.name || "run"), log = new Log().add(data.log), main = element("main");
    document.title = `${name} – Lockstep report`;
    document.body.append(element("header", {class: "top"}, element("div", {}, element("h1", {}, name), element("span", {class: "quiet small"}, data.folder), element("span", {class: "space"}), Lockstep.themeButton())), main);
    section(main, "Run", node => {
      node.append(headline(data, log));
      if (data.state?.reason) node.append(element("p", {class: "message"}, data.state.reason));
      for (const note of data.notes || []) node.append(element("p", {class: "quiet small"}, note));
    });
    return parts(main, data, log, name);
  }

  Object.assign(Lockstep, {Log, report, badge, curves, parts, headline, eventText, workers});
})();
