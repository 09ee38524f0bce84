import { slotOf } from '@framework/core/adapter';
import { type EventEnvelope, type EventHandler, FrameworkEventHandler } from '@framework/events';
import { TestDatabase } from '@framework/testing/postgres';
import { openService } from '@framework/service';
import { expect, onTestFinished, test, vi } from 'vitest';

import { walletService } from '../../src/wallet-service.js';
import { type Wallet, WalletMoneyDepositedEvent } from '../../src/wallet/wallet.js';
import { rowsOf } from '../database-session.js';
import { Fleet } from '../delivery/fleet.js';

const patience = { timeout: 60_000, interval: 50 };
const slotCount = 16;

/** A handler whose calls for one wallet wait for the test, and fail until the test lets them succeed. */
@FrameworkEventHandler({
  name: 'gated',
  startFrom: 'beginning',
  retry: { attemptsMax: 1_000, backoffBaseMs: 50, backoffMaxMs: 200 },
})
class Gated implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;
  readonly called = Promise.withResolvers<string>();
  readonly gate = Promise.withResolvers<void>();
  /** The events that were handled, by wallet. */
  readonly handled = new Map<string, string[]>();
  sick: string | undefined;

  async handle({ modelId, eventId }: EventEnvelope<WalletMoneyDepositedEvent>): Promise<void> {
    if (modelId === this.sick) {
      this.called.resolve(eventId);
      await this.gate.promise;
    }
    if (modelId === this.sick) throw new Error('The other system is away');
    this.handled.set(modelId, [...(this.handled.get(modelId) ?? []), eventId]);
  }
}

test(
  'an event that failed after a backup is delivered once the shard is restored from it',
  { timeout: 240_000 },
  async () => {
    const { fleet, handler, watched, others } = await delivering();
    handler.sick = watched.id.value;
    await fleet.deposit(watched);
    const event = await handler.called.promise;
    const restore = await backUp(fleet.databases.global);
    handler.gate.resolve();
    await vi.waitFor(async () => expect(await blockedIn(fleet.databases.global)).toEqual([event]), patience);
    for (const other of others) await patiently(() => fleet.deposit(other));

    await restore();
    handler.sick = undefined;
    // These move the cursors of all slots.
    for (const other of others) await patiently(() => fleet.deposit(other));
    await vi.waitFor(() => expect(handler.handled.get(watched.id.value)).toContain(event), patience);
    await expectDelivered(fleet, handler, others);
  },
);

test(
  'an event that a restore has removed is neither blocked nor delivered afterwards',
  { timeout: 240_000 },
  async () => {
    const { fleet, handler, watched, others } = await delivering();
    const restore = await backUp(fleet.databases.global);
    handler.sick = watched.id.value;
    await patiently(() => fleet.deposit(watched));
    const removed = await handler.called.promise;
    await restore();
    handler.gate.resolve();
    for (const other of others) await patiently(() => fleet.deposit(other));
    await expectDelivered(fleet, handler, others);
    expect(await blockedIn(fleet.databases.global)).toEqual([]);
    handler.sick = undefined;
    await fleet.deposit(watched);
    await expectDelivered(fleet, handler, [watched]);
    expect(handler.handled.get(watched.id.value)).not.toContain(removed);
  },
);

interface Delivering {
  readonly fleet: Fleet;
  readonly handler: Gated;
  readonly watched: Wallet;
  /** Wallets of all slots. */
  readonly others: readonly Wallet[];
}

/** A service that delivers to the handler in this process, and has delivered everything. */
async function delivering(): Promise<Delivering> {
  const fleet = await Fleet.create({ 'lease-ms': 10_000 });
  onTestFinished(() => fleet.end());
  const handler = new Gated();
  const { delivery, databases } = openService(walletService, fleet.config, { handlers: [handler] });
  await databases.ready();
  delivery.start();
  onTestFinished(async () => {
    await delivery.stop();
    await databases.close();
  });
  await delivery.started();
  const watched = await fleet.openWallet('DE');
  const bySlot = new Map<number, Wallet>();
  while (bySlot.size < slotCount) {
    const wallet = await fleet.openWallet('DE');
    bySlot.set(slotOf(wallet.id.value, slotCount), wallet);
  }
  const others = [...bySlot.values()];
  for (const wallet of [watched, ...others]) await fleet.deposit(wallet);
  await expectDelivered(fleet, handler, [watched, ...others]);
  return { fleet, handler, watched, others };
}

/** Waits until the handler has had every event of these wallets that is in the log. */
async function expectDelivered(fleet: Fleet, { handled }: Gated, wallets: readonly Wallet[]): Promise<void> {
  for (const { id } of wallets) {
    const rows = await rowsOf(
      fleet.databases.global,
      `select id from eventlog.events where model_id = $1 and event_type = 'WalletMoneyDepositedEvent' order by model_version`,
      [id.value],
    );
    const events = rows.map((row) => String(row['id']));
    await vi.waitFor(() => expect(handled.get(id.value)).toEqual(expect.arrayContaining(events)), patience);
  }
}

/** The events that are blocked for the handler. */
async function blockedIn(database: TestDatabase): Promise<readonly string[]> {
  const rows = await rowsOf(
    database,
    `select event_id from eventlog.blocked_models where handler = 'gated' and event_id is not null`,
  );
  return rows.map((row) => String(row['event_id']));
}

/**
 * Copies the files of a database, with the leases in it, while the service runs. Returns a function that gives the copy the name of
 * the original.
 */
async function backUp(database: TestDatabase): Promise<() => Promise<void>> {
  const { database: name, url } = database;
  const server = new URL(url);
  server.pathname = '/postgres';
  const admin = new TestDatabase(server.href, 'postgres');
  const original = new TestDatabase(server.href, `${name}_original`);
  onTestFinished(() => original.drop());
  const whileClosed = async (...statements: readonly string[]): Promise<void> => {
    await rowsOf(admin, `alter database ${name} with allow_connections false`);
    await rowsOf(
      admin,
      `select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '${name}'`,
    );
    for (const statement of statements) await rowsOf(admin, statement);
  };
  await whileClosed(
    `create database ${name}_copy template ${name}`,
    `alter database ${name} with allow_connections true`,
  );
  return () =>
    whileClosed(
      `alter database ${name} rename to ${original.database}`,
      `alter database ${name}_copy rename to ${name}`,
    );
}

/** Repeats what fails because its connection was ended. */
function patiently<T>(work: () => Promise<T>): Promise<T> {
  return vi.waitFor(work, patience);
}
