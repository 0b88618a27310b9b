"use strict";
// Names of objects are untrusted: they enter the page as text nodes and attributes only.
const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((one) => one !== null && one !== ""));
  return made;
}
const fill = (id, ...children) => $(id).replaceChildren(...children.filter(Boolean));
function prose(text) { // `names` in backticks become code
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, place) => (place % 2 ? el("code", null, part) : part)) : [text];
}
const paragraphs = (texts) => texts.map((text) => el("p", null, ...prose(text)));

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [unit, name, smaller, rest] of
    [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= unit) {
      const more = Math.floor(whole % unit / smaller);
      return `${Math.floor(whole / unit)} ${name}${more ? ` ${more} ${rest}` : ""}`;
    }
  }
  return `${whole} s`;
}

function table(label, headings, rows) {
  const head = el("tr", null, ...headings.map((text) => el("th", {scope: "col"}, text)));
  const body = rows.map((row) => el("tr", null, ...row.map((cell) => el("td", null, cell))));
  return el("div", {class: "wide", tabindex: "0", role: "region", "aria-label": label},
    el("table", null, el("thead", null, head), el("tbody", null, ...body)));
}
function facts(rows) {
  return el("dl", null,
    ...rows.flatMap(([label, value]) => [el("dt", null, label), el("dd", null, ...prose(value))]));
}
