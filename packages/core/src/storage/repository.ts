import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidCursorError, InvalidPageLimitError } from '../errors/value-errors.js';
import { Id } from '../id/id.js';
import { type ModelClass, isStorableText } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';

/**
 * Port: reads the models of one class, on the shards that hold them. Let actions depend on it, for example on a
 * `Repository<Wallet>`; write your own queries as methods of the adapter's class.
 *
 * Rows of state `DELETED` are left out everywhere. Inside `inTransaction`, a read by id joins a transaction on the shard of the
 * id; every other read joins a transaction on any shard of the same database.
 */
export interface Repository<M extends AnyEntity = AnyEntity> {
  /**
   * Reads the model of an id.
   *
   * @throws EntityNotFoundError `entity-not-found` when there is none
   * @throws InvalidIdError `invalid-id` when no model can have this id
   * @throws ShardUndeterminedError `shard-undetermined` when the strategy cannot tell the shard from an id
   * @throws UnknownShardError `unknown-shard` when the id's shard is not configured
   */
  getById(id: Id<M> | string): Promise<M>;
  /** Reads the model of an id, or returns `undefined`; throws as {@link getById}. */
  findById(id: Id<M> | string): Promise<M | undefined>;
  /** Reads the models of several ids, in the order of the ids; missing ones are left out. */
  findAllByIds(ids: readonly (Id<M> | string)[]): Promise<readonly M[]>;
  /** Returns whether the id has a model; throws as {@link getById}, except for a missing model. */
  existsById(id: Id<M> | string): Promise<boolean>;
  /**
   * Reads all models of all shards, in the order of ids.
   *
   * @param rowsMax how many there may be; if there can be more, read pages. Default 10,000
   * @throws LimitExceededError `limit-exceeded` when there are more
   * @throws InvariantViolationError `invariant-violation` when the maximum is not a whole number, or is negative
   */
  findAll(rowsMax?: number): Promise<readonly M[]>;
  /**
   * Reads one page, over all shards or from one.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` cannot be the `next` of a page in this order
   * @throws InvalidPageLimitError `invalid-page-limit` when the limit is not a whole number from 1 to 1,000
   * @throws InvariantViolationError `invariant-violation` when the models cannot be ordered by that field
   */
  findPage(request: PageRequest<M>): Promise<Page<M>>;
  /** Counts the models of all shards. */
  count(): Promise<number>;
}

/** Port: how models of one class are written, and what a row contains. The executor uses it to stage models. */
export interface ModelMapper<M extends AnyEntity = AnyEntity> {
  /** The class whose models it writes. */
  readonly model: ModelClass<M>;
  /** The registry of the databases that it reads; an executor of another one refuses it. Default: not known. */
  readonly databases?: object;
  readonly strategy: ShardingStrategy<M>;
  /**
   * The table of its rows. With group commit, actions that read the table see what others are about to write there. Default: the one
   * table of the class.
   */
  readonly table?: unknown;
  /**
   * Makes the row that will be written, when the model is staged.
   *
   * @throws UnstorableValueError `unstorable-value` when a value would not be read back unchanged
   */
  encode(model: M): unknown;
  /** About how many characters a row has; a plan with long rows commits alone. Default: not counted. */
  sizeOf?(row: unknown): number;
  /**
   * Makes the model that a read will return once a row is written on a shard; `undefined` when only the database can tell,
   * because it fills in a default, or a trigger may change the row. Without this method every read waits until the row is
   * written.
   */
  decode?(row: unknown, shard: ShardIdentifier): M | undefined;
  /**
   * How a model is written as JSON beside an idempotency key, and read from it. Without this method, the result of an action
   * cannot be declared by the class of the model, only by a schema.
   *
   * @throws InvariantViolationError `invariant-violation` when the rows contain something that JSON cannot represent
   */
  jsonCodec?(): ModelJsonCodec<M>;
}

/**
 * Port: decides on which shard a model is stored.
 *
 * Both methods must always give the same answer for a model: rows do not move between shards.
 */
export interface ShardingStrategy<M extends AnyEntity = AnyEntity> {
  /** The shard on which the model is stored. */
  shardOfModel(model: M): ShardIdentifier;
  /**
   * The shard of an id; `undefined` if the id alone does not determine it. Then reads by id are refused, and
   * reads by a condition search all shards.
   */
  shardOfId(id: string): ShardIdentifier | undefined;
}

/** Writes models of one class as JSON and reads them, including those that an earlier version of the application wrote. */
export interface ModelJsonCodec<M extends AnyEntity = AnyEntity> {
  /**
   * Writes a model as JSON.
   *
   * @throws UnstorableValueError `unstorable-value` when a value would not be read back unchanged
   */
  encode(model: M): string;
  /**
   * Makes a model from JSON that `encode` wrote.
   *
   * @throws whatever the constructor of the model throws for values that it refuses
   */
  decode(json: string): M;
}

/** Port: reads the models of one class on one shard by their ids; created once, and passed to {@link readById}. */
export interface ModelSource<M extends AnyEntity = AnyEntity> {
  readonly model: ModelClass<M>;
  /** The table that it reads, as {@link ModelMapper.table}. */
  readonly table?: unknown;
  /** Reads the model of an id, or returns `undefined`, in the fastest way for a single model. */
  readOne(id: string): Promise<M | undefined>;
  /**
   * Reads the models of several ids with one statement, and returns them by id; missing ones are left out.
   *
   * Executions that read one model at the same time share the statement, but no object: each call builds a new model.
   */
  readSeveral(ids: readonly string[]): Promise<ReadonlyMap<string, () => M>>;
}

/** Which models to read, and where to continue. */
export interface PageRequest<M> {
  /** Maximum number of items, 1 to 1,000. */
  readonly limit: number;
  /** The `next` of the previous page, in the same order. Default: from the start. */
  readonly after?: string | undefined;
  /** The field to order by; equal values are ordered by id. Default: the id, which is the order in which models were created. */
  readonly orderBy?: OrderField<M> | undefined;
  /** Default `ascending`. */
  readonly direction?: 'ascending' | 'descending' | undefined;
  /** The only shard to read. Default: all shards, merged. */
  readonly shard?: ShardIdentifier | undefined;
}

/** The fields that have an order: never null, and a text, a number, a decimal, an instant, an id or a boolean. */
type OrderField<M> = keyof {
  [K in keyof M & string as M[K] extends Ordered ? K : never]: never;
};

/** Values with an order; those with `toFixed` are numbers and decimals. */
type Ordered = string | bigint | boolean | Date | Id<unknown> | { toFixed(): string };

/** One page of a longer list, read by key and not by offset. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `after` to continue; `undefined` on the last page. */
  readonly next: string | undefined;
}

const itemsMax = 1_000;

/**
 * The number of items of a page for a requested limit. For adapters, which all have the same limits.
 *
 * @throws InvalidPageLimitError `invalid-page-limit` when the limit is not a whole number from 1 to 1,000
 */
export function pageSize(limit: number): number {
  if (Number.isSafeInteger(limit) && limit >= 1 && limit <= itemsMax) return limit;
  throw new InvalidPageLimitError(limit, itemsMax);
}

/** How the texts of values are compared: by their UTF-8 bytes, or as the numbers that they represent. */
export type ValueKind = 'text' | 'number' | 'decimal';

/** The position of an item in an order: the text of the field's value, and the id as the database writes it. */
export interface PagePlace {
  /** Empty in the order of ids. */
  readonly value: string;
  readonly id: string;
}

/** The order of a list of pages: by a field and then by the id, or by the id alone; the same for every adapter. */
export class PageOrder {
  /** `undefined` for the order of ids. */
  readonly field: string | undefined;
  readonly isDescending: boolean;

  /** @throws InvariantViolationError `invariant-violation` for an unknown direction */
  constructor({
    orderBy,
    direction,
  }: Pick<PageRequest<never>, 'direction'> & { readonly orderBy?: string | undefined }) {
    if (direction !== undefined && direction !== 'ascending' && direction !== 'descending')
      throw new InvariantViolationError(
        `The direction of a page is ${String(direction)}: pass ascending or descending`,
      );
    this.field = orderBy === 'id' ? undefined : orderBy;
    this.isDescending = direction === 'descending';
  }

  /** The cursor after an item. */
  cursorOf({ value, id }: PagePlace): string {
    if (this.field === undefined) return id;
    return Buffer.from(JSON.stringify([this.field, value, id])).toString('base64url');
  }

  /**
   * The position after which a page begins.
   *
   * @throws InvalidCursorError `invalid-cursor` when the cursor is invalid, or belongs to another order
   */
  placeOf(cursor: string): PagePlace {
    if (this.field === undefined) return { value: '', id: cursor };
    const [field, value, id] = partsOf(cursor);
    if (field !== this.field || !isStorableText(value) || !isStorableText(id))
      throw new InvalidCursorError(cursor);
    return { value, id };
  }

  /** Compares positions for `sort`. */
  compare(one: PagePlace, other: PagePlace, kind: ValueKind): number {
    const ascending = comparers[kind](one.value, other.value) || compareTexts(one.id, other.id);
    return this.isDescending ? -ascending : ascending;
  }
}

function partsOf(cursor: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString());
    return Array.isArray(parts) ? parts : [];
  } catch {
    return [];
  }
}

const comparers: Readonly<Record<ValueKind, (one: string, other: string) => number>> = {
  text: compareTexts,
  number: (one, other) => Number(one) - Number(other),
  decimal: (one, other) => {
    const scale = Math.max(decimalsOf(one), decimalsOf(other));
    const difference = scaled(one, scale) - scaled(other, scale);
    return difference === 0n ? 0 : difference < 0n ? -1 : 1;
  },
};

/** Whether a text stands for a value that can be compared with those of a kind. */
function isOfKind(text: string, kind: ValueKind): boolean {
  if (kind === 'text') return true;
  if (kind === 'decimal') return /^-?\d+(\.\d+)?$/.test(text);
  return text.trim() !== '' && Number.isFinite(Number(text));
}

function compareTexts(one: string, other: string): number {
  return one === other ? 0 : Buffer.compare(Buffer.from(one), Buffer.from(other));
}

function decimalsOf(decimal: string): number {
  return decimal.includes('.') ? decimal.length - decimal.indexOf('.') - 1 : 0;
}

function scaled(decimal: string, scale: number): bigint {
  return BigInt(decimal.replace('.', '') + '0'.repeat(scale - decimalsOf(decimal)));
}

/**
 * Cuts a page from models in memory, in any order; for stores that do not order by fields themselves.
 *
 * @throws as {@link Repository.findPage}, except for a shard that is not configured
 */
export function pageOf<M extends AnyEntity>(
  models: readonly M[],
  request: PageRequest<M>,
  strategy: ShardingStrategy<M>,
): Page<M> {
  const size = pageSize(request.limit);
  const order = new PageOrder(request);
  const after = request.after === undefined ? undefined : placeAfter(request.after, order, strategy);
  const placed = models
    .filter((model) => request.shard === undefined || strategy.shardOfModel(model) === request.shard)
    .map((model) => ({ model, ...placeOf(model, order.field) }));
  if (after !== undefined && !placed.every(({ kind }) => isOfKind(after.value, kind)))
    throw new InvalidCursorError(request.after);
  const items = placed
    .filter(({ place, kind }) => after === undefined || order.compare(place, after, kind) > 0)
    .sort((one, other) => order.compare(one.place, other.place, one.kind));
  const last = items.length > size ? items[size - 1] : undefined;
  return { items: items.slice(0, size).map(({ model }) => model), next: last && order.cursorOf(last.place) };
}

/** Refuses a cursor whose id is not that of a model. */
function placeAfter<M extends AnyEntity>(
  cursor: string,
  order: PageOrder,
  strategy: ShardingStrategy<M>,
): PagePlace {
  const place = order.placeOf(cursor);
  try {
    strategy.shardOfId(place.id);
    return place;
  } catch {
    throw new InvalidCursorError(cursor);
  }
}

/** The position of a model in an order. */
function placeOf(
  model: AnyEntity,
  field: string | undefined,
): { readonly place: PagePlace; readonly kind: ValueKind } {
  const id = model.id.value;
  if (field === undefined) return { place: { value: '', id }, kind: 'text' };
  const value = new Map<string, unknown>(Object.entries(model)).get(field);
  const [kind, text] = orderedValue(value) ?? [];
  if (kind !== undefined && text !== undefined) return { place: { value: text, id }, kind };
  throw new InvariantViolationError(
    `Pages cannot be ordered by ${field} of ${model.constructor.name}: ${String(value)} has no order`,
  );
}

function orderedValue(value: unknown): readonly [ValueKind, string] | undefined {
  if (typeof value === 'string' || typeof value === 'boolean') return ['text', String(value)];
  if (typeof value === 'number') return ['number', String(value)];
  if (typeof value === 'bigint') return ['decimal', String(value)];
  if (value instanceof Date) return ['text', value.toISOString()];
  if (value instanceof Id) return ['text', value.value];
  if (typeof value !== 'object' || value === null || !('toFixed' in value)) return undefined;
  const digits = (value as { toFixed(): string }).toFixed();
  return isOfKind(digits, 'decimal') ? ['decimal', digits] : undefined;
}
