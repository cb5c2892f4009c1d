const config = JSON.parse(document.getElementById("config").textContent);
const $ = (id) => document.getElementById(id);
const state = { model: null, signature: null, signatures: {}, fields: [], hues: new Map(), turn: 0, asked: new Set(), shown: {} };

// === Building the page: text is only ever set as text, so nothing in it can become HTML ===

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const note = (text) => element("p", { class: "quiet" }, text);
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const isNumber = (value) => typeof value === "number";
const isText = (info) => info.dtype === "DT_STRING";
const isVector = (value) => Array.isArray(value) && value.length > 0 && value.every(isNumber);

function short(number) {
  const size = Math.abs(number);
  return size !== 0 && (size < 0.001 || size >= 1e6) ? number.toExponential(2) : number.toFixed(3);
}

const ofOne = (score) => (!isNumber(score) ? score : score > 0 && score < 0.0005 ? "< 0.001" : score.toFixed(3));

// === The server ===

class Refused extends Error {}

const modelPath = (model) => `v1/models/${encodeURIComponent(model)}`;

async function call(path, body) {
  const start = performance.now();
  let response, text;
  try {
    const options = body && { method: "POST", body: JSON.stringify(body) };
    response = await fetch(path, { ...options, headers: { ...(body && { "Content-Type": "application/json" }), ...authorization() } });
    text = await response.text();
  } catch (error) {
    throw new Refused(`The server does not answer (${error.message}). Is it still running?`);
  }
  const milliseconds = performance.now() - start;
  let answer;
  try {
    answer = parse(text);
  } catch {
    throw new Refused(`The server answers ${response.status}, but not in JSON: ${text.slice(0, 300)}`);
  }
  if (response.status === 401) askForKey(answer.error);
  if (!response.ok) throw new Refused(`The server answers ${response.status}: ${answer.error ?? text}`);
  return { answer, milliseconds };
}

// The key of a server that asks for one: this tab keeps it, and nothing else.
const KEPT = "keras_lm_api_key";
const key = () => (config.needs_key ? sessionStorage.getItem(KEPT) : null);
const authorization = () => (key() ? { Authorization: `Bearer ${key()}` } : {});

function askForKey(why) {
  if (why && key()) $("key-note").textContent = why;
  sessionStorage.removeItem(KEPT);
  $("key-form").hidden = false;
  $("key").focus();
}

// TF Serving writes NaN and infinities as they are, which JSON does not know: let them be strings.
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return JSON.parse(text.replace(/("(?:[^"\\]|\\.)*")|-?\b(?:NaN|Infinity)\b/g, (found, string) => string ?? `"${found}"`));
  }
}

async function predict(signature, inputs) {
  const { answer, milliseconds } = await call(`${modelPath(state.model)}:predict`, { signature_name: signature, inputs });
  const names = Object.keys(state.signatures[signature].outputs ?? {});
  // A single output comes without its name.
  const outputs = names.length === 1 ? { [names[0]]: answer.outputs } : answer.outputs;
  return { outputs, milliseconds };
}

// === Choosing a model ===

async function choose(model) {
  const turn = ++state.turn;
  Object.assign(state, { model, signature: null, signatures: {}, hues: new Map() });
  $("ask").disabled = true;
  $("version").textContent = $("latency").textContent = "";
  hideBelow();
  hideRows();
  $("answer").replaceChildren(note("Nothing asked yet."));
  try {
    const { answer } = await call(`${modelPath(model)}/metadata`);
    if (turn !== state.turn) return;
    const all = answer.metadata.signature_def.signature_def;
    state.signatures = Object.fromEntries(Object.entries(all).filter(([name]) => !name.startsWith("__")));
    state.signature = signatureToAsk();
    $("version").textContent = `version ${answer.model_spec.version}`;
    drawFields(await examplesOf(view()));
    if (turn !== state.turn) return;
    drawButton();
    drawCommands();
    drawRows();
    $("ask").disabled = false;
  } catch (error) {
    if (turn === state.turn) drawError(error);
  }
}

const view = () => viewOf(state.signatures[state.signature]);

// What stands in the fields of a model before anybody has typed there, in its own words.
async function examplesOf(found) {
  const own = config.examples?.[state.model];
  if (own) return { ...EXAMPLES, ...found?.examples, ...ownExamples(own) };
  const examples = { ...EXAMPLES, ...found?.examples };
  if (!(found?.draw === drawMasks && names(state.signatures.tokenize?.inputs) === "text")) return examples;
  try {
    const { outputs } = await predict("tokenize", { text: MASKS });
    const own = MASKS.find((_, row) => outputs.tokens[row].some((token) => MASK.test(token)));
    return { ...examples, text: examples.text.map((text) => text.replace(MASKS[0], own ?? MASKS[0])) };
  } catch {
    return examples; // the model will say why
  }
}

// The example passed to the server: a text for the first input, or texts by the names of inputs.
function ownExamples(own) {
  const inputs = inputsOf(state.signature).filter(([, info]) => isText(info)).map(([name]) => name);
  const first = ["text", "prompt", "question"].find((name) => inputs.includes(name)) ?? inputs[0];
  return Object.fromEntries(Object.entries(typeof own === "string" ? { [first]: own } : own).map(([name, value]) => [name, [value].flat()]));
}

// By the task; the beginning of a text may ask a text-to-text model for something other than a translation.
function drawButton() {
  const verb = view()?.verb ?? "Ask", told = /^\s*([a-z][a-z ]*):/i.exec(valuesOf("text")[0] ?? "");
  $("ask").textContent = verb === "Translate" && told && !/^translate/i.test(told[1]) ? "Write" : verb;
}

const inputsOf = (signature) => Object.entries(state.signatures[signature]?.inputs ?? {});
const names = (record) => Object.keys(record ?? {}).sort().join();

// The search of an export with a corpus; the default signature; or one that answers alike, and besides takes options that have defaults.
function signatureToAsk() {
  if (kindOf(state.signatures.search?.outputs?.documents) === "text 2") return "search";
  const first = "serving_default" in state.signatures ? "serving_default" : Object.keys(state.signatures)[0];
  if (!first) throw new Refused("This model has no signature to ask.");
  const { inputs, outputs } = state.signatures[first];
  const withOptions = Object.entries(state.signatures).find(([, other]) => {
    const required = Object.entries(other.inputs ?? {}).filter(([name]) => !(name in (other.defaults ?? {})));
    return names(other.defaults) && names(other.outputs) === names(outputs) && names(Object.fromEntries(required)) === names(inputs);
  });
  return withOptions?.[0] ?? first;
}

// === Fields ===

const TITLES = {
  text: "Text", text_pair: "Second text", prompt: "Prompt", choices: "Choice",
  question: "Question", context: "Context",
  max_new_tokens: "Length", temperature: "Temperature", top_p: "Top-p", stop: "Stop", top_k: "Top-k",
  num_beams: "Beams", length_penalty: "Length penalty",
  repetition_penalty: "Repetition penalty", no_repeat_ngram_size: "Unrepeated n-grams", seed: "Seed",
  scores: "Score",
};
const HINTS = {
  max_new_tokens: "tokens at most", temperature: "0: the likeliest", top_p: "1: of all tokens", stop: "before this; \\n: new line",
  top_k: "0: of all tokens", repetition_penalty: "1: none", no_repeat_ngram_size: "0: off", seed: "-1: a new one",
  num_beams: "texts at a time", length_penalty: "above 0: longer",
};
// What stands in a field before anybody has typed there.
const EXAMPLES = {
  text: ["The film was never dull, and its songs were a pleasure.", "It was a delight from beginning to end."],
  text_pair: ["It was a good film."], prompt: ["Once upon a time"],
  question: ["Where was the letter found?"], context: ["The letter was found in a drawer, years after it had been written."],
  choices: ["They watched it twice.", "They left at once."],
};
const MASKS = ["[MASK]", "<mask>"];
const MAIN_OPTIONS = ["num_beams", "length_penalty", "max_new_tokens", "temperature", "top_p", "stop"];

// The value of an input's default, as text; undefined if there is none, or it is not a single one.
function defaultOf(tensor) {
  const [name, values] = Object.entries(tensor ?? {}).find(([name]) => name.endsWith("_val")) ?? [];
  if (values?.length !== 1) return undefined;
  if (name !== "string_val") return String(values[0]);
  return new TextDecoder().decode(Uint8Array.from(atob(values[0]), (character) => character.charCodeAt(0))).replaceAll("\n", "\\n");
}

// How a person gives an input: as text, as several texts (the rows of a batch, or the list of one
// row), as an option that has a default, or as JSON.
function drawFields(examples = EXAMPLES) {
  // What was typed is kept for the next model, an example is not.
  const typed = new Map(state.fields.map(({ name }) => [name, valuesOf(name)])
    .filter(([name, values]) => JSON.stringify(values) !== JSON.stringify(state.shown[name])));
  const { defaults, outputs } = state.signatures[state.signature];
  const place = (name) => (name === "question" ? 0 : name.length);
  const inputs = inputsOf(state.signature).sort(([a], [b]) => place(a) - place(b) || (a < b ? -1 : 1));
  // Vectors are there to be compared.
  const hasRows = inputs.length === 1 && kindOf(outputs?.embedding) === "float 2";
  const fields = inputs.map(([name, info]) => {
    const preset = defaultOf(defaults?.[name]);
    const kind = preset !== undefined ? "option" : !isText(info) ? "json" : hasRows ? "rows" : kindOf(info) === "text 2" ? "list" : "text";
    return { name, info, kind, preset, title: name === "text" && inputs.some(([other]) => other === "text_pair") ? "First text" : TITLES[name] ?? name };
  });
  const rank = ({ name }) => MAIN_OPTIONS.indexOf(name) + 1 || MAIN_OPTIONS.length + 1;
  const options = fields.filter(({ kind }) => kind === "option").sort((a, b) => rank(a) - rank(b));
  const others = fields.filter(({ kind }) => kind !== "option");
  state.fields = [...others, ...options];
  const main = options.filter(({ name }) => MAIN_OPTIONS.includes(name)), more = options.filter((field) => !main.includes(field));
  const grid = (fields) => element("div", { class: "options" }, ...fields.map(drawOption));
  $("fields").className = others.length > 1 || others.some(({ kind }) => kind === "list" || kind === "rows") ? "several" : "";
  $("fields").replaceChildren(
    ...others.map((field) => drawField(field, typed.get(field.name) ?? examples[field.name] ?? [])),
    ...(main.length ? [grid(main)] : []),
    ...(more.length ? [element("details", { class: "more", open: main.length ? null : "" }, element("summary", { class: "quiet" }, "More options"), grid(more))] : []),
  );
  state.shown = Object.fromEntries(others.filter(({ name }) => !typed.has(name)).map(({ name }) => [name, valuesOf(name)]));
}

function drawField({ name, info, kind, title }, typed) {
  const isMany = kind === "list" || kind === "rows";
  const area = (value, index) => {
    const made = element("textarea", { id: `field-${name}-${index}`, name, spellcheck: "false" });
    made.value = value;
    const label = isMany ? `${title} ${index + 1}` : isText(info) ? title : `${title} (${info.dtype.slice(3).toLowerCase()}, as JSON)`;
    return element("div", { class: "field" }, element("label", { for: made.id }, label), made);
  };
  if (!isMany) return area(typed[0] ?? "", 0);
  const kept = filled(typed);
  const list = element("div", {}, ...Array.from({ length: Math.max(kept.length, 2) }, (_, index) => area(kept[index] ?? "", index)));
  const more = element("button", { type: "button", class: "add" }, `Add a ${title.toLowerCase()}`);
  more.addEventListener("click", () => {
    list.append(area("", list.children.length));
    list.lastChild.querySelector("textarea").focus();
  });
  return element("div", { class: "field" }, list, more);
}

function drawOption({ name, info, preset, title }) {
  const type = { DT_STRING: "text", DT_BOOL: "checkbox" }[info.dtype] ?? "number";
  const made = element("input", { id: `field-${name}`, name, type, ...(type === "number" && { step: INTEGER.test(info.dtype) ? "1" : "any", required: "" }) });
  if (type === "checkbox") made.checked = preset === "true";
  else made.value = preset;
  return element("div", { class: "option" }, element("label", { for: made.id }, title), made, element("small", { class: "quiet" }, HINTS[name] ?? ""));
}

const valuesOf = (name) => [...$("fields").querySelectorAll("textarea, input")].filter((field) => field.name === name)
  .map((field) => (field.type === "checkbox" ? String(field.checked) : field.value));
const filled = (texts) => {
  const some = texts.filter((text) => text.trim() !== "");
  return some.length ? some : [""];
};

// What stands in the fields: a string of each, or a list of them.
const fieldValues = () => Object.fromEntries(state.fields.map(({ name, kind }) =>
  [name, kind === "list" || kind === "rows" ? valuesOf(name) : valuesOf(name)[0]]));

// The inputs as the column format of `:predict` takes them.
function columns(values = fieldValues()) {
  return Object.fromEntries(state.fields.map(({ name, info, kind, title }) => {
    if (kind === "rows") return [name, filled(values[name])];
    if (kind === "list") return [name, [filled(values[name])]];
    let value = values[name];
    if (kind === "option") {
      value = isText(info) ? value.replaceAll("\\n", "\n") : info.dtype === "DT_BOOL" ? value === "true" : value === "" ? NaN : Number(value);
      if (Number.isNaN(value)) throw new Refused(`${title} has to be a number.`);
    } else if (kind === "json") {
      try {
        value = JSON.parse(value);
      } catch {
        throw new Refused(`${name} has to be written as JSON, such as 1.5 or [1, 2].`);
      }
    }
    return [name, / 0$/.test(kindOf(info)) ? value : [value]];
  }));
}

// === Asking ===

// Says that the model is running, and for how long; returns what stops that.
function drawWaiting(isFirst) {
  const start = performance.now();
  // Not announced again and again.
  const seconds = element("span", { class: "seconds", "aria-hidden": "true" });
  const line = element("p", { class: "quiet waiting" }, isFirst
    ? "The model is running. Its first answer takes longer, because TensorFlow prepares the graph. " : "The model is running. ", seconds);
  const timer = setInterval(() => {
    if (performance.now() - start < 400) return;
    if (!line.isConnected) $("answer").replaceChildren(line);
    seconds.textContent = `${((performance.now() - start) / 1000).toFixed(1)} s`;
  }, 100);
  return () => clearInterval(timer);
}

// Writes a continuation as it comes; null where the model cannot be asked piece by piece.
async function write(values, turn, begin) {
  if (state.signature !== "generate" || !("prompt" in state.signatures.generate.inputs)) return null;
  const single = Object.entries(columns(values)).map(([name, value]) => [name, Array.isArray(value) ? value[0] : value]);
  const body = JSON.stringify(Object.fromEntries(single.filter(([name, value]) => name === "prompt" || value !== "")));
  const start = performance.now();
  let text = "", left = "";
  try {
    const response = await fetch(`${modelPath(state.model)}:stream`, { method: "POST", body, headers: authorization() });
    if (!response.ok) return null; // `:predict` says why
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (left + part.value).split("\n\n");
      left = events.pop();
      for (const event of events.map((line) => JSON.parse(line.slice("data: ".length)))) {
        if (turn !== state.turn) {
          reader.cancel();
          throw new Refused("Another request was started.");
        }
        if (event.error) throw new Refused(event.error);
        if (event.done) return { outputs: { text: [text], num_tokens: [event.num_tokens], num_prompt_tokens: [event.num_prompt_tokens] }, milliseconds: performance.now() - start };
        begin();
        text += event.text;
        $("answer").replaceChildren(...drawContinuation({ text: [text] }, { values }));
      }
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(`The server does not answer (${error.message}). Is it still running?`);
  }
  throw new Refused("The server stopped before the end of the text.");
}

async function ask() {
  if ($("ask").disabled) return;
  const turn = ++state.turn;
  const values = fieldValues();
  $("ask").disabled = true;
  $("answer").setAttribute("aria-busy", "true");
  const asked = `${state.model} ${state.signature}`, isFirst = !state.asked.has(asked);
  const begin = drawWaiting(isFirst);
  try {
    // The answer is asked for alone, so that its time is its own.
    const { outputs, milliseconds } = (await write(values, turn, begin)) ?? (await predict(state.signature, columns(values)));
    const [classNames, readings] = await Promise.all([classNamesOf(values, outputs), readingsOf(values)]);
    if (turn !== state.turn) return;
    begin();
    state.asked.add(asked);
    const time = milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds);
    $("latency").textContent = `${isFirst ? "first answer: " : ""}${time} ms round trip`;
    drawAnswer(outputs, { values, classNames, readings });
    drawTokens(readings);
    showGraphs(values, turn);
    showMentions(values, turn);
    showAttention(values, outputs, turn);
  } catch (error) {
    if (turn === state.turn) drawError(error);
  } finally {
    begin();
    $("answer").removeAttribute("aria-busy");
    if (turn === state.turn) $("ask").disabled = false;
  }
}

// The names of the classes beside their scores: an output says them, or the method `classify`.
async function classNamesOf(values, outputs) {
  const said = outputs?.class_names ?? outputs?.classes;
  if (said) return Array.isArray(said[0]) ? said[0] : said;
  if (!("classify" in state.signatures)) return null;
  try {
    const { answer } = await call(`${modelPath(state.model)}:classify`, { signature_name: "classify", examples: [values] });
    return (answer.results ?? answer.result)[0].map(([name]) => name);
  } catch (error) {
    console.info(error.message); // then without names
    return null;
  }
}

// The tokens of each text that the model reads by itself; a choice is read together with its text.
async function readingsOf(values) {
  const inputs = inputsOf("tokenize");
  if (!inputs.length || !inputs.every(([name, info]) => isText(info) && name in values)) return [];
  const many = inputs.map(([name]) => name).find((name) => Array.isArray(values[name]));
  const rows = many ? filled(values[many]).map((text) => ({ ...values, [many]: text })) : [values];
  const tokenize = async (some) => {
    const column = ([name, info]) => [name, some.map((row) => (kindOf(info) === "text 2" ? [row[name]] : row[name]))];
    const { outputs } = await predict("tokenize", Object.fromEntries(inputs.map(column)));
    const [tokens, ids] = [outputs.tokens, outputs.token_ids ?? []].map((batch) => batch.map((row) => row.flat()));
    return tokens.map((row, index) => ({ tokens: row.filter((token) => token !== ""), ids: ids[index] ?? [] }));
  };
  if ("context" in values) { // read whole, in windows
    const windows = await tokenize([values]);
    return windows.map(({ tokens, ids }, index) =>
      ({ title: windows.length > 1 ? `Window ${index + 1}` : null, tokens, ids, others: [], isFull: false, total: tokens.length }));
  }
  // One more word is one more token at least, unless the row is full.
  const [first] = inputs[0];
  const found = await tokenize([...rows, ...rows.map((row) => ({ ...row, [first]: `${row[first]} a` }))]);
  return Promise.all(rows.map(async (row, index) => {
    const { tokens, ids } = found[index], others = found[rows.length + index].tokens;
    const isFull = others.length <= tokens.length;
    const total = isFull ? await totalOf(row) : tokens.length;
    const title = rows.length > 1 ? `${TITLES[many] ?? many} ${index + 1}` : null;
    return { title, tokens, ids, others, isFull, total };
  }));

  // Of a row that is full: count the tokens of a few words at a time, which all fit; null where that fails.
  async function totalOf(row) {
    const nothing = Object.fromEntries(inputs.map(([name]) => [name, ""]));
    const parts = inputs.flatMap(([name]) => (row[name].match(/(?:\S+\s*){1,4}/g) ?? []).map((part) => ({ ...nothing, [name]: part })));
    if (!parts.length || parts.length > 1000) return null;
    const [empty, ...counts] = (await tokenize([nothing, ...parts])).map(({ tokens }) => tokens.length);
    const [size] = (await tokenize([row])).map(({ tokens }) => tokens.length);
    return Math.max(...counts) < size ? counts.reduce((sum, number) => sum + number - empty, empty) : null;
  }
}

// === Drawing ===

function hideBelow() {
  for (const name of ["graphs", "mentions", "tokens", "attention"]) $(`${name}-card`).hidden = true;
}

function drawError(error) {
  $("latency").textContent = "";
  hideBelow();
  if (!(error instanceof Refused)) console.error(error);
  $("answer").replaceChildren(element("p", { class: "error" }, error.message));
}

// === Commands to copy ===

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// JSON's strings are Python's, too.
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === null) return "None";
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

// The same request over both protocols.
function drawCommands() {
  const values = fieldValues();
  let inputs = null;
  try {
    inputs = columns(values);
  } catch {
    // Not JSON yet.
  }
  $("curl-box").hidden = $("grpc-box").hidden = !inputs;
  if (!inputs) return;
  const url = new URL(`${modelPath(state.model)}:predict`, location.href).href;
  const body = { ...(state.signature === "serving_default" ? {} : { signature_name: state.signature }), inputs };
  // Through a pipe, since all users of a machine see the arguments of commands.
  const curl = config.needs_key ? 'echo "Authorization: Bearer $KERAS_LM_API_KEY" | curl -H @-' : "curl";
  $("curl").textContent = `${curl} -d ${quoted(JSON.stringify(body))} ${quoted(url)}`;
  const address = config.grpc_address.replace(/^(0\.0\.0\.0|\[::\]):/, `${location.hostname}:`);
  const isPlain = state.signature === "serving_default" && state.fields.every(({ kind }) => kind === "text" || kind === "rows")
    && ["text", "prompt", "text,text_pair"].includes(state.fields.map(({ name }) => name).join());
  $("grpc-title").textContent = isPlain ? "gRPC" : "gRPC, in Python";
  $("grpc").textContent = isPlain ? predictCommand(address, values) : [
    "python - <<'END'",
    ...(config.needs_key ? ["import os"] : []), "import json", "from keras_lm.serving import Client", "",
    `client = Client(${python(`${config.grpc_scheme}://${address}`)}, ${python(state.model)}${config.needs_key ? ', api_key=os.environ["KERAS_LM_API_KEY"]' : ""})`,
    `outputs = client.predict(${python(inputs)}, ${python(state.signature)})`,
    "print(json.dumps({name: value.tolist() for name, value in outputs.items()}))",
    "END",
  ].join("\n");
}

// Texts alone are what the command line takes.
function predictCommand(address, values) {
  const command = `keras-lm predict --server ${quoted(`${config.grpc_scheme}://${address}`)} --model ${quoted(state.model)}`;
  const all = Object.values(values);
  if (all.length > 1) return `printf '%s\\n' ${quoted(JSON.stringify(values))} | ${command} --input - --format jsonl`;
  const texts = Array.isArray(all[0]) ? filled(all[0]) : all;
  return `${command} ${texts.some((text) => text.startsWith("-")) ? "-- " : ""}${texts.map(quoted).join(" ")}`;
}

async function copy(button) {
  const text = $(button.dataset.copies).textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers keep the clipboard from pages that come over plain HTTP from another machine.
    const area = element("textarea", { class: "hidden", readonly: "" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const label = button.firstChild;
  label.textContent = "Copied";
  $("copied").textContent = "Copied";
  setTimeout(() => { label.textContent = "Copy"; $("copied").textContent = ""; }, 1500);
}

// === Start ===

$("model").addEventListener("change", () => choose($("model").value));
$("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
$("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("form").requestSubmit(); }
});
$("rows-file").addEventListener("change", () => { if ($("rows-file").files.length) openRows($("rows-file").files[0]); });
$("rows-ask").addEventListener("click", answerRows);
$("rows-save").addEventListener("click", saveRows);
$("fields").addEventListener("input", () => { drawCommands(); drawButton(); });
for (const button of document.querySelectorAll("[data-copies]")) button.addEventListener("click", () => copy(button));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEPT, $("key").value.trim());
  $("key").value = "";
  enter();
});
if (!config.needs_key) drawModels();
else if (key()) enter();
else askForKey();

// With a key, what this server has.
async function enter() {
  try {
    Object.assign(config, (await call("page.json")).answer);
  } catch (error) {
    $("key-note").textContent = error.message;
    return;
  }
  $("key-form").hidden = true;
  drawModels();
}

function drawModels() {
  $("model").replaceChildren(...config.models.map((name) => element("option", { value: name }, name)));
  if (config.models.length) choose($("model").value);
  else $("answer").replaceChildren(note("This server has no model."));
}
