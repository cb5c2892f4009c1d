// The graph of concepts by which a choice was scored: a picture of its weightiest paths, and a list.

const MOST_PATHS = 8;
const GRAPH_WIDTH = 640, ROW_HEIGHT = 46;

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Asks the signature `explain`, and draws what each choice was scored by, the best one open.
async function showGraphs(values, turn) {
  $("graphs-card").hidden = true;
  if (names(state.signatures.explain?.inputs) !== "choices,text" || !("paths" in state.signatures.explain.outputs)) return;
  const choices = filled(values.choices);
  try {
    const { outputs } = await predict("explain", { text: [values.text], choices: [choices] });
    if (turn !== state.turn) return;
    const best = outputs.labels[0];
    $("graphs").replaceChildren(...choices.map((choice, index) => element("details", { open: index === best ? "" : null },
      element("summary", {}, `${choice} `, element("span", { class: "quiet" }, ofOne(outputs.scores[0][index]))),
      ...drawGraph(pathsOf(outputs, index), outputs.pairs[0][index]))));
    $("graphs-card").hidden = false;
  } catch (error) {
    console.info(error.message); // the answer stands without them
  }
}

// The paths of a choice, the weightiest first: `{ concepts, relations, weight }`.
function pathsOf(outputs, choice) {
  const isThere = (text) => text !== "";
  return outputs.paths[0][choice].map((path, index) => ({
    concepts: path.filter(isThere),
    relations: outputs.relations[0][choice][index].filter(isThere),
    weight: outputs.path_weights[0][choice][index],
  })).filter(({ concepts }) => concepts.length).sort((a, b) => b.weight - a.weight);
}

const spaced = (concept) => concept.replaceAll("_", " ");
// `-IsA` goes from the second concept to the first.
const arrow = (relation) => (relation.startsWith("-") ? `← ${relation.slice(1)} –` : `– ${relation} →`);
const written = ({ concepts, relations }) => concepts.map((concept, place) => (place ? `${arrow(relations[place - 1] ?? "")} ` : "") + spaced(concept)).join(" ");

function drawGraph(paths, pairs) {
  if (!paths.length) {
    const known = pairs.filter(([first]) => first !== "");
    return [note(known.length ? "There is no path between the concepts of the text and of this choice." : "No concept of the graph was found in this choice and its text.")];
  }
  const shown = paths.slice(0, MOST_PATHS);
  return [
    drawPicture(shown),
    table(["Path", "Weight"], shown.map((path) => [written(path), ofOne(path.weight)])),
    ...(paths.length > shown.length ? [note(`and ${count(paths.length - shown.length, "path")} of less weight`)] : []),
  ];
}

// Concepts of the text stand on the left, those of the choice on the right, others between.
function drawPicture(paths) {
  const nodes = new Map(), edges = new Map();
  const nodeOf = ({ concepts }, place) => {
    const side = place === 0 ? "text" : place === concepts.length - 1 ? "choice" : "between";
    const key = `${side} ${concepts[place]}`;
    if (!nodes.has(key)) nodes.set(key, { side, name: spaced(concepts[place]), at: place / Math.max(1, concepts.length - 1) });
    return key;
  };
  for (const path of paths) {
    path.concepts.slice(1).forEach((_, place) => {
      const [from, to, relation] = [nodeOf(path, place), nodeOf(path, place + 1), path.relations[place] ?? ""];
      const key = [from, to, relation].join("\n");
      const edge = edges.get(key) ?? { from, to, relation, weight: 0 };
      edges.set(key, { ...edge, weight: edge.weight + path.weight });
    });
  }
  // An edge from side to side has a place of its own between, so that it crosses no concept.
  for (const [key, edge] of edges) {
    if (nodes.get(edge.from).side !== "text" || nodes.get(edge.to).side !== "choice") continue;
    nodes.set(key, { side: "between", at: 0.5 });
    edge.via = key;
  }
  const sides = ["text", "between", "choice"].map((side) => [...nodes.values()].filter((node) => node.side === side));
  const height = ROW_HEIGHT * Math.max(...sides.map((side) => side.length)) + 12;
  for (const side of sides) {
    side.forEach((node, index) => {
      node.x = 80 + node.at * (GRAPH_WIDTH - 160);
      node.y = 6 + ((index + 0.5) * (height - 12)) / side.length;
      node.width = node.name ? Math.min(150, 16 + 7.4 * Math.max(4, node.name.length)) : 0;
    });
  }
  const largest = Math.max(...[...edges.values()].map(({ weight }) => weight)) || 1;
  const picture = svg("svg", { class: "graph", viewBox: `0 0 ${GRAPH_WIDTH} ${height}`, role: "img", "aria-label": `The paths: ${paths.map(written).join("; ")}` });
  const labels = [];
  const curve = (x, a, y, b) => `C${(x + y) / 2} ${a} ${(x + y) / 2} ${b} ${y} ${b}`;
  for (const { from, to, relation, weight, via } of edges.values()) {
    const [a, b, over] = [nodes.get(from), nodes.get(to), nodes.get(via)], [x, y] = [a.x + a.width / 2, b.x - b.width / 2];
    const way = over ? curve(x, a.y, over.x, over.y) + curve(over.x, over.y, y, b.y) : curve(x, a.y, y, b.y);
    picture.append(svg("path", { class: "edge", d: `M${x} ${a.y}${way}`, "stroke-width": (1 + (5 * weight) / largest).toFixed(1), "stroke-opacity": (0.3 + (0.6 * weight) / largest).toFixed(2) },
      svg("title", {}, `${a.name} ${arrow(relation)} ${b.name}: ${ofOne(weight)}`)));
    labels.push(svg("text", { class: "relation", x: over?.x ?? (x + y) / 2, y: (over?.y ?? (a.y + b.y) / 2) - 6 }, arrow(relation)));
  }
  for (const { x, y, width, name } of nodes.values()) {
    if (!name) continue;
    const shown = [...name].length > 18 ? `${[...name].slice(0, 17).join("")}…` : name;
    picture.append(svg("g", { class: "node" }, svg("title", {}, name),
      svg("rect", { x: x - width / 2, y: y - 14, width, height: 28, rx: 7 }), svg("text", { x, y: y + 4.5 }, shown)));
  }
  picture.append(...labels);
  return element("div", { class: "scroll graph-box", tabindex: "0" }, picture);
}
