/**
 * Copies params, so that nobody who changes theirs changes these: plain objects, lists, dates, maps, sets and bytes, all the
 * way down.
 *
 * Instances of other classes are taken as they are, as ids, shards and decimals are, which never change.
 */
export function copyOfParams<Params>(params: Params): Params {
  return copyOf(params, new Map(), 0) as Params;
}

/** What was copied already, and its copy: params may hold something twice, and where no schema checks them also themselves. */
type Copies = Map<object, object>;

/** Behind so many levels nothing is copied any more: params that are nested so deeply are refused where they are recorded. */
const depthMax = 1_000;

function copyOf(value: unknown, copies: Copies, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > depthMax) return value;
  const known = copies.get(value);
  if (known !== undefined) return known;
  const prototype = Object.getPrototypeOf(value) as object | null;
  if (Array.isArray(value)) return Array.isArray(prototype) ? copyOfList(value, copies, depth) : value;
  switch (prototype) {
    case null:
      return copyOfFields(value, Object.assign(Object.create(null), value), copies, depth);
    case Date.prototype:
      return new Date(value as Date);
    case Map.prototype:
      return copyOfMap(value as Map<unknown, unknown>, copies, depth);
    case Set.prototype:
      return copyOfSet(value as Set<unknown>, copies, depth);
    default:
      if (value instanceof Uint8Array) return Uint8Array.prototype.slice.call(value);
      return isOfObjects(prototype) ? copyOfFields(value, { ...value }, copies, depth) : value;
  }
}

/** Whether a prototype is that of plain objects: of this realm or of another one, such as those of `node:vm`. */
function isOfObjects(prototype: object): boolean {
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'hasOwnProperty');
}

/** @param copy has the same fields so far */
function copyOfFields(value: object, copy: Record<string, unknown>, copies: Copies, depth: number): object {
  copies.set(value, copy);
  // Also a key `__proto__` is one like any other: the copy has it as its own.
  for (const key in copy) copy[key] = copyOf(copy[key], copies, depth + 1);
  return copy;
}

function copyOfList(list: readonly unknown[], copies: Copies, depth: number): object {
  const copy = [...list];
  // What is no item is refused where params are recorded, so it is not left out here.
  if (Reflect.ownKeys(list).length !== list.length + 1) Object.assign(copy, list);
  copies.set(list, copy);
  for (const [index, item] of copy.entries()) copy[index] = copyOf(item, copies, depth + 1);
  return copy;
}

function copyOfMap(map: ReadonlyMap<unknown, unknown>, copies: Copies, depth: number): object {
  const copy = new Map<unknown, unknown>();
  copies.set(map, copy);
  for (const [key, item] of map) copy.set(copyOf(key, copies, depth + 1), copyOf(item, copies, depth + 1));
  return copy;
}

function copyOfSet(set: ReadonlySet<unknown>, copies: Copies, depth: number): object {
  const copy = new Set<unknown>();
  copies.set(set, copy);
  for (const item of set) copy.add(copyOf(item, copies, depth + 1));
  return copy;
}
