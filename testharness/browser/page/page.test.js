// The page, as somebody sees it who looks at a running proxy. The tests go on from each
// other: one world, in the order in which they stand.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { ask, comes, launch, open, picture } from "./world.js";

let browser, url, page;
before(async () => {
  browser = await launch();
  url = await ask("page");
});
after(() => browser?.close());

const key = (page, name) => page.locator("#keys tbody tr").filter({ hasText: name });

test("nothing has happened yet", async () => {
  page = await open(browser, url);
  await comes(page, "#link", "Live");
  await comes(page, "#keys-note", "No session has a tag now.");
  await comes(page, "#sessions-note", "Nobody is connected.");
  await comes(page, "#events-note", "Nothing yet.");
  await picture(page, "empty");
});

test("before the proxy has told what has happened, nothing is said of it", async () => {
  const context = await browser.newContext();
  const early = await context.newPage();
  let tell;
  const told = new Promise((resolve) => { tell = resolve; });
  await early.route("**/api/events*", async (route) => {
    await told;
    await route.continue();
  });
  await early.goto(`${url}#${encodeURIComponent(JSON.stringify(["app", "order:8472"]))}`);
  await comes(early, "#sessions-note", "Nobody is connected."); // the rest has been told
  await comes(early, "#events-note", "The proxy is asked what has happened");
  await comes(early, "#timeline-note", "The proxy is asked what has happened");
  tell();
  await comes(early, "#events-note", "Nothing yet.");
  await comes(early, "#timeline-note", "Nothing of this key is kept any more");
  await context.close();
});

test("keys, a refusal in words, an eviction", async () => {
  const first = await ask("hold", { name: "first", key: "order:8472" });
  await ask("connect", { name: "worker-1", key: "order:8472", token: first });
  assert.equal(await ask("run", { name: "worker-1", sql: "UPDATE orders SET status = 'paid'" }), "");
  await comes(page, "#keys tbody tr", "holds the lock");
  const row = key(page, "order:8472");
  assert.match(await row.innerText(), new RegExp(`${first}\\s+${first}\\s+${first}`), "token, mark and holder");
  await comes(page, "#keys tbody tr", /\d+ s/); // of the lease
  await comes(page, "#sessions tbody tr", "worker-1");

  await ask("release", { name: "first" });
  await comes(page, "#keys tbody tr", "gone");
  const second = await ask("hold", { name: "second", key: "order:8472" });
  await comes(page, "#keys tbody tr", `held by token ${second} now`);
  await ask("run", { name: "worker-1", sql: "BEGIN" });
  await ask("connect", { name: "worker-2", key: "order:8472", token: second });
  await comes(page, "#events li", "was ended");
  assert.equal(await ask("run", { name: "worker-1", sql: "UPDATE orders SET status = 'lost'" }), "LF005");
  await ask("connect", { name: "worker-3", key: "order:8472", token: first });
  assert.equal(await ask("run", { name: "worker-3", sql: "UPDATE orders SET status = 'lost'" }), "LF001");
  await comes(page, "#events li", `stale_token: order:8472 token ${first} was superseded by ${second}`);
  const refusal = page.locator("#events li").filter({ hasText: "refused LF001" }).first();
  await refusal.locator("summary").click();
  assert.match(await refusal.innerText(), /What to do: .*new token/);
  await comes(page, "#keys tbody tr", "stale");
  await comes(page, "#tiles div.bad", "Statements refused");
  await picture(page, "busy");
});

test("what strangers send is text", async () => {
  const evil = "<img src=x onerror=\"document.title='lost'\">\u202egnp";
  const token = await ask("hold", { name: "evil", key: evil });
  await ask("connect", { name: "<b>app</b>", key: evil, token });
  await comes(page, "#keys tbody tr", "<img src=x onerror");
  await comes(page, "#keys tbody tr", "\\u202egnp");
  await comes(page, "#sessions tbody tr", "<b>app</b>");
  assert.equal(await page.locator("main img, main b").count(), 0);
  assert.equal(await page.title(), "fenceproxy");
  await ask("leave", { name: "<b>app</b>" });
});

test("hostile names of roles, databases and long keys", async () => {
  const mark = "\"><script>document.title='lost'</script><b>&amp;\u202e\u0007\n\t\u3164👩\u200d💻";
  const role = `r${mark}`.slice(0, 30);
  const database = `d '${mark.slice(-16)}`;
  const long = `${mark}${"wide".repeat(240)} end of it`;
  await ask("admit", { role, database });
  const token = await ask("hold", { name: "long", key: long });
  await ask("connect", { name: "hostile", role, database, application: `a${mark}`.slice(0, 40), key: long, token });
  await ask("connect", { name: "hostile-stale", role, database, key: long, token: "1" });
  assert.match(await ask("run", { name: "hostile-stale", sql: "SELECT 1" }), /^LF00[12]/);
  const row = page.locator("#keys tbody tr").filter({ hasText: "end of it" });
  await comes(page, "#keys tbody tr", "end of it");
  const said = await row.first().innerText();
  for (const part of ["\"><script>document.title", "\\u202e\\u0007\\u000a\\u0009\\u3164👩\\u200d💻"]) {
    assert.ok(said.includes(part), `${part} isn't in ${said}`);
  }
  const height = await row.first().locator("button.key").evaluate((e) => e.getBoundingClientRect().height);
  assert.ok(height < 150, `a long key is ${height} pixels high`);
  await comes(page, "#sessions tbody tr", "r\"><script>");
  await comes(page, "#sessions tbody tr", "d '");
  await row.first().locator("button.key").click();
  await comes(page, "#timeline-head", "end of it");
  assert.equal(await page.locator("main script, main b").count(), 0);
  assert.equal(await page.title(), "fenceproxy");
  for (const width of [1360, 360]) {
    await page.setViewportSize({ width, height: 900 });
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wider <= 0, `at ${width} the page is ${wider} pixels too wide`);
    await picture(page, `hostile-${width}`);
  }
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.keyboard.press("Escape");
  await ask("leave", { name: "hostile" });
  await ask("leave", { name: "hostile-stale" });
});

test("the timeline of a key", async () => {
  await page.locator("#events button.key").filter({ hasText: "order:8472" }).first().click();
  await comes(page, "#timeline-head", "Timeline of order:8472");
  assert.equal(await page.evaluate(() => document.activeElement.id), "timeline-head", "what has the focus");
  assert.match(await page.locator("#lanes").getAttribute("aria-label"), /2 tokens, 3 refusals, 2 refused claims.*Token \d+ was accepted last/);
  assert.equal(await page.locator("#lanes .track").count(), 2);
  await comes(page, "#timeline-list li", "was accepted");
  assert.equal(await key(page, "order:8472").first().locator("button.key").getAttribute("aria-pressed"), "true");
  await picture(page, "timeline");
  await page.getByLabel("Filter by key").fill("order");
  await comes(page, "#keys-note", "2 keys of");
  await page.evaluate(() => scrollTo(0, 0));
  await picture(page, "docs", false);
  await page.getByLabel("Filter by key").fill("");
  await page.locator("#timeline-head").focus();
  const linked = await open(browser, page.url());
  await comes(linked, "#timeline-head", "Timeline of order:8472");
  await linked.context().close();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#timeline").isVisible(), false);
});

test("the filter, and what is shown of what happens", async () => {
  const token = await ask("hold", { name: "other", key: "invoice:1" });
  await ask("connect", { name: "biller", key: "invoice:1", token });
  await comes(page, "#keys tbody tr", "invoice:1");
  await page.getByLabel("Filter by key").fill("INVOICE");
  await comes(page, "#keys-note", "1 key of 3.");
  assert.equal(await key(page, "order:8472").count(), 0);
  assert.equal(await page.locator("#events li").filter({ hasText: "order:8472" }).count(), 0);
  await comes(page, "#events li", "invoice:1");
  await comes(page, "#sessions-note", "1 session of");
  await picture(page, "filtered");
  await page.getByLabel("Filter by key").fill("nobody has this");
  await comes(page, "#keys-note", "No session is tagged with such a key.");
  await comes(page, "#events-note", "Nothing of such a key is kept.");
  await page.getByRole("button", { name: "Show all" }).click();
  await comes(page, "#keys tbody tr", "order:8472");
  await page.getByRole("checkbox", { name: "Sessions" }).check();
  await comes(page, "#events li", "session began");
  await page.getByRole("checkbox", { name: "Claims" }).uncheck();
  assert.equal(await page.locator("#events .chip.claim").count(), 0);
  await page.getByRole("checkbox", { name: "Claims" }).check();
  await page.getByRole("checkbox", { name: "Sessions" }).uncheck();
});

test("a list that is paused stays", async () => {
  await page.getByRole("button", { name: "Pause" }).click();
  const before = await page.locator("#events").innerText();
  assert.equal(await ask("run", { name: "worker-3", sql: "UPDATE orders SET status = 'lost'" }), "LF001");
  await comes(page, "#events-note", /Paused at .*; 2 events since/);
  assert.equal(await page.locator("#events").innerText(), before);
  await page.getByRole("button", { name: "Pause" }).click();
  await comes(page, "#events-note", /\d+ events, since/);
});

test("a restart of the proxy: it says so, and goes on", async () => {
  await ask("stop");
  await comes(page, "#link", "Reconnecting…");
  await comes(page, "#banner", "The proxy doesn't answer since");
  assert.ok(await page.locator("#events li").filter({ hasText: "refused LF001" }).count() > 0, "what was known stays");
  await picture(page, "away");
  page.complaints.length = 0; // the browser has complained of the connection, rightly
  await ask("start");
  await comes(page, "#link", "Live");
  await comes(page, "#events li", "The proxy was restarted.");
  await page.locator("#banner").waitFor({ state: "hidden" });
  const token = await ask("hold", { name: "later", key: "order:9" });
  await ask("connect", { name: "worker-4", key: "order:9", token });
  await comes(page, "#events li", "order:9");
  await picture(page, "restarted");
});

test("a page that nobody sees asks for nothing, and is told what it has missed", async () => {
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await ask("connect", { name: "worker-5", key: "order:9", token: "1" });
  await hide(true);
  await page.waitForTimeout(2500); // the last question is answered
  const asked = [];
  page.on("request", (r) => asked.push(r.url()));
  for (let i = 0; i < 105; i++) {
    assert.match(await ask("run", { name: "worker-5", sql: "UPDATE orders SET status = 'lost'", times: 10 }), /^LF00/);
  }
  assert.deepEqual(asked, []);
  await hide(false);
  await comes(page, "#events li", /\d+ events in between aren't kept any more/);
  await comes(page, "#link", "Live");
  await page.locator("#keys button.key").filter({ hasText: "order:9" }).click();
  await comes(page, "#timeline-list li", "was accepted"); // refusals don't push it out
  await page.keyboard.press("Escape");
  await ask("leave", { name: "worker-5" });
});

test("by keyboard alone", async () => {
  const other = await open(browser, url);
  await comes(other, "#keys tbody tr", "order:9");
  await other.keyboard.press("Tab");
  assert.equal(await other.evaluate(() => document.activeElement.textContent), "Skip to the keys");
  const outline = await other.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "the focus can be seen");
  await picture(other, "skip", false);
  await other.keyboard.press("Enter");
  const seen = [];
  for (let i = 0; i < 30 && !seen.includes("order:9"); i++) {
    await other.keyboard.press("Tab");
    seen.push(await other.evaluate(() => document.activeElement.id || document.activeElement.textContent));
  }
  assert.deepEqual(seen.slice(0, 2), ["filter", "order:9"]);
  await other.keyboard.press("Enter");
  await comes(other, "#timeline-head", "Timeline of order:9");
  await other.waitForTimeout(2500); // two answers later the focus is where it was
  assert.equal(await other.evaluate(() => document.activeElement.id), "timeline-head");
  await picture(other, "focus");
  await other.keyboard.press("Escape");
  await other.keyboard.press("Tab");
  await other.keyboard.press("Shift+Tab");
  assert.equal(await other.evaluate(() => document.activeElement.textContent), "order:9", "the focus is back");
  await other.context().close();
});

test("a screen reader hears a sentence, not each event", async () => {
  assert.equal(await page.locator("#events[aria-live], #keys[aria-live]").count(), 0);
  await page.evaluate(() => {
    window.heard = [];
    new MutationObserver(() => window.heard.push(document.getElementById("spoken").textContent)).observe(document.getElementById("spoken"), { childList: true, characterData: true, subtree: true });
  });
  await ask("connect", { name: "worker-5", key: "order:9", token: "1" });
  for (let i = 0; i < 20; i++) {
    assert.notEqual(await ask("run", { name: "worker-5", sql: "UPDATE orders SET status = 'lost'" }), "");
  }
  await comes(page, "#events li", /\d\d times since/);
  await page.waitForFunction(() => window.heard.length > 0, undefined, { timeout: 25000 });
  const heard = await page.evaluate(() => window.heard);
  assert.ok(heard.length <= 2, `got ${heard.length} sentences`);
  assert.match(heard.join(" "), /\d\d refusals?.*The last of order:9: /);
});

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// judge has axe-core look for what keeps people with disabilities out.
async function judge(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  assert.deepEqual(found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).join("; ")}`), [], what);
}

for (const [name, options] of Object.entries({
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { colorScheme: "light", viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
  "phone-dark": { colorScheme: "dark", viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
  wide: { colorScheme: "light", viewport: { width: 1900, height: 1000 } },
})) {
  test(`looks: ${name}`, async () => {
    const other = await open(browser, url, { ...options, bypassCSP: true, reducedMotion: "reduce" });
    await comes(other, "#keys tbody tr", "order:9");
    await other.locator("#keys button.key").filter({ hasText: "order:9" }).first().click();
    await other.locator("#events summary").first().click();
    await judge(other, name);
    const wider = await other.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wider <= 0, `the page is ${wider} pixels wider than the window`);
    const back = await other.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(back === "rgb(14, 19, 25)", options.colorScheme === "dark", `the back is ${back}`);
    await picture(other, name);
    if (options.isMobile) {
      await picture(other, `${name}-top`, false);
      await other.locator("#events-head").scrollIntoViewIfNeeded();
      await picture(other, `${name}-events`, false);
    }
    await other.context().close();
  });
}

test("the other theme is kept", async () => {
  const other = await open(browser, url, { colorScheme: "light" });
  await other.getByRole("button", { name: "Dark" }).click();
  await other.reload();
  assert.equal(await other.evaluate(() => document.documentElement.dataset.theme), "dark");
  await other.context().close();
});

test("etcd away: what isn't known is said", async () => {
  await ask("etcd");
  await comes(page, "#locks-fault", "Holders and leases aren't known");
  await comes(page, "#keys tbody tr", "accepted");
  await picture(page, "etcd-away");
});

test("the page has complained of nothing", () => {
  assert.deepEqual(page.complaints, []);
});
