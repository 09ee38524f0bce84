import {
  type DatabaseDelivery,
  InvalidCursorException,
  type Page,
  type ParkedFilter,
  type ParkedRow,
} from '@framework/core';

const limitDefault = 100;

/**
 * One page of the parked events of all databases, one database after the other.
 *
 * @throws InvalidCursorException `invalid-cursor` when `after` is no `next` of an earlier page
 */
export async function findParkedPage(
  databases: readonly DatabaseDelivery[],
  filter: ParkedFilter,
  { limit = limitDefault, after }: { readonly limit?: number; readonly after?: string },
): Promise<Page<ParkedRow>> {
  let { index, within } = place(after, databases.length);
  const items: ParkedRow[] = [];
  for (; index < databases.length; index++, within = undefined) {
    if (items.length === limit) return { items, next: `${index}:` };
    const page = await databases[index]?.store.deadLetters.find(filter, {
      limit: limit - items.length,
      ...(within !== undefined && { after: within }),
    });
    items.push(...(page?.items ?? []));
    if (page?.next !== undefined) return { items, next: `${index}:${page.next}` };
  }
  return { items, next: undefined };
}

function place(
  after: string | undefined,
  databaseCount: number,
): { readonly index: number; readonly within: string | undefined } {
  if (after === undefined) return { index: 0, within: undefined };
  const colon = after.indexOf(':');
  const index = Number(after.slice(0, colon));
  if (colon < 1 || !Number.isInteger(index) || index < 0 || index >= databaseCount) {
    throw new InvalidCursorException(after);
  }
  const within = after.slice(colon + 1);
  return { index, within: within === '' ? undefined : within };
}
