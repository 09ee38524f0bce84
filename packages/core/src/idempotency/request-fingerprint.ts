import { createHash } from 'node:crypto';
import * as z from 'zod';

import { exactJson } from '../model/exact-json.js';
import type { ActionRecord } from '../storage/change-set.js';

/**
 * The fingerprint that distinguishes requests: the SHA-256 of the action's name and its params as JSON, in hexadecimal;
 * see {@link requestJson}.
 *
 * @param schema the schema of the params, if the action declares one
 */
export function fingerprintOf({ name, params }: ActionRecord, schema: z.core.$ZodType | undefined): string {
  const text = JSON.stringify([name, requestJson(params, schema)]);
  return createHash('sha256').update(text).digest('hex');
}

/**
 * The JSON that distinguishes requests. It is the same for the same request, whatever the order of its fields, and
 * whether or not they state a default of the schema.
 *
 * So a field that a deployment adds as optional or with a default does not change earlier requests. Different params
 * still have different texts: a field is left out only if params without it would be refused.
 *
 * @param params the params as written to the log
 * @param schema the schema of the params; `undefined` if the action declares none
 */
export function requestJson(params: string, schema: z.core.$ZodType | undefined): string {
  return JSON.stringify(sorted(withoutDefaults(schema, JSON.parse(params))));
}

function sorted(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(sorted);
  if (!isObject(json)) return json;
  const keys = Object.keys(json).sort();
  return fromEntries(keys.map((key) => [key, sorted(json[key])]));
}

/**
 * The encoded value without fields that equal their defaults.
 *
 * Below a union or an intersection all fields stay: there, the rest of an object does not show which schema, and so
 * which default, applies to a missing field.
 */
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
  const schemaOf = (key: string) => (Object.hasOwn(shape, key) ? shape[key] : undefined);
  const own = Object.entries(json).filter(([key, field]) => !isDefault(schemaOf(key), field));
  return mapped(fromEntries(own), schemaOf);
}

function ofItems(json: object, schemaAt: (index: number) => z.core.$ZodType | undefined): unknown {
  if (!Array.isArray(json)) return json;
  return json.map((item: unknown, index) => withoutDefaults(schemaAt(index), item));
}

function mapped(json: object, schemaOf: (key: string) => z.core.$ZodType | undefined): unknown {
  const entries = Object.entries(json);
  return fromEntries(entries.map(([key, field]) => [key, withoutDefaults(schemaOf(key), field)]));
}

/** Whether a field has its default value and must not be absent from encoded params. */
function isDefault(schema: z.core.$ZodType | undefined, json: unknown): boolean {
  const written = schema === undefined ? undefined : writtenDefault(schema);
  return written !== undefined && written === JSON.stringify(sorted(json)) && !mayBeAbsent(schema);
}

/** A field's default in encoded form; `undefined` if it has none that JSON can represent. */
function writtenDefault(schema: z.core.$ZodType): string | undefined {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'default': {
      const written = z.safeEncode(def.innerType, def.defaultValue);
      return written.success ? canonical(written.data) : undefined;
    }
    case 'prefault':
      return canonical(def.defaultValue);
    case 'nullable':
    case 'nonoptional':
    case 'readonly':
      return writtenDefault(def.innerType);
    default:
      return undefined;
  }
}

function canonical(value: unknown): string | undefined {
  try {
    return JSON.stringify(sorted(JSON.parse(exactJson(value, 'default'))));
  } catch {
    return undefined;
  }
}

/** Whether params without the field are accepted and mean something other than the default. */
function mayBeAbsent(schema: z.core.$ZodType | undefined): boolean {
  try {
    return schema === undefined || z.safeEncode(schema, undefined).success;
  } catch {
    // A schema that throws here refuses params without the field, too.
    return false;
  }
}

function isObject(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

/** Like a literal, but treats `__proto__` as a key like any other. */
function fromEntries(entries: readonly (readonly [string, unknown])[]): Record<string, unknown> {
  return Object.fromEntries(entries);
}
