// A sweep: parallel coordinates with brushing, each parameter against the metric, learning curves. `data` is what
// sweep_data() in sweep_page.h describes.
"use strict";
(() => {
  const {element, drawing, clear, finite, count, number, percent, svgButton, showTip, hideTip, section, facts, CurveGroup} = Lockstep;

  // A scale of an axis: numbers (by their logarithm if they span much), or words in their order.
  function axisOf(name, values) {
    const known = values.filter(v => v !== null && v !== undefined), numbers = known.every(finite) && known.length > 0;
    if (!numbers) {
      const words = [...new Set(known.map(String))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
      return {name, position: v => v === null || v === undefined ? null : words.length < 2 ? .5 : words.indexOf(String(v)) / (words.length - 1),
        marks: words.slice(0, 12).map((word, i) => [words.length < 2 ? .5 : i / (words.length - 1), Lockstep.cut(word, 12)])};
    }
    const low = Math.min(...known), high = Math.max(...known), log = low > 0 && high / low > 30;
    const at = log ? Math.log : v => v, a = at(low), b = at(high);
    const marks = log ? [low, Math.sqrt(low * high), high] : high > low ? [low, (low + high) / 2, high] : [low];
    return {name, position: v => finite(v) ? b > a ? (at(v) - a) / (b - a) : .5 : null, marks: marks.map(v => [b > a ? (at(v) - a) / (b - a) : .5, number(v, 3)])};
  }

  // rows: [{values: {axis: value}, text, color 0 to 1, dim, row}]. selected(rows) follows the brushes.
  function parallelCoordinates(host, names, rows, file, selected) {
    const axes = names.map(name => axisOf(name, rows.map(row => row.values[name])));
    const left = 84, top = 34, tall = 260, room = (host.clientWidth || 1300) - 40 - 2 * left;
    const gap = Math.max(130, Math.min(270, room / Math.max(1, axes.length - 1)));
    const width = left * 2 + gap * (axes.length - 1), height = top + tall + 24, brushes = new Map();
    const svg = drawing("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Parallel coordinates of ${rows.length} trials over ${names.join(", ")}`});
    const y = share => top + (1 - share) * tall;
    const lines = rows.map(row => {
      let path = "", pen = "M";
      axes.forEach((axis, i) => { const p = axis.position(row.values[axis.name]); if (p === null) return; path += `${pen}${left + i * gap} ${y(p).toFixed(1)} `; pen = "L"; });
      const line = drawing("path", {d: path || "M0 0", fill: "none", class: "trial", "stroke-width": 1.6,
        style: {stroke: finite(row.color) ? `color-mix(in srgb, var(--c0) ${(100 * row.color).toFixed(0)}%, var(--c1))` : "var(--quiet)"}});
      line.addEventListener("pointermove", event => showTip(event, row.text));
      line.addEventListener("pointerleave", hideTip);
      if (row.click) { line.style.cursor = "pointer"; line.addEventListener("click", row.click); }
      svg.append(line);
      return line;
    });
    const said = element("p", {class: "quiet small", "aria-live": "polite"});
    function holds(row) {
      return [...brushes].every(([axis, [low, high]]) => { const p = axis.position(row.values[axis.name]); return p !== null && p >= low - 1e-9 && p <= high + 1e-9; });
    }
    function apply() {
      const inside = rows.filter(holds);
      rows.forEach((row, i) => { const here = holds(row); lines[i].style.opacity = here ? row.dim ? .35 : .9 : .06; lines[i].setAttribute("data-inside", here); });
      said.textContent = brushes.size ? `${count(inside.length)} of ${count(rows.length)} trials are in the brushes.` : "Drag along an axis to select; with the keyboard: Tab to an axis, arrows move, Escape removes.";
      selected(inside, brushes.size > 0);
    }
    axes.forEach((axis, i) => {
      const x = left + i * gap;
      const box = drawing("rect", {x: x - 9, width: 18, y: top, height: 0, style: {fill: "var(--accent)", opacity: .25}, visibility: "hidden"});
      const hit = drawing("rect", {x: x - 16, y: top - 6, width: 32, height: tall + 12, style: {fill: "transparent", cursor: "crosshair"}, tabindex: "0", role: "slider", class: "axis",
        "aria-label": `Brush of ${axis.name}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 0, "aria-valuetext": "none"});
      svg.append(drawing("path", {d: `M${x} ${top} V${top + tall}`, style: {stroke: "var(--text)"}}),
        drawing("text", {x, y: 18, "text-anchor": "middle", "font-weight": "600"}, Lockstep.cut(axis.name, 24)),
        ...axis.marks.map(([share, text]) => drawing("text", {x: x + 7, y: y(share) + 4, class: "quiet"}, text)), box, hit);
      function set(low, high) {
        if (low === null) brushes.delete(axis); else brushes.set(axis, [Math.max(0, low), Math.min(1, high)]);
        const [a, b] = brushes.get(axis) || [0, 0];
        box.setAttribute("visibility", low === null ? "hidden" : "visible");
        box.setAttribute("y", y(b));
        box.setAttribute("height", y(a) - y(b));
        hit.setAttribute("aria-valuenow", Math.round(100 * a));
        hit.setAttribute("aria-valuetext", low === null ? "none" : `from ${Math.round(100 * a)} to ${Math.round(100 * b)} percent of the axis`);
        apply();
      }
      const share = event => { const at = svg.getBoundingClientRect(); return Math.max(0, Math.min(1, 1 - ((event.clientY - at.top) * height / at.height - top) / tall)); };
      let from = null;
      hit.addEventListener("pointerdown", event => { from = share(event); try { hit.setPointerCapture(event.pointerId); } catch { /* a pointer without capture */ } event.preventDefault(); hit.focus(); });
      hit.addEventListener("pointermove", event => { if (from !== null) { const to = share(event); if (Math.abs(to - from) > .01) set(Math.min(from, to), Math.max(from, to)); } });
      hit.addEventListener("pointerup", event => { if (from !== null && Math.abs(share(event) - from) <= .01) set(null); from = null; });
      hit.addEventListener("keydown", event => {
        const [a, b] = brushes.get(axis) || [.5, 1], step = .05;
        if (event.key === "ArrowUp") set(Math.min(a + step, 1 - (b - a)), Math.min(1, b + step));
        else if (event.key === "ArrowDown") set(Math.max(0, a - step), Math.max(b - a, b - step));
        else if (event.key === "Enter" || event.key === " ") set(a, b);
        else if (event.key === "Escape") set(null);
        else return;
        event.preventDefault();
      });
    });
    host.append(element("div", {class: "tools"}, svgButton(() => svg, file)), said, element("div", {class: "scroll"}, svg));
    apply();
  }

  const shortName = name => name.replace(/^training\./, "");
  const shownValue = (metric, v) => Lockstep.isShare(metric) ? percent(v) : number(v);

  // openRun(trial) shows a trial's run.
  function sweepParts(host, data, openRun, stopTrial = null) {
    const trials = data.trials, metric = data.metric, up = data.goal === "maximize", file = "sweep";
    const names = [...new Set(trials.flatMap(t => Object.keys(t.parameters)))];
    const values = trials.map(t => t.value).filter(finite), low = Math.min(...values), high = Math.max(...values);
    const good = v => finite(v) && high > low ? up ? (v - low) / (high - low) : (high - v) / (high - low) : finite(v) ? 1 : NaN;
    const text = t => `trial ${t.trial}: ${names.map(name => `${shortName(name)} ${t.parameters[name] ?? "–"}`).join(", ")}; ${metric} ${shownValue(metric, t.value)} after ${count(t.budget)} epochs; ${t.state}`;
    const best = trials.find(t => t.trial === data.best) || trials.filter(t => finite(t.value) && t.budget >= data.budget).sort((a, b) => good(b.value) - good(a.value))[0];
    section(host, "Sweep", node => {
      node.append(facts([["Trials", count(trials.length)], ["Finished", count(trials.filter(t => t.budget >= data.budget || t.final).length)], ["Pruned", count(trials.filter(t => t.pruned).length)],
        ["Metric", `${metric}, ${data.goal}`, true], best ? ["Best trial", String(best.trial)] : ["", null], best ? ["Its value", shownValue(metric, best.value)] : ["", null],
        finite(data.result?.test_accuracy) ? ["Test accuracy", percent(data.result.test_accuracy)] : ["", null]]));
      const importance = Object.entries(data.result?.importance || {}).filter(([, v]) => finite(v));
      if (importance.length) {
        node.append(element("h3", {}, "Importance of the parameters"));
        Lockstep.bars(node, importance.sort((a, b) => b[1] - a[1]).map(([name, v]) => ({name, value: Math.max(0, v), kind: "", text: percent(v, 1)})), file + "-importance", "Importance");
      }
    });
    let chart = null, group = null, table = null, inside = new Set(trials), brushed = false;
    const series = () => trials.filter(t => t.curve?.x.length).map(t => ({name: `trial ${t.trial}`, color: t.trial, x: t.curve.x, y: t.curve.y, wide: t === best, sparse: true,
      dim: t.pruned && t !== best || brushed && !inside.has(t), dots: t.curve.x.length < 40, click: () => openRun(t)}));
    section(host, "Parallel coordinates", node => parallelCoordinates(node, [...names, metric], trials.map(t => ({values: {...t.parameters, [metric]: t.value}, text: text(t), color: good(t.value), dim: t.pruned, click: () => openRun(t), row: t})),
      file + "-parallel", (rows, any) => { inside = new Set(rows.map(row => row.row)); brushed = any; chart?.set(series(), []); table?.set(trials.filter(t => inside.has(t))); }));
    section(host, "Learning curves", node => {
      node.append(element("p", {class: "quiet small"}, "Pruned trials are dim. A click on a curve shows its run."));
      group = new CurveGroup(node, () => chart.set(series(), []), {smoothing: false, axis: false});
      chart = group.chart(node, {title: metric, share: Lockstep.isShare(metric), x: "epoch", file: file + "-curves"});
      chart.set(series(), []);
    });
    section(host, "Parameters", node => {
      const parts = element("div", {class: "columns", style: {marginTop: 0}});
      node.append(parts);
      for (const name of names) {
        const part = element("div");
        parts.append(part);
        const all = trials.map(t => t.parameters[name]), numeric = all.every(v => v === undefined || finite(v));
        const words = [...new Set(all.map(String))].sort();
        Lockstep.pointChart(part, trials.map(t => ({x: numeric ? t.parameters[name] : words.indexOf(String(t.parameters[name])), y: t.value, text: text(t), dim: t.pruned, click: () => openRun(t)})),
          {x: numeric ? name : `${name} (${words.map((word, i) => i + ": " + word).join(", ")})`, y: metric, file: `${file}-${name}`, share: Lockstep.isShare(metric)});
      }
    });
    section(host, "Trials", node => {
      table = Lockstep.sortedTable([{name: "Trial", number: true, value: t => t.trial, cell: t => element("a", {href: "#", on: {click: event => { event.preventDefault(); openRun(t); }}}, t.trial)},
        ...names.map(name => ({name: shortName(name), number: trials.every(t => finite(t.parameters[name])), value: t => t.parameters[name] ?? null, cell: t => finite(t.parameters[name]) ? number(t.parameters[name], 6) : String(t.parameters[name] ?? "–")})),
        {name: metric, number: true, value: t => t.value, cell: t => shownValue(metric, t.value)}, {name: "Epochs", number: true, value: t => t.budget}, {name: "State", value: t => t.state + (t.reason ? ": " + t.reason : ""), cell: t => stopTrial && t.open ? element("span", {}, t.state + " ", element("button", {type: "button", class: "stop", "aria-label": `Stop trial ${t.trial}`, on: {click: event => stopTrial(t, event.target)}}, "Stop")) : t.state + (t.reason ? ": " + t.reason : "")}],
      trials, {caption: "Trials", by: names.length + 1, down: up, rowClass: t => t === best ? "differs" : null});
      node.append(element("div", {class: "scroll"}, table.table));
    });
    return {chart: () => chart, remove: () => chart?.remove(), inside: () => inside.size};
  }

  function sweepReport(data) {
    document.title = `${data.name} – Lockstep sweep`;
    const main = element("main");
    document.body.append(element("header", {class: "top"}, element("div", {}, element("h1", {}, Lockstep.breakable(data.name)), element("span", {class: "quiet small"}, Lockstep.breakable(data.folder)), element("span", {class: "space"}), Lockstep.themeButton())), main);
    const made = sweepParts(main, data, trial => { location.href = `trials/${Number(trial.trial)}/report.html`; });
    for (const note of data.notes || []) main.append(element("p", {class: "quiet small"}, note));
    for (const [part, confusion] of Object.entries(data.confusion || {})) {
      const pair = element("div", {class: "columns"});
      main.append(pair);
      section(pair, `Confusion of the best network (${part})`, node => Lockstep.confusionChart(node, confusion, `sweep-${part}-confusion`));
      section(pair, `Classes (${part})`, node => Lockstep.classTable(node, confusion));
    }
    return made;
  }
  Object.assign(Lockstep, {parallelCoordinates, sweepParts, sweepReport});
})();
