/* What the Gantt says: its legend, how much of the run it shows, and whatever is pointed at. */

Object.assign(Gantt.prototype, {
  legend(entries) {
    const { marks, boxes, shade, rows } = this.picture;
    const more = [];
    const holds = this.view === "node" ? boxes && boxes.runs && boxes.runs.some((each) => !each) : rows.some(([, parts]) => parts.some(([, , what]) => what === "hold"));
    if (this.view === "gang") more.push(["waiting", "var(--wait)", ""]);
    if (holds) more.push(["holds places without running", "var(--muted)", "stripes"]);
    if (this.view === "node" && shade) more.push(["stays too small to draw one by one", "var(--shade)"]);
    for (const what of new Set(marks.map(([, , , each]) => each))) if (this.view === "node") more.push([what, MARKS[what], "stripes"]);
    return legend([...entries, ...more]);
  },

  sayHow() {
    const { boxes, boxesAll, share, rows, gangsAll } = this.picture;
    if (this.view === "gang") {
      return rows.length < gangsAll
        ? `The ${rows.length} gangs that waited longest, of ${gangsAll.toLocaleString("en")}, in the order of their submit. A bar is as tall as the share of its members that run.`
        : `${rows.length} gangs in the order of their submit. A bar is as tall as the share of its members that run.`;
    }
    if (!boxes) return "Too many places to lay out by node; see the gangs.";
    if (boxes.gang.length < boxesAll) {
      return `The ${boxes.gang.length.toLocaleString("en")} largest of ${boxesAll.toLocaleString("en")} stays one by one (${sayPercent(Math.floor(share * 1000) / 1000)} of ${this.data.unit} time), the rest as shading. All are in the CSV of the gangs.`;
    }
    return `All ${boxesAll.toLocaleString("en")} stays. Which ${this.data.unit} of a node a gang has is chosen for the picture.`;
  },

  point(event) {
    const [px, py] = [event.offsetX, event.offsetY];
    const inside = px >= this.left && py <= this.height - AXIS_HEIGHT;
    const lines = inside ? this.tell(this.x.back(px), this.y.back(py)) : null;
    this.canvas.classList.toggle("pointing", Boolean(lines));
    if (lines) showTip(event.clientX, event.clientY, lines);
    else hideTip();
  },

  tell(at, row) {
    const { picture } = this;
    if (this.view === "gang") {
      const found = picture.rows[Math.floor(row)];
      return found ? this.tellGang(picture.told[found[0]], at) : null;
    }
    const node = this.nodeAt(row);
    const { boxes } = picture;
    const slack = (this.win.t1 - this.win.t0) / this.width;
    for (let index = boxes ? boxes.gang.length - 1 : -1; index >= 0; index--) {
      if (at >= boxes.start[index] && at <= boxes.start[index] + Math.max(slack, boxes.length[index]) && row >= boxes.top[index] && row <= boxes.top[index] + boxes.height[index]) {
        return this.tellGang(picture.told[boxes.gang[index]], at, node);
      }
    }
    const mark = picture.marks.find(([name, start, end]) => name === node && at >= start && at <= end);
    if (mark) return [make("p", { class: "head" }, `${node}: ${mark[3]}`), tipLine("from", sayTime(mark[1])), tipLine("to", sayTime(mark[2]))];
    return this.tellShade(at, row, node);
  },

  tellShade(at, row, node) {
    const { shade } = this.picture;
    if (!shade || at < shade.start || at > shade.end) return null;
    const column = Math.min(shade.columns - 1, Math.floor(((at - shade.start) / (shade.end - shade.start)) * shade.columns));
    const line = Math.min(shade.rows - 1, Math.floor((row / this.tops.at(-1)) * shade.rows));
    const level = shade.bytes[line * shade.columns + column] / 255;
    return level ? [make("p", { class: "head" }, `${node}, ${sayTime(at)}`), make("p", {}, `small stays: about ${sayPercent(level)} of this place`)] : null;
  },

  nodeAt(row) {
    const index = this.tops.findIndex((top, place) => row >= top && row < this.tops[place + 1]);
    return index < 0 ? "" : this.picture.nodes[index];
  },

  tellGang(gang, at, node) {
    const story = gang[T_STORY] || [];
    const before = story.filter(([when]) => when <= at).at(-1);
    const members = before ? before[2] : at >= gang[T_START] && gang[T_START] !== null ? gang[T_MEMBERS] : 0;
    const who = [this.word(gang[T_USER]), `queue ${this.word(gang[T_QUEUE])}`].filter(Boolean).join(", ");
    const ended = gang[T_END] !== null && at >= gang[T_END];
    const lines = [
      make("p", { class: "head" }, gang[T_NAME]),
      make("p", { class: "quiet" }, `${this.word(gang[T_STATE])} · ${who}${node ? ` · on ${node}` : ""}`),
      tipLine("members", `${ended ? gang[T_MEMBERS] : members} of ${gang[T_MOST]}`),
      tipLine("submitted", sayTime(gang[T_SUBMIT])),
      gang[T_START] === null ? null : tipLine("started", sayTime(gang[T_START])),
      gang[T_END] === null ? null : tipLine("ended", sayTime(gang[T_END])),
      gang[T_WAIT] === null ? null : tipLine("waited", gang[T_WAIT] ? sayTime(gang[T_WAIT]) : "not at all"),
    ];
    const why = this.word(gang[T_WHY]);
    if (why) lines.push(make("p", { class: "quiet" }, why));
    if (gang[T_WAIT] !== 0) {
      lines.push(make("p", { class: "quiet" }, `needed ${sayNumber(gang[T_NEEDED])} ${this.data.unit}${gang[T_NEEDED] === 1 ? "" : "s"}; left when it came: ${sayNumber(gang[T_UNUSED])}`));
    }
    for (const [when, event, count] of story.slice(0, 8)) lines.push(tipLine(`${sayTime(when)} ${this.word(event)}`, `${count} member${count === 1 ? "" : "s"}`));
    if (story.length > 8) lines.push(make("p", { class: "quiet" }, `and ${story.length - 8} more changes`));
    return lines.filter(Boolean);
  },
});
