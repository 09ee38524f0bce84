import * as z from 'zod';

/** A field that a schema would silently drop. */
export interface DroppedField {
  /** Its position within the value, such as `.lines[0].note`. */
  readonly path: string;
  readonly reason: string;
}

const neverWritten = 'zod drops fields with this name whatever the schema says: rename the field';
const notListed = 'its schema lacks it, so it would be dropped: add it to the schema';

/**
 * Finds the first field of a value that its schema would drop silently when encoding, as `z.object` does with unlisted
 * keys.
 *
 * @param value a value that the schema has accepted
 * @param instances whether to report class instances, too, for which the schema would read back a plain object
 */
export function droppedField(
  schema: z.core.$ZodType,
  value: unknown,
  { instances = false }: { readonly instances?: boolean } = {},
): DroppedField | undefined {
  return droppedFields(schema, value, { path: '', instances })[0];
}

interface Place {
  readonly path: string;
  readonly instances: boolean;
}

function droppedFields(schema: z.core.$ZodType, value: unknown, place: Place): readonly DroppedField[] {
  if (typeof value !== 'object' || value === null) return [];
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object':
      return ofObject(def, value, place);
    case 'array':
      return ofItems(value, place, () => def.element);
    case 'tuple':
      return ofItems(value, place, (index) => def.items[index] ?? def.rest ?? undefined);
    case 'record':
      return Object.entries(value).flatMap(([key, field]) =>
        ofField(key, def.valueType, field, within(place, `.${key}`)),
      );
    case 'union': {
      // The first option that accepts the value is the one that encodes it.
      const chosen = def.options.find((option) => z.safeEncode(option, value).success);
      return chosen === undefined ? [] : droppedFields(chosen, value, place);
    }
    case 'intersection': {
      const ofLeft = droppedFields(def.left, value, place);
      const ofRight = droppedFields(def.right, value, place);
      const left = new Set(ofLeft.map(({ path }) => path));
      const right = new Set(ofRight.map(({ path }) => path));
      // A field dropped by one half may be encoded by the other. A field that is never encoded is missing from both.
      return [...ofLeft, ...ofRight].filter(
        ({ path, reason }) => reason === neverWritten || (left.has(path) && right.has(path)),
      );
    }
    case 'pipe':
      return droppedFields(def.out, value, place);
    case 'lazy':
      return droppedFields(def.getter(), value, place);
    case 'optional':
    case 'nullable':
    case 'nonoptional':
    case 'default':
    case 'prefault':
    case 'catch':
    case 'readonly':
      return droppedFields(def.innerType, value, place);
    default:
      return [];
  }
}

function ofObject(
  { shape, catchall }: z.core.$ZodObjectDef,
  value: object,
  place: Place,
): readonly DroppedField[] {
  const dropped: DroppedField[] = [];
  if (place.instances && !isPlain(value)) {
    const reason = `it is a ${value.constructor.name}, but its schema would read back a plain object: use a codec`;
    dropped.push({ path: place.path, reason });
  }
  for (const [key, field] of Object.entries(value)) {
    const known = Object.hasOwn(shape, key) ? shape[key] : catchall;
    dropped.push(...ofField(key, known, field, within(place, `.${key}`)));
  }
  return dropped;
}

function ofField(
  key: string,
  schema: z.core.$ZodType | undefined,
  field: unknown,
  place: Place,
): readonly DroppedField[] {
  if (key === '__proto__') return [{ path: place.path, reason: neverWritten }];
  if (schema !== undefined) return droppedFields(schema, field, place);
  return field === undefined ? [] : [{ path: place.path, reason: notListed }];
}

function ofItems(
  value: object,
  place: Place,
  schemaAt: (index: number) => z.core.$ZodType | undefined,
): readonly DroppedField[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown, index) => {
    const schema = schemaAt(index);
    return schema === undefined ? [] : droppedFields(schema, item, within(place, `[${index}]`));
  });
}

function within({ path, instances }: Place, step: string): Place {
  return { path: path + step, instances };
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
