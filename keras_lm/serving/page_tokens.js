// What the model reads: its tokens as people write them, and what each of them reads of the others.

const isSpecial = (token) => /^(\[[^\]]+\]|<[^>]+>)$/.test(token);

// === Tokens ===

// Byte-level vocabularies write each byte as a letter: those that print as themselves, all others,
// the space (Ġ) and line feed (Ċ) among them, from U+0100 on.
const BYTES = new Map();
for (let byte = 0, others = 0; byte < 256; byte++) {
  const prints = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  BYTES.set(String.fromCharCode(prints ? byte : 256 + others++), byte);
}

// Entries of a vocabulary as people write them: `{ text, space, entry }`, where `space` says that a
// space stands before the text. `others` help to see what kind of vocabulary it is.
function readable(tokens, others = []) {
  const known = [...tokens, ...others].filter((token) => !isSpecial(token));
  const isByteLevel = known.some((token) => /[ĠĊ]/.test(token)) && known.every((token) => [...token].every((letter) => BYTES.has(letter)));
  return tokens.map((entry) => {
    if (isSpecial(entry)) return { entry, text: entry, space: false };
    let text = entry.replace(/^##(?=.)/s, "").replace(/(?<=.)(<\/w>|@@)$/s, "").replaceAll("▁", " ");
    if (isByteLevel) text = ofBytes([...entry].map((letter) => BYTES.get(letter)));
    const space = /^ (?=.)/s.test(text);
    return { entry, text: (space ? text.slice(1) : text).replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +$/, (all) => "␣".repeat(all.length)), space };
  });
}

// The text of bytes in UTF-8; where they are a part of a character, their numbers.
function ofBytes(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  }
}

// A token by itself, in a list: what continues a word says so.
const nameOf = ({ text, entry }) => (/^##./s.test(entry) ? `…${text}` : text);

// Which tokens begin a word, as far as they say so: by `##`, `</w>`, or a mark for the space before.
function tokenKinds(tokens, others) {
  const known = [...tokens, ...others];
  const marksEnds = known.some((token) => /.<\/w>$/.test(token));
  const marksStarts = known.some((token) => /^[▁Ġ]/.test(token));
  const isInside = (token, before) => {
    if (marksEnds) return !before.endsWith("</w>");
    if (marksStarts) return /^(?![▁ĠĊ])[\p{L}\p{N}]/u.test(token) && /[\p{L}\p{N}](?<![▁ĠĊ])$/u.test(before);
    return token.startsWith("##");
  };
  return tokens.map((token, index) => {
    if (/^(\[UNK\]|<unk>)$/i.test(token)) return "unknown";
    if (isSpecial(token)) return "special";
    const before = tokens[index - 1];
    return before !== undefined && !isSpecial(before) && isInside(token, before) ? "piece" : "word";
  });
}

function drawTokens(readings) {
  $("tokens-card").hidden = !readings.length;
  const total = readings.reduce((sum, { tokens }) => sum + tokens.length, 0);
  $("tokens-title").textContent = `What the model reads: ${count(total, "token")}`;
  $("tokens").replaceChildren(...readings.flatMap(drawReading));
}

function drawReading({ title, tokens, ids, total, isFull, others }) {
  const kinds = tokenKinds(tokens, others), shown = readable(tokens, others);
  const titles = { word: "word starts", piece: "continuations", special: "special", unknown: "unknown" };
  const list = element("ol", { class: "tokens", tabindex: "0", "aria-label": `${title ?? ""} tokens`.trim() }, ...shown.map(({ text, space, entry }, index) =>
    element("li", { class: kinds[index], title: `${entry} in the vocabulary, token id ${ids[index] ?? "unknown"}` },
      ...(space ? [element("span", { class: "space", "aria-hidden": "true" }, "␣")] : []), text, element("small", {}, String(ids[index] ?? "")))));
  const legend = element("p", { class: "legend quiet" }, ...Object.entries(titles).filter(([kind]) => kinds.includes(kind))
    .map(([kind, name]) => element("span", { class: kind }, element("i"), `${name}: ${kinds.filter((k) => k === kind).length}`)),
    ...(shown.some(({ space }) => space) ? [element("span", {}, "␣ the space before a word")] : []));
  const cut = total > tokens.length
    ? `The text was cut: the model reads ${tokens.length} of its ${total} tokens.`
    : isFull && total === null ? `The model reads at most ${count(tokens.length, "token")}; the rest was cut.` : null;
  return [...(title ? [element("h3", {}, title)] : []), ...(cut ? [element("p", { class: "cut" }, cut)] : []), list, legend];
}

// === Entities ===

// Asks the signature `mentions` for each text that is not empty, and marks what it finds.
async function showMentions(values, turn) {
  $("mentions-card").hidden = true;
  if (names(state.signatures.mentions?.inputs) !== "text") return;
  const shown = state.fields.filter(({ kind }) => kind !== "option" && kind !== "json")
    .flatMap(({ name }) => values[name]).filter((text) => text.trim() !== "");
  if (!shown.length) return;
  try {
    const { outputs } = await predict("mentions", { text: shown });
    if (turn !== state.turn) return;
    const found = shown.map((text, row) => drawMentions(text, outputs, row));
    const number = outputs.text.flat().filter((mention) => mention !== "").length;
    $("mentions-title").textContent = `What the text mentions: ${number} ${number === 1 ? "entity" : "entities"}`;
    $("mentions").replaceChildren(...(number ? found : [note("None that the model knows.")]));
    $("mentions-card").hidden = false;
  } catch (error) {
    console.info(error.message); // the answer stands without them
  }
}

function drawMentions(text, outputs, row) {
  // Places count characters as Python does: by code points.
  const characters = Array.from(text), part = (from, to) => characters.slice(from, to).join("");
  const drawn = element("p", { class: "tagged" });
  let at = 0;
  outputs.text[row].forEach((mention, place) => {
    if (mention === "") return;
    const [start, end, entity] = ["start", "end", "entities"].map((name) => outputs[name][row][place]);
    const mark = element("mark", { title: entity || "an entity without a vector" }, element("small", {}, entity || "unknown"), part(start, end));
    drawn.append(part(at, start), colour(mark, entity));
    at = end;
  });
  drawn.append(part(at));
  return drawn;
}

// === Attention ===

// Asks the signature `attention`, and shows its answer in the page of keras_lm.analysis, in a frame.
async function showAttention(values, outputs, turn) {
  const inputs = inputsOf("attention").map(([name]) => name);
  $("attention-card").hidden = !inputs.length;
  if (!inputs.length) return;
  const say = (text) => $("attention-note").replaceChildren(text ? note(text) : "");
  $("attention").hidden = true;
  say("The attention is on its way.");
  const written = outputs.text?.[0] ?? "";
  const known = { ...values, ...("prompt" in values ? { text: values.prompt + written } : {}), labels: written };
  const rows = Array.isArray(known[inputs[0]]) ? filled(known[inputs[0]]) : [known[inputs[0]]];
  try {
    const found = await predict("attention", Object.fromEntries(inputs.map((name) => [name, name === inputs[0] ? rows : [known[name]]])));
    if (turn !== state.turn) return;
    const maps = attentionMaps(found.outputs, "context" in values ? "window" : "text");
    $("attention").hidden = false;
    // As high as its tokens, 20 pixels each, and what stands around them.
    $("attention").style.height = `min(85vh, ${Math.max(24, Math.min(40, 8 + 1.25 * Math.max(...maps.map(({ tokens, attended }) => Math.max(tokens.length, attended.length)))))}rem)`;
    const frame = await attentionFrame();
    await frame.show({ steps: 255, layers: null, neurons: null, maps });
    say(null);
  } catch (error) {
    if (!(error instanceof Refused)) console.error(error);
    if (turn === state.turn) say(`There is no attention to draw. ${error.message}`);
  }
}

// The maps of all rows, without padding: `NAME_bytes` are L·N·S·T of them, as `NAME_sizes` says.
function attentionMaps(outputs, rowName) {
  const names = ["self", "encoder", "decoder", "cross"].filter((name) => `${name}_bytes` in outputs);
  const titles = { self: "", encoder: "source", decoder: "target", cross: "target reads source" };
  const known = names.flatMap((name) => outputs[`${name}_attended`].flat());
  const rows = outputs[`${names[0]}_bytes`].length;
  const maps = [];
  for (let row = 0; row < rows; row++) {
    for (const name of names) {
      const [layers, heads, S, T] = outputs[`${name}_sizes`][row];
      const bytes = ofBase64(outputs[`${name}_bytes`][row].b64);
      const places = (tokens) => tokens.flatMap((token, place) => (token === "" ? [] : [place]));
      const read = places(outputs[`${name}_tokens`][row]);
      // A memory has columns before those of the text; where nobody reads them, they are not shown.
      const from = places(outputs[`${name}_attended`][row]).filter((place) => place >= T - S || name === "cross" || isRead(bytes, T, place));
      const named = (tokens, kept) => readable(kept.map((place) => tokens[place]), known).map(nameOf);
      maps.push({
        name: [rows > 1 ? `${rowName} ${row + 1}` : "", titles[name]].filter(Boolean).join(", ") || "the text",
        tokens: named(outputs[`${name}_tokens`][row], read), attended: named(outputs[`${name}_attended`][row], from),
        layers, heads, bytes: read.length === S && from.length === T ? bytes : cutOut(bytes, layers * heads, S, T, read, from),
      });
    }
  }
  return maps;
}

function ofBase64(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

function isRead(bytes, T, column) {
  for (let i = column; i < bytes.length; i += T) if (bytes[i]) return true;
  return false;
}

function cutOut(bytes, heads, S, T, rows, columns) {
  const kept = new Uint8Array(heads * rows.length * columns.length);
  let i = 0;
  for (let head = 0; head < heads; head++) for (const s of rows) for (const t of columns) kept[i++] = bytes[(head * S + s) * T + t];
  return kept;
}

// The window of the frame, which is filled once.
function attentionFrame() {
  const frame = $("attention");
  state.frame ??= new Promise((resolve) => {
    frame.addEventListener("load", () => resolve(frame.contentWindow), { once: true });
    frame.srcdoc = config.attention_page;
  });
  return state.frame;
}
