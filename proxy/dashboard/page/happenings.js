// What has happened: kept, filtered, and shown as a list.
import { make, stranger, shown, moment, clock, counted } from "./text.js";

const mostKept = 2000;
const mostShown = 150;

// The kinds of events, as the check boxes have them.
const kinds = {
  claim: ["claim", "accepted"],
  "claim refused": ["refusal", "claim refused"],
  "statement refused": ["refusal", "refused"],
  "session evicted": ["ended", "evicted"],
  "backend ended": ["ended", "backend ended"],
  "session started": ["session", "session began"],
  "session ended": ["session", "session ended"],
};

export const kindOf = (event) => kinds[event.kind]?.[0] ?? "session";

// A note stands between events: something isn't known.
export const isNote = (event) => event.note !== undefined;

export class Happenings {
  constructor() {
    this.all = []; // the oldest first
    this.count = 0; // of notes, for their names
  }

  add(event) {
    this.all.push(event);
    if (this.all.length > mostKept) {
      this.all.splice(0, this.all.length - mostKept);
    }
  }

  note(text) {
    this.count += 1;
    this.add({ note: text, name: `note-${this.count}` });
  }

  // picked returns those to show, the newest first, and how many there are in all.
  picked(filter, wanted) {
    const all = this.all.filter(
      (e) => isNote(e) || (wanted.has(kindOf(e)) && (filter === "" || (e.key ?? "").toLowerCase().includes(filter))),
    );
    const found = all.filter((e) => !isNote(e)).length;
    return { found, rows: all.slice(-mostShown).reverse() };
  }

  of(database, key) {
    return this.all.filter((e) => e.key === key && e.database === database);
  }
}

// nameOf tells events apart, those of a proxy before a restart too.
export const nameOf = (event) => event.name;

// makeItem makes the item of an event in a list; withKey has a button to the timeline.
export function makeItem(event, withKey) {
  if (isNote(event)) {
    return make("li", {}, make("p", { class: "note" }, event.note));
  }
  const [kind, word] = kinds[event.kind] ?? ["session", event.kind];
  const line = make("div", { class: "line" }, moment(event.at), make("span", { class: `chip ${kind}` }, event.code ? `${word} ${event.code}` : word));
  if (event.key && withKey) {
    line.append(keyButton(event.database, event.key));
  }
  if (event.token) {
    line.append(make("span", { class: "tag" }, event.higher ? `token ${event.token} < ${event.higher}` : `token ${event.token}`));
  }
  return make("li", {}, line, make("p", { class: "words" }, stranger(event.words)), more(event));
}

// more has what is seldom needed.
function more(event) {
  const who = [
    ["session", event.session], ["user", event.user], ["database", event.database], ["application", event.application],
    ["client", event.remote], ["process", event.pid], ["took", event.took ? `${event.took} ms` : ""],
  ].filter(([, value]) => value).map(([name, value]) => `${name} ${shown(value)}`);
  const lines = [event.detail && ["What is known: ", event.detail], event.hint && ["What to do: ", event.hint]].filter(Boolean);
  if (lines.length === 0 && who.length === 0) {
    return "";
  }
  return make("details", {},
    make("summary", {}, event.hint ? "Why, and what to do" : "More"),
    make("div", { class: "more" },
      ...lines.map(([head, text]) => make("p", {}, make("strong", {}, head), stranger(text))),
      who.length > 0 ? make("p", { class: "quiet" }, make("bdi", {}, who.join(", "))) : ""));
}

// keyButton opens the timeline of a key; app.js listens.
export function keyButton(database, key) {
  return make("button", {
    type: "button", class: "key", "aria-pressed": "false", "aria-label": `Timeline of ${shown(key)}`,
    "data-database": database, "data-key": key,
  }, stranger(key));
}

// noteOf says what a list has, and why it is empty.
export function noteOf(found, rows, filter, oldest) {
  if (found === 0) {
    return filter ? "Nothing of such a key is kept." : "Nothing yet. Claims, refusals and evictions appear here as they happen.";
  }
  const listed = rows.filter((e) => !isNote(e)).length;
  const since = oldest ? `, since ${clock(oldest, false)}` : "";
  return listed < found ? `The newest ${listed} of ${counted(found, "event")}${since}.` : `${counted(found, "event")}${since}.`;
}
