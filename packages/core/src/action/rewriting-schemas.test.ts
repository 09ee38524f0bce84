import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { z as z3 } from 'zod/v3';

import { executorOf, principal } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { systemClock } from '../clock.js';
import { ModelEvent, encodePayload } from '../model/model-event.js';
import { Action, type ActionPolicy, type Principal } from './action.js';
import { ActionRegistry, resultCodec } from './action-registry.js';

interface Note {
  readonly note: string;
  readonly lines: readonly string[];
}

/** The policy and `perform` add to the lines that they get. */
class NoteAction extends Action<Note, string> {
  static readonly params = z.object({ note: z.string().trim().toLowerCase(), lines: z.array(z.string()) });
  static readonly result = z.string();
  readonly seen: unknown[] = [];
  override readonly policy: ActionPolicy<Note> = {
    authorize: ({ params }) => {
      this.#see('policy', params);
    },
  };

  protected async perform(_principal: Principal, params: Note): Promise<string> {
    this.#see('perform', params);
    return params.note;
  }

  #see(who: string, params: Note): void {
    this.seen.push([who, structuredClone(params)]);
    (params.lines as string[]).push(who);
  }
}

describe('an action whose schema changes params', () => {
  const given = { note: ' ACME ', lines: ['a'] };
  const recorded = { note: 'acme', lines: ['a'] };

  test('decides and performs with exactly what the log records', async () => {
    const action = new NoteAction(systemClock);
    const { executor, driver } = executorOf(async () => undefined, { actions: [action] });
    expect(await executor.execute(principal, NoteAction, given)).toBe('acme');
    expect(JSON.parse(driver.committed[0]?.action.params ?? '')).toEqual(recorded);
    expect(action.seen).toEqual([
      ['policy', recorded],
      ['perform', recorded],
    ]);
    expect(given).toEqual({ note: ' ACME ', lines: ['a'] });
  });

  test('treats requests as the same that it performs in the same way', async () => {
    const action = new NoteAction(systemClock);
    const { executor } = executorOf(async () => undefined, { actions: [action] });
    const key = { idempotencyKey: 'key-1' };
    expect(await executor.execute(principal, NoteAction, given, key)).toBe('acme');
    expect(await executor.execute(principal, NoteAction, recorded, key)).toBe('acme');
    const other = { note: 'other', lines: ['a'] };
    await expect(executor.execute(principal, NoteAction, other, key)).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
    expect(action.seen).toHaveLength(2);
  });
});

test('an event that its schema would change is refused', () => {
  class NotedEvent extends ModelEvent<Wallet> {
    static readonly payload = z.object({ lines: z.array(z.object({ text: z.string().trim() })) });
    readonly lines: readonly { readonly text: string }[];
    constructor(...lines: readonly string[]) {
      super('wallet-1', Wallet);
      this.lines = lines.map((text) => ({ text }));
    }
  }
  expect(encodePayload(new NotedEvent('a', 'b'))).toBe('{"lines":[{"text":"a"},{"text":"b"}]}');
  expect(() => encodePayload(new NotedEvent('a', ' b'))).toThrow(
    expect.objectContaining({ code: 'unstorable-value', path: 'NotedEvent.lines[1].text' }),
  );
});

test('a result that its schema would change is refused, because a repeat would return another one', () => {
  const codec = resultCodec('NoteAction', z.object({ note: z.string().trim() }));
  expect(codec.encode({ note: 'a' })).toBe('{"note":"a"}');
  expect(() => codec.encode({ note: ' a' })).toThrow(
    expect.objectContaining({ code: 'unstorable-value', path: 'NoteAction result.note' }),
  );
});

describe('a schema of another major version of zod', () => {
  const schema: unknown = z3.object({ note: z3.string() });

  test.each([
    ['params', { params: schema }],
    ['result', { result: schema }],
  ])('is refused at registration (%s)', (part, declaration) => {
    class OldAction extends Action<unknown, unknown> {
      protected async perform(): Promise<void> {}
    }
    Object.assign(OldAction, declaration);
    expect(() => new ActionRegistry([new OldAction(systemClock)])).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringMatching(new RegExp(`${part} of OldAction .*zod 3: use zod 4`)),
      }),
    );
  });

  test('is refused when its event class is claimed for a handler', () => {
    class OldEvent extends ModelEvent<Wallet> {
      static readonly payload = schema as z.ZodObject;
    }
    const { executor } = executorOf(async () => undefined);
    expect(() => executor.claimEventTypes([OldEvent])).toThrow(/fields of OldEvent .*zod 3: use zod 4/);
  });
});
