const bits = new DataView(new ArrayBuffer(4));
/** Below that, every integer is a single. */
const integerMax = 2 ** 24;
const digitsMax = 9;

/** A range of numbers, and what lies in it, in units of a power of two. */
interface Range {
  readonly low: bigint;
  readonly middle: bigint;
  readonly high: bigint;
  readonly exponent: number;
}

/**
 * The decimal by which PostgreSQL writes a `real`: of those that lie nearer to it than to its neighbours, and not just
 * between, the one with the fewest digits; of several the closest, of two that are as close the even one.
 *
 * `toPrecision` does not give it for powers of two, whose lower neighbour is nearer, and for decimals between two singles.
 *
 * @see Ulf Adams, Ryū: fast float-to-string conversion, PLDI 2018, as PostgreSQL has it: without the ends of the range
 * @param single what `Math.fround` gives
 */
export function shortestSingle(single: number): number {
  const size = Math.abs(single);
  if (!Number.isFinite(single) || (size < integerMax && Number.isInteger(size))) return single;
  const range = rangeOf(size);
  const magnitude = Number(size.toExponential().split('e')[1]);
  for (let digits = 1; digits < digitsMax; digits++) {
    const shortest = closest(range, magnitude - digits + 1);
    if (shortest !== undefined) return Math.sign(single) * shortest;
  }
  return Number(single.toPrecision(digitsMax));
}

/** What is nearer to a single than to its neighbours. */
function rangeOf(size: number): Range {
  bits.setFloat32(0, size);
  const biased = bits.getUint32(0) >>> 23;
  const fraction = bits.getUint32(0) & 0x7f_ffff;
  const middle = 4n * BigInt(biased === 0 ? fraction : fraction | 0x80_0000);
  const isLowerNeighbourNearer = fraction === 0 && biased > 1;
  return {
    low: middle - (isLowerNeighbourNearer ? 1n : 2n),
    middle,
    high: middle + 2n,
    exponent: Math.max(biased, 1) - 152,
  };
}

/** The multiple of a power of ten that is the closest to the middle of a range, if one lies within. */
function closest({ low, middle, high, exponent }: Range, power: number): number | undefined {
  const factor = 2n ** BigInt(Math.max(0, exponent)) * 10n ** BigInt(Math.max(0, -power));
  const unit = 2n ** BigInt(Math.max(0, -exponent)) * 10n ** BigInt(Math.max(0, power));
  const below = (middle * factor) / unit;
  const isWithin = (count: bigint): boolean => low * factor < count * unit && count * unit < high * factor;
  const [first, second] = closerFirst(below, (middle * factor - below * unit) * 2n - unit);
  const found = isWithin(first) ? first : isWithin(second) ? second : undefined;
  return found === undefined ? undefined : Number(`${found}e${power}`);
}

/** @param beyond how far the middle lies beyond that of a number and the next one */
function closerFirst(below: bigint, beyond: bigint): readonly [bigint, bigint] {
  const above = below + 1n;
  const isBelowCloser = beyond < 0n || (beyond === 0n && below % 2n === 0n);
  return isBelowCloser ? [below, above] : [above, below];
}
