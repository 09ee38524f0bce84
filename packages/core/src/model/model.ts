import type { Id } from '../id/id.js';
import { Entity, rebuild } from './entity.js';
import type { OwnFields } from './fields.js';
import type { ModelEvent } from './model-event.js';

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
