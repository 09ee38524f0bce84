import { describe, expect, it } from 'vitest';
import { Account, SuiteContext, home, once } from '../../src/conformance/index.js';
import { ConnectionLost, type MemoryPassage } from '../../src/memory/index.js';
import { MemoryFixture } from './memory-fixture.js';

function opened(): { readonly fixture: MemoryFixture; readonly context: SuiteContext } {
  const fixture = new MemoryFixture();
  const context = new SuiteContext();
  context.open(fixture);
  return { fixture, context };
}

/** Loses the connection at a passage, once. */
function losing(operation: MemoryPassage['operation'], way: MemoryPassage['way']) {
  let isLost = false;
  return (passage: MemoryPassage): undefined => {
    if (isLost || passage.operation !== operation || passage.way !== way) return;
    isLost = true;
    throw new ConnectionLost();
  };
}

describe('the way to databases in memory', () => {
  it('takes as long as a fault wants, with the answer as it was before', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const gate = Promise.withResolvers<void>();
    fixture.faults.inject(({ operation, way }) =>
      operation === 'read' && way === 'answer' ? gate.promise : undefined,
    );
    const late = fixture.accounts.getById(account.id);
    const all = fixture.accounts.findAll();
    fixture.faults.inject(undefined);
    await context.credit(account, '1');
    gate.resolve();
    expect(await late).toEqual(account);
    expect(await all).toEqual([account]);
  });

  it.each([
    ['request', 1],
    ['answer', 2],
  ] as const)('loses the %s of a write, whose outcome the log tells', async (way, version) => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(losing('persist', way));
    const outcome = await context.credit(account, '1', once).then(
      () => 'done',
      (error: { readonly code: string }) => error.code,
    );
    expect(outcome).toBe(way === 'answer' ? 'done' : 'transient-storage');
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version });
  });

  it('leaves an outcome unknown that nobody can ask for', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(({ operation }) => {
      if (operation !== 'read') throw new ConnectionLost();
      return undefined;
    });
    await expect(context.credit(account, '1', once)).rejects.toMatchObject({
      code: 'commit-outcome-unknown',
    });
  });

  it('fails a read whose connection it loses as transient', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(losing('read', 'request'));
    const manager = fixture.databases.transactionManager(home);
    await expect(fixture.accounts.findById(account.id)).rejects.toMatchObject({ code: 'transient-storage' });
    fixture.faults.inject(losing('find-key', 'answer'));
    const scope = { namespace: 'a', principal: 'b', key: 'c' };
    await expect(manager.keys.find(scope)).rejects.toMatchObject({ code: 'transient-storage' });
    expect(account).toBeInstanceOf(Account);
  });
});
