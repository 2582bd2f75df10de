"use strict";
/* Small things that all pictures share: elements, scales, words for numbers, the tip at the pointer. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children. Texts become text nodes, so a name is never markup. */
function make(tag, attributes, ...children) {
  const found = document.createElement(tag);
  return dress(found, attributes, children);
}

function draw(tag, attributes, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4", "3 1"];
const seriesColour = (index) => `var(--s${index % 8})`;
const seriesDash = (index) => DASHES[index % DASHES.length];

/* ---- words for numbers */

const UNITS = [["d", 86400], ["h", 3600], ["m", 60]];

/** A length of time in its two largest units. */
function sayTime(seconds) {
  if (seconds < 0) return "-" + sayTime(-seconds);
  if (seconds < 60) return (seconds < 10 ? Number(seconds.toPrecision(3)) : Math.round(seconds * 10) / 10) + "s";
  const grain = seconds >= 86400 ? 3600 : seconds >= 3600 ? 60 : 1;
  let rest = Math.round(seconds / grain) * grain;
  const parts = [];
  for (const [unit, size] of [...UNITS, ["s", 1]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(count + unit);
  }
  return parts.slice(0, 2).join(" ");
}

const sayPercent = (share) => (100 * share).toFixed(1) + " %";
const sayNumber = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 });

/* ---- scales and ticks */

function scale(low, high, start, end) {
  const factor = high > low ? (end - start) / (high - low) : 0;
  const to = (value) => start + (value - low) * factor;
  to.back = (place) => (factor ? low + (place - start) / factor : low);
  return to;
}

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 17280000, 43200000, 86400000, 172800000, 432000000,
];
const TIME_UNITS = [["days", 86400], ["hours", 3600], ["minutes", 60], ["seconds", 1]];

/** Round instants, and the unit in which all of them are plain numbers. */
function timeTicks(low, high, most) {
  const length = high - low;
  let step = TIME_STEPS.find((each) => length / each <= most) || length;
  if (length < most) {
    step = Math.pow(10, Math.floor(Math.log10(length / most || 1)));
    while (length / step > most) step *= length / step > 2.5 * most ? 5 : 2;
  }
  const [unit, size] = TIME_UNITS.find(([, each]) => step >= each) || TIME_UNITS[3];
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) ticks.push(at);
  return { ticks, unit, say: (at) => Number((at / size).toPrecision(12)).toLocaleString("en", { maximumFractionDigits: 6 }) };
}

/* ---- the tip */

const tip = document.getElementById("tip");

function showTip(x, y, lines) {
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const gap = 14;
  const left = x + gap + box.width > innerWidth - 4 ? x - gap - box.width : x + gap;
  const top = y + gap + box.height > innerHeight - 4 ? y - gap - box.height : y + gap;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

function hideTip() {
  tip.hidden = true;
}

/** The sign of a colour in a legend: a box, a box of stripes, or a line with its dashes. */
function swatch(colour, dash) {
  if (dash === undefined) return draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, draw("rect", { width: 12, height: 12, rx: 2, style: { fill: colour } }));
  if (dash === "stripes") {
    const lines = draw("path", { d: "M0 6L6 0M0 12L12 0M6 12L12 6", "stroke-width": 2, style: { stroke: colour } });
    return draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, lines);
  }
  const line = draw("line", { x1: 0, x2: 22, y1: 6, y2: 6, "stroke-width": 2.2, "stroke-dasharray": dash, style: { stroke: colour } });
  return draw("svg", { width: 22, height: 12, "aria-hidden": "true" }, line);
}

function tipLine(name, value, mark) {
  return make("div", {}, make("span", { class: "name" }, mark || null, name), make("span", {}, value));
}

function legend(entries) {
  return make("ul", { class: "legend" }, entries.map(([name, colour, dash]) => make("li", {}, swatch(colour, dash), name)));
}

/** Call `redraw` with the width of an element, now and whenever that changes. */
function fitted(element, redraw) {
  let width = 0;
  const look = () => {
    const now = Math.floor(element.clientWidth);
    if (now && now !== width) redraw((width = now));
  };
  new ResizeObserver(look).observe(element);
  look();
}
