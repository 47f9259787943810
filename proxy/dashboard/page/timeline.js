// The timeline of a key: a lane for each token, from its claim to the next one.
import { make, shown, clock, counted } from "./text.js";
import { kindOf, isTold } from "./happenings.js";

const mostLanes = 12;

// lanesOf returns the tokens of events in the order of their claims, each with what
// happened to it.
export function lanesOf(events) {
  const lanes = new Map();
  for (const e of events) {
    if (!e.token) {
      continue;
    }
    if (!lanes.has(e.token)) {
      lanes.set(e.token, { token: e.token, begin: 0, end: 0, marks: [] });
    }
    const lane = lanes.get(e.token);
    const kind = kindOf(e);
    if (kind === "claim" && !lane.begin) {
      lane.begin = e.at;
    }
    if (e.higher && !lane.end) {
      lane.end = e.at;
    }
    lane.marks.push({ kind, at: e.at, words: e.words });
  }
  const all = [...lanes.values()].sort((a, b) => (BigInt(a.token) < BigInt(b.token) ? -1 : 1));
  all.forEach((lane, i) => {
    // A higher claim ends a lane, though nothing of the lower token may tell of it.
    const next = all.slice(i + 1).find((other) => other.begin);
    if (next && lane.begin && (!lane.end || next.begin < lane.end)) {
      lane.end = next.begin;
    }
  });
  return all;
}

// draw fills the lanes, and says in words what they show.
export function draw(element, events, now) {
  const all = lanesOf(events);
  const lanes = all.slice(-mostLanes);
  element.replaceChildren();
  element.hidden = lanes.length === 0;
  if (lanes.length === 0) {
    return "";
  }
  const from = Math.min(...lanes.flatMap((lane) => lane.marks.map((m) => m.at)));
  const to = Math.max(now, from + 1000);
  const left = (at) => `${(100 * (Math.min(Math.max(at, from), to) - from)) / (to - from)}%`;
  for (const lane of lanes) {
    const track = make("div", { class: "track" });
    if (lane.begin) {
      const bar = make("span", { class: lane.end ? "span over" : "span" });
      bar.style.left = left(lane.begin);
      bar.style.right = `calc(100% - ${left(lane.end || to)})`;
      track.append(bar);
    }
    for (const mark of lane.marks) {
      const tick = make("span", { class: `tick ${mark.kind}`, title: `${clock(mark.at)} ${shown(mark.words)}` });
      tick.style.left = left(mark.at);
      track.append(tick);
    }
    element.append(make("div", { class: "name" }, `token ${lane.token}`), track);
  }
  element.append(make("div"), make("div", { class: "axis" }, make("span", {}, clock(from, false)), make("span", {}, clock(to, false))));
  const current = all.findLast((lane) => lane.begin && !lane.end);
  const told = events.filter(isTold).length;
  const claims = events.filter((e) => kindOf(e) === "refusal").length - told;
  const words = `${counted(all.length, "token")}, ${counted(told, "refusal")}, ${counted(claims, "refused claim")}, since ${clock(from, false)}`;
  element.setAttribute("aria-label", `${words}. ${current ? `Token ${current.token} was accepted last.` : ""} The list below has each.`);
  return `${words}${all.length > lanes.length ? `; the last ${mostLanes} tokens are drawn` : ""}.`;
}
