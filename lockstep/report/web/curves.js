// Curves by dygraphs. All points stay in memory; what is drawn are the smallest and largest values of equal parts of
// the visible range, refined when it changes.
"use strict";
(() => {
  const {element, clear, finite, number, percent, count, color, onTheme, save} = Lockstep;
  const kMostPoints = 4000;

  // Exponential moving mean without the bias of its start. Values that are missing stay missing.
  function smooth(values, weight) {
    if (!(weight > 0)) return values;
    const made = new Array(values.length);
    let mean = 0, power = 1;
    for (let i = 0; i < values.length; ++i) {
      const value = values[i];
      if (!finite(value)) { made[i] = null; continue; }
      mean = weight * mean + (1 - weight) * value;
      power *= weight;
      made[i] = mean / (1 - power);
    }
    return made;
  }
  // The first index whose x is not below `at`.
  function lower(x, at) {
    let low = 0, high = x.length;
    while (low < high) { const middle = low + high >> 1; if (x[middle] < at) low = middle + 1; else high = middle; }
    return low;
  }
  // Indices to draw: at most `most` between the two ends of the range, one beyond each.
  function decimate(x, y, from, to, most) {
    const begin = Math.max(0, lower(x, from) - 1), end = Math.min(x.length, lower(x, to) + 2), n = end - begin;
    const kept = [];
    if (n <= most) { for (let i = begin; i < end; ++i) kept.push(i); return kept; }
    const parts = Math.max(1, Math.floor(most / 2));
    for (let part = 0; part < parts; ++part) {
      const first = begin + Math.floor(part * n / parts), last = begin + Math.floor((part + 1) * n / parts);
      let low = -1, high = -1;
      for (let i = first; i < last; ++i) {
        if (!finite(y[i])) continue;
        if (low < 0 || y[i] < y[low]) low = i;
        if (high < 0 || y[i] > y[high]) high = i;
      }
      if (low < 0) continue;
      kept.push(Math.min(low, high));
      if (low !== high) kept.push(Math.max(low, high));
    }
    return kept;
  }

  // The range of the middle 96 % of values, with some room.
  function middleRange(values) {
    const sorted = Float64Array.from(values).sort(), at = share => sorted[Math.round(share * (sorted.length - 1))];
    const low = at(.02), high = at(.98), room = (high - low) * .08;
    return high > low ? [Math.max(sorted[0], low - room), Math.min(sorted.at(-1), high + room)] : null;
  }

  // options: title, share (values are shares, shown in percent), file (name of saved files), x (name of the axis), scale:
  // {log, clip}, linked: charts with the same range, pointed(x) and zoomed(range) for these.
  // set(series, epochs): series is [{name, color, x: [...], y: [...], raw, dots, dim, dash, sparse, click}], where a sparse
  // one has values at few positions, which are shown as theirs; epochs are [[x, number]].
  class CurveChart {
    constructor(host, options) {
      this.options = options;
      this.series = [];
      this.epochs = [];
      this.window = null;
      this.legend = element("div", {class: "legend"});
      this.box = element("div", {class: "chart", tabindex: "0", role: "img", on: {keydown: event => this.key(event)}});
      this.note = element("span", {class: "quiet small"});
      this.axisName = element("div", {class: "axis-name"});
      this.cross = element("div", {class: "cross", hidden: true});
      this.table = element("details", {class: "small"}, element("summary", {}, "Values as a table"));
      this.table.addEventListener("toggle", () => this.fillTable());
      host.append(
        element("div", {class: "chart-tools"}, this.legend, element("span", {class: "buttons"}, this.note, " ",
          element("button", {type: "button", class: "small", on: {click: () => this.reset()}, title: "Show everything (key 0)"}, "Whole range"), " ",
          element("button", {type: "button", class: "small", on: {click: () => this.saveImage()}}, "Save as PNG"))),
        this.box, this.axisName, this.table);
      this.forget = onTheme(() => this.draw(true));
      this.size = new ResizeObserver(() => this.graph?.resize());
      this.size.observe(this.box);
    }
    log() { return !!this.options.scale?.log && !this.options.share; }
    text(value) { return this.options.share ? percent(value) : number(value); }
    set(series, epochs) {
      this.series = series.filter(one => one.x.length > 0);
      this.epochs = epochs || [];
      this.draw(true);
      if (this.table.open) this.fillTable();
    }
    // Of all charts that are linked, so that one position is the same iteration in all.
    range() {
      let low = Infinity, high = -Infinity;
      for (const chart of this.options.linked || [this]) for (const one of chart.series) { low = Math.min(low, one.x[0]); high = Math.max(high, one.x[one.x.length - 1]); }
      return low < high ? [low, high] : finite(low) ? [low - 1, low + 1] : [0, 1];
    }
    rows(from, to) {
      const most = Math.max(200, Math.floor(kMostPoints / Math.max(1, this.series.length)));
      const made = new Map(), log = this.log();
      this.series.forEach((one, column) => {
        for (const i of decimate(one.x, one.y, from, to, most)) {
          let row = made.get(one.x[i]);
          if (!row) { row = new Array(this.series.length + 1).fill(null); row[0] = one.x[i]; made.set(one.x[i], row); }
          row[column + 1] = finite(one.y[i]) && (!log || one.y[i] > 0) ? one.y[i] : NaN;
        }
      });
      return [...made.values()].sort((a, b) => a[0] - b[0]);
    }
    draw(all) {
      if (this.drawing) return;
      const whole = this.range(), [from, to] = this.window || whole;
      let rows = this.rows(from, to);
      this.drawn = rows.length;
      if (rows.length === 0) rows = [[0].concat(this.series.map(() => null))];
      if (rows[0].length === 1) { this.describe(); return; }
      const range = this.clipped(rows), own = {}, colors = [];
      this.series.forEach((one, i) => {
        const paint = color("c" + (one.color ?? i) % 8);
        colors.push(paint);
        own["s" + i] = {strokeWidth: one.raw || one.dim ? 1 : one.wide ? 3 : 2, drawPoints: !!one.dots || one.x.length === 1, pointSize: one.dots ? 3 : 2,
          strokePattern: one.dash ? [7, 4] : null};
      });
      const faded = colors.map((paint, i) => this.series[i].raw ? paint + "40" : this.series[i].dim ? paint + "66" : paint);
      const options = {
        file: rows, labels: ["x"].concat(this.series.map((_, i) => "s" + i)), series: own, colors: faded,
        dateWindow: [from, to], valueRange: range, logscale: this.log(), axisLineColor: color("line"), gridLineColor: color("grid")};
      this.drawing = true;
      try {
        if (!this.graph) {
          const model = {...Dygraph.defaultInteractionModel, dblclick: () => this.reset()};
          this.graph = new Dygraph(this.box, rows, {...options, legend: "never", connectSeparatedPoints: true, highlightCircleSize: 3,
            interactionModel: model, animatedZooms: false, labelsKMB: false, xRangePad: 2, yRangePad: 8,
            axes: {
              x: {axisLabelFormatter: x => Number.isInteger(x) || Math.abs(x) < 10 ? number(x, 7) : "", pixelsPerLabel: 70},
              y: {axisLabelFormatter: y => this.options.share ? number(100 * y, 5) + " %" : number(y, 6), axisLabelWidth: 58}},
            underlayCallback: (canvas, area, graph) => this.shade(canvas, area, graph),
            highlightCallback: (event, x) => { this.point(x); this.options.pointed?.(x); }, unhighlightCallback: () => { this.point(); this.options.pointed?.(); },
            clickCallback: (event, x, points) => { const one = this.nearest(event, points); one?.click?.(); },
            zoomCallback: (low, high) => { if (!this.drawing) this.zoom(low, high); }});
          this.box.append(this.cross);
        } else {
          this.graph.updateOptions(options);
        }
      } finally {
        this.drawing = false;
      }
      this.axisName.textContent = this.options.x || "iteration";
      if (all) this.point();
    }
    // The vertical range without outliers; null: of all points. Says how many are beyond it.
    clipped(rows) {
      this.note.textContent = "";
      if (!this.options.scale?.clip) return null;
      const values = [];
      for (const row of rows) for (let i = 1; i < row.length; ++i) if (finite(row[i])) values.push(row[i]);
      const range = values.length > 10 ? middleRange(values) : null;
      const beyond = range ? values.filter(value => value < range[0] || value > range[1]).length : 0;
      if (!beyond) return null;
      this.note.textContent = `${count(beyond)} of ${count(values.length)} drawn points are beyond the axis`;
      return range;
    }
    // The crosshair at x; none without it.
    point(x) {
      const at = x === undefined || !this.graph ? NaN : this.graph.toDomXCoord(x), area = this.graph?.getArea();
      this.cross.hidden = !(at >= area?.x && at <= area.x + area.w);
      if (!this.cross.hidden) Object.assign(this.cross.style, {left: at + "px", height: area.h + "px"});
      this.describe(x);
    }
    // The range of a chart that is linked; null: everything.
    follow(range) {
      this.window = range && this.within(range[0], range[1]);
      this.draw(false);
    }
    within(low, high) {
      const whole = this.range(), from = Math.max(whole[0], Math.min(low, high)), to = Math.min(whole[1], Math.max(low, high));
      return to - from > 1e-9 && (from > whole[0] || to < whole[1]) ? [from, to] : null;
    }
    nearest(event, points) {
      const at = event.clientY - this.box.getBoundingClientRect().top;
      let best = null, distance = 12;
      for (const point of points) {
        const away = Math.abs(point.canvasy - at);
        if (away < distance) { distance = away; best = this.series[Number(point.name.slice(1))]; }
      }
      return best;
    }
    zoom(low, high) {
      this.window = this.within(low, high);
      this.draw(false);
      this.options.zoomed?.(this.window);
    }
    reset() { this.window = null; this.draw(false); this.options.zoomed?.(null); }
    key(event) {
      const [from, to] = this.window || this.range(), width = to - from;
      const move = {ArrowLeft: [-.2, -.2], ArrowRight: [.2, .2], "+": [.2, -.2], "=": [.2, -.2], "-": [-.35, .35]}[event.key];
      if (event.key === "0" || event.key === "Escape") this.reset();
      else if (move) this.zoom(from + move[0] * width, to + move[1] * width);
      else return;
      event.preventDefault();
    }
    // Epochs in turn with and without a band.
    shade(canvas, area, graph) {
      if (this.epochs.length < 2) return;
      const paint = color("band"), last = this.range()[1];
      let wide = 0;
      canvas.save();
      canvas.fillStyle = paint;
      this.epochs.forEach(([begin, epoch], i) => {
        if (epoch % 2 !== 0) return;
        const left = Math.max(area.x, graph.toDomXCoord(begin));
        const right = Math.min(area.x + area.w, graph.toDomXCoord(i + 1 < this.epochs.length ? this.epochs[i + 1][0] : last));
        if (right - left < 2) return;
        ++wide;
        canvas.fillRect(left, area.y, right - left, area.h);
      });
      canvas.restore();
      this.bands = wide;
    }
    // The index of the point that is shown at x: of a sparse series its last one until there.
    index(one, x) {
      if (x === undefined) return one.x.length - 1;
      const i = lower(one.x, x);
      return one.sparse ? one.x[i] === x ? i : i - 1 : Math.min(one.x.length - 1, i);
    }
    textOfX(x) { return number(x, Math.abs(x) >= 1e4 || Number.isInteger(x) ? 9 : 4); }
    describe(x) {
      const shown = this.series.filter(one => !one.dim && !one.raw || this.series.length === 1);
      clear(this.legend);
      if (x !== undefined) this.legend.append(element("span", {class: "quiet"}, (this.options.x || "iteration") + " " + this.textOfX(x)));
      for (const one of shown.slice(0, 16)) {
        const i = this.index(one, x), at = one.sparse && i >= 0 && (x === undefined || one.x[i] !== x);
        this.legend.append(element("span", {class: "key"},
          element("i", {class: one.sparse && one.dots ? "dot" : one.dash ? "dashed" : null, style: {color: color("c" + (one.color ?? this.series.indexOf(one)) % 8)}}),
          element("span", {class: "name", title: one.name}, one.name), element("strong", {}, this.text(one.y[i])),
          at ? element("span", {class: "quiet"}, "at " + this.textOfX(one.x[i])) : null));
      }
      if (shown.length > 16) this.legend.append(element("span", {class: "quiet"}, `and ${count(shown.length - 16)} more`));
      if (x !== undefined) return;
      const said = shown.slice(0, 12).map(one => {
        const values = one.y.filter(finite);
        let low = Infinity, high = -Infinity;
        for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
        return one.name + ": last " + this.text(values.at(-1)) + ", from " + this.text(low) + " to " + this.text(high);
      });
      this.box.setAttribute("aria-label", this.options.title + ". " + said.join(". ") + ". Arrow keys move, plus and minus zoom, 0 shows everything.");
    }
    fillTable() {
      while (this.table.children.length > 1) this.table.lastChild.remove();
      if (!this.table.open) return;
      const shown = this.series.filter(one => !one.raw), [from, to] = this.window || this.range();
      // Each validation has a row, at its own iteration.
      const positions = [...new Set(shown.filter(one => one.sparse).flatMap(one => one.x))].filter(x => x >= from && x <= to).sort((a, b) => a - b);
      const step = Math.max(1, (positions.length - 1) / 20), whole = shown.every(one => Number.isInteger(one.x[0]) && Number.isInteger(one.x.at(-1)));
      const chosen = positions.length ? positions.filter((_, i) => Math.floor(i / step) !== Math.floor((i - 1) / step) || i + 1 === positions.length)
        : Array.from({length: 21}, (_, k) => from + (to - from) * k / 20);
      const rows = chosen.map(x => element("tr", {}, element("td", {class: "number"}, whole ? count(x) : this.textOfX(x)), shown.map(one => {
        const i = this.index(one, x);
        return element("td", {class: "number"}, one.sparse && one.x[i] !== x ? "–" : this.text(one.y[i]));
      })));
      this.table.append(element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {},
        element("th", {scope: "col"}, this.options.x || "iteration"), shown.map(one => element("th", {scope: "col", class: "number name"}, one.name)))), element("tbody", {}, rows))));
    }
    saveImage() { this.image().toBlob(blob => save(blob, (this.options.file || this.options.title) + ".png")); }
    // The chart as a canvas, with title, axes and legend.
    image() {
      const box = this.box.getBoundingClientRect(), scale = 2, top = 54;
      const canvas = element("canvas", {width: Math.round(box.width * scale), height: Math.round((box.height + top + 22) * scale)});
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.fillStyle = color("card");
      pen.fillRect(0, 0, box.width, box.height + top + 22);
      const font = size => size + "px system-ui, 'DejaVu Sans', sans-serif";
      pen.fillStyle = color("text");
      pen.font = "600 " + font(15);
      pen.fillText(this.options.title, 10, 20);
      pen.font = font(12);
      let x = 10;
      for (const one of this.series.filter(s => !s.raw && !s.dim).slice(0, 12)) {
        pen.fillStyle = color("c" + (one.color ?? this.series.indexOf(one)) % 8);
        pen.fillRect(x, 36, 14, 3);
        pen.fillStyle = color("text");
        pen.fillText(one.name, x + 20, 41);
        x += pen.measureText(one.name).width + 38;
      }
      for (const layer of this.box.querySelectorAll("canvas")) pen.drawImage(layer, 0, top, box.width, box.height);
      pen.fillStyle = color("quiet");
      for (const label of this.box.querySelectorAll(".dygraph-axis-label")) {
        const rect = label.getBoundingClientRect(), right = label.classList.contains("dygraph-axis-label-y");
        pen.textAlign = right ? "right" : "center";
        pen.fillText(label.textContent, (right ? rect.right : rect.left + rect.width / 2) - box.left, rect.top - box.top + top + 12);
      }
      pen.textAlign = "center";
      pen.fillText(this.options.x || "iteration", box.width / 2, box.height + top + 14);
      return canvas;
    }
    remove() { this.forget(); this.size.disconnect(); this.graph?.destroy(); }
  }

  Object.assign(Lockstep, {CurveChart, smooth, lower, decimate});
})();
