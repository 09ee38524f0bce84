import { context as traceContext, propagation } from '@opentelemetry/api';
import type { Clock } from '../clock.js';
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
    const carrier: Record<string, string> = { ...headers };
    propagation.inject(traceContext.active(), carrier);
    checkText(principal.name, `principal of ${name}`);
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
