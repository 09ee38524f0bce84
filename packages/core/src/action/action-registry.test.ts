import { expect, test } from 'vitest';

import { VirtualClock } from '../../test/virtual-clock.js';
import { ActionRegistry } from './action-registry.js';
import { Action, FrameworkAction } from './action.js';

const clock = new VirtualClock('2026-01-01T00:00:00Z');

class FirstAction extends Action<null, string> {
  protected async perform(): Promise<string> {
    return 'first';
  }
}

class SecondAction extends FirstAction {}

test('holds actions that are not marked, under their class names', () => {
  const first = new FirstAction(clock);
  const registered = new ActionRegistry([first]).get(FirstAction);
  expect(registered).toMatchObject({ name: 'FirstAction', action: first });
});

test('does not take an action for its superclass', () => {
  const registry = new ActionRegistry([new SecondAction(clock)]);
  expect(() => registry.get(FirstAction)).toThrow(
    expect.objectContaining({ code: 'unknown-action', message: expect.stringContaining('FirstAction') }),
  );
});

test('refuses two instances of one class', () => {
  expect(() => new ActionRegistry([new FirstAction(clock), new FirstAction(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('twice') }),
  );
});

test('refuses two classes of one durable name', () => {
  class RenamedAction extends FirstAction {}
  FrameworkAction({ name: 'FirstAction' })(RenamedAction);
  expect(() => new ActionRegistry([new FirstAction(clock), new RenamedAction(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('FirstAction') }),
  );
});

test('refuses a class whose name a bundler has taken, unless it declares one', () => {
  const anonymous = (() => class extends FirstAction {})();
  expect(() => new ActionRegistry([new anonymous(clock)])).toThrow(
    expect.objectContaining({ code: 'invariant-violation' }),
  );
  FrameworkAction({ name: 'Declared' })(anonymous);
  expect(new ActionRegistry([new anonymous(clock)]).get(anonymous).name).toBe('Declared');
});
