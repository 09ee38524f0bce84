import { context, propagation } from '@opentelemetry/api';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';

import { AsyncContextManager } from '../../test/async-context-manager.js';
import { executorOf, global, openWallet, principal } from '../../test/test-executor.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { HandledEvent } from '../storage/idempotency-keys.js';
import { Action, FrameworkAction, type Principal } from './action.js';

const sized = z.codec(z.string(), z.bigint(), {
  decode: (text) => BigInt(text),
  encode: (amount) => amount.toString(),
});

class DepositAction extends Action<{ readonly amount: bigint; readonly note?: string | undefined }, number> {
  static performed = 0;

  protected async perform(): Promise<number> {
    return ++DepositAction.performed;
  }
}

FrameworkAction({
  name: 'wallet.deposit.v1',
  params: z.object({ amount: sized, note: z.string().optional() }),
})(DepositAction);

function depositing(options: Parameters<typeof executorOf>[1] = {}): ReturnType<typeof executorOf> {
  return executorOf(async () => null, {
    ...options,
    actions: [new DepositAction(new VirtualClock('2026-01-01T00:00:00Z'))],
  });
}

describe('the record of an action', () => {
  test('states the request, its principal, its time and its namespace', async () => {
    const { execute, driver } = executorOf(async (plan) => plan().add(openWallet()));
    await execute({ amount: 5n, text: 'a' });
    const record: ActionRecord = {
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/) as string,
      name: 'TestAction',
      params: '{"amount":"5","text":"a"}',
      namespace: 'com.example.wallet',
      principal: 'alice',
      headers: '{}',
      startedDate: new Date('2026-03-03T03:03:03Z'),
    };
    expect(driver.committed[0]?.action).toEqual(record);
  });

  test('has a new id for each execution', async () => {
    const { execute, driver } = executorOf(async () => null);
    await execute();
    await execute();
    expect(driver.committed[0]?.action.id).not.toBe(driver.committed[1]?.action.id);
  });

  test('has the declared name, and the params as the declared schema writes them', async () => {
    const { executor, driver } = depositing();
    await executor.execute(principal, DepositAction, { amount: 12n });
    expect(driver.committed[0]?.action).toMatchObject({
      name: 'wallet.deposit.v1',
      params: '{"amount":"12"}',
    });
  });

  test('has the headers of the caller', async () => {
    const { execute, driver } = executorOf(async () => null);
    await execute(null, { headers: { 'correlation-id': 'c-1' } });
    expect(driver.committed[0]?.action.headers).toBe('{"correlation-id":"c-1"}');
  });

  test('omits undefined headers', async () => {
    const { execute, driver } = executorOf(async () => null);
    const headers = { 'correlation-id': undefined } as unknown as Record<string, string>;
    await execute(null, { headers });
    expect(driver.committed[0]?.action.headers).toBe('{}');
  });
});

describe('before perform is called', () => {
  test('params that do not fit the schema are refused with their paths', async () => {
    const { executor, driver } = depositing();
    const performedBefore = DepositAction.performed;
    const params = { amount: 1 as unknown as bigint, note: 2 as unknown as string };
    await expect(executor.execute(principal, DepositAction, params)).rejects.toMatchObject({
      code: 'invalid-params',
      issues: [
        { path: 'amount', message: expect.any(String) },
        { path: 'note', message: expect.any(String) },
      ],
    });
    expect(DepositAction.performed).toBe(performedBefore);
    expect(driver.committed).toEqual([]);
  });

  test.each([
    [
      'params with text that the database cannot hold',
      { note: 'a\u0000' },
      { code: 'unstorable-value', path: 'TestAction params.note' },
    ],
    ['params that are too long', 'x'.repeat(20), { code: 'limit-exceeded', limit: 'payloadCharactersMax' }],
  ])('%s are refused', async (_what, params, refusal) => {
    const { execute } = executorOf(neverPerformed, { limits: { payloadCharactersMax: 20 } });
    await expect(execute(params)).rejects.toMatchObject(refusal);
  });

  test('headers that the log cannot hold are refused', async () => {
    const { execute } = executorOf(neverPerformed);
    await expect(execute(null, { headers: { a: '\ud83d' } })).rejects.toMatchObject({
      code: 'unstorable-value',
    });
  });

  test.each<[string, unknown, string]>([
    ['a number', { attempt: 1 }, 'TestAction headers.attempt'],
    ['a list', { ids: ['a'] }, 'TestAction headers.ids'],
    ['null', { id: null }, 'TestAction headers.id'],
    ['a map', new Map([['id', 'a']]), 'TestAction headers'],
  ])('headers that are not strings are refused: %s', async (_what, headers, path) => {
    const { execute } = executorOf(neverPerformed);
    const refused = execute(null, { headers: headers as Record<string, string> });
    await expect(refused).rejects.toMatchObject({ code: 'unstorable-value', path });
  });

  test.each([undefined, null, 'alice', {}, { name: 5 }])(
    'a principal without a name is refused, and the message says what to pass: %j',
    async (nobody) => {
      const { executor } = depositing();
      const refused = executor.execute(nobody as unknown as Principal, DepositAction, { amount: 1n });
      await expect(refused).rejects.toMatchObject({
        code: 'invariant-violation',
        message: expect.stringContaining("such as { name: 'alice' }"),
      });
    },
  );

  test('an idempotency key that is not a string is refused', async () => {
    const { execute } = executorOf(neverPerformed);
    for (const idempotencyKey of [5, null, { a: 1 }])
      await expect(
        execute(null, { idempotencyKey: idempotencyKey as unknown as string }),
      ).rejects.toMatchObject({
        code: 'invalid-idempotency-key',
      });
  });

  test('a principal whose name the log cannot hold is refused', async () => {
    const { executor } = depositing();
    const refused = executor.execute({ name: 'al\u0000ice' }, DepositAction, { amount: 1n });
    const path = 'principal of wallet.deposit.v1';
    await expect(refused).rejects.toMatchObject({ code: 'unstorable-value', path });
  });

  test('a principal whose name no key can hold is refused, even without a key', async () => {
    const { executor } = depositing();
    const refused = executor.execute({ name: 'a'.repeat(256) }, DepositAction, { amount: 1n });
    await expect(refused).rejects.toMatchObject({ code: 'limit-exceeded', limit: 'principalCharactersMax' });
    await executor.execute({ name: 'a'.repeat(255) }, DepositAction, { amount: 1n });
  });

  test('headers may be as long as the limit, plus what a handler adds', async () => {
    const { executor } = depositing({ limits: { payloadCharactersMax: 40 } });
    const deposit = (length: number, handledEvent?: HandledEvent): Promise<unknown> => {
      const headers = { a: 'x'.repeat(length - '{"a":""}'.length) };
      return executor.execute(
        principal,
        DepositAction,
        { amount: 1n },
        {
          headers,
          ...(handledEvent && { handledEvent }),
        },
      );
    };
    await deposit(40);
    await expect(deposit(41)).rejects.toMatchObject({ code: 'limit-exceeded' });
    await deposit(100, { handler: 'handler', eventId: '0', shard: global });
  });
});

async function neverPerformed(): Promise<never> {
  throw new Error('it was performed');
}

describe('with a propagator', () => {
  const key = Symbol('trace');

  beforeAll(() => {
    context.setGlobalContextManager(new AsyncContextManager());
    propagation.setGlobalPropagator({
      inject: (active, carrier, setter) => {
        const trace = active.getValue(key);
        if (trace instanceof Error) throw trace;
        if (typeof trace === 'string') setter.set(carrier, 'traceparent', trace);
      },
      extract: (active) => active,
      fields: () => ['traceparent'],
    });
  });

  afterAll(() => {
    context.disable();
    propagation.disable();
  });

  test('the trace context of the caller is written beside the headers', async () => {
    const { execute, driver } = executorOf(async () => null);
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    await context.with(context.active().setValue(key, traceparent), () =>
      execute(null, { headers: { 'correlation-id': 'c-1', traceparent: 'forged' } }),
    );
    expect(JSON.parse(driver.committed[0]?.action.headers ?? '')).toEqual({
      'correlation-id': 'c-1',
      traceparent,
    });
  });

  test.each(['\ud83d', '\0', '', 'x'.repeat(1_014)])(
    'a trace context that is not what the log may hold is left out: %j',
    async (trace) => {
      const { execute, driver } = executorOf(async () => null);
      await context.with(context.active().setValue(key, trace), () => execute());
      expect(driver.committed[0]?.action.headers).toBe('{}');
    },
  );

  test('a trace context is written up to its limit', async () => {
    const { execute, driver } = executorOf(async () => null);
    const traceparent = 'x'.repeat(1_013);
    await context.with(context.active().setValue(key, traceparent), () => execute());
    expect(JSON.parse(driver.committed[0]?.action.headers ?? '')).toEqual({ traceparent });
  });

  test('an error of the propagator does not fail the action', async () => {
    const { execute, driver } = executorOf(async () => null);
    await context.with(context.active().setValue(key, new Error('the propagator has a bug')), () =>
      execute(),
    );
    expect(driver.committed[0]?.action.headers).toBe('{}');
  });

  test('headers that are as long as the limit can be handed on by a handler, whatever their trace context', async () => {
    const { execute, driver } = executorOf(async () => null, { limits: { payloadCharactersMax: 40 } });
    const headers = { a: 'x'.repeat(40 - '{"a":""}'.length) };
    await context.with(context.active().setValue(key, '"'.repeat(1_013)), () => execute(null, { headers }));
    const carried = JSON.parse(driver.committed[0]?.action.headers ?? '') as Record<string, string>;
    const event = { handler: 'handler', eventId: '0', shard: global };
    const handed = { ...carried, 'causation-id': 'c'.repeat(36) };
    await execute(null, { headers: handed, handledEvent: event });
    expect(driver.committed).toHaveLength(2);
  });
});
