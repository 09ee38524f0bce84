/**
 * Copies a value, so that a change to the original or to the copy does not affect the other: plain objects, lists, dates, maps,
 * sets and bytes, at every level.
 *
 * Instances of other classes are not copied. Ids, shards and decimals never change.
 */
export function copyOfValue<T>(value: T): T {
  return copyOf(value, new Map(), 0) as T;
}

/**
 * The objects that were already copied, with their copies: a value may contain one twice, and params may even be circular if no
 * schema checks them.
 */
type Copies = Map<object, object>;

/** Values below this level are not copied: such deeply nested params are refused when they are recorded. */
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

/** Whether a prototype is that of plain objects, in this realm or in another one, such as those of `node:vm`. */
function isOfObjects(prototype: object): boolean {
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'hasOwnProperty');
}

/** @param copy a shallow copy of the value, whose fields are now replaced by copies */
function copyOfFields(value: object, copy: Record<string, unknown>, copies: Copies, depth: number): object {
  copies.set(value, copy);
  // Assigns even to `__proto__`, because the copy already has it as an own property.
  for (const key in copy) copy[key] = copyOf(copy[key], copies, depth + 1);
  return copy;
}

function copyOfList(list: readonly unknown[], copies: Copies, depth: number): object {
  const copy = [...list];
  // Extra properties are kept, because recording the params refuses them.
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
