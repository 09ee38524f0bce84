import axe from 'axe-core';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContextOptions, type Page, chromium } from 'playwright-core';
import { build } from 'vite';

/** How long the page may take to show something; it costs nothing when it is met. */
const deadlineMs = 30_000;
const consoleFolder = fileURLToPath(new URL('../../../../packages/console', import.meta.url));

/** The browser of the tests; `undefined` when there is none. */
export const browserPath: string | undefined = [
  process.env['CHROMIUM_PATH'] ?? '/usr/bin/chromium',
  chromium.executablePath(),
].find((path) => existsSync(path));

/** Builds the page, as the package does. Files replace those of an earlier build one by one: other test files may be reading them. */
export async function buildConsole(): Promise<void> {
  const built = join(consoleFolder, 'dist/page');
  await mkdir(join(built, 'assets'), { recursive: true });
  const fresh = await mkdtemp(join(consoleFolder, 'node_modules/.page-'));
  const configFile = join(consoleFolder, 'vite.config.ts');
  await build({ configFile, logLevel: 'error', build: { outDir: fresh, emptyOutDir: true } });
  for (const file of await readdir(join(fresh, 'assets')))
    await rename(join(fresh, 'assets', file), join(built, 'assets', file));
  await rename(join(fresh, 'index.html'), join(built, 'index.html'));
  await rm(fresh, { recursive: true });
}

export function openBrowser(): Promise<Browser> {
  return chromium.launch({
    ...(browserPath !== undefined && { executablePath: browserPath }),
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic'],
  });
}

/** A tab, with everything that the page did wrong: errors that nobody caught, and what its policy forbids. */
export interface Tab {
  readonly page: Page;
  readonly mistakes: readonly string[];
}

export async function openTab(browser: Browser, options: BrowserContextOptions = {}): Promise<Tab> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(deadlineMs);
  const page = await context.newPage();
  const mistakes: string[] = [];
  page.on('pageerror', (error) => mistakes.push(String(error)));
  page.on('console', (message) => {
    // An answer with 401 is what some tests are about.
    if (message.type() === 'error' && !message.text().includes('status of 401'))
      mistakes.push(message.text());
  });
  return { page, mistakes };
}

/** What is serious or worse for those who cannot see or point. */
export async function barriersIn(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() =>
    (globalThis as unknown as { readonly axe: typeof axe }).axe.run({
      resultTypes: ['violations'],
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'],
    }),
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary ?? ''}`));
}

/** The pictures of the documents. */
const documented = new Set([
  'overview',
  'dead-letters',
  'replay',
  'why',
  'consumers',
  'model',
  'transfers',
  'why-phone',
]);

/** Writes pictures into a folder that is thrown away; those of the documents into theirs if `CONSOLE_PICTURES` is `docs`. */
export async function pictureTaker(): Promise<(page: Page, name: string) => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'console-pictures-'));
  const docs = fileURLToPath(new URL('../../../../docs/operations/console', import.meta.url));
  const isForDocs = process.env['CONSOLE_PICTURES'] === 'docs';
  if (isForDocs) await mkdir(docs, { recursive: true });
  return async (page, name) => {
    const path = join(isForDocs && documented.has(name) ? docs : folder, `${name}.png`);
    await page.screenshot({ path });
  };
}
