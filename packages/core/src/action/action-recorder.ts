import { context as traceContext, propagation } from '@opentelemetry/api';
import type { Clock } from '../clock.js';
import { UnstorableValueException } from '../errors/value-exceptions.js';
import { timeOrderedUuid } from '../id/time-ordered-uuid.js';
import { checkText, exactJson } from '../model/exact-json.js';
import type { ActionRecord } from '../persistence/change-set.js';
import type { RegisteredAction } from './action-registry.js';
import { boundedJson } from './bounded-json.js';
import type { ExecutionConfiguration } from './execution-configuration.js';
import type { ExecutionLimits } from './execution-limits.js';
import type { Principal } from './principal.js';

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
   * @throws InvalidParamsException `invalid-params`, UnstorableValueException `unstorable-value`
   * @throws LimitExceededException `limit-exceeded` when params or headers are too long
   */
  record(
    { name, encodeParams }: RegisteredAction<never, unknown>,
    principal: Principal,
    params: unknown,
    { headers }: ExecutionConfiguration,
  ): ActionRecord {
    checkHeaders(headers, `${name} headers`);
    const carrier: Record<string, string> = { ...headers };
    propagation.inject(traceContext.active(), carrier);
    checkPrincipal(principal, `principal of ${name}`);
    return {
      id: timeOrderedUuid(),
      name,
      params: boundedJson(`params of ${name}`, encodeParams(params), this.#limits),
      namespace: this.#namespace,
      principal: principal.name,
      headers: boundedJson(`headers of ${name}`, exactJson(carrier, `${name} headers`), this.#limits),
      startedDate: this.#clock.now(),
    };
  }
}

/** Handlers read every header as a text. */
function checkHeaders(headers: ExecutionConfiguration['headers'], path: string): void {
  if (headers === undefined) return;
  exactJson(headers, path);
  for (const [key, value] of Object.entries(headers) as readonly (readonly [string, unknown])[]) {
    if (value !== undefined && typeof value !== 'string')
      throw new UnstorableValueException(`${path}.${key}`, 'it is no text');
  }
}

function checkPrincipal(principal: Principal | undefined, path: string): void {
  const name: unknown = principal?.name;
  if (typeof name !== 'string') throw new UnstorableValueException(path, 'its name is no text');
  checkText(name, path);
}
