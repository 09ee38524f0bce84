import { InvariantViolationError } from '../errors/framework-error.js';

/** The class of a model or entity, as a value: for ids, events and repositories. */
export type ModelClass<T> = (abstract new (...args: never[]) => T) & {
  readonly name: string;
  /** The durable name of the model; the class name unless set. */
  readonly modelName?: string;
};

/** The name under which the log knows a model: its static `modelName`, else its class name. */
export function modelNameOf(model: ModelClass<unknown>): string {
  return durableName(model, model.modelName, 'static readonly modelName');
}

/** Its name is another one where a bundler that this package went through renames classes, those of the application, too. */
class NameProbe {}

/** Whether a name is that of the source, and not what a bundler made of it: short, or with an underscore before it. */
function isOwnName(name: string): boolean {
  return NameProbe.name === 'NameProbe' && /^[A-Z]../.test(name);
}

/**
 * The name under which the log knows a class, for good: the one that it declares, else its own.
 *
 * @param declared how a class declares a name, for the message
 * @throws InvariantViolationError `invariant-violation` when a bundler has renamed the class: the log would keep that name; or when
 * the declared one is no text of 1 to 255 characters
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

/** The log finds models by their names: they must fit into an index. */
function checkedName(name: string, named: { readonly name: string }, declared: string): string {
  if (!isStorableText(name) || name.length === 0 || name.length > charactersMax) {
    throw new InvariantViolationError(
      `${named.name} declares a name that is no text of 1 to ${charactersMax} characters: correct ${declared}`,
    );
  }
  return name;
}

/** Tells whether a value is text that a database holds as it is: without `\u0000` and without half of a surrogate pair. */
export function isStorableText(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed() && !value.includes('\u0000');
}

/** Values by the class and the id of a model. */
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
