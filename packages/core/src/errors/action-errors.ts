import { FrameworkError } from './framework-error.js';

/** The executed action is not registered with the executor. */
export class UnknownActionError extends FrameworkError {
  constructor(action: string) {
    super('unknown-action', `${action} is not registered: pass an instance of it in the executor's actions`);
  }
}

/** An action was executed inside `perform` of another one: each would commit on its own, even if the other one failed. */
export class NestedExecutionError extends FrameworkError {
  constructor(inner: string, outer: string) {
    super(
      'nested-execution',
      `${inner} was executed inside perform of ${outer}: stage both changes on one plan, or execute ${inner} afterwards`,
    );
  }
}

/** The principal may not execute the action; thrown by policies. Nothing was written. */
export class AccessDeniedError extends FrameworkError {
  /** @param reason what is refused and why; it may reach the caller */
  constructor(reason: string) {
    super('access-denied', reason);
  }
}

/** The plan was requested while no action is being performed. */
export class PlanUnavailableError extends FrameworkError {
  constructor(action: string) {
    super(
      'plan-unavailable',
      `${action} has no plan here: this.plan() works inside perform, when an ActionExecutor runs the action`,
    );
  }
}

/** The plan was used after `perform` had returned, usually in a promise that nobody awaited. */
export class PlanSealedError extends FrameworkError {
  constructor(action: string) {
    super(
      'plan-sealed',
      `The plan of ${action} is sealed because perform has returned: await every call that stages a change`,
    );
  }
}

/** An id was staged twice in one plan. */
export class StagedTwiceError extends FrameworkError {
  /** The model's name. */
  readonly model: string;
  /** The model's id. */
  readonly id: string;

  constructor(model: string, id: string) {
    super(
      'staged-twice',
      `${model} ${id} is already staged: stage only its last version, with all its events`,
    );
    this.model = model;
    this.id = id;
  }
}

/** The params of an action do not fit the schema that the action declares. */
export class InvalidParamsError extends FrameworkError {
  /** The faults, by path within the params. */
  readonly issues: readonly { readonly path: string; readonly message: string }[];

  constructor(
    action: string,
    issues: readonly { readonly path: string; readonly message: string }[],
    options?: { readonly cause?: unknown },
  ) {
    const faults = issues.map(({ path, message }) => `${path || '(params)'}: ${message}`);
    super('invalid-params', `The params of ${action} do not fit its schema: ${faults.join('; ')}`, options);
    this.issues = issues;
  }
}

/** An idempotency key is empty, too long, or contains a character that the database cannot store. */
export class InvalidIdempotencyKeyError extends FrameworkError {
  constructor(reason: string) {
    super('invalid-idempotency-key', `The idempotency key ${reason}`);
  }
}

/** Another request was committed under the same idempotency key; nothing was written. */
export class IdempotencyKeyReusedError extends FrameworkError {
  /** The key of both requests. */
  readonly key: string;
  /** The action that was committed under the key. */
  readonly actionId: string;

  constructor(
    key: string,
    action: string,
    stored: { readonly actionId: string; readonly actionName: string },
  ) {
    super(
      'idempotency-key-reused',
      `The key ${key} of this ${action} already belongs to another request (${stored.actionName} ${stored.actionId}): ` +
        'repeat a request unchanged, and use a new key for every other request',
    );
    this.key = key;
    this.actionId = stored.actionId;
  }
}

/** A limit was exceeded, such as the number of changes in a plan or of characters in a payload; nothing was written. */
export class LimitExceededError extends FrameworkError {
  /** The name of the limit, such as `changesMax`. */
  readonly limit: string;
  /** The limit's value. */
  readonly maximum: number;

  constructor(limit: string, maximum: number, message: string) {
    super('limit-exceeded', message);
    this.limit = limit;
    this.maximum = maximum;
  }
}
