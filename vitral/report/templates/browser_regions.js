// A photo with what was found in it: regions drawn over it, counted by class, from a threshold on.
const LEAST = 0.05; // how sure a region must be to be sent to the page at all
const FILLED = 0.4; // the share of its colour within a mask
const LETTERS = 12; // pixels of a name
const MOST_NAMED = 100;
const ROOM = 2.5; // times the area of its name: a smaller region has none

class RegionCard extends Card {
  constructor(file, number) {
    super(file, number);
    this.threshold = this.model.regions.threshold;
    this.moved = false; // whether a person has chosen another
    const input = this.find(".threshold");
    this.find(".for-threshold").htmlFor = input.id = `threshold-${number}`;
    input.min = Math.floor(100 * this.least);
    input.value = 100 * this.threshold;
    input.addEventListener("input", () => {
      [this.threshold, this.moved] = [input.value / 100, true];
      this.update();
    });
    input.addEventListener("change", () => { say(this.told); this.offerCode(); });
  }

  get counted() {
    return this.model.regions.threshold !== null;
  }

  get least() {
    return Math.min(LEAST, this.threshold);
  }

  get wanted() {
    return this.counted ? { threshold: this.least } : {};
  }

  // What a program asks for to get what is shown.
  get values() {
    return this.moved ? { threshold: this.threshold } : {};
  }

  get drawing() {
    return { path: "v1/predict", values: this.values, file: "drawn.jpg" };
  }

  async answered(found, milliseconds) {
    this.found = found;
    for (const region of found.regions) {
      if (region.segmentation) region.ends = endsOf(region.segmentation.counts);
      if (this.counted) region.bbox ??= boxOf(region.ends, found.height);
    }
    const can = await this.shown;
    this.find(".surer").hidden = !(this.counted && can);
    this.update();
    this.find(".facts-line").textContent = `${found.width}×${found.height} pixels, ${milliseconds} ms`;
    say(this.told);
    this.offerCode();
    if (can) new ResizeObserver(() => this.draw()).observe(this.find(".seen"));
    else if (backEnd.drawing) await this.preview(URL.createObjectURL(await backEnd.drawing(this.file, this.model)));
  }

  // Show the regions that are sure enough.
  update() {
    const { regions, width, height } = this.found, { classes } = this.model;
    this.kept = this.counted ? regions.filter(({ score }) => score >= this.threshold - 1e-6) : regions; // scores are rounded
    const values = classes.map(() => 0);
    for (const { category_id, area } of this.kept) values[category_id] += this.counted ? 1 : area / (width * height);
    const there = values.map((value, number) => [value, number]).filter(([value]) => value > 0).sort(([one], [other]) => other - one);
    const texts = there.map(([value, number]) => `${classes[number]}: ${this.counted ? value : percent(value)}`);
    this.told = `${this.file.name}: ${texts.join(", ") || "nothing found"}`;
    this.find(".answer-line").textContent = this.counted ? `${this.kept.length || "Nothing"} found` : `${there.length} ${there.length === 1 ? "class" : "classes"}`;
    this.find(".surer output").textContent = percent(this.threshold ?? 0);
    this.find(".bars").replaceChildren(...there.flatMap(([value, number]) => this.bar(number, value, there[0][0])));
    this.find("canvas").setAttribute("aria-label", `Regions in ${this.told}`);
    this.draw();
  }

  bar(number, value, most) {
    const shown = this.counted ? value.toString() : percent(value);
    const [name, track, last] = bar(this.model.classes[number], percent(value / most), shown);
    const swatch = document.createElement("i"), colour = this.colourOf(number);
    swatch.style.background = track.firstElementChild.style.background = colour ?? "";
    name.prepend(swatch);
    return [name, track, last];
  }

  // The colour of a class; null of what is left as the photo is.
  colourOf(number) {
    const { colours, ground } = this.model.regions;
    return ground.includes(number) ? null : colours[number];
  }

  draw() {
    const canvas = this.find("canvas"), { clientWidth, clientHeight } = this.find(".seen"), scale = window.devicePixelRatio;
    if (!this.kept || !clientWidth || this.find("img").hidden) return;
    [canvas.width, canvas.height, canvas.hidden] = [Math.round(clientWidth * scale), Math.round(clientHeight * scale), false];
    const context = canvas.getContext("2d");
    if (this.kept.some(({ ends }) => ends)) this.paint(context, Math.max(1, Math.round(1.5 * scale)));
    else for (const region of [...this.kept].reverse()) this.outline(context, region, Math.max(2, Math.round(2 * scale)));
    if (this.counted) this.nameRegions(context, LETTERS * scale);
  }

  // Fill and outline masks; the likeliest lies on top. A dark line around each stands out on a photo of its own colour.
  paint(context, thickness) {
    const { width, height } = context.canvas, painted = new ImageData(width, height);
    const at = this.owners(width, height), count = this.kept.length + 1;
    const colours = [null, ...this.kept.map(({ category_id }) => this.colourOf(category_id))];
    const [full, light] = [255, Math.round(255 * FILLED)].map((alpha) => Uint32Array.from(colours, (colour) => colour ? word(channelsOf(colour), alpha) : 0));
    const words = new Uint32Array(painted.data.buffer), seen = new Uint8Array(count), around = word([0, 0, 0], 128);
    for (let y = 0, place = 0; y < height; y++) {
      const up = y >= thickness ? -thickness * width : 0, down = y < height - thickness ? thickness * width : 0;
      for (let x = 0; x < width; x++, place++) {
        const own = at[place], left = x >= thickness ? -thickness : 0, right = x < width - thickness ? thickness : 0;
        const edge = at[place + left] !== own || at[place + right] !== own || at[place + up] !== own || at[place + down] !== own;
        seen[own] = 1;
        words[place] = colours[own] ? (edge ? full : light)[own] : edge ? around : 0;
      }
    }
    context.putImageData(painted, 0, 0);
    this.kept.forEach((region, index) => {
      if (!seen[index + 1] && colours[index + 1]) this.dot(context, region, 2 * thickness);
    });
  }

  // The number of the region at each pixel of a canvas, counted from 1.
  owners(width, height) {
    const { width: columns, height: rows } = this.found, whole = new (this.kept.length < 65535 ? Uint16Array : Uint32Array)(columns * rows);
    for (let index = this.kept.length; index > 0; index--) {
      const ends = this.kept[index - 1].ends;
      for (let run = 0; run < ends.length; run += 2) whole.fill(index, ends[run], ends[run + 1]);
    }
    const at = new whole.constructor(width * height);
    const lines = Array.from({ length: width }, (_, x) => rows * Math.floor((x + 0.5) * columns / width));
    for (let y = 0, place = 0; y < height; y++) {
      const row = Math.floor((y + 0.5) * rows / height);
      for (let x = 0; x < width; x++) at[place++] = whole[lines[x] + row];
    }
    return at;
  }

  // The box of a region on a canvas: left, top, width, height.
  placed({ bbox: [left, top, wide, high] }, { width, height }) {
    const [x, y] = [width / this.found.width, height / this.found.height];
    return [left * x, top * y, wide * x, high * y];
  }

  dot(context, region, radius) {
    const [left, top, width, height] = region.bbox ? this.placed(region, context.canvas) : [0, 0, 0, 0];
    context.fillStyle = this.colourOf(region.category_id);
    context.beginPath();
    context.arc(left + width / 2, top + height / 2, radius, 0, 2 * Math.PI);
    context.fill();
  }

  outline(context, region, thickness) {
    const [left, top, width, height] = this.placed(region, context.canvas);
    for (const [colour, line] of [["#000", thickness + 2], [this.colourOf(region.category_id) ?? "#fff", thickness]]) {
      [context.strokeStyle, context.lineWidth] = [colour, line];
      context.strokeRect(left, top, width, height);
    }
  }

  // Write names with how sure they are, the likeliest first, where they neither meet nor hide more than they name.
  nameRegions(context, size) {
    const taken = [], [high, { canvas }] = [size + 6, context];
    [context.font, context.textBaseline] = [`600 ${size}px system-ui, sans-serif`, "middle"];
    for (const region of this.kept) {
      const colour = this.colourOf(region.category_id), text = `${this.model.classes[region.category_id]} ${Math.round(100 * region.score)}%`;
      const [x, y, width, height] = this.placed(region, canvas), wide = context.measureText(text).width + 8;
      const left = Math.max(0, Math.min(x, canvas.width - wide)), top = y >= high ? y - high : Math.min(y, canvas.height - high);
      const meets = taken.some(([l, t, w]) => left < l + w && l < left + wide && top < t + high && t < top + high);
      if (!colour || meets || width * height < ROOM * wide * high || wide > canvas.width / 2) continue;
      taken.push([left, top, wide]);
      context.fillStyle = colour;
      context.fillRect(left, top, wide, high);
      context.fillStyle = isLight(channelsOf(colour)) ? "#000" : "#fff";
      context.fillText(text, left + 4, top + high / 2);
      if (taken.length === MOST_NAMED) return;
    }
  }
}

const channelsOf = (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
const word = ([red, green, blue], alpha) => (alpha << 24 | blue << 16 | green << 8 | red) >>> 0; // of image data, little-endian
const isLight = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue > 140; // its luma by ITU-R BT.601

// Where a mask begins and ends by turns, pixels counted column after column: of COCO's text (pycocotools' maskApi.c, rleFrString).
function endsOf(text) {
  const runs = [], ends = [];
  for (let place = 0, total = 0; place < text.length;) {
    let value = 0, unit = 1, group;
    do {
      group = text.charCodeAt(place++) - 48;
      value += (group & 31) * unit;
      unit *= 32;
    } while (group & 32);
    if (group & 16) value -= unit;
    if (runs.length > 2) value += runs[runs.length - 2];
    runs.push(value);
    ends.push(total += value);
  }
  return ends;
}

function boxOf(ends, height) {
  let [left, top, right, bottom] = [Infinity, Infinity, 0, 0];
  for (let run = 0; run + 1 < ends.length; run += 2) {
    const [first, last] = [ends[run], ends[run + 1] - 1], columns = [first, last].map((place) => Math.floor(place / height));
    const within = columns[0] === columns[1]; // others go on in the next column, through both borders
    [left, right] = [Math.min(left, columns[0]), Math.max(right, columns[1] + 1)];
    [top, bottom] = [Math.min(top, within ? first % height : 0), Math.max(bottom, within ? last % height + 1 : height)];
  }
  return [left, top, right - left, bottom - top];
}
