import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { RawAnswer } from '../raw-connection.js';

/** The part of JSON schema that the document uses for requests. */
export interface RequestSchema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, RequestSchema>>;
  readonly required?: readonly string[];
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
}

interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required?: boolean;
  readonly schema: RequestSchema;
}

interface DocumentedOperation {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: {
    readonly required: boolean;
    readonly content: { readonly 'application/json': { readonly schema: RequestSchema } };
  };
  readonly responses: Readonly<Record<string, { readonly content: Readonly<Record<string, object>> }>>;
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DocumentedOperation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, RequestSchema>> };
}

/** One method of one path in the document. */
export interface Operation extends DocumentedOperation {
  readonly method: string;
  readonly path: string;
}

const root = 'https://wallet.test/openapi.json';
const requestId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** The answer if no operation is documented. */
const elsewhere = new Set([200, 204, 400, 404, 405, 413, 415, 417, 429, 431]);

/** Compares the service's answers with its OpenAPI document. */
export class DocumentedAnswers {
  readonly operations: readonly Operation[];
  readonly #document: Document;
  readonly #ajv = new Ajv2020({ strict: false, allErrors: true });
  readonly #validators = new Map<string, ValidateFunction>();

  constructor(text: string) {
    this.#document = JSON.parse(text) as Document;
    this.operations = Object.entries(this.#document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path,
      })),
    );
    addFormats.default(this.#ajv);
    // An answer has no undocumented field, although a later version may have some.
    this.#ajv.addSchema(closed(JSON.parse(text)) as object, root);
  }

  /** The schema itself, if this is a reference. */
  schema(schema: RequestSchema): RequestSchema {
    const name = schema.$ref?.split('/').at(-1);
    return name === undefined ? schema : (this.#document.components.schemas[name] ?? schema);
  }

  /** What is wrong with an answer; nothing when it is documented. */
  faults(
    { status, headers, body }: RawAnswer,
    operation: Operation | undefined,
    method: string,
  ): readonly string[] {
    const faults: string[] = [];
    const id = headers['x-request-id'] ?? '';
    if (!requestId.test(id)) faults.push(`x-request-id is '${id}'`);
    if (status >= 500) faults.push(`the status is ${status}`);
    if (status === 405 && headers['allow'] === undefined) faults.push('405 has no Allow');
    const documented = operation?.responses[String(status)];
    if (operation !== undefined && documented === undefined) {
      faults.push(`${status} is not documented for ${operation.method} ${operation.path}`);
    }
    if (operation === undefined && !elsewhere.has(status)) faults.push(`${status} is not documented`);
    if (method === 'HEAD' || status === 204 || status === 304) return faults;
    const type = headers['content-type'] ?? '';
    if (status >= 400 && type !== 'application/problem+json') faults.push(`the type of a problem is ${type}`);
    if (documented !== undefined && !(type in documented.content)) faults.push(`${type} is not documented`);
    if (faults.length > 0 || !type.includes('json')) return faults;
    const value = JSON.parse(body) as Readonly<Record<string, unknown>>;
    if (status >= 400 && (value['status'] !== status || value['instance'] !== `urn:uuid:${id}`)) {
      faults.push(`the problem says ${String(value['status'])} and ${String(value['instance'])}`);
    }
    const pointer =
      operation === undefined
        ? status >= 400 && '#/components/schemas/Problem'
        : `#/paths/${escape(operation.path)}/${operation.method.toLowerCase()}/responses/${status}/content/${escape(type)}/schema`;
    return pointer === false ? faults : [...faults, ...this.#schemaFaults(pointer, value)];
  }

  #schemaFaults(pointer: string, value: unknown): readonly string[] {
    let validate = this.#validators.get(pointer);
    if (validate === undefined) {
      validate = this.#ajv.compile({ $ref: `${root}${pointer}` });
      this.#validators.set(pointer, validate);
    }
    if (validate(value)) return [];
    return (validate.errors ?? []).map(({ instancePath, message = '' }) => `${instancePath} ${message}`);
  }
}

/** A token of a JSON pointer in a URI. */
function escape(token: string): string {
  return encodeURIComponent(token.replaceAll('~', '~0').replaceAll('/', '~1'));
}

/** The same document, in which no object may have additional properties. */
function closed(node: unknown): unknown {
  if (typeof node !== 'object' || node === null) return node;
  if (Array.isArray(node)) return node.map(closed);
  const copy = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, closed(value)]));
  const isOpen = copy['type'] === 'object' && copy['properties'] !== undefined;
  return isOpen ? { additionalProperties: false, ...copy } : copy;
}
