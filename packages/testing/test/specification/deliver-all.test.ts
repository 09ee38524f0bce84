import { Account, AccountCreditedEvent, AccountNotedEvent, decimal } from '@framework/conformance';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { TestEnvironment, like } from '../../src/specification/index.js';
import {
  AnnotateAction,
  CreditAccountAction,
  WithdrawAction,
  otherDatabaseShard,
  account,
  accountEnvironment,
  accountsWith,
  firstShard,
  onCredit,
} from './accounts.js';

const given = account('3');
const credit = { accountId: given.id, amount: '1' };
const startMs = Date.parse('2026-01-01T00:00:00Z');

/** Withdraws one more from the account for each change of its balance, until nothing is left. */
const draining = onCredit(async ({ event }, context) => {
  if (event.newBalance !== decimal('0'))
    await context.execute(WithdrawAction, { accountId: given.id, amount: '1' });
});

describe('deliverAll', () => {
  test('also delivers events that handlers commit, until none is left', async () => {
    await accountsWith(draining)
      .given(given)
      .when(CreditAccountAction, credit)
      .delivered()
      .thenExpect({
        events: ['4', '3', '2', '1', '0'].map((newBalance) =>
          like(AccountCreditedEvent, { newBalance: decimal(newBalance) }),
        ),
        models: [like(Account, { balance: decimal('0'), version: 6 })],
      });
  });

  test('delivers across shards', async () => {
    const foreign = account('1', otherDatabaseShard);
    const annotating = onCredit((_envelope, context) =>
      context.execute(AnnotateAction, { accountId: foreign.id, note: 'seen' }),
    );
    await accountsWith(annotating)
      .given(given, foreign)
      .when(CreditAccountAction, credit)
      .delivered()
      .thenEvents(like(AccountCreditedEvent, {}), new AccountNotedEvent(foreign.id, 'seen'));
  });

  test('must be called before anything is delivered', async () => {
    const seen: string[] = [];
    const spec = accountsWith(onCredit(async ({ eventId }) => void seen.push(eventId)));
    const environment = await spec
      .given(given)
      .when(CreditAccountAction, credit)
      .thenResult(given.credit('1'));
    expect(seen).toEqual([]);
    await environment.deliverAll();
    await environment.deliverAll();
    expect(seen).toHaveLength(1);
  });

  test('has one effect per event, even if everything is delivered again', async () => {
    const environment = await accountsWith(draining).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    await environment.deliverAll();
    const { events } = environment;
    const { attempts } = await environment.redeliverAll();
    expect(attempts).toHaveLength(5);
    expect(environment.events).toEqual(events);
  });

  test('lets time pass only for retries', async () => {
    let failures = 2;
    const failing = onCredit(
      async () => {
        if (failures-- > 0) throw new Error('not yet');
      },
      { retry: { backoffBaseMs: 3_600_000, backoffMaxMs: 86_400_000 } },
    );
    const environment = await accountsWith(failing).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    expect(environment.clock.now().getTime()).toBe(startMs);
    const { attempts } = await environment.deliverAll();
    expect(attempts.map(({ error }) => error instanceof Error)).toEqual([true, true, false]);
    expect(Math.floor((environment.clock.now().getTime() - startMs) / 3_600_000)).toBe(2);
  });

  test('lets time pass for a handler that waits for the clock', async () => {
    const environment = await TestEnvironment.open({
      ...accountEnvironment,
      handlers: ({ clock }) => [onCredit(() => clock.sleep(20_000))],
    });
    await environment.store(given);
    await environment.execute(CreditAccountAction, credit);
    const { attempts } = await environment.deliverAll();
    expect(attempts).toMatchObject([{ error: undefined }]);
    expect(environment.clock.now().getTime() - startMs).toBeGreaterThanOrEqual(20_000);
  });

  test('lets no time pass for a handler that waits for something other than the clock', async () => {
    const environment = await accountsWith(onCredit(() => delay(50), { timeoutMs: 10 }))
      .given(given)
      .environment();
    await environment.execute(CreditAccountAction, credit);
    expect(await environment.deliverAll()).toMatchObject({ attempts: [{ error: undefined }] });
  });

  test('abandons a handler that never returns', async () => {
    const hanging = onCredit(() => new Promise(() => undefined), { retry: { attemptsMax: 1 } });
    const environment = await accountsWith(hanging).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    await expect(environment.deliverAll()).rejects.toMatchObject({
      code: 'dead-letter',
      message: expect.stringContaining('did not return within 30000 ms') as string,
    });
  });
});

describe('a dead letter', () => {
  const refusal = new Error('never');
  const refusing = onCredit(() => Promise.reject(refusal), { retry: { attemptsMax: 2 } });

  test('ends the delivery with the error that the handler threw', async () => {
    const environment = await accountsWith(refusing).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    await expect(environment.deliverAll()).rejects.toMatchObject({ code: 'dead-letter', cause: refusal });
  });

  test('is reported where it is expected, and ends no later delivery', async () => {
    const environment = await accountsWith(refusing).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    const { deadLetters } = await environment.deliverAll({ deadLetters: 'kept' });
    expect(deadLetters).toMatchObject([{ handler: 'on-credit', attempts: 2, dead: true }]);
    expect(await environment.deliverAll()).toMatchObject({ attempts: [], deadLetters });
  });

  test('fails a specification', async () => {
    const delivered = accountsWith(refusing).given(given).when(CreditAccountAction, credit).delivered();
    await expect(delivered.thenResult(given.credit('1'))).rejects.toMatchObject({ code: 'dead-letter' });
  });
});

describe('handlers that trigger each other forever', () => {
  const changing = onCredit(async (_envelope, context) => {
    await context.execute(WithdrawAction, { accountId: given.id, amount: '0' });
  });
  const watching = onCredit(() => Promise.resolve(), { name: 'watching' });

  test('end with an error that names them', async () => {
    const environment = await accountsWith(changing, watching).given(given).environment();
    await environment.execute(CreditAccountAction, credit);
    await expect(environment.deliverAll({ callsMax: 100 })).rejects.toMatchObject({
      code: 'never-idle',
      message: expect.stringMatching(
        /more than 100 calls.*on-credit \(\d+\).*watching \(\d+\)|watching.*on-credit/,
      ) as string,
    });
  });

  test('end even if they never wait for anything', async () => {
    const environment: TestEnvironment = await TestEnvironment.open({
      ...accountEnvironment,
      handlers: () => [
        onCredit(async () => {
          await environment.executor.execute({ name: 'loop' }, CreditAccountAction, credit);
        }),
      ],
    });
    await environment.store(given);
    await environment.execute(CreditAccountAction, credit);
    await expect(environment.deliverAll({ callsMax: 100 })).rejects.toMatchObject({ code: 'never-idle' });
  });

  test('may exceed the limit if the specification allows it', async () => {
    const long = account('1100', firstShard, { owner: 'ada' });
    const environment = await accountsWith(
      onCredit(async ({ event }, context) => {
        if (event.newBalance !== decimal('0'))
          await context.execute(WithdrawAction, { accountId: long.id, amount: '1' });
      }),
    )
      .given(long)
      .environment();
    await environment.execute(CreditAccountAction, { accountId: long.id, amount: '0' });
    await environment.deliverAll({ callsMax: 1_101 });
    expect(await environment.repository(Account).getById(long.id)).toMatchObject({ balance: decimal('0') });
  });
});

describe('an environment', () => {
  test('runs actions concurrently and runs an overtaken one again', async () => {
    const environment = await accountsWith().given(given).environment();
    await Promise.all([
      environment.execute(CreditAccountAction, credit),
      environment.execute(CreditAccountAction, credit),
    ]);
    expect(await environment.repository(Account).getById(given.id)).toMatchObject({
      version: 3,
      balance: decimal('5'),
    });
  });
});
