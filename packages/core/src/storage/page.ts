import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidCursorError } from '../errors/value-errors.js';
import type { Id } from '../id/id.js';
import { isStorableText } from '../model/model-class.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

/** Which models to read, and where to read on. */
export interface PageRequest<M> {
  /** Items at most, 1 to 1,000. */
  readonly limit: number;
  /** The `next` of the page before, in the same order. Default: from the start. */
  readonly after?: string | undefined;
  /** The field by which they are ordered, and by the id where it is equal. Default: the id, in whose order models are made. */
  readonly orderBy?: OrderField<M> | undefined;
  /** Default `ascending`. */
  readonly direction?: 'ascending' | 'descending' | undefined;
  /** The only shard whose models are wanted. Default: all, side by side. */
  readonly shard?: ShardIdentifier | undefined;
}

/** The fields that have an order: never empty, and a text, a number, a decimal, an instant, an id or a boolean. */
type OrderField<M> = keyof {
  [K in keyof M & string as M[K] extends Ordered ? K : never]: never;
};

type Ordered = string | bigint | boolean | Date | Id<unknown> | { toFixed(): string };

/** One page of a longer list, read by key and not by offset. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `after` to read on; `undefined` on the last page. */
  readonly next: string | undefined;
}

const itemsMax = 1_000;

/**
 * How many items a page may have, 1 to 1,000, when so many are asked for; for adapters, whose limits are all alike.
 *
 * @throws InvariantViolationError `invariant-violation` for what is no whole number, or below zero
 */
export function pageSize(limit: number): number {
  if (!Number.isSafeInteger(limit) || limit < 0) {
    throw new InvariantViolationError(
      `The limit of a page is ${String(limit)}: pass a whole number, 1 to ${itemsMax}`,
    );
  }
  return Math.min(Math.max(limit, 1), itemsMax);
}

/** How the texts of values are compared: by their UTF-8 bytes, or as what they are the digits of. */
export type ValueKind = 'text' | 'number' | 'decimal';

/** Where an item stands in an order: the text of the field's value, and the id as the database writes it. */
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

  constructor({
    orderBy,
    direction,
  }: Pick<PageRequest<never>, 'direction'> & { readonly orderBy?: string | undefined }) {
    this.field = orderBy === 'id' ? undefined : orderBy;
    this.isDescending = direction === 'descending';
  }

  /** The cursor after an item. */
  cursorOf({ value, id }: PagePlace): string {
    if (this.field === undefined) return id;
    return Buffer.from(JSON.stringify([this.field, value, id])).toString('base64url');
  }

  /**
   * The place after which a page begins.
   *
   * @throws InvalidCursorError `invalid-cursor` when the cursor is none, or one of another order
   */
  placeOf(cursor: string): PagePlace {
    if (this.field === undefined) return { value: '', id: cursor };
    const [field, value, id] = partsOf(cursor);
    if (field !== this.field || !isStorableText(value) || !isStorableText(id))
      throw new InvalidCursorError(cursor);
    return { value, id };
  }

  /** Compares places for `sort`. */
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

function compareTexts(one: string, other: string): number {
  return one === other ? 0 : Buffer.compare(Buffer.from(one), Buffer.from(other));
}

function decimalsOf(decimal: string): number {
  return decimal.includes('.') ? decimal.length - decimal.indexOf('.') - 1 : 0;
}

function scaled(decimal: string, scale: number): bigint {
  return BigInt(decimal.replace('.', '') + '0'.repeat(scale - decimalsOf(decimal)));
}
