import {
  type DatabaseRegistry,
  EntityNotFoundError,
  FrameworkError,
  type ModelClass,
  ShardedId,
} from '@framework/core';
import { modelNameOf } from '@framework/core/adapter';
import { z } from '@hono/zod-openapi';
import { Big } from 'big.js';

import { InvalidAmountError } from '../wallet/wallet-error.js';
import { InvalidRequestError } from './parse-shape.js';
import { notConfigured } from './shard-causes.js';

/** A number in a JSON text, exactly as written. Parsing it as a binary float could change an amount. */
class JsonNumber {
  /** The text of the number, for example `25.50` or `1e2`. */
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** The third argument of a `JSON.parse` reviver, which TypeScript's library lacks so far. */
interface SourceContext {
  readonly source?: string;
}

/**
 * Parses JSON with every number as a {@link JsonNumber}, which no schema mistakes for a string or an object.
 *
 * @throws SyntaxError when the text is not JSON, or an object has a name twice; RangeError when it is nested too deeply
 * @see https://tc39.es/proposal-json-parse-with-source/
 */
export function parseExactJson(text: string): unknown {
  const value: unknown = JSON.parse(text, keepSource);
  if (hasRepeatedName(text)) throw new SyntaxError('An object has a name twice');
  return value;
}

/** What opens and ends an object, and each string, with the colon after it if it is a name. */
const namesAndBraces = /[{}]|("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?/g;

/**
 * Whether an object in a valid JSON text has two fields of one name. `JSON.parse` would take the last one, where a proxy that checks
 * requests, or a reader of its log, may take the first.
 */
function hasRepeatedName(text: string): boolean {
  const open: Set<string>[] = [];
  for (const [part, string, colon] of text.matchAll(namesAndBraces)) {
    if (part === '{') open.push(new Set());
    if (part === '}') open.pop();
    if (string === undefined || colon === undefined) continue;
    const name = String(JSON.parse(string));
    const names = open.at(-1);
    if (names?.has(name) === true) return true;
    names?.add(name);
  }
  return false;
}

function keepSource(_key: string, value: unknown, context?: SourceContext): unknown {
  return typeof value === 'number' ? new JsonNumber(context?.source ?? String(value)) : value;
}

const grammar = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const exponentMax = 1_000;

/**
 * The schema of an amount in a request: a JSON string or a JSON number, read exactly as written.
 *
 * Both follow the grammar of JSON numbers. Parsing throws InvalidAmountError (`invalid-amount`) for exponents beyond
 * ±1,000, which no currency needs and which would take megabytes to write out.
 */
export const decimalField = z
  .union([z.string(), z.instanceof(JsonNumber).transform(({ source }) => source)], {
    error: 'must be a decimal',
  })
  .pipe(z.string().regex(grammar, 'must be a decimal such as "25.50"'))
  .transform((text) => bounded(new Big(text)))
  .openapi({
    type: ['string', 'number'],
    pattern: grammar.source,
    description: 'A decimal, exact as written, whether as a string or as a number.',
    example: '25.50',
  });

function bounded(amount: Big): Big {
  if (Math.abs(amount.e) <= exponentMax) return amount;
  throw new InvalidAmountError(
    'An amount has at most 20 digits before the decimal point, and at most as many decimal places as its currency',
  );
}

/**
 * Parses the id of a model that should exist. The text is a UUID of any version.
 *
 * @throws EntityNotFoundError `entity-not-found` when no model can have the id, because it contains no shard or one that
 * is not configured
 */
export function existingId<T>(model: ModelClass<T>, uuid: string, databases: DatabaseRegistry): ShardedId<T> {
  const id = parse(model, uuid);
  if (id === undefined) throw new EntityNotFoundError(modelNameOf(model), uuid);
  const shard = id.resolveShardIdentifier();
  if (databases.shards.includes(shard)) return id;
  const reason = `its id names ${shard.toString()}, which is ${notConfigured}`;
  throw new EntityNotFoundError(modelNameOf(model), uuid, reason);
}

function parse<T>(model: ModelClass<T>, uuid: string): ShardedId<T> | undefined {
  try {
    return ShardedId.of(model, uuid);
  } catch (error) {
    if (FrameworkError.find(error)?.code === 'invalid-id') return undefined;
    throw error;
  }
}

/** The schema of free text in a request: any text that the database can store. */
export const textField = z
  .string({ error: 'must be a string' })
  .refine((text) => text.isWellFormed() && !text.includes('\u0000'), 'contains an invalid character')
  .openapi({ pattern: String.raw`^[^\u0000\uD800-\uDFFF]*$` });

/** A UUID of any version. The pattern has no flags, because patterns in an OpenAPI document cannot have any. */
const uuid = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;

/** The schema of a UUID of any version in upper or lower case; the result is in lower case. */
export const uuidField = z
  .string({ error: 'must be a UUID' })
  .regex(uuid, 'must be a UUID')
  .toLowerCase()
  .openapi({ format: 'uuid', example: '0198c5a2-7b7e-7000-8000-5d2f4a6b8c0d' });

const limitMax = 100;
const limitDefault = 20;

/** The query field that limits a page: 1 to 100 items, by default 20. */
export const limitField = z
  .string()
  .regex(/^([1-9]\d?|100)$/, `must be a whole number from 1 to ${limitMax}`)
  .transform(Number)
  .default(limitDefault)
  .openapi({
    type: 'integer',
    minimum: 1,
    maximum: limitMax,
    description: 'The maximum number of items on the page.',
  });

/** Documents the cursor of a list. */
export const cursorNote = 'The `next` of the previous page, unchanged. Omit it for the first page.';

/** The header with which a client marks repeats of one request. */
export const idempotencyKeyHeader = 'Idempotency-Key';

/** The maximum length of a key. */
export const idempotencyKeyCharactersMax = 255;

/**
 * The characters of a key. Spaces around a header's value are not part of it. Beyond ASCII, clients encode the same
 * letter differently, so a repeat from another client would have another key.
 */
export const idempotencyKeyPattern: RegExp = /^[!-~]([ -~]*[!-~])?$/;

/**
 * Reads the idempotency key of a request, if it has one.
 *
 * @throws InvalidRequestError `bad-request` when the key is empty, longer than 255 characters, or contains anything but
 * printable ASCII characters
 */
export function idempotencyKey(headers: Headers): string | undefined {
  const key = headers.get(idempotencyKeyHeader) ?? undefined;
  if (key === undefined) return undefined;
  if (key.length <= idempotencyKeyCharactersMax && idempotencyKeyPattern.test(key)) return key;
  const message = `must have 1 to ${idempotencyKeyCharactersMax} printable ASCII characters`;
  throw new InvalidRequestError('bad-request', `${idempotencyKeyHeader} ${message}`, {
    faults: [{ pointer: `header/${idempotencyKeyHeader}`, message }],
  });
}
