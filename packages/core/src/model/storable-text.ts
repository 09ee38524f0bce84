/** Tells whether a value is text that a database holds as it is: without `\u0000` and without half of a surrogate pair. */
export function isStorableText(value: unknown): value is string {
  return typeof value === 'string' && value.isWellFormed() && !value.includes('\u0000');
}
