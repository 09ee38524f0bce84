import type * as z from 'zod';

import { UnknownActionError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { UnstorableValueError } from '../errors/value-errors.js';
import { type ModelClass, modelNameOf } from '../id/model-class.js';
import type { ResultCodec } from '../idempotency/keyed-request.js';
import { copyOfValue, exactJson } from '../model/exact-json.js';
import { assertSchema, encodeBySchema, firstDifference, readBack } from '../model/round-trip.js';
import type { AnyEntity } from '../model/model.js';
import type { ModelJsonCodec, ModelMapper } from '../storage/repository.js';
import { type ParamsCodec, paramsCodec } from './action-recorder.js';
import {
  type Action,
  type ActionClass,
  type ActionPolicy,
  actionNameOf,
  declaredOptions,
  discoveredActions,
} from './action.js';

/** Any action, when its types do not matter. */
export type AnyAction = Action<never, unknown>;

/** An action as the executor runs it. */
export interface RegisteredAction<Params, Result> {
  readonly name: string;
  readonly action: Action<Params, Result>;
  readonly policy: ActionPolicy<Params> | undefined;
  readonly paramsCodec: ParamsCodec;
  /** The schema of its params, if it declares one. */
  readonly paramsSchema: z.ZodType | undefined;
  /** How its result is stored beside an idempotency key. */
  readonly resultCodec: ResultCodec;
}

/** The actions that an executor can run: one instance of each class, each with a different durable name. */
export class ActionRegistry {
  /** The instances. */
  readonly actions: readonly AnyAction[];
  readonly #byClass = new Map<unknown, RegisteredAction<never, unknown>>();

  /**
   * Takes actions as values; they need no `@FrameworkAction()`.
   *
   * @param repositories write the results that are models; the executor passes its own
   * @throws InvariantViolationError `invariant-violation` when two actions have the same class or the same name, or when the
   * result of one is a model that no repository can write as JSON, or when its policy is not one
   */
  constructor(actions: readonly AnyAction[], repositories?: readonly ModelMapper[]) {
    this.actions = actions;
    const names = new Set<string>();
    for (const action of actions) {
      const actionClass = action.constructor as ActionClass<never, unknown>;
      const options = declaredOptions(actionClass);
      const name = actionNameOf(actionClass);
      if (this.#byClass.has(actionClass))
        throw new InvariantViolationError(`${name} is registered twice: pass only one instance`);
      if (names.has(name))
        throw new InvariantViolationError(
          `Two actions are named ${name}: declare a different name for one of them`,
        );
      names.add(name);
      this.#byClass.set(actionClass, {
        name,
        action,
        policy: policyOf(name, action),
        paramsCodec: paramsCodec(name, options.params),
        paramsSchema: options.params,
        resultCodec: resultCodec(name, options.result, repositories),
      });
    }
  }

  /**
   * Takes every action that is marked with `@FrameworkAction()` and imported.
   *
   * @param create returns the one instance of a class, for example from a container
   */
  static discover(create: (action: ActionClass<never, unknown>) => AnyAction): ActionRegistry {
    return new ActionRegistry(discoveredActions().map(create));
  }

  /**
   * Finds the instance of a class.
   *
   * @throws UnknownActionError `unknown-action` when it is not registered
   */
  get<Params, Result>(actionClass: ActionClass<Params, Result>): RegisteredAction<Params, Result> {
    const registered = this.#byClass.get(actionClass);
    if (registered === undefined) throw new UnknownActionError(nameOf(actionClass));
    // The map's key is the class of its value, so the types are those of the class.
    return registered as unknown as RegisteredAction<Params, Result>;
  }
}

/** The compiler does not check every application: what is passed may be no class. */
function nameOf(actionClass: unknown): string {
  return typeof actionClass === 'function' ? actionClass.name : String(actionClass);
}

/** The policy of an action; it is read once, so that nothing takes it away later. */
function policyOf(name: string, action: AnyAction): ActionPolicy<never> | undefined {
  const { policy } = action;
  // A declared field is set after the constructor of Action, and so replaces what that was given.
  if (policy === undefined && Object.hasOwn(action, 'policy'))
    throw new InvariantViolationError(`The field policy of ${name} has no value: set it, or leave it out`);
  if (policy === undefined || typeof policy?.authorize === 'function') return policy;
  throw new InvariantViolationError(`The policy of ${name} has no method authorize: implement ActionPolicy`);
}

/** Creates the codec of an action from the schema or the class of models that it declares, if any. */
export function resultCodec(
  action: string,
  result: z.ZodType | ModelClass<unknown> | undefined,
  repositories?: readonly ModelMapper[],
): ResultCodec {
  if (result === undefined) return nothingOnly(action);
  if (typeof result !== 'function') {
    assertSchema(result, `fields of the result of ${action}`);
    return bySchema(`${action} result`, result);
  }
  // A registry without repositories is not used before an executor adds its own.
  if (repositories === undefined) return nothingOnly(action);
  const name = modelNameOf(result);
  const repository = repositories.find(({ model }) => model === result);
  if (repository === undefined) {
    throw new InvariantViolationError(
      `The result of ${action} is a ${name}, which has no repository: add it to the executor's repositories`,
    );
  }
  const codec = repository.jsonCodec?.();
  if (codec !== undefined) return byRepository(`${action} result`, result, codec);
  throw new InvariantViolationError(
    `The result of ${action} is a ${name}, whose repository cannot write JSON: declare a schema of the result`,
  );
}

function byRepository(path: string, model: ModelClass<unknown>, codec: ModelJsonCodec): ResultCodec {
  const decoded = (json: string): AnyEntity => {
    try {
      return codec.decode(json);
    } catch (cause) {
      const reason = `the stored result cannot be read as ${modelNameOf(model)}`;
      throw new UnstorableValueError(path, reason, { cause });
    }
  };
  return {
    encode: (result) => {
      if (!(result instanceof model))
        throw new UnstorableValueError(path, `it is not an instance of ${modelNameOf(model)}`);
      const json = codec.encode(result as AnyEntity);
      const read = decoded(json);
      // By their fields, because an entity may have a text of its own.
      const isOfSameClass = Object.getPrototypeOf(read) === Object.getPrototypeOf(result);
      const difference = isOfSameClass
        ? firstDifference(Object.assign({}, result), Object.assign({}, read))
        : { path: '' };
      if (difference === undefined) return json;
      throw new UnstorableValueError(
        `${path}${difference.path}`,
        'a repeat would get another value than the first request',
      );
    },
    decode: (json) => {
      if (json !== undefined) return decoded(json);
      throw new UnstorableValueError(
        path,
        `nothing was stored, although the result is declared as ${modelNameOf(model)}`,
      );
    },
  };
}

function nothingOnly(action: string): ResultCodec {
  return {
    encode: (result) => {
      if (result === undefined) return undefined;
      throw new InvariantViolationError(
        `${action} has a result that cannot be stored beside an idempotency key: declare static readonly ` +
          'result, the class of a model or a schema',
      );
    },
    decode: () => undefined,
  };
}

function bySchema(path: string, schema: z.ZodType): ResultCodec {
  return {
    encode: (result) => {
      const encoded = encodeBySchema(schema, result, path);
      if (!encoded.success) throw misfit(path, encoded.error);
      const json = encoded.data === undefined ? undefined : exactJson(encoded.data, path);
      const different = firstDifference(result, readBack(schema, parsed(json), path));
      if (different !== undefined) throw new UnstorableValueError(path + different.path, different.reason);
      return json;
    },
    decode: (json) => {
      const decoded = schema.safeParse(parsed(json));
      if (!decoded.success) throw misfit(path, decoded.error, 'the stored result does not fit its schema');
      return copyOfValue(decoded.data);
    },
  };
}

function parsed(json: string | undefined): unknown {
  return json === undefined ? undefined : JSON.parse(json);
}

function misfit(path: string, error: z.ZodError, what = 'it does not fit its schema'): UnstorableValueError {
  const faults = error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
  return new UnstorableValueError(path, `${what} (${faults})`, { cause: error });
}
