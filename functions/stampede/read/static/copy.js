/* Buttons that copy an example, or the text of what has data-copy. */
"use strict";

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // over plain HTTP there is no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function copyButton(text, name) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", name);
  button.onclick = async () => {
    await copy(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  return button;
}

for (const example of document.querySelectorAll("pre.copied")) {
  const box = document.createElement("div");
  box.className = "copied";
  const button = copyButton(example.textContent, "copy the example");
  example.replaceWith(box);
  box.append(example, button);
}
for (const one of document.querySelectorAll("[data-copy]")) {
  one.after(copyButton(one.dataset.copy, `copy ${one.dataset.copy}`));
}
