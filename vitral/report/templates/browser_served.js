// A server of Vitral: requests with its token, and what browser.js asks for answers.
const TRIES = 5; // of a request while the server is busy
const SECRET = "vitral-token"; // in the storage of this tab, which ends with it

const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

let asking = null;
function askForToken() {
  const form = element("ask"), input = element("token");
  element("refused").hidden = sessionStorage.getItem(SECRET) === null;
  form.hidden = false;
  input.focus();
  asking ??= new Promise((given) => {
    form.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(SECRET, input.value.trim());
      input.value = "";
      form.hidden = true;
      asking = null;
      given();
    };
  });
  return asking;
}

function headersOf(options) {
  const headers = new Headers(options.headers), token = sessionStorage.getItem(SECRET);
  // A header holds nothing but these; of any other text the server says that it is not its token.
  if (token !== null) headers.set("Authorization", `Bearer ${token.replace(/[^\x21-\x7e]/g, "?")}`);
  return headers;
}

async function ask(path, options = {}, tries = TRIES) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headersOf(options), credentials: "omit", cache: "no-store" });
  } catch {
    throw new Error("The server does not answer, or the photo can no longer be read.");
  }
  if (response.ok) return response;
  if (response.status === 401) {
    await askForToken();
    return ask(path, options, tries);
  }
  const seconds = Number(response.headers.get("Retry-After"));
  if (response.status === 503 && seconds && tries > 1) {
    options.later?.(seconds);
    await wait(seconds);
    return ask(path, options, tries - 1);
  }
  const said = await response.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answers with status ${response.status}.`);
}

// A link sends no token.
element("api")?.addEventListener("click", async (event) => {
  event.preventDefault();
  location.href = URL.createObjectURL(await (await ask("openapi.json")).blob());
});

const query = (model, values) => {
  const given = Object.entries({ model: model.first ? null : model.name, ...values }).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};
const quoted = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
const post = (path, file, others = {}) => ask(path, { method: "POST", body: file, ...others });

const backEnd = {
  async models() {
    const { models, collects } = await (await ask("v1/models")).json();
    element("owner").hidden = !collects;
    return models.map((model, index) => ({ ...model, first: index === 0 }));
  },

  async answer(file, model, values, later) {
    const { predictions } = await (await post(`v1/predict${query(model, values)}`, file, { later, headers: { "Content-Type": "application/octet-stream" } })).json();
    return predictions[0];
  },

  async explain(file, model, part) {
    const headers = { Accept: "application/json", "Content-Type": "application/octet-stream" };
    return (await post(`v1/explain${query(model, part)}`, file, { headers })).json();
  },

  // What the server draws of a photo that the browser cannot show.
  async drawing(file, model) {
    const headers = { Accept: "image/jpeg", "Content-Type": "application/octet-stream" };
    return (await post(`v1/${model.regions ? "predict" : "explain"}${query(model, {})}`, file, { headers })).blob();
  },

  // The same requests by programs: [title, lines].
  code(file, model, values, drawing) {
    const token = sessionStorage.getItem(SECRET) !== null, address = (path, given) => new URL(`${path}${query(model, given)}`, document.baseURI).href;
    const predict = address("v1/predict", values);
    const header = token ? `-H "Authorization: Bearer $VITRAL_TOKEN" ` : "", name = quoted(`@${file.name}`);
    const curl = [`curl ${header}--data-binary ${name} ${quoted(predict)}`];
    if (drawing) curl.push(`curl ${header}-H 'Accept: image/jpeg' --data-binary ${name} ${quoted(address(drawing.path, drawing.values))} > ${drawing.file}`);
    const secret = token ? `, {"Authorization": "Bearer " + os.environ["VITRAL_TOKEN"]}` : "";
    const python = [
      `${token ? "import os\n" : ""}from urllib.request import Request, urlopen\n`,
      `photo = open(${JSON.stringify(file.name)}, "rb").read()`,
      `print(urlopen(Request(${JSON.stringify(predict)}, photo${secret})).read().decode())`,
    ];
    return [["In a terminal", curl.join("\n")], ["In Python", python.join("\n")]];
  },
};
