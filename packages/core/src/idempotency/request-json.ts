import * as z from 'zod';

/**
 * The JSON by which a request is told from others: the same for the same request, in whatever order its fields come and
 * whether or not they name what a default of the schema says.
 *
 * So a field that a deployment adds with a default, or as an optional one, changes no request that was made before.
 *
 * @param params as they are written to the log
 * @param schema of the params; `undefined` when the action declares none
 */
export function requestJson(params: string, schema: z.core.$ZodType | undefined): string {
  return JSON.stringify(sorted(withoutDefaults(schema, JSON.parse(params))));
}

/**
 * Further texts under which the same request may have been stored: before the schema had its defaults, or by the first
 * version of the framework, which kept the order of fields.
 */
export function earlierRequestJsons(params: string, schema: z.core.$ZodType | undefined): readonly string[] {
  const json: unknown = JSON.parse(params);
  return [JSON.stringify(sorted(json)), params, JSON.stringify(withoutDefaults(schema, json))];
}

function sorted(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(sorted);
  if (!isObject(json)) return json;
  const keys = Object.keys(json).sort();
  return fromEntries(keys.map((key) => [key, sorted(json[key])]));
}

/** What a schema has written, without the fields that equal their defaults. */
function withoutDefaults(schema: z.core.$ZodType | undefined, json: unknown): unknown {
  if (schema === undefined || typeof json !== 'object' || json === null) return json;
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object':
      return ofObject(def.shape, json);
    case 'array':
      return ofItems(json, () => def.element);
    case 'tuple':
      return ofItems(json, (index) => def.items[index] ?? def.rest ?? undefined);
    case 'record':
      return mapped(json, () => def.valueType);
    case 'union':
      return withoutDefaults(
        def.options.find((option) => z.safeDecode(option, json).success),
        json,
      );
    case 'intersection':
      return withoutDefaults(def.right, withoutDefaults(def.left, json));
    case 'pipe':
      return withoutDefaults(def.in, json);
    case 'lazy':
      return withoutDefaults(def.getter(), json);
    case 'optional':
    case 'nullable':
    case 'nonoptional':
    case 'default':
    case 'prefault':
    case 'catch':
    case 'readonly':
      return withoutDefaults(def.innerType, json);
    default:
      return json;
  }
}

function ofObject(shape: z.core.$ZodShape, json: object): unknown {
  if (!isObject(json)) return json;
  const own = Object.entries(json).filter(([key, field]) => !isDefault(shape[key], field));
  return mapped(fromEntries(own), (key) => shape[key]);
}

function ofItems(json: object, schemaAt: (index: number) => z.core.$ZodType | undefined): unknown {
  if (!Array.isArray(json)) return json;
  return json.map((item: unknown, index) => withoutDefaults(schemaAt(index), item));
}

function mapped(json: object, schemaOf: (key: string) => z.core.$ZodType | undefined): unknown {
  const entries = Object.entries(json);
  return fromEntries(entries.map(([key, field]) => [key, withoutDefaults(schemaOf(key), field)]));
}

function isDefault(schema: z.core.$ZodType | undefined, json: unknown): boolean {
  if (schema === undefined) return false;
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'default': {
      const written = z.safeEncode(def.innerType, def.defaultValue);
      return written.success && isSame(written.data, json);
    }
    case 'prefault':
      return isSame(def.defaultValue, json);
    case 'optional':
    case 'nullable':
    case 'nonoptional':
    case 'readonly':
      return isDefault(def.innerType, json);
    default:
      return false;
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function isObject(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

/** As `Object.fromEntries`, but `__proto__` is a key like any other. */
function fromEntries(entries: readonly (readonly [string, unknown])[]): Record<string, unknown> {
  return Object.fromEntries(entries);
}
