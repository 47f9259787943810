// What has happened: kept, filtered, and shown as a list.
import { make, stranger, shown, setText, clock, counted } from "./text.js";

const mostKept = 5000;
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

  // picked returns those to show, folded, the newest first, and how many there are.
  picked(filter, wanted) {
    const all = this.all.filter(
      (e) => isNote(e) || (wanted.has(kindOf(e)) && (filter === "" || (e.key ?? "").toLowerCase().includes(filter))),
    );
    const rows = fold(all).slice(-mostShown).reverse();
    return { found: all.filter((e) => !isNote(e)).length, listed: rows.reduce((n, row) => n + (isNote(row.last) ? 0 : row.count), 0), rows };
  }

  of(database, key) {
    return this.all.filter((e) => e.key === key && e.database === database);
  }
}

// fold puts refusals of the same thing into one row: a stale worker that tries again and
// again would leave room for nothing else.
export function fold(events) {
  const rows = [];
  for (const event of events) {
    const row = rows.at(-1);
    if (row && same(row.last, event)) {
      row.count += 1;
      // What a client was told says more than what a claim was.
      row.said = isTold(event) ? event : row.said;
      row.last = event;
    } else {
      rows.push({ name: event.name, count: 1, told: 0, first: event, last: event, said: event });
    }
    rows.at(-1).told += isTold(event) ? 1 : 0;
  }
  return rows;
}

// isTold reports whether a client heard of an event: a refused statement is most often
// behind a refused claim.
export const isTold = (event) => event.kind === "statement refused";

function same(a, b) {
  return !isNote(a) && !isNote(b) && kindOf(a) === "refusal" && kindOf(b) === "refusal" && a.session === b.session && a.database === b.database &&
    a.key === b.key && a.token === b.token && a.higher === b.higher && a.code === b.code;
}

// nameOf tells rows apart, those of a proxy before a restart too.
export const nameOf = (row) => row.name;

// makeItem makes the item of a row in a list; withKey has a button to the timeline.
export function makeItem(row, withKey) {
  const event = row.last;
  if (isNote(event)) {
    return make("li", {}, make("p", { class: "note" }, event.note));
  }
  const line = make("div", { class: "line" }, make("time"), make("span", { class: `chip ${kindOf(event)}` }));
  if (event.key && withKey) {
    line.append(keyButton(event.database, event.key));
  }
  if (event.token) {
    line.append(make("span", { class: "tag" }, event.higher ? `token ${event.token} < ${event.higher}` : `token ${event.token}`));
  }
  line.append(make("span", { class: "quiet" }));
  return make("li", {}, line, make("p", {}, make("bdi", { class: "words" })), more(event));
}

// fillItem tells how often, and when last, which changes as more comes.
export function fillItem(item, row) {
  if (isNote(row.last) || item.dataset.count === String(row.count)) {
    return;
  }
  item.dataset.count = row.count;
  const line = item.firstElementChild;
  const [time, chip, times] = [line.firstElementChild, line.children[1], line.lastElementChild];
  time.dateTime = new Date(row.last.at).toISOString();
  setText(time, clock(row.last.at));
  const [, word] = kinds[row.said.kind] ?? ["session", row.said.kind];
  setText(chip, row.said.code ? `${word} ${row.said.code}` : word);
  const often = row.told || row.count;
  setText(times, often > 1 ? `${often} times since ${clock(row.first.at)}` : "");
  setText(item.querySelector(".words"), shown(row.said.words));
}

// more has what is seldom needed.
function more(event) {
  const who = [
    ["session", event.session], ["user", event.user], ["database", event.database], ["application", event.application],
    ["client", event.remote], ["process", event.pid], ["took", event.took ? `${event.took} ms` : ""],
  ].filter(([, value]) => value).map(([name, value], i) => make("span", {}, `${i > 0 ? ", " : ""}${name} `, stranger(value)));
  const lines = [event.detail && ["What is known: ", event.detail], event.hint && ["What to do: ", event.hint]].filter(Boolean);
  if (lines.length === 0 && who.length === 0) {
    return "";
  }
  return make("details", {},
    make("summary", {}, event.hint ? "Why, and what to do" : "More"),
    make("div", { class: "more" },
      ...lines.map(([head, text]) => make("p", {}, make("strong", {}, head), stranger(text))),
      who.length > 0 ? make("p", { class: "quiet" }, ...who) : ""));
}

// keyButton opens the timeline of a key; app.js listens.
export function keyButton(database, key) {
  return make("button", {
    type: "button", class: "key", "aria-pressed": "false", "aria-label": `Timeline of ${shown(key)}`,
    "data-database": database, "data-key": key,
  }, stranger(key));
}

// noteOf says what a list has, and why it is empty.
export function noteOf({ found, listed }, filter, oldest) {
  if (found === 0) {
    return filter ? "Nothing of such a key is kept." : "Nothing yet. Claims, refusals and evictions appear here as they happen.";
  }
  const since = oldest ? `, since ${clock(oldest, false)}` : "";
  return listed < found ? `The newest ${listed} of ${counted(found, "event")}${since}.` : `${counted(found, "event")}${since}.`;
}
