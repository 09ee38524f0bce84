const fractionDigits = 18;
const unit = 10n ** BigInt(fractionDigits);

/**
 * Writes a decimal in the one way in which the suite compares decimals: with 18 digits after the point.
 *
 * @param text such as `25.5` or `-3`
 */
export function decimal(text: string): string {
  return written(scaled(text));
}

/** Adds two decimals exactly. */
export function sum(one: string, other: string): string {
  return written(scaled(one) + scaled(other));
}

function scaled(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(fractionDigits, '0'));
}

function written(value: bigint): string {
  const size = value < 0n ? -value : value;
  const fraction = (size % unit).toString().padStart(fractionDigits, '0');
  return `${value < 0n ? '-' : ''}${size / unit}.${fraction}`;
}
