// Only type-checked: what must compile, and after each @ts-expect-error what must not.
import * as z from 'zod';
import {
  Action,
  type ActionClass,
  ActionExecutor,
  type ActionRegistry,
  type Clock,
  type DatabaseRegistry,
  type ErrorCode,
  type EventClass,
  type ExecutionConfiguration,
  FrameworkAction,
  type FrameworkError,
  Id,
  Model,
  ModelEvent,
  type New,
  type NewEntity,
  type Plan,
  type Principal,
  type Page,
  type Repository,
  type ShardIdentifier,
  ShardedId,
  defineEvent,
  defineModel,
  type notNull,
  shardedIdCodec,
} from '../src/index.js';
import type { OwnFields } from '../src/model/model.js';
import { type ModelMapper, decodeEvent } from '../src/adapter.js';
import { FakeRepository } from './fake-repository.js';
import { Address, Order, OrderShippedEvent } from './order.js';
import { Wallet, WalletDepositedEvent } from './wallet.js';

type IsAny<T> = 0 extends 1 & T ? true : false;
type Same<A, B> = IsAny<A> extends true ? false : [A, B] extends [B, A] ? true : false;

/** Compiles only for `true`. */
declare function holds<Claim extends true>(claim?: Claim): Claim;

declare const clock: Clock;
declare const databases: DatabaseRegistry;
declare const principal: Principal;
declare const plan: Plan;
declare const shard: ShardIdentifier;
declare const wallet: Wallet;
declare const order: Order;
declare const address: Address;
declare const walletId: ShardedId<Wallet>;
declare const orderId: ShardedId<Order>;
const now = new Date();

interface Params {
  readonly walletId: Id<Wallet>;
  readonly amount: bigint;
  readonly recipient?: string;
}

class DepositAction extends Action<Params, Wallet> {
  constructor(
    given: Clock,
    private readonly wallets: FakeRepository<Wallet>,
  ) {
    super(given);
  }

  protected async perform(_principal: Principal, params: Params): Promise<Wallet> {
    const found = await this.wallets.getById(params.walletId);
    const updated = this.plan().update(found.deposit(params.amount));
    holds<Same<typeof updated, Wallet>>();
    return updated;
  }
}

class PingAction extends Action<void, { readonly pong: true }> {
  protected async perform(): Promise<{ readonly pong: true }> {
    return { pong: true };
  }
}

class RemindAction extends Action<Params> {
  protected async perform(): Promise<void> {}
}

export async function execution(wallets: FakeRepository<Wallet>): Promise<void> {
  const executor = new ActionExecutor({
    namespace: 'com.example',
    databases,
    repositories: [wallets, new FakeRepository(Order), new FakeRepository(Address)],
    actions: [new DepositAction(clock, wallets), new PingAction(clock), new RemindAction(clock)],
  });

  const deposited = await executor.execute(principal, DepositAction, { walletId, amount: 5n });
  holds<Same<typeof deposited, Wallet>>();
  const reminded = executor.execute(principal, RemindAction, { walletId, amount: 5n });
  holds<Same<typeof reminded, Promise<void>>>();
  const ping = await executor.execute(principal, PingAction, undefined, { allowCrossShard: true });
  holds<Same<typeof ping, { readonly pong: true }>>();

  // @ts-expect-error a number is not an exact amount
  await executor.execute(principal, DepositAction, { walletId, amount: 25.5 });
  // @ts-expect-error the id of another model
  await executor.execute(principal, DepositAction, { walletId: orderId, amount: 5n });
  // @ts-expect-error an id as text
  await executor.execute(principal, DepositAction, { walletId: walletId.value, amount: 5n });
  // @ts-expect-error a missing param
  await executor.execute(principal, DepositAction, { walletId });
  // @ts-expect-error an unknown param
  await executor.execute(principal, DepositAction, { walletId, amount: 5n, currency: 'EUR' });
  // @ts-expect-error no params at all
  await executor.execute(principal, DepositAction);
  // @ts-expect-error an unknown setting
  await executor.execute(principal, DepositAction, { walletId, amount: 5n }, { crossShard: true });
  // @ts-expect-error a class that is not an action
  await executor.execute(principal, Wallet, { walletId, amount: 5n });
  // @ts-expect-error an instance instead of the class
  await executor.execute(principal, new PingAction(clock), undefined);
}

export function models(): void {
  const fields = {
    id: walletId,
    state: 'OPENED',
    createdDate: now,
    ownerId: 'owner-1',
    balance: 1n,
  } as const;
  const stored = { version: 3, updatedDate: now, events: [] };
  holds<Same<OwnFields<Wallet>, { readonly ownerId: string; readonly balance: bigint }>>();
  void new Wallet(fields);
  void new Wallet({ ...fields, ...stored });
  const addressFields = { id: ShardedId.generate(Address, shard), state: 'KNOWN', city: 'Riga' } as const;
  void new Address({ ...addressFields, version: 2 });

  const { balance: _balance, ...withoutBalance } = fields;
  // @ts-expect-error a missing own field
  void new Wallet(withoutBalance);
  const { createdDate: _createdDate, ...withoutDate } = fields;
  // @ts-expect-error a missing date
  void new Wallet(withoutDate);
  // @ts-expect-error a state that a wallet does not have
  void new Wallet({ ...fields, state: 'PLACED' });
  // @ts-expect-error the id of another model
  void new Wallet({ ...fields, id: orderId });
  // @ts-expect-error an id without a shard
  void new Wallet({ ...fields, id: Id.of(Wallet, 'wallet-1') });
  // @ts-expect-error an unknown field
  void new Wallet({ ...fields, nothing: 1 });
  // @ts-expect-error a number is not an exact amount
  void new Wallet({ ...fields, balance: 1.5 });
  // @ts-expect-error an event of another model
  void new Wallet({ ...fields, events: [new OrderShippedEvent(orderId)] });
  // @ts-expect-error an entity has no dates
  void new Address({ ...addressFields, createdDate: now });

  // @ts-expect-error models are immutable
  wallet.balance = 2n;
  // @ts-expect-error the list of events, too
  wallet.events.push(new WalletDepositedEvent(walletId, 1n, 1n));
  // @ts-expect-error only a model makes its next version
  wallet.copy({ balance: 2n });

  holds<
    Same<keyof New<Wallet>, keyof OwnFields<Wallet> | keyof typeof stored | 'id' | 'state' | 'createdDate'>
  >();
  holds<Same<keyof NewEntity<Address>, 'id' | 'state' | 'version' | 'city'>>();
}

export class CopyingWallet extends Wallet {
  allowed(): readonly Wallet[] {
    const event = new WalletDepositedEvent(this.id, 1n, 1n);
    const copied = this.copy({ balance: 2n, ownerId: 'owner-2', state: 'CLOSED' }, event, event);
    holds<Same<typeof copied, Wallet>>();
    return [copied, this.copy({}), this.emit(event)];
  }

  refused(): void {
    // @ts-expect-error an unknown field
    this.copy({ nothing: 1 });
    // @ts-expect-error a field of another type
    this.copy({ balance: 1.5 });
    // @ts-expect-error an event of another model
    this.copy({}, new OrderShippedEvent(orderId));
    // @ts-expect-error an event of another model
    this.emit(new OrderShippedEvent(orderId));
    // @ts-expect-error a state that a wallet does not have
    this.copy({ state: 'PLACED' });
    // @ts-expect-error versions are counted by the plan
    this.copy({ version: 7 });
    // @ts-expect-error the identity does not change
    this.copy({ id: walletId });
    // @ts-expect-error events are attached, not replaced
    this.copy({ events: [] });
    // @ts-expect-error methods are not fields
    this.copy({ deposit: (): Wallet => wallet });
  }
}

export function ids(): void {
  const id: Id<Wallet> = walletId;
  const any: Id<unknown> = walletId;
  holds<Same<ReturnType<typeof walletId.resolveShardIdentifier>, ShardIdentifier>>();
  const generated = ShardedId.generate(Wallet, shard);
  holds<Same<typeof generated, ShardedId<Wallet>>>();
  void new WalletDepositedEvent(generated, 1n, 1n);
  void new WalletDepositedEvent(id, 1n, 1n);
  walletId.equals(id);

  // @ts-expect-error the id of an order is not the id of a wallet
  const ofWallet: Id<Wallet> = orderId;
  // @ts-expect-error nor the other way round
  const ofOrder: Id<Order> = walletId;
  // @ts-expect-error an id alone has no shard
  const sharded: ShardedId<Wallet> = id;
  // @ts-expect-error ids of two models are never equal
  walletId.equals(orderId);
  // @ts-expect-error an event belongs to its model
  void new WalletDepositedEvent(orderId, 1n, 1n);
  // @ts-expect-error a text is not an id
  void new WalletDepositedEvent('wallet-1', 1n, 1n);
  // @ts-expect-error ids are made by of and generate
  void new ShardedId<Wallet>('wallet-1');
  // @ts-expect-error a shard is made by of
  const unchecked: ShardIdentifier = { group: 0, member: 0 };

  const read = shardedIdCodec(Wallet).parse(id.value);
  holds<Same<typeof read, ShardedId<Wallet>>>();
  void [any, ofWallet, ofOrder, sharded, unchecked];
}

/** Two models with the same shape, distinguished by the one line that each declares. */
class Invoice extends Model<Invoice, ShardedId<Invoice>, 'OPEN' | 'PAID'> {
  declare protected readonly brand: 'Invoice';
  readonly amount: bigint;

  constructor(fields: New<Invoice>) {
    super(fields);
    this.amount = fields.amount;
  }

  pay(): Invoice {
    return this.copy({ state: 'PAID' }, new InvoicePaidEvent(this.id));
  }
}

class InvoicePaidEvent extends ModelEvent<Invoice> {
  static readonly payload = z.object({});

  constructor(invoiceId: Id<Invoice>) {
    super(invoiceId.toString(), Invoice);
  }
}

class Receipt extends Model<Receipt, ShardedId<Receipt>, 'OPEN' | 'PAID'> {
  declare protected readonly brand: 'Receipt';
  readonly amount: bigint;

  constructor(fields: New<Receipt>) {
    super(fields);
    this.amount = fields.amount;
  }

  pay(): Receipt {
    // @ts-expect-error an event of another model, although it has the same shape
    return this.copy({ state: 'PAID' }, new InvoicePaidEvent(this.id));
  }
}

/** A model without fields: only its brand distinguishes it from other models with such states. */
class Marker extends Model<Marker, ShardedId<Marker>, string> {
  declare protected readonly brand: 'Marker';
}

export function brandedModels(invoiceId: ShardedId<Invoice>, receiptId: ShardedId<Receipt>): void {
  void new Invoice({ id: invoiceId, state: 'OPEN', createdDate: now, amount: 1n });
  const any: Id<unknown> = invoiceId;
  const own: Id<Invoice> = ShardedId.generate(Invoice, shard);
  holds<Same<keyof OwnFields<Invoice>, 'amount'>>();
  const repository: ModelMapper = new FakeRepository(Invoice);
  const staged = plan.add(new Receipt({ id: receiptId, state: 'OPEN', createdDate: now, amount: 1n }).pay());
  holds<Same<typeof staged, Receipt>>();

  // @ts-expect-error the id of another model with the same shape
  const ofReceipt: Id<Receipt> = invoiceId;
  // @ts-expect-error the id of a model with more members
  const ofMarker: Id<Marker> = invoiceId;
  // @ts-expect-error a model with the id of another one
  void new Invoice({ id: receiptId, state: 'OPEN', createdDate: now, amount: 1n });
  // @ts-expect-error a schema for the ids of another model
  const schema: z.ZodType<Id<Receipt>> = shardedIdCodec(Invoice);
  void [any, own, repository, ofReceipt, ofMarker, schema];
}

export function plans(): void {
  const added = plan.add(wallet);
  const updated = plan.update(wallet);
  const all = plan.addAll([order, order]);
  const addresses = plan.updateAll([address]);
  holds<Same<typeof added, Wallet>>();
  holds<Same<typeof updated, Wallet>>();
  holds<Same<typeof all, readonly Order[]>>();
  holds<Same<typeof addresses, readonly Address[]>>();

  // @ts-expect-error an id is not a model
  plan.update(walletId);
  // @ts-expect-error a model that was not awaited yet
  plan.update(Promise.resolve(wallet));
}

export function events(): void {
  const event = decodeEvent(WalletDepositedEvent, {
    model: Wallet,
    modelId: 'wallet-1',
    payload: null,
  });
  holds<Same<typeof event, WalletDepositedEvent>>();
  const known: EventClass<WalletDepositedEvent> = WalletDepositedEvent;
  const ofWallet: ModelEvent<Wallet> = event;

  // @ts-expect-error an event of another model
  const ofOrder: ModelEvent<Order> = event;
  // @ts-expect-error the class of a model is not a class of events
  const unknown: EventClass = Wallet;
  void [known, ofWallet, ofOrder, unknown];
}

export function declarations(): void {
  const walletIdSchema = shardedIdCodec(Wallet);
  const bigint = z.codec(z.string(), z.bigint(), { decode: BigInt, encode: String });
  const params = z.object({
    walletId: walletIdSchema,
    amount: bigint,
    recipient: z.string().exactOptional(),
  });
  FrameworkAction({ params })(DepositAction);
  FrameworkAction({ name: 'wallet.deposit.v1' })(DepositAction);
  FrameworkAction()(PingAction);

  FrameworkAction({ params, result: z.custom<Wallet>() })(DepositAction);

  FrameworkAction({ params, result: Wallet })(DepositAction);
  // @ts-expect-error another model as the result
  FrameworkAction({ params, result: Order })(DepositAction);
  // @ts-expect-error a schema of another result
  FrameworkAction({ params, result: z.string() })(DepositAction);
  // @ts-expect-error a schema of other params
  FrameworkAction({ params: z.object({ walletId: walletIdSchema, amount: z.number() }) })(DepositAction);
  // @ts-expect-error a schema without one of the params, which would be missing in the log
  FrameworkAction({ params: z.object({ walletId: walletIdSchema }) })(DepositAction);
  // @ts-expect-error the id of another model
  FrameworkAction({ params: params.extend({ walletId: shardedIdCodec(Order) }) })(DepositAction);
  // @ts-expect-error a class that is not an action
  FrameworkAction()(Wallet);
}

export async function staticDeclarations(executor: ActionExecutor): Promise<void> {
  class ByStatics extends DepositAction {
    static readonly params: z.ZodType<Params> = z.custom<Params>();
    static readonly result = Wallet;
  }
  const deposited = await executor.execute(principal, ByStatics, { walletId, amount: 1n });
  holds<Same<typeof deposited, Wallet>>();
  class OtherParams extends DepositAction {
    static readonly params = z.object({ walletId: z.string() });
  }
  // @ts-expect-error a schema of other params
  await executor.execute(principal, OtherParams, { walletId, amount: 1n });
  class OtherResult extends DepositAction {
    static readonly result = Order;
  }
  // @ts-expect-error another model as the result
  await executor.execute(principal, OtherResult, { walletId, amount: 1n });
}

export function mappers(wallets: FakeRepository<Wallet>): void {
  const ofWallets: ModelMapper<Wallet> = wallets;
  const any: readonly ModelMapper[] = [ofWallets, new FakeRepository(Address)];
  // @ts-expect-error a mapper of other models
  const ofOrders: ModelMapper<Order> = wallets;
  // @ts-expect-error an action is not a mapper
  const none: ModelMapper = new PingAction(clock);
  void [any, ofOrders, none];
}

export async function reads(wallets: Repository<Wallet>): Promise<void> {
  const any: Repository = wallets;
  const page = await wallets.findPage({ limit: 10, orderBy: 'balance', direction: 'descending', shard });
  holds<Same<typeof page, Page<Wallet>>>();
  await wallets.findPage({ limit: 10, orderBy: 'createdDate' });
  await wallets.findPage({ limit: 10, orderBy: 'id', after: page.next });
  // @ts-expect-error a repository of other models
  const ofOrders: Repository<Order> = wallets;
  // @ts-expect-error the id of another model
  await wallets.getById(order.id);
  // @ts-expect-error a method is not a field
  await wallets.findPage({ limit: 10, orderBy: 'deposit' });
  // @ts-expect-error events have no order
  await wallets.findPage({ limit: 10, orderBy: 'events' });
  // @ts-expect-error a page needs a limit
  await wallets.findPage({});
  void [any, ofOrders];
}

export function nothingIsAny(executor: ActionExecutor, error: FrameworkError): void {
  type ExecuteParams = Parameters<typeof executor.execute<Params, Wallet>>;
  holds<Same<IsAny<ExecuteParams[1]>, false>>();
  holds<Same<ExecuteParams[1], ActionClass<Params, Wallet>>>();
  holds<Same<IsAny<ExecuteParams[2]>, false>>();
  holds<Same<ExecuteParams[3], ExecutionConfiguration | undefined>>();
  holds<Same<IsAny<Awaited<ReturnType<typeof executor.execute<Params, Wallet>>>>, false>>();
  holds<Same<IsAny<ReturnType<typeof plan.update<Wallet>>>, false>>();
  holds<Same<IsAny<ReturnType<typeof plan.addAll<Wallet>>[number]>, false>>();
  holds<Same<IsAny<New<Wallet>['balance']>, false>>();
  holds<Same<IsAny<OwnFields<Wallet>['ownerId']>, false>>();
  holds<Same<IsAny<ModelMapper['model']>, false>>();
  holds<Same<ReturnType<ModelMapper['encode']>, unknown>>();
  holds<Same<ReturnType<typeof notNull<string | null>>, string>>();
  holds<Same<ReturnType<typeof ActionRegistry.discover>, ActionRegistry>>();
  holds<Same<typeof error.code, ErrorCode>>();
  holds<Same<typeof error.cause, unknown>>();
  // @ts-expect-error the codes are a closed union
  holds<Same<typeof error.code, string>>();
}

class Parcel extends defineModel('Parcel', {
  state: z.enum(['PACKED', 'SENT']),
  weight: z.number(),
  note: z.string().optional(),
}) {
  send(): Parcel {
    return this.copy({ state: 'SENT' }, new ParcelSentEvent(this.id, { weight: this.weight }));
  }

  wrong(other: Parcel): Parcel {
    // @ts-expect-error no such field
    this.copy({ nothing: 1 });
    // @ts-expect-error a field of another type
    this.copy({ weight: '1' });
    // @ts-expect-error no such state
    this.copy({ state: 'LOST' });
    // @ts-expect-error an event of another model
    this.copy({}, new LetterSentEvent(ShardedId.generate(Letter, shard), {}));
    // @ts-expect-error a field is missing
    return this.copy({}, new ParcelSentEvent(other.id, {}));
  }
}

class ParcelSentEvent extends defineEvent(() => Parcel, { weight: z.number() }) {}
class Letter extends defineModel('Letter', { state: z.enum(['SENT']) }) {}
class LetterSentEvent extends defineEvent(() => Letter, {}) {}

declare const parcels: Repository<Parcel>;
declare const parcel: Parcel;
holds<Same<typeof parcel.weight, number>>();
holds<Same<typeof parcel.state, 'PACKED' | 'SENT'>>();
holds<Same<typeof parcel.id, ShardedId<Parcel>>>();
holds<Same<Awaited<ReturnType<typeof parcels.getById>>, Parcel>>();
declare const fields: New<Parcel>;
void new Parcel(fields);
// @ts-expect-error the field of an event is typed
void (new ParcelSentEvent(parcel.id, { weight: 1 }).weight satisfies string);
// @ts-expect-error the id of another model
void new Parcel({ ...fields, id: ShardedId.generate(Letter, shard) });
// @ts-expect-error the id of another model
void parcels.getById(ShardedId.generate(Letter, shard));
// @ts-expect-error a model has a state
defineModel('Stateless', { weight: z.number() });
