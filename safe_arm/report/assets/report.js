"use strict";
// What a click, a search and the buttons do. All text goes in as text, never as HTML.

const $ = (id) => document.getElementById(id);

function make(tag, text, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...(text ? [text] : []), ...children);
  return element;
}

const chip = (node) => make("span", node.verdict, { className: `chip ${node.verdict}` });
const label = (node) => (node.method ? `${node.method}:${node.name}` : node.name);
const words = (node) => (node.as_written ? `${node.method ? `${node.method}: ` : ""}${node.as_written}` : label(node));
const nodeButton = (number) => make("button", words(nodes[number]), { title: label(nodes[number]), type: "button", className: "node", onclick: () => select(number) });
const listOf = (numbers) => {
  const items = numbers.slice(0, 200).map((number) => make("li", "", {}, nodeButton(number), " ", chip(nodes[number])));
  if (numbers.length > 200) items.push(make("li", `and ${(numbers.length - 200).toLocaleString("en")} more`, { className: "more" }));
  return make("ul", "", {}, ...items);
};

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (count >= 1024 && unit < 3) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

function facts(pairs) {
  const list = make("dl", "");
  for (const [name, value] of pairs) if (value) list.append(make("dt", name), make("dd", value));
  return list;
}

function heading(text, ...body) {
  return body.length ? [make("h3", text), ...body] : [];
}

const users = nodes.map(() => []);
nodes.forEach((node, number) => (node.inputs || []).forEach((read) => { if (typeof read === "number") users[read].push(number); }));

function reasonCard(number) {
  const reason = data.reasons[number];
  const issue = data.issues[reason.issue];
  const paragraphs = [make("div", reason.text), make("div", `found by ${reason.found_by}`, { className: "stage" })];
  if (reason.issue) paragraphs.push(make("div", `known issue ${reason.issue}${issue ? `: ${issue.title}` : ""}`, { className: "stage" }));
  if (reason.advice) paragraphs.push(make("div", `to do: ${reason.advice}`, { className: "stage" }));
  if (issue && issue.we_do) paragraphs.push(make("div", `what safe_arm does: ${issue.we_do}`, { className: "stage" }));
  return make("div", "", { className: "card" }, ...paragraphs);
}

/** The size of the weights and constants a node reads, itself or through a dequantise node of theirs. */
function constants(number) {
  const through = (nodes[number].inputs || []).filter((read) => nodes[read]?.hidden && !nodes[read].inputs);
  return [number, ...through].reduce((sum, each) => sum + (nodes[each].constant_bytes || 0), 0);
}

/** The quantisation a node applies, and that of the nodes beside it. */
function quantisation(number) {
  const node = nodes[number];
  const pairs = node.qparams ? [["itself", node.qparams]] : [];
  for (const read of node.inputs || []) if (nodes[read]?.qparams) pairs.push([`reads ${nodes[read].name}`, nodes[read].qparams]);
  for (const user of users[number]) if (nodes[user].qparams) pairs.push([`read by ${nodes[user].name}`, nodes[user].qparams]);
  return pairs.map(([where, qparams]) => make("div", "", { className: "card" }, make("div", qparams), make("div", where, { className: "stage" })));
}

function corrections(test) {
  return data.applied.filter(test).map((each) => make("div", `${each.correction} (${each.issue}${data.issues[each.issue] ? `: ${data.issues[each.issue].title}` : ""})`, { className: "card" }));
}

/** The operators, quantise and dequantise nodes passed over, that a node leads to by one of two directions. */
function operators(number, next) {
  const found = new Set();
  const seen = new Set();
  for (let ahead = next(number); ahead.length; ) {
    const each = ahead.pop();
    if (seen.has(each)) continue;
    seen.add(each);
    if (typeof each === "string" || !nodes[each].hidden) found.add(each);
    else ahead = ahead.concat(next(each));
  }
  return [...found].map((each) => make("li", typeof each === "string" ? each : "", {}, ...(typeof each === "string" ? [] : [nodeButton(each)])));
}

function aboutNode(number) {
  const node = nodes[number];
  const reads = operators(number, (each) => [...(nodes[each].inputs || [])]);
  const readBy = operators(number, (each) => [...users[each]]);
  const key = groupOf(node);
  const folded = view.folded.has(key) ? [make("button", "Show in the graph", { type: "button", className: "act", onclick: () => unfold(key, number) })] : [];
  return [
    make("h2", words(node)), chip(node), ...folded,
    facts([["node", node.as_written && label(node)], ["operator", node.op], ["delegate", node.delegate], ["your code", node.source && make("code", data.sources[node.source])], ["returns", node.value], ["script", node.repro && make("code", node.repro)],
      ["MACs", (node.macs || 0).toLocaleString("en")], ["bytes", node.bytes && bytes(node.bytes)], ["constants", constants(number) && bytes(constants(number))],
      ["method", node.method], ["as a quantised unit", data.accuracy?.units[node.unit]?.[2]], ["nested graph", node.method ? node.graph.slice(node.method.length + 1) : node.graph]]),
    ...heading(node.reasons?.length > 1 ? "Why not delegated, what decided first" : "Why not delegated", ...(node.reasons || []).map(reasonCard)),
    ...heading("Left float by the quantiser", ...(node.left_float ? [make("div", node.left_float, { className: "card" })] : [])),
    ...heading("Quantisation", ...quantisation(number)),
    ...heading("Corrected here", ...corrections((each) => each.nodes.includes(node.name) && (!node.method || each.delegate === node.delegate))),
    ...heading("Reads", ...(reads.length ? [make("ul", "", {}, ...reads)] : [])),
    ...heading("Read by", ...(readBy.length ? [make("ul", "", {}, ...readBy)] : [])),
  ];
}

function aboutGroup(key) {
  const inside = groups.get(key) || [];
  const tag = key.startsWith("d:") ? key.slice(2) : "";
  const total = (field) => inside.reduce((sum, number) => sum + (nodes[number][field] || 0), 0);
  const reasons = [...new Set(inside.flatMap((number) => (nodes[number].reasons || []).slice(0, 1)))];
  const fold = view.folded.has(key) ? make("button", "Expand", { type: "button", className: "act", onclick: () => unfold(key) })
    : make("button", "Collapse", { type: "button", className: "act", onclick: () => { view.folded.add(key); redraw(); } });
  return [
    make("h2", tag || "Not delegated"), fold,
    facts([["operators", inside.length.toLocaleString("en")], ["MACs", total("macs").toLocaleString("en")], ["constants", bytes(inside.reduce((sum, number) => sum + constants(number), 0))],
      ["Vela cycles", tag && data.cycles[tag]?.toLocaleString("en")], ["verification", tag && (data.verifications[tag] || "not verified")]]),
    ...heading("Why", ...reasons.slice(0, 20).map(reasonCard)),
    ...heading("Corrected here", ...(tag ? corrections((each) => each.delegate === tag) : [])),
    ...heading("Operators", listOf(inside)),
  ];
}

function show(...about) {
  $("about").replaceChildren(...about);
  $("details").hidden = false;
  $("details").scrollTop = 0;
  cy.resize();
}

function mark(id) {
  cy.elements().unselect();
  const element = cy.getElementById(id);
  if (!element.nonempty()) return;
  element.select();
  if (cy.zoom() < 0.7) cy.zoom(0.9);
  cy.center(element);
}

function select(number) {
  show(...aboutNode(number));
  mark(boxOf(number));
}

function selectGroup(key) {
  show(...aboutGroup(key));
  mark(view.folded.has(key) ? key : `p:${key.slice(2)}`);
}

/** Mark nodes in the graph and list them. */
function highlight(numbers, title) {
  const ids = new Set(numbers.map(boxOf));
  cy.batch(() => {
    cy.elements().removeClass("hit").addClass("faded");
    cy.nodes(".box").removeClass("faded");
    cy.nodes().filter((node) => ids.has(node.id())).removeClass("faded").addClass("hit");
  });
  show(make("h2", title), listOf(numbers));
  const hits = cy.nodes(".hit");
  if (hits.nonempty()) cy.fit(hits, 80);
  if (cy.zoom() > 1) { cy.zoom(1); cy.center(hits); }
}

function clear() {
  cy.elements().removeClass("hit faded").unselect();
  $("found").textContent = "";
}

const searched = nodes.map((node) => [label(node), ...(node.earlier_names || []), node.op, node.as_written, node.delegate, data.sources[node.source || 0], node.left_float, ...(node.reasons || []).map((each) => `${data.reasons[each].text} ${data.reasons[each].issue}`)].join("\n").toLowerCase());
function search() {
  const wanted = $("search").value.trim().toLowerCase();
  clear();
  if (!wanted) return;
  const numbers = nodes.map((_, number) => number).filter((number) => (!nodes[number].hidden || view.quantisation) && searched[number].includes(wanted));
  $("found").textContent = numbers.length ? `${numbers.length.toLocaleString("en")} found` : "none";
  highlight(numbers, `“${$("search").value.trim()}”`);
}

/** Show all, or as much as can be read, from the top: what is long is not shrunk to a thread. */
function fit() {
  cy.fit(undefined, 30);
  if (cy.zoom() >= 0.45) { if (cy.zoom() > 1) { cy.zoom(1); cy.center(); } return; }
  const { x1, y1, w } = cy.elements().boundingBox();
  const zoom = Math.min(1, Math.max(0.45, (cy.width() - 60) / w));
  cy.viewport({ zoom, pan: { x: cy.width() / 2 - zoom * (x1 + w / 2), y: 30 - zoom * y1 } });
}

async function redraw() {
  const centre = cy.nodes(":selected").map((node) => node.id());
  await draw();
  fit();
  if (centre.length) mark(centre[0]);
  $("collapse").disabled = delegates.every((key) => view.folded.has(key));
  $("expand").disabled = !view.folded.size;
}

async function unfold(key, number) {
  view.folded.delete(key);
  await redraw();
  if (number !== undefined) select(number);
  else selectGroup(key);
}

/** Colour the operators by what the reader chose, and say what the shades stand for. */
function recolour() {
  view.colour = $("colour").value;
  $("shades").hidden = !view.colour;
  $("shades").lastElementChild.textContent = view.colour === "0" ? "under 1, 5, 15, 30 %, more" : "over 40, 30, 20, 10 dB, less";
  redraw();
}

function numbersOf(button) {
  return button.dataset.nodes.split(" ").map(Number);
}

function listen() {
  cy.on("tap", "node", ({ target }) => {
    const [kind, name] = [target.id().slice(0, 2), target.id().slice(2)];
    if (kind === "n:") select(Number(name));
    else if (kind === "p:") selectGroup(`d:${name}`);
    else if (kind === "d:" || kind === "r:") selectGroup(target.id());
  });
  cy.on("dbltap", "node.folded", ({ target }) => unfold(target.id()));
  cy.on("tap", (event) => { if (event.target === cy) { clear(); $("details").hidden = true; cy.resize(); } });
  document.querySelectorAll("[data-node]").forEach((button) => { button.onclick = () => select(Number(button.dataset.node)); });
  document.querySelectorAll("[data-nodes]").forEach((button) => { button.onclick = () => highlight(numbersOf(button), button.dataset.title); });
  document.querySelectorAll("[data-delegate]").forEach((button) => { button.onclick = () => selectGroup(`d:${button.dataset.delegate}`); });
  $("search").oninput = search;
  if ($("colour")) $("colour").onchange = recolour;
  $("quantisation").onchange = (event) => { view.quantisation = event.target.checked; redraw(); };
  $("collapse").onclick = () => { delegates.forEach((key) => view.folded.add(key)); redraw(); };
  $("expand").onclick = () => { view.folded.clear(); redraw(); };
  $("fit").onclick = fit;
  const zoomBy = (factor) => cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  $("in").onclick = () => zoomBy(1.3);
  $("out").onclick = () => zoomBy(1 / 1.3);
  $("close").onclick = () => { $("details").hidden = true; clear(); cy.resize(); };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { $("search").value = ""; clear(); } });
}

foldAtFirst();
listen();
redraw().catch((error) => { $("status").textContent = `The graph could not be drawn: ${error.message}`; });
