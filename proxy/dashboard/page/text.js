// Texts of the page. Whatever comes from elsewhere is set as text and never as HTML.

// Characters that can't be seen, that turn the order of others round, or that look like
// a space and are none.
const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

// shown makes them visible.
export function shown(text) {
  return String(text ?? "").replace(unseen, (c) => {
    const number = c.codePointAt(0).toString(16);
    return number.length > 4 ? `\\u{${number}}` : `\\u${number.padStart(4, "0")}`;
  });
}

// make makes an element. Children are elements, or texts.
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === false) {
      continue;
    }
    if (key === "class" || key.includes("-") || key === "role") {
      element.setAttribute(key, value);
    } else {
      element[key] = value;
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

// stranger is a text that somebody else chose, which can't disturb what is beside it.
export function stranger(text, kind) {
  return make("bdi", { class: kind }, shown(text));
}

// setText leaves an element alone that has the text already.
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

// setShown shows an element with a text, or hides it without one.
export function setShown(element, text) {
  setText(element, text || "");
  element.hidden = !text;
}

const twoDigits = (n) => String(n).padStart(2, "0");

// clock is a moment of the day, in the browser's time zone; another day is named.
export function clock(at, exact = true) {
  const d = new Date(at);
  let text = `${twoDigits(d.getHours())}:${twoDigits(d.getMinutes())}:${twoDigits(d.getSeconds())}`;
  if (exact) {
    text += `.${String(d.getMilliseconds()).padStart(3, "0")}`;
  }
  if (d.toDateString() !== new Date().toDateString()) {
    text = `${d.getFullYear()}-${twoDigits(d.getMonth() + 1)}-${twoDigits(d.getDate())} ${text}`;
  }
  return text;
}

// span is how long something took, in its two largest units.
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) {
    return `${seconds} s`;
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) {
    return `${minutes} min ${seconds % 60} s`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// counted is a number with its noun.
export function counted(n, one, several = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : several}`;
}
