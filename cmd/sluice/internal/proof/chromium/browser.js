// Drives a browser over a dashboard: node browser.js SCENARIO '{"url": …}'.
// A failed check is an exception, and so exit status 1.
"use strict";
const assert = require("node:assert/strict");
const path = require("node:path");
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const [scenario, text] = process.argv.slice(2);
const given = JSON.parse(text);
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 820 };

let browser;

// visit opens a page in a new browser context. Any error or warning of the page
// fails the test.
async function visit(options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: DESK, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  page.complaints = [];
  page.on("console", (m) => {
    // Some tests provoke refused requests.
    if (["error", "warning"].includes(m.type()) && !m.text().startsWith("Failed to load resource")) page.complaints.push(m.text());
  });
  page.on("pageerror", (e) => page.complaints.push(e.stack));
  page.on("dialog", (d) => {
    page.complaints.push(`dialog ${d.message()}`);
    d.dismiss();
  });
  return page;
}

const leave = async (page) => {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
};

// accessible checks the page with axe.
async function accessible(page, what) {
  await page.evaluate(() => Promise.all(document.getAnimations().map((a) => a.finish?.call?.(a) ?? null).map(() => null))).catch(() => {});
  const so = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]).analyze();
  const faults = so.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} (${n.any[0]?.message ?? n.failureSummary})`).join("; ")}`);
  assert.deepEqual(faults, [], `axe on ${what}`);
  assert.ok(so.passes.length > 10, `axe checked only ${so.passes.length} rules on ${what}`);
}

async function shot(page, name) {
  if (!given.screenshots) return;
  await page.screenshot({ path: path.join(given.screenshots, `${name}.png`) });
}

// fits checks that the page is not wider than the screen.
async function fits(page, what) {
  const [wide, view] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= view, `${what} is ${wide} wide on a screen of ${view}`);
}

const number = async (page, id) => Number((await page.locator(id).textContent()).replace(/[^\d.]/g, "") || NaN);
const tab = async (page, to, most = 60) => {
  for (let i = 0; i < most; i++) {
    if (await page.evaluate((s) => document.activeElement?.matches(s), to)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`${most} tabs do not lead to ${to}`);
};

const PAGES = [["/", "overview", "#charts canvas"], ["/partitions", "partitions", "#partitions tbody tr"], ["/dead-letters", "dead-letters", "#letters tbody tr"]];

const scenarios = {
  // The demo: it opens over HTTP/2, and its numbers move.
  async demo() {
    const page = await visit();
    const response = await page.goto(given.url);
    assert.equal(new URL(response.url()).protocol, "https:");
    assert.match((await response.securityDetails()).protocol, /TLS 1\.3/);
    const spoken = await page.evaluate(() => [performance.getEntriesByType("navigation")[0].nextHopProtocol, ...performance.getEntriesByType("resource").map((e) => e.nextHopProtocol)]);
    assert.ok(spoken.length > 5 && spoken.every((p) => p === "h2"), `spoken: ${spoken}`);

    await page.waitForFunction(() => /\d/.test(document.querySelector("#done").textContent));
    const first = await number(page, "#done");
    await page.waitForFunction((n) => Number(document.querySelector("#done").textContent.replace(/\D/g, "")) > n + 20, first);
    await page.locator("#charts canvas").first().waitFor();
    assert.equal(await page.locator("#charts figure").count(), 4);
    // Something is drawn, and not just the grid.
    const before = await page.locator("#charts canvas").first().evaluate((c) => c.toDataURL());
    await page.waitForFunction((old) => document.querySelector("#charts canvas").toDataURL() !== old, before);

    await page.getByRole("link", { name: "Partitions" }).click();
    await page.waitForURL("**/partitions");
    const rows = page.locator("#partitions tbody tr");
    await rows.nth(3).waitFor();
    assert.equal(await rows.count(), 4);
    const position = () => rows.nth(1).locator("td[data-name=position]").textContent();
    const at = await position();
    await page.waitForFunction((old) => document.querySelector("#partitions tbody tr:nth-child(2) td[data-name=position]").textContent !== old, at);

    // Pause: the position stands, events wait. Resume: they are done.
    await page.getByRole("button", { name: "Pause partition 1" }).click();
    await page.getByRole("button", { name: "Resume partition 1" }).waitFor();
    await page.waitForFunction(() => Number(document.querySelectorAll("#partitions tbody tr")[1].querySelector("td[data-name=lag]").textContent.replace(/\D/g, "")) >= 5);
    let held;
    for (let tries = 0; held !== (await position()); tries++) { // what was under way may come to its end
      assert.ok(tries < 10, "the partition continues although it is paused");
      held = await position();
      await page.waitForTimeout(1500);
    }
    await page.getByRole("button", { name: "Resume partition 1" }).click();
    await page.waitForFunction(() => document.querySelectorAll("#partitions tbody tr")[1].querySelector("td[data-name=lag]").textContent === "0");
    await page.waitForFunction((old) => document.querySelectorAll("#partitions tbody tr")[1].querySelector("td[data-name=position]").textContent !== old, held);

    // The theme that is chosen stays.
    await page.getByRole("button", { name: "Switch to the dark theme" }).click();
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    await page.reload();
    assert.equal(await ground(), dark);
    await page.getByRole("button", { name: "Switch to the light theme" }).waitFor();

    // A dead letter that fails again says so.
    await page.goto(`${given.url}dead-letters`);
    await page.locator("#letters tbody tr").first().getByRole("checkbox").check();
    await page.getByRole("button", { name: "Retry 1" }).click();
    await page.locator("#runs").getByText("1 failed again").waitFor();
    await page.locator("#runs").getByText("body.delay: is missing").first().waitFor();
    // A search finds some of them.
    await page.getByLabel("Search").fill("partition=2");
    await page.waitForFunction(() => { const l = [...document.querySelectorAll("#letters tbody th")]; return l.length > 0 && l.every((x) => x.textContent.startsWith("2 /")); });
    await page.getByLabel("Search").fill("partition=");
    await page.locator("#letters-error").getByText("partition").waitFor();
    await page.getByLabel("Search").fill("");
    await leave(page);
  },

  // Each page, in both themes and on a phone, as axe sees it.
  async everybody() {
    for (const colorScheme of ["light", "dark"]) {
      for (const viewport of [DESK, PHONE]) {
        const page = await visit({ colorScheme, viewport });
        const size = viewport === PHONE ? "phone-" : "";
        for (const [at, name, what] of PAGES) {
          await page.goto(given.url.replace(/\/$/, "") + at);
          await page.locator(what).first().waitFor();
          await page.waitForTimeout(1200);
          await accessible(page, `${name} ${colorScheme} ${viewport.width}`);
          await fits(page, `${name} ${viewport.width}`);
          await shot(page, `${size}${name}-${colorScheme}`);
        }
        await page.locator("#letters .message button").first().click();
        await page.locator("#letter pre").first().waitFor();
        await accessible(page, `letter ${colorScheme} ${viewport.width}`);
        if (viewport === DESK) await shot(page, `dead-letter-${colorScheme}`);
        await leave(page);
      }
    }
  },

  // A dead letter is retried by clicking, and vanishes; another is discarded.
  async retry() {
    const page = await visit();
    await page.goto(`${given.url}dead-letters`);
    const rows = page.locator("#letters tbody tr");
    await rows.first().waitFor();
    const all = await rows.count();
    const which = await rows.first().locator("th").textContent();
    await rows.first().locator(".message button").click();
    const drawer = page.getByRole("dialog");
    await drawer.getByText("Sequence number").waitFor();
    await drawer.getByRole("button", { name: "Retry" }).click();
    await page.locator("#runs").getByText(/: 1 applied\.$/).waitFor();
    await page.waitForFunction((n) => document.querySelectorAll("#letters tbody tr").length === n, all - 1);
    assert.ok(!(await page.locator("#letters tbody th").allTextContents()).includes(which), `${which} is still there`);

    await rows.first().getByRole("checkbox").check();
    await page.getByRole("button", { name: "Discard 1" }).click();
    await page.waitForFunction((n) => document.querySelectorAll("#letters tbody tr").length === n, all - 2);
    await page.getByLabel("Status").selectOption("discarded");
    await page.waitForFunction(() => document.querySelectorAll("#letters tbody tr").length === 1);
    await leave(page);
  },

  // All of it without a mouse.
  async keyboard() {
    const page = await visit();
    await page.goto(given.url);
    await page.locator("#live[data-on=yes]").waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
    await tab(page, "nav a[href='/dead-letters']");
    const seen = await page.evaluate(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2; });
    assert.ok(seen, "what has the focus can't be seen");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/dead-letters");
    await page.locator("#letters tbody tr").first().waitFor();
    const all = await page.locator("#letters tbody tr").count();

    // Open one, look, close it: the focus is where it was.
    await tab(page, "#letters .message button");
    await page.keyboard.press("Enter");
    await page.locator("#letter[open] pre").first().waitFor();
    assert.ok(await page.evaluate(() => document.querySelector("#letter").contains(document.activeElement)), "the focus is not in the dialog");
    await page.keyboard.press("Escape");
    await page.locator("#letter[open]").waitFor({ state: "detached" }).catch(() => {});
    assert.ok(await page.evaluate(() => document.activeElement.matches("#letters .message button")), "the focus is lost");

    // Select it and retry it.
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Space");
    for (let i = 0; i < 20 && !(await page.evaluate(() => document.activeElement.id === "retry")); i++) await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await page.locator("#runs").getByText(/: 1 applied\.$/).waitFor();
    await page.waitForFunction((n) => document.querySelectorAll("#letters tbody tr").length === n, all - 1);

    // Pause a partition, and let it go on: the focus stays on its button.
    for (let i = 0; i < 40 && !(await page.evaluate(() => document.activeElement.getAttribute("href") === "/partitions")); i++) await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/partitions");
    await page.locator("#partitions tbody tr button").first().waitFor();
    await tab(page, "#partitions tbody button");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: /^Resume/ }).waitFor();
    await page.waitForFunction(() => document.activeElement.textContent === "Resume" && !document.activeElement.disabled);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement.textContent === "Pause");
    // Sort by what waits.
    await page.locator("th[data-sort=lag] button").focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.locator("th[data-sort=lag]").getAttribute("aria-sort"), "descending");
    await leave(page);
  },

  // A wrong token is refused, the right one is not, and signing out is out.
  async token() {
    for (const colorScheme of ["light", "dark"]) {
      const page = await visit({ colorScheme });
      await page.goto(`${given.url}partitions`);
      await page.waitForURL("**/sign-in?to=%2Fpartitions");
      await accessible(page, `signing in, ${colorScheme}`);
      await shot(page, `sign-in-${colorScheme}`);
      await page.getByLabel("Token").fill("a wrong token");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").getByText("is wrong").waitFor();
      await accessible(page, `refused, ${colorScheme}`);
      const status = async (at) => page.evaluate(async (u) => (await fetch(u)).status, at);
      assert.equal(await status("/api/dead-letters"), 401);
      assert.deepEqual(await page.context().cookies(), []);
      await page.getByLabel("Token").fill(given.token);
      await page.keyboard.press("Enter");
      await page.waitForURL("**/partitions");
      await page.locator("#partitions tbody tr").first().waitFor();
      const [cookie] = await page.context().cookies();
      assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === "Strict", JSON.stringify(cookie));
      assert.equal(await page.evaluate(() => document.cookie), "");
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.waitForURL("**/sign-in");
      assert.equal(await status("/api/dead-letters"), 401);
      await leave(page);
    }
  },

  // Events whose bodies, keys and errors are markup are shown as what they are.
  async markup() {
    const page = await visit();
    await page.addInitScript(() => { window.alert = () => { window.attacked = true; }; });
    await page.goto(`${given.url}dead-letters`);
    const rows = page.locator("#letters tbody tr");
    await rows.first().waitFor();
    for (let i = 0; i < (await rows.count()); i++) {
      await rows.nth(i).locator(".message button").click();
      await page.locator("#letter[open] pre").first().waitFor();
      assert.ok((await page.locator("#letter-content").textContent()).includes("<img src=x onerror=alert(1)>"), "the markup is not shown as it is");
      await page.keyboard.press("Escape");
    }
    await page.goto(given.url);
    await page.locator("#events li").first().waitFor();
    assert.ok((await page.locator("#events").textContent()).includes("<img src=x"), "the error is not among what happened lately");
    assert.equal(await page.evaluate(() => window.attacked), undefined);
    assert.equal(await page.locator("main img, main script, main iframe").count(), 0);
    await leave(page);
  },

  // An audit is asked for by the keyboard, and its verdict is shown.
  async audit() {
    for (const colorScheme of given.once ? ["light"] : ["light", "dark"]) {
      for (const viewport of given.once ? [DESK] : [DESK, PHONE]) {
        const page = await visit({ colorScheme, viewport });
        await page.goto(given.url);
        await page.getByRole("link", { name: "Audit" }).click();
        await page.waitForURL("**/audit");
        if (given.once) await accessible(page, "audit, before it");
        await tab(page, "#audit-now");
        const before = await page.locator("#audit-when").textContent();
        await page.waitForTimeout(1000); // the time that is shown has seconds
        await page.keyboard.press("Enter");
        await page.waitForFunction((old) => { const now = document.querySelector("#audit-when").textContent; return now !== old && / in /.test(now); }, before);
        await page.locator("#audit-verdict").getByText(given.verdict).waitFor();
        assert.equal(await page.locator("#audit-verdict").getAttribute("data-level"), given.level);
        assert.ok(await page.evaluate(() => document.activeElement.id === "audit-now" && !document.activeElement.ariaDisabled), "the focus is lost");
        assert.equal(await page.locator("#audit-partitions tbody tr").count(), 3); // two, and all
        assert.equal(await page.locator("#audit-faults tbody tr").count(), Number(given.faults));
        await accessible(page, `audit ${colorScheme} ${viewport.width}`);
        await fits(page, `audit ${viewport.width}`);
        if (viewport === DESK) await shot(page, `audit-${colorScheme}`);
        // A browser that connects later sees it too.
        await page.reload();
        await page.locator("#audit-verdict").getByText(given.verdict).waitFor();
        await leave(page);
      }
    }
  },

  // The pages of an autoscaler and of a pipeline that other processes consume,
  // and that can't be audited.
  async scaling() {
    const page = await visit();
    await page.goto(given.url);
    await page.locator("#verdict").getByText("partition").waitFor();
    await page.getByRole("link", { name: "Audit" }).click();
    await page.locator("#audit-not").getByText(given.unaudited).waitFor();
    assert.ok(!(await page.locator("#audit-now").isVisible()), "there is a button that audits");
    await accessible(page, "no audit");
    await leave(page);
    for (const colorScheme of ["light", "dark"]) {
      for (const viewport of [DESK, PHONE]) {
        const page = await visit({ colorScheme, viewport });
        await page.goto(`${given.url}autoscaling`);
        await page.locator("#resources canvas").nth(1).waitFor();
        await page.getByText("average 640 over 500").first().waitFor();
        assert.equal(await page.locator(".decisions tbody tr").count(), 3); // two changes, and how things are
        await page.getByLabel("only changes").uncheck();
        await page.waitForFunction(() => document.querySelectorAll(".decisions tbody tr").length > 5);
        await page.waitForTimeout(500);
        await accessible(page, `autoscaling ${colorScheme} ${viewport.width}`);
        await fits(page, `autoscaling ${viewport.width}`);
        if (viewport === DESK) await shot(page, `autoscaling-${colorScheme}`);
        await leave(page);
      }
    }
  },
};

(async () => {
  // As root, Chromium runs without a sandbox of its own.
  browser = await chromium.launch({ executablePath: given.chromium, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
  try {
    await scenarios[scenario]();
  } finally {
    await browser.close();
  }
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
