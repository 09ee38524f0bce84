import { InvalidModelException } from '../errors/value-exceptions.js';

/**
 * Gives the value back when it is there, for constructors of models that also read foreign input.
 *
 * @throws InvalidModelException `invalid-model` with the message when it is `null` or `undefined`
 */
export function notNull<T>(value: T, message: string): NonNullable<T> {
  if (value === null || value === undefined) throw new InvalidModelException(message);
  return value;
}
