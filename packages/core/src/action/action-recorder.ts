import { propagation, context as traceContext } from '@opentelemetry/api';

import type { Clock } from '../clock.js';
import type { ExecutionLimits } from '../config/settings.js';
import { LimitExceededError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { UnstorableValueError } from '../errors/value-errors.js';
import { timeOrderedUuid } from '../id/uuid-v7.js';
import { checkText, exactJson } from '../model/exact-json.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { RegisteredAction } from './action-registry.js';
import type { Principal } from './action.js';
import type { ExecutionConfiguration } from './options.js';
import { boundedJson } from './params.js';

/** What still fits into one entry of an index: every principal may come with a key, be it a handler's. */
const principalCharactersMax = 255;
/** What delivery adds to an event's headers for the actions that its handlers execute. */
const causationCharacters = 1_024;

/** Writes down what was asked and by whom, once for all attempts of an execution. */
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
   * Makes the record of one execution, under a new id and with the trace context of the caller.
   *
   * @throws InvariantViolationError `invariant-violation` when the principal has no name
   * @throws InvalidParamsError `invalid-params`, UnstorableValueError `unstorable-value`
   * @throws LimitExceededError `limit-exceeded` when params, headers or the principal's name are too long
   */
  record(
    { name, encodeParams }: RegisteredAction<never, unknown>,
    principal: Principal,
    params: unknown,
    { headers, handledEvent }: ExecutionConfiguration,
  ): ActionRecord {
    const payloadCharactersMax =
      this.#limits.payloadCharactersMax + (handledEvent === undefined ? 0 : causationCharacters);
    if (headers !== undefined)
      boundedJson(`headers of ${name}`, headersJson(headers, `${name} headers`), { payloadCharactersMax });
    const carrier: Record<string, string> = { ...headers };
    propagation.inject(traceContext.active(), carrier);
    checkPrincipal(principal, name);
    return {
      id: timeOrderedUuid(),
      name,
      params: boundedJson(`params of ${name}`, encodeParams(params), this.#limits),
      namespace: this.#namespace,
      principal: principal.name,
      headers: exactJson(carrier, `${name} headers`),
      startedDate: this.#clock.now(),
    };
  }
}

/** Handlers read every header as a text. */
function headersJson(headers: Readonly<Record<string, string>>, path: string): string {
  const json = exactJson(headers, path);
  for (const [key, value] of Object.entries(headers) as readonly (readonly [string, unknown])[]) {
    if (value !== undefined && typeof value !== 'string')
      throw new UnstorableValueError(`${path}.${key}`, 'it is no text');
  }
  return json;
}

function checkPrincipal(principal: Principal | undefined, action: string): void {
  const name: unknown = principal?.name;
  if (typeof name !== 'string') {
    throw new InvariantViolationError(
      `${action} was executed without a principal: pass who acts as the first argument, an object with a name, such as { name: 'alice' }`,
    );
  }
  const path = `principal of ${action}`;
  checkText(name, path);
  if (name.length > principalCharactersMax) {
    throw new LimitExceededError(
      'principalCharactersMax',
      principalCharactersMax,
      `${name.length} characters are too many for the ${path}: its name has ${principalCharactersMax} at most`,
    );
  }
}
