"use strict";
// Names of objects are untrusted: they enter the page as text nodes and attributes only.
const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((one) => ![null, "", false].includes(one)));
  return made;
}
function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
const fill = (id, ...children) => $(id).replaceChildren(...children.filter(Boolean));
function prose(text) { // `names` in backticks become code
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, place) => (place % 2 ? el("code", null, part) : part)) : [text];
}
const grouped = (count) => (count < 1000 ? String(count) : count.toLocaleString()); // toLocaleString is slow
const plural = (count, one) => `${grouped(count)} ${one}${count === 1 ? "" : "s"}`;
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

function age(seconds) { // as kubectl does in tables
  const whole = Math.max(0, Math.round(seconds));
  for (const [below, unit, name, smaller, rest] of [[120, 1, "s"], [600, 60, "m", 1, "s"], [10800, 60, "m"],
    [28800, 3600, "h", 60, "m"], [172800, 3600, "h"], [691200, 86400, "d", 3600, "h"]]) {
    if (whole < below) {
      const more = rest ? Math.floor(whole % unit / smaller) : 0;
      return `${Math.floor(whole / unit)}${name}${more ? `${more}${rest}` : ""}`;
    }
  }
  return `${Math.floor(whole / 86400)}d`;
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
