// The page of a classifier: photos in, a card with the answer to each out. `backEnd` answers: a server, or the network here.
const TOP = 5; // classes in a card
const AT_ONCE = 4; // photos on their way
const TALLEST = 440; // pixels of a photo in a card
const FADED = 0.75; // how far what the network did not see fades into the card
const EVEN = 0.05; // of the mean: relevances that differ by less are alike, whose colours would make up a difference
const colours = document.body.dataset.scale.match(/\d+ \d+ \d+/g).map((stop) => stop.split(" ").map(Number));
const video = document.querySelector("video");
// What a classifier of regions finds, by its task.
const FOUND = {
  semantic: "; every pixel has one",
  boxes: "; boxes around objects",
  instances: "; objects with their outlines",
  panoptic: "; every pixel has one, and objects are told apart",
};
let models = [];

const chosen = () => models[element("classifier").selectedIndex] ?? models[0];

function describe() {
  const { name, classes, doubt, task, regions } = chosen(), few = classes.slice(0, 8).join(", ");
  if (name) document.title = `${element("title").textContent = name} · Vitral`;
  const kind = regions ? FOUND[task] : task === "multi-label" ? "; a photo may have several" : "";
  element("model").textContent = `${classes.length === 1 ? "1 class" : `${classes.length} classes`}: ${few}${classes.length > 8 ? ", …" : ""}${kind}`;
  element("doubt").hidden = !doubt;
  element("doubt").textContent = doubt ?? "";
}

// A bar of an answer: name, track and value are cells of one grid.
function bar(label, width, text, kind = "fill") {
  const [name, track, value, fill] = ["bdi", "div", "span", "div"].map((each) => document.createElement(each));
  [name.textContent, value.textContent, fill.className] = [label, text, kind];
  [track.className, value.className, fill.style.width] = ["track", "value", width];
  track.append(fill);
  return [name, track, value];
}

const doubts = ({ sure, known }) => known === false ? "Perhaps none of these classes" : sure === false ? "Not sure" : "";

// One photo and its answer.
class Card {
  constructor(file, number) {
    this.file = file;
    this.model = chosen();
    this.node = document.importNode(element("result").content, true).firstElementChild; // photos of the template itself never load
    this.found = null;
    this.find(".file").textContent = file.name;
    this.shown = this.preview(URL.createObjectURL(file));
  }

  find(selector) {
    return this.node.querySelector(selector);
  }

  // Show a photo; false where the browser cannot.
  async preview(address) {
    const image = this.find("img");
    image.src = address;
    image.alt = this.file.name;
    const can = await image.decode().then(() => true, () => false);
    [image.hidden, this.find(".blank").hidden] = [!can, can];
    if (can) {
      const shape = image.naturalWidth / image.naturalHeight, seen = this.find(".seen");
      [seen.style.aspectRatio, seen.style.maxWidth] = [shape, `${Math.round(TALLEST * shape)}px`];
    }
    return can;
  }

  async answer() {
    this.find(".answer-line").textContent = "Computing…";
    const begun = performance.now();
    try {
      const found = await backEnd.answer(this.file, this.model, this.wanted, (seconds) => {
        this.find(".answer-line").textContent = `The server is busy; again in ${seconds} s…`;
      });
      await this.answered(found, Math.round(performance.now() - begun));
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    this.node.classList.add("failed");
    this.find(".answer-line").textContent = error.message;
    say(`${this.file.name} has no answer. ${error.message}`, true);
  }

  offerCode() {
    if (!backEnd.code) return;
    const details = this.find("details");
    details.hidden = false;
    details.replaceChildren(details.firstElementChild, ...backEnd.code(this.file, this.model, this.values, this.drawing).flatMap(([title, lines]) => {
      const [heading, copy, text] = ["h3", "button", "pre"].map((kind) => document.createElement(kind));
      [heading.textContent, text.textContent, text.tabIndex, copy.type, copy.className, copy.textContent] = [title, lines, 0, "button", "copy", "Copy"];
      copy.setAttribute("aria-label", `Copy: ${title}`);
      copy.addEventListener("click", () => copyText(text, copy));
      heading.append(copy);
      return [heading, text];
    }));
  }
}

// A photo with its classes, and a map of where the network looked.
class ClassCard extends Card {
  constructor(file, number) {
    super(file, number);
    this.part = null;
    for (const name of ["strength", "shown", "head"]) {
      this.find(`.for-${name}`).htmlFor = this.find(`.${name}`).id = `${name}-${number}`;
    }
    this.find(".scale").style.background = `linear-gradient(90deg, ${document.body.dataset.scale})`;
    this.find(".look button").addEventListener("click", () => this.toggle());
    this.find(".strength").addEventListener("input", () => this.strengthen());
    this.find(".shown").addEventListener("change", () => { this.offerHeads(); this.look(); });
    this.find(".head").addEventListener("change", () => this.look());
  }

  // What the page, and a program, asks for.
  get values() {
    return { top: TOP };
  }

  get wanted() {
    return this.values;
  }

  // What a program asks for beside the answer: the map, where it is open.
  get drawing() {
    return this.find(".mapping").hidden || !this.part ? null : { path: "v1/explain", values: this.part, file: "explained.jpg" };
  }

  async answered(found, milliseconds) {
    this.show(found, milliseconds);
    this.labels = found.top.map(({ label }) => label);
    this.offerMap().catch(() => {}); // the answer stands without it
  }

  show(found, milliseconds) {
    const several = this.model.task === "multi-label", image = this.find("img");
    const named = several ? found.top.filter(({ probability }) => probability >= 0.5) : found.top.slice(0, 1);
    const line = this.find(".answer-line"), text = named.map(({ label }) => label).join(", ") || "None of the classes";
    line.textContent = `${text} `;
    if (named.length === 1) line.appendChild(document.createElement("span")).textContent = percent(named[0].probability);
    const doubt = doubts(found);
    this.find(".doubt").hidden = !doubt;
    this.find(".doubt").textContent = doubt;
    this.find(".bars").replaceChildren(...found.top.flatMap(({ label, probability }, index) => {
      return bar(label, percent(probability), percent(probability), index ? "fill" : "fill own");
    }));
    this.shown.then((can) => {
      this.find(".facts-line").textContent = `${can ? `${image.naturalWidth}×${image.naturalHeight} pixels, ` : ""}${milliseconds} ms`;
    });
    say(`${this.file.name}: ${text}${named.length === 1 ? `, ${percent(named[0].probability)}` : ""}${doubt ? `. ${doubt}.` : ""}`);
    this.offerCode();
  }

  // Where the browser cannot show the photo, the server's drawing of photo and map stands in for both.
  async offerMap() {
    if (!this.model.maps) return;
    if (await this.shown) {
      this.find(".look").hidden = false;
      this.offerParts();
    } else {
      await this.preview(URL.createObjectURL(await backEnd.drawing(this.file, this.model)));
    }
  }

  offerParts() {
    const { classes, maps } = this.model, shown = this.find(".shown");
    const others = maps.classes ? classes.filter((name) => !this.labels.includes(name)) : [];
    const named = (maps.classes ? [...this.labels, ...others] : this.labels.slice(0, 1)).map((name, index) => option(`what speaks for ${name}`, index ? `label:${name}` : ""));
    shown.replaceChildren(...named, ...maps.layers.map((_, index) => option(`where layer ${index + 1} of ${maps.layers.length} looks`, `layer:${index + 1}`)));
    this.offerHeads();
  }

  offerHeads() {
    const layer = Number(this.find(".shown").value.match(/^layer:(\d+)$/)?.[1] ?? 0), head = this.find(".head");
    const heads = layer ? this.model.maps.layers[layer - 1] : 0;
    head.replaceChildren(option("mean of all", ""), ...Array.from({ length: heads }, (_, index) => option(`${index + 1} of ${heads}`, index + 1)));
    head.hidden = this.find(".for-head").hidden = !layer;
  }

  toggle() {
    const mapping = this.find(".mapping"), open = mapping.hidden;
    mapping.hidden = !open;
    this.find(".look button").setAttribute("aria-expanded", open);
    if (open && !this.found) this.look();
    this.strengthen();
  }

  // Ask for the map that is chosen; the last one that was chosen counts.
  async look() {
    const [kind, value] = this.find(".shown").value.split(/:(.*)/s);
    const part = this.part = kind === "label" ? { label: value } : kind === "layer" ? { layer: value, head: this.find(".head").value || null } : {};
    this.find(".what").textContent = "Computing…";
    try {
      const found = await backEnd.explain(this.file, this.model, part);
      if (part !== this.part) return;
      this.found = found;
      const of = found.part ? `of ${found.part}` : `for ${found.label}, ${percent(found.probability)}`;
      this.find(".what").textContent = `${found.method} ${of}${found.warning ? `. ${found.warning}` : ""}`;
      this.find("canvas").setAttribute("aria-label", `Map of where it looked: ${found.method} ${of}`);
      draw(this.find("canvas"), found);
    } catch (error) {
      if (part === this.part) this.find(".what").textContent = `There is no map. ${error.message}`;
    }
    this.strengthen();
    this.offerCode();
  }

  strengthen() {
    const share = this.find(".strength").value / 100, open = this.found !== null && !this.find(".mapping").hidden;
    this.find("canvas").hidden = !open;
    this.find("canvas").style.opacity = share;
    this.find("img").style.filter = open ? `grayscale(${share > 0 ? 1 : 0})` : "";
  }
}

// Only a page by https or of this machine may write to the clipboard; elsewhere the lines are selected for the keyboard.
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
    button.textContent = "Selected: now copy";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 3000);
}

// A grid of relevance as a smooth field over the part of the photo that the network saw; the rest fades.
function draw(canvas, { relevance, box: [top, left, height, width], size: [rows, columns] }) {
  const small = document.createElement("canvas"), side = small.width = small.height = 256;
  const painted = new ImageData(side, side), field = smooth(relevance, side), mean = relevance.flat().reduce((sum, value) => sum + value, 0) / relevance.flat().length;
  const low = Math.min(...field.map((row) => Math.min(...row))), high = Math.max(...field.map((row) => Math.max(...row)));
  const even = high - low < EVEN * mean || mean <= 0;
  field.flat().forEach((value, index) => {
    const share = even ? Number(mean > 0) : (value - low) / (high - low);
    painted.data.set([...colour(share), 255], 4 * index);
  });
  small.getContext("2d").putImageData(painted, 0, 0);
  const context = canvas.getContext("2d"), [x, y] = [canvas.width / columns, canvas.height / rows];
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.globalAlpha = FADED;
  context.fillStyle = getComputedStyle(canvas.closest(".card")).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.globalAlpha = 1;
  context.clearRect(left * x, top * y, width * x, height * y);
  context.drawImage(small, left * x, top * y, width * x, height * y);
}

function colour(share) {
  const place = share * (colours.length - 1), index = Math.min(Math.floor(place), colours.length - 2), rest = place - index;
  return colours[index].map((value, channel) => value + rest * (colours[index + 1][channel] - value));
}

// Cubic B-splines hide the grid's cells, much as the blur of drawings does.
function smooth(grid, side) {
  const columns = grid.map((row) => spread(row, side));
  const turned = Array.from({ length: side }, (_, column) => spread(columns.map((row) => row[column]), side));
  return Array.from({ length: side }, (_, row) => turned.map((column) => column[row]));
}

function spread(values, side) {
  const at = (index) => values[Math.min(Math.max(index, 0), values.length - 1)];
  return Array.from({ length: side }, (_, place) => {
    const centre = (place + 0.5) * values.length / side - 0.5, index = Math.floor(centre), t = centre - index;
    const weights = [(1 - t) ** 3, 3 * t ** 3 - 6 * t ** 2 + 4, -3 * t ** 3 + 3 * t ** 2 + 3 * t + 1, t ** 3];
    return weights.reduce((sum, weight, offset) => sum + weight * at(index - 1 + offset), 0) / 6;
  });
}

const ready = backEnd.models();
let count = 0;
const queue = [];
let working = 0;

async function work() {
  if (working >= AT_ONCE) return;
  working++;
  while (queue.length) await queue.shift().answer();
  working--;
}

async function take(files) {
  closeCamera();
  if (!files.length) return;
  try {
    await ready;
  } catch {
    return; // the page says why
  }
  const cards = [...files].map((file) => new (chosen().regions ? RegionCard : ClassCard)(file, count++));
  element("results").prepend(...cards.map((card) => card.node));
  element("drop").classList.add("small");
  queue.push(...cards);
  cards.forEach(work);
}

function closeCamera() {
  video.srcObject?.getTracks().forEach((track) => track.stop());
  video.srcObject = null;
  video.hidden = true;
  element("camera").textContent = "Use the camera";
}

async function useCamera() {
  if (video.srcObject) return photograph();
  if (!navigator.mediaDevices?.getUserMedia) return element("photo").click(); // without https a phone's own camera takes the photo
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  await video.play();
  video.hidden = false;
  element("camera").textContent = "Take the photo";
}

async function photograph() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.95));
  await take([new File([blob], "photo.jpg", { type: blob.type })]);
}

for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => { event.preventDefault(); element("drop").classList.add("over"); });
}
document.addEventListener("dragleave", () => element("drop").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  element("drop").classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => take(event.clipboardData.files));
element("choose").addEventListener("click", () => element("file").click());
for (const id of ["file", "photo"]) {
  element(id).addEventListener("change", ({ target }) => {
    take([...target.files]);
    target.value = ""; // the same photo may be chosen again
  });
}
element("camera").addEventListener("click", () => {
  useCamera().catch((error) => { closeCamera(); say(`The camera cannot be used: ${error.message}`, true); });
});
element("classifier").addEventListener("change", describe);

ready.then((found) => {
  models = found;
  element("classifier").replaceChildren(...models.map(({ name }) => option(name ?? "", name)));
  element("choice").hidden = models.length < 2;
  describe();
}).catch((error) => {
  element("model").textContent = "No classifier is loaded.";
  say(error.message, true);
}).finally(() => { document.body.dataset.ready = "yes"; });
