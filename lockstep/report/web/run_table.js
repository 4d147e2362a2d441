// The table of runs in the dashboard: filter, order, columns, tags and notes.
"use strict";
(() => {
  const {element, clear, finite, count, number, percent, duration, section, badge, breakable, isShare} = Lockstep;
  const kMostRows = 500;

  const remember = (key, value) => { try { localStorage.setItem("lockstep." + key, JSON.stringify(value)); } catch { /* no storage: forgotten */ } };
  const remembered = (key, otherwise) => { try { return JSON.parse(localStorage.getItem("lockstep." + key)) ?? otherwise; } catch { return otherwise; } };
  const valueText = (metric, v) => isShare(metric) ? percent(v) : finite(v) ? number(v) : v === undefined || v === null ? "–" : String(v);

  const began = run => run.created || run.time || "";
  // What runs now comes first, then the newest.
  const firstRunning = (a, b) => (b.status === "running") - (a.status === "running") || (began(a) < began(b) ? 1 : began(a) > began(b) ? -1 : 0) || (a.folder < b.folder ? -1 : 1);
  // The names of metrics of some runs, without loss and accuracy.
  const metricsOf = runs => [...new Set(runs.flatMap(run => Object.keys(run.metrics || {})))].filter(name => name !== "loss" && name !== "accuracy");
  // The scores of finished networks on the test data: "test.f1".
  const testsOf = runs => [...new Set(runs.flatMap(run => Object.keys(run.scores || {})))].filter(name => name.startsWith("test."));

  // A dialog for the tags and the note of a run. save({tags, note}) may fail, which is said in it.
  function notesDialog(run, known, save) {
    const tags = [...run.tags || []], chips = element("div", {class: "chips"}), problem = element("p", {class: "message", role: "alert", hidden: true});
    const field = element("input", {type: "text", "aria-label": "New tag", placeholder: "a tag, then Enter", size: 18, on: {keydown: event => {
      if (event.key === "Enter" || event.key === ",") { event.preventDefault(); take(); }
      else if (event.key === "Backspace" && !field.value && tags.length) { tags.pop(); draw(); }
    }}});
    const note = element("textarea", {rows: 4, "aria-label": "Note"}, run.note || "");
    function take(text = field.value) {
      for (const tag of text.split(/[\s,]+/).filter(Boolean)) if (!tags.includes(tag)) tags.push(tag);
      field.value = "";
      draw();
      field.focus();
    }
    function draw() {
      const others = known.filter(tag => !tags.includes(tag)).slice(0, 20);
      clear(chips).append(...tags.map(tag => element("button", {type: "button", class: "chip", "aria-label": "Remove tag " + tag, title: "Remove",
        on: {click: () => { tags.splice(tags.indexOf(tag), 1); draw(); field.focus(); }}}, tag + " ×")),
      ...others.map(tag => element("button", {type: "button", class: "chip add", "aria-label": "Add tag " + tag, on: {click: () => take(tag)}}, "+ " + tag)));
    }
    const form = element("form", {method: "dialog", on: {submit: async event => {
      event.preventDefault();
      if (field.value.trim()) take();
      try {
        await save({tags, note: note.value});
        dialog.close();
      } catch (error) { problem.textContent = error.message; problem.hidden = false; }
    }}}, element("h2", {}, "Tags and note of ", breakable(run.name)), element("p", {class: "quiet small"}, breakable(run.folder)),
    element("label", {class: "above"}, "Tags", field), chips, element("label", {class: "above"}, "Note", note), problem,
    element("div", {class: "tools end"}, element("button", {type: "button", on: {click: () => dialog.close()}}, "Cancel"), element("button", {type: "submit", class: "main"}, "Save")));
    const dialog = element("dialog", {"aria-label": "Tags and note of " + run.name, on: {close: () => dialog.remove()}}, form);
    document.body.append(dialog);
    draw();
    dialog.showModal();
    field.focus();
  }

  // host: the page; runs: a map by id; load(path) and annotate(run, notes) ask the server. Returns {update()}, to be called
  // when runs have changed, and `filtered`.
  function runTable(host, runs, {load, annotate}) {
    const state = {filter: "", sort: "", down: false, options: false, columns: {}, ...remembered("runs", {})};
    const keep = () => remember("runs", state);
    const chosen = new Set(remembered("chosen", []));
    const info = element("span", {class: "quiet", "aria-live": "polite"}), holder = element("div", {class: "scroll", style: {maxHeight: "none"}});
    // The server reads the filter: it is the one of `lockstep runs list`, with its errors.
    let fitting = null, asked = 0, later = null, differences = null;
    const wrong = element("p", {class: "message", role: "alert", hidden: true});
    const filter = element("input", {type: "search", value: state.filter, size: 34, placeholder: "validation.loss < 0.5 and tag = good", "aria-label": "Filter",
      title: "A condition as for lockstep runs list --where, such as: width = 8 and not state = failed, or name ~ digits",
      on: {input: () => { state.filter = filter.value; keep(); ask(250); }}});
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
    const compare = element("button", {type: "button", class: "main", on: {click: () => { location.hash = "#/compare/" + [...chosen].join(","); }}}, "Side by side");
    const withOptions = element("input", {type: "checkbox", on: {change: () => {
      state.options = withOptions.checked;
      keep();
      if (state.options) return askOptions();
      differences = null;
      compared = -1;
      draw(true);
    }}});
    withOptions.checked = state.options;
    // Variables, options and the network, where runs differ in them.
    // One request at a time: for each, the server reads the files of all runs.
    let compared = -1, asking = false;  // runs
    async function askOptions() {
      if (asking || !state.options || runs.size === compared) return;
      asking = true;
      const size = runs.size;
      let found = differences;
      try { found = await load("/api/differences?ids="); } catch (error) { wrong.textContent = error.message; wrong.hidden = false; }
      asking = false;
      differences = state.options ? found : null;  // it may have been switched off
      compared = state.options ? size : -1;
      draw(true);
      if (runs.size !== size) setTimeout(() => { if (holder.isConnected) askOptions(); }, 2000);
    }
    const order = element("select", {"aria-label": "Order", on: {change: () => { state.sort = order.value; state.down = !!all().find(c => c.key === state.sort)?.number; keep(); draw(true); }}});
    const chooser = element("div", {class: "menu-list"});
    section(host, "Runs", node => node.append(element("div", {class: "tools"}, filter, element("label", {}, "Order", order),
      element("details", {class: "menu"}, element("summary", {}, "Columns"), chooser), element("label", {title: "Variables, options and the network, where runs differ in them"}, withOptions, "What differs"), compare, info), wrong, holder));

    const choose = run => {
      const box = element("input", {type: "checkbox", "aria-label": "Choose " + run.name, on: {change: () => {
        if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
        remember("chosen", [...chosen]);
        tell();
      }}});
      box.checked = chosen.has(run.id);
      return box;
    };
    const nameOf = run => [element("a", {href: "#/run/" + run.id}, breakable(run.name || "run")), element("div", {class: "quiet small"}, breakable(run.folder)),
      run.damage ? element("div", {class: "small", title: run.damage}, "The log cannot be read in full") : null];
    const notes = run => [(run.tags || []).map(tag => [element("span", {class: "state"}, tag), " "]), run.note || "", " ",
      element("button", {type: "button", class: "small", "aria-label": "Edit tags and note of " + run.name, on: {click: () => edit(run)}}, "Edit")];
    function edit(run) {
      const known = [...new Set([...runs.values()].flatMap(one => one.tags || []))].sort();
      notesDialog(run, known, async noted => { await annotate(run, noted); draw(); });
    }
    const metric = (name, of, key = name, shownFirst = true) => ({name, number: true, value: run => of(run), cell: run => valueText(key, of(run)), hidden: !shownFirst});
    // All columns that the runs have values for. Choices are by `key`: two options may have the same short name.
    function all() {
      const list = [...runs.values()], some = of => list.some(run => of(run) !== undefined && of(run) !== null);
      const made = [
        {name: "Chosen", short: "✓", kind: "choice", value: run => chosen.has(run.id) ? 0 : 1, cell: choose, always: true},
        {name: "Run", kind: "name", value: run => run.folder, cell: nameOf, always: true},
        {name: "State", value: run => run.status, cell: run => badge(run.status)}];
      const names = differences?.names || [], short = names.map(name => name.replace(/^(variables|training|network\.layers)\./, ""));
      names.forEach((name, i) => {
        const of = run => differences.values[run.id]?.[i] ?? null, all = list.map(of).filter(v => v !== null), numeric = all.length > 0 && all.every(v => v !== "" && finite(Number(v)));
        made.push({key: name, name: short.indexOf(short[i]) === short.lastIndexOf(short[i]) ? short[i] : name, title: name, number: numeric, kind: numeric ? null : "option",
          value: run => numeric && of(run) !== null ? Number(of(run)) : of(run), cell: run => of(run) === null ? "–" : numeric ? of(run) : breakable(of(run))});
      });
      made.push({name: "Progress", number: true, value: run => run.iterations ? (run.iteration || 0) / run.iterations : null,
          cell: run => run.iterations ? `${percent((run.iteration || 0) / run.iterations, 0)} of ${count(run.iterations)}` : count(run.iteration)},
        metric("Loss", run => run.loss), metric("Validation loss", run => run.validation_loss), metric("Best loss", run => run.best_loss));
      if (some(run => run.best_accuracy)) made.push(metric("Validation accuracy", run => run.validation_accuracy, "accuracy", false), metric("Best accuracy", run => run.best_accuracy, "accuracy"));
      for (const name of metricsOf(list)) made.push(metric("Validation " + name, run => run.metrics?.[name], name, false), metric("Best " + name, run => run.best?.[name], name));
      for (const name of testsOf(list)) made.push(metric("Test " + name.slice(5), run => run.scores?.[name], name, name === "test.accuracy"));
      made.push({name: "Duration", number: true, value: run => run.elapsed, cell: run => duration(run.elapsed)},
        {name: "Started", kind: "time", value: began, cell: run => began(run).replace("T", " ").replace("Z", "") || "–"},
        {name: "Tags and note", kind: "note", value: run => (run.tags || []).join(" ") + " " + (run.note || ""), cell: notes});
      return made.map(column => ({key: column.name, ...column}));
    }
    const isShown = column => column.always || (state.columns[column.key] ?? !column.hidden);
    function fillTools(columns) {
      clear(order).append(element("option", {value: ""}, "running first, then the newest"), ...columns.filter(c => c.key !== "Chosen").map(c => element("option", {value: c.key}, c.name)));
      order.value = columns.some(c => c.key === state.sort) ? state.sort : "";
      clear(chooser).append(...columns.filter(column => !column.always).map(column => {
        const box = element("input", {type: "checkbox", on: {change: () => { state.columns[column.key] = box.checked; keep(); draw(true); }}});
        box.checked = isShown(column);
        return element("label", {}, box, column.name);
      }));
    }
    function tell(found) {
      if (found !== undefined) info.textContent = `${count(found)} of ${count(runs.size)} runs`;
      compare.disabled = chosen.size < 1;
      compare.textContent = `Side by side (${chosen.size})`;
    }
    let table = null, shown = "";
    function draw(rebuild) {
      const rows = [...runs.values()].filter(run => !fitting || fitting.has(run.id)), known = all(), columns = known.filter(isShown), keys = columns.map(c => c.key).join("\n");
      if (!table || rebuild || keys !== shown) {
        shown = keys;
        if (!chooser.contains(document.activeElement)) fillTools(known);
        table = Lockstep.sortedTable(columns, rows, {caption: "Runs", by: columns.findIndex(c => c.key === state.sort), down: state.down, order: firstRunning, most: kMostRows,
          sorted: (by, down) => { state.sort = columns[by].key; state.down = down; order.value = state.sort; keep(); }, rowClass: run => chosen.has(run.id) ? "chosen" : null});
        clear(holder).append(table.table);
      } else {
        table.set(rows);
      }
      tell(rows.length);
    }
    ask(0);
    askOptions();
    return {update() {
      if (holder.contains(document.activeElement) || document.querySelector("dialog")) return;
      askOptions();
      if (state.filter.trim()) ask(0);
      else draw();
    }, get filtered() { return !!state.filter.trim(); }};
  }

  Object.assign(Lockstep, {runTable, remember, remembered, valueText, metricsOf, testsOf});
})();
