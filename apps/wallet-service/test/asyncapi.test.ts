import { Parser } from '@asyncapi/parser';
import { Ajv } from 'ajv';
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { type TestService, startTestService, stopTestService } from './start-test-service.js';

let service: TestService;
let document: Document;

beforeAll(async () => {
  service = await startTestService();
  const { status, body } = await service.client.get('/asyncapi.json');
  assert.equal(status, 200);
  document = body as unknown as Document;
});
afterAll(() => stopTestService(service));

interface Document {
  readonly channels: Readonly<
    Record<string, { readonly address: string; readonly messages: Readonly<Record<string, object>> }>
  >;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

describe('GET /asyncapi.json', () => {
  test("is valid for AsyncAPI's own parser", async () => {
    const { document: parsed, diagnostics } = await new Parser().parse(JSON.stringify(document));
    expect(parsed?.version()).toBe('3.0.0');
    // There is a newer version of AsyncAPI.
    expect(diagnostics.map(({ code }) => code)).toEqual(['asyncapi-latest-version']);
    const names = parsed
      ?.messages()
      .all()
      .map((message) => message.name());
    expect(names).toContain('com.example.wallet.WalletMoneyDepositedEvent');
  });

  test('names no host, because it needs no token', () => {
    expect(document).not.toHaveProperty('servers');
  });

  test('has every class of events in the channel of its model', () => {
    const folder = join(import.meta.dirname, '../src');
    const declared = globSync('**/*.ts', { cwd: folder, exclude: ['**/*.test.ts'] }).flatMap((file) =>
      Array.from(
        readFileSync(join(folder, file), 'utf8').matchAll(/class (\w+) extends ModelEvent<(\w+)>/g),
        ([, event = '', model = '']) => `${model} ${event}`,
      ),
    );
    const described = Object.entries(document.channels).flatMap(([model, { messages }]) =>
      Object.keys(messages).map((event) => `${model} ${event}`),
    );
    expect(declared.length).toBeGreaterThan(5);
    expect(described.toSorted()).toEqual(declared.toSorted());
    expect(Object.values(document.channels).map(({ address }) => address)).toEqual([
      'com.example.wallet.Wallet',
      'com.example.wallet.Transfer',
      'com.example.wallet.TransferDecision',
    ]);
  });

  test('describes the payloads that the service stores', async () => {
    const { client } = service;
    const { id } = await client.openWallet();
    await client.post(`/wallets/${id}/deposit`, { amount: '1.50' });
    await client.post(`/wallets/${id}/withdraw`, { amount: '101.5' });
    await client.post(`/wallets/${id}/close`, {});
    const { body } = await client.get(`/wallets/${id}/events`);
    const events = body['items'] as readonly { readonly type: string; readonly payload: object }[];
    const ajv = new Ajv({ strict: false, validateFormats: false });
    const valid = events.map(({ type, payload }) => [
      type,
      ajv.validate(document.components.schemas[type] ?? false, payload),
      ajv.validate(document.components.schemas[type] ?? false, { amount: 1.5 }),
    ]);
    expect(valid).toEqual([
      ['WalletCreatedEvent', true, false],
      ['WalletMoneyDepositedEvent', true, false],
      ['WalletMoneyWithdrawnEvent', true, false],
      // It has no fields of its own.
      ['WalletClosedEvent', true, true],
    ]);
  });
});
