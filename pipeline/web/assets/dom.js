// Elements are made from text only: nothing that comes from events is ever
// read as HTML.

export const $ = (id) => document.getElementById(id);

// el makes an element. Attributes that are false, null or undefined are left out.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name === "onclick") node.addEventListener("click", value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c != null && c !== false));
  return node;
}

// put changes a node's text if it is another.
export function put(node, text) {
  text = String(text);
  if (node.textContent !== text) node.textContent = text;
}

// set changes an attribute if it is another; null removes it.
export function set(node, name, value) {
  if (value == null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// say shows a message for a while.
export function say(text) {
  const node = el("div", {}, text);
  $("toasts").append(node);
  setTimeout(() => node.remove(), 6000);
}

// ask shows a dialog and resolves to whether the user confirmed.
export function ask(text, yes) {
  const dialog = $("confirm");
  put($("confirm-text"), text);
  put($("confirm-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// choice makes a group of buttons of which one is pressed.
export function choice(buttons, changed) {
  for (const b of buttons) {
    if (!b.hasAttribute("aria-pressed")) b.setAttribute("aria-pressed", "false");
    b.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === b));
      changed(b);
    });
  }
}
