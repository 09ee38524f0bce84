import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { key } from '../../test/counting-executor.js';
import { executorOf, principal } from '../../test/test-executor.js';
import { Action, FrameworkAction, type Principal } from '../action/action.js';
import { systemClock } from '../clock.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';

/** The same action as different deployments declare it, each with its own schema. */
function deployed(params: z.ZodType<Record<string, unknown>>, databases?: DatabaseRegistry) {
  class DeployedAction extends Action<Record<string, unknown>> {
    protected async perform(): Promise<void> {}
  }
  FrameworkAction({ name: 'deployed', params })(DeployedAction);
  const actions = [new DeployedAction(systemClock)];
  const running = executorOf(async () => undefined, { ...(databases && { databases }), actions });
  const execute = (given: Record<string, unknown>): Promise<void> =>
    running.executor.execute(principal, DeployedAction, given, key);
  return { databases: databases ?? running.databases, driver: running.driver, execute };
}

describe('a request that is repeated after a deployment', () => {
  const before = z.object({ sku: z.string(), count: z.int() });

  test.each<[string, z.ZodType<Record<string, unknown>>, Record<string, unknown>]>([
    ['a field with a default', before.extend({ color: z.string().default('red') }), { color: 'red' }],
    ['an optional field', before.extend({ color: z.string().optional() }), { color: undefined }],
    ['another order of their fields', z.object({ count: z.int(), sku: z.string() }), {}],
    ['a default for a field that they had', before.extend({ count: z.int().default(1) }), {}],
  ])('is recognised when the deployment gave the params %s', async (_what, after, added) => {
    const old = deployed(before);
    await old.execute({ sku: 'a', count: 1 });
    const next = deployed(after, old.databases);
    await next.execute({ sku: 'a', count: 1, ...added });
    expect(old.driver.committed).toHaveLength(1);
  });

  test('is a different request when the added field does not have its default value', async () => {
    const old = deployed(before);
    await old.execute({ sku: 'a', count: 1 });
    const next = deployed(before.extend({ color: z.string().default('red') }), old.databases);
    await expect(next.execute({ sku: 'a', count: 1, color: 'blue' })).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
  });
});

describe('a different request with the same key', () => {
  const amount = { amount: z.int() };

  test.each<[string, z.ZodType<Record<string, unknown>>, Record<string, unknown>, Record<string, unknown>]>([
    [
      'another variant of a union, told apart by a default',
      z.union([
        z.object({ kind: z.literal('deposit').default('deposit'), ...amount }),
        z.object({ kind: z.literal('withdraw').default('withdraw'), ...amount }),
      ]),
      { kind: 'deposit', amount: 1 },
      { kind: 'withdraw', amount: 1 },
    ],
    [
      'another default field of a union',
      z.union([z.strictObject({ x: z.int().default(1) }), z.strictObject({ y: z.int().default(1) })]),
      { x: 1 },
      { y: 1 },
    ],
    [
      'the other one of the two defaults of an intersection',
      z.intersection(z.object({ x: z.int().default(1) }), z.object({ x: z.int().default(2) })),
      { x: 1 },
      { x: 2 },
    ],
    [
      'the default of an optional field',
      z.object({ limit: z.int().default(100).optional() }),
      {},
      { limit: 100 },
    ],
    [
      'the prefault of an optional field',
      z.object({ limit: z.int().prefault(100).optional() }),
      {},
      { limit: 100 },
    ],
    ['the default of a field that may be undefined', z.object({ any: z.any().default(1) }), {}, { any: 1 }],
  ])('is refused when it names %s', async (_what, schema, one, other) => {
    const { driver, execute } = deployed(schema);
    await execute(one);
    await expect(execute(other)).rejects.toMatchObject({ code: 'idempotency-key-reused' });
    expect(driver.committed).toHaveLength(1);
  });

  test.each<[string, z.ZodType<Record<string, unknown>>]>([
    ['a record', z.record(z.string(), z.unknown())],
    ['an object that keeps other fields', z.looseObject({ a: z.int() })],
  ])('is refused when its params have a field named __proto__ in %s', async (_what, schema) => {
    const { driver, execute } = deployed(schema);
    const params = JSON.parse('{"a":1,"__proto__":{"x":1}}') as Record<string, unknown>;
    await expect(execute(params)).rejects.toMatchObject({
      code: 'invalid-params',
      issues: [{ path: '__proto__' }],
    });
    expect(driver.committed).toEqual([]);
  });

  test('may have fields with the names of properties that every object has', async () => {
    const { driver, execute } = deployed(z.looseObject({ a: z.int() }));
    await execute({ a: 1, constructor: 1, toString: 'x' });
    await execute({ a: 1, constructor: 1, toString: 'x' });
    expect(driver.committed).toHaveLength(1);
    await expect(execute({ a: 1 })).rejects.toMatchObject({ code: 'idempotency-key-reused' });
  });
});

describe('a request without a schema', () => {
  test('does not get the result of one whose params differ only in what JSON cannot represent', async () => {
    class GrantAction extends Action<{ readonly roles: ReadonlySet<string> }> {
      granted: string[] = [];
      protected async perform(_principal: Principal, { roles }: { readonly roles: ReadonlySet<string> }) {
        this.granted.push(...roles);
      }
    }
    const action = new GrantAction(systemClock);
    const { executor } = executorOf(async () => undefined, { actions: [action] });
    for (const role of ['reader', 'admin']) {
      const roles = new Set([role]);
      await expect(executor.execute(principal, GrantAction, { roles }, key)).rejects.toMatchObject({
        code: 'unstorable-value',
        path: 'GrantAction params.roles',
      });
    }
    expect(action.granted).toEqual([]);
  });
});
