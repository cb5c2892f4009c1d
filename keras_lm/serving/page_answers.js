// What a person sees of an answer. A view is chosen by the signature's outputs, never by what made
// the model; outputs that no view knows are shown by name.

const FLOAT = /^DT_(FLOAT|DOUBLE|HALF|BFLOAT16)$/;
const INTEGER = /^DT_U?INT\d+$/;

// "text 2" is a matrix of strings: the type of a tensor, and how many axes it has.
function kindOf(info) {
  if (!info) return "";
  const { unknown_rank: isUnknown, dim = [] } = info.tensor_shape ?? {};
  const type = isText(info) ? "text" : FLOAT.test(info.dtype) ? "float" : INTEGER.test(info.dtype) ? "int" : "other";
  return `${type} ${isUnknown ? "?" : dim.length}`;
}

// A view draws the outputs that it needs, and those in `also`, if they are there. Its verb stands on
// the button, and its examples in the fields before anybody has typed there.
const VIEWS = [
  { verb: "Tag", needs: { tokens: "text 2", labels: "text 2", scores: "float 2" }, also: ["start", "end"], draw: drawWords,
    examples: { text: ["Ada Lovelace met Charles Babbage in London in 1833."] } },
  { verb: "Fill in", needs: { tokens: "text 3", scores: "float 3" }, also: ["text"], draw: drawMasks,
    examples: { text: ["The capital of France is [MASK]."] } },
  { verb: "Search", needs: { documents: "text 2", scores: "float 2", rows: "int 2" }, draw: drawHits,
    examples: { text: ["When does it open?"] } },
  { verb: "Ask", needs: { text: "text 2", scores: "float 2", start: "int 2", end: "int 2" }, takes: { context: "text 1" }, draw: drawSpans },
  { verb: "Choose", needs: { labels: "int 1", scores: "float 2" }, takes: { choices: "text 2" }, draw: drawChoices,
    examples: { text: ["They liked the film so much that"] } },
  ...["text 1", "text 2"].map((labels) => ({ verb: "Classify", needs: { labels, scores: "float 2" }, also: ["class_names"], draw: drawClasses })),
  { verb: "Classify", needs: { classes: "text 2", scores: "float 2" }, draw: drawClasses },
  { verb: "Write", needs: { text: "text 1" }, takes: { prompt: "text 1" }, also: ["num_tokens", "num_prompt_tokens"], draw: drawContinuation },
  { verb: "Translate", needs: { text: "text 1", num_tokens: "int 1" }, takes: { text: "text 1" }, also: ["scores"], draw: drawWritten,
    examples: { text: ["The house is small, but its garden is large."] } },
  { verb: "Embed", needs: { embedding: "float 2" }, draw: drawVectors },
  { verb: "Embed", needs: { embedding: "float 3" }, draw: drawMatrix },
];

function viewOf({ inputs = {}, outputs = {} }) {
  const all = (infos, kinds = {}) => Object.entries(kinds).every(([name, kind]) => kindOf(infos[name]) === kind);
  return VIEWS.find(({ needs, takes }) => all(outputs, needs) && all(inputs, takes));
}

function drawAnswer(outputs, context) {
  const view = viewOf(state.signatures[state.signature]);
  const drawn = new Set(view ? [...Object.keys(view.needs), ...(view.also ?? []), "class_names"] : []);
  const rest = Object.entries(outputs ?? {}).filter(([name]) => !drawn.has(name));
  $("answer").replaceChildren(
    ...(view ? view.draw(outputs, context) : []),
    ...(rest.length > 1 && rest.every(([, value]) => isVector(value)) ? [drawNumbers(rest)] : rest.map(drawOutput)),
    element("details", {}, element("summary", { class: "quiet" }, "JSON"), element("pre", { tabindex: "0" }, json(outputs))),
  );
}

const head = (text) => element("p", { class: "head" }, text);

function bars(pairs, chosen = new Set()) {
  const shown = pairs.slice(0, 20);
  const list = element("ul", { class: "bars" }, ...shown.map(([name, score], index) => {
    const fill = element("span", { class: "fill", "aria-hidden": "true" });
    fill.style.width = `${100 * Math.min(Math.max(score, 0), 1)}%`;
    return element("li", { class: chosen.has(index) ? "chosen" : null },
      fill, element("span", { class: "name" }, name), element("span", { class: "score" }, ofOne(score)));
  }));
  return shown.length === pairs.length ? [list] : [list, note(`and ${pairs.length - shown.length} more`)];
}

// === Classes and choices ===

function drawClasses({ labels, scores }, { classNames }) {
  const best = labels && [labels[0]].flat().filter((label) => label !== "");
  const pairs = scores[0].map((score, index) => [classNames?.[index] ?? `class ${index}`, score]).sort((a, b) => b[1] - a[1]);
  const chosen = new Set(pairs.flatMap(([name], index) => ((best ?? [pairs[0][0]]).includes(name) ? [index] : [])));
  return [head((best ?? [pairs[0][0]]).join(", ") || "None of its classes"), ...bars(pairs, chosen)];
}

function drawChoices({ labels, scores }, { values }) {
  const choices = filled(values.choices);
  return [head(choices[labels[0]]), ...bars(choices.map((choice, index) => [choice, scores[0][index]]), new Set([labels[0]]))];
}

// === Documents for a query ===

function drawHits({ documents, scores }) {
  const hits = documents[0].map((text, index) => [text, scores[0][index]]);
  return [head(hits[0]?.[0] ?? "No document"), ...bars(hits, new Set([0]))];
}

// === Answers in a context ===

function drawSpans({ text, scores, start, end }, { values }) {
  // Places count characters as Python does: by code points.
  const characters = Array.from(values.context);
  const part = (from, to) => characters.slice(from, to).join("");
  const [from, to] = [start[0][0], end[0][0]];
  const answers = text[0].map((answer, index) => [answer || "No answer", scores[0][index]]).filter(([, score]) => score > 0);
  return [
    head(text[0][0] || "No answer in this context"),
    element("p", { class: "running" }, part(0, from), ...(to > from ? [element("mark", {}, part(from, to))] : []), part(to)),
    ...bars(answers.slice(0, 5), new Set([0])),
  ];
}

// === Words with labels ===

// Spans of words [label, first, end]: `B-X` begins one, `I-X` continues it; of richer schemes `E-X`
// and `L-X` end one, `S-X` and `U-X` are one. Any other label but `O` is of its word alone.
function spansOf(labels) {
  const spans = [];
  let isOpen = false;
  labels.forEach((label, index) => {
    const [, prefix, name] = /^([BIELSU])-(.+)$/s.exec(label) ?? [null, "S", label];
    if (label === "" || label === "O") {
      isOpen = false;
      return;
    }
    const last = spans.at(-1);
    if (isOpen && "IEL".includes(prefix) && last[0] === name) last[2] = index + 1;
    else spans.push([name, index, index + 1]);
    isOpen = "BI".includes(prefix);
  });
  return spans;
}

const HUES = [215, 30, 145, 275, 345, 185, 60, 315];

// A class keeps its colour for as long as its model is asked.
function colour(made, label) {
  if (!state.hues.has(label)) state.hues.set(label, HUES[state.hues.size % HUES.length]);
  made.style.setProperty("--hue", state.hues.get(label));
  return made;
}

function drawWords(outputs, { values }) {
  const [tokens, labels, scores] = ["tokens", "labels", "scores"].map((name) => outputs[name][0]);
  const size = tokens.findLastIndex((token) => token !== "") + 1;
  const spans = spansOf(labels.slice(0, size));
  const typed = Object.values(values).find((value) => typeof value === "string");
  const hasPlaces = outputs.start && outputs.end && typed !== undefined;
  // Places count characters as Python does: by code points.
  const characters = Array.from(hasPlaces ? typed : tokens.slice(0, size).join(" "));
  const places = [];
  for (let index = 0, at = 0; index < size; index++) {
    places.push(hasPlaces ? [outputs.start[0][index], outputs.end[0][index]] : [at, at + Array.from(tokens[index]).length]);
    at = places[index][1] + 1;
  }
  const part = (start, end) => characters.slice(start, end).join("");
  const textOf = ([, first, end]) => part(places[first][0], places[end - 1][1]);
  const scoreOf = ([, first, end]) => scores.slice(first, end).reduce((sum, score) => sum + score, 0) / (end - first);

  // A word without a label lies beyond what the model reads.
  const unread = labels.slice(0, size).flatMap((label, index) => (label === "" ? [["", index, index + 1]] : []));
  const text = element("p", { class: "tagged" });
  let at = 0;
  for (const span of [...spans, ...unread].sort((a, b) => a[1] - b[1])) {
    const [label, first, end] = span;
    const content = textOf(span);
    text.append(part(at, places[first][0]), label === ""
      ? element("span", { class: "unread" }, content)
      : colour(element("mark", { title: `${label} ${ofOne(scoreOf(span))}` }, element("small", {}, label), content), label));
    at = places[end - 1][1];
  }
  text.append(part(at));
  return [
    text,
    ...(unread.length ? [note(`${count(unread.length, "word")}, drawn in grey, ${unread.length === 1 ? "was" : "were"} not read.`)] : []),
    ...(spans.length
      ? [table(["Text", "Label", "Score"], spans.map((span) => [textOf(span), colour(element("mark", {}, span[0]), span[0]), ofOne(scoreOf(span))]))]
      : [note("No word has a label.")]),
  ];
}

function table(titles, rows) {
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))))));
}

// === Text: masks filled in, and what follows a prompt ===

const MASK = /^[[<]mask[\]>]$/i;

function drawMasks({ tokens, scores, text }, { values, readings }) {
  const masks = tokens[0].map((row, mask) => readable(row, tokens[0].flat()).map(({ text }, k) => [text, scores[0][mask][k], row[k]]).filter(([, , token]) => token !== ""))
    .filter((pairs) => pairs.length);
  const mask = readings.flatMap((reading) => reading.tokens).find((token) => MASK.test(token));
  if (!masks.length) return [note("There is no mask in this text."), note("Most models know one of [MASK] and <mask>.")];
  const parts = mask ? Object.values(values)[0].split(mask) : [];
  const filledIn = parts.length === masks.length + 1
    ? element("p", { class: "running" }, ...parts.flatMap((part, index) =>
      index ? [element("mark", {}, masks[index - 1][0][0]), part] : [part]))
    : element("p", { class: "running" }, text?.[0] ?? "");
  return [filledIn, ...masks.flatMap((pairs, index) => [...(masks.length > 1 ? [note(`Mask ${index + 1}`)] : []), ...bars(pairs)])];
}

function drawContinuation({ text, num_tokens: made, num_prompt_tokens: read }, { values }) {
  const [, space, rest] = /^(\s*)(.*)$/s.exec(text[0]);
  const counts = [rest ? "" : "Nothing follows", made && count(made[0], "new token"), read && `${count(read[0], "token")} of the prompt`];
  return [
    element("p", { class: "running" }, element("span", { class: "prompt" }, values.prompt), space, ...(rest ? [element("mark", {}, rest)] : [])),
    element("p", { class: "quiet counts" }, counts.filter(Boolean).join(" · ")),
  ];
}

// === Texts for texts ===

// The source is quiet, and what was written for it stands by itself.
function drawWritten({ text, num_tokens: made, scores }, { values }) {
  const sources = ["text", "text_pair"].filter((name) => name in values).map((name) => element("p", { class: "running source" }, values[name]));
  return [
    ...sources,
    element("p", { class: "head running written" }, text[0]),
    element("p", { class: "quiet counts" }, [text[0] ? "" : "Nothing was written", count(made[0], "token"), scores && `score ${short(scores[0])}`].filter(Boolean).join(" · ")),
  ];
}

// === Vectors ===

const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0) / (Math.hypot(...a) * Math.hypot(...b) || 1);

// A bar for each number, up or down, by the largest.
function drawBars(vector) {
  const largest = Math.max(...vector.map(Math.abs)) || 1;
  const drawn = svg("svg", { class: "vector", viewBox: `0 -1 ${vector.length} 2`, preserveAspectRatio: "none", "aria-hidden": "true" });
  drawn.append(svg("path", { d: vector.map((x, i) => `M${i} 0v${(-x / largest).toFixed(3)}h1V0z`).join("") }));
  return drawn;
}

function drawVectors({ embedding }, { values }) {
  const typed = Object.values(values).find(Array.isArray);
  const texts = typed && filled(typed);
  const drawn = [];
  if (embedding.length === 2) {
    drawn.push(element("p", { class: "head" }, short(cosine(...embedding)), element("small", {}, " cosine similarity of the two texts")));
  } else if (embedding.length > 2) {
    drawn.push(element("h3", {}, "Cosine similarity"), drawSimilarities(embedding, texts));
  }
  embedding.forEach((vector, index) => drawn.push(drawVector(embedding.length > 1 ? `Text ${index + 1}` : "Vector", vector)));
  return drawn;
}

function drawSimilarities(vectors, texts) {
  const numbers = vectors.map((_, index) => String(index + 1));
  const made = table(["", ...numbers], vectors.map((a, row) => [
    element("span", { class: "one-line" }, `${row + 1} ${texts?.[row] ?? ""}`), ...vectors.map((b) => cosine(a, b).toFixed(2)),
  ]));
  made.querySelectorAll("th + th").forEach((cell) => { cell.className = "similarity"; });
  made.querySelectorAll("tbody tr").forEach((tr, row) => [...tr.cells].slice(1).forEach((cell, column) => {
    cell.className = "similarity";
    cell.style.setProperty("--share", `${Math.round(100 * Math.max(cosine(vectors[row], vectors[column]), 0))}%`);
  }));
  return made;
}

function drawVector(title, vector) {
  const first = vector.slice(0, 8).map(short).join(", ") + (vector.length > 8 ? ", …" : "");
  return element("div", { class: "output" },
    element("h3", {}, `${title}: ${count(vector.length, "number")}, length ${short(Math.hypot(...vector))}`),
    drawBars(vector), element("pre", {}, first));
}

// A vector for each token of a text, or for each layer.
function drawMatrix({ embedding }, { readings }) {
  const [vectors] = embedding;
  const tokens = readings[0]?.tokens.length === vectors.length ? readable(readings[0].tokens, readings[0].others).map(nameOf) : null;
  return [
    element("h3", {}, `${count(vectors.length, "vector")} of ${count(vectors[0]?.length ?? 0, "number")}`),
    element("div", { class: "vectors scroll", tabindex: "0" }, ...vectors.slice(0, 100).flatMap((vector, index) => [
      element("span", { class: "one-line" }, tokens?.[index] ?? String(index)), drawBars(vector),
    ])),
    ...(vectors.length > 100 ? [note(`and ${vectors.length - 100} more`)] : []),
  ];
}

// === Anything else ===

function drawNumbers(rest) {
  return table(["Output", "Value"], rest.map(([name, [value]]) => [name, short(value)]));
}

function drawOutput([name, batch]) {
  const value = Array.isArray(batch) ? batch[0] : batch;
  const title = element("h3", {}, TITLES[name] ?? name);
  if (isNumber(value) || typeof value === "string") {
    const text = isNumber(value) ? short(value) : value;
    const isShort = text.length <= 80 && !text.includes("\n");
    return element("div", { class: "output" }, title, isShort ? head(text) : element("pre", { tabindex: "0" }, text));
  }
  if (isVector(value)) {
    title.append(`: ${count(value.length, "number")}, length ${short(Math.hypot(...value))}`);
    const first = value.slice(0, 16).map(short).join(", ") + (value.length > 16 ? ", …" : "");
    return element("div", { class: "output" }, title, element("pre", {}, first));
  }
  return element("div", { class: "output" }, title, element("pre", { tabindex: "0" }, json(value)));
}

function json(value) {
  const text = JSON.stringify(value, null, 1) ?? "nothing";
  return text.length > 20000 ? `${text.slice(0, 20000)}\n… and ${text.length - 20000} characters more` : text;
}
