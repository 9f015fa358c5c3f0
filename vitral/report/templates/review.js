// The owner's page: photos that the classifier was least sure of, named by a click.
const AT_ONCE = 24; // photos on the page, and as many more by a button
const SURE_SECONDS = 5; // in which the second click removes a photo
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
let found = { photos: [], classes: [], named: 0, folder: "" };
let shown = 0;

function summarize() {
  const waiting = found.photos.filter(({ label }) => label === null).length, named = found.photos.length - waiting;
  element("summary").textContent = found.photos.length ? `${counted(waiting, "photo")} to name, ${counted(named, "photo")} named.` : "No photos yet: the least sure answers will be here as photos are classified.";
  element("how").hidden = !waiting;
  element("next").hidden = !named;
  element("command").textContent = found.command;
  element("more").hidden = shown >= found.photos.length;
}

const address = ({ photo }) => `v1/review/${photo}`;

// One photo and the names that it may have.
class Review {
  constructor(photo) {
    this.photo = photo;
    this.node = document.importNode(element("photo").content, true).firstElementChild;
    const [best] = photo.top, select = this.node.querySelector("select");
    this.node.querySelector(".guess").append("Answered ", bold(best.label), `, ${percent(best.probability)}`);
    this.node.querySelector("img").alt = `A photo that was answered ${best.label}`;
    this.buttons = photo.top.map(({ label, probability }) => this.button(label, probability));
    this.node.querySelector(".choices").append(...this.buttons);
    select.setAttribute("aria-label", "Another class");
    const others = found.classes.filter((name) => !photo.top.some(({ label }) => label === name));
    select.append(option("another class…", ""), ...others.map((name) => option(name, name)));
    select.hidden = !others.length;
    select.addEventListener("change", () => this.name(select.value || null));
    this.node.querySelector(".remove").addEventListener("click", ({ target }) => this.remove(target));
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.update();
    this.load();
  }

  button(label, probability) {
    const made = document.createElement("button"), name = document.createElement("bdi"), share = document.createElement("small");
    [made.type, name.textContent, share.textContent, made.value] = ["button", label, percent(probability), label];
    made.append(name, " ", share);
    made.addEventListener("click", () => this.name(this.photo.label === label ? null : label));
    return made;
  }

  key(event) {
    const button = this.buttons[Number(event.key) - 1];
    if (!button || event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    button.focus();
    button.click();
  }

  async load() {
    try {
      this.node.querySelector("img").src = URL.createObjectURL(await (await ask(address(this.photo))).blob());
    } catch (error) {
      say(`A photo cannot be shown. ${error.message}`, true);
    }
  }

  update() {
    const { label } = this.photo, select = this.node.querySelector("select");
    this.node.classList.toggle("named", label !== null);
    this.buttons.forEach((button) => button.setAttribute("aria-pressed", button.value === label));
    select.value = [...select.options].some(({ value }) => value === label) ? label : "";
    summarize();
  }

  async name(label) {
    try {
      await ask(address(this.photo), { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ label }) });
      this.photo.label = label;
      say(label === null ? "The photo has no name again." : `The photo is ${label}.`);
    } catch (error) {
      say(`The name is not saved. ${error.message}`, true);
    }
    this.update();
  }

  async remove(button) {
    if (button.textContent === "Remove the photo") {
      button.textContent = "Click again: it is deleted";
      setTimeout(() => { button.textContent = "Remove the photo"; }, 1000 * SURE_SECONDS);
      return;
    }
    try {
      await ask(address(this.photo), { method: "DELETE" });
      found.photos.splice(found.photos.indexOf(this.photo), 1);
      shown--;
      this.node.remove();
      say("The photo is deleted.");
      summarize();
    } catch (error) {
      say(`The photo is not deleted. ${error.message}`, true);
    }
  }
}

function bold(text) {
  const made = document.createElement("b");
  made.appendChild(document.createElement("bdi")).textContent = text;
  return made;
}

function more() {
  const photos = found.photos.slice(shown, shown + AT_ONCE);
  shown += photos.length;
  element("photos").append(...photos.map((photo) => new Review(photo).node));
  summarize();
}

async function save() {
  try {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await (await ask("v1/review/labels.csv")).blob());
    link.download = "labels.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    say(`The table cannot be saved. ${error.message}`, true);
  }
}

element("more").addEventListener("click", more);
element("save").addEventListener("click", save);
ask("v1/review").then((response) => response.json()).then((given) => {
  found = given;
  more();
}).catch((error) => {
  element("summary").textContent = "There are no photos to name.";
  say(error.message, true);
}).finally(() => { document.body.dataset.ready = "yes"; });
