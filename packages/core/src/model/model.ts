import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidModelError } from '../errors/value-errors.js';
import type { Id } from '../id/id.js';
import type { ModelEvent } from './model-event.js';

/** Any entity or model, where its type does not matter. */
export type AnyEntity = Entity<unknown, Id<unknown>, string>;

/**
 * An immutable thing with an identity, a state and a version, but no events of its own.
 *
 * The constructor takes one object with all fields ({@link NewEntity}) and passes it to `super`: the next
 * version is built by calling it again. The class names itself as first type argument.
 */
export abstract class Entity<Self, I extends Id<Self>, State extends string> {
  readonly id: I;
  /** What the entity's life cycle has reached; rows of state `DELETED` are never read. */
  readonly state: State;
  /** 0 until it is stored, 1 after the first commit, one more after each further one. */
  readonly version: number;

  /** @throws InvalidModelError `invalid-model` when the version does not count anything */
  constructor(fields: { readonly id: I; readonly state: State; readonly version?: number }) {
    this.id = fields.id;
    this.state = fields.state;
    this.version = checkedVersion(fields.version ?? 0);
  }

  /** The same entity with some fields changed; this one stays as it is. */
  protected copy(changes: Partial<OwnFields<Self>> & { readonly state?: State }): Self {
    return rebuild(this, changes) as unknown as Self;
  }
}

function checkedVersion(version: number): number {
  if (Number.isSafeInteger(version) && version >= 0) return version;
  throw new InvalidModelError(`version must be a whole number from 0 on, not ${String(version)}`);
}

/**
 * Builds an entity of the same class from its fields and the changed ones, through its constructor.
 *
 * @throws InvariantViolationError `invariant-violation` when the constructor lost what the framework counts on
 */
export function rebuild<E extends object>(entity: E, changes: object): E {
  const constructor = entity.constructor as new (fields: object) => E;
  const fields = { ...entity, ...changes };
  const built = new constructor(fields);
  const lost = lostField(fields, built);
  if (lost === undefined) return built;
  throw new InvariantViolationError(
    `The constructor of ${constructor.name} loses ${lost}: pass all fields on, as in super(fields)`,
  );
}

/** What the framework sets: an event that got lost would be money that got lost. */
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

/** An entity may have fields of these names that are no dates. */
function isSameTime(one: unknown, other: unknown): boolean {
  return !(other instanceof Date) || (one instanceof Date && Object.is(one.getTime(), other.getTime()));
}

/** Shared by all models that were read: nothing can be added to it. */
const noEvents: readonly never[] = Object.freeze([]);

/**
 * An entity whose changes are events: a method returns the next model, with the event attached.
 *
 * ```ts
 * class Wallet extends Model<Wallet, ShardedId<Wallet>, 'OPENED' | 'CLOSED'> {
 *   readonly balance: Big;
 *   constructor(fields: New<Wallet>) {
 *     super(fields);
 *     this.balance = notNull(fields.balance, 'balance cannot be null');
 *   }
 *   deposit(amount: Big): Wallet {
 *     const balance = this.balance.plus(amount);
 *     return this.copy({ balance }, new WalletMoneyDepositedEvent(this.id, amount, balance));
 *   }
 * }
 * ```
 */
export abstract class Model<Self, I extends Id<Self>, State extends string> extends Entity<Self, I, State> {
  readonly createdDate: Date;
  /** When the last version was staged; the created date until then. */
  readonly updatedDate: Date;
  /** What happened since the model was read, in order; staging takes them into the plan. */
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

  /** The same model with some fields changed and the events of that change attached. */
  protected override copy(
    changes: Partial<OwnFields<Self>> & { readonly state?: State },
    ...events: readonly ModelEvent<Self>[]
  ): Self {
    return rebuild(this, { ...changes, events: [...this.events, ...events] }) as unknown as Self;
  }

  /** The same model with events attached, as a new model does when it is created. */
  protected emit(...events: readonly ModelEvent<Self>[]): Self {
    return rebuild(this, { events: [...this.events, ...events] }) as unknown as Self;
  }
}

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

/**
 * Gives the value back when it is there, for constructors of models that also read foreign input.
 *
 * @throws InvalidModelError `invalid-model` with the message when it is `null` or `undefined`
 */
export function notNull<T>(value: T, message: string): NonNullable<T> {
  if (value === null || value === undefined) throw new InvalidModelError(message);
  return value;
}
