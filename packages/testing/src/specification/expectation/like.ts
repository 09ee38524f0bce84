/** What is compared of a model, an event or any other object: some of its fields; the others are left open. */
export class Like<out T> {
  /** Exists in the type only: what is compared. */
  declare readonly compared: T;
  /** The class that the object must have. */
  readonly type: abstract new (...args: never[]) => unknown;
  readonly fields: object;

  constructor(type: abstract new (...args: never[]) => unknown, fields: object) {
    this.type = type;
    this.fields = fields;
  }
}

/** Some of the fields of an object, without its methods. */
export type SomeFields<T> = {
  readonly [K in keyof T as T[K] extends (...args: never[]) => unknown ? never : K]?: T[K];
};

/**
 * Expects an object of a class with some fields, and leaves the others open: ids and versions that an action makes, and
 * what the specification is not about.
 *
 * ```ts
 * like(Transfer, { state: 'REFUNDED', reason: 'wallet-closed' })
 * ```
 */
export function like<T extends object>(
  type: abstract new (...args: never[]) => T,
  fields: SomeFields<NoInfer<T>>,
): Like<T> {
  return new Like<T>(type, fields);
}
