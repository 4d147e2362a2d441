// Charts as SVG: confusion, layer graph, bars, points, parallel coordinates.
"use strict";
(() => {
  const {element, drawing, clear, finite, count, number, percent, svgButton, showTip, hideTip} = Lockstep;
  const kMostClasses = 40, kMostRows = 300, kMostPairs = 50;

  // Calls use(true class, predicted class, count) for the counts above 0: of rows counts[true][predicted], or of many classes' cells.
  function eachCount(confusion, use) {
    if (confusion.cells) confusion.cells.count.forEach((value, k) => use(confusion.cells.observed[k], confusion.cells.predicted[k], value));
    else confusion.counts.forEach((row, i) => row.forEach((value, j) => { if (value) use(i, j, value); }));
  }

  // The sums of rows and columns as recall, precision and F1.
  function classScores(confusion) {
    const n = confusion.classes.length, rows = new Array(n).fill(0), columns = new Array(n).fill(0), diagonal = new Array(n).fill(0);
    eachCount(confusion, (i, j, value) => { rows[i] += value; columns[j] += value; if (i === j) diagonal[i] = value; });
    return confusion.classes.map((name, i) => {
      const right = diagonal[i];
      const share = (a, b, seen) => b > 0 ? a / b : seen ? 0 : NaN;
      const recall = share(right, rows[i], columns[i] > 0), precision = share(right, columns[i], rows[i] > 0);
      const sum = rows[i] + columns[i];
      return {i, name: String(name), observed: rows[i], predicted: columns[i], right, errors: sum - 2 * right, recall, precision, f1: sum > 0 ? 2 * right / sum : NaN};
    });
  }
  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

  function confusionChart(host, confusion, file) {
    const scores = classScores(confusion), n = scores.length, counts = new Map();
    eachCount(confusion, (i, j, value) => counts.set(i * n + j, value));
    let shown = "row", order = "name";
    const holder = element("div", {class: "scroll", style: {maxHeight: "none"}}), said = element("p", {class: "hidden", "aria-live": "polite"});
    let svg = null;
    const choose = (label, choices, set) => element("label", {}, label + " ", element("select", {"aria-label": label,
      on: {change: event => { set(event.target.value); draw(); }}}, choices.map(([value, text]) => element("option", {value}, text))));
    host.append(element("div", {class: "tools"},
      choose("Shown", [["row", "shares of the true class"], ["column", "shares of the predicted class"], ["count", "counts"]], v => { shown = v; }),
      choose("Sorted by", [["name", "order of classes"], ["recall", "recall"], ["precision", "precision"], ["observed", "observations"]], v => { order = v; }),
      svgButton(() => svg, file)), holder, said);
    function draw() {
      let sorted = [...scores];
      if (order !== "name") sorted.sort((a, b) => (a[order] - b[order]) || a.i - b.i);
      const left = sorted.length - kMostClasses;
      if (left > 0) {
        if (order === "name") sorted = [...scores].sort((a, b) => (b.observed - b.right) - (a.observed - a.right)).slice(0, kMostClasses).sort((a, b) => a.i - b.i);
        else sorted = sorted.slice(0, kMostClasses);
      }
      const m = sorted.length, cell = m <= 12 ? 42 : m <= 20 ? 36 : 22, wide = 58;
      const longest = Math.min(18, Math.max(4, ...sorted.map(s => s.name.length)));
      const x0 = longest * 7.2 + 30, y0 = longest * 5.4 + 30, width = x0 + m * cell + 2 * wide + 16, height = y0 + m * cell + 62;
      svg = drawing("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
        "aria-label": `Confusion chart of ${n} classes. Arrow keys read the cells; the table below has the scores of each class.`});
      const cursorCell = {x: 0, y: 0};
      const at = (i, j) => counts.get(sorted[i].i * n + sorted[j].i) || 0;
      const text = (i, j) => `${sorted[i].name} predicted as ${sorted[j].name}: ${count(at(i, j))} (${percent(at(i, j) / sorted[i].observed, 1)} of the true class, ${percent(at(i, j) / sorted[j].predicted, 1)} of the predicted)`;
      let largest = 1;
      for (let i = 0; i < m; ++i) for (let j = 0; j < m; ++j) largest = Math.max(largest, at(i, j));
      for (let i = 0; i < m; ++i) {
        for (let j = 0; j < m; ++j) {
          const value = at(i, j), base = shown === "row" ? sorted[i].observed : shown === "column" ? sorted[j].predicted : largest;
          const share = base > 0 ? value / base : 0, dark = value ? .06 + .86 * Math.sqrt(share) : 0;
          const group = drawing("g", {}, drawing("rect", {x: x0 + j * cell, y: y0 + i * cell, width: cell - 1, height: cell - 1,
            style: {fill: value ? `rgba(var(--heat${i === j ? "" : "-bad"}), ${dark.toFixed(3)})` : "var(--grid)"}}));
          if (cell > 24 && value) {
            group.append(drawing("text", {x: x0 + j * cell + cell / 2, y: y0 + i * cell + cell / 2 + 4, "text-anchor": "middle",
              style: {fill: dark > .55 ? "var(--accent-text)" : "var(--text)"}}, shown === "count" ? count(value) : (100 * share).toFixed(1)));
          }
          group.addEventListener("pointermove", event => showTip(event, text(i, j)));
          group.addEventListener("pointerleave", hideTip);
          svg.append(group);
        }
        const middle = y0 + i * cell + cell / 2 + 4;
        svg.append(drawing("text", {x: x0 - 6, y: middle, "text-anchor": "end"}, cut(sorted[i].name, 18)),
          summary(x0 + m * cell + 8, y0 + i * cell, wide - 4, cell - 1, sorted[i].recall),
          drawing("text", {x: x0 + m * cell + wide + 10, y: middle, class: "quiet"}, finite(sorted[i].recall) ? (100 - 100 * sorted[i].recall).toFixed(1) : "–"));
        const x = x0 + i * cell + cell / 2;
        svg.append(drawing("text", {x: 0, y: 0, transform: `translate(${x + 4} ${y0 - 6}) rotate(-45)`}, cut(sorted[i].name, 18)),
          summary(x0 + i * cell, y0 + m * cell + 8, cell - 1, 22, sorted[i].precision, cell < 30),
          drawing("text", {x, y: y0 + m * cell + 46, "text-anchor": "middle", class: "quiet", style: {fontSize: cell < 30 ? "8px" : "12px"}},
            finite(sorted[i].precision) ? (100 - 100 * sorted[i].precision).toFixed(cell < 30 ? 0 : 1) : "–"));
      }
      svg.append(drawing("text", {x: x0 + m * cell + 8, y: y0 - 8, class: "quiet"}, "right"), drawing("text", {x: x0 + m * cell + wide + 10, y: y0 - 8, class: "quiet"}, "wrong, %"),
        drawing("text", {x: x0 - 6, y: y0 + m * cell + 23, "text-anchor": "end", class: "quiet"}, "right"),
        drawing("text", {x: x0 - 6, y: y0 + m * cell + 46, "text-anchor": "end", class: "quiet"}, "wrong, %"),
        drawing("text", {x: 14, y: y0 + m * cell / 2, class: "quiet", transform: `rotate(-90 14 ${y0 + m * cell / 2})`, "text-anchor": "middle"}, "true class"),
        drawing("text", {x: x0 + m * cell / 2, y: y0 + m * cell + 60, class: "quiet", "text-anchor": "middle"}, "predicted class"));
      const cursor = drawing("rect", {class: "cursor", width: cell - 1, height: cell - 1, visibility: "hidden"});
      svg.append(cursor);
      svg.addEventListener("keydown", event => {
        const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
        if (!move) return;
        event.preventDefault();
        cursorCell.x = Math.min(m - 1, Math.max(0, cursorCell.x + move[0]));
        cursorCell.y = Math.min(m - 1, Math.max(0, cursorCell.y + move[1]));
        cursor.setAttribute("x", x0 + cursorCell.x * cell);
        cursor.setAttribute("y", y0 + cursorCell.y * cell);
        cursor.setAttribute("visibility", "visible");
        said.textContent = text(cursorCell.y, cursorCell.x);
      });
      svg.addEventListener("blur", () => cursor.setAttribute("visibility", "hidden"));
      clear(holder).append(svg);
      if (left > 0) holder.append(element("p", {class: "quiet small"}, order === "name" ? `The ${kMostClasses} classes with the most errors of ${n}.` : `The first ${kMostClasses} of ${n} classes in this order.`));
    }
    function summary(x, y, width, height, share, bare) {
      const tone = finite(share) ? (.12 + .7 * share).toFixed(3) : 0;
      return drawing("g", {}, drawing("rect", {x, y, width, height, style: {fill: finite(share) ? `rgba(var(--heat), ${tone})` : "var(--grid)"}}),
        bare ? null : drawing("text", {x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle", style: {fill: share > .6 ? "var(--accent-text)" : "var(--text)"}},
          finite(share) ? (100 * share).toFixed(1) : "–"));
    }
    draw();
  }

  // The scores of each class; of many classes the worst, and the most frequent errors.
  function classTable(host, confusion) {
    let scores = classScores(confusion);
    const many = scores.length > kMostRows;
    if (many) scores.sort((a, b) => (b.errors - a.errors) || a.i - b.i);
    const share = (name, key) => ({name, number: true, value: s => s[key], cell: s => percent(s[key], 1)});
    host.append(element("div", {class: "scroll"}, Lockstep.sortedTable([
      {name: "Class", value: s => s.i, cell: s => s.name}, share("Precision", "precision"), share("Recall", "recall"), share("F1", "f1"),
      {name: "Observations", number: true, value: s => s.observed, cell: s => count(s.observed)},
      {name: "Predicted", number: true, value: s => s.predicted, cell: s => count(s.predicted)}], scores,
      {caption: "Scores of each class", most: kMostRows, more: "more: sort by a column to see others"}).table));
    if (many) host.append(element("p", {class: "quiet small"}, `The ${kMostRows} classes with the most errors of ${count(scores.length)} come first.`));
    if (scores.length <= kMostClasses) return;
    const pairs = [], names = confusion.classes, observed = new Map(scores.map(s => [s.i, s.observed]));
    eachCount(confusion, (i, j, value) => { if (i !== j) pairs.push({i, j, value}); });
    pairs.sort((a, b) => (b.value - a.value) || (a.i - b.i) || (a.j - b.j));
    if (!pairs.length) return;
    host.append(element("h3", {}, "Most frequent errors"), element("div", {class: "scroll"}, Lockstep.sortedTable([
      {name: "Class", value: p => String(names[p.i])}, {name: "Predicted as", value: p => String(names[p.j])},
      {name: "Count", number: true, value: p => p.value, cell: p => count(p.value)},
      {name: "Of the class", number: true, value: p => p.value / observed.get(p.i), cell: p => percent(p.value / observed.get(p.i), 1)}],
      pairs.slice(0, kMostPairs), {caption: "Most frequent errors"}).table));
  }

  // The layer graph: each layer stands below all its inputs. A connection over several levels has its own position in each.
  function layerGraph(host, layers, file) {
    const indices = new Map(layers.map((layer, i) => [layer.name, i]));
    const nodes = layers.map(layer => ({layer, level: 0, inputs: [], x: 0}));
    for (let changed = true, round = 0; changed && round <= nodes.length; ++round) {
      changed = false;
      for (const node of nodes) for (const name of node.layer.inputs || []) {
        const from = nodes[indices.get(name)];
        if (from && node.level < from.level + 1) { node.level = from.level + 1; changed = true; }
      }
    }
    const levels = [];
    const put = node => (levels[node.level] ||= []).push(node);
    nodes.forEach(put);
    const edges = [];
    for (const node of nodes) for (const name of node.layer.inputs || []) {
      const from = nodes[indices.get(name)];
      if (!from) continue;
      const path = [from];
      for (let level = from.level + 1; level < node.level; ++level) {
        const between = {level, inputs: [path.at(-1)], x: 0};
        put(between);
        path.push(between);
      }
      node.inputs.push(path.at(-1));
      path.push(node);
      edges.push(path);
    }
    for (const level of levels) level.forEach((node, i) => { node.x = i; });
    for (let sweep = 0; sweep < 4; ++sweep) for (const level of levels) {
      for (const node of level) node.wish = node.inputs.length ? node.inputs.reduce((sum, from) => sum + from.x, 0) / node.inputs.length : node.x;
      level.sort((a, b) => a.wish - b.wish);
      level.forEach((node, i) => { node.x = i; });
    }
    const boxWidth = 214, boxHeight = 38, gapX = 26, gapY = 22;
    const spaceOf = node => node.layer ? boxWidth : 18;
    const widths = levels.map(level => level.reduce((sum, node) => sum + spaceOf(node) + gapX, -gapX));
    const width = Math.max(...widths, boxWidth) + 24, height = levels.length * (boxHeight + gapY) - gapY + 24;
    levels.forEach((level, i) => {
      let x = (width - widths[i]) / 2;
      for (const node of level) { node.left = x; node.middle = x + spaceOf(node) / 2; node.top = 12 + i * (boxHeight + gapY); x += spaceOf(node) + gapX; }
    });
    const kind = type => /^(convolution|transposed|grouped|fully)/.test(type) ? "c0" : /norm/.test(type) ? "c3" : /pool/.test(type) ? "c2" : /input$/.test(type) ? "c7"
      : /relu|sigmoid|tanh|gelu|elu|swish|softmax|softplus/.test(type) ? "c1" : /dropout/.test(type) ? "c5" : "c4";
    const svg = drawing("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Graph of ${layers.length} layers; the table of the network names the inputs of each.`});
    for (const path of edges) {
      let line = "";
      for (let k = 0; k + 1 < path.length; ++k) {
        const a = path[k], b = path[k + 1], y1 = a.top + boxHeight, y2 = b.top, bend = (y1 + y2) / 2;
        line += `${k ? `L${a.middle} ${a.top} L` : "M"}${a.middle} ${y1} C${a.middle} ${bend} ${b.middle} ${bend} ${b.middle} ${y2} `;
      }
      const end = path.at(-1);
      svg.append(drawing("path", {class: "edge", d: line}),
        drawing("path", {d: `M${end.middle - 4} ${end.top - 6} L${end.middle + 4} ${end.top - 6} L${end.middle} ${end.top} Z`, style: {fill: "var(--quiet)"}}));
    }
    for (const node of nodes) {
      const {layer} = node, text = `${layer.name}: ${layer.type}, output ${layer.size}, ${layer.parameters === "-" ? "no" : layer.parameters} parameters`;
      const group = drawing("g", {}, drawing("rect", {class: "box", x: node.left, y: node.top, width: boxWidth, height: boxHeight, rx: 5}),
        drawing("rect", {x: node.left, y: node.top, width: 5, height: boxHeight, rx: 2, style: {fill: `var(--${kind(layer.type)})`}}),
        drawing("text", {x: node.left + 13, y: node.top + 16}, cut(layer.name, 28)),
        drawing("text", {x: node.left + 13, y: node.top + 31, class: "quiet"}, cut(`${layer.type}  ${layer.size}`, 32)));
      group.addEventListener("pointermove", event => showTip(event, text));
      group.addEventListener("pointerleave", hideTip);
      svg.append(group);
    }
    host.append(element("div", {class: "tools"}, svgButton(() => svg, file)), element("div", {class: "scroll", tabindex: "0", "aria-label": "Layer graph"}, svg));
  }

  // rows: [{name, value, text, kind}], the longest first.
  function bars(host, rows, file, label) {
    const widest = Math.max(...rows.map(row => row.value), 1e-12), left = 250, wide = 300, height = rows.length * 22 + 8;
    const svg = drawing("svg", {width: left + wide + 110, height, viewBox: `0 0 ${left + wide + 110} ${height}`, role: "img",
      "aria-label": label + ": " + rows.map(row => row.name + " " + row.text).join(", ")});
    rows.forEach((row, i) => svg.append(
      drawing("text", {x: left - 8, y: i * 22 + 18, "text-anchor": "end"}, cut(row.name, 38), drawing("title", {}, row.name)),
      drawing("rect", {class: "bar " + row.kind, x: left, y: i * 22 + 6, width: Math.max(1, row.value / widest * wide), height: 15, rx: 2}),
      drawing("text", {x: left + row.value / widest * wide + 6, y: i * 22 + 18, class: "quiet"}, row.text)));
    host.append(element("div", {class: "tools"}, svgButton(() => svg, file)), element("div", {class: "scroll"}, svg));
  }

  function ticks(low, high, about) {
    const raw = (high - low) / about || 1, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(s => s * power >= raw) * power;
    const made = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) made.push(Math.abs(value) < step * 1e-9 ? 0 : value);
    return made;
  }

  // points: [{x, y, text, color, dim, click}]. `diagonal` draws the line of equal values.
  function pointChart(host, points, {x: xName, y: yName, file, diagonal, share}) {
    const width = 520, height = 380, left = 68, right = 14, top = 12, bottom = 46;
    const sound = points.filter(p => finite(p.x) && finite(p.y));
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const p of sound) { x0 = Math.min(x0, p.x); x1 = Math.max(x1, p.x); y0 = Math.min(y0, p.y); y1 = Math.max(y1, p.y); }
    if (sound.length === 0) { host.append(element("p", {class: "quiet"}, "There are no values.")); return; }
    if (diagonal) { x0 = y0 = Math.min(x0, y0); x1 = y1 = Math.max(x1, y1); }
    const pad = (a, b) => { const room = (b - a || Math.abs(a) || 1) * .05; return [a - room, b + room]; };
    [x0, x1] = pad(x0, x1); [y0, y1] = pad(y0, y1);
    const atX = v => left + (v - x0) / (x1 - x0) * (width - left - right), atY = v => height - bottom - (v - y0) / (y1 - y0) * (height - top - bottom);
    const svg = drawing("svg", {width, height, viewBox: `0 0 ${width} ${height}`, style: {maxWidth: "100%", height: "auto"}, role: "img", "aria-label": `${yName} against ${xName}, ${sound.length} points`});
    for (const v of ticks(x0, x1, 6)) svg.append(drawing("path", {class: "line", d: `M${atX(v)} ${top} V${height - bottom}`}), drawing("text", {x: atX(v), y: height - bottom + 16, "text-anchor": "middle", class: "quiet"}, number(v)));
    for (const v of ticks(y0, y1, 6)) svg.append(drawing("path", {class: "line", d: `M${left} ${atY(v)} H${width - right}`}), drawing("text", {x: left - 6, y: atY(v) + 4, "text-anchor": "end", class: "quiet"}, share ? percent(v, 1) : number(v)));
    if (diagonal) svg.append(drawing("path", {class: "edge", d: `M${atX(x0)} ${atY(x0)} L${atX(x1)} ${atY(x1)}`, "stroke-dasharray": "5 4"}));
    for (const p of sound) {
      const dot = drawing("circle", {cx: atX(p.x).toFixed(1), cy: atY(p.y).toFixed(1), r: sound.length > 500 ? 2 : 4.5, style: {fill: `var(--c${(p.color || 0) % 8})`, opacity: p.dim ? .25 : sound.length > 500 ? .5 : .85}});
      if (p.text) { dot.addEventListener("pointermove", event => showTip(event, p.text)); dot.addEventListener("pointerleave", hideTip); }
      if (p.click) { dot.style.cursor = "pointer"; dot.addEventListener("click", p.click); }
      svg.append(dot);
    }
    svg.append(drawing("text", {x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"}, xName),
      drawing("text", {x: 14, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(top + height - bottom) / 2})`}, yName));
    host.append(element("div", {class: "tools"}, svgButton(() => svg, file)), svg);
  }

  Object.assign(Lockstep, {classScores, confusionChart, classTable, layerGraph, bars, pointChart, ticks, cut});
})();
