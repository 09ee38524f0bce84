import { context, propagation } from '@opentelemetry/api';
import type * as z from 'zod';

import type { Clock } from '../clock.js';
import type { ExecutionLimits } from '../config/settings.js';
import { InvalidParamsError, LimitExceededError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { UnstorableValueError } from '../errors/value-errors.js';
import { timeOrderedUuid } from '../id/uuid-v7.js';
import { checkText, copyOfValue, exactJson } from '../model/exact-json.js';
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

/** How an action's params are written to the log, and what its attempts get. */
export interface ParamsCodec {
  /**
   * Checks params, and writes them as JSON; `next` returns a copy for each attempt, so that none sees what another one has changed, except in
   * instances of classes.
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
    return { record: (params) => ({ json: plainJson(params, path), next: () => copyOfValue(params) }) };
  assertSchema(schema, `params of ${action}`);
  return {
    record: (params) => {
      const encoded = encodeBySchema(schema, params, path);
      if (!encoded.success) throw invalid(action, encoded.error);
      const json = exactJson(encoded.data, path);
      const read = readBack(schema, JSON.parse(json), path);
      const lost = firstLostField(params, read);
      // Read only once: a default or a codec may return another value each time, or one object again and again.
      if (lost === undefined) return { json, next: () => copyOfValue(read) };
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
