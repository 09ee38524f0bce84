/** What newer browsers tell a reviver besides key and value. */
type Reviver = (key: string, value: unknown, context?: { readonly source?: string }) => unknown;

/**
 * Parses JSON so that no digit is lost: a number that JavaScript would write in another way, such as 9007199254740993 or 0.10, becomes
 * its text. Older browsers (before Chromium 114, Firefox 135 and Safari 18.4) cannot tell; there, integers above 2^53 are marked with ≈.
 */
export function parseExact(text: string): unknown {
  return JSON.parse(text, exact) as unknown;
}

const exact: Reviver = (_key, value, context) => {
  if (typeof value !== 'number') return value;
  const { source } = context ?? {};
  if (source === undefined)
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? `≈ ${value}` : value;
  return String(value) === source ? value : source;
};

const decimal = /^-?(0|[1-9]\d*)(\.\d+)?$/;

/** Whether a value of a payload is a number, also one that is written as a text so that it is exact. */
export function isNumeric(value: unknown): value is number | string {
  return (
    typeof value === 'number' || (typeof value === 'string' && value.length <= 40 && decimal.test(value))
  );
}
