/** A number of a JSON text, as it is written there: a detour through a binary float would change amounts. */
export class JsonNumber {
  /** Such as `25.50` or `1e2`. */
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** What `JSON.parse` tells its reviver beyond key and value; TypeScript's library does not know it yet. */
interface SourceContext {
  readonly source?: string;
}

/**
 * Parses JSON with every number as a {@link JsonNumber}, which no schema mistakes for a string or an object.
 *
 * @throws SyntaxError when the text is not JSON, RangeError when it is nested too deeply
 * @see https://tc39.es/proposal-json-parse-with-source/
 */
export function parseExactJson(text: string): unknown {
  return JSON.parse(text, keepSource);
}

function keepSource(_key: string, value: unknown, context?: SourceContext): unknown {
  return typeof value === 'number' ? new JsonNumber(context?.source ?? String(value)) : value;
}
