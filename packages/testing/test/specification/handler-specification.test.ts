import {
  AccountCreditedEvent,
  AccountDeletedEvent,
  AccountNotedEvent,
  Overdrawn,
  decimal,
} from '@framework/conformance';
import { EntityNotFoundError, ShardUnavailableError } from '@framework/core';
import { type BatchEventHandler, type EventEnvelope, FrameworkEventHandler } from '@framework/events';
import { describe, expect, test } from 'vitest';

import { like } from '../../src/specification/index.js';
import {
  AnnotateAction,
  CreditAccountAction,
  WithdrawAction,
  account,
  accountsWith,
  onCredit,
} from './accounts.js';

const given = account('10');
const credited = new AccountCreditedEvent(given.id, decimal('2.5'), decimal('12.5'));
const failed = { code: 'ERR_ASSERTION' };
const withdrawal = { accountId: given.id, amount: '1' };

/** Records the credits. */
const annotating = onCredit(({ event }, context) =>
  context.execute(AnnotateAction, { accountId: given.id, note: event.amount }),
);

/** Withdraws, with a key that distinguishes it from other executions. */
function withdrawing(keyOf: () => string): ReturnType<typeof onCredit> {
  return onCredit(async (_envelope, context) => {
    await context.execute(WithdrawAction, withdrawal, { key: keyOf() });
  });
}

class Unlucky extends Error {}

/** Fails this many times, and then withdraws. */
function failing(times: number): ReturnType<typeof onCredit> {
  return onCredit(
    async ({ attempt }, context) => {
      if (attempt <= times) throw new Unlucky(`attempt ${attempt}`);
      await context.execute(WithdrawAction, withdrawal);
    },
    { retry: { attemptsMax: 3, backoffBaseMs: 60_000 } },
  );
}

describe('a specification of a handler', () => {
  test("holds when the handler's actions have the expected effects", async () => {
    await accountsWith(annotating)
      .given(given)
      .whenHandled(credited)
      .thenExpect({
        attempts: 1,
        events: [new AccountNotedEvent(given.id, decimal('2.5'))],
        models: [given.annotate(decimal('2.5'))],
      });
  });

  test('fails with the difference when the effects differ', async () => {
    const handled = accountsWith(annotating).given(given).whenHandled(credited);
    await expect(handled.thenEvents(new AccountNotedEvent(given.id, 'other'))).rejects.toMatchObject(failed);
    await expect(handled.thenModels(given)).rejects.toMatchObject(failed);
    await expect(handled.thenNothing()).rejects.toMatchObject(failed);
    await expect(handled.thenExpect({ attempts: 2 })).rejects.toMatchObject(failed);
  });

  test('passes the handler the event with its action, headers, principal and model version', async () => {
    const seen: EventEnvelope<AccountCreditedEvent>[] = [];
    const handler = onCredit(async (envelope) => void seen.push(envelope));
    const origin = {
      actionName: 'Credit',
      actionParams: { amount: '2.5' },
      headers: { 'correlation-id': 'c-1' },
    };
    await accountsWith(handler)
      .given(given.variant({ version: 7 }))
      .whenHandled(credited, { ...origin, principal: { name: 'ada' } })
      .thenNothing();
    expect(seen).toMatchObject([
      { ...origin, event: credited, modelVersion: 7, principal: 'ada', attempt: 1 },
    ]);
  });

  test('does not deliver the events that follow', async () => {
    const endless = onCredit(async (_envelope, context) => {
      await context.execute(WithdrawAction, withdrawal);
    });
    await accountsWith(endless)
      .given(given)
      .whenHandled(credited)
      .thenExpect({ attempts: 1, models: [given.credit('-1')] });
  });

  test('passes its events to a batch handler', async () => {
    class Batches implements BatchEventHandler<AccountCreditedEvent> {
      readonly event = AccountCreditedEvent;
      async handleBatch([first]: readonly EventEnvelope<AccountCreditedEvent>[]): Promise<void> {
        expect(first).toMatchObject({ event: credited });
      }
    }
    FrameworkEventHandler({ name: 'batches' })(Batches);
    await accountsWith(new Batches()).given(given).whenHandled(credited).thenExpect({ attempts: 1 });
  });

  test('refuses an event that no handler subscribes to', async () => {
    const unwanted = accountsWith(annotating).whenHandled(new AccountDeletedEvent(given.id));
    await expect(unwanted.thenNothing()).rejects.toMatchObject({ code: 'unwanted-event' });
  });
});

describe('an event that is delivered twice', () => {
  test('has one effect through an action that the context executes', async () => {
    await accountsWith(withdrawing(() => 'one'))
      .given(given)
      .whenHandled(credited, { times: 2 })
      .thenExpect({ attempts: 2, models: [given.credit('-1')] });
  });

  test('has two effects through a handler that is not idempotent', async () => {
    let calls = 0;
    const twice = accountsWith(withdrawing(() => `${calls++}`))
      .given(given)
      .whenHandled(credited, { times: 2 });
    await expect(twice.thenModels(given.credit('-1'))).rejects.toMatchObject(failed);
    await twice.thenModels(given.credit('-1').credit('-1'));
  });
});

describe('a handler that fails', () => {
  test('is tried again while time passes', async () => {
    const environment = await accountsWith(failing(2))
      .given(given)
      .whenHandled(credited)
      .thenExpect({ attempts: 3, models: [given.credit('-1')] });
    const passedMs = environment.clock.now().getTime() - Date.parse('2026-01-01T00:00:00Z');
    expect(passedMs).toBeGreaterThanOrEqual(150_000);
    expect(passedMs).toBeLessThan(155_000);
  });

  test('gives up on the event after its last attempt', async () => {
    const handled = accountsWith(failing(3)).given(given).whenHandled(credited);
    await handled.thenThrows(Unlucky);
    await expect(handled.thenThrows('stale-record')).rejects.toMatchObject(failed);
    await expect(handled.thenEvents()).rejects.toMatchObject({
      code: 'dead-letter',
      message: expect.stringContaining('on-credit gave up on AccountCreditedEvent') as string,
      cause: { message: 'attempt 3' },
    });
  });

  test('gives up on the event at once when its error rules out another attempt', async () => {
    const missing = onCredit(async () => {
      throw new EntityNotFoundError('Account', 'nobody');
    });
    const handled = accountsWith(missing).given(given).whenHandled(credited);
    await handled.thenThrows('entity-not-found');
    await handled.thenThrows(EntityNotFoundError);
    await expect(handled.thenEvents()).rejects.toMatchObject({
      message: expect.stringContaining('after 1 attempts') as string,
    });
  });

  test('is retried throughout an outage, which uses up no attempts', async () => {
    let outages = 20;
    const unlucky = onCredit(async ({ attempt }, context) => {
      expect(attempt).toBe(1);
      if (outages-- > 0) throw new ShardUnavailableError(given.id.resolveShardIdentifier(), 'it is down');
      await context.execute(WithdrawAction, withdrawal);
    });
    await accountsWith(unlucky)
      .given(given)
      .whenHandled(credited)
      .thenExpect({ attempts: 21, models: [given.credit('-1')] });
  });

  test('is distinguished from one that succeeds', async () => {
    const handled = accountsWith(failing(2)).given(given).whenHandled(credited);
    await expect(handled.thenThrows(Unlucky)).rejects.toMatchObject(failed);
  });

  test('is reported with the error of its action', async () => {
    const overdrawing = onCredit(async (_envelope, context) => {
      await context.execute(WithdrawAction, { accountId: given.id, amount: '11' });
    });
    await accountsWith(overdrawing).given(given).whenHandled(credited).thenThrows(Overdrawn);
  });
});

describe('the effects of independent handlers', () => {
  const [left, right] = [account('1'), account('2')];
  const noted = ({ id }: typeof left, note: string): AccountNotedEvent => new AccountNotedEvent(id, note);

  /** Annotates one account with one note after the other. */
  function noting(
    name: string,
    { id }: typeof left,
    ...notes: readonly string[]
  ): ReturnType<typeof onCredit> {
    return onCredit(
      async (_envelope, context) => {
        for (const note of notes)
          await context.execute(AnnotateAction, { accountId: id, note }, { key: note });
      },
      { name },
    );
  }

  const handled = accountsWith(noting('note-left', left, 'a', 'b'), noting('note-right', right, 'c', 'd'))
    .given(given, left, right)
    .whenHandled(credited);
  const [a, b] = [noted(left, 'a'), noted(left, 'b')];
  const [c, d] = [noted(right, 'c'), noted(right, 'd')];

  test.each([
    ['one before the other', [a, b, c, d]],
    ['in the opposite order', [c, d, a, b]],
    ['in turns', [a, c, b, d]],
  ])('may be expected %s', async (_order, events) => {
    await handled.thenEvents(...events);
  });

  test('may be expected with their models in either order', async () => {
    await handled.thenModels(left.annotate('b'), right.annotate('d'));
    await handled.thenModels(right.annotate('d'), left.annotate('b'));
  });

  test('are compared in order among those of one handler', async () => {
    await expect(handled.thenEvents(b, a, c, d)).rejects.toMatchObject(failed);
    await expect(handled.thenEvents(a, d, c, b)).rejects.toMatchObject(failed);
  });

  test('are compared in order when one effect follows from another', async () => {
    const following = onCredit(
      async ({ modelId }, context) => {
        if (modelId === given.id.value)
          await context.execute(WithdrawAction, { accountId: right.id, amount: '1' });
      },
      { name: 'follow' },
    );
    const delivered = accountsWith(noting('note-left', left, 'a'), following)
      .given(given, left, right)
      .when(CreditAccountAction, { accountId: given.id, amount: '2.5' })
      .delivered();
    const first = like(AccountCreditedEvent, { modelId: given.id.value });
    const second = like(AccountCreditedEvent, { modelId: right.id.value });
    await delivered.thenEvents(first, a, second);
    await delivered.thenEvents(first, second, a);
    await expect(delivered.thenEvents(second, first, a)).rejects.toMatchObject(failed);
    await expect(delivered.thenEvents(a, first, second)).rejects.toMatchObject(failed);
  });

  test('are reported, if they differ, in the order that is closest to the expected one', async () => {
    await expect(handled.thenEvents(c, d, a, noted(left, 'x'))).rejects.toMatchObject({
      ...failed,
      actual: [c, d, a, b].map(({ note }) => ({ note })),
    });
  });
});
