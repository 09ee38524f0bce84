import { InvariantViolationError } from '../errors/framework-error.js';

/** The class of a model or entity as a value, for ids, events and repositories. */
export type ModelClass<T> = (abstract new (...args: never[]) => T) & {
  readonly name: string;
  /** The durable name of the model. Default: the name of the class. */
  readonly modelName?: string;
};

/** The name of a model in the log: its static `modelName`, otherwise the name of its class. */
export function modelNameOf(model: ModelClass<unknown>): string {
  return durableName(model, model.modelName, 'static readonly modelName');
}

/** A bundler that has renamed a class of this package has also renamed those of the application. */
const areNamesKept = InvariantViolationError.name === 'InvariantViolationError';

/** Whether a name comes from the source. A bundler's names are short, or begin with an underscore. */
function isOwnName(name: string): boolean {
  return areNamesKept && /^[A-Z]../.test(name);
}

/**
 * The permanent name of a class in the log: the declared one, otherwise the name of the class.
 *
 * @param declared the declaration to suggest in the message
 * @throws InvariantViolationError `invariant-violation` when a bundler has renamed the class, because the log would
 * keep that name; or when the declared name is not a storable text of 1 to 255 characters
 */
export function durableName(
  named: { readonly name: string },
  name: string | undefined,
  declared: string,
): string {
  if (name !== undefined) return checkedName(name, named, declared);
  if (isOwnName(named.name)) return named.name;
  throw new InvariantViolationError(
    `The class name '${named.name}' looks renamed by a bundler: declare ${declared}, or let the bundler keep names ` +
      '(keepNames of esbuild and tsup)',
  );
}

const charactersMax = 255;

/** The log is searched by model name, so names must fit into an index. */
function checkedName(name: string, named: { readonly name: string }, declared: string): string {
  if (!isStorableText(name) || name.length === 0 || name.length > charactersMax) {
    throw new InvariantViolationError(
      `${named.name} declares a name that cannot be stored in an index: set ${declared} to a string of 1 to ${charactersMax} ` +
        'characters, without \\u0000 and halves of surrogate pairs',
    );
  }
  return name;
}

/** Whether a database can store a value as text without changing it: no `\u0000`, and no half of a surrogate pair. */
export function isStorableText(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed() && !value.includes('\u0000');
}

/** A map keyed by the class and id of a model. */
export class ModelMap<T> {
  readonly #byClass = new Map<ModelClass<unknown>, Map<string, T>>();

  get(model: ModelClass<unknown>, id: string): T | undefined {
    return this.#byClass.get(model)?.get(id);
  }

  set(model: ModelClass<unknown>, id: string, value: T): void {
    const byId = this.#byClass.get(model);
    if (byId === undefined) this.#byClass.set(model, new Map([[id, value]]));
    else byId.set(id, value);
  }

  delete(model: ModelClass<unknown>, id: string): void {
    this.#byClass.get(model)?.delete(id);
  }
}

/** Classes of models by their names in the log. */
export class ModelsByName {
  readonly #models = new Map<string, ModelClass<unknown>>();

  /** @throws InvariantViolationError `invariant-violation` when two models have the same name */
  constructor(models: readonly ModelClass<unknown>[]) {
    for (const model of models) {
      const name = modelNameOf(model);
      const known = this.#models.get(name) ?? model;
      if (known !== model) {
        throw new InvariantViolationError(
          `Two model classes are named ${name}: give one of them a different static readonly modelName`,
        );
      }
      this.#models.set(name, model);
    }
  }

  /** The class with this name, if it was passed; otherwise an empty class with the name, the same at each call. */
  get(name: string): ModelClass<unknown> {
    const known = this.#models.get(name);
    if (known !== undefined) return known;
    const standIn: ModelClass<unknown> = class extends UnknownModel {
      static readonly modelName = name;
    };
    this.#models.set(name, standIn);
    return standIn;
  }
}

/** Stands for a model whose class was not passed. */
abstract class UnknownModel {
  declare readonly id: unknown;
}
