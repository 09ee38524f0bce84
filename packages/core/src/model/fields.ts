import type { Id } from '../id/id.js';
import type { ModelEvent } from './model-event.js';

type FrameworkField = 'id' | 'state' | 'version' | 'createdDate' | 'updatedDate' | 'events';

/** The public fields that a model's class adds to the framework's; methods do not count. */
export type OwnFields<T> = {
  readonly [
    K in keyof T as K extends FrameworkField ? never : T[K] extends (...args: never[]) => unknown ? never : K
  ]: T[K];
};

/** What the constructor of an entity takes: id, state and its own fields; the version when it was stored. */
export type NewEntity<T extends { readonly id: Id<unknown>; readonly state: string }> = Pick<
  T,
  'id' | 'state'
> &
  OwnFields<T> & { readonly version?: number };

/** What the constructor of a model takes: as for an entity, with its dates and attached events. */
export type New<T extends { readonly id: Id<unknown>; readonly state: string; readonly createdDate: Date }> =
  NewEntity<T> & {
    readonly createdDate: Date;
    readonly updatedDate?: Date;
    readonly events?: readonly ModelEvent<T>[];
  };
