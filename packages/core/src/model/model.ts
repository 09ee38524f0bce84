import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidModelError } from '../errors/value-errors.js';
import type { Id } from '../id/id.js';
import type { ModelEvent } from './model-event.js';
import { type Provenance, copyProvenance, giveAccess } from './provenance.js';

/** Any entity or model, where its type does not matter. */
export type AnyEntity = Entity<unknown, Id<unknown>, string>;

/**
 * An immutable object with an identity, a state and a version, but no events of its own.
 *
 * The constructor takes one object with all fields ({@link NewEntity}) and passes it to `super`. `copy` builds the next version by
 * calling it again. Only `copy` passes on where a version comes from: one that is built in another way is guarded by its number alone.
 * The class passes itself as the first type argument.
 */
export abstract class Entity<Self, I extends Id<Self>, State extends string> {
  readonly id: I;
  /** The current state of its life cycle; rows in state `DELETED` are never read. */
  readonly state: State;
  /** 0 until it is stored, 1 after the first commit, and 1 higher after each further commit. */
  readonly version: number;
  #provenance: Provenance | undefined;

  static {
    giveAccess({
      get: (entity) => (#provenance in entity ? entity.#provenance : undefined),
      set: (entity, provenance) => {
        if (#provenance in entity) entity.#provenance = provenance;
      },
    });
  }

  /** @throws InvalidModelError `invalid-model` when the version is not a whole number from 0 */
  constructor(fields: { readonly id: I; readonly state: State; readonly version?: number }) {
    this.id = fields.id;
    this.state = fields.state;
    this.version = checkedVersion(fields.version ?? 0);
  }

  /** Returns the entity with some fields changed, and leaves this one unchanged. */
  protected copy(changes: Partial<OwnFields<Self>> & { readonly state?: State }): Self {
    return rebuild(this, changes) as unknown as Self;
  }
}

function checkedVersion(version: number): number {
  if (Number.isSafeInteger(version) && version >= 0) return version;
  throw new InvalidModelError(`version must be a whole number from 0, not ${String(version)}`);
}

/**
 * Builds an entity of the same class from its fields and the changes, with its constructor.
 *
 * @throws InvariantViolationError `invariant-violation` when the constructor drops a field that the framework relies on
 */
export function rebuild<E extends object>(entity: E, changes: object): E {
  const constructor = entity.constructor as new (fields: object) => E;
  const fields = { ...entity, ...changes };
  const built = new constructor(fields);
  copyProvenance(entity, built);
  const lost = lostField(fields, built);
  if (lost !== undefined) {
    throw new InvariantViolationError(
      `The constructor of ${constructor.name} drops ${lost}: pass all fields on, as in super(fields)`,
    );
  }
  const hidden = lostGetter(entity, constructor);
  if (hidden === undefined) return built;
  throw new InvariantViolationError(
    `A copy of ${constructor.name} would lose ${hidden}: keep its value in a public readonly field, because private ones are not copied`,
  );
}

/** The getters of classes whose values are not known to survive a copy. */
const uncertainGetters = new WeakMap<object, Set<string>>();

/** A getter that would have no value in an unchanged copy, because it reads a private field. */
function lostGetter<E extends object>(entity: E, constructor: new (fields: object) => E): string | undefined {
  const uncertain = uncertainGetters.get(constructor) ?? gettersOf(constructor);
  uncertainGetters.set(constructor, uncertain);
  const known = [...uncertain].filter((name) => valueOf(entity, name) !== undefined);
  if (known.length === 0) return undefined;
  const copy = new constructor({ ...entity });
  for (const name of known) {
    if (valueOf(copy, name) === undefined) return name;
    uncertain.delete(name);
  }
  return undefined;
}

function gettersOf(constructor: { readonly prototype: object }): Set<string> {
  const getters = new Set<string>();
  let { prototype } = constructor;
  while (prototype !== Entity.prototype && prototype !== Object.prototype) {
    for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(prototype)))
      if ('get' in property && property.get !== undefined) getters.add(name);
    prototype = Object.getPrototypeOf(prototype) as object;
  }
  return getters;
}

/** The value of a getter; `undefined` if it throws. */
function valueOf(entity: object, name: string): unknown {
  try {
    return (entity as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

/** The fields that the framework sets. A lost event could be lost money. */
interface FrameworkFields {
  readonly id?: { readonly value: string };
  readonly version?: number;
  readonly createdDate?: unknown;
  readonly updatedDate?: unknown;
  readonly events?: readonly unknown[];
}

function lostField(given: FrameworkFields, built: FrameworkFields): string | undefined {
  if (built.version !== given.version) return 'version';
  if (built.id?.value !== given.id?.value) return 'id';
  if (built.events?.length !== given.events?.length) return 'events';
  if (!isSameTime(built.createdDate, given.createdDate)) return 'createdDate';
  return isSameTime(built.updatedDate, given.updatedDate) ? undefined : 'updatedDate';
}

/** Whether a date was kept; true if it was none, because an entity may use the name for another kind of field. */
function isSameTime(one: unknown, other: unknown): boolean {
  return !(other instanceof Date) || (one instanceof Date && Object.is(one.getTime(), other.getTime()));
}

/** Shared by all models that were read; frozen, so nothing can be added. */
const noEvents: readonly never[] = Object.freeze([]);

/**
 * An entity whose changes are recorded as events: a method returns the next version with an event attached.
 *
 * @example apps/counter/src/counter.ts
 *
 * ```ts
 * export class Counter extends Model<Counter, ShardedId<Counter>, 'OPEN'> {
 *   readonly value: number;
 *
 *   constructor(fields: New<Counter>) {
 *     super(fields);
 *     this.value = fields.value;
 *   }
 *
 *   static open(shard: ShardIdentifier, now: Date): Counter {
 *     const id = ShardedId.generate(Counter, shard);
 *     return new Counter({ id, state: 'OPEN', createdDate: now, value: 0 });
 *   }
 *
 *   increase(by: number): Counter {
 *     return this.copy({ value: this.value + by }, new CounterIncreasedEvent(this.id, by));
 *   }
 * }
 * ```
 */
export abstract class Model<Self, I extends Id<Self>, State extends string> extends Entity<Self, I, State> {
  readonly createdDate: Date;
  /** When the last version was staged; until then the created date. */
  readonly updatedDate: Date;
  /** The events since the model was read, in order; staging adds them to the plan. */
  readonly events: readonly ModelEvent<Self>[];

  constructor(fields: {
    readonly id: I;
    readonly state: State;
    readonly createdDate: Date;
    readonly version?: number;
    readonly updatedDate?: Date;
    readonly events?: readonly ModelEvent<Self>[];
  }) {
    super(fields);
    this.createdDate = fields.createdDate;
    this.updatedDate = fields.updatedDate ?? fields.createdDate;
    this.events = fields.events === undefined ? noEvents : Object.freeze([...fields.events]);
  }

  /** Returns the model with some fields changed and the events of the change attached. */
  protected override copy(
    changes: Partial<OwnFields<Self>> & { readonly state?: State },
    ...events: readonly ModelEvent<Self>[]
  ): Self {
    return rebuild(this, { ...changes, events: [...this.events, ...events] }) as unknown as Self;
  }

  /** Returns the model with events attached, for a new model. */
  protected emit(...events: readonly ModelEvent<Self>[]): Self {
    return rebuild(this, { events: [...this.events, ...events] }) as unknown as Self;
  }
}

/** The fields that every model has, and that its class does not add. */
type FrameworkField = 'id' | 'state' | 'version' | 'createdDate' | 'updatedDate' | 'events';

/** The public fields that a model's class adds to the framework's, without methods. */
export type OwnFields<T> = {
  readonly [
    K in keyof T as K extends FrameworkField | symbol
      ? never
      : T[K] extends (...args: never[]) => unknown
        ? never
        : K
  ]: T[K];
};

/** The constructor argument of an entity: id, state and its own fields, and the version if it is stored. */
export type NewEntity<T extends { readonly id: Id<unknown>; readonly state: string }> = Pick<
  T,
  'id' | 'state'
> &
  OwnFields<T> & { readonly version?: number };

/** The constructor argument of a model: that of an entity, with dates and attached events. */
export type New<T extends { readonly id: Id<unknown>; readonly state: string; readonly createdDate: Date }> =
  NewEntity<T> & {
    readonly createdDate: Date;
    readonly updatedDate?: Date;
    readonly events?: readonly ModelEvent<T>[];
  };

/**
 * Returns the value if it is present, for constructors of models that also read untrusted input.
 *
 * @throws InvalidModelError `invalid-model` with the message when the value is `null` or `undefined`
 */
export function notNull<T>(value: T, message: string): NonNullable<T> {
  if (value === null || value === undefined) throw new InvalidModelError(message);
  return value;
}
