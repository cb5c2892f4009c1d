// S tokens read T tokens, in N heads of L layers. A probability is (byte / steps)².
// The data stand in the page; or there are none, and the page around this one's frame calls `show`.

let page = null;
const find = (id) => document.getElementById(id);
const ROW = 20; // pixels of a token, as in the style
const MOST_LINES = 3000;
const state = { map: 0, layer: 0, heads: new Set(), view: "tokens", hovered: null, pinned: null, least: 0, query: 0 };
const VIEWS = [["tokens", "By token"], ["heads", "All heads"], ["cells", "Cells"], ["neurons", "Neurons"]];

// === Data ===

async function unpacked(text, kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new kind(await new Response(stream).arrayBuffer());
}

const map = () => page.maps[state.map];
const layerName = (place) => (page.layers ? page.layers[place] : place);

// The bytes of a head, (S, T).
function bytesOf(layer, head, from = map()) {
  const size = from.tokens.length * from.attended.length;
  const start = (layer * from.heads + head) * size;
  return from.bytes.subarray(start, start + size);
}

const share = (byte) => (byte / page.steps) ** 2;
const said = (number) => (number >= 0.1 ? number.toFixed(2) : number.toFixed(3));

// === Colours ===

function isDark() {
  try {
    // In a notebook, its own theme counts more than that of the system.
    const around = window.parent !== window && window.parent.document.body;
    const parts = around && getComputedStyle(around).backgroundColor.match(/[\d.]+/g).map(Number);
    if (parts && (parts.length < 4 || parts[3] > 0)) return parts[0] + parts[1] + parts[2] < 384;
  } catch { /* another origin's page: what it looks like is not known */ }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

const theme = () => document.documentElement.hasAttribute("data-dark");
const hue = (head) => Math.round((head * 360 * 0.618034 + 215) % 360);
const ink = (head) => `hsl(${hue(head)} 70% ${theme() ? 65 : 42}%)`;
const soft = (head, part) => `hsl(${hue(head)} 70% ${theme() ? 65 : 42}% / ${part})`;

// White or black for 0, blue for 1; the root makes small shares visible.
function heat(byte) {
  const part = byte / page.steps;
  return theme()
    ? [21 + part * 130, 24 + part * 176, 29 + part * 226]
    : [255 - part * 225, 255 - part * 185, 255 - part * 70];
}

// === Drawing ===

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

function fillColumn(column, tokens, side) {
  Object.assign(column, { tabIndex: 0, role: "listbox", ariaLabel: side === "left" ? "tokens that read" : "tokens that are read" });
  column.replaceChildren(...tokens.map((token, place) => {
    const element = document.createElement("div");
    element.className = "token";
    element.role = "option";
    element.dir = "auto";
    element.textContent = token; // never as HTML
    element.title = `${place}: ${token}`;
    element.dataset.side = side;
    element.dataset.place = place;
    return element;
  }));
}

const chosen = () => state.hovered || state.pinned;

// The smallest byte with which no more than MOST_LINES are drawn.
function leastByte() {
  const counts = new Array(256).fill(0);
  for (const head of state.heads) for (const byte of bytesOf(state.layer, head)) counts[byte]++;
  let byte = page.steps;
  for (let lines = counts[byte]; byte > 1 && lines + counts[byte - 1] <= MOST_LINES; byte--) lines += counts[byte - 1];
  return byte;
}

function drawTokens() {
  const view = find("tokens-view"), canvas = view.querySelector("canvas");
  const { tokens, attended } = map(), top = view.scrollTop, height = view.clientHeight;
  const width = canvas.parentElement.clientWidth - 2 * view.querySelector(".column").clientWidth;
  const pen = sized(canvas, width, Math.min(height, Math.max(tokens.length, attended.length) * ROW));
  const one = chosen(), weights = new Float32Array(one?.side === "left" ? attended.length : tokens.length);
  let drawn = 0;
  const line = (from, to, head, byte) => {
    const a = from * ROW + ROW / 2 - top, b = to * ROW + ROW / 2 - top;
    if ((a < 0 && b < 0) || (a > height && b > height)) return;
    pen.strokeStyle = soft(head, Math.max(share(byte), one ? 0.06 : 0.02));
    pen.beginPath();
    pen.moveTo(0, a);
    pen.bezierCurveTo(width * 0.4, a, width * 0.6, b, width, b);
    pen.stroke();
    drawn++;
  };
  pen.lineWidth = one ? 2 : 1.5;
  for (const head of state.heads) {
    const bytes = bytesOf(state.layer, head), T = attended.length;
    if (one) {
      for (let other = 0; other < weights.length; other++) {
        const byte = one.side === "left" ? bytes[one.place * T + other] : bytes[other * T + one.place];
        weights[other] += share(byte) / state.heads.size;
        if (byte) one.side === "left" ? line(one.place, other, head, byte) : line(other, one.place, head, byte);
      }
    } else {
      for (let i = 0; i < bytes.length; i++) if (bytes[i] >= state.least) line(Math.floor(i / T), i % T, head, bytes[i]);
    }
  }
  for (const side of ["left", "right"]) {
    const isRead = one && one.side !== side;
    view.querySelector(`.column.${side}`).childNodes.forEach((element, place) => {
      element.style.background = isRead && weights[place] > 0.004 ? `hsl(215 80% 55% / ${Math.sqrt(weights[place]) * 0.8})` : "";
      const isChosen = Boolean(one) && one.side === side && one.place === place;
      element.classList.toggle("chosen", isChosen);
      element.ariaSelected = String(isChosen);
    });
  }
  describe(one, weights);
}

function describe(one, weights) {
  if (!one) {
    find("note").textContent = "Point at a token to see what it reads (left) or who reads it (right); click to keep it.";
    return;
  }
  const [from, to] = one.side === "left" ? [map().tokens, map().attended] : [map().attended, map().tokens];
  const best = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 4).filter((i) => weights[i] > 0.001);
  const verb = one.side === "left" ? "reads" : "is read by";
  const isolated = (token) => `\u2068${token}\u2069`;
  find("note").textContent = `${isolated(from[one.place])} ${verb} ${best.map((i) => `${isolated(to[i])} ${said(weights[i])}`).join(", ")}`;
}

function paintCells(canvas, layer, head, most) {
  const { tokens, attended } = map(), S = tokens.length, T = attended.length;
  const step = Math.max(1, Math.ceil(Math.max(S, T) / most)); // the largest of a block is shown
  const rows = Math.ceil(S / step), columns = Math.ceil(T / step);
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows), bytes = bytesOf(layer, head);
  const largest = new Uint8Array(rows * columns);
  for (let s = 0, i = 0; s < S; s++) {
    const row = Math.floor(s / step) * columns;
    for (let t = 0; t < T; t++, i++) {
      const cell = row + Math.floor(t / step);
      if (bytes[i] > largest[cell]) largest[cell] = bytes[i];
    }
  }
  largest.forEach((byte, cell) => image.data.set([...heat(byte), 255], cell * 4));
  pen.putImageData(image, 0, 0);
}

function drawHeads() {
  const view = find("heads-view"), { layers, heads } = map();
  const table = document.createElement("table"), header = table.insertRow();
  header.append(document.createElement("th"));
  for (let head = 0; head < heads; head++) header.append(Object.assign(document.createElement("th"), { textContent: head }));
  const jobs = [];
  for (let layer = 0; layer < layers; layer++) {
    const row = table.insertRow();
    row.append(Object.assign(document.createElement("th"), { textContent: `layer ${layerName(layer)}` }));
    for (let head = 0; head < heads; head++) {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.setAttribute("aria-label", `layer ${layerName(layer)}, head ${head}`);
      button.title = `layer ${layerName(layer)}, head ${head}: click to enlarge`;
      button.onclick = () => Object.assign(state, { layer, heads: new Set([head]), view: "cells" }) && update();
      button.append(canvas);
      row.insertCell().append(button);
      jobs.push(() => paintCells(canvas, layer, head, 64));
    }
  }
  view.replaceChildren(table);
  const work = () => {
    const end = performance.now() + 12;
    while (jobs.length && performance.now() < end) jobs.shift()();
    if (jobs.length) requestAnimationFrame(work);
  };
  work();
  find("note").textContent = "A row reads the columns; dark is much. Click a head to enlarge it.".replace("dark", theme() ? "bright" : "dark");
}

const LABELS = 92; // pixels for the names of rows and columns

function cellSize() {
  const view = find("cells-view"), { tokens, attended } = map();
  const room = Math.min((view.clientWidth - LABELS - 20) / attended.length, (view.clientHeight - LABELS - 20) / tokens.length);
  return Math.max(1, Math.min(28, room < 10 ? Math.max(room, 1.5) : Math.floor(room)));
}

function drawCells() {
  const canvas = find("cells-view").querySelector("canvas"), { tokens, attended } = map();
  const size = cellSize(), names = size >= 9 ? LABELS : 0, head = Math.min(...state.heads);
  // The name of the last column leans over the edge.
  const width = names * 1.6 + attended.length * size;
  const pen = sized(canvas, width, names + tokens.length * size);
  canvas.style.width = `${width}px`;
  const small = document.createElement("canvas");
  paintCells(small, state.layer, head, 1e9);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, names, names, attended.length * size, tokens.length * size);
  if (names) {
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.font = `${Math.min(12, size)}px sans-serif`;
    pen.textBaseline = "middle";
    const short = (token) => ([...token].length > 12 ? `${[...token].slice(0, 11).join("")}…` : token);
    pen.textAlign = "right";
    tokens.forEach((token, s) => pen.fillText(short(token), names - 4, names + (s + 0.5) * size));
    pen.textAlign = "left";
    attended.forEach((token, t) => {
      pen.save();
      pen.translate(names + (t + 0.5) * size, names - 4);
      pen.rotate(-Math.PI / 3);
      pen.fillText(short(token), 0, 0);
      pen.restore();
    });
  }
  find("note").textContent = `Layer ${layerName(state.layer)}, head ${head}: a row reads the columns. Point at a cell.`;
}

find("cells-view").querySelector("canvas").addEventListener("mousemove", (event) => {
  const { tokens, attended } = map(), size = cellSize(), names = size >= 9 ? LABELS : 0, head = Math.min(...state.heads);
  const t = Math.floor((event.offsetX - names) / size), s = Math.floor((event.offsetY - names) / size);
  if (s < 0 || t < 0 || s >= tokens.length || t >= attended.length) return;
  const part = share(bytesOf(state.layer, head)[s * attended.length + t]);
  find("note").textContent = `\u2068${tokens[s]}\u2069 (${s}) reads \u2068${attended[t]}\u2069 (${t}): ${said(part)}`;
});

// Of one query: each key's numbers, their products with the query's, the score, and the share.
function drawNeurons() {
  const view = find("neurons-view"), canvas = view.querySelector("canvas"), from = page.neurons;
  const S = from.tokens.length, H = from.width, top = view.scrollTop, height = view.clientHeight;
  const width = canvas.parentElement.clientWidth - view.querySelector(".column").clientWidth;
  const pen = sized(canvas, width, Math.min(height, S * ROW + 40)), bars = 190, gap = 12;
  const cell = Math.max(1, (width - bars - 3 * gap) / (2 * H)), i = state.query, largest = from.largest / 127;
  const colour = (part) => `hsl(${part > 0 ? 215 : 20} 80% ${theme() ? 60 : 50}% / ${Math.min(1, Math.abs(part))})`;
  const value = (which, place, h) => from.bytes[(which * S + place) * H + h] * largest;
  let most = 1e-9;
  for (let j = 0; j < S; j++) for (let h = 0; h < H; h++) most = Math.max(most, Math.abs(value(0, i, h) * value(1, j, h)));
  const starts = [gap, gap * 2 + H * cell, gap * 3 + 2 * H * cell];
  for (let j = Math.max(0, Math.floor((top - 40) / ROW)); j < S && j * ROW + 40 - top < height; j++) {
    const y = 40 + j * ROW - top;
    for (let h = 0; h < H; h++) {
      pen.fillStyle = colour(value(1, j, h) / from.largest);
      pen.fillRect(starts[0] + h * cell, y + 3, cell, ROW - 6);
      pen.fillStyle = colour((value(0, i, h) * value(1, j, h)) / most);
      pen.fillRect(starts[1] + h * cell, y + 3, cell, ROW - 6);
    }
    const part = from.shares[i * S + j], score = from.numbers[i * S + j];
    pen.fillStyle = soft(0, 0.55);
    pen.fillRect(starts[2] + 88, y + 4, part * (bars - 90), ROW - 8);
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.font = "12px sans-serif";
    pen.textBaseline = "middle";
    pen.fillText(score < -1e3 ? "masked" : score.toFixed(1), starts[2], y + ROW / 2);
    pen.fillText(said(part), starts[2] + 50, y + ROW / 2);
  }
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, width, 40);
  pen.fillStyle = getComputedStyle(document.body).color;
  pen.fillText("key", starts[0], 10);
  pen.fillText("query × key, the query:", starts[1], 10);
  pen.fillText("score, share", starts[2], 10);
  for (let h = 0; h < H; h++) {
    pen.fillStyle = colour(value(0, i, h) / from.largest);
    pen.fillRect(starts[1] + h * cell, 20, cell, 14);
  }
  view.querySelectorAll(".token").forEach((element, place) => element.classList.toggle("chosen", place === i));
  find("note").textContent = `Layer ${from.layer}, head ${from.head}: \u2068${from.tokens[i]}\u2069 asks. Click another token to ask by it. Blue is positive, orange negative.`;
}

// === Controls ===

function update() {
  const { layers, heads } = map(), own = state.view === "neurons";
  state.layer = Math.min(state.layer, layers - 1);
  state.heads = new Set([...state.heads].filter((head) => head < heads));
  if (!state.heads.size) for (let head = 0; head < heads; head++) state.heads.add(head);
  for (const [name] of VIEWS) find(`${name}-view`).hidden = name !== state.view;
  for (const button of find("tabs").children) button.setAttribute("aria-selected", button.dataset.view === state.view);
  find("layer").replaceChildren(...Array.from({ length: layers }, (_, place) => new Option(layerName(place), place)));
  find("layer").value = state.layer;
  find("layer").parentElement.hidden = own || state.view === "heads";
  find("heads").hidden = own || state.view === "heads";
  find("map-choice").hidden = own || page.maps.length < 2;
  find("heads").replaceChildren(...Array.from({ length: heads }, (_, head) => {
    const button = Object.assign(document.createElement("button"), { textContent: head, title: `head ${head}; double click for it alone` });
    const isOn = state.view === "cells" ? head === Math.min(...state.heads) : state.heads.has(head);
    button.setAttribute("aria-pressed", isOn);
    button.style.borderColor = ink(head);
    button.style.background = isOn ? soft(head, 0.45) : "";
    button.onclick = (event) => {
      if (event.detail > 1 || state.view === "cells") state.heads = new Set([head]);
      else if (!state.heads.delete(head)) state.heads.add(head);
      update();
    };
    return button;
  }));
  find("least-choice").hidden = state.view !== "tokens";
  const view = find("tokens-view");
  fillColumn(view.querySelector(".left"), map().tokens, "left");
  fillColumn(view.querySelector(".right"), map().attended, "right");
  state.least = leastByte();
  find("least").value = Math.round((state.least / page.steps) * 100);
  draw();
}

function draw() {
  find("least-said").textContent = said(share(state.least));
  ({ tokens: drawTokens, heads: drawHeads, cells: drawCells, neurons: drawNeurons })[state.view]();
}

let isAsked = false;
function redraw() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => { isAsked = false; if (page) draw(); });
}

function listen() {
  const view = find("tokens-view"), place = (event) => event.target.closest(".token")?.dataset;
  view.addEventListener("scroll", redraw);
  view.addEventListener("mouseover", (event) => {
    const data = place(event);
    state.hovered = data ? { side: data.side, place: Number(data.place) } : null;
    redraw();
  });
  view.addEventListener("mouseleave", () => { state.hovered = null; redraw(); });
  view.addEventListener("click", (event) => {
    const data = place(event), same = data && state.pinned?.side === data.side && state.pinned.place === Number(data.place);
    state.pinned = data && !same ? { side: data.side, place: Number(data.place) } : null;
    redraw();
  });
  view.addEventListener("keydown", (event) => {
    const column = event.target.closest(".column"), step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!column || (!step && event.key !== "Escape")) return;
    event.preventDefault();
    const side = column.classList.contains("left") ? "left" : "right", last = column.children.length - 1;
    const from = state.pinned?.side === side ? state.pinned.place : step > 0 ? -1 : last + 1;
    const to = Math.max(0, Math.min(last, from + step));
    state.hovered = null;
    state.pinned = step ? { side, place: to } : null;
    if (step) column.children[to].scrollIntoView({ block: "nearest" });
    redraw();
  });
  find("layer").onchange = (event) => { state.layer = Number(event.target.value); update(); };
  find("map").onchange = (event) => { Object.assign(state, { map: Number(event.target.value), pinned: null, hovered: null }); update(); };
  find("least").oninput = (event) => { state.least = Math.max(1, Math.round((event.target.value / 100) * page.steps)); redraw(); };
  const neurons = find("neurons-view");
  neurons.addEventListener("scroll", redraw);
  neurons.addEventListener("click", (event) => {
    const data = place(event);
    if (data) state.query = Number(data.place);
    redraw();
  });
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paintTheme(); if (page) update(); });
}

function paintTheme() {
  document.documentElement.toggleAttribute("data-dark", isDark());
}

async function show(given) {
  // Another text of the same model is shown as the one before, another model from its beginning.
  const kind = (of) => of?.maps.map(({ layers, heads }) => [layers, heads]).join();
  if (page && kind(page) !== kind(given)) Object.assign(state, { map: 0, layer: 0, heads: new Set() });
  page = given;
  Object.assign(state, { hovered: null, pinned: null });
  for (const each of page.maps) each.bytes ??= await unpacked(each.data, Uint8Array);
  const from = page.neurons;
  if (from) {
    from.bytes = await unpacked(from.vectors, Int8Array);
    from.numbers = await unpacked(from.scores, Float32Array);
    from.shares = await unpacked(from.probabilities, Float32Array);
    fillColumn(find("neurons-view").querySelector(".left"), from.tokens, "left");
    state.query = Math.min(1, from.tokens.length - 1);
  }
  find("map").replaceChildren(...page.maps.map((each, place) => new Option(each.name, place, false, place === state.map)));
  find("tabs").replaceChildren();
  for (const [name, title] of VIEWS) {
    if (name === "neurons" && !from) continue;
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.setAttribute("role", "tab");
    button.dataset.view = name;
    button.onclick = () => { state.view = name; update(); };
    find("tabs").append(button);
  }
  update();
  document.documentElement.dataset.ready = "";
}

paintTheme();
listen();
const given = JSON.parse(find("data").textContent);
if (given) show(given);
