/* Charts over time, distributions and stacked bars, as SVG. */

const MARGIN = { left: 52, right: 10, top: 8, bottom: 36 };

/** The frame of a chart: axes, grid and labels. Returns the layer to draw on. */
function frame(width, height, floor, x, y) {
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  for (const tick of y.ticks) {
    const at = Math.round(y.to(tick));
    picture.append(draw("line", { class: "gridline", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
    picture.append(draw("text", { x: MARGIN.left - 7, y: at + 4, "text-anchor": "end" }, y.say(tick)));
  }
  for (const tick of x.ticks) {
    const at = Math.round(x.to(tick));
    picture.append(draw("line", { class: "axis", x1: at, x2: at, y1: floor, y2: floor + 4 }));
    picture.append(draw("text", { x: at, y: floor + 16, "text-anchor": "middle" }, x.say(tick)));
  }
  picture.append(draw("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: floor, y2: floor }));
  picture.append(draw("text", { x: width - MARGIN.right, y: height - 4, "text-anchor": "end" }, x.label));
  picture.append(draw("text", { x: 11, y: (MARGIN.top + floor) / 2, "text-anchor": "middle",
    transform: `rotate(-90 11 ${(MARGIN.top + floor) / 2})` }, y.label));
  return picture;
}

/** Steps as a path: a level from each instant to the next. `floor` closes it to an area. */
function stepPath(times, levels, x, y, floor) {
  if (!levels.length) return "";
  const parts = [`M${x(times[0]).toFixed(1)} ${floor === undefined ? y(levels[0]).toFixed(1) : floor}`];
  levels.forEach((level, index) => parts.push(`V${y(level).toFixed(1)}H${x(times[index + 1]).toFixed(1)}`));
  if (floor !== undefined) parts.push(`V${floor}Z`);
  return parts.join("");
}

function stepAt(times, levels, at) {
  let low = 0;
  let high = levels.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle + 1] <= at) low = middle + 1;
    else high = middle;
  }
  return at >= times[0] && low < levels.length ? levels[low] : null;
}

/** Charts that share an axis share the pointer: moving over one moves the line in all. */
function linked() {
  const listeners = [];
  return { join: (listener) => listeners.push(listener), move: (at) => listeners.forEach((listener) => listener(at)) };
}

function follow(picture, x, floor, group, tell) {
  const cross = draw("line", { class: "cross", y1: MARGIN.top, y2: floor, visibility: "hidden" });
  picture.append(cross);
  group.join((at) => {
    cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) dress(cross, { x1: Math.round(x(at)), x2: Math.round(x(at)) }, []);
  });
  const onMove = (event) => {
    const box = picture.getBoundingClientRect();
    const at = x.back(Math.max(x.first, Math.min(x.last, event.clientX - box.left)));
    group.move(at);
    showTip(event.clientX, event.clientY, tell(at));
  };
  picture.addEventListener("pointermove", onMove);
  picture.addEventListener("pointerdown", onMove);
  picture.addEventListener("pointerleave", () => { group.move(null); hideTip(); });
}

function timeAxis(width, horizon, quiet) {
  const x = scale(horizon[0], horizon[1], MARGIN.left, width - MARGIN.right);
  x.first = MARGIN.left;
  x.last = width - MARGIN.right;
  const { ticks, unit, say } = timeTicks(horizon[0], horizon[1], Math.max(3, Math.floor(width / (width > 600 ? 90 : 60))));
  return { x, axis: { to: x, ticks, say, label: quiet ? "" : `simulated time (${unit})` } };
}

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];
const sayQuarter = (share) => Math.round(100 * share) + " %";

/** Busy and productive share of one run over time. */
function usageChart(host, run, horizon, group, isLast) {
  const { t, capacity, busy, productive } = run.usage;
  const share = (levels) => levels.map((level, index) => (capacity[index] ? level / capacity[index] : 0));
  const [busyShare, productiveShare] = [share(busy), share(productive)];
  const chart = make("div", { class: "chart" });
  host.append(make("h3", {}, run.policy), chart);
  fitted(chart, (width) => {
    const floor = 114;
    const height = floor + (isLast ? MARGIN.bottom : 20);
    const { x, axis } = timeAxis(width, horizon, !isLast);
    const y = scale(0, 1, floor, MARGIN.top);
    const picture = frame(width, height, floor, axis, { to: y, ticks: [0, 0.5, 1], say: sayQuarter, label: "of capacity" });
    picture.setAttribute("aria-label", `Utilization and goodput over time under ${run.policy}`);
    picture.append(
      draw("path", { d: stepPath(t, busyShare, x, y, floor), style: { fill: "var(--p-restore)", opacity: 0.55 } }),
      draw("path", { d: stepPath(t, productiveShare, x, y, floor), style: { fill: "var(--p-productive)" } }),
      draw("path", { d: stepPath(t, busyShare, x, y), fill: "none", "stroke-width": 1, style: { stroke: "var(--ink)", opacity: t.length > 250 ? 0.25 : 0.6 } }),
    );
    follow(picture, x, floor, group, (at) => [
      make("p", { class: "head" }, `${run.policy}, ${sayTime(at)}`),
      tipLine("utilization", sayShareAt(t, busyShare, at)),
      tipLine("goodput", sayShareAt(t, productiveShare, at), swatch("var(--p-productive)")),
      tipLine("busy", `${sayNumber(stepAt(t, busy, at) || 0)} of ${sayNumber(stepAt(t, capacity, at) || 0)}`),
    ]);
    chart.replaceChildren(picture);
  });
}

function sayShareAt(t, shares, at) {
  const share = stepAt(t, shares, at);
  return share === null ? "–" : sayPercent(share);
}

const LOG_TICKS = [
  [1, "1s"], [10, "10s"], [60, "1m"], [600, "10m"], [3600, "1h"], [36000, "10h"], [86400, "1d"], [864000, "10d"], [8640000, "100d"],
];

/** Distributions of several runs; time on a log scale, with a place of its own for no time at all. */
function shareChart(host, title, runs, key, group) {
  const chart = make("div", { class: "chart" });
  host.append(make("h3", {}, title), chart);
  const most = Math.max(10, ...runs.map((run) => run[key].x.at(-1) || 0));
  const every = runs.flatMap((run) => run[key].x);
  const least = Math.max(1, Math.min(most / 10, ...every.filter((each) => each > 0)));
  const below = every.filter((each) => each < least);
  fitted(chart, (width) => {
    const height = 260;
    const floor = height - MARGIN.bottom;
    const zero = MARGIN.left + (below.length ? 10 : 0);
    const log = scale(Math.log10(least), Math.log10(most), zero + (below.length ? 34 : 0), width - MARGIN.right - 8);
    const x = (seconds) => (seconds < least ? zero : log(Math.log10(seconds)));
    x.back = (place) => (below.length && place < zero + 17 ? 0 : Math.pow(10, Math.max(Math.log10(least), log.back(place))));
    x.first = zero;
    x.last = width - MARGIN.right;
    const y = scale(0, 1, floor, MARGIN.top);
    let ticks = LOG_TICKS.filter(([at]) => at >= least && at <= most);
    while (ticks.some(([at], index) => index && x(at) - x(ticks[index - 1][0]) < 28)) ticks = ticks.filter((_, index) => index % 2 === 0);
    const named = new Map([...(below.length ? [[0, below.some((each) => each > 0) ? "<1s" : "0"]] : []), ...ticks]);
    const picture = frame(width, height, floor, { to: x, ticks: [...named.keys()], say: (at) => named.get(at), label: "at most so long (log scale)" },
      { to: y, ticks: QUARTERS, say: sayQuarter, label: "share of gangs" });
    picture.setAttribute("aria-label", title);
    runs.forEach((run, index) => {
      const { x: seconds, y: shares } = run[key];
      if (!seconds.length) return;
      const parts = [`M${x(0).toFixed(1)} ${floor}`];
      seconds.forEach((each, place) => parts.push(`H${x(each).toFixed(1)}V${y(shares[place]).toFixed(1)}`));
      picture.append(draw("path", { d: parts.join("") + `H${x.last}`, fill: "none", "stroke-width": 2,
        "stroke-dasharray": seriesDash(index), style: { stroke: seriesColour(index) } }));
    });
    follow(picture, x, floor, group, (at) => [
      make("p", { class: "head" }, at ? `at most ${sayTime(at)}` : "no time at all"),
      ...runs.map((run, index) => tipLine(run.policy, sayPercent(shareAt(run[key], at)), swatch(seriesColour(index), seriesDash(index)))),
    ]);
    chart.replaceChildren(picture);
  });
}

function shareAt(curve, at) {
  let share = 0;
  for (let index = 0; index < curve.x.length && curve.x[index] <= at; index++) share = curve.y[index];
  return share;
}

/** One queue under all policies, with what it is entitled to. */
function queueChart(host, name, runs, horizon, unit, group) {
  const lines = runs.map((run, index) => ({ run, index, queue: run.queues.find((queue) => queue.name === name) })).filter((each) => each.queue);
  const { guarantee, entitlement, limit } = lines[0].queue;
  const rules = [["guarantee", guarantee, ""], ["entitlement", entitlement, "6 4"], ["limit", limit, "2 3"]].filter(([, level]) => level !== null);
  const most = Math.max(1, ...lines.flatMap(({ queue }) => queue.levels), ...rules.filter(([word]) => word !== "limit").map(([, level]) => level));
  const chart = make("div", { class: "chart" });
  host.append(make("div", {}, make("h3", {}, name), chart));
  fitted(chart, (width) => {
    const height = 170;
    const floor = height - MARGIN.bottom;
    const { x, axis } = timeAxis(width, horizon);
    const top = niceTop(most);
    const y = scale(0, top, floor, MARGIN.top);
    const picture = frame(width, height, floor, axis, { to: y, ticks: [0, top / 2, top], say: sayNumber, label: `${unit}s held` });
    picture.setAttribute("aria-label", `${unit}s held by queue ${name} over time`);
    for (const [word, level, dash] of rules) {
      if (level > top) continue;
      picture.append(draw("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(level), y2: y(level), "stroke-width": 1.2,
        "stroke-dasharray": dash, style: { stroke: "var(--muted)" } }, draw("title", {}, word)));
    }
    for (const { run, index, queue } of lines) {
      picture.append(draw("path", { d: stepPath(run.queueT, queue.levels, x, y), fill: "none", "stroke-width": 1.5, style: { stroke: seriesColour(index) } }));
    }
    follow(picture, x, floor, group, (at) => [
      make("p", { class: "head" }, `${name}, ${sayTime(at)}`),
      ...lines.map(({ run, index, queue }) => tipLine(run.policy, sayNumber(stepAt(run.queueT, queue.levels, at) || 0), swatch(seriesColour(index), ""))),
      ...rules.map(([word, level]) => tipLine(word, sayNumber(level))),
    ]);
    chart.replaceChildren(picture);
  });
}

function niceTop(value) {
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  return [1, 2, 4, 5, 8, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

/** The ledger of every policy as one bar each. */
function ledgerBars(host, data) {
  const seen = data.parts.filter((_, index) => data.ledgers.some(([, values]) => values[index] > 0));
  const colour = (part) => `var(--p-${part}, var(--p-other))`;
  host.append(legend(seen.map(([part, word]) => [word, colour(part)])));
  for (const [policy, values] of data.ledgers) {
    const total = values.reduce((sum, each) => sum + each, 0);
    const bar = make("div", { class: "bar" });
    host.append(make("h3", {}, policy), bar);
    fitted(bar, (width) => {
      const picture = draw("svg", { viewBox: `0 0 ${width} 30`, height: 30, role: "img",
        "aria-label": `Ledger of ${policy}: ` + data.parts.map(([, word], index) => `${word} ${sayPercent(total ? values[index] / total : 0)}`).join(", ") });
      let left = 0;
      data.parts.forEach(([part, word], index) => {
        const share = total ? values[index] / total : 0;
        if (!share) return;
        const wide = share * width;
        const box = draw("rect", { x: left, y: 1, width: Math.max(0.6, wide - (wide > 3 ? 1 : 0)), height: 26, style: { fill: colour(part) } });
        const tell = (event) => showTip(event.clientX, event.clientY, [
          make("p", { class: "head" }, `${policy}: ${word}`), tipLine(sayPercent(share), `${sayNumber(values[index] / 3600)} ${data.unit}-hours`)]);
        box.addEventListener("pointermove", tell);
        box.addEventListener("pointerleave", hideTip);
        picture.append(box);
        left += wide;
      });
      bar.replaceChildren(picture);
    });
  }
}
