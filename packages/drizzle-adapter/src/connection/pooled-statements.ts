import { createHash } from 'node:crypto';
import type pg from 'pg';

/**
 * Has a connection behind a pooler call prepared statements by what they are, or not prepare them at all.
 *
 * There, other clients may have given the same server process another statement under the same name. A name that stands
 * for one text only can be missing, but never mean something else. A pooler that keeps no track of names lets them be
 * missing all the time: then statements are sent whole.
 */
export function adaptStatementNames(client: pg.ClientBase, areNamed: boolean): void {
  const send = client.query.bind(client) as (query: unknown, ...rest: readonly unknown[]) => unknown;
  const sendAdapted = (query: unknown, ...rest: readonly unknown[]): unknown =>
    send(isNamed(query) ? renamed(query, areNamed) : query, ...rest);
  Object.assign(client, { query: sendAdapted });
}

interface NamedQuery {
  readonly name: string;
  readonly text: string;
}

function isNamed(query: unknown): query is NamedQuery {
  return typeof query === 'object' && query !== null && 'name' in query && typeof query.name === 'string';
}

/** Its fields may be inherited: see `queryOf`. */
function renamed(query: NamedQuery, areNamed: boolean): object {
  const name = areNamed ? contentName(query.text) : undefined;
  return Object.assign(Object.create(query) as object, query, { name });
}

const contentNames = new Map<string, string>();
const contentNamesMax = 2_000;

/** Within the 63 characters that a name may have. */
function contentName(text: string): string {
  let name = contentNames.get(text);
  if (name === undefined) {
    name = `framework_${createHash('sha256').update(text).digest('hex').slice(0, 40)}`;
    if (contentNames.size >= contentNamesMax) contentNames.clear();
    contentNames.set(text, name);
  }
  return name;
}
