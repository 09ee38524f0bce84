import { SocketAddress, isIPv4, isIPv6 } from 'node:net';

/** Whether PostgreSQL returns a text exactly as it was written. It rewrites any other spelling that it understands. */
export type IsCanonical = (text: string) => boolean;

const clock = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{0,5}[1-9]))?`;
const zone = String.raw`(?:\+00|[+-](?!00$)(?:0\d|1[0-5])(?::(?!00)[0-5]\d)?|-00:(?!00)[0-5]\d|\+00:(?!00)[0-5]\d)`;

/** A calendar day, such as `2026-03-04`, in the years 1 to 9999. */
export const isDate: IsCanonical = (text) => {
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text)?.map(Number) ?? [];
  if (year === undefined || month === undefined || day === undefined || year === 0) return false;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
};

/**
 * A time of day, such as `07:05:00.25`, with a zone (`+05:30`) if the column has one.
 *
 * @param precision how many fractional digits of a second the column keeps
 */
export function isTime(withZone: boolean, precision: number): IsCanonical {
  const layout = new RegExp(`^${clock}${withZone ? zone : ''}$`);
  const midnight = withZone ? /^24:00:00/ : /^24:00:00$/;
  return (text) => {
    const ordinary = midnight.test(text) ? text.replace('24', '00') : text;
    const found = layout.exec(ordinary);
    return found !== null && (found[1] ?? '').length <= precision;
  };
}

/**
 * A day and a time, such as `2026-03-04 07:05:00.25`, followed by `+00` if the column has a zone, because sessions use
 * UTC.
 */
export function isTimestamp(withZone: boolean, precision: number): IsCanonical {
  const layout = new RegExp(`^(.{10}) ${clock}${withZone ? String.raw`\+00` : ''}$`);
  return (text) => {
    const [found, day = '', fraction = ''] = layout.exec(text) ?? [];
    return found !== undefined && isDate(day) && fraction.length <= precision;
  };
}

const parts =
  /^(?:([+-]?\d{1,9}) years?)?(?: ?([+-]?\d{1,10}) mons?)?(?: ?([+-]?\d{1,10}) days?)?(?: ?([+-]?)(\d{2,9}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?)?$/;
const int32Max = 2 ** 31 - 1;

/**
 * An interval such as `1 year 2 mons -3 days +04:05:06.25`, with fewer than 12 months and fewer than 60 minutes and
 * seconds.
 */
export function isInterval(precision: number): IsCanonical {
  return (text) => {
    const found = parts.exec(text);
    if (found === null) return false;
    const [, years = '0', months = '0', days = '0', sign = '', hours = '', minutes, seconds, fraction = ''] =
      found;
    const totalMonths = Number(years) * 12 + Number(months);
    if (Math.abs(totalMonths) > int32Max || Math.abs(Number(days)) > int32Max) return false;
    let written = '';
    let isAfterNegative = false;
    const add = (value: number, unit: string): void => {
      if (value === 0) return;
      const plus = isAfterNegative && value > 0 ? '+' : '';
      written += `${written === '' ? '' : ' '}${plus}${value} ${unit}${value === 1 ? '' : 's'}`;
      isAfterNegative = value < 0;
    };
    add(Math.trunc(totalMonths / 12), 'year');
    add(totalMonths % 12, 'mon');
    add(Number(days), 'day');
    const isZero = /^[0:.]*$/.test(`${hours}:${minutes ?? ''}:${seconds ?? ''}.${fraction}`);
    if (written === '' || !isZero) {
      const minus = sign === '-' && !isZero;
      const time = `${hours.replace(/^0+(?=\d\d)/, '')}:${minutes ?? ''}:${seconds ?? ''}`;
      const rest = fraction.replace(/0+$/, '');
      written += `${written === '' ? '' : ' '}${minus ? '-' : isAfterNegative ? '+' : ''}${time}${rest && `.${rest}`}`;
    }
    return written === text && fraction.length <= precision;
  };
}

/** A network address. An `inet` has a prefix only if it is shorter than the address, a `cidr` always has one. */
export function isAddress(type: 'inet' | 'cidr'): IsCanonical {
  return (text) => {
    const [, address = '', prefix] = /^([^/%]+)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
    const bits = isIPv4(address) ? 32 : 128;
    if (bits === 128 && !isCanonicalIPv6(address)) return false;
    if (prefix === undefined) return type === 'inet';
    if (Number(prefix) > bits - (type === 'inet' ? 1 : 0)) return false;
    return type === 'inet' || hasNoHost(address, Number(prefix), bits);
  };
}

/** Whether all bits after the prefix are zero. */
function hasNoHost(address: string, prefix: number, bits: 32 | 128): boolean {
  const all = bits === 32 ? bitsOfIPv4(address) : bitsOfIPv6(address);
  return BigInt.asUintN(bits - prefix, all) === 0n;
}

function bitsOfIPv4(address: string): bigint {
  return address.split('.').reduce((bits, byte) => (bits << 8n) | BigInt(byte), 0n);
}

function bitsOfIPv6(address: string): bigint {
  // The last 32 bits of an IPv6 address may be written as an IPv4 address.
  const words = address.replace(/[\d.]+\.\d+$/, (last) => {
    const bits = bitsOfIPv4(last);
    return `${(bits >> 16n).toString(16)}:${(bits & 0xffffn).toString(16)}`;
  });
  const [head = [], tail = []] = words.split('::').map((half) => half.split(':').filter(Boolean));
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  return [...head, ...zeros, ...tail].reduce((bits, word) => (bits << 16n) | BigInt(`0x${word}`), 0n);
}

function isCanonicalIPv6(address: string): boolean {
  return isIPv6(address) && new SocketAddress({ address, family: 'ipv6' }).address === address;
}

/** A UUID in lower case, with its dashes. */
export const isUuid: IsCanonical = (text) =>
  /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/.test(text);

/** A hardware address in lower case, with colons. */
export function isHardwareAddress(byteCount: 6 | 8): IsCanonical {
  const layout = new RegExp(`^[0-9a-f]{2}(:[0-9a-f]{2}){${byteCount - 1}}$`);
  return (text) => layout.test(text);
}

const bits = new DataView(new ArrayBuffer(4));
/** Every integer below this is exactly representable in single precision. */
const integerMax = 2 ** 24;
const digitsMax = 9;

/** The interval of numbers that round to one single-precision number, in units of a power of two. */
interface Range {
  readonly low: bigint;
  readonly middle: bigint;
  readonly high: bigint;
  readonly exponent: number;
}

/**
 * Returns the decimal that PostgreSQL writes for a `real`. PostgreSQL considers all decimals that are strictly nearer
 * to the number than to any other single-precision number, and takes the one with the fewest digits; of several such,
 * the closest; of two equally close ones, the even one.
 *
 * `toPrecision` gives another result for powers of two, whose lower neighbour is nearer, and for decimals halfway
 * between two single-precision numbers.
 *
 * @see Ulf Adams, Ryū: fast float-to-string conversion, PLDI 2018; PostgreSQL excludes the ends of the interval
 * @param single a result of `Math.fround`
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

/** The interval of numbers that are nearer to a single-precision number than to its neighbours. */
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

/**
 * The multiple of a power of ten that is closest to the middle of a range; `undefined` if none lies within the range.
 */
function closest({ low, middle, high, exponent }: Range, power: number): number | undefined {
  const factor = 2n ** BigInt(Math.max(0, exponent)) * 10n ** BigInt(Math.max(0, -power));
  const unit = 2n ** BigInt(Math.max(0, -exponent)) * 10n ** BigInt(Math.max(0, power));
  const below = (middle * factor) / unit;
  const isWithin = (count: bigint): boolean => low * factor < count * unit && count * unit < high * factor;
  const [first, second] = closerFirst(below, (middle * factor - below * unit) * 2n - unit);
  const found = isWithin(first) ? first : isWithin(second) ? second : undefined;
  return found === undefined ? undefined : Number(`${found}e${power}`);
}

/**
 * The two multiples around the middle of a range, the closer one first.
 *
 * @param below the lower one
 * @param beyond how far the middle of the range is above the midpoint between `below` and the next multiple
 */
function closerFirst(below: bigint, beyond: bigint): readonly [bigint, bigint] {
  const above = below + 1n;
  const isBelowCloser = beyond < 0n || (beyond === 0n && below % 2n === 0n);
  return isBelowCloser ? [below, above] : [above, below];
}
