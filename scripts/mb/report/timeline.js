"use strict";
// The timeline: lanes of ranks and streams on a canvas; zoom, pan, tooltips, and all of it by keys.
(() => {
  const PASSES = {forward: "#56B4E9", backward: "#E69F00", input_grad: "#D55E00", weight_grad: "#F0E442", recompute: "#CC79A7", optimizer: "#009E73"};
  const OTHER = "#999999", HATCHED = "bubble", GUTTER = 190, AXIS = 24, HEIGHT = 18, GAP = 8;
  const MOST_ARROWS = 400;  // in view; of more, those of the operation that is pointed at or chosen
  const byId = (name) => document.getElementById("timeline-" + name);
  const canvas = byId("canvas"), context = canvas.getContext("2d"), tip = byId("tip"), said = byId("said");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false, trace, lanes = [], view = [0, 1], chosen = null, hover = null, drag = null;

  // Spans with absolute times, from [start after the start before, length, label, wait, ...].
  const unpack = (flat) => {
    const spans = [];
    for (let i = 0, start = 0; i < flat.length; i += 4) {
      start += flat[i];
      spans.push({start, end: start + flat[i + 1], label: flat[i + 2], wait: flat[i + 3]});
    }
    return spans;
  };
  // Messages, from [lane and time of the send, lane and time of the receive, ...], by time.
  const messages = (flat, all) => {
    const found = [];
    for (let i = 0; i < flat.length; i += 4) found.push({from: all[flat[i]], start: flat[i + 1], to: all[flat[i + 2]], end: flat[i + 3]});
    return found.sort((a, b) => a.start - b.start);
  };
  const data = JSON.parse(byId("data").textContent);
  // Texts of a label stand at these places of it, as numbers of data.texts.
  const named = (label) => label.map((item, i) => [0, 1, 2, 7].includes(i) && item !== null ? data.texts[item] : item);
  const traces = data.traces.map((t) => {
    const all = t.lanes.map((lane) => ({...lane, spans: unpack(lane.spans)}));
    return {...t, labels: t.labels.map(named), lanes: all, messages: messages(t.arrows, all)};
  });

  const inkOf = () => dark.matches && !printing ? {page: "#15171a", ink: "#e8e8e8", line: "#3a3e45", hatch: "#7d838c"}
                                                : {page: "#ffffff", ink: "#1b1b1b", line: "#d5d5d5", hatch: "#999999"};
  const time = (ns) => Math.abs(ns) >= 1e9 ? (ns / 1e9).toFixed(4) + " s" : Math.abs(ns) >= 1e6 ? (ns / 1e6).toFixed(3) + " ms"
                     : Math.abs(ns) >= 1e3 ? (ns / 1e3).toFixed(2) + " us" : ns + " ns";
  const tick = (ns) => ns === 0 ? "0" : time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
  const width = () => canvas.clientWidth - GUTTER;
  const toX = (ns) => GUTTER + (ns - view[0]) / (view[1] - view[0]) * width();
  const toNs = (x) => view[0] + (x - GUTTER) / width() * (view[1] - view[0]);
  const colour = (label) => label[1] === "compute" || PASSES[label[2]] ? PASSES[label[2]] ?? OTHER : OTHER;

  const describe = ({lane, span}) => {
    const [name, stream, pass, microBatch, chunk, layer, stage, action, bytes] = trace.labels[span.label];
    const parts = [`${name} (${stream}, ${lane.name})`, `${time(span.start)} to ${time(span.end)}: ${time(span.end - span.start)}`];
    if (pass) parts.push(`pass ${pass.replace("_", " ")}` + (microBatch >= 0 ? `, micro-batch ${microBatch}` : "") +
                         (layer >= 0 ? `, layer ${layer}` : "") + (chunk > 0 ? `, chunk ${chunk}` : "") + `, stage ${stage}`);
    if (action) parts.push(action + (bytes !== null ? `, ${bytes.toLocaleString("en")} B` : ""));
    if (span.wait >= 0) parts.push(`waits ${time(span.wait)}, transfers ${time(span.end - span.start - span.wait)}`);
    return parts;
  };

  const place = () => {  // where lanes stand
    lanes = trace.lanes.filter((lane) => byId("all").checked || lane.stream === HATCHED || lane.stream.startsWith("compute"));
    let y = AXIS, rank = null;
    for (const lane of lanes) {
      if (rank !== null && lane.rank !== rank) y += GAP;
      rank = lane.rank;
      lane.y = y;
      y += HEIGHT;
    }
    const height = y + 8, scale = devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
  };

  const firstVisible = (spans) => {  // lanes have no overlaps, so ends are sorted
    let low = 0, high = spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans[middle].end < view[0]) low = middle + 1; else high = middle;
    }
    return low;
  };

  const hatch = (x, y, w, h, ink) => {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.strokeStyle = ink.hatch;
    context.beginPath();
    for (let at = Math.floor((x - h) / 6) * 6; at < x + w; at += 6) { context.moveTo(at, y + h); context.lineTo(at + h, y); }
    context.stroke();
    context.restore();
  };

  const drawSpan = (lane, span, ink) => {
    const x = Math.max(GUTTER, toX(span.start)), w = Math.max(0.7, Math.min(canvas.clientWidth, toX(span.end)) - x);
    const label = trace.labels[span.label];
    if (lane.stream === HATCHED) return hatch(x, lane.y + 3, w, HEIGHT - 6, ink);
    context.fillStyle = colour(label);
    context.globalAlpha = label[1] === "compute" ? 1 : 0.55;
    context.fillRect(x, lane.y + 1, w, HEIGHT - 2);
    context.globalAlpha = 1;
    if (w > 3) { context.strokeStyle = ink.page; context.lineWidth = 0.5; context.strokeRect(x, lane.y + 1, w, HEIGHT - 2); }
    if (w < 16) return;
    const text = context.measureText(label[0]).width < w - 4 ? label[0] : label[0].split(" ")[0];
    context.fillStyle = label[1] === "compute" ? "#000000" : ink.ink;
    if (context.measureText(text).width < w - 2) context.fillText(text, x + 3, lane.y + HEIGHT / 2);
  };

  // Where a lane stands, or what its rank computes if it is not shown.
  const shownFor = (lane) => lanes.includes(lane) ? lane : lanes.find((l) => l.rank === lane.rank && l.stream.startsWith("compute"));
  const touches = (message, mark) => mark && ((message.from === mark.lane && message.start >= mark.span.start && message.start <= mark.span.end) ||
                                             (message.to === mark.lane && message.end >= mark.span.start && message.end <= mark.span.end));
  const drawArrows = (ink) => {
    const within = !byId("messages").checked ? [] : trace.messages.filter((m) => m.end >= view[0] && m.start <= view[1]);
    const few = within.length <= MOST_ARROWS, shown = within.filter((m) => few || touches(m, chosen) || touches(m, hover));
    context.save();
    context.beginPath();
    context.rect(GUTTER, AXIS, width(), canvas.clientHeight - AXIS);
    context.clip();
    for (const message of shown) {
      const from = shownFor(message.from), to = shownFor(message.to);
      if (!from || !to) continue;
      const down = to.y > from.y, x = toX(message.start), end = toX(message.end);
      const y = from.y + (down ? HEIGHT - 2 : 2), tip = to.y + (down ? 2 : HEIGHT - 2), head = down ? -5 : 5;
      const bold = touches(message, chosen) || touches(message, hover);
      context.strokeStyle = context.fillStyle = ink.ink;
      context.globalAlpha = bold ? 1 : 0.45;
      context.lineWidth = bold ? 1.8 : 0.8;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(end, tip);
      context.stroke();
      context.beginPath();
      context.moveTo(end, tip); context.lineTo(end - 3, tip + head); context.lineTo(end + 3, tip + head);
      context.fill();
    }
    context.restore();
    return shown.length;
  };

  const axis = (ink, height) => {
    const span = view[1] - view[0], rough = span / Math.max(2, width() / 110), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, power * ([1, 2, 5].find((k) => k * power >= rough) ?? 10));
    context.strokeStyle = ink.line;
    context.fillStyle = ink.ink;
    context.lineWidth = 1;
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      const x = toX(at);
      context.beginPath(); context.moveTo(x, AXIS - 4); context.lineTo(x, height); context.stroke();
      if (x < canvas.clientWidth - 50) context.fillText(tick(Math.round(at)), x + 2, AXIS / 2);
    }
  };

  const draw = () => {
    const ink = inkOf(), height = canvas.clientHeight;
    context.font = "11px 'DejaVu Sans', Verdana, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = ink.page;
    context.fillRect(0, 0, canvas.clientWidth, height);
    axis(ink, height);
    let drawn = 0, rank = null;
    for (const lane of lanes) {
      for (let i = firstVisible(lane.spans); i < lane.spans.length && lane.spans[i].start <= view[1]; ++i, ++drawn) drawSpan(lane, lane.spans[i], ink);
      context.fillStyle = ink.page;
      context.fillRect(0, lane.y, GUTTER, HEIGHT);
      context.fillStyle = ink.ink;
      context.fillText((lane.rank === rank ? "" : lane.name), 4, lane.y + HEIGHT / 2, GUTTER - 80);
      context.fillText(lane.stream, GUTTER - 68, lane.y + HEIGHT / 2, 64);
      rank = lane.rank;
    }
    const arrows = drawArrows(ink);
    for (const [mark, thick] of [[hover, 1], [chosen, 2.5]]) {
      if (!mark || !lanes.includes(mark.lane) || mark.span.end < view[0] || mark.span.start > view[1]) continue;
      const x = Math.max(GUTTER, toX(mark.span.start));
      context.strokeStyle = ink.ink;
      context.lineWidth = thick;
      context.strokeRect(x, mark.lane.y, Math.max(2, Math.min(canvas.clientWidth - 1, toX(mark.span.end)) - x), HEIGHT);
    }
    Object.assign(canvas.dataset, {start: Math.round(view[0]), end: Math.round(view[1]), spans: drawn, lanes: lanes.length, arrows});
  };

  const show = (start, end) => {  // keeps to the step, and to at least 100 ns
    const length = Math.min(Math.max(end - start, 100), trace.window_ns * 1.02);
    const from = Math.min(Math.max(start, -0.01 * trace.window_ns), 1.01 * trace.window_ns - length);
    view = [from, from + length];
    draw();
  };
  const fit = () => show(-0.01 * trace.window_ns, 1.01 * trace.window_ns);
  const zoom = (factor, at = (view[0] + view[1]) / 2) => show(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const pan = (share) => show(view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0]));

  const at = (x, y) => {
    const lane = lanes.find((l) => y >= l.y && y < l.y + HEIGHT);
    if (!lane || x < GUTTER) return null;
    const slack = (view[1] - view[0]) / width(), ns = toNs(x);
    for (let i = firstVisible(lane.spans); i < lane.spans.length && lane.spans[i].start <= ns + slack; ++i)
      if (lane.spans[i].end >= ns - slack) return {lane, span: lane.spans[i]};
    return null;
  };
  const choose = (mark) => {
    chosen = mark;
    said.textContent = mark ? describe(mark).join("; ") + "." : "No operation chosen.";
    if (mark && (mark.span.end < view[0] || mark.span.start > view[1])) {
      const half = (view[1] - view[0]) / 2, middle = (mark.span.start + mark.span.end) / 2;
      show(middle - half, middle + half);
    } else draw();
  };
  const step = (by) => {
    const lane = chosen && lanes.includes(chosen.lane) ? chosen.lane : lanes.find((l) => l.stream === "compute") ?? lanes[0];
    if (!lane) return;
    const index = chosen && chosen.lane === lane ? lane.spans.indexOf(chosen.span) + by : firstVisible(lane.spans);
    if (lane.spans[index]) choose({lane, span: lane.spans[index]});
  };
  const otherLane = (by) => {
    const lane = lanes[(chosen ? lanes.indexOf(chosen.lane) : -1) + by];
    if (!lane || !lane.spans.length) return;
    const when = chosen ? chosen.span.start : view[0];
    choose({lane, span: lane.spans.reduce((a, b) => Math.abs(b.start - when) < Math.abs(a.start - when) ? b : a)});
  };

  const legend = () => {
    const box = byId("legend"), used = new Set(trace.labels.filter((l) => l[1] !== HATCHED).map((l) => PASSES[l[2]] ? l[2] : "other"));
    box.replaceChildren();
    for (const name of [...Object.keys(PASSES), "other"].filter((n) => used.has(n))) {
      const item = document.createElement("span"), swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.style.background = PASSES[name] ?? OTHER;
      item.append(swatch, name.replace("_", " "));
      box.append(item);
    }
    box.append("Pale: communication of that pass.");
  };
  const open = (index) => {
    trace = traces[index];
    chosen = hover = null;
    said.textContent = "No operation chosen.";
    place();
    legend();
    fit();
  };

  const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => { drag = {x: spot(event)[0], view: [...view], moved: false}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = spot(event);
    if (drag) {
      drag.moved ||= Math.abs(x - drag.x) > 3;
      const by = (drag.x - x) / width() * (drag.view[1] - drag.view[0]);
      tip.hidden = true;
      if (drag.moved) show(drag.view[0] + by, drag.view[1] + by);
      return;
    }
    hover = at(x, y);
    tip.hidden = !hover;
    if (hover) {
      tip.textContent = describe(hover).join("\n");
      tip.style.left = Math.min(x + 12, canvas.clientWidth - 280) + "px";
      tip.style.top = y + 16 + "px";
    }
    draw();
  });
  canvas.addEventListener("pointerup", (event) => { const moved = drag?.moved; drag = null; if (!moved) choose(at(...spot(event))); });
  canvas.addEventListener("pointerleave", () => { hover = null; tip.hidden = true; draw(); });
  canvas.addEventListener("dblclick", (event) => zoom(1 / 3, toNs(spot(event)[0])));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;  // else the page scrolls
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, toNs(spot(event)[0]));
  }, {passive: false});
  const KEYS = {ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit,
                n: () => step(1), p: () => step(-1), ArrowUp: () => otherLane(-1), ArrowDown: () => otherLane(1), Escape: () => choose(null)};
  canvas.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("fit").addEventListener("click", fit);
  byId("trace").addEventListener("change", (event) => open(Number(event.target.value)));
  byId("all").addEventListener("change", () => { place(); draw(); });
  byId("messages").addEventListener("change", draw);
  addEventListener("resize", () => { place(); draw(); });
  dark.addEventListener("change", draw);
  addEventListener("beforeprint", () => { printing = true; place(); draw(); });
  addEventListener("afterprint", () => { printing = false; place(); draw(); });
  open(0);
})();
