import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { key } from '../../test/counting-executor.js';
import { executorOf, principal } from '../../test/test-executor.js';
import { Action, FrameworkAction } from '../action/action.js';
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
