import { durableName } from './durable-name.js';

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
