// The model of this folder, in the browser: no text leaves it. In a page of your own, next to this folder:
//
//   import { loadModel } from "./FOLDER/model.js";
//   const model = await loadModel();
//   const { scores, notes } = await model.ask({ text: "never a dull moment" });
//
// model.json says what it takes and returns, and which files it loads, with their hashes.

// The shortest program with a relaxed SIMD instruction, for which there is a faster runtime.
const RELAXED_SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0,
  65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11,
]);

// A file's content; a TypeError if it is not what its hash says.
async function read({ url, integrity }, as) {
  const answer = await fetch(new URL(url, import.meta.url), { integrity, cache: integrity ? "default" : "no-cache" });
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  return answer[as]();
}

const urlOf = (code) => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));

// LiteRT.js, once for all models of a page. Its code is run from memory, after its hashes were compared.
let litert;
async function loadRuntime(files) {
  const runtime = `litert_wasm${WebAssembly.validate(RELAXED_SIMD) ? "" : "_compat"}_internal`;
  const [core, utils, loader, wasmBinary] = await Promise.all([
    read(files.core, "text"), read(files["wasm-utils"], "text"),
    read(files[`${runtime}.js`], "text"), read(files[`${runtime}.wasm`], "arrayBuffer"),
  ]);
  self.Module = { wasmBinary };
  const module = await import(urlOf(core.replace('"@litertjs/wasm-utils"', JSON.stringify(urlOf(utils)))));
  await module.loadLiteRt(`${urlOf(loader)}#.js`); // an address that ends as a script's
  return module;
}

// The UTF-8 of a text that fits, whole characters of the end that the model keeps, and the size of all.
function bytesOf(text, room, side) {
  const all = new TextEncoder().encode(text), inside = (place) => (all[place] & 0xc0) === 0x80;
  let first = side === "left" ? Math.max(all.length - room, 0) : 0;
  let end = Math.min(all.length, first + room);
  while (first && inside(first)) first++;
  while (end < all.length && inside(end)) end--;
  return { bytes: all.subarray(first, end), size: all.length };
}

class Model {
  // Beside `run`: `kind`, `fields` (names and titles of texts), `bytes` (the most of each) and `classes`, of model.json.
  constructor(config, signature) {
    Object.assign(this, config, { signature, calls: 0 });
  }

  // The answer for a dict of texts: each output by name, as an array of numbers. Also `notes`, sentences about what
  // was not read, and `texts`: what was, as characters, which `start` and `end` count.
  async ask(texts) {
    const inputs = { call: new litert.Tensor(new Int32Array([++this.calls]), []) }, answer = { notes: [], texts: {} };
    for (const [name, title] of this.fields) {
      if (typeof texts[name] !== "string") throw new TypeError(`ask takes ${this.fields.map(([name]) => name)}: ${name} is not a string.`);
      const { bytes, size } = bytesOf(texts[name], this.bytes, this.side), room = new Uint8Array(this.bytes * this.rows);
      room.set(bytes);
      inputs[name] = new litert.Tensor(room, [room.length]);
      inputs[`${name}_ends`] = new litert.Tensor(new Int32Array(this.rows).fill(bytes.length), [this.rows]);
      answer.texts[name] = [...new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)];
      if (bytes.length < size) {
        answer.notes.push(`${title}: only the ${this.side === "left" ? "last" : "first"} ${bytes.length} of ${size} bytes were read.`);
      }
    }
    const outputs = await this.signature.run(inputs);
    for (const [name, tensor] of Object.entries(outputs)) {
      const numbers = await tensor.data();
      answer[name] = name === "call" ? numbers[0] : numbers.slice(0, numbers.length / this.rows);
    }
    for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) tensor.delete();
    // LiteRT.js writes to the console that an operation has failed, and returns what is in its memory.
    if (answer.call !== this.calls) throw new Error("The model cannot read this text: the console says why.");
    if (answer.unread[0]) answer.notes.push(`Too long for the model: ${answer.unread[0]} ${this.unread} were not read.`);
    return answer;
  }
}

export async function loadModel() {
  const { files, ...config } = await read({ url: "model.json" }, "json");
  const runtime = (litert ??= loadRuntime(files));
  const [data, module] = await Promise.all([read(files.model, "arrayBuffer"), runtime]);
  litert = module;
  const model = await module.loadAndCompile(new Uint8Array(data), { accelerator: "wasm" });
  return new Model(config, model.signatures.serving_default);
}
