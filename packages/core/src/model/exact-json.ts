import { UnstorableValueException } from '../errors/value-exceptions.js';

const depthMax = 64;

/**
 * Writes a value as JSON that reads back as the same value.
 *
 * @param path names the value in the error, such as `WalletCreatedEvent.amount`
 * @throws UnstorableValueException `unstorable-value` for what JSON or jsonb would change or lose: bigints, dates,
 * class instances, non-finite numbers, `\u0000`, lone surrogates, nesting beyond 64 levels
 */
export function exactJson(value: unknown, path: string): string {
  check(value, path, 0);
  return JSON.stringify(value);
}

function check(value: unknown, path: string, depth: number): void {
  if (depth > depthMax)
    throw new UnstorableValueException(path, `it is nested deeper than ${depthMax} levels`);
  switch (typeof value) {
    case 'string':
      return checkText(value, path);
    case 'number':
      if (!Number.isFinite(value)) throw new UnstorableValueException(path, `JSON has no ${value}`);
      return;
    case 'boolean':
      return;
    case 'object':
      return checkObject(value, path, depth);
    default:
      throw new UnstorableValueException(path, `JSON has no ${typeof value}; write it by a codec`);
  }
}

/** Refuses text that PostgreSQL cannot hold. */
export function checkText(value: string, path: string): void {
  if (value.includes('\u0000'))
    throw new UnstorableValueException(path, 'the database cannot hold \\u0000 in text');
  if (!value.isWellFormed())
    throw new UnstorableValueException(path, 'the text has half of a surrogate pair');
}

function checkObject(value: object | null, path: string, depth: number): void {
  if (value === null) return;
  if (Array.isArray(value)) {
    // By index, because forEach passes over holes, which JSON turns into null.
    for (let index = 0; index < value.length; index++) check(value[index], `${path}[${index}]`, depth + 1);
    return;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    const { constructor } = value as { readonly constructor?: { readonly name: string } };
    throw new UnstorableValueException(
      path,
      `JSON has no ${constructor?.name ?? 'such object'}; write it by a codec`,
    );
  }
  for (const [key, field] of Object.entries(value)) {
    checkText(key, path);
    if (field !== undefined) check(field, `${path}.${key}`, depth + 1);
  }
}
