// Whoever looks must show the token, where the proxy has one.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { ask, comes, launch, open, picture } from "./world.js";

const token = "a-token-of-this-test-0123456789";
let browser, admin, dir, file;
before(async () => {
  browser = await launch();
  dir = await mkdtemp(path.join(tmpdir(), "fenceproxy-page-"));
  file = path.join(dir, "token");
  await writeFile(file, `${token}\n`);
  admin = `http://${await ask("serve", { flags: ["--admin-token-file", file] })}`;
});
after(async () => {
  await browser?.close();
  await rm(dir, { recursive: true });
});

test("sign in, sign out", async () => {
  const page = await open(browser, admin);
  assert.equal(page.url(), `${admin}/sign-in`);
  assert.equal(await page.evaluate(() => document.activeElement.id), "token");
  await picture(page, "sign-in");
  await page.getByLabel("Admin token").fill("not the token of it");
  await page.keyboard.press("Enter");
  await comes(page, "[role=alert]", "That isn't the token of this proxy.");
  await picture(page, "sign-in-wrong");
  page.complaints.length = 0; // of the status
  await page.getByLabel("Admin token").fill(token);
  await page.keyboard.press("Enter");
  await comes(page, "#link", "Live");
  const [cookie] = await page.context().cookies();
  assert.equal(cookie.httpOnly, true);
  assert.equal(cookie.sameSite, "Strict");
  assert.ok(!cookie.value.includes(token) && !(await page.content()).includes(token));
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(`${admin}/sign-in`);
  await page.goto(admin);
  assert.equal(page.url(), `${admin}/sign-in`);
  assert.deepEqual(page.complaints, []);
});

test("a link of another site, with a key in it", async () => {
  const elsewhere = createServer((_, answer) => {
    answer.setHeader("Content-Type", "text/html");
    answer.end(`<a href="${admin}/#${encodeURIComponent('["app","order:8472"]')}">the key</a><iframe src="${admin}"></iframe>`);
  });
  await new Promise((listening) => elsewhere.listen(0, "127.0.0.1", listening));
  try {
    const page = await open(browser, `http://localhost:${elsewhere.address().port}/`);
    const answers = [];
    page.on("response", (r) => answers.push(`${r.status()} ${new URL(r.url()).pathname}`));
    await page.reload();
    assert.ok(answers.includes("403 /"), `a frame of another site's page gets ${answers}`);
    await page.getByText("the key").click();
    await page.getByLabel("Admin token").fill(token);
    await page.keyboard.press("Enter");
    await comes(page, "#timeline-head", "Timeline of order:8472");
    await page.goto(`http://localhost:${elsewhere.address().port}/`);
    await page.getByText("the key").click();
    await comes(page, "#timeline-head", "Timeline of order:8472"); // without signing in again
    await page.context().close();
  } finally {
    elsewhere.close();
  }
});

// freePort is one that nobody listens on.
async function freePort() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

// signedIn is a page of somebody who has signed in.
async function signedIn(url) {
  const page = await open(browser, url);
  await page.getByLabel("Admin token").fill(token);
  await page.keyboard.press("Enter");
  await comes(page, "#link", "Live");
  return page;
}

test("held off after a restart: it says so, and goes on", async () => {
  const at = `127.0.0.1:${await freePort()}`;
  const flags = ["--admin-token-file", file, "--admin-listen", at];
  await ask("serve", { name: "again", flags });
  const page = await signedIn(`http://${at}`);
  await ask("end", { name: "again" });
  await comes(page, "#banner", "The proxy doesn't answer since");
  await ask("serve", { name: "again", flags });
  let guessing = true;
  const guesses = (async () => {
    while (guessing) {
      await fetch(`http://${at}/metrics`, { headers: { Authorization: "Bearer not-the-token" } });
    }
  })();
  try {
    await comes(page, "#banner", /Too many wrong tokens came from your address: the proxy holds it off for \d+ seconds?\..*Trying again/);
    await comes(page, "#link", "Not let in; trying again…");
    await picture(page, "held-off");
  } finally {
    guessing = false;
    await guesses;
  }
  await page.locator("#banner").waitFor({ state: "hidden", timeout: 15000 });
  await comes(page, "#link", "Live");
  await page.context().close();
});

test("refused by what is between: its words are shown, and it goes on", async () => {
  const page = await signedIn(admin);
  const words = "Closed <b>for</b> the night.";
  await page.route("**/api/**", (route) => route.fulfill({ status: 403, body: words }));
  await comes(page, "#banner", `The proxy refuses this page (403): ${words}`);
  assert.equal(await page.locator("#banner b").count(), 0);
  await page.unroute("**/api/**");
  await page.route("**/api/**", (route) => route.fulfill({ status: 429, headers: { "Retry-After": "3" } }));
  await comes(page, "#banner", "the proxy holds it off for 3 seconds.");
  await page.unroute("**/api/**");
  await page.route("**/api/**", (route) => route.fulfill({ status: 502, body: "Bad gateway" }));
  await comes(page, "#banner", "The proxy doesn't answer since");
  await page.unroute("**/api/**");
  await page.locator("#banner").waitFor({ state: "hidden", timeout: 15000 });
  await page.context().close();
});

test("signed out elsewhere: the form says why, and goes on when somebody has signed in", async () => {
  const page = await signedIn(`${admin}/#${encodeURIComponent('["app","order:8472"]')}`);
  await page.context().clearCookies();
  await comes(page, "#ended", "You are signed out");
  await picture(page, "signed-out");
  const other = await page.context().newPage();
  await other.goto(admin);
  await other.getByLabel("Admin token").fill(token);
  await other.keyboard.press("Enter");
  await comes(page, "#timeline-head", "Timeline of order:8472");
  await comes(page, "#link", "Live");
  await page.context().close();
});

test("another token ends it", async () => {
  const page = await open(browser, admin);
  await page.getByLabel("Admin token").fill(token);
  await page.keyboard.press("Enter");
  await comes(page, "#link", "Live");
  await writeFile(file, `${token}-that-is-new\n`);
  await page.waitForURL(`${admin}/sign-in`, { timeout: 15000 });
});
