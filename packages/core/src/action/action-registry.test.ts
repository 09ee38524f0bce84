import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { FakeRepository } from '../../test/fake-repository.js';
import { Order } from '../../test/order.js';
import { executorOf, openWallet } from '../../test/test-executor.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { ModelJsonCodec, ModelMapper } from '../storage/repository.js';
import { ActionRegistry, type RegisteredAction } from './action-registry.js';
import { Action, FrameworkAction } from './action.js';

const clock = new VirtualClock('2026-01-01T00:00:00Z');

class FirstAction extends Action<null, string> {
  protected async perform(): Promise<string> {
    return 'first';
  }
}

class SecondAction extends FirstAction {}

test('a registry contains unmarked actions under their class names', () => {
  const first = new FirstAction(clock);
  const registered = new ActionRegistry([first]).get(FirstAction);
  expect(registered).toMatchObject({ name: 'FirstAction', action: first });
});

test('a registry does not confuse an action with its superclass', () => {
  const registry = new ActionRegistry([new SecondAction(clock)]);
  expect(() => registry.get(FirstAction)).toThrow(
    expect.objectContaining({ code: 'unknown-action', message: expect.stringContaining('FirstAction') }),
  );
});

test('a registry names what is passed in place of a class of actions', () => {
  const missing = undefined as unknown as typeof FirstAction;
  expect(() => new ActionRegistry([]).get(missing)).toThrow(
    expect.objectContaining({
      code: 'unknown-action',
      message: expect.stringMatching(/^undefined is not registered/),
    }),
  );
});

test('a registry refuses two instances of one class', () => {
  expect(() => new ActionRegistry([new FirstAction(clock), new FirstAction(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('twice') }),
  );
});

test('a registry refuses two classes with one durable name', () => {
  class RenamedAction extends FirstAction {}
  FrameworkAction({ name: 'FirstAction' })(RenamedAction);
  expect(() => new ActionRegistry([new FirstAction(clock), new RenamedAction(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('FirstAction') }),
  );
});

test('a registry refuses a class that a bundler has renamed, unless it declares a name', () => {
  const anonymous = (() => class extends FirstAction {})();
  expect(() => new ActionRegistry([new anonymous(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation' }),
  );
  FrameworkAction({ name: 'Declared' })(anonymous);
  expect(new ActionRegistry([new anonymous(clock)]).get(anonymous).name).toBe('Declared');
});

test('a registry reads the declarations in static fields, which a decorator overrides', () => {
  const params = z.object({ note: z.string() });
  class NotingAction extends Action<{ readonly note: string }, string> {
    static readonly actionName: string = 'note.v1';
    static readonly params = params;
    static readonly result = z.string();
    protected async perform(_principal: object, { note }: { readonly note: string }): Promise<string> {
      return note;
    }
  }
  const registered = new ActionRegistry([new NotingAction(clock)]).get(NotingAction);
  expect(registered).toMatchObject({ name: 'note.v1', paramsSchema: params });
  expect(registered.resultCodec.encode('noted')).toBe('"noted"');
  FrameworkAction({ name: 'note.v2' })(NotingAction);
  expect(new ActionRegistry([new NotingAction(clock)]).get(NotingAction)).toMatchObject({
    name: 'note.v2',
    paramsSchema: params,
  });
});

test('a registry reads the static field where a decorator leaves an option undefined', () => {
  const params = z.object({ note: z.string() });
  class NotingAction extends Action<{ readonly note: string }, string> {
    static readonly actionName = 'noting.v1';
    static readonly params = params;
    protected async perform(_principal: object, { note }: { readonly note: string }): Promise<string> {
      return note;
    }
  }
  // JavaScript, and TypeScript without `exactOptionalPropertyTypes`, pass such options.
  const options = { name: undefined, params: undefined } as object;
  FrameworkAction(options)(NotingAction);
  const registered = new ActionRegistry([new NotingAction(clock)]).get(NotingAction);
  expect(registered).toMatchObject({ name: 'noting.v1', paramsSchema: params });
});

describe('an action whose result is a model', () => {
  class OpenAction extends Action<null, Wallet> {
    static readonly result = Wallet;
    protected async perform(): Promise<Wallet> {
      return openWallet();
    }
  }
  const actions = [new OpenAction(clock)];
  const wallet = openWallet();
  const jsonCodec: ModelJsonCodec<Wallet> = {
    encode: ({ id }) => JSON.stringify(id),
    decode: (json) => {
      if (json !== JSON.stringify(wallet.id)) throw new Error('another wallet');
      return wallet;
    },
  };
  const wallets = Object.assign(new FakeRepository(Wallet), { jsonCodec: () => jsonCodec });

  test('has its result written and read by the repository of the model', () => {
    const { resultCodec } = new ActionRegistry(actions, [new FakeRepository(Order), wallets]).get(OpenAction);
    const json = resultCodec.encode(wallet);
    expect(json).toBe(JSON.stringify(wallet.id.value));
    expect(resultCodec.decode(json)).toBe(wallet);
  });

  test.each<[string, (codec: ReturnType<typeof codecOf>) => unknown]>([
    ['does not write another model', (codec) => codec.encode({ id: wallet.id })],
    ['does not write what is not a model', (codec) => codec.encode(undefined)],
    ['does not read what its repository can no longer read', (codec) => codec.decode('"wallet"')],
    ['does not read a result of undefined', (codec) => codec.decode(undefined)],
  ])('has a codec that %s', (_what, work) => {
    expect(() => work(codecOf())).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OpenAction result' }),
    );
  });

  function codecOf(): RegisteredAction<null, Wallet>['resultCodec'] {
    return new ActionRegistry(actions, [wallets]).get(OpenAction).resultCodec;
  }

  test('is not written if it would be read as an instance of another class', () => {
    class Savings extends Wallet {}
    expect(() => codecOf().encode(Object.assign(new Savings(wallet), { id: wallet.id }))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OpenAction result' }),
    );
  });

  test('is compared by its fields, even if it has a text of its own', () => {
    class Noted extends Wallet {
      override toString(): string {
        return `wallet ${this.id.value}`;
      }
    }
    class OpenNotedAction extends Action<null, Wallet> {
      static readonly result = Noted;
      protected async perform(): Promise<Wallet> {
        return openWallet();
      }
    }
    const given = new Noted(wallet);
    const codec: ModelJsonCodec<Wallet> = {
      encode: () => '{}',
      decode: () => new Noted(Object.assign({}, given, { balance: 7n })),
    };
    const noted = Object.assign(new FakeRepository(Noted), { jsonCodec: () => codec });
    const { resultCodec } = new ActionRegistry([new OpenNotedAction(clock)], [noted]).get(OpenNotedAction);
    expect(() => resultCodec.encode(given)).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: expect.stringContaining('OpenNotedAction result.'),
      }),
    );
  });

  test.each<[string, readonly ModelMapper[]]>([
    ['has no repository', [new FakeRepository(Order)]],
    ['has one that writes no JSON', [new FakeRepository(Wallet)]],
  ])('that %s is refused by name when its executor is made', (_what, repositories) => {
    for (const given of [actions, new ActionRegistry(actions)]) {
      const fault = {
        code: 'invariant-violation',
        message: expect.stringMatching(/OpenAction.* Wallet/) as string,
      };
      expect(() => executorOf(async () => null, { repositories, actions: given })).toThrow(
        expect.objectContaining(fault),
      );
    }
  });
});
