// Common parts of the pages. Text from runs reaches a page as text nodes and attributes alone.
"use strict";
const Lockstep = {};

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
      else if (name === "style") Object.assign(node.style, value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  // element("p", {class: "quiet"}, "text", child)
  const element = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  const drawing = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  const clear = node => { while (node.firstChild) node.firstChild.remove(); return node; };

  const finite = value => typeof value === "number" && Number.isFinite(value);
  const count = value => finite(value) ? Math.round(value).toLocaleString("en-US") : "–";
  function number(value, digits = 4) {
    if (!finite(value)) return "–";
    const short = Number(value.toPrecision(digits));
    return String(Number.isInteger(short) ? Number(value.toPrecision(digits + 2)) : short);  // 0.99998 is not 1
  }
  const percent = (value, digits = 2) => finite(value) ? (100 * value).toFixed(digits) + " %" : "–";
  function duration(seconds) {
    if (!finite(seconds)) return "–";
    const s = Math.max(0, Math.floor(seconds)), two = n => String(n).padStart(2, "0");
    return Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
  }
  const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // Calls the function when light changes to dark or back.
  const redraws = new Set();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach(run => run()));
  function onTheme(run) { redraws.add(run); return () => redraws.delete(run); }
  function themeButton() {
    const button = element("button", {type: "button", title: "Light, dark, or as the system"});
    const show = () => { button.textContent = {light: "Light", dark: "Dark"}[document.documentElement.dataset.theme] || "Automatic"; };
    try { document.documentElement.dataset.theme = localStorage.getItem("lockstep.theme") || ""; } catch { /* a file may have no storage */ }
    button.addEventListener("click", () => {
      const next = {"": "light", light: "dark", dark: ""}[document.documentElement.dataset.theme || ""];
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem("lockstep.theme", next); } catch { /* as above */ }
      show();
      redraws.forEach(run => run());
    });
    show();
    return button;
  }

  function save(blob, name) {
    const link = element("a", {href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "_")});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  // An SVG file with the colors and fonts that the page gives the drawing.
  function svgText(svg) {
    const copy = svg.cloneNode(true);
    const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
    from.forEach((node, i) => {
      const style = getComputedStyle(node);
      for (const name of ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family", "font-weight"]) {
        to[i].setAttribute(name, style.getPropertyValue(name));
      }
      to[i].removeAttribute("class");
    });
    copy.setAttribute("xmlns", SVG);
    copy.setAttribute("style", "background:" + color("card"));
    return new XMLSerializer().serializeToString(copy);
  }
  const svgButton = (svg, name) => element("button", {type: "button", on: {click: () =>
    save(new Blob([svgText(svg())], {type: "image/svg+xml"}), name + ".svg")}}, "Save as SVG");

  // The one tip of the page, next to the pointer.
  let tip = null;
  function showTip(event, text) {
    if (!tip) { tip = element("div", {class: "tip", "aria-hidden": "true"}); document.body.append(tip); }
    tip.textContent = text;
    tip.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
    tip.style.left = Math.max(4, x) + "px";
    tip.style.top = (below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 10) + "px";
  }
  const hideTip = () => { if (tip) tip.hidden = true; };

  // Text that may break after separators: paths and names would break anywhere otherwise, or nowhere.
  const breakable = text => String(text).split(/(?<=[/_.,=-])/).flatMap((part, i) => i ? [element("wbr"), part] : [part]);

  // A table with columns that sort by click. columns: {name, number?, value(row), cell?(row), kind?: class}. options: by
  // (index, -1: in `order`, a comparison of rows, or as they come), down, sorted(by, down), most, more, rowClass(row).
  function sortedTable(columns, rows, options = {}) {
    let by = options.by ?? -1, down = options.down ?? false;
    const body = element("tbody"), heads = [];
    const table = element("table", {class: "wide"}, element("caption", {class: "hidden"}, options.caption || ""),
      element("thead", {}, element("tr", {}, columns.map((column, i) => {
        const head = element("th", {scope: "col", class: column.number ? "number" : column.kind || null, title: column.title || (column.short ? column.name : null),
          style: /\S{14}/.test(column.name) ? {minWidth: "9em"} : {}},
          element("button", {type: "button", on: {click: () => { down = by === i ? !down : !!column.number; by = i; draw(); options.sorted?.(by, down); }}}, breakable(column.short || column.name)));
        heads.push(head);
        return head;
      }))), body);
    function draw() {
      heads.forEach((head, i) => head.setAttribute("aria-sort", i !== by ? "none" : down ? "descending" : "ascending"));
      const order = [...rows];
      if (by < 0 && options.order) order.sort(options.order);
      if (by >= 0) {
        const value = columns[by].value, missing = v => v === null || v === undefined || Number.isNaN(v);
        order.sort((a, b) => {
          const x = value(a), y = value(b);
          if (missing(x) || missing(y)) return missing(x) - missing(y);
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", {numeric: true});
          return down ? -order : order;
        });
      }
      const limit = options.most ?? Infinity;
      clear(body).append(...order.slice(0, limit).map(row => {
        const line = element("tr", {class: options.rowClass?.(row)}, columns.map(column =>
          element("td", {class: column.number ? "number" : column.kind || null}, column.cell ? column.cell(row) : String(column.value(row) ?? "–"))));
        return line;
      }));
      if (order.length > limit) body.append(element("tr", {}, element("td", {colspan: columns.length, class: "quiet"}, count(order.length - limit) + " " + (options.more || "more: narrow the filter"))));
    }
    draw();
    return {table, set(next) { rows = next; draw(); }};
  }

  const facts = list => element("dl", {class: "facts"}, list.filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value, small]) => element("div", {}, element("dt", {}, name), element("dd", {class: small ? "small" : null}, value))));

  // A section of a page. What goes wrong in it (a file of another version) is said there and leaves the others alone.
  function section(host, title, build, attributes) {
    const node = element("section", {...attributes, "aria-label": title}, element("h2", {}, breakable(title)));
    host.append(node);
    try {
      build(node);
    } catch (error) {
      node.append(element("p", {class: "message"}, "This part cannot be shown: " + error.message));
    }
    return node;
  }

  Object.assign(Lockstep, {element, drawing, clear, finite, count, number, percent, duration, color, onTheme, themeButton, save,
    svgText, svgButton, showTip, hideTip, breakable, sortedTable, facts, section});
})();
