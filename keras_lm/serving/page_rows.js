// The rows of a file, answered some at a time: a table of the first ones, and all of them as CSV.

const ROWS_AT_A_TIME = { usual: 32, writing: 8 };
const MOST_SHOWN = 200;
const EMPTY_FILE = "The file has no rows.";

// The usual names of an input's column, as the command line has them.
const COLUMNS = {
  text: ["text", "sentence", "sentence1", "prompt"], text_pair: ["text_pair", "sentence2"], prompt: ["prompt", "text", "sentence"],
};

// The records of CSV: fields in quotes may hold separators, line ends and, twice, quotes.
function readCsv(text) {
  const records = [[]];
  const field = /(?:"([^"]*(?:""[^"]*)*)"|((?!")[^,\r\n]*))(,|\r?\n|\r|$)/y;
  for (let line = 1; field.lastIndex < text.length;) {
    const found = field.exec(text);
    if (!found) throw new Refused(`Line ${line}: a quote is not closed, or not at the end of its field. Inside a quoted field, write a quote twice.`);
    const [all, quoted, plain, end] = found;
    records.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    line += all.split("\n").length - 1;
    if (end !== "," && end !== "") records.push([]);
    if (end === "," && field.lastIndex === text.length) records.at(-1).push("");
  }
  return records.filter((record) => record.length > 1 || record[0]); // without blank lines
}

// The rows of a file, as objects; its suffix tells what it is.
function readRows(name, text) {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  if (/\.jsonl$/i.test(name)) {
    return lines.flatMap((line, index) => {
      if (!line.trim()) return [];
      try {
        const row = JSON.parse(line);
        if (row && typeof row === "object" && !Array.isArray(row)) return [row];
      } catch {
        // As what is no object.
      }
      throw new Refused(`Line ${index + 1} is not a JSON object, such as {"text": "…"}.`);
    });
  }
  if (!/\.[ct]sv$/i.test(name)) return lines.map((line) => ({ text: line }));
  const [header = [], ...records] = /\.tsv$/i.test(name) ? lines.filter((line) => line.trim()).map((line) => line.split("\t")) : readCsv(text.replace(/^\ufeff/, ""));
  return records.map((record, index) => {
    if (record.length !== header.length) throw new Refused(`Row ${index + 1} has ${count(record.length, "field")}, and the header ${header.length}.`);
    return Object.fromEntries(header.map((column, place) => [column, record[place]]));
  });
}

const rows = { all: [], answers: [], names: [], file: "", run: 0 };
const textFields = () => state.fields.filter(({ kind }) => kind === "text" || kind === "rows");

function hideRows() {
  rows.run++; // what is being answered is of another model
  $("rows-card").hidden = true;
}

// Rows are for models all of whose inputs are texts and options.
function drawRows() {
  $("rows-card").hidden = !state.fields.length || state.fields.some(({ kind }) => kind === "list" || kind === "json");
  drawColumns();
}

// A choice of columns for each text, begun with the usual names.
function drawColumns() {
  Object.assign(rows, { answers: [], names: [], run: rows.run + 1 });
  $("rows").replaceChildren();
  $("rows-save").hidden = true;
  const known = Object.keys(rows.all[0] ?? {});
  $("rows-ask").disabled = !known.length;
  $("rows-columns").replaceChildren(...(known.length ? textFields() : []).map(({ name, title }) => {
    const select = element("select", { id: `column-${name}`, name }, ...known.map((column) => element("option", { value: column }, column)));
    select.value = [name, ...(COLUMNS[name] ?? [])].find((column) => known.includes(column)) ?? known[0];
    return element("span", { class: "column" }, element("label", { for: select.id }, `${title}:`), select);
  }));
  $("rows-note").textContent = known.length ? count(rows.all.length, "row") : "";
}

async function openRows(file) {
  try {
    Object.assign(rows, { all: [], file: file.name });
    const read = readRows(file.name, await file.text());
    if (!read.length) throw new Refused(EMPTY_FILE);
    rows.all = read;
    drawColumns();
  } catch (error) {
    drawColumns();
    drawRowsError(error);
  }
}

function drawRowsError(error) {
  if (!(error instanceof Refused)) console.error(error);
  $("rows").prepend(element("p", { class: "error" }, error.message));
}

// What stands in a table for one row of an output: a word, a number, the best score, or JSON.
function cellOf(name, value) {
  if (isNumber(value) || typeof value === "string") return value;
  if (name === "text" && Array.isArray(value)) return String(value[0]); // the best of several
  if (name === "labels" && Array.isArray(value)) return value.filter((label) => label !== "").join(", ");
  if (name === "scores" && isVector(value)) return Math.max(...value);
  return JSON.stringify(value);
}

const textOf = (value) => (typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value));

async function answerRows() {
  const run = ++rows.run, chosen = textFields().map(({ name }) => [name, $(`column-${name}`).value]);
  Object.assign(rows, { answers: [], names: [] });
  $("rows-ask").disabled = true;
  $("rows-save").hidden = true;
  $("rows").replaceChildren();
  try {
    const given = columns(); // the options, as they stand above
    const size = "max_new_tokens" in given ? ROWS_AT_A_TIME.writing : ROWS_AT_A_TIME.usual;
    for (let start = 0; start < rows.all.length; start += size) {
      const some = rows.all.slice(start, start + size);
      const inputs = Object.fromEntries(Object.entries(given).map(([name, value]) => [name, Array.isArray(value) ? some.map(() => value[0]) : value]));
      for (const [name, column] of chosen) inputs[name] = some.map((row) => textOf(row[column]));
      const { outputs } = await predict(state.signature, inputs);
      if (run !== rows.run) return;
      const isFirst = (name) => name === "labels" || name === "text";
      rows.names = Object.keys(outputs).filter((name) => name !== "class_names" && Array.isArray(outputs[name])).sort((a, b) => isFirst(b) - isFirst(a));
      rows.answers.push(...some.map((_, place) => Object.fromEntries(rows.names.map((name) => [name, cellOf(name, outputs[name][place])]))));
      $("rows-note").textContent = `${rows.answers.length} of ${count(rows.all.length, "row")} answered`;
      drawAnswers(chosen.map(([, column]) => column));
    }
    $("rows-save").hidden = false;
  } catch (error) {
    if (run === rows.run) drawRowsError(error);
  } finally {
    if (run === rows.run) $("rows-ask").disabled = false;
  }
}

function drawAnswers(chosen) {
  const shown = rows.answers.slice(0, MOST_SHOWN);
  const show = (value) => (isNumber(value) ? short(value) : element("span", { class: "one-line" }, String(value)));
  $("rows").replaceChildren(
    table(["", ...chosen, ...rows.names], shown.map((answer, place) =>
      [String(place + 1), ...chosen.map((column) => show(textOf(rows.all[place][column]))), ...rows.names.map((name) => show(answer[name]))])),
    ...(rows.answers.length > shown.length ? [note(`The first ${MOST_SHOWN} are shown; the file has all.`)] : []),
  );
}

// All rows with their answers, as CSV; a column that the answer names, too, is that of the file.
function saveRows() {
  const known = [...new Set(rows.all.flatMap(Object.keys))];
  const added = rows.names.map((name) => [name, known.includes(name) ? `answer_${name}` : name]);
  const quote = (value) => {
    const text = textOf(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [[...known, ...added.map(([, title]) => title)], ...rows.all.map((row, place) =>
    [...known.map((name) => row[name]), ...added.map(([name]) => rows.answers[place][name])])];
  const content = lines.map((line) => `${line.map(quote).join(",")}\n`).join("");
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type: "text/csv" })), download: rows.file.replace(/\.[^.]*$/, "") + "-answers.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}
