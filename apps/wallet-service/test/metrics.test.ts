import { ShardedId, parseFrameworkConfig } from '@framework/core';
import { type EventHandler, FrameworkEventHandler } from '@framework/events';
import { Big } from 'big.js';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';

import { type RunningService, startWorker } from './started-service.js';
import { WalletDepositMoneyAction } from '../src/wallet/wallet-deposit-money-action.js';
import { Wallet, WalletMoneyDepositedEvent } from '../src/wallet/wallet.js';
import { grafanaDashboard } from './grafana-dashboard.js';
import { parsePrometheusExpression } from './prometheus-expression.js';
import { type TestService, configTree, startTestService, stopTestService } from './start-test-service.js';
import { WebhookReceiver } from './webhook-receiver.js';

/** Fails with every deposit of 13. */
@FrameworkEventHandler({ name: 'fail-on-13', startFrom: 'beginning' })
class FailOn13 implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;

  async handle({ event }: { readonly event: WalletMoneyDepositedEvent }): Promise<void> {
    if (event.amount.eq(13)) throw new Error('This handler fails');
  }
}

const metrics = { port: 0, 'interval-ms': 100 };
const pages = fileURLToPath(new URL('../../../docs/operations', import.meta.url));
const partner = new WebhookReceiver();
let service: TestService;
let worker: RunningService;

beforeAll(async () => {
  await partner.open();
  service = await startTestService({ role: 'http', groupCommit: true, metrics });
  const delivery = { retry: { 'attempts-max': 1 }, 'cursor-save-ms': 50 };
  const relay = [{ name: 'events-to-partner', 'start-from': 'beginning', webhooks: partner.section }];
  const config = parseFrameworkConfig(configTree(service, { delivery, relay, metrics }));
  worker = await startWorker({ config, logger: pino({ level: 'silent' }), handlers: [new FailOn13()] });
  await worker.service.delivery.started();
});
afterAll(async () => {
  await worker.stop();
  await stopTestService(service);
  await partner.close();
});

test('a deposit is counted by the process that executes it', async () => {
  const { id } = await service.client.openWallet();
  const executed = { framework_action: 'WalletDepositMoneyAction' };
  const before = sum(await scrape(service), 'framework_execute_duration_count', executed);
  expect((await service.client.post(`/wallets/${id}/deposit`, { amount: '5' })).status).toBe(200);
  expect(sum(await scrape(service), 'framework_execute_duration_count', executed)).toBe(before + 1);
  const served = { http_route: '/wallets/:id/deposit', http_response_status_code: '200' };
  expect(sum(await scrape(service), 'http_server_request_duration_count', served)).toBeGreaterThan(0);
});

test('every process shows that consumers have no lag once events are handled', async () => {
  const { id } = await service.client.openWallet();
  await service.client.post(`/wallets/${id}/deposit`, { amount: '5' });
  for (const process of [service, worker]) {
    const consumer = { messaging_consumer_group_name: 'notify-recipient-on-deposit', framework_shard: '0,0' };
    await expect
      .poll(async () => {
        const samples = await scrape(process);
        return ['framework_delivery_pending', 'framework_delivery_lag'].map((name) =>
          valuesOf(samples, name, consumer),
        );
      })
      .toEqual([[0], [0]]);
    expect(sum(await scrape(process), 'framework_delivery_leases', consumer)).toBe(16);
  }
});

test('a handler that fails shows as blocked events and a dead letter', async () => {
  const { id } = await service.client.openWallet({ country: 'MX' });
  for (const amount of ['13', '5']) await service.client.post(`/wallets/${id}/deposit`, { amount });
  const consumer = { messaging_consumer_group_name: 'fail-on-13' };
  await expect
    .poll(async () => {
      const samples = await scrape(service);
      return ['framework_delivery_blocked', 'framework_delivery_dead_letters'].map((name) =>
        valuesOf(samples, name, { ...consumer, framework_shard: '1,0' }),
      );
    })
    .toEqual([[2], [1]]);
  expect(sum(await scrape(service), 'framework_delivery_blocked', { framework_shard: '0,0' })).toBe(0);
  const failed = { ...consumer, error_type: 'Error' };
  expect(sum(await scrape(worker), 'messaging_process_duration_count', failed)).toBe(1);
});

test('pools show their connections, and who waits for one', async () => {
  const samples = await scrape(service);
  const ofPool = (name: string): readonly number[] =>
    samples
      .filter((each) => each.name === name)
      .filter(({ labels }) =>
        labels['db_client_connection_pool_name']?.endsWith(`/${service.global.database} requests`),
      )
      .map(({ value }) => value);
  expect(ofPool('db_client_connection_max')).toEqual([10]);
  expect(ofPool('db_client_connection_pending_requests')).toEqual([0]);
  const [used = 0, idle = 0] = ofPool('db_client_connection_count');
  expect(used + idle).toBeGreaterThan(0);
});

test('the listener of metrics serves nothing else', async () => {
  const origin = new URL(service.metricsUrl ?? '').origin;
  expect((await fetch(`${origin}/wallets`)).status).toBe(404);
  expect((await fetch(`${origin}/metrics`, { method: 'POST' })).status).toBe(405);
  expect((await service.client.get('/metrics')).status).toBe(404);
});

test('the dashboard is what its builder makes', async () => {
  const text = `${JSON.stringify(grafanaDashboard(), undefined, 2)}\n`;
  await expect(text).toMatchFileSnapshot(`${pages}/grafana/framework.json`);
});

test('each alert fires for what it is about, and for nothing else', async ({ skip }) => {
  const said = await promtool('test', 'rules', `${pages}/prometheus/alerts.test.yml`);
  if (said === undefined) skip('promtool is not installed: it comes with Prometheus');
  expect(said).toContain('SUCCESS');
});

test('dashboard and alerts use only metrics, labels and values that the processes show', async () => {
  const { alerts, panels } = await expressions();
  expect(panels.length).toBeGreaterThan(15);
  expect(alerts.length).toBeGreaterThan(5);
  const { id } = await service.client.openWallet();
  expect((await service.client.post(`/wallets/${id}/withdraw`, { amount: '1000' })).status).toBe(422);
  // The relay fails from now on.
  await partner.close();
  await expect
    .poll(
      async () => {
        await depositFromBoth(id);
        const samples = [...(await scrape(service)), ...(await scrape(worker))];
        return [...panels, ...alerts].flatMap((text) => missingOf(text, samples));
      },
      { timeout: 8_000 },
    )
    .toEqual([]);
});

/** Deposits at the same time by both processes, so that some commits are stale, and by one, so that it has groups. */
async function depositFromBoth(id: string): Promise<void> {
  const params = { walletId: ShardedId.of(Wallet, id), amount: new Big(1) };
  const there = worker.service.executor;
  await Promise.allSettled(
    Array.from({ length: 5 }, () => [
      service.client.post(`/wallets/${id}/deposit`, { amount: '1' }),
      service.client.openWallet(),
      there.execute({ name: 'alice' }, WalletDepositMoneyAction, params),
    ]).flat(),
  );
}

const alertsSchema = z.strictObject({
  groups: z.array(
    z.strictObject({
      name: z.string(),
      rules: z.array(
        z.strictObject({
          alert: z.string(),
          expr: z.string(),
          for: z.string().optional(),
          labels: z.record(z.string(), z.string()),
          annotations: z.record(z.string(), z.string()),
        }),
      ),
    }),
  ),
});

/** All expressions of the alerts, and those of the dashboard. */
async function expressions(): Promise<Readonly<Record<'alerts' | 'panels', readonly string[]>>> {
  const [alerts, dashboard] = await Promise.all(
    ['prometheus/alerts.yml', 'grafana/framework.json'].map((file) => readFile(`${pages}/${file}`, 'utf8')),
  );
  const { groups } = alertsSchema.parse(parse(alerts ?? ''));
  const panels = (dashboard ?? '').matchAll(/"expr": ("(?:[^"\\]|\\.)*")/g);
  return {
    alerts: groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
    panels: [...panels].map(([, text = '']) => z.string().parse(JSON.parse(text))),
  };
}

/** What an expression uses that no sample has. */
function missingOf(text: string, samples: readonly Sample[]): readonly string[] {
  const { selectors, grouping, made } = parsePrometheusExpression(text);
  const labels = new Set([...made, 'instance']);
  const missing = selectors.flatMap(({ metric, labels: wanted }) => {
    const own = samples.filter(({ name }) => name === metric);
    for (const sample of own) for (const label of Object.keys(sample.labels)) labels.add(label);
    const absent = wanted.filter(
      ([label, value]) => value !== '' && !own.some((sample) => sample.labels[label] === value),
    );
    return own.length === 0 ? [metric] : absent.map((pair) => `${metric} ${pair.join('=')}`);
  });
  return [...missing, ...grouping.filter((label) => !labels.has(label)).map((label) => `${text}: ${label}`)];
}

/** Prometheus' own tool, if it is installed. */
async function promtool(...args: readonly string[]): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)('promtool', [...args]);
    return stdout;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

async function scrape({
  metricsUrl,
}: {
  readonly metricsUrl: string | undefined;
}): Promise<readonly Sample[]> {
  const response = await fetch(metricsUrl ?? 'the process serves no metrics');
  expect(response.status).toBe(200);
  return (await response.text()).split('\n').flatMap((line) => {
    const [, name = '', labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (value === undefined) return [];
    const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', text = '']) => [label, text]);
    return [{ name, labels: Object.fromEntries(pairs) as Sample['labels'], value: Number(value) }];
  });
}

/** The values of all samples of a metric with these labels. */
function valuesOf(samples: readonly Sample[], name: string, labels: Sample['labels']): readonly number[] {
  return samples
    .filter((each) => each.name === name)
    .filter((each) => Object.entries(labels).every(([label, value]) => each.labels[label] === value))
    .map(({ value }) => value);
}

function sum(samples: readonly Sample[], name: string, labels: Sample['labels']): number {
  return valuesOf(samples, name, labels).reduce((total, value) => total + value, 0);
}
