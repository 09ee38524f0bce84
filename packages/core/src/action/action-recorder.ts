import { context, propagation } from '@opentelemetry/api';
import type * as z from 'zod';

import type { Clock } from '../clock.js';
import type { ExecutionLimits } from '../config/settings.js';
import { InvalidParamsError, LimitExceededError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { UnstorableValueError } from '../errors/value-errors.js';
import { timeOrderedUuid } from '../id/uuid-v7.js';
import { checkText, exactJson } from '../model/exact-json.js';
import { assertSchema, encodeBySchema, firstLostField, readBack } from '../model/round-trip.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { HandledEvent } from '../storage/idempotency-keys.js';
import type { Principal } from './action.js';

/** The longest name of a principal that fits into an index entry beside every idempotency key, even one of a handler. */
const principalCharactersMax = 255;
/** How many characters of trace context are written: of a client's `baggage`, the log would otherwise keep 8 KB with each event. */
const traceCharactersMax = 1_024;
/** How many characters delivery may add to headers for the actions that its handlers execute: those of the trace, and its own. */
const causationCharacters = 4_096;

/** What the recorder needs to know about an action. */
interface RecordedAction {
  readonly name: string;
  readonly paramsCodec: ParamsCodec;
}

/** The part of an execution's configuration that is recorded, or allows for longer params. */
interface RecordedConfiguration {
  readonly headers?: Readonly<Record<string, string>>;
  readonly handledEvent?: HandledEvent;
}

/** Records what was requested and by whom, once for all attempts of an execution. */
export class ActionRecorder {
  readonly #namespace: string;
  readonly #limits: ExecutionLimits;
  readonly #clock: Clock;

  constructor(namespace: string, limits: ExecutionLimits, clock: Clock) {
    this.#namespace = namespace;
    this.#limits = limits;
    this.#clock = clock;
  }

  /**
   * Makes the record of one execution, under a new id and with the trace context of the caller, and the params of its attempts.
   *
   * @throws InvariantViolationError `invariant-violation` when the principal has no name
   * @throws InvalidParamsError `invalid-params`, UnstorableValueError `unstorable-value`
   * @throws LimitExceededError `limit-exceeded` when params, headers or the principal's name are too long
   */
  record(
    { name, paramsCodec: codec }: RecordedAction,
    principal: Principal,
    params: unknown,
    { headers, handledEvent }: RecordedConfiguration,
  ): { readonly record: ActionRecord; readonly newParams: () => unknown } {
    const payloadCharactersMax =
      this.#limits.payloadCharactersMax + (handledEvent === undefined ? 0 : causationCharacters);
    if (headers !== undefined)
      boundedJson(`headers of ${name}`, headersJson(headers, `${name} headers`), { payloadCharactersMax });
    checkPrincipal(principal, name);
    const { json, next } = codec.record(params);
    const record = {
      id: timeOrderedUuid(),
      name,
      params: boundedJson(`params of ${name}`, json, this.#limits),
      namespace: this.#namespace,
      principal: principal.name,
      headers: exactJson({ ...headers, ...traceHeaders() }, `${name} headers`),
      startedDate: this.#clock.now(),
    };
    return { record, newParams: next };
  }
}

/**
 * The headers of the trace context in which the caller runs, without those that are not what HTTP allows or that are too long
 * together. Neither they nor an error of the propagator must be the reason why an action is refused.
 */
function traceHeaders(): Readonly<Record<string, string>> {
  const carrier: Record<string, unknown> = {};
  try {
    propagation.inject(context.active(), carrier);
  } catch {
    return {};
  }
  const headers: Record<string, string> = {};
  let charactersLeft = traceCharactersMax;
  for (const [name, value] of Object.entries(carrier)) {
    if (typeof value !== 'string' || !/^[ -~]+$/.test(value)) continue;
    const characters = name.length + value.length;
    if (characters > charactersLeft) continue;
    charactersLeft -= characters;
    headers[name] = value;
  }
  return headers;
}

/** Encodes headers as JSON; refuses values that are not strings, because handlers read every header as a string. */
function headersJson(headers: Readonly<Record<string, string>>, path: string): string {
  const json = exactJson(headers, path);
  for (const [key, value] of Object.entries(headers) as readonly (readonly [string, unknown])[]) {
    if (value !== undefined && typeof value !== 'string')
      throw new UnstorableValueError(`${path}.${key}`, 'it is not a string');
  }
  return json;
}

function checkPrincipal(principal: Principal | undefined, action: string): void {
  const name: unknown = principal?.name;
  if (typeof name !== 'string') {
    throw new InvariantViolationError(
      `${action} was executed without a principal: pass one as the first argument, an object with a name, such as { name: 'alice' }`,
    );
  }
  const path = `principal of ${action}`;
  checkText(name, path);
  if (name.length > principalCharactersMax) {
    throw new LimitExceededError(
      'principalCharactersMax',
      principalCharactersMax,
      `${name.length} characters are too many for the ${path}: its name may have at most ${principalCharactersMax}`,
    );
  }
}

/**
 * Copies params, so that a change to the original or to the copy does not affect the other: plain objects, lists, dates, maps,
 * sets and bytes, at every level.
 *
 * Instances of other classes are not copied. Ids, shards and decimals never change.
 */
export function copyOfParams<Params>(params: Params): Params {
  return copyOf(params, new Map(), 0) as Params;
}

/**
 * The values that were already copied, with their copies: params may contain a value twice, and may even be circular if no schema
 * checks them.
 */
type Copies = Map<object, object>;

/** Values below this level are not copied: such deeply nested params are refused when they are recorded. */
const depthMax = 1_000;

function copyOf(value: unknown, copies: Copies, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > depthMax) return value;
  const known = copies.get(value);
  if (known !== undefined) return known;
  const prototype = Object.getPrototypeOf(value) as object | null;
  if (Array.isArray(value)) return Array.isArray(prototype) ? copyOfList(value, copies, depth) : value;
  switch (prototype) {
    case null:
      return copyOfFields(value, Object.assign(Object.create(null), value), copies, depth);
    case Date.prototype:
      return new Date(value as Date);
    case Map.prototype:
      return copyOfMap(value as Map<unknown, unknown>, copies, depth);
    case Set.prototype:
      return copyOfSet(value as Set<unknown>, copies, depth);
    default:
      if (value instanceof Uint8Array) return Uint8Array.prototype.slice.call(value);
      return isOfObjects(prototype) ? copyOfFields(value, { ...value }, copies, depth) : value;
  }
}

/** Whether a prototype is that of plain objects, in this realm or in another one, such as those of `node:vm`. */
function isOfObjects(prototype: object): boolean {
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'hasOwnProperty');
}

/** @param copy a shallow copy of the value, whose fields are now replaced by copies */
function copyOfFields(value: object, copy: Record<string, unknown>, copies: Copies, depth: number): object {
  copies.set(value, copy);
  // Assigns even to `__proto__`, because the copy already has it as an own property.
  for (const key in copy) copy[key] = copyOf(copy[key], copies, depth + 1);
  return copy;
}

function copyOfList(list: readonly unknown[], copies: Copies, depth: number): object {
  const copy = [...list];
  // Extra properties are kept, because recording the params refuses them.
  if (Reflect.ownKeys(list).length !== list.length + 1) Object.assign(copy, list);
  copies.set(list, copy);
  for (const [index, item] of copy.entries()) copy[index] = copyOf(item, copies, depth + 1);
  return copy;
}

function copyOfMap(map: ReadonlyMap<unknown, unknown>, copies: Copies, depth: number): object {
  const copy = new Map<unknown, unknown>();
  copies.set(map, copy);
  for (const [key, item] of map) copy.set(copyOf(key, copies, depth + 1), copyOf(item, copies, depth + 1));
  return copy;
}

function copyOfSet(set: ReadonlySet<unknown>, copies: Copies, depth: number): object {
  const copy = new Set<unknown>();
  copies.set(set, copy);
  for (const item of set) copy.add(copyOf(item, copies, depth + 1));
  return copy;
}

/** How an action's params are written to the log, and what its attempts get. */
export interface ParamsCodec {
  /**
   * Checks params, and writes them as JSON; `next` returns a new value for each attempt, so that none sees what another one has changed.
   *
   * @throws InvalidParamsError `invalid-params`, UnstorableValueError `unstorable-value`
   */
  readonly record: (params: unknown) => { readonly json: string; readonly next: () => unknown };
}

/**
 * Creates the codec of an action. It uses the schema that the action declares: attempts get what the schema reads from the log, also
 * where it changes values, as `trim` does. Without a schema, it writes plain JSON, with ids as their texts and shards as group and
 * member, and attempts get copies.
 *
 * @throws InvariantViolationError `invariant-violation` when the schema is of another version of zod
 */
export function paramsCodec(action: string, schema: z.ZodType | undefined): ParamsCodec {
  const path = `${action} params`;
  if (schema === undefined)
    return { record: (params) => ({ json: plainJson(params, path), next: () => copyOfParams(params) }) };
  assertSchema(schema, `params of ${action}`);
  return {
    record: (params) => {
      const encoded = encodeBySchema(schema, params, path);
      if (!encoded.success) throw invalid(action, encoded.error);
      const json = exactJson(encoded.data, path);
      const read = (): unknown => readBack(schema, JSON.parse(json), path);
      // The first attempt gets what was read to compare it.
      const unused = [read()];
      const lost = firstLostField(params, unused[0]);
      if (lost === undefined) return { json, next: () => (unused.length > 0 ? unused.pop() : read()) };
      const position = lost.path.replace(/\[(\d+)\]/g, '.$1').slice(1);
      throw new InvalidParamsError(action, [{ path: position, message: lost.reason }]);
    },
  };
}

function plainJson(params: unknown, path: string): string {
  if (params === undefined) return 'null';
  try {
    return exactJson(params, path, { idsAndShards: true });
  } catch (error) {
    if (!(error instanceof UnstorableValueError)) throw error;
    const reason = `${error.reason} (declare the schema of the params: static readonly params = …)`;
    throw new UnstorableValueError(error.path, reason, { cause: error });
  }
}

function invalid(action: string, error: z.ZodError): InvalidParamsError {
  const issues = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  return new InvalidParamsError(action, issues, { cause: error });
}

/**
 * Returns the JSON if it is not too long to be stored.
 *
 * @param what describes it in the error, such as `params of WalletCloseAction`
 * @throws LimitExceededError `limit-exceeded` beyond `payloadCharactersMax`
 */
export function boundedJson(
  what: string,
  json: string,
  { payloadCharactersMax }: Pick<ExecutionLimits, 'payloadCharactersMax'>,
): string {
  if (json.length <= payloadCharactersMax) return json;
  throw new LimitExceededError(
    'payloadCharactersMax',
    payloadCharactersMax,
    `${json.length} characters are too many for the ${what}: at most ${payloadCharactersMax} are allowed`,
  );
}
