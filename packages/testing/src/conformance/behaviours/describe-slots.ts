import { slotOf } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { changeSetOf } from '../change-set-of.js';
import { type SuiteContext, at, home } from '../suite-context.js';

/** Registers into which slots of the log events fall: all adapters and processes must agree. */
export function describeSlots(context: SuiteContext): void {
  describe('the slot of an event', () => {
    it.each(['a', '01a20098-e5a5-7000-8000-c4b13c4486dc', 'ada/Übung', '𝒳'])(
      'of the model %j is the one into which core puts that id',
      async (modelId) => {
        const { databases, accounts } = context.fixture;
        const account = await context.openAccount(home);
        const next = account.credit('1').variant({ version: account.version + 1, events: [] });
        const { events, ...set } = changeSetOf(accounts, next, ['{}']);
        const ofModel = events.map((event) => ({ ...event, modelId }));
        await databases.transactionManager(home).persist({ ...set, events: ofModel });
        const stores = databases.deliveries().map(({ store }) => store);
        const found = await Promise.all(stores.map((store) => store.log.find(at(events, 0).id)));
        const index = found.findIndex((event) => event?.modelId === modelId);
        expect(found[index]?.slot).toBe(slotOf(modelId, at(stores, index).slotCount));
      },
    );
  });
}
