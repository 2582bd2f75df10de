/* The Gantt: nodes or gangs downwards, time to the right, on a canvas that can be panned and zoomed. */

const [T_NAME, T_USER, T_QUEUE, T_STATE, T_SUBMIT, T_START, T_END, T_WAIT, T_MEMBERS, T_MOST, T_NEEDED, T_UNUSED, T_WHY, T_STORY] = Array(14).keys();
const WAIT_CLASSES = [[60, "waited under 1m"], [600, "under 10m"], [3600, "under 1h"], [36000, "under 10h"], [Infinity, "10h or more"]];
const MARKS = { down: "var(--p-down)", maintenance: "var(--p-idle_allocated)", reservation: "var(--p-resize)" };
const COLOURED_MOST = 7;
const AXIS_HEIGHT = 36;

class Gantt {
  constructor(host, data) {
    this.data = data;
    this.run = data.runs[0];
    this.canvas = make("canvas", { tabindex: 0, role: "img" });
    this.said = make("p", { class: "said" });
    this.key = make("div", {});
    this.view = this.run.picture.boxes && this.run.picture.boxes.gang.length ? "node" : "gang";
    this.colour = this.bestColour();
    host.append(this.tools(), this.canvas, this.said, this.key);
    this.listen();
    this.refresh();
    fitted(host, (width) => {
      this.width = width;
      this.height = width < 640 ? 380 : 500;
      this.canvas.style.height = this.height + "px";
      this.reset();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  /* ---- what is shown */

  get picture() {
    return this.run.picture;
  }

  word(index) {
    return this.picture.words[index];
  }

  bestColour() {
    const { told } = this.picture;
    const several = (column) => new Set(told.map((gang) => gang[column])).size > 1;
    return several(T_QUEUE) ? "queue" : several(T_USER) ? "user" : "gang";
  }

  tools() {
    const choice = (label, options, now, choose) => {
      const buttons = options.map(([value, text]) => make("button", { type: "button", "aria-pressed": String(value === now), onclick: () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === buttons[options.findIndex(([each]) => each === value)]));
        choose(value);
      } }, text));
      return make("span", { class: "choice", role: "group", "aria-label": label }, buttons);
    };
    const parts = [];
    if (this.data.runs.length > 1) {
      parts.push(choice("Policy", this.data.runs.map((run, index) => [index, run.policy]), 0, (index) => {
        this.run = this.data.runs[index];
        this.refresh();
      }));
    }
    parts.push(choice("Rows", [["node", "by node"], ["gang", "by gang"]], this.view, (view) => {
      this.view = view;
      this.refresh();
      this.reset();
    }));
    const select = make("select", { onchange: () => { this.colour = select.value; this.refresh(); } },
      [["queue", "queue"], ["user", "user"], ["wait", "wait"], ["size", "size"], ["gang", "gang"]].map(([value, text]) => make("option", { value, selected: value === this.colour }, text)));
    parts.push(make("label", {}, "colour", select));
    const zoom = (text, label, act) => make("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    parts.push(make("span", { class: "choice", role: "group", "aria-label": "Zoom" },
      zoom("−", "Zoom out in time", () => this.zoom(1.6, 1)), zoom("+", "Zoom in in time", () => this.zoom(0.625, 1)),
      zoom("rows −", "More rows", () => this.zoom(1, 1.6)), zoom("rows +", "Fewer, taller rows", () => this.zoom(1, 0.625)),
      zoom("all", "Show everything", () => this.reset())));
    return make("div", { class: "tools" }, parts);
  }

  /** Work out colours and words anew: another run, another colour rule, another scheme. */
  refresh() {
    const style = getComputedStyle(document.documentElement);
    this.css = (name) => style.getPropertyValue(name).trim();
    this.series = Array.from({ length: 8 }, (_, index) => this.css(`--s${index}`));
    this.ramp = Array.from({ length: 5 }, (_, index) => this.css(`--r${index}`));
    this.hatch = new Map();
    const { entries, pick } = this.colours();
    this.colourOf = this.picture.told.map(pick);
    this.placeOf = new Map(this.picture.nodes.map((name, index) => [name, index]));
    this.tops = [0];
    for (const height of this.picture.heights) this.tops.push(this.tops.at(-1) + height);
    this.said.textContent = this.sayHow();
    this.key.replaceChildren(this.legend(entries));
    this.canvas.setAttribute("aria-label", `Gantt of ${this.run.policy}, by ${this.view}. Arrow keys pan, plus and minus zoom, zero shows everything.`);
    this.paint();
  }

  colours() {
    const { told } = this.picture;
    if (this.colour === "wait") {
      const entries = WAIT_CLASSES.map(([, text], index) => [text, this.ramp[index]]);
      return { entries, pick: (gang) => this.ramp[WAIT_CLASSES.findIndex(([limit]) => (gang[T_WAIT] ?? Infinity) < limit || limit === Infinity)] };
    }
    if (this.colour === "size") {
      const most = Math.max(1, ...told.map((gang) => gang[T_NEEDED]));
      const bounds = [1, 2, 3, 4].map((index) => Math.max(1, Math.round(Math.pow(most, index / 5))));
      const words = [...new Set(bounds)];
      const place = (gang) => { const found = words.findIndex((bound) => gang[T_NEEDED] <= bound); return found < 0 ? words.length : found; };
      const entries = [...words.map((bound) => `at most ${sayNumber(bound)}`), `up to ${sayNumber(most)} ${this.data.unit}s`];
      return { entries: entries.map((text, index) => [text, this.ramp[Math.min(4, index)]]), pick: (gang) => this.ramp[Math.min(4, place(gang))] };
    }
    if (this.colour === "gang") return { entries: [["colours tell neighbours apart", this.series[0]]], pick: (_, index) => this.series[index % COLOURED_MOST] };
    const column = this.colour === "queue" ? T_QUEUE : T_USER;
    const used = new Map(told.map((gang) => [gang[column], 0]));
    const { boxes } = this.picture;
    if (boxes) boxes.gang.forEach((gang, index) => used.set(told[gang][column], used.get(told[gang][column]) + boxes.height[index] * boxes.length[index]));
    const ranked = [...used.keys()].sort((a, b) => used.get(b) - used.get(a) || a - b);
    const named = ranked.length <= COLOURED_MOST + 1 ? ranked : ranked.slice(0, COLOURED_MOST);
    const entries = named.map((each, index) => [this.word(each) || "(none)", this.series[index]]);
    if (ranked.length > named.length) entries.push([`${ranked.length - named.length} others`, this.css("--p-other")]);
    const colours = new Map(named.map((each, index) => [each, this.series[index]]));
    return { entries, pick: (gang) => colours.get(gang[column]) || this.css("--p-other") };
  }

  /* ---- the window */

  get rowsHigh() {
    return this.view === "node" ? this.tops.at(-1) : this.picture.rows.length;
  }

  reset() {
    if (!this.width) return;
    const [low, high] = this.data.horizon;
    const margin = (high - low || 1) * 0.01;
    const plot = this.height - AXIS_HEIGHT;
    const shown = this.view === "gang" ? Math.min(this.rowsHigh, plot / 15) : this.rowsHigh;
    this.win = { t0: low - margin, t1: high + margin, y0: 0, y1: Math.max(shown, 1) };
    if (this.view === "gang" && shown < this.rowsHigh) {
      const [start, end] = this.spanShown();
      Object.assign(this.win, { t0: start - (end - start) * 0.02, t1: end + (end - start) * 0.02 });
      this.clamp();
    }
    this.paint();
  }

  /** From the first submit to the last end of the gangs whose rows are in sight. */
  spanShown() {
    const rows = this.picture.rows.slice(Math.floor(this.win.y0), Math.ceil(this.win.y1));
    const stretches = rows.flatMap(([, parts]) => parts);
    return [Math.min(...stretches.map(([start]) => start)), Math.max(...stretches.map(([, end]) => end))];
  }

  /** Rows are in the order of their submit: scrolling down would leave everything to the right, so time comes along. */
  follow() {
    if (this.view !== "gang" || !this.picture.rows.length) return;
    const [start, end] = this.spanShown();
    const { win } = this;
    const long = win.t1 - win.t0;
    if (start < win.t0 || end > win.t1) {
      const from = end - start <= long ? (start + end - long) / 2 : start - long * 0.02;
      Object.assign(win, { t0: from, t1: from + long });
      this.clamp();
    }
  }

  zoom(inTime, inRows, px, py) {
    const { t0, t1, y0, y1 } = this.win;
    const [fx, fy] = [px === undefined ? 0.5 : (px - this.left) / (this.width - this.left), py === undefined ? 0 : py / (this.height - AXIS_HEIGHT)];
    const [at, row] = [t0 + (t1 - t0) * fx, y0 + (y1 - y0) * fy];
    const [long, tall] = [(t1 - t0) * inTime, (y1 - y0) * inRows];
    this.win = { t0: at - long * fx, t1: at + long * (1 - fx), y0: row - tall * fy, y1: row + tall * (1 - fy) };
    this.clamp();
    this.paint();
  }

  pan(px, py) {
    const { win } = this;
    const dt = (px / (this.width - this.left)) * (win.t1 - win.t0);
    const dy = (py / (this.height - AXIS_HEIGHT)) * (win.y1 - win.y0);
    const before = win.y0;
    Object.assign(win, { t0: win.t0 - dt, t1: win.t1 - dt, y0: win.y0 - dy, y1: win.y1 - dy });
    this.clamp();
    this.paint();
    return Math.abs(before - this.win.y0) > 1e-9;
  }

  clamp() {
    const [low, high] = this.data.horizon;
    const margin = (high - low || 1) * 0.01;
    const fit = (start, end, least, most, shortest) => {
      const length = Math.max(shortest, Math.min(end - start, most - least));
      const from = Math.max(least, Math.min(start + (end - start - length) / 2, most - length));
      return [from, from + length];
    };
    const { win } = this;
    [win.t0, win.t1] = fit(win.t0, win.t1, low - margin, high + margin, Math.max((high - low) / 1e6, 1e-3));
    [win.y0, win.y1] = fit(win.y0, win.y1, 0, Math.max(this.rowsHigh, 1), Math.min(this.rowsHigh, 1));
  }

  listen() {
    const { canvas } = this;
    const touching = new Map();
    let pinch = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      touching.set(event.pointerId, [event.offsetX, event.offsetY]);
      pinch = null;
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = touching.get(event.pointerId);
      if (!last) return this.point(event);
      touching.set(event.pointerId, [event.offsetX, event.offsetY]);
      if (touching.size === 2) {
        const [[ax, ay], [bx, by]] = [...touching.values()];
        const wide = Math.max(20, Math.hypot(ax - bx, ay - by));
        if (pinch) this.zoom(pinch / wide, 1, (ax + bx) / 2, (ay + by) / 2);
        pinch = wide;
        return undefined;
      }
      canvas.classList.add("panning");
      hideTip();
      this.pan(event.offsetX - last[0], event.offsetY - last[1]);
      return undefined;
    });
    const release = (event) => {
      touching.delete(event.pointerId);
      pinch = null;
      canvas.classList.remove("panning");
      if (event.type === "pointerup") this.point(event);
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("dblclick", (event) => this.zoom(event.shiftKey ? 2 : 0.5, 1, event.offsetX, event.offsetY));
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY * 0.004), event.shiftKey ? Math.exp(event.deltaY * 0.004) : 1, event.offsetX, event.offsetY);
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.pan(-event.deltaX, 0);
      } else if (this.pan(0, -event.deltaY)) {
        event.preventDefault();
        this.follow();
      }
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (step && this.pan(...step) && step[1]) this.follow();
      else if (step) this.paint();
      else if (event.key === "+" || event.key === "=") this.zoom(0.7, event.shiftKey && event.key === "=" ? 0.7 : 1);
      else if (event.key === "-") this.zoom(1.4, 1);
      else if (event.key === "0") this.reset();
      else return;
      event.preventDefault();
    });
  }

  /* ---- drawing */

  paint() {
    if (this.waiting || !this.win) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.drawAll();
    });
  }

  drawAll() {
    const { canvas, width, height } = this;
    const dots = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
      canvas.width = Math.round(width * dots);
      canvas.height = Math.round(height * dots);
    }
    const pen = (this.pen = canvas.getContext("2d"));
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.font = `11px ${getComputedStyle(canvas).fontFamily}`;
    pen.textBaseline = "middle";
    this.left = this.gutter();
    this.x = scale(this.win.t0, this.win.t1, this.left, width);
    this.y = scale(this.win.y0, this.win.y1, 0, height - AXIS_HEIGHT);
    pen.fillStyle = this.css("--panel");
    pen.fillRect(0, 0, width, height - AXIS_HEIGHT);
    pen.clearRect(0, height - AXIS_HEIGHT, width, AXIS_HEIGHT);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, width - this.left, height - AXIS_HEIGHT);
    pen.clip();
    this.drawGrid();
    if (this.view === "node") this.drawNodes();
    else this.drawGangs();
    pen.restore();
    pen.fillStyle = this.css("--paper");
    pen.fillRect(0, 0, this.left, height - AXIS_HEIGHT);
    this.drawLabels();
    this.drawAxis();
  }

  gutter() {
    const names = this.view === "node" ? this.picture.nodes.slice(0, 200) : this.picture.rows.map(([gang]) => this.picture.told[gang][T_NAME]);
    const longest = names.reduce((best, name) => (name.length > best.length ? name : best), "");
    return Math.ceil(Math.min(this.pen.measureText(longest).width, this.width < 640 ? 64 : 130)) + 10;
  }

  drawGrid() {
    const { pen, win } = this;
    this.time = timeTicks(win.t0, win.t1, Math.max(3, Math.floor((this.width - this.left) / (this.width > 600 ? 90 : 60))));
    pen.strokeStyle = this.css("--line");
    pen.lineWidth = 1;
    pen.beginPath();
    for (const tick of this.time.ticks) {
      const at = Math.round(this.x(tick)) + 0.5;
      pen.moveTo(at, 0);
      pen.lineTo(at, this.height - AXIS_HEIGHT);
    }
    pen.stroke();
  }

  drawNodes() {
    const { pen, win, picture } = this;
    if (picture.shade) this.drawShade(picture.shade);
    for (const mark of picture.marks) this.drawMark(mark);
    const { boxes } = picture;
    this.names = [];
    if (!boxes) return;
    for (let index = 0; index < boxes.gang.length; index++) {
      const [start, end] = [boxes.start[index], boxes.start[index] + boxes.length[index]];
      const [top, bottom] = [boxes.top[index], boxes.top[index] + boxes.height[index]];
      if (end < win.t0 || start > win.t1 || bottom < win.y0 || top > win.y1) continue;
      const gang = boxes.gang[index];
      this.drawBox(this.x(start), this.x(end), this.y(top), this.y(bottom), this.colourOf[gang], !boxes.runs || boxes.runs[index], picture.told[gang][T_NAME]);
    }
    this.drawRules();
    for (const [text, left, middle, colour] of this.names) {
      pen.fillStyle = inkOn(colour);
      pen.textAlign = "left";
      pen.fillText(text, left, middle);
    }
  }

  drawBox(left, right, top, bottom, colour, runs, name) {
    const { pen } = this;
    const wide = Math.max(right - left - (right - left > 3 ? 1 : 0), 0.7);
    const tall = Math.max(bottom - top - (bottom - top > 3 ? 1 : 0), 0.7);
    pen.fillStyle = runs ? colour : this.stripes(colour);
    pen.fillRect(left, top, wide, tall);
    if (!runs || tall < 11 || wide < 34) return;
    const from = Math.max(left, this.left);
    const room = Math.min(left + wide, this.width) - from - 8;
    if (room < 26) return;
    const node = this.tops.findIndex((each) => this.y(each) > top + 1);
    const first = Math.min(top + tall, node < 0 ? Infinity : this.y(this.tops[node])) - top;
    // Drawn last, and inside the first node of the box: a rule between nodes must not strike a name through.
    if (first >= 11) this.names.push([this.cut(name, room), from + 4, top + first / 2, colour]);
  }

  cut(text, room) {
    const { pen } = this;
    if (pen.measureText(text).width <= room) return text;
    let length = Math.min(text.length, Math.ceil(room / 4));
    while (length > 1 && pen.measureText(text.slice(0, length) + "…").width > room) length--;
    return length > 1 ? text.slice(0, length) + "…" : "";
  }

  drawRules() {
    const { pen, tops } = this;
    if (this.y(tops[1] || 0) - this.y(0) < 5) return;
    pen.strokeStyle = this.css("--paper");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const top of tops) {
      pen.moveTo(this.left, Math.round(this.y(top)));
      pen.lineTo(this.width, Math.round(this.y(top)));
    }
    pen.stroke();
  }

  drawShade(shade) {
    if (!shade.image) {
      const bytes = Uint8Array.from(atob(shade.levels), (char) => char.charCodeAt(0));
      shade.bytes = bytes;
      shade.image = new OffscreenCanvas(shade.columns, shade.rows);
    }
    const pen = shade.image.getContext("2d");
    const image = pen.createImageData(shade.columns, shade.rows);
    const [red, green, blue] = parts(this.css("--shade"));
    shade.bytes.forEach((level, index) => image.data.set([red, green, blue, Math.min(255, level * 0.9)], 4 * index));
    pen.putImageData(image, 0, 0);
    const high = this.tops.at(-1);
    this.pen.imageSmoothingEnabled = false;
    this.pen.drawImage(shade.image, this.x(shade.start), this.y(0), this.x(shade.end) - this.x(shade.start), this.y(high) - this.y(0));
  }

  drawMark([node, start, end, what]) {
    const index = this.placeOf.get(node);
    const [left, right] = [this.x(start), this.x(end)];
    const [top, bottom] = [this.y(this.tops[index]), this.y(this.tops[index + 1])];
    if (right < this.left || left > this.width || bottom < 0 || top > this.height) return;
    this.pen.fillStyle = this.stripes(this.css(MARKS[what].slice(4, -1)));
    this.pen.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
  }

  stripes(colour) {
    if (!this.hatch.has(colour)) {
      const tile = new OffscreenCanvas(8, 8);
      const pen = tile.getContext("2d");
      pen.strokeStyle = colour;
      pen.lineWidth = 2;
      pen.beginPath();
      for (const from of [-8, 0, 8]) {
        pen.moveTo(from, 8);
        pen.lineTo(from + 8, 0);
      }
      pen.stroke();
      this.hatch.set(colour, this.pen.createPattern(tile, "repeat"));
    }
    return this.hatch.get(colour);
  }

  drawGangs() {
    const { pen, win, picture } = this;
    const last = Math.min(picture.rows.length, Math.ceil(win.y1));
    for (let row = Math.max(0, Math.floor(win.y0)); row < last; row++) {
      const [gang, stretches] = picture.rows[row];
      const told = picture.told[gang];
      const [top, bottom] = [this.y(row), this.y(row + 1)];
      const tall = (bottom - top) * 0.74;
      for (const [start, end, what, members] of stretches) {
        if (end < win.t0 || start > win.t1) continue;
        const [left, right] = [this.x(start), this.x(end)];
        const middle = (top + bottom) / 2;
        if (what === "wait") {
          pen.fillStyle = this.css("--wait");
          pen.fillRect(left, middle - 1, Math.max(0.7, right - left), 2);
          continue;
        }
        const part = what === "run" && told[T_MOST] ? Math.max(0.25, Math.min(1, members / told[T_MOST])) : 1;
        pen.fillStyle = what === "run" ? this.colourOf[gang] : this.stripes(this.colourOf[gang]);
        pen.fillRect(left, middle + tall / 2 - tall * part, Math.max(1.2, right - left), tall * part);
      }
      this.drawEvents(told, (top + bottom) / 2);
    }
  }

  /** A cross where a gang lost its places or failed. */
  drawEvents(told, middle) {
    const { pen } = this;
    pen.strokeStyle = this.css("--p-lost");
    pen.lineWidth = 1.6;
    for (const [at, event] of told[T_STORY] || []) {
      if (!["evict", "lose", "fail", "cancel"].includes(this.word(event))) continue;
      const x = this.x(at);
      pen.beginPath();
      pen.moveTo(x - 3, middle - 3);
      pen.lineTo(x + 3, middle + 3);
      pen.moveTo(x + 3, middle - 3);
      pen.lineTo(x - 3, middle + 3);
      pen.stroke();
    }
  }

  drawLabels() {
    const { pen, picture, tops } = this;
    pen.fillStyle = this.css("--muted");
    pen.textAlign = "right";
    const label = (text, top, bottom) => {
      const middle = Math.max(6, (Math.max(top, 0) + Math.min(bottom, this.height - AXIS_HEIGHT)) / 2);
      pen.fillText(this.cut(text, this.left - 8), this.left - 6, middle);
    };
    if (this.view === "gang") {
      for (let row = Math.max(0, Math.floor(this.win.y0)); row < Math.min(picture.rows.length, this.win.y1); row++) {
        const [top, bottom] = [this.y(row), this.y(row + 1)];
        if (bottom - top >= 9 && (top + bottom) / 2 < this.height - AXIS_HEIGHT) label(picture.told[picture.rows[row][0]][T_NAME], top, bottom);
      }
      return;
    }
    let free = -Infinity;
    picture.nodes.forEach((name, index) => {
      const [top, bottom] = [this.y(tops[index]), this.y(tops[index + 1])];
      const middle = (Math.max(top, 0) + Math.min(bottom, this.height - AXIS_HEIGHT)) / 2;
      if (bottom < 0 || top > this.height - AXIS_HEIGHT || middle < free) return;
      label(name, top, bottom);
      free = middle + 13;
    });
  }

  drawAxis() {
    const { pen, time } = this;
    const floor = this.height - AXIS_HEIGHT;
    pen.fillStyle = this.css("--muted");
    pen.textAlign = "center";
    for (const tick of time.ticks) {
      const at = this.x(tick);
      if (at >= this.left && at <= this.width - 8) pen.fillText(time.say(tick), at, floor + 11);
    }
    pen.textAlign = "right";
    pen.fillText(`simulated time (${time.unit})`, this.width, floor + 27);
  }
}

function parts(colour) {
  const digits = colour.replace("#", "");
  return [0, 2, 4].map((from) => parseInt(digits.slice(from, from + 2), 16));
}

/** Black or white, whichever is read more easily on a colour. */
function inkOn(colour) {
  const [red, green, blue] = parts(colour).map((each) => Math.pow(each / 255, 2.2));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 ? "#111" : "#fff";
}
