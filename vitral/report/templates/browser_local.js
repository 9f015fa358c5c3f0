// The network in the browser: what browser.js asks for answers.
const MOST_VALUES = 2 ** 26; // of the maps of a photo, a value for each pixel and class: what a browser's memory holds
const PNG = 0x89, DEPTH = 24; // the first byte of a PNG, and the place of the bits that its values have
const DARK = 64; // of 256: what is nowhere brighter uses 14 of 16 bits or less
let ort = null, session = null;

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// As texts in scripts, runtime and model can be read from a folder, too, without a server.
async function open() {
  const address = URL.createObjectURL(new Blob([vitralRuntime.module], { type: "text/javascript" }));
  ort = await import(address);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = bytes(vitralRuntime.wasm).buffer;
  ort.env.logLevel = "error";
  session = await ort.InferenceSession.create(bytes(vitralModel.onnx), { executionProviders: ["wasm"] });
}

async function decode(file) {
  const start = new Uint8Array(await file.slice(0, DEPTH + 1).arrayBuffer());
  try {
    const image = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
    return Object.assign(image, { isDeep: start[0] === PNG && start[DEPTH] === 16 });
  } catch {
    throw new Error("This browser cannot read it as an image; save it as JPEG or PNG.");
  }
}

// A canvas has the upper 8 of 16 bits: too little of an image whose white takes less than all of them.
function refuseDark(rgb) {
  if (vitralModel.bits !== null ? vitralModel.bits < 16 : rgb.every((value) => value < DARK)) {
    throw new Error("Of 16 bits a value a browser sees the upper 8, and this image needs the lower: save it with 8 bits a value.");
  }
}

// The pixels of a photo; one with more than so many is made smaller.
function pixels(image, most = Infinity) {
  const canvas = document.createElement("canvas"), scale = Math.min(1, Math.sqrt(most / (image.width * image.height)));
  [canvas.width, canvas.height] = [image.width, image.height].map((side) => Math.max(1, Math.floor(scale * side)));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const rgba = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const rgb = new Uint8Array(rgba.length / 4 * 3);
  for (let from = 0, to = 0; from < rgba.length; from += 4) {
    rgb[to++] = rgba[from];
    rgb[to++] = rgba[from + 1];
    rgb[to++] = rgba[from + 2];
  }
  if (image.isDeep) refuseDark(rgb);
  return new ort.Tensor("uint8", rgb, [1, canvas.height, canvas.width, 3]);
}

let last = Promise.resolve(); // a session computes one image at a time

async function classes(image, { top }) {
  const { probabilities } = await session.run({ images: pixels(image) }, ["probabilities"]);
  const ranked = Array.from(probabilities.data, (probability, index) => ({ label: vitralModel.classes[index], probability }));
  ranked.sort((one, other) => other.probability - one.probability);
  return { top: ranked.slice(0, top), sure: vitralModel.threshold === null || ranked[0].probability >= vitralModel.threshold };
}

// Regions as a server gives them, but for masks, which are the places where they begin and end by turns, column after column.
async function regions(image, { threshold }) {
  const images = pixels(image, MOST_VALUES / vitralModel.classes.length), [, height, width] = images.dims;
  const { class_map: map, confidence, boxes, scores, classes: numbers, masks, objects, segments } = await session.run({ images });
  const size = { height, width };
  if (confidence) return { ...size, regions: regionsOfClasses(map.data, confidence.data, size) };
  const ends = objects ?? segments ? endsOfMap((objects ?? segments).data, size) : null;
  const found = Array.from(scores.data, (score, row) => {
    const region = { score, category_id: Number(numbers.data[row]) };
    if (boxes) {
      const [left, top, right, bottom] = boxes.data.subarray(4 * row, 4 * row + 4);
      region.bbox = [left, top, right - left, bottom - top];
    }
    if (ends) region.ends = ends.get(row + 1) ?? [];
    if (masks) region.ends = endsOfMap(masks.data.subarray(row * width * height, (row + 1) * width * height), size).get(1) ?? [];
    return region;
  });
  return { ...size, regions: found.filter(({ score, ends, bbox }) => score >= threshold && (ends ? ends.length : bbox[2] > 0 && bbox[3] > 0)) };
}

function regionsOfClasses(map, confidence, size) {
  const areas = vitralModel.classes.map(() => 0), sums = vitralModel.classes.map(() => 0);
  map.forEach((number, place) => { areas[number]++; sums[number] += confidence[place]; });
  return [...endsOfMap(map, size)].map(([number, ends]) => ({ category_id: number, area: areas[number], score: sums[number] / areas[number], ends }));
}

// Where each number of a map begins and ends by turns.
function endsOfMap(map, { width, height }) {
  const ends = new Map();
  let before = null;
  for (let column = 0, place = 0; column < width; column++) {
    for (let row = 0; row < height; row++, place++) {
      const number = map[row * width + column];
      if (number === before) continue;
      ends.get(before)?.push(place);
      if (!ends.has(number)) ends.set(number, []);
      ends.get(before = number).push(place);
    }
  }
  ends.get(before)?.push(width * height);
  return ends;
}

const backEnd = {
  async models() {
    await open();
    return [vitralModel];
  },

  answer(file, model, values) {
    const answered = last.then(async () => (vitralModel.regions ? regions : classes)(await decode(file), values));
    last = answered.catch(() => {});
    return answered;
  },
};

if (location.protocol === "https:") navigator.serviceWorker?.register("offline.js").catch(() => {}); // for later, offline
