const counts = new Intl.NumberFormat('en');
const units = ['B', 'kB', 'MB', 'GB', 'TB'];

/** Such as `12,345`, and `at least 10,000` if there may be more. */
export function count(value: number, isLowerBound = false): string {
  return `${isLowerBound ? 'at least ' : ''}${counts.format(value)}`;
}

/** Such as `1 event` and `2 events`. */
export function counted(value: number, noun: string, isLowerBound = false): string {
  return `${count(value, isLowerBound)} ${noun}${value === 1 ? '' : 's'}`;
}

/** Such as `3 min`. */
export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1_000;
  if (milliseconds === 0) return '0 s';
  if (seconds < 1) return `${Math.max(1, Math.round(milliseconds))} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export function bytes(value: number): string {
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${(value / 1_000 ** power).toPrecision(3)} ${units[power] ?? ''}`;
}

/** The start of a long id, which is enough to recognise it. */
export function shortId(id: string): string {
  return id.length > 22 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id;
}

const isoDate = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Whether a value is an instant; there are texts that only look like one, such as the 45th of a month. */
export function isDate(value: unknown): value is string {
  return typeof value === 'string' && isoDate.test(value) && !Number.isNaN(Date.parse(value));
}

const uuid = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;

/** Whether a value is an id that can be explained. */
export function isUuid(value: unknown): value is string {
  return typeof value === 'string' && uuid.test(value);
}

/** What a field for a local time has, as an instant; anything else as it is, to be refused. */
export function instantOf(local: string): string {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? local : date.toISOString();
}

/** An instant as a field for a local time has it; empty for anything else. */
export function fieldTime(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? '' : `${dayOf(date)}T${clockOf(date)}`;
}

/** In the zone of the reader; without the day if that is today. Always with all digits, so that columns line up. */
export function localTime(iso: string): string {
  const date = new Date(iso);
  const time = clockOf(date);
  return date.toDateString() === new Date().toDateString() ? time : `${dayOf(date)} ${time}`;
}

function dayOf(date: Date): string {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

function clockOf(date: Date): string {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(value: number): string {
  return `${value}`.padStart(2, '0');
}

/** What is shown of any value in a table. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
