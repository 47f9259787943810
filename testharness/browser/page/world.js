// What the tests share: the world outside the page, and a browser.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import path from "node:path";
import { chromium } from "playwright-core";

// ask has the harness do something, and returns what it says.
export async function ask(what, more = {}) {
  const answer = await fetch(process.env.FENCEPROXY_WORLD, { method: "POST", body: JSON.stringify({ do: what, ...more }) });
  const text = await answer.text();
  assert.equal(answer.status, 200, `${what}: ${text}`);
  return JSON.parse(text);
}

// launch starts a Chromium: that of the system, for Playwright brings none along here.
export function launch() {
  const found = [process.env.FENCEPROXY_CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => p && existsSync(p));
  assert.ok(found, "no Chromium was found: set FENCEPROXY_CHROMIUM");
  return chromium.launch({ executablePath: found, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

// open returns a page of the dashboard; whatever its console complains of fails the test.
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on("console", (m) => m.type() === "error" && page.complaints.push(m.text()));
  page.on("pageerror", (e) => page.complaints.push(String(e)));
  await page.goto(url);
  return page;
}

// picture keeps what the page looks like, if somebody wants to see it.
export async function picture(page, name, fullPage = true) {
  if (process.env.FENCEPROXY_SHOTS) {
    await page.screenshot({ path: path.join(process.env.FENCEPROXY_SHOTS, `${name}.png`), fullPage });
  }
}

// comes waits for a text in an element.
export async function comes(page, selector, text) {
  await page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout: 15000 });
}
