import { type EventClass, InvariantViolationError } from '@framework/core';
import * as z from 'zod';

/** A reference to another place of the document, such as `#/components/messages/CounterIncreasedEvent`. */
export interface AsyncApiReference {
  readonly $ref: string;
}

type JsonSchema = Readonly<Record<string, unknown>>;
type Refer = (ref: string, name: string) => AsyncApiReference;

/** The keywords of JSON Schema that have further schemas, and what these add to the name of the one around them. */
const nested: Readonly<Record<string, (key: string) => string>> = {
  properties: (key) =>
    key.replaceAll(/(?:^|[^\p{L}\p{N}]+)(.?)/gu, (_, first: string) => first.toUpperCase()),
  patternProperties: () => 'Value',
  additionalProperties: () => 'Value',
  propertyNames: () => 'Key',
  not: () => 'Not',
  contains: () => 'Item',
  items: (position) => `Item${position}`,
  additionalItems: () => 'Item',
  anyOf: (position) => `Option${position}`,
  oneOf: (position) => `Option${position}`,
  allOf: (position) => `Part${position}`,
};

/** The JSON Schemas of payloads: of what the log stores, and the body has, which is what codecs encode to. */
export class PayloadSchemas {
  readonly components: Record<string, object> = {};
  readonly #names: Set<string>;
  /** The keys of schemas with an `id`, by it and by what they are: several payloads may have the same one. */
  readonly #shared = new Map<string, string>();

  /** @param eventTypes the names of the payloads, which no schema in them gets */
  constructor(eventTypes: readonly string[]) {
    this.#names = new Set(eventTypes.flatMap((type) => [type, keyOf(type)]));
  }

  add(eventType: string, { payload }: EventClass): AsyncApiReference {
    const { definitions, ...root } = jsonSchemaOf(eventType, payload);
    const named = (definitions ?? {}) as Readonly<Record<string, JsonSchema>>;
    // A payload with an `id` is a definition itself.
    const own = typeof root['$ref'] === 'string' ? root['$ref'] : '#';
    const references = new Map([[own, referenceTo('schemas', keyOf(eventType))]]);
    const refer: Refer = (ref, name) => {
      const known = references.get(ref);
      if (known !== undefined) return known;
      const id = idIn(ref);
      const schema = named[id] ?? {};
      // Zod numbers recursive schemas without an `id`.
      const isNumbered = id.startsWith('__schema');
      const content = `${id} ${JSON.stringify(schema).replaceAll(/__schema\d+/g, '__schema')}`;
      const shared = isNumbered ? undefined : this.#shared.get(content);
      const title = shared ?? this.#unused(keyOf(isNumbered ? name : id));
      const reference = referenceTo('schemas', title);
      references.set(ref, reference);
      if (!isNumbered) this.#shared.set(content, title);
      if (shared === undefined) this.components[title] = this.#titled(schema, title, refer);
      return reference;
    };
    const schema = own === '#' ? root : (named[idIn(own)] ?? {});
    this.components[keyOf(eventType)] = this.#titled(schema, eventType, refer);
    return referenceTo('schemas', keyOf(eventType));
  }

  /** Gives titles to the schemas of which generators make a type, and resolves references. */
  #titled(schema: JsonSchema, name: string, refer: Refer): JsonSchema {
    const { $ref, allOf } = schema;
    if (typeof $ref === 'string') return { ...refer($ref, name) };
    // Zod writes so what is optional and has an `id`.
    if (Array.isArray(allOf) && allOf.length === 1 && Object.keys(schema).length === 1)
      return this.#titled(allOf[0] as JsonSchema, name, refer);
    const within = (suffix: string, value: unknown): unknown => {
      if (typeof value !== 'object' || value === null) return value;
      const inner = value as JsonSchema;
      const needsTitle = isType(inner) && inner['title'] === undefined;
      return this.#titled(inner, needsTitle ? this.#unused(name + suffix) : name + suffix, refer);
    };
    const entries = Object.entries(schema).map(([keyword, value]) => {
      const suffixOf = nested[keyword];
      if (suffixOf === undefined) return [keyword, value] as const;
      if (Array.isArray(value))
        return [keyword, value.map((each, index) => within(suffixOf(`${index + 1}`), each))] as const;
      if (keyword !== 'properties' && keyword !== 'patternProperties')
        return [keyword, within(suffixOf(''), value)] as const;
      const schemas = Object.entries(value as JsonSchema).map(
        ([key, each]) => [key, within(suffixOf(key), each)] as const,
      );
      return [keyword, Object.fromEntries(schemas)] as const;
    });
    return { ...(isType(schema) && { title: name }), ...Object.fromEntries(entries) };
  }

  #unused(name: string): string {
    let unused = name;
    for (let count = 2; this.#names.has(unused); count++) unused = `${name}${count}`;
    this.#names.add(unused);
    return unused;
  }
}

function jsonSchemaOf(eventType: string, payload: EventClass['payload']): JsonSchema {
  try {
    const { $schema: _, ...schema } = z.toJSONSchema(payload, { io: 'input', target: 'draft-7' });
    return schema;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new InvariantViolationError(`The payload of ${eventType} has no JSON Schema: ${reason}`, { cause });
  }
}

function isType({ type, enum: values, anyOf, oneOf, allOf }: JsonSchema): boolean {
  return type === 'object' || [values, anyOf, oneOf, allOf].some((each) => each !== undefined);
}

/** The name of a definition, from a reference to it. */
function idIn(ref: string): string {
  return decodeURIComponent(ref.replace('#/definitions/', '')).replaceAll('~1', '/').replaceAll('~0', '~');
}

export function referenceTo(kind: 'messages' | 'schemas', key: string): AsyncApiReference {
  return { $ref: `#/components/${kind}/${key}` };
}

/** A name as a key: AsyncAPI allows letters, digits, dots, hyphens and underscores. */
export function keyOf(name: string): string {
  return name.replaceAll(/[^\w.-]/gu, (character) => `_${character.codePointAt(0)?.toString(16)}_`);
}
