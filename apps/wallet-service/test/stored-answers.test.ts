import { ShardIdentifier, ShardedId } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { Big } from 'big.js';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { TransferDecision } from '../src/transfer/transfer-decision.js';
import { Transfer } from '../src/transfer/transfer.js';
import { transferDecisions, transfers } from '../src/transfer/transfer-tables.js';
import { wallets } from '../src/wallet/wallet-repository.js';
import { Wallet } from '../src/wallet/wallet.js';
import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';

// Answers are kept beside their keys for longer than a version of the service runs: these were written by the first version.
const walletId = '019a0c11-2233-7445-8040-66778899aabb';
const transferId = '019a0c11-2233-7446-8040-66778899aabb';
const destId = '019a0c11-2233-7447-8000-66778899aabb';
const decisionId = '019a0c11-2233-7448-8000-66778899aabb';
const dates = '"createdDate":"2026-01-02T03:04:05.006Z","updatedDate":"2026-01-02T03:04:06.007Z"';
const storedWallet = `{"id":"${walletId}","state":"OPENED","version":2,${dates},"ownerId":"6f1e9a52-8b6f-4b8e-9a53-2f4d6f0c1a11","currency":"EUR","balance":"125.5"}`;
const storedTransfer = `{"id":"${transferId}","state":"COMPLETED","version":1,${dates},"sourceId":"${walletId}","destId":"${destId}","amount":"2.5","currency":"EUR"}`;
const storedDecision = `{"id":"${decisionId}","state":"REFUSED","version":1,${dates},"transferId":"${transferId}","destId":"${destId}","amount":"2.5","currency":"EUR","reason":"wallet-closed"}`;

const shard = ShardIdentifier.of(1, 0);
const times = {
  createdDate: new Date('2026-01-02T03:04:05.006Z'),
  updatedDate: new Date('2026-01-02T03:04:06.007Z'),
};

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

test('an answer stored by the first version of the service is read: a wallet', () => {
  const { databases } = service.service;
  const codec = new PgRepository({ model: Wallet, table: wallets, databases }).jsonCodec();
  const wallet = new Wallet({
    ...times,
    id: ShardedId.of(Wallet, walletId),
    state: 'OPENED',
    version: 2,
    ownerId: '6f1e9a52-8b6f-4b8e-9a53-2f4d6f0c1a11',
    currency: 'EUR',
    balance: new Big('125.5'),
  });
  expect(codec.decode(storedWallet)).toEqual(wallet);
  expect(codec.decode(codec.encode(wallet))).toEqual(wallet);
});

test('an answer stored by the first version of the service is read: a transfer and a decision', () => {
  const { databases } = service.service;
  const parts = {
    ...times,
    version: 1,
    destId: ShardedId.of(Wallet, destId),
    amount: new Big('2.50'),
    currency: 'EUR',
  };
  const transfer = new PgRepository({ model: Transfer, table: transfers, databases }).jsonCodec();
  expect(transfer.decode(storedTransfer)).toEqual(
    new Transfer({
      ...parts,
      id: ShardedId.of(Transfer, transferId),
      state: 'COMPLETED',
      sourceId: ShardedId.of(Wallet, walletId),
      reason: undefined,
    }),
  );
  const decision = new PgRepository({ model: TransferDecision, table: transferDecisions, databases });
  expect(decision.jsonCodec().decode(storedDecision)).toEqual(
    new TransferDecision({
      ...parts,
      id: ShardedId.of(TransferDecision, decisionId),
      state: 'REFUSED',
      transferId: ShardedId.of(Transfer, transferId),
      reason: 'wallet-closed',
    }),
  );
});

test.each([
  ['INITIATED', undefined],
  ['COMPLETED', undefined],
  ['REFUNDED', 'wallet-closed'],
] as const)('a transfer that is %s is read from a stored answer as it was written', (state, reason) => {
  const transfer = new Transfer({
    ...times,
    id: ShardedId.generate(Transfer, shard),
    state,
    version: 2,
    sourceId: ShardedId.generate(Wallet, shard),
    destId: ShardedId.generate(Wallet, ShardIdentifier.of(0, 0)),
    amount: new Big('2.50'),
    currency: 'EUR',
    reason,
  });
  const { databases } = service.service;
  const codec = new PgRepository({ model: Transfer, table: transfers, databases }).jsonCodec();
  expect(codec.decode(codec.encode(transfer))).toEqual(transfer);
});

test('a request is answered with what the first version of the service stored beside its key', async () => {
  const { id } = await service.client.openWallet({ country: 'MX' });
  const deposit = { amount: '25.50' };
  const first = await service.client.postKeyed(`/wallets/${id}/deposit`, deposit, 'key-of-old');
  const stored = storedWallet.replace(walletId, id).replace('125.5', '999');
  const update = 'update eventlog.idempotency_keys set result = $1 where key = $2 returning key';
  expect(await rowsOf(service.mexico, update, [stored, 'key-of-old'])).toHaveLength(1);
  const repeat = await service.client.postKeyed(`/wallets/${id}/deposit`, deposit, 'key-of-old');
  expect(repeat).toMatchObject({ status: first.status, body: { id, balance: '999', version: 2 } });
  expect(repeat.headers).toMatchObject({ 'idempotency-replayed': 'true' });
});
