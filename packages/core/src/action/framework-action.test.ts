import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { VirtualClock } from '../../test/virtual-clock.js';
import { ActionRegistry, type AnyAction } from './action-registry.js';
import {
  Action,
  type ActionClass,
  FrameworkAction,
  actionNameOf,
  declaredOptions,
  discoveredActions,
} from './action.js';

const params = z.object({ note: z.string() });

abstract class NotingAction extends Action<{ readonly note: string }, string> {
  protected async perform(): Promise<string> {
    return this.constructor.name;
  }
}

@FrameworkAction({ name: 'decorated', params })
class DecoratedAction extends NotingAction {}

@FrameworkAction()
class BareAction extends NotingAction {}

class CalledAction extends NotingAction {}
FrameworkAction({ name: 'called' })(CalledAction);

class LegacyAction extends NotingAction {}
const LegacyResult = decorate([FrameworkAction({ name: 'legacy' })], LegacyAction);

class UnmarkedAction extends NotingAction {}

type ClassDecorator<C> = (target: C) => C | void;

/** Applies class decorators as the code that TypeScript emits with `experimentalDecorators` does. */
function decorate<C>(decorators: readonly ClassDecorator<C>[], target: C): C {
  return decorators.reduceRight((decorated, decorator) => decorator(decorated) ?? decorated, target);
}

const clock = new VirtualClock('2026-01-01T00:00:00Z');

/** Creates an action as a container would. */
function create(action: ActionClass<never, unknown>): AnyAction {
  return new (action as unknown as new (given: VirtualClock) => AnyAction)(clock);
}

describe('FrameworkAction', () => {
  test('marks classes as a decorator, as a call and as a legacy decorator, and leaves them unchanged', () => {
    expect(discoveredActions()).toEqual([DecoratedAction, BareAction, CalledAction, LegacyAction]);
    expect(LegacyResult).toBe(LegacyAction);
    expect(DecoratedAction.name).toBe('DecoratedAction');
  });

  test('keeps the declarations of a class', () => {
    expect(declaredOptions(DecoratedAction)).toEqual({ name: 'decorated', params });
    expect(declaredOptions(BareAction)).toEqual({});
    expect(declaredOptions(UnmarkedAction)).toEqual({});
  });

  test('does not mark the subclasses of a marked class', () => {
    class Subclass extends DecoratedAction {}
    expect(declaredOptions(Subclass)).toEqual({});
  });
});

describe('actionNameOf', () => {
  test('returns the name that a class declares, otherwise its class name', () => {
    expect([DecoratedAction, BareAction, UnmarkedAction].map(actionNameOf)).toEqual([
      'decorated',
      'BareAction',
      'UnmarkedAction',
    ]);
  });

  test('refuses a class that a bundler has renamed', () => {
    class a extends NotingAction {}
    expect(() => actionNameOf(a)).toThrow(expect.objectContaining({ code: 'invariant-violation' }));
  });
});

test('a registry discovers every marked class, under its durable name', () => {
  const registry = ActionRegistry.discover(create);
  const names = [DecoratedAction, BareAction, CalledAction, LegacyAction].map(
    (each) => registry.get(each).name,
  );
  expect(names).toEqual(['decorated', 'BareAction', 'called', 'legacy']);
  expect(() => registry.get(UnmarkedAction)).toThrow(expect.objectContaining({ code: 'unknown-action' }));
});
