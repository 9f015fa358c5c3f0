// What the scripts of all pages use.
const element = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)}%`;

function say(text, bad = false) {
  element("status").textContent = text;
  element("status").classList.toggle("bad", bad);
}

function option(text, value) {
  const made = document.createElement("option");
  [made.textContent, made.value] = [text, value];
  return made;
}
