// How things stand: the counts, the keys and the sessions.
import { make, stranger, shown, setText, setShown, span, clock, counted } from "./text.js";
import { step } from "./rows.js";
import { keyButton } from "./happenings.js";

const chips = {
  holder: ["good", "✓"], accepted: ["good", "✓"], claiming: ["claim", "…"], gone: ["warn", "!"], passed: ["warn", "!"],
  stale: ["bad", "✕"], unclaimed: ["bad", "✕"], unknown: ["", "?"],
};

const byId = (id) => document.getElementById(id);

function cells(...labels) {
  return labels.map(([label, kind]) => make("td", { role: "cell", class: kind, "data-label": label }));
}

// showCounts fills the tiles.
export function showCounts(state) {
  const c = state.counters;
  const tiles = [
    ["Sessions", state.SessionsTotal], ["Tagged sessions", state.SessionsTagged], ["Keys", state.KeysTotal],
    ["Claims accepted", c?.claims], ["Statements refused", c?.refused, "bad"], ["Sessions evicted", c?.evicted, "bad"],
  ].filter(([, n]) => n !== undefined);
  step(byId("tiles"), tiles, ([name]) => name,
    ([name]) => make("div", {}, make("dt", {}, name), make("dd")),
    (tile, [, n, kind]) => {
      setText(tile.lastElementChild, n.toLocaleString("en"));
      tile.className = kind && n > 0 ? kind : "";
    });
}

// showKeys fills the table of keys.
export function showKeys(state, filter) {
  const keys = state.keys;
  const note = keys.length < state.KeysFound
    ? `The first ${keys.length} of ${counted(state.KeysFound, "key")}: filter to see others.`
    : filter ? `${counted(state.KeysFound, "key")} of ${state.KeysTotal}.` : "";
  const empty = filter && state.KeysTotal > 0 ? "No session is tagged with such a key." : "No session has a tag now. It gets one by SET fence.key and fence.token, or by fenceproxy lock.";
  setText(byId("keys-note"), keys.length === 0 ? empty : note || "The locks that sessions of this proxy are tagged with.");
  setShown(byId("marks-fault"), state.Marks && `Marks aren't known: ${shown(state.Marks)}`);
  setShown(byId("locks-fault"), state.Locks && `Holders and leases aren't known: ${shown(state.Locks)}`);
  byId("keys").hidden = keys.length === 0;
  step(byId("keys").tBodies[0], keys, (k) => JSON.stringify([k.database, k.key, k.token]), makeKey, (row, k) => fillKey(row, k, state.at));
}

function makeKey(k) {
  const row = make("tr", { role: "row" }, ...cells(["Key"], ["Token", "number"], ["Mark", "number"], ["Holder", "number"],
    ["Lease left", "number"], ["Sessions"], ["How it stands"]));
  row.cells[0].append(make("div", {}, keyButton(k.database, k.key), make("small", {}, "in ", stranger(k.database))));
  row.cells[5].append(make("div", {}, make("span"), make("small")));
  row.cells[6].append(make("div", {}, make("span"), make("small")));
  return row;
}

function fillKey(row, k, at) {
  const unknown = k.standing === "unknown" ? "?" : "–";
  setText(row.cells[1], k.token);
  setText(row.cells[2], k.mark || unknown);
  setText(row.cells[3], (k.holder || "–") + (k.waiting ? ` +${k.waiting} waiting` : ""));
  setText(row.cells[4], k.left ? span(Math.max(0, k.left - (at - k.asked))) : "–");
  const sessions = row.cells[5].firstElementChild;
  setText(sessions.firstElementChild, k.transactions ? `${k.sessions}, ${k.transactions} busy` : String(k.sessions));
  setText(sessions.lastElementChild, k.state);
  const [kind, sign] = chips[k.standing] ?? chips.unknown;
  const stands = row.cells[6].firstElementChild;
  stands.firstElementChild.className = `chip ${kind}`;
  setText(stands.firstElementChild, `${sign} ${k.standing === "holder" ? "holds the lock" : k.standing}`);
  setText(stands.lastElementChild, (k.standing === "holder" ? "" : `${k.words}. `) + (k.claimed ? `claimed ${clock(k.claimed, false)}` : ""));
}

// showSessions fills the table of sessions.
export function showSessions(state, filter) {
  const sessions = state.sessions;
  let note = filter ? `${counted(state.SessionsFound, "session")} of ${state.SessionsTotal}.` : `${counted(state.SessionsTagged, "session")} of ${state.SessionsTotal} with a tag.`;
  if (sessions.length < state.SessionsFound) {
    note = `The first ${sessions.length} of ${counted(state.SessionsFound, "session")}, those with a tag before others.`;
  } else if (sessions.length === 0) {
    note = filter ? "No session is tagged with such a key." : "Nobody is connected.";
  }
  setText(byId("sessions-note"), note);
  byId("sessions").hidden = sessions.length === 0;
  step(byId("sessions").tBodies[0], sessions, (s) => String(s.id), makeSession, (row, s) => fillSession(row, s, state.at));
}

function makeSession(s) {
  const row = make("tr", { role: "row" }, ...cells(["Session", "number"], ["Who"], ["State"], ["Tag"], ["Client"], ["For", "number"]));
  setText(row.cells[0], String(s.id));
  for (const cell of [row.cells[1], row.cells[2], row.cells[3], row.cells[4]]) {
    cell.append(make("div"));
  }
  return row;
}

function fillSession(row, s, at) {
  const who = s.user ? [stranger(s.user), " in ", stranger(s.console ? "the console" : s.database), make("small", {}, stranger(s.application ?? ""))] : ["not logged in yet"];
  replace(row.cells[1].firstElementChild, who);
  const open = s.transaction ? `transaction open for ${span(at - s.transaction)}` : "";
  replace(row.cells[2].firstElementChild, [s.state, open && make("small", {}, open)]);
  replace(row.cells[3].firstElementChild, s.tag ? s.tag.map((p) => make("div", { class: "tag" }, stranger(p.key), ` ${p.token}`)) : ["–"]);
  replace(row.cells[4].firstElementChild, [stranger(s.remote), s.pid && make("small", {}, `process ${s.pid}`)]);
  setText(row.cells[5], s.since ? span(at - s.since) : "–");
}

// replace changes what an element has only if it shows something else.
function replace(element, children) {
  const fresh = make("div", {}, ...children.filter(Boolean));
  if (!element.isEqualNode(fresh)) {
    element.replaceChildren(...fresh.childNodes);
  }
}
