import { Operator } from '@framework/operator';
import { operatorApp } from '@framework/operator/http';
import type { FaultProxy } from '@framework/testing';
import { readConsole } from '@framework/console';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { rowsOf } from '../database-session.js';
import { type ProxiedService, startProxiedService } from '../start-proxied-service.js';
import type { TestService } from '../start-test-service.js';
import type { WalletBody } from '../wallet-client.js';
import {
  barriersIn,
  browserPath,
  buildConsole,
  openBrowser,
  type Tab,
  openTab,
  pictureTaker,
} from './console-browser.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const handler = 'notify-recipient-on-deposit';
const cause = 'mailbox full';

let proxied: ProxiedService;
let service: TestService;
let proxy: FaultProxy;
let browser: Browser;
let take: Awaited<ReturnType<typeof pictureTaker>>;
let mexican: WalletBody;
let german: WalletBody;
let transferId: string;
/** A window on a desk, and one on a phone in the dark. */
let wide: Tab;
let phone: Tab;

beforeAll(async () => {
  if (browserPath === undefined) return;
  await buildConsole();
  proxied = await startProxiedService({
    login: 'owner',
    mexico: { 'acquisition-timeout-ms': 2_000 },
    operator: { port: 0, token, 'read-only': false },
    delivery: { 'poll-max-ms': 100, retry: { 'attempts-max': 1 } },
  });
  ({ service, proxy } = proxied);
  browser = await openBrowser();
  take = await pictureTaker();
  await liven();
  wide = await openTab(browser);
  phone = await openTab(browser, { viewport: { width: 360, height: 740 }, colorScheme: 'dark' });
  await Promise.all([wide, phone].map(({ page }) => signedIn(page)));
});

afterAll(async () => {
  if (browserPath === undefined) return;
  await browser.close();
  await proxied.stop();
});

/** Wallets on both shards, and transfers between them. */
async function liven(): Promise<void> {
  const { client } = service;
  german = await client.openWallet({ initialBalance: '1200.50' });
  mexican = await client.openWallet({ country: 'MX', initialBalance: '400' });
  for (const amount of ['20.25', '310', '99.99', '0.01', '75.5'])
    await client.post(`/wallets/${german.id}/deposit`, { amount });
  for (const amount of ['12.5', '200', '41.4']) {
    const transfer = { sourceId: german.id, destId: mexican.id, amount };
    transferId = String((await client.postKeyed('/transfers', transfer, `transfer-of-${amount}`)).body['id']);
  }
  await client.post(`/wallets/${german.id}/withdraw`, { amount: '150' });
}

/** The page of the service, with its token in the address. */
function addressOf(screen: string): string {
  return `${service.operatorUrl ?? ''}/console/#${screen}`;
}

async function signedIn(page: Page, address = addressOf(`token=${token}`)): Promise<void> {
  await page.goto(address);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
}

async function show(page: Page, screen: string, title: string | RegExp): Promise<void> {
  await page.evaluate(`location.hash = ${JSON.stringify(screen)}`);
  await page.getByRole('heading', { name: title, level: 1 }).waitFor();
}

describe.skipIf(browserPath === undefined)('the console, in a browser,', () => {
  test('shows what is broken, why, and lets an operator repair it', async () => {
    await rowsOf(
      service.global,
      `create function refuse_mail() returns trigger language plpgsql as
       $$ begin if new.recipient = 'full@a.example' then raise exception '${cause}'; end if; return new; end $$`,
    );
    await rowsOf(
      service.global,
      'create trigger refuse_mail before insert on notifications for each row execute function refuse_mail()',
    );
    for (let number = 0; number < 3; number++) {
      const { id } = await service.client.openWallet();
      await service.client.post(`/wallets/${id}/deposit`, { amount: '25.50', recipient: 'full@a.example' });
    }

    const { page, mistakes } = await openTab(browser);
    await signedIn(page);
    expect(page.url()).not.toContain(token);
    const trouble = page.getByRole('link', { name: `3 dead letters of ${handler}` });
    await trouble.waitFor();
    expect(await barriersIn(page)).toEqual([]);
    await take(page, 'overview');
    await trouble.click();
    await page.getByRole('heading', { name: 'Dead letters' }).waitFor();
    await page.getByRole('button', { name: 'Details' }).first().click();
    await page.locator('pre').filter({ hasText: cause }).waitFor();
    expect(await barriersIn(page)).toEqual([]);
    await page.locator('td a.id').first().click();
    await page.getByRole('list', { name: 'Explanation' }).getByText(cause).waitFor();
    expect(await barriersIn(page)).toEqual([]);

    await rowsOf(service.global, 'drop trigger refuse_mail on notifications');
    await show(page, '#/dead-letters', 'Dead letters');
    await page.getByText(cause).waitFor();
    await take(page, 'dead-letters');
    await page.getByRole('button', { name: 'Replay …' }).click();
    await page.getByRole('list', { name: 'Dry run' }).getByText('3 events').waitFor();
    await page.getByLabel('Your name').fill('olivia');
    await page.getByLabel('Reason').fill('the mail server is back');
    expect(await barriersIn(page)).toEqual([]);
    await take(page, 'replay');
    expect(await rowsOf(service.global, 'select from notifications')).toHaveLength(0);
    await page.getByRole('button', { name: 'Replay 3 events' }).click();
    await page.getByText('3 changed.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByText('There are no dead letters.').waitFor();
    await show(page, '#/', 'Overview');
    await page.getByText('Nothing is wrong.').waitFor();
    await expect.poll(() => rowsOf(service.global, 'select from notifications')).toHaveLength(3);
    await show(page, '#/audit', 'Audit');
    await page.getByRole('cell', { name: 'the mail server is back' }).first().waitFor();
    await take(page, 'audit');
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test.each<[string, () => string, string | RegExp, RegExp]>([
    ['overview-calm', () => '#/', 'Overview', /databases/],
    ['consumers', () => '#/consumers', 'Consumers', /notify-recipient-on-deposit/],
    ['relays', () => '#/relays', 'Relays', /No relay/],
    ['shards', () => '#/shards', 'Shards', /PostgreSQL/],
    ['events', () => '#/events', 'Events', /WalletMoneyDepositedEvent/],
    ['model', () => `#/models/${german.id}`, 'Wallet', /WalletMoneyWithdrawnEvent/],
    ['transfers', () => '#/views/transfers', 'Transfers', /200/],
    ['reconciliation', () => '#/views/reconciliation', 'Reconciliation', /EUR/],
    ['why', () => `#/why/${transferId}`, 'Why', /is complete/],
    ['invariants', () => '#/invariants', 'Invariants', /wallet-balances/],
    ['keys', () => '#/keys?key=transfer-of-200', 'Idempotency keys', /It executed/],
    ['audit', () => '#/audit', 'Audit', /the mail server is back/],
  ])('has no barrier and fits a phone: %s', async (name, address, title, text) => {
    for (const { page, mistakes } of [wide, phone]) {
      await show(page, address(), title);
      await page.getByText(text).first().waitFor();
      await page.getByText('live', { exact: true }).waitFor();
      expect(await barriersIn(page)).toEqual([]);
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
      expect(mistakes).toEqual([]);
    }
    await take(wide.page, name);
    await take(phone.page, `${name}-phone`);
  });

  test('asks for the token, refuses a wrong one, and forgets it on request', async () => {
    const { page, mistakes } = await openTab(browser);
    await page.goto(addressOf('/shards'));
    await page.getByLabel('Token').fill('another-token-that-is-long-enough-0123456789');
    expect(await barriersIn(page)).toEqual([]);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('This token is not accepted.').waitFor();
    await take(page, 'sign-in');
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Shards' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Shards' }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').waitFor();
    expect(await page.evaluate('JSON.stringify(sessionStorage)')).not.toContain(token);
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test('goes to screens and looks up ids from the keyboard', async () => {
    const { page, mistakes } = await openTab(browser);
    await signedIn(page);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill('event');
    expect(await barriersIn(page)).toEqual([]);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Events' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill(transferId);
    await take(page, 'palette');
    await page.keyboard.press('Enter');
    await page.getByRole('list', { name: 'Explanation' }).waitFor();
    expect(page.url()).toContain(`#/why/${transferId}`);
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test('checks an invariant step by step and reports the outcome', async () => {
    const { page, mistakes } = await openTab(browser);
    await signedIn(page);
    await show(page, '#/invariants', 'Invariants');
    await page.getByRole('button', { name: 'Check' }).first().click();
    await page.getByText('holds', { exact: true }).waitFor();
    await page.getByText(/models? examined in/).waitFor();
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test('works behind a prefix, disables changes where it must, and connects again after a break', async () => {
    const { databases } = service.service;
    const operator = new Operator({ databases, extensions: service.service.extensions ?? [] });
    const app = new Hono().mount(
      '/behind/a-prefix',
      operatorApp(operator, { token, console: readConsole }).fetch,
    );
    const answer = getRequestListener(app.fetch);
    const server = createServer((request, response) => void answer(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { page, mistakes } = await openTab(browser);
    await signedIn(page, `http://127.0.0.1:${port}/behind/a-prefix/console#token=${token}`);
    expect(page.url()).toBe(`http://127.0.0.1:${port}/behind/a-prefix/console/#/`);
    await page.getByText('read-only', { exact: true }).waitFor();
    await show(page, '#/consumers', 'Consumers');
    const pause = page.getByRole('button', { name: 'Pause …' }).first();
    await pause.waitFor();
    expect(await pause.isDisabled()).toBe(true);
    expect(await pause.getAttribute('title')).toContain('read-only');
    expect(await barriersIn(page)).toEqual([]);
    expect(mistakes).toEqual([]);
    // The stream breaks, and begins again by itself.
    await page.getByText('live', { exact: true }).waitFor();
    server.closeAllConnections();
    await page.getByText('reconnecting', { exact: true }).waitFor();
    await page.getByText('live', { exact: true }).waitFor();
    await page.context().close();
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  });

  test('names a database that does not answer, and says that what it shows is a part', async () => {
    const { page, mistakes } = await openTab(browser);
    await signedIn(page);
    await page.getByText('live', { exact: true }).waitFor();
    await proxy.refuse();
    await page.getByRole('link', { name: 'Shard 1/0 does not answer' }).waitFor();
    await show(page, '#/events', 'Events');
    await page.getByText('Shard 1/0 did not answer').waitFor();
    await page.getByText('WalletMoneyDepositedEvent').first().waitFor();
    expect(await barriersIn(page)).toEqual([]);
    await take(page, 'partial');
    await proxy.accept();
    await show(page, '#/', 'Overview');
    await page.getByText('Nothing is wrong.').waitFor();
    expect(mistakes).toEqual([]);
    await page.context().close();
  });
});
