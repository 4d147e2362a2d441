// Curves that belong together: one choice of smoothing, axis and scale for all, a crosshair and a zoom that go through all.
"use strict";
(() => {
  const {element, finite, CurveChart, smooth} = Lockstep;
  const kUnits = [[7200, 3600, "hours"], [120, 60, "minutes"], [0, 1, "seconds"]];

  // options: smoothing, axis: whether to offer these (default true); of: initial choices; changed(choices).
  // set() gives the curves of a chart; `fill` is called to give them all when a choice changes.
  class CurveGroup {
    constructor(host, fill, options = {}) {
      this.choices = {smoothing: .9, axis: "iteration", log: false, clip: false, ...options.of};
      this.charts = [];
      this.fill = fill;
      this.mapped = new WeakMap();
      const choose = (key, value) => { this.choices[key] = value; options.changed?.(this.choices); this.update(key === "axis"); };
      const box = (key, label, title) => {
        const input = element("input", {type: "checkbox", on: {change: () => choose(key, input.checked)}});
        input.checked = !!this.choices[key];
        return element("label", {title}, input, label);
      };
      const axis = element("select", {"aria-label": "Horizontal axis", on: {change: () => choose("axis", axis.value)}},
        [["iteration", "iterations"], ["epoch", "epochs"], ["time", "time"]].map(([value, text]) => element("option", {value}, text)));
      axis.value = this.choices.axis;
      host.append(element("div", {class: "tools"},
        options.smoothing === false ? null : smoothingSlider(this.choices.smoothing, value => choose("smoothing", value)),
        options.axis === false ? null : element("label", {}, "Axis", axis),
        box("log", "Log scale", "A logarithmic vertical axis; shares (accuracy) stay linear, values that are not positive are left out"),
        box("clip", "Clip outliers", "The vertical axis shows the middle 96 % of the points; a note says how many are beyond it")));
    }
    chart(parent, options) {
      const chart = new CurveChart(parent, {...options, scale: this.choices, linked: this.charts,
        pointed: x => { for (const other of this.charts) if (other !== chart) other.point(x); },
        zoomed: range => { for (const other of this.charts) if (other !== chart) other.follow(range); }});
      this.charts.push(chart);
      return chart;
    }
    // The unit of time that suits the longest log.
    unit(logs) {
      const longest = Math.max(0, ...logs.map(log => log.timeKnots().at(-1)[1]));
      return kUnits.find(([from]) => longest >= from);
    }
    // series: as of CurveChart, with iterations as x, and {log, smooth: whether the smoothing applies}.
    set(chart, series, epochs = []) {
      const {axis, smoothing} = this.choices, logs = [...new Set(series.map(one => one.log))];
      const [, unit, name] = this.unit(logs);
      chart.options.x = axis === "time" ? name + " since the start" : axis;
      const positions = new Map(logs.map(log => [log, log.positionOn(axis, unit)]));
      chart.set(series.map(one => ({...one, x: axis === "iteration" ? one.x : this.along(one, positions.get(one.log), axis, unit),
        y: one.smooth ? smooth(one.y, smoothing) : one.y})), epochs.map(([begin, epoch]) => [logs.length ? positions.get(logs[0])(begin - .5) : begin, epoch]));
    }
    along(one, position, axis, unit) {
      const key = `${axis} ${unit} ${one.x.length}`, known = this.mapped.get(one.x);
      if (known?.key === key && one.x.length > 10000) return known.x;
      const x = one.x.map(position);
      this.mapped.set(one.x, {key, x});
      return x;
    }
    update(whole) {
      if (whole) for (const chart of this.charts) chart.window = null;
      this.fill(this.choices);
      // Until all have their new unit, the range of all is not known: those that were filled first have drawn a wrong one.
      if (whole) for (const chart of this.charts) { chart.draw(false); chart.fillTable(); }
    }
    remove() { for (const chart of this.charts) chart.remove(); }
  }

  function smoothingSlider(initial, changed) {
    const shown = element("output", {}, initial);
    const slider = element("input", {type: "range", min: "0", max: "0.99", step: "0.01", value: initial, "aria-label": "Smoothing of training curves",
      on: {input: () => { shown.textContent = slider.value; changed(Number(slider.value)); }}});
    return element("label", {}, "Smoothing ", slider, shown);
  }

  // The numbers of every metric, with the iterations of validations.
  function scoreTable(log, scores = {}) {
    const {number, percent, count, isShare} = Lockstep, test = Object.keys(scores).some(name => name.startsWith("test."));
    const names = [...new Set([...log.metrics(), ...Object.keys(scores).map(name => name.slice(name.indexOf(".") + 1))])];
    const text = (name, value) => isShare(name) ? percent(value) : number(value);
    const cell = (name, one) => element("td", {class: "number"}, text(name, one?.value), one ? [" ", element("span", {class: "quiet small at"}, "at " + count(one.iteration))] : null);
    const newest = key => key.findLast(finite);
    return element("div", {class: "scroll"}, element("table", {class: "scores"}, element("caption", {class: "hidden"}, "Metrics"),
      element("thead", {}, element("tr", {}, ["Metric", "Training", "Validation", "Best validation", test ? "Test" : null].filter(Boolean)
        .map((name, i) => element("th", {scope: "col", class: i ? "number" : null}, name)))),
      element("tbody", {}, names.map(name => element("tr", {}, element("th", {scope: "row"}, Lockstep.breakable(name)),
        element("td", {class: "number"}, name === "loss" || name === "accuracy" ? text(name, newest(log[name])) : "–"),
        cell(name, log.newest(name)), cell(name, log.best(name)), test ? element("td", {class: "number"}, text(name, scores["test." + name])) : null)))));
  }

  Object.assign(Lockstep, {CurveGroup, scoreTable});
})();
