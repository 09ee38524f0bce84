import {
  type AnyEventHandler,
  DeliveryOperator,
  type EventEnvelope,
  type EventHandler,
  type NamedHandlerOptions,
  FrameworkEventHandler,
} from '@framework/events';
import { openService } from '@framework/service';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { walletService } from '../../src/wallet-service.js';
import { type Wallet, WalletCreatedEvent, WalletMoneyDepositedEvent } from '../../src/wallet/wallet.js';
import { Fleet } from './fleet.js';

const patience = { timeout: 60_000, interval: 20 };
type Deposited = WalletCreatedEvent | WalletMoneyDepositedEvent;

let fleet: Fleet;

beforeAll(async () => {
  // Leases are long, so that none is lost on a busy machine, which would cause repeats.
  fleet = await Fleet.create({ 'lease-ms': 60_000 });
});
afterAll(() => fleet.end());

test('a handler starts where its startFrom option says, and a renamed one continues where it was', async () => {
  const operator = new DeliveryOperator(fleet.service.databases);
  const wallets = await Promise.all(['DE', 'MX', 'DE', 'MX'].map((country) => fleet.openWallet(country)));
  const poisoned = wallets[0]!;
  await deposits(wallets, 2);
  // Events that the old handler fails to handle are taken over by the new one, too.
  const poison = `${poisoned.id.value} 3`;
  const old = recording({ name: 'old-name', startFrom: 'beginning', retry: { attemptsMax: 1 } }, poison);
  await whileDelivering([old.handler], async () => {
    const handled = [...listed(wallets.slice(1), [1, 2, 3]), ...listed([poisoned], [1, 2])];
    await vi.waitFor(() => expect(old.handled.toSorted()).toEqual(handled.toSorted()), patience);
    const dead = { handler: 'old-name', dead: true };
    await vi.waitFor(async () => expect((await operator.findBlocked(dead)).items).toHaveLength(1), patience);
  });
  await deposits(wallets, 1);

  const renamed = recording({ name: 'new-name', aliases: ['old-name'], startFrom: 'beginning' });
  const fromBeginning = recording({ name: 'from-beginning', startFrom: 'beginning' });
  const fromNow = recording({ name: 'from-now', startFrom: 'now' });
  const generation = [renamed, fromBeginning, fromNow];
  await whileDelivering(
    generation.map(({ handler }) => handler),
    async () => {
      const history = listed(wallets, [1, 2, 3, 4]);
      await vi.waitFor(() => expect(fromBeginning.handled.toSorted()).toEqual(history), patience);
      await deposits(wallets, 2);
      expect(await operator.replay({ handler: 'new-name' })).toBe(1);
      const rest = [...listed(wallets, [4, 5, 6]), poison].toSorted();
      await vi.waitFor(() => expect(renamed.handled.toSorted()).toEqual(rest), patience);
      const everything = listed(wallets, [1, 2, 3, 4, 5, 6]);
      await vi.waitFor(() => expect(fromBeginning.handled.toSorted()).toEqual(everything), patience);
      await vi.waitFor(() => expect(fromNow.handled.toSorted()).toEqual(listed(wallets, [5, 6])), patience);
    },
  );
  expect(fromNow.handled.toSorted()).toEqual(listed(wallets, [5, 6]));
  for (const { id } of wallets) {
    const own = [...old.handled, ...renamed.handled].filter((each) => each.startsWith(id.value));
    expect(own).toEqual(listed([{ id }], [1, 2, 3, 4, 5, 6]));
    const all = fromBeginning.handled.filter((each) => each.startsWith(id.value));
    expect(all).toEqual(listed([{ id }], [1, 2, 3, 4, 5, 6]));
  }
});

/** A handler that records what it has handled, as `wallet version`, and fails for one of them. */
function recording(
  options: NamedHandlerOptions,
  poison?: string,
): { readonly handler: AnyEventHandler; readonly handled: readonly string[] } {
  const handled: string[] = [];
  class Recording implements EventHandler<Deposited> {
    readonly event = [WalletCreatedEvent, WalletMoneyDepositedEvent];

    async handle({ modelId, modelVersion }: EventEnvelope<Deposited>): Promise<void> {
      const event = `${modelId} ${modelVersion}`;
      if (event === poison) throw new Error('This event is poison');
      handled.push(event);
    }
  }
  FrameworkEventHandler(options)(Recording);
  return { handler: new Recording(), handled };
}

/** Runs work while a separate service delivers to these handlers. */
async function whileDelivering(
  handlers: readonly AnyEventHandler[],
  work: () => Promise<void>,
): Promise<void> {
  const { delivery, databases } = openService(walletService, fleet.config, { handlers });
  await databases.ready();
  delivery.start();
  try {
    await work();
  } finally {
    await delivery.stop();
    await databases.close();
  }
}

/** Deposits into each wallet this many times. */
async function deposits(wallets: readonly Wallet[], count: number): Promise<void> {
  for (let n = 0; n < count; n++) for (const wallet of wallets) await fleet.deposit(wallet);
}

/** These versions of each wallet, sorted. */
function listed(wallets: readonly Pick<Wallet, 'id'>[], versions: readonly number[]): readonly string[] {
  return wallets.flatMap(({ id }) => versions.map((version) => `${id.value} ${version}`)).toSorted();
}
