// The network in the browser: what browser.js asks for answers.
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
  try {
    return await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  } catch {
    throw new Error("This is not a readable image.");
  }
}

function pixels(image) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0);
  const rgba = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const rgb = new Uint8Array(rgba.length / 4 * 3);
  for (let from = 0, to = 0; from < rgba.length; from += 4) {
    rgb[to++] = rgba[from];
    rgb[to++] = rgba[from + 1];
    rgb[to++] = rgba[from + 2];
  }
  return new ort.Tensor("uint8", rgb, [1, canvas.height, canvas.width, 3]);
}

let last = Promise.resolve(); // a session computes one image at a time

const backEnd = {
  async models() {
    await open();
    return [{ classes: vitralModel.classes }];
  },

  answer(file, model, top) {
    const answered = last.then(async () => {
      const { probabilities } = await session.run({ images: pixels(await decode(file)) }, ["probabilities"]);
      const ranked = Array.from(probabilities.data, (probability, index) => ({ label: vitralModel.classes[index], probability }));
      ranked.sort((one, other) => other.probability - one.probability);
      return { top: ranked.slice(0, top), sure: vitralModel.threshold === null || ranked[0].probability >= vitralModel.threshold };
    });
    last = answered.catch(() => {});
    return answered;
  },
};

if (location.protocol === "https:") navigator.serviceWorker?.register("offline.js").catch(() => {}); // for later, offline
