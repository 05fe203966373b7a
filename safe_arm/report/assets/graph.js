"use strict";
// What is drawn: nodes, delegates folded or not, edges through what is hidden; placed by dagre in a worker, drawn by Cytoscape.

const data = JSON.parse(document.getElementById("data").textContent);
const nodes = data.nodes;
// More boxes than this are folded at first, and dagre is not asked to keep delegates apart: that is slow.
const MANY = 200;

const view = { colour: "", quantisation: false, folded: new Set(), shown: new Map() };

/** The delegate, or the region of fallbacks, that a node belongs to. */
function groupOf(node) {
  return node.delegate ? `d:${node.delegate}` : `r:${node.region}`;
}

const groups = new Map();
nodes.forEach((node, number) => {
  if (node.hidden) return;
  const key = groupOf(node);
  if (!groups.has(key)) groups.set(key, []);
  groups.get(key).push(number);
});
const delegates = [...groups.keys()].filter((key) => key.startsWith("d:"));
const regions = [...groups.keys()].filter((key) => key.startsWith("r:") && groups.get(key).length > 1);

/** Fold as little as brings the drawing under MANY boxes: delegates first, then fallbacks that hang together. */
function foldAtFirst() {
  const visible = () => [...groups].reduce((sum, [key, inside]) => sum + (view.folded.has(key) ? 1 : inside.length), 0);
  for (const keys of [delegates, regions]) if (visible() > MANY) keys.forEach((key) => view.folded.add(key));
}

/** The id of the box a node is drawn as. */
function boxOf(number) {
  const key = groupOf(nodes[number]);
  return view.folded.has(key) ? key : `n:${number}`;
}

/** For every node the boxes its value comes from: its own, or, if it is not drawn, those of what it reads. */
function origins() {
  const from = [];
  nodes.forEach((node, number) => {
    const drawn = !node.hidden || (view.quantisation && !view.folded.has(groupOf(node)));
    from.push(drawn ? [boxOf(number)] : (node.inputs || []).flatMap((read) => origin(read, from)));
  });
  return from;
}

function origin(read, from) {
  if (typeof read === "number") return from[read] || [];
  return data.inputs.includes(read) ? [`i:${read}`] : [];
}

/** The boxes and edges to draw. */
function visible() {
  const from = origins();
  const boxes = new Map(data.inputs.map((name) => [`i:${name}`, { text: name, kind: "end" }]));
  const edges = new Set();
  nodes.forEach((node, number) => {
    const own = from[number];
    if (own.length !== 1 || own[0] !== boxOf(number)) return;
    if (!boxes.has(own[0])) boxes.set(own[0], own[0].startsWith("n:") ? nodeBox(node) : groupBox(own[0]));
    for (const read of node.inputs || []) for (const source of origin(read, from)) edges.add(`${source}\n${own[0]}`);
  });
  data.outputs.forEach((read, index) => {
    const only = data.outputs.length > 1 ? `output ${index}` : "output";
    boxes.set(`o:${index}`, { text: data.output_labels?.[index] ?? only, kind: "end" });
    for (const source of origin(read, from)) edges.add(`${source}\no:${index}`);
  });
  const pairs = [...edges].map((edge) => edge.split("\n")).filter(([source, target]) => source !== target);
  return { boxes, edges: pairs };
}

/** What a node is coloured by: its verdict, or, if the reader asked for it, how good its unit is. */
function kindOf(node) {
  const unit = view.colour && data.accuracy.units[node.unit];
  return unit ? `shade-${unit[view.colour]}` : node.verdict;
}

/** The sizes of each of a node's results, such as "1×8×8, 1×2". */
function sizesOf(value) {
  const results = [...(value || "").matchAll(/\w+\[(.*?)\]/g)];
  return results.map(([, dims]) => dims.replaceAll(", ", "×")).filter((dims) => dims).join(", ");
}

function nodeBox(node) {
  const op = node.op ? node.op.split("::").pop() : node.name;
  const shape = sizesOf(node.value);
  const module = node.verdict !== "delegated" && node.module && node.module.length < 24 ? `\n${node.module}` : "";
  return { text: op + (shape && shape.length < 24 ? `\n${shape}` : "") + module, kind: kindOf(node), parent: node.delegate };
}

function groupBox(key) {
  const inside = groups.get(key);
  const count = inside.length > 1 ? `${inside.length.toLocaleString("en")} operators` : nodes[inside[0]].op.split("::").pop();
  const worst = ["demoted", "refused", "de-tagged"].find((kind) => inside.some((number) => nodes[number].verdict === kind));
  return { text: `${key.startsWith("d:") ? key.slice(2) : "not delegated"}\n${count}`, kind: worst || "delegated", folded: true };
}

const pen = document.createElement("canvas").getContext("2d");
function measured(box) {
  pen.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  const lines = box.text.split("\n");
  return { width: Math.ceil(Math.max(...lines.map((line) => pen.measureText(line).width))) + 22, height: 16 * lines.length + 12 };
}

let worker = null;
function place(boxes, edges) {
  if (worker) worker.terminate();
  const source = `${document.getElementById("layout").textContent}
    onmessage = ({ data: { nodes, edges, options } }) => { dagre.layout(nodes, edges, options, {}); postMessage({ nodes, edges }); };`;
  worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const boxed = boxes.size <= MANY;
  const parents = boxed ? new Set([...boxes.values()].flatMap((box) => box.parent || [])) : new Set();
  const placed = [...parents].map((tag) => ({ v: `p:${tag}` }));
  for (const [v, box] of boxes) placed.push({ v, ...measured(box), parent: boxed && box.parent ? `p:${box.parent}` : undefined });
  const lines = edges.map(([v, w]) => ({ v, w }));
  const options = { nodesep: 24, ranksep: 34, edgesep: 14, ranker: boxes.size > 1000 ? "longest-path" : undefined };
  return new Promise((resolve, reject) => {
    worker.onmessage = (message) => resolve(message.data);
    worker.onerror = (error) => reject(error);
    worker.postMessage({ nodes: placed, edges: lines, options });
  });
}

/** The bends of an edge as Cytoscape wants them: how far along the straight line, and how far beside it. */
function bends(edge, at) {
  const [from, to] = [at.get(edge.v), at.get(edge.w)];
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const squared = dx * dx + dy * dy || 1;
  const inner = (edge.points || []).slice(1, -1).filter((point, index, all) => {
    const [before, after] = [all[index - 1] || from, all[index + 1] || to];
    return Math.abs((point.x - before.x) * (after.y - before.y) - (point.y - before.y) * (after.x - before.x)) > 40;
  });
  const weights = inner.map((point) => ((point.x - from.x) * dx + (point.y - from.y) * dy) / squared);
  const distances = inner.map((point) => ((point.y - from.y) * dx - (point.x - from.x) * dy) / Math.sqrt(squared));
  return inner.length ? { weights, distances } : {};
}

function elements(boxes, placed) {
  const at = new Map(placed.nodes.map((node) => [node.v, node]));
  const drawn = [];
  for (const node of placed.nodes) {
    const box = boxes.get(node.v);
    if (!box) {
      const text = node.v.slice(2);
      drawn.push({ group: "nodes", data: { id: node.v, text, right: measured({ text }).width - 14 }, classes: "box" });
      continue;
    }
    const { width, height, parent } = node;
    const classes = [box.kind, box.folded ? "folded" : ""].join(" ");
    drawn.push({ group: "nodes", data: { id: node.v, text: box.text, width, height, parent }, position: { x: node.x, y: node.y }, classes });
  }
  for (const edge of placed.edges) {
    const bent = bends(edge, at);
    drawn.push({ group: "edges", data: { id: `${edge.v}>${edge.w}`, source: edge.v, target: edge.w, ...bent }, classes: bent.weights ? "bent" : "" });
  }
  return drawn;
}

function style() {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const verdict = (name) => ({
    selector: `.${name}`,
    style: { "background-color": colour(name), "border-color": colour(`${name}-line`), "border-width": name === "delegated" ? 1 : 2 },
  });
  const shade = (number) => ({
    selector: `.shade-${number}`,
    style: { "background-color": colour(`shade-${number}`), "border-color": colour("shade-line"), "border-width": 1, color: colour(number > 2 ? "shade-dark-ink" : "shade-light-ink") },
  });
  return [
    { selector: "node[width]", style: { width: "data(width)", height: "data(height)" } },
    { selector: "node", style: {
      shape: "round-rectangle", label: "data(text)", color: colour("ink"),
      "text-wrap": "wrap", "text-valign": "center", "font-size": 12, "min-zoomed-font-size": 5, "line-height": 1.2,
      "font-family": 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif' } },
    verdict("delegated"), verdict("refused"), verdict("demoted"), verdict("de-tagged"), ...[0, 1, 2, 3, 4].map(shade),
    { selector: ".end", style: { "background-color": colour("card"), "border-color": colour("edge"), "border-width": 1, shape: "round-tag" } },
    { selector: ".folded", style: { "border-style": "double", "border-width": 4 } },
    { selector: ".box", style: {
      "background-color": colour("delegated-box"), "border-color": colour("delegated-line"), "border-width": 1, "border-style": "dashed",
      padding: 14, "text-valign": "top", "text-halign": "left", "text-margin-x": "data(right)", "text-margin-y": -2, color: colour("quiet"),
      "text-background-color": colour("page"), "text-background-opacity": 1 } },
    { selector: "edge", style: {
      width: 1.4, "line-color": colour("edge"), "target-arrow-color": colour("edge"), "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "straight" } },
    { selector: ".bent", style: {
      "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "segment-radii": 14, "edge-distances": "node-position" } },
    { selector: ".faded", style: { opacity: 0.25 } },
    { selector: ".hit", style: { "border-color": colour("focus"), "border-width": 4, "border-style": "solid" } },
    { selector: "node:selected", style: { "border-color": colour("accent"), "border-width": 4, "border-style": "solid" } },
  ];
}

const cy = cytoscape({
  container: document.getElementById("graph"), style: style(), minZoom: 0.02, maxZoom: 2.5, boxSelectionEnabled: false,
  autoungrabify: true, textureOnViewport: nodes.length > 2000, hideEdgesOnViewport: false,
});

let drawing = 0;
/** Lay the visible graph out and draw it; resolves when it is on the screen. */
async function draw() {
  const mine = ++drawing;
  const status = document.getElementById("status");
  status.textContent = "Drawing the graph…";
  status.hidden = false;
  const { boxes, edges } = visible();
  const placed = boxes.size ? await place(boxes, edges) : { nodes: [], edges: [] };
  if (mine !== drawing) return;
  view.shown = boxes;
  cy.batch(() => {
    cy.elements().remove();
    cy.add(elements(boxes, placed));
  });
  status.hidden = true;
  document.body.dataset.drawn = String(mine);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy.style(style()));
