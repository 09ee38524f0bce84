import type { ModelClass } from './model-class.js';

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
