// The page of the admin port: how things stand, asked every two seconds, and what
// happens, as it does.
import { shown, setText, setShown, clock, counted } from "./text.js";
import { step } from "./rows.js";
import { Stream } from "./stream.js";
import { refusalOf } from "./refused.js";
import { Happenings, kindOf, isNote, fold, nameOf, makeItem, fillItem, noteOf } from "./happenings.js";
import { draw } from "./timeline.js";
import { showCounts, showKeys, showSessions } from "./standing.js";

const every = 2000; // ms, between two questions
const within = 8000; // ms, that an answer may take
const listedOfKey = 40; // rows below a timeline
const speakEvery = 10000; // ms, between two sentences of a screen reader

const byId = (id) => document.getElementById(id);
const happenings = new Happenings();
const view = {
  filter: "", // in small letters
  kinds: new Set(["claim", "refusal", "ended"]),
  paused: 0, // events since the list was paused
  pausedAt: null, // the list as it was
  selected: null, // {database, key}
  opener: null, // what had the focus before the timeline
  skew: 0, // of the browser's clock
  boot: "",
  heard: false, // of what has happened; before that, nothing is known of it
  awaySince: 0,
  refusal: "", // why the proxy answers, but not with what was asked for
  canSignIn: true,
  unspoken: [],
  drawn: false,
};

// ---- how things stand ----

let asking = 0;

async function ask() {
  clearTimeout(asking);
  let next = every;
  if (!document.hidden) {
    try {
      const answer = await fetch(`/api/state?key=${encodeURIComponent(view.filter)}`, { signal: AbortSignal.timeout(within), redirect: "manual" });
      if (answer.ok) {
        showState(await answer.json());
      } else {
        next = await refused(answer);
      }
    } catch {
      away("");
    }
  }
  asking = setTimeout(ask, next);
}

// refused says why an answer isn't what was asked for, and returns when to ask again.
async function refused(answer) {
  if (answer.status === 401 && view.canSignIn) {
    signIn();
    return every;
  }
  const { why, wait } = await refusalOf(answer);
  away(why);
  return Math.max(every, wait);
}

function away(why) {
  view.awaySince ||= Date.now();
  view.refusal = why;
  showBanner();
}

function showState(state) {
  view.awaySince = 0;
  view.canSignIn = state.sign_out;
  view.skew = state.at - Date.now();
  showBanner(state.counters?.draining ? "The proxy is shutting down: it takes no new sessions." : "");
  setText(byId("version"), state.version);
  byId("sign-out").hidden = !state.sign_out;
  showCounts(state);
  showKeys(state, view.filter);
  showSessions(state, view.filter);
  markSelected();
}

function showBanner(text = "") {
  if (view.awaySince) {
    const since = clock(view.awaySince, false);
    const why = view.refusal
      ? `${view.refusal} What is shown is how things stood at ${since}.`
      : `The proxy doesn't answer since ${since}. What is shown is how things stood then.`;
    text = `${why} Trying again…`;
  }
  setShown(byId("banner"), text);
}

// signIn goes to the form, which says why and comes back to what is looked at here.
function signIn() {
  try {
    sessionStorage.setItem("fenceproxy-signed-out", "yes");
  } catch {
    // the browser keeps nothing
  }
  location.assign(`/sign-in${location.hash}`);
}

// ---- what happens ----

const asked = "The proxy is asked what has happened…";
const words = { live: "Live", reconnecting: "Reconnecting…", full: "Too many pages follow already; trying again…", refused: "Not let in; trying again…" };

function showLink(state) {
  const link = byId("link");
  link.dataset.state = state === "reconnecting" ? "away" : state;
  setText(link, words[state]);
}

function showEvents() {
  view.drawn = false;
  if (view.pausedAt === null) {
    const picked = happenings.picked(view.filter, view.kinds);
    step(byId("events"), picked.rows, nameOf, (row) => arrive(makeItem(row, true), row.last), fillItem);
    setText(byId("events-note"), view.heard ? noteOf(picked, view.filter, happenings.all.find((e) => !isNote(e))?.at) : asked);
  } else {
    setText(byId("events-note"), `Paused at ${clock(view.pausedAt, false)}; ${counted(view.paused, "event")} since.`);
  }
  showTimeline();
  markSelected();
}

// arrive has an event that is new catch the eye.
function arrive(item, event) {
  if (!isNote(event) && Date.now() + view.skew - event.at < 3000) {
    item.classList.add("new");
  }
  return item;
}

// soon draws once for many events.
function soon() {
  if (!view.drawn) {
    view.drawn = true;
    setTimeout(showEvents, 100);
  }
}

const stream = new Stream({
  state: showLink,
  hello({ boot, resumed, restarted }) {
    view.boot = boot;
    view.heard = true;
    if (restarted) {
      happenings.note("The proxy was restarted. What happened before it was started isn't kept by the new one.");
    } else if (!resumed) {
      happenings.all = [];
    }
    soon();
  },
  missed(count) {
    happenings.note(`${counted(count, "event")} in between ${count === 1 ? "isn't" : "aren't"} kept any more.`);
    soon();
  },
  happened(event) {
    event.name = `${view.boot}-${event.n}`;
    happenings.add(event);
    if (view.pausedAt !== null && view.kinds.has(kindOf(event))) {
      view.paused += 1;
    }
    if (event.at > loaded && kindOf(event) !== "session") {
      view.unspoken.push(event);
    }
    soon();
  },
  refused,
});
const loaded = Date.now();

// speak tells a screen reader at intervals, in one sentence, what has happened.
function speak() {
  const events = view.unspoken.splice(0).filter((e) => view.filter === "" || (e.key ?? "").toLowerCase().includes(view.filter));
  if (events.length === 0 || view.pausedAt !== null) {
    return;
  }
  const last = events.at(-1);
  const some = [["claim", "claim"], ["refusal", "refusal"], ["ended", "eviction"]]
    .map(([kind, word]) => [events.filter((e) => kindOf(e) === kind).length, word])
    .filter(([n]) => n > 0).map(([n, word]) => counted(n, word));
  setText(byId("spoken"), `${some.join(", ")}. The last${last.key ? ` of ${shown(last.key)}` : ""}: ${shown(last.words)}`);
}
setInterval(speak, speakEvery);

// ---- the timeline ----

function showTimeline() {
  const at = view.selected;
  byId("timeline").hidden = at === null;
  if (at === null) {
    return;
  }
  const events = happenings.of(at.database, at.key);
  setText(byId("timeline-head"), `Timeline of ${shown(at.key)}`);
  const summary = draw(byId("lanes"), events, Date.now() + view.skew);
  byId("legend").hidden = summary === "";
  const none = view.heard ? "Nothing of this key is kept any more: the proxy keeps the last 1,000 claims and evictions, and as many refusals." : asked;
  setText(byId("timeline-note"), summary || none);
  step(byId("timeline-list"), fold(events).slice(-listedOfKey).reverse(), nameOf, (row) => makeItem(row, false), fillItem);
}

function select(database, key, opener) {
  view.selected = { database, key };
  view.opener = opener;
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify([database, key]))}`);
  showTimeline();
  markSelected();
  byId("timeline-head").focus();
  byId("timeline").scrollIntoView({ block: "nearest" });
}

function closeTimeline() {
  view.selected = null;
  history.replaceState(null, "", location.pathname);
  showTimeline();
  markSelected();
  (view.opener?.isConnected ? view.opener : byId("main")).focus();
}

function markSelected() {
  for (const button of document.querySelectorAll("button.key")) {
    const chosen = view.selected?.key === button.dataset.key && view.selected?.database === button.dataset.database;
    button.setAttribute("aria-pressed", String(chosen));
  }
}

// ---- what people do ----

document.addEventListener("click", (e) => {
  const button = e.target.closest("button.key");
  if (button) {
    select(button.dataset.database, button.dataset.key, button);
  }
});
byId("close-timeline").addEventListener("click", closeTimeline);
byId("timeline").addEventListener("keydown", (e) => {
  if (e.key === "Escape") {
    closeTimeline();
  }
});

function setFilter(text) {
  view.filter = text.trim().toLowerCase();
  byId("clear").hidden = view.filter === "";
  showEvents();
  clearTimeout(asking);
  asking = setTimeout(ask, 150); // when the typing pauses
}
byId("filter").addEventListener("input", (e) => setFilter(e.target.value));
byId("filter-form").addEventListener("submit", (e) => e.preventDefault());
byId("clear").addEventListener("click", () => {
  byId("filter").value = "";
  setFilter("");
  byId("filter").focus();
});

for (const box of document.querySelectorAll("input[name=kind]")) {
  box.checked = view.kinds.has(box.value);
  box.addEventListener("change", () => {
    view.kinds[box.checked ? "add" : "delete"](box.value);
    showEvents();
  });
}

byId("pause").addEventListener("click", (e) => {
  view.pausedAt = view.pausedAt === null ? Date.now() : null;
  view.paused = 0;
  e.currentTarget.setAttribute("aria-pressed", String(view.pausedAt !== null));
  showEvents();
});

// The theme is the system's, until somebody wants the other one.
const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  if (name) {
    document.documentElement.dataset.theme = name;
  }
  byId("theme").setAttribute("aria-pressed", String((name || (dark.matches ? "dark" : "light")) === "dark"));
}
function keptTheme() {
  try {
    return localStorage.getItem("fenceproxy-theme");
  } catch {
    return null; // the browser keeps nothing
  }
}
byId("theme").addEventListener("click", (e) => {
  const next = e.currentTarget.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  try {
    localStorage.setItem("fenceproxy-theme", next);
  } catch {
    // as above
  }
  setTheme(next);
});
dark.addEventListener("change", () => setTheme(keptTheme()));
setTheme(keptTheme());

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    ask();
  }
});
addEventListener("pagehide", () => stream.stop());

// A link can name a key: #["app","order:8472"], escaped.
try {
  const [database, key] = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  view.selected = { database: String(database), key: String(key) };
} catch {
  // it doesn't
}
showEvents();
ask();
