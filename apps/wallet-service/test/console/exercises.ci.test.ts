import type { FaultProxy } from '@framework/testing';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { rowsOf } from '../database-session.js';
import { exerciseCause } from '../exercise.js';
import { startProxiedService } from '../start-proxied-service.js';
import type { TestService } from '../start-test-service.js';
import { browserPath, buildConsole, openBrowser, openTab } from './console-browser.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';

let service: TestService;
let proxy: FaultProxy;
let stop: () => Promise<void>;
let browser: Browser;
let page: Page;
let mistakes: readonly string[];

beforeAll(async () => {
  if (browserPath === undefined) return;
  await buildConsole();
  ({ service, proxy, stop } = await startProxiedService({
    login: 'owner',
    operator: { port: 0, token, 'read-only': false },
    mexico: { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 3_000 },
    delivery: {
      'poll-max-ms': 100,
      'cursor-save-ms': 20,
      retry: { 'backoff-base-ms': 50, 'backoff-max-ms': 200 },
    },
  }));
  browser = await openBrowser();
  ({ page, mistakes } = await openTab(browser));
  await page.goto(`${service.operatorUrl ?? ''}/console/#token=${token}`);
  await page.getByText('Nothing is wrong.').waitFor();
});

afterAll(async () => {
  if (browserPath === undefined) return;
  await browser.close();
  await stop();
});

function go(name: string): Promise<void> {
  return page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
}

// "A handler fails since the deployment" is the walk through the console.
describe.skipIf(browserPath === undefined)('in the console alone,', () => {
  test('a transfer that hangs is found and explained', async () => {
    const source = await service.client.openWallet({ country: 'DE' });
    const dest = await service.client.openWallet({ country: 'MX' });
    await proxy.refuse();
    const transfer = { sourceId: source.id, destId: dest.id, amount: '40' };
    const id = String((await service.client.post('/transfers', transfer)).body['id']);

    await page.getByText(/1\/0/).first().waitFor();
    await go('Transfers in transit');
    await page.locator(`a[href*="${id}"]`).first().click();
    const explanation = page.getByRole('list', { name: 'Explanation' });
    await explanation.getByText('The shard 1/0 of its destination does not answer').waitFor();

    await proxy.accept();
    await expect
      .poll(async () => (await service.client.get(`/transfers/${id}`)).body['state'])
      .toBe('COMPLETED');
    await page.reload();
    await explanation.getByText('is complete').waitFor();
    await go('Overview');
    await page.getByText('Nothing is wrong.').waitFor();
    await go('Invariants');
    for (const name of ['wallet-balances', 'transfers-decided', 'decisions-justified']) {
      const invariant = page.getByRole('region', { name });
      await invariant.getByRole('button', { name: 'Check' }).click();
      await invariant.getByText('holds', { exact: true }).waitFor();
    }
    expect(mistakes).toEqual([]);
  });

  test('a handler that keeps the log from being dropped is found and retired', async () => {
    const { id } = await service.client.openWallet({ country: 'DE' });
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    for (const statement of exerciseCause('The log grows and grows')) await rowsOf(service.global, statement);

    await go('Overview');
    await page
      .getByText(/old-statistics/)
      .first()
      .waitFor();
    await go('Consumers');
    const card = page.getByRole('region', { name: 'old-statistics' });
    await card.getByText('nobody works').waitFor();
    await card.getByRole('button', { name: 'Retire …' }).click();
    await page.getByRole('list', { name: 'Dry run' }).getByText('would be changed').waitFor();
    await page.getByLabel('Your name').fill('olivia');
    await page.getByLabel('Reason').fill('removed in release 12');
    await page.getByRole('button', { name: 'Retire', exact: true }).click();
    await page.getByText('Done.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await card.waitFor({ state: 'detached' });
    await go('Audit');
    await page.getByRole('cell', { name: 'removed in release 12' }).first().waitFor();
    expect(mistakes).toEqual([]);
  });
});
