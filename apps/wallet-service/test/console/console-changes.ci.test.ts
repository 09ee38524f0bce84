import { FaultProxy } from '@framework/testing';
import type { Browser, Page, Route } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';

import { rowsOf } from '../database-session.js';
import { type ProxiedService, startProxiedService } from '../start-proxied-service.js';
import type { TestService } from '../start-test-service.js';
import { WebhookReceiver } from '../webhook-receiver.js';
import { feedStrange, longWord, strangeScreens } from './strange-answers.js';
import { browserPath, buildConsole, openBrowser, openTab } from './console-browser.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const handler = 'notify-recipient-on-deposit';
const relay = 'events-to-partner';
/** Caller's text that an error repeats, as a database's message does. */
const markup = '<img src=x>';

let proxied: ProxiedService;
let service: TestService;
let proxy: FaultProxy;
let partner: WebhookReceiver;
let browser: Browser;

beforeAll(async () => {
  if (browserPath === undefined) return;
  await buildConsole();
  partner = new WebhookReceiver();
  await partner.open();
  proxied = await startProxiedService({
    login: 'owner',
    mexico: { 'acquisition-timeout-ms': 1_000 },
    operator: { port: 0, token, 'read-only': false },
    relay: [{ name: relay, 'start-from': 'beginning', webhooks: partner.section }],
    delivery: { 'poll-max-ms': 100, retry: { 'attempts-max': 1 } },
  });
  ({ service, proxy } = proxied);
  browser = await openBrowser();
});

afterAll(async () => {
  if (browserPath === undefined) return;
  await browser.close();
  await proxied.stop();
  await partner.close();
});

/** A tab that is signed in, at a screen. */
async function openAt(screen: string): Promise<Page> {
  const { page, mistakes } = await openTab(browser);
  onTestFinished(async () => {
    await page.context().close();
    expect(mistakes.filter((text) => !text.includes('Failed to load resource'))).toEqual([]);
  });
  await page.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
  await page.getByText('live', { exact: true }).waitFor();
  await page.evaluate(`location.hash = ${JSON.stringify(screen)}`);
  return page;
}

async function sign(page: Page, reason: string): Promise<void> {
  await page.getByLabel('Your name').fill('olivia');
  await page.getByLabel('Reason').fill(reason);
}

/** Makes a deposit a dead letter of the handler, whose database refuses it with a message. */
async function kill(message: string): Promise<void> {
  const { id } = await service.client.openWallet();
  await rowsOf(
    service.global,
    `create function refuse_mail() returns trigger language plpgsql as
     $body$ begin raise exception using message = $text$${message}$text$; end $body$`,
  );
  await rowsOf(
    service.global,
    'create trigger refuse_mail before insert on notifications for each row execute function refuse_mail()',
  );
  const before = await deadCount();
  await service.client.post(`/wallets/${id}/deposit`, { amount: '1', recipient: 'ann' });
  await expect.poll(deadCount).toBe(before + 1);
  await rowsOf(service.global, 'drop function refuse_mail cascade');
}

/** Removes the dead letters of the test before, whatever came of it. */
async function skipAll(): Promise<void> {
  const body = JSON.stringify({ filter: { handler }, by: 'test', reason: 'a test begins' });
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const { ok } = await fetch(`${service.operatorUrl ?? ''}/skip`, { method: 'POST', headers, body });
  if (!ok || (await deadCount()) > 0) throw new Error('There are still dead letters');
}

async function deadCount(): Promise<number> {
  return (await rowsOf(service.global, 'select from eventlog.blocked_models where dead')).length;
}

/** Whether the relay has passed all events of a model, which it notes a moment after the answer of the partner. */
async function isPassed(modelId: string): Promise<boolean> {
  const url = `${service.operatorUrl ?? ''}/events?modelId=${modelId}`;
  const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
  const { items } = (await answer.json()) as {
    readonly items: readonly { readonly deliveries: readonly { handler: string; state: string }[] }[];
  };
  return items.every(({ deliveries }) =>
    deliveries.some(({ handler: name, state }) => name === relay && state === 'passed'),
  );
}

/** Makes the change, but loses its answer. */
async function withoutAnswer(route: Route): Promise<void> {
  if (isDryRun(route)) return route.continue();
  await route.fetch();
  return route.abort();
}

function isDryRun(route: Route): boolean {
  return route.request().postData()?.includes('"dryRun":true') === true;
}

describe.skipIf(browserPath === undefined)('a change in the console', () => {
  beforeEach(skipAll);

  test('of a relay pauses it and resumes it, and no event is lost', async () => {
    const page = await openAt('#/relays');
    const card = page.getByRole('region', { name: relay });
    await card.getByRole('button', { name: 'Pause …' }).click();
    await page.getByRole('list', { name: 'Dry run' }).getByText('would be changed').first().waitFor();
    await sign(page, 'the partner asks for quiet');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Done.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await card.getByText('paused', { exact: true }).waitFor();
    const { id } = await service.client.openWallet();
    await card.getByText('1', { exact: true }).first().waitFor();
    expect(partner.received.map(({ subject }) => subject)).not.toContain(id);

    await card.getByRole('button', { name: 'Resume …' }).click();
    await sign(page, 'the partner is ready');
    // From the keyboard.
    await page.keyboard.press('Enter');
    await page.getByText('Done.').waitFor();
    await page.keyboard.press('Escape');
    await card.getByText('running', { exact: true }).waitFor();
    await expect.poll(() => partner.received.map(({ subject }) => subject)).toContain(id);
  });

  test('of events publishes again what a search has found, and marks it', async () => {
    const { id } = await service.client.openWallet();
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    const published = () =>
      partner.received
        .filter(({ subject }) => subject === id)
        .map(({ version, attributes }) => [version, attributes['republished'] !== undefined]);
    await expect.poll(published).toEqual([
      [1, false],
      [2, false],
    ]);
    await expect.poll(() => isPassed(id)).toBe(true);
    const page = await openAt(`#/events?modelId=${id}`);
    await page.getByRole('button', { name: `Publish again by ${relay} …` }).click();
    await page.getByRole('list', { name: 'Dry run' }).getByText('2 events').waitFor();
    await sign(page, 'the partner has lost them');
    await page.getByRole('button', { name: 'Publish 2 events' }).click();
    await page.getByText('Done.').waitFor();
    expect(published().slice(2)).toEqual([
      [1, true],
      [2, true],
    ]);
  });

  test('that a database missed can be repeated there', async () => {
    const page = await openAt('#/relays');
    const card = page.getByRole('region', { name: relay });
    await card.getByRole('button', { name: 'Pause …' }).click();
    await proxy.refuse();
    await sign(page, 'one shard is away');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Done in part.').waitFor();
    await page.getByText('Shard 1/0 did not answer').first().waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await proxy.accept();
    await card.getByRole('button', { name: 'Resume …' }).waitFor();
    await card.getByRole('button', { name: 'Pause …' }).click();
    await sign(page, 'it is back');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Done.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await card.getByRole('button', { name: 'Pause …' }).waitFor({ state: 'detached' });
    await card.getByRole('button', { name: 'Resume …' }).click();
    await sign(page, 'all is well');
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByText('Done.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await expect.poll(() => card.getByRole('button', { name: 'Resume …' }).count()).toBe(0);
  });

  test('that no database has made is not said to be done', async () => {
    const page = await openAt('#/consumers');
    const failures = [{ shards: ['0/0', '1/0'], code: 'shard-unavailable' }];
    await page.route('**/pause', async (route) => {
      const items = isDryRun(route) ? [{ shards: ['0/0'], count: 0, mayBeMore: false }] : [];
      const answer = { changeId: crypto.randomUUID(), count: 0, mayBeMore: false, items };
      await route.fulfill({ json: isDryRun(route) ? { ...answer, failures: [] } : { ...answer, failures } });
    });
    await page.getByRole('region', { name: handler }).getByRole('button', { name: 'Pause …' }).click();
    await sign(page, 'it fails');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('It failed.').waitFor();
    expect(await page.getByText('Done').count()).toBe(0);
  });

  test('of errors without a text leaves those with one alone', async () => {
    await kill('nothing');
    await rowsOf(service.global, `update eventlog.blocked_models set error = ''`);
    await kill(markup);
    const page = await openAt('#/dead-letters');
    await page.getByText(markup).waitFor();
    const group = page.getByRole('region', { name: `${handler}:`, exact: true });
    await group.getByRole('link', { name: 'List them' }).click();
    await page.getByRole('button', { name: 'Details' }).first().waitFor();
    expect(await page.getByRole('button', { name: 'Details' }).count()).toBe(1);
    await page.goBack();
    await group.getByRole('button', { name: 'Skip …' }).click();
    await page.getByRole('dialog').getByText('none was recorded').waitFor();
    await sign(page, 'nobody knows what it was');
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).dblclick();
    await page.getByText('1 changed.').waitFor();
    expect(await deadCount()).toBe(1);
    await page.getByRole('button', { name: 'Close' }).click();
    await group.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Skip …' }).click();
    await page.getByRole('dialog').getByText(markup).waitFor();
    await sign(page, 'this one, too');
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).click();
    await page.getByText('1 changed.').waitFor();
    expect(await deadCount()).toBe(0);
  });

  test('leaves events alone that came after they were counted', async () => {
    await kill('as before');
    const page = await openAt('#/dead-letters');
    await page.getByRole('button', { name: 'Skip …' }).click();
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).waitFor();
    await kill('as before');
    await sign(page, 'one was counted');
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).click();
    await page.getByText('1 changed. The change is recorded').waitFor();
    expect(await deadCount()).toBe(1);
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByText('1 dead letter', { exact: true }).waitFor();
  });

  test('of fewer events than were counted, as another operator was faster, says so', async () => {
    await kill('as before');
    await kill('as before');
    const page = await openAt('#/dead-letters');
    await page.getByRole('button', { name: 'Skip …' }).click();
    await page.getByRole('button', { name: 'Skip 2 events', exact: true }).waitFor();
    await skipAll();
    await sign(page, 'two were counted');
    await page.getByRole('button', { name: 'Skip 2 events', exact: true }).click();
    await page.getByText('0 changed. The dry run had counted 2.').waitFor();
    expect(await deadCount()).toBe(0);
  });

  test('whose answer is lost is not known, and is found in the audit', async () => {
    await kill('as before');
    const page = await openAt('#/dead-letters');
    await page.route('**/skip', withoutAnswer);
    await page.getByRole('button', { name: 'Skip …' }).click();
    await sign(page, 'the network is bad');
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).click();
    await page.getByText('It is not known whether the change was made.').waitFor();
    await page.getByRole('dialog').getByRole('link', { name: 'audit' }).click();
    await page.getByRole('cell', { name: 'the network is bad' }).first().waitFor();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(await deadCount()).toBe(0);
  });

  test('stays open until its outcome is there, unless somebody says not to wait', async () => {
    await kill('as before');
    const page = await openAt('#/dead-letters');
    const answer = Promise.withResolvers<void>();
    await page.route('**/skip', async (route) => {
      if (!isDryRun(route)) await answer.promise;
      await route.continue();
    });
    await page.getByRole('button', { name: 'Skip …' }).click();
    await sign(page, 'it takes its time');
    await page.getByRole('button', { name: 'Skip 1 event', exact: true }).click();
    await page.getByRole('button', { name: 'Do not wait' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    answer.resolve();
    await page.getByText('1 changed.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByText('There are no dead letters.').waitFor();
    expect(await deadCount()).toBe(0);
  });
});

describe.skipIf(browserPath === undefined)('the address of the console', () => {
  test('loses its token, although the page is open already, and although it is cut off', async () => {
    const page = await openAt('#/shards');
    await page.goto(`${service.operatorUrl ?? ''}/console/#token=another-token-that-is-wrong-0123456789`);
    await page.getByText('This token is not accepted.').waitFor();
    expect(page.url()).not.toContain('token');
    await page.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(page.url()).not.toContain('token');
    await page.goto('about:blank');
    await page.goto(`${service.operatorUrl ?? ''}/console/#token=50%`);
    await page.getByText('This token is not accepted.').waitFor();
    expect(page.url()).not.toContain('token');
  });

  test('means the same time in every zone', async () => {
    const page = await openAt('#/events');
    await page.getByLabel('Since').fill('2020-02-03T04:05:06');
    await page.getByRole('button', { name: 'Search' }).click();
    await expect.poll(() => page.url()).toContain('since=');
    const { hash } = new URL(page.url());
    const { page: far } = await openTab(browser, { timezoneId: 'Asia/Tokyo' });
    const asked = far.waitForRequest(/\/events\?/);
    await far.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
    await far.getByRole('heading', { name: 'Overview' }).waitFor();
    await far.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    const here = await page.evaluate(() => new Date('2020-02-03T04:05:06').toISOString());
    expect(new URL((await asked).url()).searchParams.get('since')).toBe(here);
    const there = await far.getByLabel('Since').inputValue();
    expect(await far.evaluate((local) => new Date(local).toISOString(), there)).toBe(here);
    await far.context().close();
  });

  test('with a prefix that begins with two slashes keeps its token on its own host', async () => {
    const { page, mistakes } = await openTab(browser);
    const origin = service.operatorUrl ?? '';
    const prefix = `${origin}//evil.example`;
    await page.route(`${prefix}/**`, async (route) =>
      route.continue({ url: route.request().url().replace(prefix, origin) }),
    );
    await page.goto(`${prefix}/console/#token=${token}`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    expect(mistakes).toEqual([]);
    await page.context().close();
  });
});

describe.skipIf(browserPath === undefined)('the screens of the console', () => {
  test('run nothing that events and errors contain, and fit a small phone with long words', async () => {
    const { page, mistakes } = await openTab(browser, { viewport: { width: 320, height: 640 } });
    await feedStrange(page);
    await page.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
    await page.getByText('reconnecting', { exact: true }).waitFor();
    for (const screen of strangeScreens) {
      await page.evaluate(`location.hash = ${JSON.stringify(screen)}`);
      await page.locator('main').getByText(longWord).filter({ visible: true }).first().waitFor();
      for (const details of await page.getByRole('button', { name: 'Details' }).all()) await details.click();
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect([screen, overflow]).toEqual([screen, 0]);
      expect(await page.locator('main img, main script, a[href^="javascript:"]').count()).toBe(0);
    }
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test('say that nothing arrives when the network falls silent, and recover', async () => {
    const { hostname: host, port } = new URL(service.operatorUrl ?? '');
    const network = await FaultProxy.to({ host, port: Number(port) });
    const { page } = await openTab(browser);
    await page.goto(`http://127.0.0.1:${network.port}/console/#token=${token}`);
    await page.getByText('live', { exact: true }).waitFor();
    network.silence();
    await page.getByText('reconnecting', { exact: true }).waitFor();
    network.resume();
    await page.getByText('live', { exact: true }).waitFor();
    expect(await page.getByText('reconnecting', { exact: true }).count()).toBe(0);
    await page.context().close();
    await network.close();
  });

  test('follow the stream in a browser that cannot iterate over streams', async () => {
    const { page, mistakes } = await openTab(browser);
    await page.addInitScript('delete ReadableStream.prototype[Symbol.asyncIterator]');
    await page.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
    await page.getByText('live', { exact: true }).waitFor();
    expect(mistakes).toEqual([]);
    await page.context().close();
  });

  test('follow events although each answer takes longer than the pause between two snapshots', async () => {
    const page = await openAt('#/events');
    let isFollowing = false;
    await page.route('**/events?*', async (route) => {
      if (isFollowing) await new Promise((resolve) => setTimeout(resolve, 3_000));
      await route.continue().catch(() => undefined);
    });
    await page.getByRole('table', { name: 'Events' }).waitFor();
    await page.getByLabel('Follow').check();
    isFollowing = true;
    const { id } = await service.client.openWallet();
    await page.locator(`a[href="#/models/${id}"]`).first().waitFor();
    expect(page.url()).toContain('tail=on');
  });

  test('show the present balance only as what it is, also behind the first page', async () => {
    const { id } = await service.client.openWallet({ initialBalance: '0' });
    for (let number = 1; number <= 110; number++)
      expect((await service.client.post(`/wallets/${id}/deposit`, { amount: '1' })).status).toBe(200);
    const page = await openAt(`#/models/${id}`);
    await page.getByText(/^\s*99 in version 100, by version/).waitFor();
    await page.getByRole('link', { name: 'Later versions' }).click();
    await page.getByText(/^\s*now 110, by version/).waitFor();
  });

  test('show a text that only looks like a date as it is', async () => {
    const { id } = await service.client.openWallet();
    const recipient = '2024-13-45T00:00:00Z';
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1', recipient });
    const page = await openAt(`#/models/${id}`);
    await page.getByRole('button', { name: 'Details' }).last().click();
    await page.getByText(recipient).first().waitFor();
    expect(await page.getByText('NaN').count()).toBe(0);
  });
});
