/* A search among the fields of an alert: those whose name, value or description has the text stay. */
"use strict";

const sections = [...document.querySelectorAll("details:has(> dl.fields)")].map((details) => ({
  details,
  open: details.open,
  rows: [...details.querySelectorAll("dl.fields > div")].map((row) => ({ row, text: row.textContent.toLowerCase() })),
}));

function show(wanted) {
  for (const section of sections) {
    let count = 0;
    for (const { row, text } of section.rows) {
      row.hidden = !text.includes(wanted);
      count += !row.hidden;
    }
    section.details.hidden = !count;
    section.details.open = wanted ? true : section.open;
  }
}

if (sections.length) {
  const input = document.createElement("input");
  input.type = "search";
  input.className = "right";
  input.placeholder = "search fields";
  input.setAttribute("aria-label", "search the fields of this alert");
  input.oninput = () => show(input.value.trim().toLowerCase());
  document.querySelector("#fields .head").append(input);
}
